#include "tests/demo/columns.h"

#include "base/alloc.h"
#include "tests/lib/parallel_fill.h"
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Room for this many more bytes, to a length that max_bytes bounds. */
static int make_room(struct column *column, uint64_t more_bytes, uint64_t max_bytes, struct sw_err *err) {
    if (more_bytes > max_bytes || column->bytes > max_bytes - more_bytes)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                          "longer than %" PRIu64 " bytes, the most that this machine's memory allows here", max_bytes);
    if (column->bytes + more_bytes <= column->cap_bytes)
        return 0;
    uint64_t cap = column->cap_bytes + column->cap_bytes / 2;
    if (cap < column->bytes + more_bytes)
        cap = column->bytes + more_bytes;
    uint8_t *data = sw_realloc(column->data, cap);
    if (!data)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for %" PRIu64 " bytes", cap);
    column->data = data;
    column->cap_bytes = cap;
    return 0;
}

void column_fini(struct column *column) {
    sw_free(column->data);
    memset(column, 0, sizeof *column);
}

int column_tpch(struct column *ret, uint64_t bytes, uint64_t max_bytes, struct sw_err *err) {
    memset(ret, 0, sizeof *ret);
    const int rc = make_room(ret, bytes, max_bytes, err);
    if (rc < 0)
        return rc;
    if (sw_parallel_fill(ret->data, bytes, "tpch") < 0) {
        column_fini(ret);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "threads to make the column could not be started");
    }
    ret->bytes = bytes;
    return 0;
}

static int by_name(const FTSENT **a, const FTSENT **b) {
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static int append_path(struct column *column, const FTSENT *entry, uint64_t max_bytes, struct sw_err *err) {
    const uint64_t bytes = entry->fts_pathlen;
    const int rc = make_room(column, bytes + 1, max_bytes, err);
    if (rc < 0)
        return rc;
    memcpy(column->data + column->bytes, entry->fts_path, bytes);
    column->data[column->bytes + bytes] = '\n';
    column->bytes += bytes + 1;
    return 0;
}

static int is_file(const FTSENT *entry) {
    return entry->fts_info == FTS_F || entry->fts_info == FTS_SL || entry->fts_info == FTS_SLNONE ||
           entry->fts_info == FTS_DEFAULT || entry->fts_info == FTS_NSOK;
}

int column_paths(struct column *ret, const char *root, uint64_t max_bytes, struct sw_err *err) {
    char *const roots[] = {(char *)(uintptr_t)root, NULL}; /* fts only reads them */
    memset(ret, 0, sizeof *ret);
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_NOSTAT, by_name);
    if (!tree)
        return sw_err_set(err, sw_err_from_errno(errno), SW_SCOPE_REQUEST, "%s: %s", root, strerror(errno));
    int rc = 0;
    for (FTSENT *entry; rc == 0 && (entry = fts_read(tree));)
        if (is_file(entry))
            rc = append_path(ret, entry, max_bytes, err);
    (void)fts_close(tree);
    if (rc < 0)
        column_fini(ret);
    return rc;
}

static int read_all(struct column *column, int fd, uint64_t max_bytes, struct sw_err *err) {
    enum { STEP_BYTES = 1 << 20 };
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) { /* one allocation, and a file too long is refused at once */
        const int rc = make_room(column, (uint64_t)st.st_size, max_bytes, err);
        if (rc < 0)
            return rc;
    }
    for (;;) {
        uint8_t rest[1]; /* tells the end of a file that fills the room from one that goes on */
        const int full = column->bytes == column->cap_bytes;
        const ssize_t n = full ? read(fd, rest, sizeof rest)
                               : read(fd, column->data + column->bytes, column->cap_bytes - column->bytes);
        if (n < 0 && errno != EINTR)
            return sw_err_set(err, sw_err_from_errno(errno), SW_SCOPE_REQUEST, "read: %s", strerror(errno));
        if (n == 0)
            return 0;
        if (n > 0 && full) {
            const uint64_t left = max_bytes - column->bytes;
            const int rc = make_room(column, left > 0 && left < STEP_BYTES ? left : STEP_BYTES, max_bytes, err);
            if (rc < 0)
                return rc;
            column->data[column->bytes] = rest[0];
        }
        column->bytes += n > 0 ? (uint64_t)n : 0;
    }
}

int column_file(struct column *ret, const char *path, uint64_t max_bytes, struct sw_err *err) {
    memset(ret, 0, sizeof *ret);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return sw_err_set(err, sw_err_from_errno(errno), SW_SCOPE_REQUEST, "open: %s", strerror(errno));
    const int rc = read_all(ret, fd, max_bytes, err);
    (void)close(fd);
    if (rc < 0)
        column_fini(ret);
    return rc;
}

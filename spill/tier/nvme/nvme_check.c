#include "spill/tier/nvme/nvme_check.h"

#include "base/alloc.h"
#include "codec/codec.h"
#include "spill/tier/frame_key.h"
#include "spill/tier/nvme/manifest_format.h"
#include "spill/tier/nvme/nvme_file_ops.h"
#include "spill/tier/nvme/nvme_files.h"
#include "spill/tier/nvme/nvme_key.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct check {
    struct sw_nvme_check *result;
    int directory;
    uint64_t file_bytes;
    void (*bad)(const struct sw_checked_frame *frame, void *arg);
    void *arg;
};

/* --- files --- */

static int failed(struct sw_err *err, const char *name) {
    const int cause = errno;
    return sw_err_set(err, sw_nvme_error(cause), SW_SCOPE_DAEMON, "%s cannot be read: %s", name, strerror(cause));
}

/* Reads all bytes; reading past the end of the file is an error. */
static int read_at(int fd, void *ret, uint64_t bytes, uint64_t offset, const char *name, struct sw_err *err) {
    for (uint64_t done = 0; done < bytes;) {
        const ssize_t n = pread(fd, (char *)ret + done, (size_t)(bytes - done), (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return failed(err, name);
        if (n == 0)
            return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REGION, "%s ends too early", name);
        done += (uint64_t)n;
    }
    return 0;
}

static int open_in(const struct check *check, const char *name, struct sw_err *err) {
    const int fd = openat(check->directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    return fd < 0 ? failed(err, name) : fd;
}

/* Tries the lock and releases it at once: a service that starts now must not be blocked. */
static bool is_in_use(const struct check *check) {
    const int fd = open_in(check, "lock", NULL);
    const bool in_use = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        (void)close(fd);
    return in_use;
}

/* --- frames --- */

/* Reads all extents, one after the other. */
static int read_frame(const struct check *check, const struct sw_manifest_commit *commit, uint8_t *ret,
                      struct sw_err *err) {
    for (unsigned i = 0; i < commit->n_extents; i++) {
        struct sw_manifest_extent extent;
        memcpy(&extent, commit->body + sizeof(struct sw_manifest_body) + i * sizeof extent, sizeof extent);
        while (extent.bytes > 0) { /* an extent may continue in the next file */
            const uint64_t in_file = extent.offset % check->file_bytes, left = check->file_bytes - in_file,
                           n = extent.bytes < left ? extent.bytes : left;
            char name[SW_TIER_FILE_BYTES];
            sw_nvme_files_name(name, sizeof name, (unsigned)(extent.offset / check->file_bytes));
            const int fd = open_in(check, name, err);
            const int rc = fd < 0 ? fd : read_at(fd, ret, n, in_file, name, err);
            if (fd >= 0)
                (void)close(fd);
            if (rc)
                return rc;
            ret += n;
            extent.offset += n;
            extent.bytes -= n;
        }
    }
    return 0;
}

static int decode(const uint8_t *frame, uint64_t bytes, uint64_t check, struct sw_err *err) {
    const struct sw_extent extent = {.memory = (void *)frame, .bytes = bytes};
    const struct sw_stored stored = {.extents = (void *)&extent, .n_extents = 1, .bytes = bytes};
    struct sw_frame_layout layout;
    uint64_t raw_bytes;
    if (!sw_tier_key_matches(&stored, check))
        return sw_err_set(err, -SW_ECHECKSUM, SW_SCOPE_REGION, "another frame lies in its place");
    int rc = sw_frame_parse(&layout, frame, (size_t)bytes, bytes, err);
    if (rc)
        return rc;
    void *out = sw_alloc((size_t)layout.raw_bytes + 1);
    if (!out)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for %" PRIu64 " bytes", layout.raw_bytes);
    rc = sw_codec_decode(frame, bytes, out, layout.raw_bytes, &raw_bytes, err);
    sw_free(out);
    return rc;
}

static void check_frame(const struct check *check, const struct sw_manifest_commit *commit) {
    struct sw_manifest_extent first;
    struct sw_tier_key key;
    struct sw_checked_frame frame = {.doubtful = commit->doubtful};
    memcpy(&key, commit->body, sizeof key);
    memcpy(&frame.bytes, commit->body + offsetof(struct sw_manifest_body, bytes), sizeof frame.bytes);
    memcpy(&first, commit->body + sizeof(struct sw_manifest_body), sizeof first);
    frame.slot = key.slot;
    frame.gen = key.gen;
    frame.chunk = key.chunk;
    frame.offset = first.offset % check->file_bytes;
    sw_nvme_files_name(frame.file, sizeof frame.file, (unsigned)(first.offset / check->file_bytes));
    check->result->n_frames++;
    check->result->frame_bytes += frame.bytes;
    if (check->result->in_use || (check->result->is_encrypted && !commit->plain))
        return;
    check->result->n_read++;
    uint8_t *bytes = sw_alloc((size_t)frame.bytes);
    const int rc = !bytes ? sw_err_set(&frame.err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the frame")
                          : read_frame(check, commit, bytes, &frame.err);
    if (!rc)
        (void)decode(bytes, frame.bytes, key.check, &frame.err);
    sw_free(bytes);
    if (!frame.err.code)
        return;
    check->result->n_bad++;
    check->bad(&frame, check->arg);
}

/* --- the folder --- */

static int read_manifest(const struct check *check, uint8_t **ret, struct sw_err *err) {
    struct stat st;
    const int fd = open_in(check, SW_MANIFEST_FILE, err);
    if (fd < 0)
        return fd;
    int rc = fstat(fd, &st) < 0 ? failed(err, SW_MANIFEST_FILE) : 0;
    uint8_t *image = rc ? NULL : sw_alloc((size_t)st.st_size + 1);
    if (!rc && !image)
        rc = sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the manifest");
    if (!rc)
        rc = read_at(fd, image, (uint64_t)st.st_size, 0, SW_MANIFEST_FILE, err);
    (void)close(fd);
    if (rc) {
        sw_free(image);
        return rc;
    }
    check->result->manifest_bytes = (uint64_t)st.st_size;
    *ret = image;
    return 0;
}

static int check_folder(struct check *check, struct sw_err *err) {
    struct sw_nvme_check *result = check->result;
    struct sw_manifest_scan scan;
    uint8_t *image;
    result->in_use = is_in_use(check);
    result->is_encrypted = faccessat(check->directory, SW_NVME_MARK_FILE, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    int rc = read_manifest(check, &image, err);
    if (rc)
        return rc;
    rc = sw_manifest_scan(&scan, image, result->manifest_bytes, err);
    if (!rc) {
        check->file_bytes = scan.file_bytes ? scan.file_bytes : check->file_bytes;
        result->file_bytes = check->file_bytes;
        result->tail_bytes = scan.tail ? result->manifest_bytes - scan.end : 0;
        result->n_places = scan.n_places;
        memcpy(result->places, scan.places, sizeof result->places);
        result->n_doubtful = scan.n_doubtful;
        result->n_dropped = scan.n_dropped;
        for (size_t i = 0; i < scan.n_commits; i++)
            if (sw_manifest_commit_is_live(&scan.commits[i]))
                check_frame(check, &scan.commits[i]);
        sw_manifest_scan_fini(&scan);
    }
    sw_free(image);
    return rc;
}

int sw_nvme_check(struct sw_nvme_check *ret, const char *directory, uint64_t file_bytes,
                  void (*bad)(const struct sw_checked_frame *frame, void *arg), void *arg, struct sw_err *err) {
    struct check check = {.result = ret,
                          .directory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                          .file_bytes = file_bytes,
                          .bad = bad,
                          .arg = arg};
    memset(ret, 0, sizeof *ret);
    if (check.directory < 0)
        return failed(err, "folder");
    const int rc = check_folder(&check, err);
    (void)close(check.directory);
    return rc;
}

bool sw_nvme_check_is_good(const struct sw_nvme_check *check) {
    return check->n_places == 0 && check->n_bad == 0;
}

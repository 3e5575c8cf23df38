#include "spill/device/memfd.h"

#include "spill/device/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define HUGETLBFS_SUPER 0x958458f6

int sw_memfd_check(int fd, uint64_t bytes, struct sw_err *err) {
    struct stat st;
    struct statfs fs;
    /* Check this first: only files in memory have seals. Any other call may ask a file system whose server is the
     * client, and which may never answer. */
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || fstat(fd, &st) != 0 || fstatfs(fd, &fs) != 0 || !S_ISREG(st.st_mode) ||
        fs.f_type == HUGETLBFS_SUPER)
        return sw_err_set(err, -SW_EFDS, SW_SCOPE_REQUEST, "memfd: not a regular file in shared memory");
    if (!(seals & F_SEAL_SHRINK))
        return sw_err_set(err, -SW_EUNSEALED, SW_SCOPE_REQUEST, "memfd lacks F_SEAL_SHRINK: seal it first");
    /* Read the size after the seal: from now on it can only grow. */
    if (fstat(fd, &st) != 0 || (uint64_t)st.st_size < bytes)
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST, "memfd holds %lld bytes, %llu were claimed",
                          (long long)st.st_size, (unsigned long long)bytes);
    return 0;
}

static int copy_failed(ssize_t n, uint64_t offset, struct sw_err *err) {
    const int cause = n < 0 ? errno : EFAULT;
    if (cause == EFAULT)
        return sw_err_set(err, -SW_EUNALLOCATED, SW_SCOPE_REQUEST,
                          "memfd has no page at offset %llu: allocate all of it before it is written to",
                          (unsigned long long)offset);
    (void)sw_err_set(err, cause == ENOMEM ? -SW_ENOMEM : -SW_EIMPORT, SW_SCOPE_REQUEST,
                     "memfd: cannot write at offset %llu: %s", (unsigned long long)offset, strerror(cause));
    (void)sw_err_detail(err, "process_vm_readv: errno %d", cause);
    return cause == ENOMEM ? -SW_ENOMEM : -SW_EIMPORT;
}

static int transfer_failed(const char *call, ssize_t n, uint64_t offset, struct sw_err *err) {
    int cause = n < 0 ? errno : 0, code;
    if (n == 0)
        code = -SW_EIMPORT; /* a sealed file cannot end early: this is not one */
    else if (cause == EPERM || cause == EBADF || cause == EACCES)
        code = -SW_EACCES; /* sealed against writing, or opened only for reading or only for writing */
    else
        code = cause == ENOSPC || cause == ENOMEM ? -SW_ENOMEM : -SW_EIMPORT;
    (void)sw_err_set(err, code, SW_SCOPE_REQUEST, "memfd: cannot %s at offset %llu: %s",
                     strcmp(call, "pread") == 0 ? "read" : "write", (unsigned long long)offset,
                     n == 0 ? "end of file" : strerror(cause));
    (void)sw_err_detail(err, "%s: errno %d", call, cause);
    return code;
}

int sw_memfd_read(int fd, void *to, uint64_t bytes, uint64_t offset, struct sw_err *err) {
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (n > 0)
            done += (uint64_t)n;
        else if (n == 0 || errno != EINTR)
            return transfer_failed("pread", n, offset + done, err);
    }
    return 0;
}

/* Alignment and least length of a window: a step's places in one memfd are often close together. */
#define WINDOW_BYTES ((uint64_t)64 << 20)

static int map_failed(int cause, uint64_t offset, struct sw_err *err) {
    const int code = cause == EPERM || cause == EACCES ? -SW_EACCES : cause == ENOMEM ? -SW_ENOMEM : -SW_EIMPORT;
    (void)sw_err_set(err, code, SW_SCOPE_REQUEST, "memfd: cannot map for writing at offset %llu: %s",
                     (unsigned long long)offset, strerror(cause));
    (void)sw_err_detail(err, "mmap: errno %d", cause);
    return code;
}

static bool is_in_window(const struct sw_memfd_writer *w, int fd, uint64_t bytes, uint64_t offset) {
    return w->window && w->fd == fd && offset >= w->offset && offset - w->offset <= w->bytes &&
           bytes <= w->bytes - (offset - w->offset);
}

static void unmap_window(struct sw_memfd_writer *w) {
    if (w->window)
        (void)munmap(w->window, w->bytes);
    w->window = NULL;
}

/* Moves the window. It may extend past the end of the file, but writes never do. */
static int move_window(struct sw_memfd_writer *w, int fd, uint64_t bytes, uint64_t offset, struct sw_err *err) {
    const uint64_t page = (uint64_t)getpagesize(), end = (offset + bytes + page - 1) / page * page;
    uint64_t start = offset / WINDOW_BYTES * WINDOW_BYTES;
    unmap_window(w);
    w->bytes = end - start > WINDOW_BYTES ? end - start : WINDOW_BYTES;
    if (w->bytes > INT64_MAX - start) { /* at the end of the longest possible file */
        start = offset / page * page;
        w->bytes = end - start;
    }
    w->window = sw_guard_map(fd, w->bytes, (off_t)start);
    w->fd = fd;
    w->offset = start;
    return w->window ? 0 : map_failed(errno, offset, err);
}

void sw_memfd_writer_end(struct sw_memfd_writer *w) {
    unmap_window(w);
    w->may_fill_holes = false;
}

static int write_by_descriptor(int fd, const void *from, uint64_t bytes, uint64_t offset, struct sw_err *err) {
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pwrite(fd, (const char *)from + done, bytes - done, (off_t)(offset + done));
        if (n > 0)
            done += (uint64_t)n;
        else if (n == 0 || errno != EINTR)
            return transfer_failed("pwrite", n, offset + done, err);
    }
    return 0;
}

int sw_memfd_write(struct sw_memfd_writer *w, int fd, const void *from, uint64_t bytes, uint64_t offset,
                   struct sw_err *err) {
    /* With O_APPEND, pwrite ignores its offset; the flag is shared with the client and can be set at any time. */
    if (fcntl(fd, F_GETFL) & O_APPEND)
        return sw_err_set(err, -SW_EACCES, SW_SCOPE_REQUEST, "memfd is open with O_APPEND: clear this flag");
    if (!w->is_guarded || w->may_fill_holes)
        return write_by_descriptor(fd, from, bytes, offset, err);
    int rc = bytes == 0 || is_in_window(w, fd, bytes, offset) ? 0 : move_window(w, fd, bytes, offset, err);
    for (uint64_t done = 0; !rc && done < bytes;) {
        const ssize_t n =
            sw_guard_copy_to(w->window + (offset + done - w->offset), (const char *)from + done, bytes - done);
        if (n > 0)
            done += (uint64_t)n;
        else
            rc = copy_failed(n, offset + done, err);
    }
    return rc;
}

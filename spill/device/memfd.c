#include "spill/device/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define HUGETLBFS_SUPER 0x958458f6

int sw_memfd_check(int fd, uint64_t bytes, struct sw_err *err) {
    struct stat st;
    struct statfs fs;
    /* First of all: only files in memory have seals. Of others anything else may be a question to a file system whose
     * server is the client, and which is not obliged to answer. */
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || fstat(fd, &st) != 0 || fstatfs(fd, &fs) != 0 || !S_ISREG(st.st_mode) ||
        fs.f_type == HUGETLBFS_SUPER)
        return sw_err_set(err, -SW_EFDS, SW_SCOPE_REQUEST, "memfd: not a regular file in shared memory");
    if (!(seals & F_SEAL_SHRINK))
        return sw_err_set(err, -SW_EUNSEALED, SW_SCOPE_REQUEST, "memfd lacks F_SEAL_SHRINK");
    /* Read after the seal was seen: from now on the size can only grow. */
    if (fstat(fd, &st) != 0 || (uint64_t)st.st_size < bytes)
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST, "memfd holds %lld bytes, %llu were claimed",
                          (long long)st.st_size, (unsigned long long)bytes);
    return 0;
}

static int transfer_failed(const char *call, ssize_t n, uint64_t offset, struct sw_err *err) {
    int cause = n < 0 ? errno : 0, code;
    if (n == 0)
        code = -SW_EIMPORT; /* sealed files do not end early: the descriptor lies */
    else if (cause == EPERM || cause == EBADF || cause == EACCES)
        code = -SW_EACCES; /* sealed against writing, or opened for one direction only */
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

int sw_memfd_write(int fd, const void *from, uint64_t bytes, uint64_t offset, struct sw_err *err) {
    /* With O_APPEND, pwrite ignores its offset; the flag is shared with the client and can be set at any time. */
    if (fcntl(fd, F_GETFL) & O_APPEND)
        return sw_err_set(err, -SW_EACCES, SW_SCOPE_REQUEST, "memfd: opened for appending");
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pwrite(fd, (const char *)from + done, bytes - done, (off_t)(offset + done));
        if (n > 0)
            done += (uint64_t)n;
        else if (n == 0 || errno != EINTR)
            return transfer_failed("pwrite", n, offset + done, err);
    }
    return 0;
}

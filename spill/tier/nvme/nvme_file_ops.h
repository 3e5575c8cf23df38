/* nvme_file_ops.h - the two calls by which the NVMe tier's files are written and read, so that tests can make them
 * fail.
 *
 * As pwrite(2) and pread(2), errno included. Called by the tier's own threads. With io_uring, only the manifest goes
 * through them. */
#ifndef SW_SPILL_NVME_FILE_OPS_H
#define SW_SPILL_NVME_FILE_OPS_H

#include "base/err.h"
#include <sys/types.h>

struct sw_nvme_file_ops {
    ssize_t (*pwrite)(int fd, const void *data, size_t bytes, off_t offset);
    ssize_t (*pread)(int fd, void *ret, size_t bytes, off_t offset);
};

/* Code for an errno value of the file system: -SW_ENOSPACE where it lets no more be written (full, a quota, a limit on
 * the length of files), else as sw_err_from_errno(). */
int sw_nvme_error(int errno_value);

#endif

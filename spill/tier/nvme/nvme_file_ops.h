/* nvme_file_ops.h - the two calls that write and read the NVMe tier's files, so that tests can make them fail.
 *
 * Like pwrite(2) and pread(2), errno included. Called by the tier's own threads. With io_uring, only the manifest uses
 * them. */
#ifndef SW_SPILL_NVME_FILE_OPS_H
#define SW_SPILL_NVME_FILE_OPS_H

#include "base/err.h"
#include <sys/types.h>

struct sw_nvme_file_ops {
    ssize_t (*pwrite)(int fd, const void *data, size_t bytes, off_t offset);
    ssize_t (*pread)(int fd, void *ret, size_t bytes, off_t offset);
};

/* Returns the code for an errno value of the file system: -SW_ENOSPACE where it refuses to store more (full, a quota, a
 * limit on the length of files), else sw_err_from_errno()'s. */
int sw_nvme_error(int errno_value);

#endif

/* nvme_file_ops.h - the calls that read and change the NVMe tier's files, so that tests can make them fail, and record
 * what is on the disk after which flush.
 *
 * Like the system's calls, errno included. Called by the tier's own threads, and at its opening. With io_uring, data
 * files are read and written without them. A call that is NULL is the system's. */
#ifndef SW_SPILL_NVME_FILE_OPS_H
#define SW_SPILL_NVME_FILE_OPS_H

#include "base/err.h"
#include <stdbool.h>
#include <sys/types.h>

struct sw_nvme_file_ops {
    ssize_t (*pwrite)(int fd, const void *data, size_t bytes, off_t offset);
    ssize_t (*pread)(int fd, void *ret, size_t bytes, off_t offset);
    /* fdatasync() of a file, fsync() of a directory. */
    int (*sync)(int fd, bool is_directory);
    int (*truncate)(int fd, off_t bytes);
    /* Gives a file another name in the directory. */
    int (*rename)(int directory, const char *from, const char *to);
};

/* Returns the calls with the system's in place of those that are NULL. ops NULL: all the system's. */
struct sw_nvme_file_ops sw_nvme_file_ops_of(const struct sw_nvme_file_ops *ops);

/* Returns the code for an errno value of the file system: -SW_ENOSPACE where it refuses to store more (full, a quota, a
 * limit on the length of files), else sw_err_from_errno()'s. */
int sw_nvme_error(int errno_value);

#endif

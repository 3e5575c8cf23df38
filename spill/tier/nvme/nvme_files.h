/* nvme_files.h - directory, lock and data files of the NVMe tier: MANIFEST.md.
 *
 * The data files are one address space of `bytes` bytes. thread: any, one at a time; reading the struct: any. */
#ifndef SW_SPILL_NVME_FILES_H
#define SW_SPILL_NVME_FILES_H

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SW_NVME_MAX_FILES = 4096 };

/* What these files begin with. */
#define SW_NVME_MANIFEST_MAGIC "SPWMANIF"
#define SW_NVME_LOCK_MAGIC "SPWLOCKD"
enum { SW_NVME_MAGIC_BYTES = 8 };

struct sw_nvme_data_file {
    int fd;
    bool made; /* by this process */
};

struct sw_nvme_files {
    int directory, lock;
    struct sw_nvme_data_file *data;
    unsigned n_data;
    uint64_t file_bytes, bytes;
    bool direct;   /* O_DIRECT holds for all of them */
    bool reserved; /* the file system has given them their space; false: it cannot, a write may find none */
};

/* Opens the directory, makes it if missing, and locks it.
 * errors: -SW_EBUSY (locked by another process), -SW_EACCES (others may write to it, or own it), -SW_EEXIST (files are
 * there that a tier would overwrite and none has made; nothing is changed), -SW_ENOENT, -SW_EIO. */
int sw_nvme_files_open(struct sw_nvme_files *ret, const char *directory, struct sw_err *err);
/* Removes manifests and data files of a directory that is locked: no frame of it is found any more. Returns 0, or -1
 * with errno. */
int sw_nvme_files_remove(int directory);
/* Opens and makes data files for `bytes` bytes, takes their space from the file system, removes data files behind them.
 * Where that is not supported they only get their length: `reserved`. Waits until transfers of a predecessor that was
 * killed have ended. After an error files that it made are gone. errors: -SW_ENOSPACE, -SW_EBUSY (such transfers do not
 * end), -SW_EACCES, -SW_EIO, -SW_ENOMEM. */
int sw_nvme_files_allocate(struct sw_nvme_files *files, uint64_t bytes, uint64_t file_bytes, struct sw_err *err);
/* "data-0000" ... */
void sw_nvme_files_name(char *ret, size_t ret_bytes, unsigned index);
/* Whether a data file of the directory, all of this length but the last, reaches to byte `end` of the address space. */
bool sw_nvme_files_reach(int directory, uint64_t file_bytes, uint64_t end);
/* Also half-opened ones; all files stay. */
void sw_nvme_files_close(struct sw_nvme_files *files);

#endif

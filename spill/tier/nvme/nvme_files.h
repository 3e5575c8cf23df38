/* nvme_files.h - directory, lock and data files of the NVMe tier: MANIFEST.md.
 *
 * The data files are one address space of `bytes` bytes. thread: any, one at a time; reading the struct: any. */
#ifndef SW_SPILL_NVME_FILES_H
#define SW_SPILL_NVME_FILES_H

#include "base/err.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SW_NVME_MAX_FILES = 4096 };

/* The magic bytes at the beginning of these files. */
#define SW_NVME_MANIFEST_MAGIC "SPWMANIF"
#define SW_NVME_LOCK_MAGIC "SPWLOCKD"
enum { SW_NVME_MAGIC_BYTES = 8 };

struct sw_nvme_data_file {
    int fd;
    bool made;            /* by this process */
    atomic_bool is_dirty; /* written to since its last flush */
};

struct sw_nvme_files {
    int directory, lock;
    struct sw_nvme_data_file *data;
    unsigned n_data;
    uint64_t file_bytes, bytes;
    bool direct;   /* O_DIRECT works for all of them */
    bool reserved; /* the file system has reserved their space; false: it cannot, and a write may find none */
};

/* Opens the directory, makes it if missing, and locks it. errors: -SW_EBUSY (locked by another process), -SW_EACCES
 * (others may write to it, or own it), -SW_EEXIST (it has files that a tier would overwrite and that no tier has made;
 * nothing is changed), -SW_ENOENT, -SW_EIO. */
int sw_nvme_files_open(struct sw_nvme_files *ret, const char *directory, struct sw_err *err);
/* Removes manifests and data files of a locked directory, so that no frame is found any more. Returns 0, or -1 with
 * errno. */
int sw_nvme_files_remove(int directory);
/* Opens and makes data files for `bytes` bytes, reserves their space in the file system, and removes data files after
 * them. Where space cannot be reserved, they only get their length: `reserved`. Waits until transfers of a killed
 * predecessor have ended. After an error the files that it made are gone. errors: -SW_ENOSPACE, -SW_EBUSY (such
 * transfers do not end), -SW_EACCES, -SW_EIO, -SW_ENOMEM. */
int sw_nvme_files_allocate(struct sw_nvme_files *files, uint64_t bytes, uint64_t file_bytes, struct sw_err *err);
/* Gets the name of a data file, such as "data-0000". */
void sw_nvme_files_name(char *ret, size_t ret_bytes, unsigned index);
/* Returns whether the directory's data files, all of this length but the last, reach to byte `end` of the address
 * space. */
bool sw_nvme_files_reach(int directory, uint64_t file_bytes, uint64_t end);
/* Closes them, also half-opened ones; all files stay. */
void sw_nvme_files_close(struct sw_nvme_files *files);

#endif

#include "spill/tier/nvme_files.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "spill/tier/nvme_file_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* How long a predecessor's last transfers may take: far more than any disk that works, less than a start may. */
#define PREDECESSOR_WAIT_US 30000000u
#define PREDECESSOR_POLL_US 1000u

typedef char file_name[24];

static void name_of(file_name ret, unsigned index) {
    (void)snprintf(ret, sizeof(file_name), "data-%04u", index);
}

int sw_nvme_error(int errno_value) {
    if (errno_value == ENOSPC || errno_value == EDQUOT || errno_value == EFBIG)
        return -SW_ENOSPACE;
    return sw_err_from_errno(errno_value);
}

static int system_error(struct sw_err *err, const char *call, const char *name) {
    int cause = errno;
    int rc = sw_err_set(err, sw_nvme_error(cause), SW_SCOPE_DAEMON, "%s: %s", name, strerror(cause));
    (void)sw_err_detail(err, "%s: %s", call, strerror(cause));
    return rc;
}

static int open_directory(struct sw_nvme_files *files, const char *path, struct sw_err *err) {
    struct stat st;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return system_error(err, "mkdir", path);
    files->directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (files->directory < 0 || fstat(files->directory, &st) != 0)
        return system_error(err, "open", path);
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return sw_err_set(err, -SW_EACCES, SW_SCOPE_DAEMON, "%s may be written to by others", path);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return sw_err_set(err, -SW_EACCES, SW_SCOPE_DAEMON, "%s belongs to another user", path);
    return 0;
}

int sw_nvme_files_open(struct sw_nvme_files *ret, const char *directory, struct sw_err *err) {
    *ret = (struct sw_nvme_files){.directory = -1, .lock = -1, .direct = true};
    int rc = open_directory(ret, directory, err);
    if (rc)
        goto fail;
    ret->lock = openat(ret->directory, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (ret->lock < 0)
        rc = system_error(err, "openat", "lock file");
    else if (flock(ret->lock, LOCK_EX | LOCK_NB) != 0)
        rc = errno == EWOULDBLOCK
                 ? sw_err_set(err, -SW_EBUSY, SW_SCOPE_DAEMON, "%s is in use by another process", directory)
                 : system_error(err, "flock", "lock file");
    if (!rc)
        return 0;
fail:
    sw_nvme_files_close(ret);
    return rc;
}

/* The kernel keeps a lock until the last request on the descriptor has ended, even if its process is gone. */
static int wait_for_predecessor(int fd, const char *name, struct sw_err *err) {
    const uint64_t deadline = sw_clock_us() + PREDECESSOR_WAIT_US;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return system_error(err, "flock", name);
        if (sw_clock_us() > deadline)
            return sw_err_set(err, -SW_EBUSY, SW_SCOPE_DAEMON, "%s is still in use by a process that was killed", name);
        (void)usleep(PREDECESSOR_POLL_US);
    }
    return 0;
}

static int allocate(int fd, uint64_t bytes, const char *name, struct sw_err *err) {
    struct stat st;
    int rc;
    if (fstat(fd, &st) != 0)
        return system_error(err, "fstat", name);
    if ((uint64_t)st.st_size > bytes && ftruncate(fd, (off_t)bytes) != 0)
        return system_error(err, "ftruncate", name);
    do
        rc = fallocate(fd, 0, 0, (off_t)bytes);
    while (rc && errno == EINTR);
    if (rc && (errno == EOPNOTSUPP || errno == ENOSYS)) /* the space is then taken when it is written */
        rc = ftruncate(fd, (off_t)bytes);
    return rc ? system_error(err, "fallocate", name) : 0;
}

static int open_data(struct sw_nvme_files *files, unsigned index, uint64_t bytes, struct sw_err *err) {
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    struct sw_nvme_data_file *file = &files->data[index];
    file_name name;
    name_of(name, index);
    file->made = faccessat(files->directory, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
    file->fd = openat(files->directory, name, flags | O_CREAT | O_DIRECT, 0600);
    if (file->fd < 0 && errno == EINVAL) {
        files->direct = false;
        file->fd = openat(files->directory, name, flags | O_CREAT, 0600);
    }
    if (file->fd < 0)
        return system_error(err, "openat", name);
    int rc = wait_for_predecessor(file->fd, name, err);
    return rc ? rc : allocate(file->fd, bytes, name, err);
}

/* Data files from an index on. */
static void remove_from(int directory, unsigned index) {
    file_name name;
    do
        name_of(name, index++);
    while (unlinkat(directory, name, 0) == 0);
}

int sw_nvme_files_remove(int directory) {
    static const char *const names[] = {"manifest", "manifest.new"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (unlinkat(directory, names[i], 0) < 0 && errno != ENOENT)
            return -1;
    remove_from(directory, 0);
    return errno == ENOENT ? 0 : -1;
}

int sw_nvme_files_allocate(struct sw_nvme_files *files, uint64_t bytes, uint64_t file_bytes, struct sw_err *err) {
    unsigned n = (unsigned)((bytes + file_bytes - 1) / file_bytes);
    files->data = sw_alloc_array(n, sizeof files->data[0]);
    if (!files->data)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the NVMe tier");
    files->file_bytes = file_bytes;
    files->bytes = bytes;
    int rc = 0;
    while (!rc && files->n_data < n) {
        uint64_t left = bytes - files->n_data * file_bytes;
        rc = open_data(files, files->n_data, left < file_bytes ? left : file_bytes, err);
        files->n_data++;
    }
    if (!rc) {
        remove_from(files->directory, files->n_data);
        return 0;
    }
    for (unsigned i = 0; i < files->n_data; i++) {
        file_name name;
        name_of(name, i);
        if (files->data[i].made)
            (void)unlinkat(files->directory, name, 0);
    }
    return rc;
}

void sw_nvme_files_close(struct sw_nvme_files *files) {
    for (unsigned i = 0; i < files->n_data; i++)
        if (files->data[i].fd >= 0)
            (void)close(files->data[i].fd);
    sw_free(files->data);
    if (files->lock >= 0)
        (void)close(files->lock);
    if (files->directory >= 0)
        (void)close(files->directory);
    *files = (struct sw_nvme_files){.directory = -1, .lock = -1};
}

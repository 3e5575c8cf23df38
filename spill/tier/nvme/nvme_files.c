#include "spill/tier/nvme/nvme_files.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "spill/tier/nvme/nvme_file_ops.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* How long a predecessor's last transfers may take: far longer than on any working disk, shorter than a start may take.
 */
#define PREDECESSOR_WAIT_US 30000000u
#define PREDECESSOR_POLL_US 1000u

typedef char file_name[24];

void sw_nvme_files_name(char *ret, size_t ret_bytes, unsigned index) {
    (void)snprintf(ret, ret_bytes, "data-%04u", index);
}

static void name_of(file_name ret, unsigned index) {
    sw_nvme_files_name(ret, sizeof(file_name), index);
}

int sw_nvme_error(int errno_value) {
    if (errno_value == ENOSPC || errno_value == EDQUOT || errno_value == EFBIG)
        return -SW_ENOSPACE;
    return sw_err_from_errno(errno_value);
}

static int system_sync(int fd, bool is_directory) {
    int rc;
    do
        rc = is_directory ? fsync(fd) : fdatasync(fd);
    while (rc < 0 && errno == EINTR);
    return rc;
}

static int system_rename(int directory, const char *from, const char *to) {
    return renameat(directory, from, directory, to);
}

struct sw_nvme_file_ops sw_nvme_file_ops_of(const struct sw_nvme_file_ops *ops) {
    struct sw_nvme_file_ops all = ops ? *ops : (struct sw_nvme_file_ops){0};
    all.pwrite = all.pwrite ? all.pwrite : pwrite;
    all.pread = all.pread ? all.pread : pread;
    all.sync = all.sync ? all.sync : system_sync;
    all.truncate = all.truncate ? all.truncate : ftruncate;
    all.rename = all.rename ? all.rename : system_rename;
    return all;
}

static int system_error(struct sw_err *err, const char *call, const char *name) {
    int cause = errno;
    int rc = sw_err_set(err, sw_nvme_error(cause), SW_SCOPE_DAEMON, "%s: %s", name, strerror(cause));
    (void)sw_err_detail(err, "%s: %s", call, strerror(cause));
    return rc;
}

/* Flushes the parent, so that the folder survives a power cut. If the parent cannot be opened, the system writes it
 * later. */
static void sync_parent(int directory) {
    const int parent = openat(directory, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0)
        return;
    (void)fsync(parent);
    (void)close(parent);
}

static int open_directory(struct sw_nvme_files *files, const char *path, struct sw_err *err) {
    struct stat st;
    const bool made = mkdir(path, 0700) == 0;
    if (!made && errno != EEXIST)
        return system_error(err, "mkdir", path);
    files->directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (files->directory < 0 || fstat(files->directory, &st) != 0)
        return system_error(err, "open", path);
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return sw_err_set(err, -SW_EACCES, SW_SCOPE_DAEMON, "may be written to by others: chmod go-w it");
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return sw_err_set(err, -SW_EACCES, SW_SCOPE_DAEMON, "belongs to another user: give it to user %u (chown)",
                          (unsigned)geteuid());
    if (made)
        sync_parent(files->directory);
    return 0;
}

/* Returns whether a tier would write to a file of this name, or remove it. */
static bool is_tiers_name(const char *name) {
    static const char *const names[] = {"manifest", "manifest.new", "key-check",   "key-check.new",
                                        "names",    "names.new",    "key-wrapped", "key-wrapped.new"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return strncmp(name, "data-", 5) == 0 && strlen(name) >= 9 && strspn(name + 5, "0123456789") == strlen(name + 5);
}

static bool begins_with_magic(int fd, const char *magic) {
    char found[SW_NVME_MAGIC_BYTES];
    return pread(fd, found, sizeof found, 0) == (ssize_t)sizeof found && memcmp(found, magic, sizeof found) == 0;
}

static bool has_manifest(int directory) {
    const int fd = openat(directory, "manifest", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool found = fd >= 0 && begins_with_magic(fd, SW_NVME_MANIFEST_MAGIC);
    if (fd >= 0)
        (void)close(fd);
    return found;
}

static int foreign(struct sw_err *err, const char *name) {
    (void)sw_err_set(err, -SW_EEXIST, SW_SCOPE_DAEMON, "not a folder of an NVMe tier: empty it, or name another");
    (void)sw_err_detail(err, "%.64s is not of a tier", name);
    return -SW_EEXIST;
}

/* Without a manifest, files that a tier would overwrite belong to others. */
static int check_names(int directory, struct sw_err *err) {
    if (has_manifest(directory))
        return 0;
    const int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    int rc = 0;
    if (!dir) {
        rc = system_error(err, "opendir", "folder");
        if (fd >= 0)
            (void)close(fd);
        return rc;
    }
    for (struct dirent *entry; !rc && (entry = readdir(dir));)
        if (is_tiers_name(entry->d_name))
            rc = foreign(err, entry->d_name);
    (void)closedir(dir);
    return rc;
}

/* Writes the lock's mark, which says that the folder is a tier's before there is a manifest and after one was lost.
 * Earlier versions have left the lock empty. If the mark cannot be written now, because the disk is full, a later start
 * writes it. */
static int claim(const struct sw_nvme_files *files, struct sw_err *err) {
    struct stat st;
    if (begins_with_magic(files->lock, SW_NVME_LOCK_MAGIC))
        return 0;
    if (fstat(files->lock, &st) != 0)
        return system_error(err, "fstat", "lock file");
    const int rc = st.st_size > 0 ? foreign(err, "lock") : check_names(files->directory, err);
    if (rc)
        return rc;
    if (pwrite(files->lock, SW_NVME_LOCK_MAGIC, SW_NVME_MAGIC_BYTES, 0) != SW_NVME_MAGIC_BYTES)
        (void)ftruncate(files->lock, 0);
    (void)fsync(files->lock); /* a power cut may lose the manifest, which is not synced */
    return 0;
}

int sw_nvme_files_open(struct sw_nvme_files *ret, const char *directory, struct sw_err *err) {
    *ret = (struct sw_nvme_files){.directory = -1, .lock = -1, .direct = true, .reserved = true};
    int rc = open_directory(ret, directory, err);
    if (rc)
        goto fail;
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    ret->lock = openat(ret->directory, "lock", flags);
    if (ret->lock < 0 && errno == ENOENT) {
        rc = check_names(ret->directory, err);
        if (rc)
            goto fail;
        ret->lock = openat(ret->directory, "lock", flags | O_CREAT, 0600);
    }
    if (ret->lock < 0)
        rc = system_error(err, "openat", "lock file");
    else if (flock(ret->lock, LOCK_EX | LOCK_NB) != 0)
        rc = errno == EWOULDBLOCK ? sw_err_set(err, -SW_EBUSY, SW_SCOPE_DAEMON,
                                               "is in use by another process: end it, or name another folder")
                                  : system_error(err, "flock", "lock file");
    else
        rc = claim(ret, err);
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
            return sw_err_set(err, -SW_EBUSY, SW_SCOPE_DAEMON,
                              "%s is still in use by a process that was killed: try again later", name);
        (void)usleep(PREDECESSOR_POLL_US);
    }
    return 0;
}

static int allocate(struct sw_nvme_files *files, int fd, uint64_t bytes, const char *name, struct sw_err *err) {
    struct stat st;
    int rc;
    if (fstat(fd, &st) != 0)
        return system_error(err, "fstat", name);
    if ((uint64_t)st.st_size > bytes && ftruncate(fd, (off_t)bytes) != 0)
        return system_error(err, "ftruncate", name);
    do
        rc = fallocate(fd, 0, 0, (off_t)bytes);
    while (rc && errno == EINTR);
    if (rc && (errno == EOPNOTSUPP || errno == ENOSYS)) { /* writes then take the space */
        files->reserved = false;
        rc = ftruncate(fd, (off_t)bytes);
    }
    return rc ? system_error(err, "fallocate", name) : 0;
}

static uint64_t length_of(const struct sw_nvme_files *files, unsigned index) {
    const uint64_t left = files->bytes - index * files->file_bytes;
    return left < files->file_bytes ? left : files->file_bytes;
}

/* Refuses a tier that is too large before any space is taken, which others on the file system may need. If the system
 * does not say how much room there is, it is tried. */
static int check_room(const struct sw_nvme_files *files, unsigned n, struct sw_err *err) {
    struct statvfs system;
    uint64_t needed = 0;
    for (unsigned i = 0; i < n; i++) {
        const uint64_t bytes = length_of(files, i);
        struct stat st;
        file_name name;
        name_of(name, i);
        const bool is_there = fstatat(files->directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
        const uint64_t has =
            is_there ? (uint64_t)st.st_size : 0; /* a file whose space is not reserved counts as well */
        needed += bytes > has ? bytes - has : 0;
    }
    if (fstatvfs(files->directory, &system) != 0 || system.f_blocks == 0)
        return 0;
    const uint64_t room = (uint64_t)(geteuid() == 0 ? system.f_bfree : system.f_bavail) * system.f_frsize;
    if (needed <= room)
        return 0;
    (void)sw_err_set(err, -SW_ENOSPACE, SW_SCOPE_DAEMON, "needs %" PRIu64 " more bytes, but the disk has %" PRIu64,
                     needed, room);
    return sw_err_detail(err, "fstatvfs");
}

static int open_data(struct sw_nvme_files *files, unsigned index, uint64_t bytes, struct sw_err *err) {
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    struct sw_nvme_data_file *file = &files->data[index];
    file_name name;
    name_of(name, index);
    file->made = faccessat(files->directory, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT;
    file->fd = openat(files->directory, name, flags | O_CREAT | O_DIRECT, 0600);
    if (file->fd < 0 && errno == EINVAL) {
        files->direct = false;
        file->fd = openat(files->directory, name, flags | O_CREAT, 0600);
    }
    if (file->fd < 0)
        return system_error(err, "openat", name);
    int rc = wait_for_predecessor(file->fd, name, err);
    return rc ? rc : allocate(files, file->fd, bytes, name, err);
}

/* Removes data files from an index on. */
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
    int rc = check_room(files, n, err);
    while (!rc && files->n_data < n) {
        rc = open_data(files, files->n_data, length_of(files, files->n_data), err);
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

bool sw_nvme_files_reach(int directory, uint64_t file_bytes, uint64_t end) {
    const uint64_t index = (end - 1) / file_bytes;
    struct stat st;
    file_name name;
    if (index >= SW_NVME_MAX_FILES)
        return false;
    name_of(name, (unsigned)index);
    return fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && (uint64_t)st.st_size >= end - index * file_bytes;
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

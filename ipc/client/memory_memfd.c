/* memory_memfd.c - finds the descriptor of the memfd behind a shared mapping.
 *
 * - /proc/self/maps names the file behind every mapping. The descriptor is one of the open ones, or is opened through
 *   /proc/self/map_files, which needs privileges.
 * - The descriptor is sent open for writing, because a restore writes.
 * - The memfd is sealed against shrinking. Otherwise a shorter file would cause a SIGBUS in the daemon. */
#include "ipc/client/memory.h"

#include "base/alloc.h"
#include "base/descriptors.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

/* The mappings that hold a range, as one. start and end are of the first one, for its name in map_files. */
struct vma {
    uint64_t start, end, offset, inode;
    dev_t device;
    bool shared, memfd, readable, writable;
};

static bool parse_vma(struct vma *ret, const char *line) {
    char perms[5] = "";
    unsigned major_nr = 0, minor_nr = 0;
    int path = 0;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &ret->start, &ret->end, perms,
               &ret->offset, &major_nr, &minor_nr, &ret->inode, &path) < 7)
        return false;
    ret->device = makedev(major_nr, minor_nr);
    ret->readable = perms[0] == 'r';
    ret->writable = perms[1] == 'w';
    ret->shared = perms[3] == 's';
    ret->memfd = strncmp(line + path, "/memfd:", 7) == 0;
    return true;
}

static int maps_failed(int cause, struct sw_err *err) {
    if (cause == ENOENT)
        return sw_err_set(err, -SW_ENOPROC, SW_SCOPE_REQUEST,
                          "/proc/self/maps is not there, which says what a pointer is: mount /proc");
    return sw_err_set(err, sw_is_out_of_descriptors(cause) ? -SW_ELIMIT : sw_err_from_errno(cause), SW_SCOPE_REQUEST,
                      "/proc/self/maps: %s", strerror(cause));
}

static int open_maps(FILE **ret, struct sw_err *err) {
    *ret = fopen("/proc/self/maps", "re");
    return *ret ? 0 : maps_failed(errno, err);
}

/* Reads the next line. Returns 1, or 0 at the end. getline() owns *line. errors: -SW_ENOMEM, -SW_EIO: the end was not
 * reached. */
static int next_vma(struct vma *ret, FILE *maps, char **line, size_t *line_bytes, struct sw_err *err) {
    do
        if (getline(line, line_bytes, maps) <= 0)
            return feof(maps) ? 0 : maps_failed(errno, err);
    while (!parse_vma(ret, *line));
    return 1;
}

/* Returns the end of the accessible memory around the address; the address itself if there is none. */
static int accessible_end(uint64_t *ret_end, FILE *maps, uint64_t address, bool writable, struct sw_err *err) {
    char *line = NULL;
    size_t line_bytes = 0;
    uint64_t end = address;
    struct vma vma;
    int rc;
    while ((rc = next_vma(&vma, maps, &line, &line_bytes, err)) > 0) {
        if (vma.end <= end)
            continue;
        if (vma.start > end || !vma.readable || (writable && !vma.writable))
            break;
        end = vma.end;
    }
    free(line);
    *ret_end = end;
    return rc < 0 ? rc : 0;
}

int sw_host_check(const void *data, uint64_t bytes, bool writable, uintptr_t *ret_end, struct sw_err *err) {
    const uint64_t address = (uintptr_t)data;
    FILE *maps = NULL;
    uint64_t end;
    int rc = bytes ? open_maps(&maps, err) : 0;
    if (!maps)
        return rc;
    rc = accessible_end(&end, maps, address, writable, err);
    (void)fclose(maps);
    if (rc < 0)
        return rc;
    if (end == address)
        return sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST,
                          "address 0x%" PRIx64 " is neither GPU memory nor %s memory of this process", address,
                          writable ? "writable" : "readable");
    if (bytes > end - address)
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST,
                          "%" PRIu64 " bytes at 0x%" PRIx64 ", but accessible memory ends after %" PRIu64 " bytes",
                          bytes, address, end - address);
    if (ret_end)
        *ret_end = (uintptr_t)end;
    return 0;
}

/* Finds the mapping of the address, and how far the same file continues without a gap. */
static int find_vma(struct vma *ret, uint64_t *ret_end, uint64_t address, struct sw_err *err) {
    FILE *maps;
    int rc = open_maps(&maps, err);
    if (rc < 0)
        return rc;
    char *line = NULL;
    size_t line_bytes = 0;
    bool found = false;
    struct vma vma;
    while ((rc = next_vma(&vma, maps, &line, &line_bytes, err)) > 0) {
        if (!found && vma.start <= address && address < vma.end) {
            *ret = vma;
            *ret_end = vma.end;
            found = true;
        } else if (found) {
            if (vma.start != *ret_end || vma.inode != ret->inode || vma.device != ret->device || !vma.shared ||
                vma.offset != ret->offset + (vma.start - ret->start))
                break;
            *ret_end = vma.end;
        }
    }
    free(line);
    (void)fclose(maps);
    if (rc < 0)
        return rc;
    if (!found)
        return sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST, "address 0x%" PRIx64 " is not mapped in this process",
                          address);
    if (!ret->shared || !ret->memfd)
        return sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST,
                          "address 0x%" PRIx64 " is neither GPU memory nor a memfd mapped with MAP_SHARED", address);
    return 0;
}

/* Returns whether descriptors or memory have run out. Then no other way helps, and the error says so. */
static bool is_short_of_means(int cause) {
    return sw_is_out_of_descriptors(cause) || cause == ENOMEM;
}

static bool is_file_of(const struct stat *file, const struct vma *vma) {
    return file->st_ino == vma->inode && file->st_dev == vma->device;
}

/* Returns the descriptor if it is of the file behind the mapping; else closes it. */
static int verified(int fd, const struct vma *vma) {
    struct stat file;
    if (fd < 0 || (fstat(fd, &file) == 0 && is_file_of(&file, vma)))
        return fd;
    (void)close(fd);
    errno = ENOENT;
    return -1;
}

/* Copies the descriptor. One that is open for reading only is opened again for writing. */
static int copy_descriptor(int fd, const struct vma *vma) {
    char path[32];
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return -1;
    if ((flags & O_ACCMODE) == O_RDWR)
        return verified(fcntl(fd, F_DUPFD_CLOEXEC, 0), vma);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return verified(open(path, O_RDWR | O_CLOEXEC), vma);
}

/* Returns whether an entry of /proc/self/fd is a memfd. The kernel itself answers readlink(). Other calls, even
 * fstat(), may ask a file system that does not answer (FUSE, NFS). */
static bool is_memfd(int dir, const char *name) {
    static const char prefix[] = "/memfd:";
    char target[sizeof prefix - 1];
    return readlinkat(dir, name, target, sizeof target) == (ssize_t)sizeof target &&
           memcmp(target, prefix, sizeof target) == 0;
}

/* Returns the descriptor of an entry of /proc/self/fd, if it is of the file; else -1. Looks at it by its name, not by
 * fstat(), because a race detector would report the use of other threads' descriptors. */
static int number_of(int dir, const char *name, const struct vma *vma) {
    struct stat file;
    char *end;
    const long fd = strtol(name, &end, 10);
    return end != name && !*end && is_memfd(dir, name) && fstatat(dir, name, &file, 0) == 0 && is_file_of(&file, vma)
               ? (int)fd
               : -1;
}

/* Copies the first descriptor of the file that can be copied. Other threads may close a descriptor before it is copied,
 * or open another file with its number. */
static int copy_any(const struct vma *vma) {
    DIR *dir = opendir("/proc/self/fd");
    if (!dir)
        return -1;
    int ret = -1, last = -1, cause = ENOENT;
    for (struct dirent *entry; ret < 0 && !is_short_of_means(cause) && (entry = readdir(dir));) {
        const int fd = number_of(dirfd(dir), entry->d_name, vma);
        if (fd < 0)
            continue;
        ret = copy_descriptor(last = fd, vma);
        cause = ret < 0 ? errno : 0;
    }
    (void)closedir(dir);
    if (sw_is_out_of_descriptors(cause)) /* perhaps only the directory needed one */
        ret = copy_descriptor(last, vma);
    errno = cause;
    return ret;
}

static int open_by_mapping(const struct vma *vma) {
    char path[80];
    (void)snprintf(path, sizeof path, "/proc/self/map_files/%" PRIx64 "-%" PRIx64, vma->start, vma->end);
    return verified(open(path, O_RDWR | O_CLOEXEC), vma);
}

static int open_file(const struct vma *vma, int *ret_fd, struct sw_err *err) {
    *ret_fd = copy_any(vma);
    if (*ret_fd < 0 && !is_short_of_means(errno))
        *ret_fd = open_by_mapping(vma);
    if (*ret_fd >= 0)
        return 0;
    if (is_short_of_means(errno))
        return sw_err_set(err, errno == ENOMEM ? -SW_ENOMEM : -SW_ELIMIT, SW_SCOPE_REQUEST,
                          "descriptor of the memfd: %s", strerror(errno));
    return sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST,
                      "memfd of the mapping has no open descriptor and cannot be opened (%s); keep it open",
                      strerror(errno));
}

/* The kernel cannot write() to a file of huge pages, so the daemon does not take one. */
static int check_pages(int fd, struct sw_err *err) {
    struct statfs fs;
    if (fstatfs(fd, &fs) < 0)
        return sw_err_set(err, sw_err_from_errno(errno), SW_SCOPE_REQUEST, "fstatfs of the memfd: %s", strerror(errno));
    return fs.f_type != HUGETLBFS_MAGIC
               ? 0
               : sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST,
                            "memfd of huge pages (MFD_HUGETLB) cannot be handed over, only copied");
}

static int seal(int fd, struct sw_err *err) {
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0)
        return sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST, "file behind the mapping has no seals: %s",
                          strerror(errno));
    if (seals & F_SEAL_SHRINK || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0)
        return 0;
    return sw_err_set(err, -SW_EUNSEALED, SW_SCOPE_REQUEST,
                      "memfd cannot be sealed against shrinking (%s); create it with MFD_ALLOW_SEALING",
                      strerror(errno));
}

/* Reports a range that ends outside of the memfd's mapping: in another mapping, or where none is. */
static int crosses_mappings(const void *data, uint64_t bytes, uint64_t front_bytes, struct sw_err *err) {
    const int rc = sw_host_check(data, bytes, false, NULL, err);
    return rc < 0 ? rc
                  : sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST,
                               "%" PRIu64 " bytes at %p, but the memfd's mapping ends after %" PRIu64, bytes, data,
                               front_bytes);
}

int sw_memfd_export(struct sw_export *ret, const void *data, uint64_t bytes, struct sw_err *err) {
    const uint64_t address = (uintptr_t)data;
    struct vma vma = {0};
    uint64_t mapped_end = 0;
    int rc = find_vma(&vma, &mapped_end, address, err);
    if (rc < 0)
        return rc;
    if (bytes > mapped_end - address)
        return crosses_mappings(data, bytes, mapped_end - address, err);
    if ((rc = sw_export_reserve(ret, 1, err)) < 0 || (rc = open_file(&vma, &ret->fds[0], err)) < 0 ||
        (rc = check_pages(ret->fds[0], err)) < 0 || (rc = seal(ret->fds[0], err)) < 0)
        return rc;
    struct stat st;
    if (fstat(ret->fds[0], &st) < 0)
        return sw_err_set(err, sw_err_from_errno(errno), SW_SCOPE_REQUEST, "fstat of the memfd: %s", strerror(errno));
    ret->kind = SW_MEM_MEMFD;
    ret->offset = vma.offset + (address - vma.start);
    ret->bytes = ret->part_bytes[0] = (uint64_t)st.st_size;
    if (ret->offset > ret->bytes || bytes > ret->bytes - ret->offset)
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST,
                          "%" PRIu64 " bytes at offset %" PRIu64 " of a memfd of %" PRIu64, bytes, ret->offset,
                          ret->bytes);
    return 0;
}

#include "spill/tier/host/fresh.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_BYTES 4096u
#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define HUGE_POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26)
#endif

static unsigned long read_number(const char *path) {
    unsigned long number = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    if (fscanf(file, "%lu", &number) != 1)
        number = 0;
    (void)fclose(file);
    return number;
}

/* Only a hint; fallocate() decides. It avoids emptying and refilling a pool that is too small at each try. */
static bool pool_may_suffice(size_t bytes) {
    const unsigned long free_pages = read_number(HUGE_POOL "free_hugepages"),
                        promised_pages = read_number(HUGE_POOL "resv_hugepages");
    return bytes % HUGE_PAGE_BYTES == 0 && free_pages > promised_pages &&
           free_pages - promised_pages >= bytes / HUGE_PAGE_BYTES;
}

static bool allocate(int fd, size_t bytes) {
    int rc;
    do
        rc = fallocate(fd, 0, 0, (off_t)bytes);
    while (rc && errno == EINTR);
    return rc == 0;
}

/* Backs a mapping's pages by page faults, which report failures; only faults make transparent huge pages. */
static bool touch(int fd, char *base, size_t bytes) {
    if (madvise(base, bytes, MADV_POPULATE_WRITE) == 0)
        return true;
    if (errno != EINVAL || !allocate(fd, bytes)) /* EINVAL: Linux before 5.14, where plain writes have to do */
        return false;
    for (size_t i = 0; i < bytes; i += PAGE_BYTES)
        ((volatile char *)base)[i] = 0;
    return true;
}

/* Returns the call that failed, with errno, or NULL. */
static const char *make(struct sw_fresh *ret, size_t bytes, bool huge, int *ret_fd) {
    const char *failed = NULL;
    char *base = MAP_FAILED;
    const int fd = memfd_create("spillway-arena", MFD_CLOEXEC | (huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0));
    if (fd < 0)
        return "memfd_create";
    if (ftruncate(fd, (off_t)bytes) != 0) {
        failed = "ftruncate";
    } else if (huge && !allocate(fd, bytes)) { /* a fault that finds the pool empty would raise SIGBUS */
        failed = "fallocate";
    } else if ((base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED) {
        failed = "mmap";
    } else {
        if (!huge)
            (void)madvise(base, bytes, MADV_HUGEPAGE); /* advice: the system may be configured otherwise */
        (void)madvise(base, bytes, MADV_DONTDUMP);
        if (!touch(fd, base, bytes))
            failed = "MADV_POPULATE_WRITE";
    }
    const int cause = errno;
    if (failed && base != MAP_FAILED)
        (void)munmap(base, bytes);
    if (failed || !ret_fd)
        (void)close(fd); /* the mapping keeps the memory */
    else
        *ret_fd = fd;
    errno = cause;
    if (!failed)
        *ret = (struct sw_fresh){.base = base, .bytes = bytes, .huge = huge};
    return failed;
}

int sw_fresh_init(struct sw_fresh *ret, size_t bytes, int *ret_fd, struct sw_err *err) {
    memset(ret, 0, sizeof *ret);
    if (pool_may_suffice(bytes) && !make(ret, bytes, true, ret_fd))
        return 0;
    const char *failed = make(ret, bytes, false, ret_fd);
    if (!failed)
        return 0;
    const int cause = errno;
    (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "host arena cannot grow by %zu bytes", bytes);
    (void)sw_err_detail(err, "%s: %s", failed, strerror(cause));
    return -SW_ENOMEM;
}

int sw_fresh_adopt(struct sw_fresh *ret, int fd, struct sw_err *err) {
    struct stat found;
    memset(ret, 0, sizeof *ret);
    if (fstat(fd, &found) != 0 || found.st_size <= 0 || found.st_size % PAGE_BYTES) {
        (void)close(fd);
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_DAEMON, "kept memory has an impossible length");
    }
    const size_t bytes = (size_t)found.st_size;
    char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    const int cause = errno;
    (void)close(fd);
    if (base == MAP_FAILED)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "kept memory of %zu bytes cannot be mapped: %s", bytes,
                          strerror(cause));
    (void)madvise(base, bytes, MADV_DONTDUMP);
    *ret = (struct sw_fresh){.base = base, .bytes = bytes, .huge = (size_t)found.st_blksize == HUGE_PAGE_BYTES};
    return 0;
}

void sw_fresh_fini(struct sw_fresh *fresh) {
    if (fresh->base)
        (void)munmap(fresh->base, fresh->bytes);
    memset(fresh, 0, sizeof *fresh);
}

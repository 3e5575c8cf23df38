#include "spill/device/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1 /* 5.11 */
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned n_users;
static int guard = -1; /* open as long as there are users */

/* Opens a userfaultfd for faults of user mode only, which needs no privileges: the process handles no faults. */
static int open_guard(void) {
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_SIGBUS | UFFD_FEATURE_MISSING_SHMEM};
    const int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) == 0)
        return fd;
    const int cause = errno;
    (void)close(fd);
    errno = cause;
    return -1;
}

bool sw_guard_take(void) {
    (void)pthread_mutex_lock(&lock);
    if (guard < 0)
        guard = open_guard();
    const bool is_there = guard >= 0;
    n_users += is_there;
    (void)pthread_mutex_unlock(&lock);
    return is_there;
}

void sw_guard_give_back(void) {
    (void)pthread_mutex_lock(&lock);
    if (--n_users == 0) {
        (void)close(guard);
        guard = -1;
    }
    (void)pthread_mutex_unlock(&lock);
}

void *sw_guard_map(int fd, size_t bytes, off_t offset) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
    if (at == MAP_FAILED)
        return NULL;
    struct uffdio_register range = {.range = {.start = (uintptr_t)at, .len = bytes},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (ioctl(guard, UFFDIO_REGISTER, &range) == 0)
        return at;
    const int cause = errno;
    (void)munmap(at, bytes);
    errno = cause;
    return NULL;
}

/* When a page is read, the kernel maps the existing pages of the aligned block around it (fault_around_bytes). */
#define BLOCK_BYTES ((uintptr_t)64 << 10)
enum { MAX_BLOCKS = 128 };

/* Maps existing pages by reading a byte from each block: a write would map one page at a time, and MADV_POPULATE_READ
 * examines each page again. Errors are ignored here: the copy will find them. */
static void map_pages(uint8_t *to, size_t bytes) {
    uint8_t sink[MAX_BLOCKS], *const end = to + bytes;
    struct iovec blocks[MAX_BLOCKS];
    ssize_t n = 0, n_read = 0;
    for (uint8_t *at = to; at < end && n_read == n;) {
        for (n = 0; n < MAX_BLOCKS && at < end; at += BLOCK_BYTES - (uintptr_t)at % BLOCK_BYTES)
            blocks[n++] = (struct iovec){.iov_base = at, .iov_len = 1};
        const struct iovec local = {.iov_base = sink, .iov_len = (size_t)n};
        n_read = process_vm_readv(getpid(), &local, 1, blocks, (unsigned long)n, 0);
    }
}

/* The kernel pins `from` page by page, or by huge pages, and copies to `to` as to any user memory. process_vm_writev()
 * would pin the client's pages, which are small: a third slower. */
ssize_t sw_guard_copy_to(void *to, const void *from, size_t bytes) {
    if (bytes > (size_t)getpagesize())
        map_pages(to, bytes);
    const struct iovec local = {.iov_base = to, .iov_len = bytes};
    struct iovec remote = {.iov_len = bytes};
    memcpy(&remote.iov_base, &from, sizeof from); /* it is only read */
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
}

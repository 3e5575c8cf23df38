/* memory_pages.c - makes the pages that the daemon will write to.
 *
 * A page of shared memory is charged to the control group of the process that makes it. So the client makes its own
 * pages, and the service stops at a hole (EUNALLOCATED). mincore() finds missing pages. SEEK_HOLE would search to the
 * end of the file, beyond the range. */
#include "ipc/client/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* 5.14 */
#endif

enum { LOOK_PAGES = 2048 };
#define FILE_STEP_BYTES ((uint64_t)16 << 20)

static int cannot(int cause, struct sw_err *err) {
    return cause == ENOMEM || cause == ENOSPC
               ? sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for all pages of the memory to be written to")
               : 0; /* the daemon will meet the same error */
}

/* For kernels before 5.14. Works in small steps, because a signal undoes the whole step that it interrupts. */
static int make_by_descriptor(uint8_t *at, uint64_t bytes, struct sw_err *err) {
    struct sw_export e = {0};
    int rc = sw_memfd_export(&e, at, bytes, err);
    for (uint64_t done = 0; !rc && done < bytes;) {
        const uint64_t n = bytes - done < FILE_STEP_BYTES ? bytes - done : FILE_STEP_BYTES;
        if (fallocate(e.fds[0], 0, (off_t)(e.offset + done), (off_t)n) == 0)
            done += n;
        else if (errno != EINTR) {
            rc = cannot(errno, err);
            break;
        }
    }
    sw_export_fini(&e);
    return rc;
}

/* Reading makes pages as well as writing, and the memory may be mapped read-only. */
static int make(uint8_t *at, uint64_t bytes, struct sw_err *err) {
    int rc;
    do
        rc = madvise(at, bytes, MADV_POPULATE_READ);
    while (rc < 0 && errno == EINTR);
    if (rc < 0 && errno == EINVAL)
        return make_by_descriptor(at, bytes, err);
    return rc < 0 ? cannot(errno, err) : 0;
}

/* Makes the missing ones of n pages (at most LOOK_PAGES). */
static int make_missing(uint8_t *at, size_t n, size_t page_bytes, struct sw_err *err) {
    unsigned char there[LOOK_PAGES];
    int rc = 0;
    if (mincore(at, n * page_bytes, there) < 0)
        return 0; /* no longer mapped */
    for (size_t i = 0, first; !rc && i < n; i++) {
        for (first = i; i < n && !(there[i] & 1); i++)
            ;
        if (i > first)
            rc = make(at + first * page_bytes, (i - first) * page_bytes, err);
    }
    return rc;
}

int sw_export_make_pages(const struct sw_export *e, const void *data, uint64_t bytes, struct sw_err *err) {
    const size_t page_bytes = (size_t)getpagesize();
    const uint64_t skip = (uintptr_t)data % page_bytes;
    uint8_t *at = (uint8_t *)data - skip;
    uint64_t left = (skip + bytes + page_bytes - 1) / page_bytes;
    int rc = 0;
    for (size_t n; !rc && e->kind == SW_MEM_MEMFD && bytes && left > 0; left -= n, at += n * page_bytes) {
        n = left < LOOK_PAGES ? (size_t)left : LOOK_PAGES;
        rc = make_missing(at, n, page_bytes, err);
    }
    return rc;
}

/* fresh.h - memory for an arena slab: mapped, zero, and backed, so that no page fault can fail later.
 *
 * Uses pages of the system's hugetlb pool (2 MiB) if enough are free, else shared memory with transparent huge pages if
 * the system allows. Left out of core dumps: it holds clients' data, and a lot of it. */
#ifndef SW_SPILL_FRESH_H
#define SW_SPILL_FRESH_H

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>

/* A slab's memory. Its descriptor is not kept: one for each slab would add up. */
struct sw_fresh {
    char *base;
    size_t bytes;
    bool huge; /* from the hugetlb pool */
};

/* Makes memory. units: bytes, a multiple of 4096. Takes about 90 ms per GiB. ret_fd: NULL, or gets the memory's
 * descriptor, owned by the caller. errors: -SW_ENOMEM, nothing is held; sw_fresh_fini() of *ret is then optional.
 * thread: any. */
int sw_fresh_init(struct sw_fresh *ret, size_t bytes, int *ret_fd, struct sw_err *err);
/* Maps a predecessor's memory with its content (fd: moved, also on error). errors: -SW_ENOMEM, -SW_EINVAL (impossible
 * length). */
int sw_fresh_adopt(struct sw_fresh *ret, int fd, struct sw_err *err);
/* Unmaps the memory; the system gets it back at once. */
void sw_fresh_fini(struct sw_fresh *fresh);

#endif

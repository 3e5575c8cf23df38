/* fresh.h - memory for an arena slab: mapped, zero, and there, so that no page fault can fail later.
 *
 * In pages of the system's hugetlb pool (2 MiB) if enough of them are free, else in shared memory for which transparent
 * huge pages are asked. Left out of core dumps: it is clients' data, and a lot of it. */
#ifndef SW_SPILL_FRESH_H
#define SW_SPILL_FRESH_H

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>

/* The memory of a slab. Its descriptor is not kept: one for each slab would add up. */
struct sw_fresh {
    char *base;
    size_t bytes;
    bool huge; /* from the hugetlb pool */
};

/* units: bytes, a multiple of 4096. Takes its time: about 90 ms per GiB. ret_fd: NULL, or gets the memory's descriptor,
 * owned by the caller. errors: -SW_ENOMEM, nothing is held; *ret may then be passed to sw_fresh_fini() or not.
 * thread: any. */
int sw_fresh_init(struct sw_fresh *ret, size_t bytes, int *ret_fd, struct sw_err *err);
/* Maps what a predecessor made (fd: moved, also on error), with what is in it. errors: -SW_ENOMEM, -SW_EINVAL (no
 * memory of such a length). */
int sw_fresh_adopt(struct sw_fresh *ret, int fd, struct sw_err *err);
/* Unmaps; the system has it back at once. */
void sw_fresh_fini(struct sw_fresh *fresh);

#endif

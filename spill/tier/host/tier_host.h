/* tier_host.h - frames in host memory: an arena of memfds, pinned by every device, which may outlive the process. */
#ifndef SW_SPILL_TIER_HOST_H
#define SW_SPILL_TIER_HOST_H

#include "spill/tier/tier.h"

extern const struct sw_tier_kind sw_tier_host_kind;

/* A slab of the host tier that outlives its process. */
struct sw_tier_host_slab {
    int fd;
    uint64_t offset; /* of its first byte, from the tier's start, as in extents */
};

struct sw_tier_host_config {
    uint64_t capacity_bytes; /* bound */
    /* Optional: the most bytes that the tier may have now. Asked before each slab, which is not made if it would exceed
     * them. thread: the tier's own. */
    uint64_t (*most_bytes)(void *arg);
    void *most_arg;
    uint64_t initial_bytes; /* made in any case, and at once */
    uint64_t
        ahead_bytes; /* the next slab is made as soon as fewer backed bytes are free, before anything waits for it */
    uint64_t slab_bytes;              /* multiple of 2 MiB */
    struct sw_device *const *devices; /* each slab is pinned with these; borrowed for the tier's life */
    unsigned n_devices;
    /* Optional: reports a change. failure NULL: all requested memory exists, for the first time or again; else the
     * first growth that failed. thread: the tier's own. */
    void (*report)(const struct sw_err *failure, uint64_t backed_bytes, void *arg);
    void *report_arg;
    /* Optional: has a new slab outlive the process, before any of it is used. fd: borrowed for the call. thread: the
     * tier's own. */
    void (*keep)(int fd, uint64_t offset, void *arg);
    /* Optional: the slab at this offset is no longer needed, or could not be used. thread: the one that calls trim(),
     * or the tier's own. */
    void (*forget)(uint64_t offset, void *arg);
    void *keep_arg;
    /* Slabs that a predecessor kept, with their content; they count as made, even beyond the bound. The descriptors are
     * moved, also on error. Unusable slabs are left out. */
    const struct sw_tier_host_slab *kept;
    unsigned n_kept;
    /* Reading ends of in-flight I/O pipes, moved, also on error. While one of them has a writer, the kernel may still
     * write into free space of the kept slabs. This space is not reserved until no pipe has a writer. */
    const int *io_pipes;
    unsigned n_io_pipes;
};
/* Returns whether an in-flight I/O pipe has no writer any more. thread: any. */
bool sw_tier_io_has_ended(int io_pipe);

/* Opens the tier. A thread of its own maps, touches and pins memfd slabs, so this returns at once, with nothing backed
 * yet. errors: -SW_ENOMEM, -SW_EINVAL.
 *
 * recover(): determines which space of the predecessor's memory is free, and may have to be held. A frame that lies
 * outside of kept slabs, or overlaps another, is not found. */
int sw_tier_host_open(struct sw_tier **ret, const struct sw_tier_host_config *config, struct sw_err *err);

#endif

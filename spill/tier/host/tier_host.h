/* tier_host.h - frames in host memory: an arena of memfds, pinned by every device, which may outlive the process. */
#ifndef SW_SPILL_TIER_HOST_H
#define SW_SPILL_TIER_HOST_H

#include "spill/tier/tier.h"

extern const struct sw_tier_kind sw_tier_host_kind;

/* Memory of the host tier that outlives its process. */
struct sw_tier_host_slab {
    int fd;
    uint64_t offset; /* of its first byte in the tier: extents count from the tier's start */
};

struct sw_tier_host_config {
    uint64_t capacity_bytes; /* bound */
    uint64_t initial_bytes;  /* made in any case, and at once */
    uint64_t ahead_bytes;    /* free, backed bytes below which the next slab is made, before anybody waits for it */
    uint64_t slab_bytes;     /* multiple of 2 MiB */
    struct sw_device *const *devices; /* each slab is pinned with these; borrowed for the tier's life */
    unsigned n_devices;
    /* Optional: tells of a change for whoever looks after the machine. failure NULL: there is as much memory as was
     * asked for, for the first time or again; else the first growth that failed. thread: the tier's own. */
    void (*report)(const struct sw_err *failure, uint64_t backed_bytes, void *arg);
    void *report_arg;
    /* Optional: sees to it that a new slab outlives the process, before any of it is used. fd: borrowed for the call.
     * thread: the tier's own. */
    void (*keep)(int fd, uint64_t offset, void *arg);
    /* Optional: the slab there is needed no more, or could not be used. thread: that of trim(), or the
     * tier's own. */
    void (*forget)(uint64_t offset, void *arg);
    void *keep_arg;
    /* What a predecessor kept, with what is in it; it counts as made, also beyond the bound. The descriptors are moved,
     * also on error. What cannot be used is left out. */
    const struct sw_tier_host_slab *kept;
    unsigned n_kept;
    /* Reading ends of pipes, moved, also on error. While one of them has a writer, the kernel may be about to write
     * into what was kept, where no frame lies: that is not reserved before all have none. */
    const int *witnesses;
    unsigned n_witnesses;
};
/* Whether a pipe has no writer any more. thread: any. */
bool sw_tier_has_ended(int witness);

/* Memfd slabs, mapped, touched and pinned by a thread of the tier's own, so that this returns at once, with nothing
 * backed yet. errors: -SW_ENOMEM, -SW_EINVAL.
 *
 * recover(): what is free of a predecessor's memory is known, and may have to be held, from then on. A frame that lies
 * outside of what was kept, or overlaps another, is not found. */
int sw_tier_host_open(struct sw_tier **ret, const struct sw_tier_host_config *config, struct sw_err *err);

#endif

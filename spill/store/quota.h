/* quota.h - what one tenant may have stored, in all of its sessions: a bound on bytes and one on regions; and how much
 * memory is kept for it beside that.
 *
 * Bytes are those of frames that lie in tiers, or have a place there. A frame's length is known once it is encoded, and
 * the worst case is several times that: to refuse by it would refuse most of what fits. So a spill is refused at its
 * start only if nothing is left, else it is cut off by the frame that is too much: it fails like one that finds the
 * tier full, and its client's memory is untouched. Invariant: no spill makes `bytes` exceed `max_bytes`, not for a
 * moment. (What sessions bring along from before a restart counts in any case.)
 *
 * A bound on regions of 0 is a share of those that the engine may have (base/budget.h).
 *
 * owns: whoever made it; outlives its owners. thread: bytes, kept: any; regions: the loop. */
#ifndef SW_SPILL_QUOTA_H
#define SW_SPILL_QUOTA_H

#include "base/budget.h"
#include "base/err.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct sw_owner;

struct sw_quota {
    uint64_t max_bytes;              /* 0: no bound */
    unsigned max_regions, n_regions; /* max_regions 0: a share */
    atomic_ullong bytes;
    struct sw_budget kept; /* memory: records of regions and their chunks, operations, memories, names ... */
};

/* The budget of a quota, which may be NULL. */
static inline struct sw_budget *sw_quota_kept(struct sw_quota *quota) {
    return quota ? &quota->kept : NULL;
}

/* errors: -SW_ETENANTBYTES, nothing is taken. */
int sw_quota_take(struct sw_quota *quota, uint64_t bytes, struct sw_err *err);
void sw_quota_give(struct sw_quota *quota, uint64_t bytes);

/* Has what the owner stores, and what is kept for it, count for a tenant. quota: borrowed until the owner is closed.
 * Before its first operation; memories that it has by then are not counted, but
 * what an owner has from a predecessor of this process counts from now on, even beyond the bounds. */
void sw_owner_set_quota(struct sw_owner *owner, struct sw_quota *quota);
/* What the owner leaves to the next process counts no more in this one. */
void sw_owner_leave_quota(struct sw_owner *owner);

#endif

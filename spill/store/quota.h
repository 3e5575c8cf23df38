/* quota.h - the limits of one tenant, for all its sessions together: stored bytes, regions, and memory for records.
 *
 * Stored bytes are the bytes of frames that lie in tiers, or have a place reserved there. A frame's length is known
 * only when it is encoded. The worst case is several times longer, and checking it in advance would refuse most spills
 * that fit. So a spill is refused at its start only if no bytes are left. Otherwise it fails at the first frame that
 * exceeds the limit, as if the tier were full, and its client's memory is untouched.
 *
 * Invariant: no spill makes `bytes` exceed `max_bytes`, not even for a moment. Regions from before a restart, or from
 * before a limit was lowered, always count, even beyond the limit.
 *
 * max_regions 0: the tenant gets a share of the engine's regions (base/budget.h).
 *
 * The limits may change at any time. A lower one applies to what begins from then on.
 *
 * owns: the creator; it must outlive its owners. thread: bytes, kept: any; regions: loop. */
#ifndef SW_SPILL_QUOTA_H
#define SW_SPILL_QUOTA_H

#include "base/budget.h"
#include "base/err.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct sw_owner;

struct sw_quota {
    atomic_ullong max_bytes;         /* 0: no limit */
    unsigned max_regions, n_regions; /* max_regions 0: a share */
    unsigned max_durable;            /* durable regions; 0: none */
    atomic_ullong bytes;
    atomic_uint prefer;    /* enum sw_prefer (planner/cost.h), where a request does not say */
    struct sw_budget kept; /* memory for records of regions, chunks, operations, memories, names ... */
};

/* Returns the budget of a quota. NULL if the quota is NULL. */
static inline struct sw_budget *sw_quota_kept(struct sw_quota *quota) {
    return quota ? &quota->kept : NULL;
}

/* Takes stored bytes from the quota. errors: -SW_ETENANTBYTES, nothing is taken. */
int sw_quota_take(struct sw_quota *quota, uint64_t bytes, struct sw_err *err);
void sw_quota_give(struct sw_quota *quota, uint64_t bytes);

/* Makes an owner count in a tenant's quota, before its first operation. Regions that the owner has from a predecessor
 * count from now on, even beyond the limits. Memories that it has already do not count. quota: borrowed until the owner
 * is closed. */
void sw_owner_set_quota(struct sw_owner *owner, struct sw_quota *quota);
/* Ends an owner's use of its quota. Regions that it leaves to the next process no longer count. */
void sw_owner_leave_quota(struct sw_owner *owner);

#endif

/* plan_cache.h - plans of the last regions, by the session they came from: its number, which is never reused.
 *
 * Sampling a region and training its table takes as long as encoding half a gigabyte. Small regions from one session
 * mostly hold one column, so they are encoded by the plan of the one before; whether it still fits is seen from the
 * frame it makes (sw_policy_plan_is_stale), and now and then a new one is made in any case. Plans that promise little,
 * or nothing, are not kept: from their frames it could not be seen that the bytes have become others. Not thread safe.
 */
#ifndef SW_SPILL_PLAN_CACHE_H
#define SW_SPILL_PLAN_CACHE_H

#include "codec/codec.h"
#include <stdbool.h>

enum { SW_PLAN_CACHE_ENTRIES = 32, SW_PLAN_MAX_USES = 16 };
#define SW_PLAN_MIN_RATIO 1.5

struct sw_plan_cache {
    struct sw_plan_cache_entry {
        uint64_t session; /* 0: free */
        unsigned n_uses;
        uint64_t age; /* when it was used last */
        struct sw_plan plan;
    } entries[SW_PLAN_CACHE_ENTRIES];
    uint64_t clock;
};

/* True with *ret filled if there is a plan worth trying. */
bool sw_plan_cache_use(struct sw_plan_cache *cache, uint64_t session, struct sw_plan *ret);
/* Replaces the session's plan, or the one that has not been used for longest; forgets the session's if the new one is
 * not worth keeping. */
void sw_plan_cache_put(struct sw_plan_cache *cache, uint64_t session, const struct sw_plan *plan);
void sw_plan_cache_forget(struct sw_plan_cache *cache, uint64_t session);

#endif

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

enum { SW_PLAN_CACHE_ENTRIES = 32, SW_PLAN_MAX_USES = 256 };
#define SW_PLAN_MIN_RATIO 1.5

struct sw_plan_cache {
    struct sw_plan_cache_entry {
        uint64_t session; /* 0: free */
        unsigned n_uses;
        uint64_t age; /* when it was used last */
        struct sw_plan plan;
        double data_ratio;
    } entries[SW_PLAN_CACHE_ENTRIES];
    uint64_t clock;
};

/* What a plan made for raw_bytes promises of the data sections alone: the table and the header, which are part of
 * expected_ratio, weigh differently in regions of other lengths. */
double sw_plan_data_ratio(const struct sw_plan *plan, uint64_t raw_bytes);

/* True with *ret, and what it promises of data sections, filled if there is a plan worth trying. */
bool sw_plan_cache_use(struct sw_plan_cache *cache, uint64_t session, struct sw_plan *ret, double *ret_data_ratio);
/* Takes a plan made for raw_bytes. Replaces the session's plan, or the one that has not been used for longest; forgets
 * the session's if the new one is not worth keeping. */
void sw_plan_cache_put(struct sw_plan_cache *cache, uint64_t session, const struct sw_plan *plan, uint64_t raw_bytes);
void sw_plan_cache_forget(struct sw_plan_cache *cache, uint64_t session);

#endif

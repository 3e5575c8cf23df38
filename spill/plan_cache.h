/* plan_cache.h - plans of the last regions, by what bytes they are likely to suit: sw_plan_key().
 *
 * Sampling a region and training its table takes as long as encoding half a gigabyte. Small regions from one session
 * mostly hold one column, so they are encoded by the plan of the one before; whether it still fits is seen from the
 * frame it makes (sw_policy_plan_is_stale), and now and then a new one is made in any case. Of plans that promise
 * little, or nothing, only the promise is kept: from their frames it could not be seen that the bytes have become
 * others. Not thread safe. */
#ifndef SW_SPILL_PLAN_CACHE_H
#define SW_SPILL_PLAN_CACHE_H

#include "codec/codec.h"
#include <stdbool.h>

enum { SW_PLAN_CACHE_ENTRIES = 32, SW_PLAN_MAX_USES = 256, SW_PLAN_PROMISES = 4 };
#define SW_PLAN_MIN_RATIO 1.5

struct sw_plan_cache {
    struct sw_plan_cache_entry {
        uint64_t key; /* 0: free */
        bool is_usable;
        unsigned n_uses, n_promises;
        double promises[SW_PLAN_PROMISES]; /* expected ratios of the last plans */
        uint64_t age;                      /* when it was used last */
        struct sw_plan plan;
    } entries[SW_PLAN_CACHE_ENTRIES];
    uint64_t clock;
};

/* Of regions from one session (its number, from 1, never reused), of one type of values, and from the same place in
 * requests that have several buffers. */
uint64_t sw_plan_key(uint64_t session, enum sw_value_type type, unsigned buffer);

/* True with *ret filled if there is a plan worth trying. */
bool sw_plan_cache_use(struct sw_plan_cache *cache, uint64_t key, struct sw_plan *ret);
/* There is one that was used as often as any may be: so will the next one be, presumably. */
bool sw_plan_cache_is_used_up(struct sw_plan_cache *cache, uint64_t key);
/* The best that the last SW_PLAN_PROMISES plans of that key promised; 0: there have been fewer. */
double sw_plan_cache_promise(struct sw_plan_cache *cache, uint64_t key);
/* Replaces the key's plan, or the one that has not been used for longest; if the new one is not worth keeping, there is
 * none. */
void sw_plan_cache_put(struct sw_plan_cache *cache, uint64_t key, const struct sw_plan *plan);
void sw_plan_cache_forget(struct sw_plan_cache *cache, uint64_t key);

#endif

/* plan_cache.h - plans of the last regions, by what bytes they are likely to suit: sw_plan_key().
 *
 * Sampling a region and training its table takes as long as encoding half a gigabyte. Regions from one session mostly
 * hold a few columns, often in turn, so a plan is used again until its regions have taken so long that a new one costs
 * little beside them. Whether it suits a region is seen from the frame it makes (sw_rules_plan_is_stale). If it does
 * not, another one of the session's may; which one suited after which tells where to begin. Of plans that promise
 * little, or nothing, only the promise is kept: from their frames it could not be seen that the bytes have become
 * others.
 *
 * A table that was trained on few bytes does less for many, and one that was trained on many takes more room in a
 * frame of few than it saves there. So a plan is for regions of about the length that it was made for; beyond the
 * longest sample all lengths are alike. Not thread safe. */
#ifndef SW_SPILL_PLAN_CACHE_H
#define SW_SPILL_PLAN_CACHE_H

#include "codec/plan/plan.h"
#include "spill/planner/contention.h"
#include <stdbool.h>

/* Keys, plans of a key, promises of a key. */
enum { SW_PLAN_CACHE_KEYS = 128, SW_PLANS_KEPT = 16, SW_PLAN_PROMISES = 4 };
#define SW_PLAN_MIN_RATIO 1.5

struct sw_plan_cache {
    uint64_t keys[SW_PLAN_CACHE_KEYS]; /* 0: free */
    struct sw_plan_cache_entry {
        uint64_t age; /* when it was used last */
        unsigned n_promises;
        double promises[SW_PLAN_PROMISES]; /* expected ratios of the last plans from whole samples */
        struct sw_stakes stakes;
        unsigned n_in_row;     /* regions that no plan suited, since one did */
        unsigned n_kept, last; /* last: was used last */
        struct sw_kept_plan {
            uint64_t age;
            double paid;           /* part of its price that its regions have been worth */
            unsigned next;         /* expected to suit after it */
            double seen_ratio;     /* of the first frame that was made by it; 0: there is none yet */
            uint64_t sample_bytes; /* what it was made from */
            struct sw_plan plan;
        } kept[SW_PLANS_KEPT];
    } entries[SW_PLAN_CACHE_KEYS];
    uint64_t clock;
};

/* What a region, or a group, has had of the plans of its key. All zero at its beginning. */
struct sw_plan_choice {
    unsigned tried;  /* bits: of those that do not suit, or would not */
    unsigned number; /* of the last one found, below SW_PLANS_KEPT */
    unsigned before; /* of the one that was used by the region before */
    bool is_due;     /* that one is to be made anew */
    double prize_s;  /* what such a try wins, if it does */
};

/* Of regions from one session (its number, from 1, never reused), of one type of values, and from the same place in
 * requests that have several buffers. */
uint64_t sw_plan_key(uint64_t session, enum sw_value_type type, unsigned buffer);

/* The plan to try next for a region of that key and length. NULL: there is none. Valid until the next put. */
const struct sw_plan *sw_plan_cache_find(const struct sw_plan_cache *cache, uint64_t key, uint64_t bytes,
                                         struct sw_plan_choice *choice);
/* Uses the plan that was found for a region that is worth `part` of a plan's price. False: its regions are worth a new
 * one by now, which is to be made; others go on by this one meanwhile. */
bool sw_plan_cache_use(struct sw_plan_cache *cache, uint64_t key, struct sw_plan_choice *choice, double part);
/* It suits the region; or does not. */
void sw_plan_cache_suits(struct sw_plan_cache *cache, uint64_t key, const struct sw_plan_choice *choice);
void sw_plan_cache_misfits(struct sw_plan_choice *choice);
/* sw_stakes_cover(), of the key. */
bool sw_plan_cache_stakes(struct sw_plan_cache *cache, uint64_t key, struct sw_plan_choice *choice, double cost_s,
                          double prize_s);
/* No plan suits a region: sw_stakes_forgo(), of the key. */
bool sw_plan_cache_forgo(struct sw_plan_cache *cache, uint64_t key, const struct sw_plan_choice *choice, bool pays,
                         double part);
/* Notes the ratio of a frame that was made by a plan when it was new, if that has been kept; says what has been noted
 * of the one that was found, 0: nothing. */
void sw_plan_cache_saw(struct sw_plan_cache *cache, uint64_t key, const struct sw_plan_choice *choice,
                       const struct sw_plan *plan, double ratio);
double sw_plan_cache_seen(const struct sw_plan_cache *cache, uint64_t key, const struct sw_plan_choice *choice);
/* The best that the last SW_PLAN_PROMISES plans of that key for long regions promised; 0: there have been fewer. */
double sw_plan_cache_promise(const struct sw_plan_cache *cache, uint64_t key);
/* Keeps a plan that has just been made for a region of that length, if it is worth keeping: in place of the one that
 * was due, if that promised as much, else of that which has not been used for longest. It counts as found. The same for
 * keys. */
void sw_plan_cache_put(struct sw_plan_cache *cache, uint64_t key, uint64_t bytes, struct sw_plan_choice *choice,
                       const struct sw_plan *plan);

#endif

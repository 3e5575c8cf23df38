/* plan_cache.h - keeps the plans of recent regions under the key of the bytes that they are likely to match:
 * sw_plan_key().
 *
 * Sampling a region and training its table takes as long as encoding half a gigabyte. Regions of one session mostly
 * hold a few columns, often in turn. So a plan is used again until its regions have taken so long that a new plan costs
 * little beside them. The frame that a plan makes shows whether it matches a region (sw_rules_plan_is_stale). If it
 * does not, another plan of the session may match; the cache remembers which plan matched after which, and so where to
 * begin. Of plans that are expected to gain little, only the estimate is kept: their frames could not show that the
 * bytes have changed.
 *
 * A table trained on few bytes does less for many bytes, and a table trained on many bytes takes more room in a short
 * frame than it saves. So a plan is for regions of about the length that it was made for; beyond the longest sample all
 * lengths are alike. Not thread safe. */
#ifndef SW_SPILL_PLAN_CACHE_H
#define SW_SPILL_PLAN_CACHE_H

#include "codec/plan/plan.h"
#include "spill/planner/contention.h"
#include <stdbool.h>

/* Keys, plans of a key, estimates of a key. */
enum { SW_PLAN_CACHE_KEYS = 128, SW_PLANS_KEPT = 16, SW_PLAN_ESTIMATES = 4 };
/* Plans with a dictionary, of all keys: a dictionary takes 214 KiB. */
enum { SW_PLAN_DICTIONARIES = 32 };
/* The part of a key that says that codecs with a dictionary were tried, too (dense.h). */
#define SW_PLAN_KEY_DENSE (UINT64_C(1) << 63)
#define SW_PLAN_MIN_RATIO 1.5

struct sw_plan_cache {
    uint64_t keys[SW_PLAN_CACHE_KEYS]; /* 0: free */
    struct sw_plan_cache_entry {
        uint64_t age; /* clock when it was last used */
        unsigned n_estimates;
        double estimates[SW_PLAN_ESTIMATES]; /* expected ratios of the last plans from whole samples */
        struct sw_replan_budget replan;
        double wish_s;         /* dense: time that its regions would have gained with a plan since the last one */
        unsigned n_in_row;     /* regions in a row that matched no plan */
        unsigned n_kept, last; /* last: the plan that was used last */
        struct sw_kept_plan {
            uint64_t age, made;    /* made: clock when it was put; no other plan's */
            uint64_t denser;       /* `made` of the dense plan of the same column; 0: none was learned */
            double wish_s;         /* time that its regions would have gained by a denser plan */
            double paid;           /* part of its price that it has earned with its regions */
            unsigned next;         /* plan expected to match after it */
            double seen_ratio;     /* of the first frame that it made; 0: none yet */
            uint64_t sample_bytes; /* length of the sample that it was made from */
            struct sw_plan plan;
        } kept[SW_PLANS_KEPT];
    } entries[SW_PLAN_CACHE_KEYS];
    uint64_t clock;
};

/* The tries of the key's plans for a region or a group. All zero at its beginning. */
struct sw_plan_choice {
    unsigned tried;  /* bit set of the plans that do not, or would not, match */
    unsigned number; /* of the plan found last, below SW_PLANS_KEPT */
    unsigned before; /* of the plan that the previous region used */
    bool is_due;     /* the plan found last is to be made anew */
    double gain_s;   /* what the try gains if it matches */
};

/* Returns the key for regions of one session (its number, from 1, never reused), one type of values, and one place
 * among a request's buffers. */
uint64_t sw_plan_key(uint64_t session, enum sw_value_type type, unsigned buffer);

/* Returns the plan to try next for a region of this key and length. NULL: there is none. Valid until the next put. */
const struct sw_plan *sw_plan_cache_find(const struct sw_plan_cache *cache, uint64_t key, uint64_t bytes,
                                         struct sw_plan_choice *choice);
/* Uses the plan that was found, for a region that is worth `part` of a plan's price. Returns false if its regions are
 * worth a new plan by now: make one; other regions use this one meanwhile. */
bool sw_plan_cache_use(struct sw_plan_cache *cache, uint64_t key, struct sw_plan_choice *choice, double part);
/* Reports that the plan found matches the region, or that it does not. */
void sw_plan_cache_note_match(struct sw_plan_cache *cache, uint64_t key, const struct sw_plan_choice *choice);
void sw_plan_cache_note_mismatch(struct sw_plan_choice *choice);
/* Asks sw_replan_may_try() with the key's budget. */
bool sw_plan_cache_may_try(struct sw_plan_cache *cache, uint64_t key, struct sw_plan_choice *choice, double cost_s,
                           double gain_s);
/* Reports that no plan matches a region: sw_replan_add_regret() with the key's budget. */
bool sw_plan_cache_add_regret(struct sw_plan_cache *cache, uint64_t key, const struct sw_plan_choice *choice, bool pays,
                              double part);
/* Stores the ratio of a frame that a new plan has made, if the plan is kept. sw_plan_cache_seen() returns the stored
 * ratio of the plan found; 0: none. */
void sw_plan_cache_saw(struct sw_plan_cache *cache, uint64_t key, const struct sw_plan_choice *choice,
                       const struct sw_plan *plan, double ratio);
double sw_plan_cache_seen(const struct sw_plan_cache *cache, uint64_t key, const struct sw_plan_choice *choice);
/* Adds what a region without a dense plan would have gained with one. Returns true if a plan is worth making: together
 * they would have gained price_s. */
bool sw_plan_cache_wish(struct sw_plan_cache *cache, uint64_t key, double gain_s, double price_s);
/* The plan found has regions of one column, for which a dense plan may be learned, too.
 *
 * Returns the dense plan of the plan found, and counts it as used. NULL: there is none, or not any more. */
const struct sw_plan *sw_plan_cache_denser(struct sw_plan_cache *cache, uint64_t key,
                                           const struct sw_plan_choice *choice);
/* Adds what a region would have gained by one. Returns the plan's number, to be given to sw_plan_cache_link(), if it is
 * worth making, else 0: the plan's regions would not have gained price_s yet, or one was made that is no denser. */
uint64_t sw_plan_cache_wish_denser(struct sw_plan_cache *cache, uint64_t key, const struct sw_plan_choice *choice,
                                   double gain_s, double price_s);
/* Reports what was learned for the plan of this number: a plan just put under the dense key by this choice, or one that
 * is not worth keeping. */
void sw_plan_cache_link(struct sw_plan_cache *cache, uint64_t key, uint64_t number, const struct sw_plan_choice *choice,
                        const struct sw_plan *plan);
/* Returns true if a kept plan has this dictionary. */
bool sw_plan_cache_has_dictionary(const struct sw_plan_cache *cache, const struct sw_frame_dictionary *dictionary);
/* Returns the best estimate of the key's last SW_PLAN_ESTIMATES plans for long regions; 0: there were fewer. */
double sw_plan_cache_estimate(const struct sw_plan_cache *cache, uint64_t key);
/* Keeps a plan that was just made for a region of this length, if it is worth keeping. It replaces the plan that was
 * due, if their estimates are alike, else the plan that was not used for longest. Afterwards it counts as found. Keys
 * are replaced by age, too. */
void sw_plan_cache_put(struct sw_plan_cache *cache, uint64_t key, uint64_t bytes, struct sw_plan_choice *choice,
                       const struct sw_plan *plan);

#endif

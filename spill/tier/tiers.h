/* tiers.h - the tiers of one engine, fastest first. A frame is stored in the first one that has room.
 *
 * The first tier is addressable, and it is the only one: frames in transit to and from the other tiers go through it.
 * No two tiers are of one kind. Packed regions lie in their client's memory, which is no tier. thread: any, once
 * settled.
 */
#ifndef SW_SPILL_TIERS_H
#define SW_SPILL_TIERS_H

#include "spill/tier/tier.h"

enum { SW_TIERS_MAX = 4 };

struct sw_tiers {
    struct sw_tier *at[SW_TIERS_MAX]; /* borrowed */
    unsigned n;
};

/* Checks the order and sets each tier's rank. errors: -SW_EINVAL. */
int sw_tiers_settle(struct sw_tiers *tiers, struct sw_err *err);
/* Returns the tier of the kind with this id. NULL: there is none. */
struct sw_tier *sw_tiers_find(const struct sw_tiers *tiers, uint8_t id);
/* Returns the tier where regions of this durability are placed: the first one that keeps regions so well. NULL: there
 * is none. */
struct sw_tier *sw_tiers_keeper(const struct sw_tiers *tiers, enum sw_durability durability);
/* Returns the statistics of a tier, all 0 for NULL. */
struct sw_tier_stats sw_tier_stats_of(struct sw_tier *tier);

#endif

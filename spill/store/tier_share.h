/* tier_share.h - how much each asynchronous tier may be asked for at a time, by all workers of an engine together.
 *
 * What a tier has been asked for cannot be overtaken. So while several tenants use such tiers, each has no more in each
 * direction than keeps it busy: 16 MiB, or one frame that is longer; a quarter of that goes out while others come back.
 * Each worker may have one frame there in any case, or one's could keep out another's for ever. A tenant alone has no
 * bound. Moves between tiers have what the clients leave, but one chunk at least for each 64 MiB of theirs: clients'
 * long frames wait for that.
 *
 * The share does not decide who is next among those that wait: each worker deals by turns (transfer.c).
 * thread: any, all calls. */
#ifndef SW_SPILL_TIER_SHARE_H
#define SW_SPILL_TIER_SHARE_H

#include "spill/tier/tiers.h"

#include <pthread.h>

/* Frames up to so many bytes are short: they hardly delay others. */
#define SW_TIER_SHARE_SHORT_BYTES ((uint64_t)1 << 20)

struct sw_tier_share {
    pthread_mutex_t lock; /* guards the rest */
    struct sw_tier_path {
        uint64_t asked_bytes;     /* that the tier has been asked for, and has not done yet */
        uint64_t passed_bytes;    /* asked for by clients since a move's chunk was */
        uint64_t refused_move_us; /* when a move was last told to wait; 0: never */
    } paths[SW_TIERS_MAX][2];     /* by the tier's rank and enum sw_tier_io_kind */
    /* The last two tenants that wanted any of the tiers. */
    struct sw_tier_user {
        const void *tenant;
        uint64_t last_us; /* 0: nobody */
    } users[2];
};

/* A frame of so many bytes that a tier could be asked for. */
struct sw_tier_ask {
    unsigned rank; /* the tier's */
    enum sw_tier_io_kind kind;
    uint64_t bytes;
};

/* It holds nothing that would have to be freed. */
void sw_tier_share_init(struct sw_tier_share *ret);

/* The tenant wants a tier; NULL: those of none, which count as one. Returns whether another one has wanted any within
 * the last second. */
bool sw_tier_share_note(struct sw_tier_share *share, const void *tenant, uint64_t now_us);
/* Only asks that. */
bool sw_tier_share_has_others(struct sw_tier_share *share, const void *tenant, uint64_t now_us);
/* Whether a tier may be asked for a client's frame now. is_bound: another tenant uses such tiers, too, and this one has
 * been asked for something by the same worker. */
bool sw_tier_share_has_room(struct sw_tier_share *share, const struct sw_tier_ask *ask, bool is_bound, uint64_t now_us);
/* The same for a chunk that is moved between tiers. tenant: whose it is. */
bool sw_tier_share_may_move(struct sw_tier_share *share, const struct sw_tier_ask *ask, const void *tenant,
                            uint64_t now_us);
/* A tier is asked for a frame; it has done so. */
void sw_tier_share_take(struct sw_tier_share *share, const struct sw_tier_ask *ask, bool is_move);
void sw_tier_share_give(struct sw_tier_share *share, const struct sw_tier_ask *ask);

#endif

/* tier_share.h - limits the requests that wait at each asynchronous tier, for all workers of an engine together.
 *
 * A request that waits at a tier cannot be overtaken. So while several tenants use asynchronous tiers:
 *   - Each path (a tier and a direction) has at most 16 MiB of requests, or one longer frame: enough to keep it busy.
 *     Writes have a quarter of this while reads wait at the same tier.
 *   - Each worker may always have one frame on a path, so that no worker can keep another one out for ever.
 *   - Moves between tiers get what clients leave, but at least one chunk for each 64 MiB of the clients' frames. Long
 *     frames of clients wait for this chunk.
 *
 * A single tenant has no limit. The share does not choose among waiting frames: each worker deals by turns
 * (transfer.c). thread: any, all calls. */
#ifndef SW_SPILL_TIER_SHARE_H
#define SW_SPILL_TIER_SHARE_H

#include "spill/tier/tiers.h"

#include <pthread.h>

/* Frames up to this length are short: they hardly delay others. */
#define SW_TIER_SHARE_SHORT_BYTES ((uint64_t)1 << 20)

struct sw_tier_share {
    pthread_mutex_t lock; /* guards the rest */
    struct sw_tier_path {
        uint64_t asked_bytes;     /* requests that the tier has not finished yet */
        uint64_t passed_bytes;    /* requests of clients since the last chunk of a move */
        uint64_t refused_move_us; /* when a move last had to wait; 0: never */
    } paths[SW_TIERS_MAX][2];     /* by the tier's rank and enum sw_tier_io_kind */
    /* The last two tenants that used any of the tiers. */
    struct sw_tier_user {
        const void *tenant;
        uint64_t last_us; /* 0: no tenant */
    } users[2];
};

/* A request to read or write a frame. */
struct sw_tier_ask {
    unsigned rank; /* the tier's */
    enum sw_tier_io_kind kind;
    uint64_t bytes;
};

/* Initialises a share. It needs no fini: it allocates nothing. */
void sw_tier_share_init(struct sw_tier_share *ret);

/* Notes that a tenant uses a tier. NULL: no tenant, which counts as one. Returns true if another tenant has used any of
 * the tiers within the last second. */
bool sw_tier_share_note(struct sw_tier_share *share, const void *tenant, uint64_t now_us);
/* Returns the same, without noting anything. */
bool sw_tier_share_has_others(struct sw_tier_share *share, const void *tenant, uint64_t now_us);
/* Returns true if a client's frame may be requested now. is_bound: another tenant uses asynchronous tiers, too, and the
 * same worker already has a frame at this tier. */
bool sw_tier_share_has_room(struct sw_tier_share *share, const struct sw_tier_ask *ask, bool is_bound, uint64_t now_us);
/* Returns true if a chunk of a move may be requested now. tenant: the region's. */
bool sw_tier_share_may_move(struct sw_tier_share *share, const struct sw_tier_ask *ask, const void *tenant,
                            uint64_t now_us);
/* Note that a request was sent to a tier, and that the tier has finished it. */
void sw_tier_share_take(struct sw_tier_share *share, const struct sw_tier_ask *ask, bool is_move);
void sw_tier_share_give(struct sw_tier_share *share, const struct sw_tier_ask *ask);

#endif

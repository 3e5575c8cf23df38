/* balance.h - keeps each tier but the last below its watermarks: moves regions that were not used for long to a tier
 * behind, and moves regions back to the first tier on request. A move copies compressed bytes, chunk by chunk; nothing
 * is decoded, and the region stays OUT meanwhile.
 *
 * A restore of a region that is being moved cancels the move and waits for the chunks under way. A drop leaves the
 * region's frames to the move. thread: loop. */
#ifndef SW_SPILL_BALANCE_H
#define SW_SPILL_BALANCE_H

#include "spill/journal/catalogue.h"
#include "spill/store/store.h"
#include "spill/worker/worker.h"

struct sw_balance {
    struct sw_store *store; /* borrowed, like the next two */
    struct sw_catalogue *catalogue;
    struct sw_worker *worker; /* carries moves out */
    unsigned high_pct, low_pct;
    unsigned n_moves;
    uint64_t moving_bytes; /* of the regions of these moves */
    uint64_t room_bytes;   /* bytes that an operator wants moved from the first tier, and whose move has not begun */
    bool is_demoting[SW_TIERS_MAX]; /* regions leave a tier until it has reached the low watermark */
    struct sw_tier *drain_to;       /* regions go from all tiers before this one to it; NULL: nothing is drained */
    struct sw_err drain_err;        /* why the last drain has ended early; code 0: it has not */
    uint64_t demotions, promotions; /* moves that have succeeded */
    /* Called when a region's move has ended: an operation that waits for this may continue. */
    void (*moved)(struct sw_region *region);
};

/* Checks whether regions have to leave a tier. */
void sw_balance_look(struct sw_balance *balance);
/* Takes a job of SW_OP_MOVE back from the worker. */
void sw_balance_move_ended(struct sw_balance *balance, struct sw_job *job);

/* Begin to move a region that is OUT to the first tier, or from the first tier to one behind; no-op if it is there.
 * errors: -SW_EBUSY (it is being moved), -SW_ENOSPACE, -SW_ENOMEM; -SW_ENOTSUP (no tier behind), -SW_EINVAL (packed).
 */
int sw_balance_prefetch(struct sw_balance *balance, struct sw_region *region, struct sw_err *err);
int sw_balance_demote(struct sw_balance *balance, struct sw_region *region, struct sw_err *err);

/* Begins to move all regions at rest from the tiers before `to`, in the order of their ids. Regions that come to rest
 * there later move, too. Regions that a tier keeps move if `to` keeps them better. NULL: ends the drain; moves under
 * way go on. If a move fails, it ends with drain_err. */
void sw_balance_drain(struct sw_balance *balance, struct sw_tier *to);
/* Returns how many stored bytes are left. */
uint64_t sw_balance_drain_left(const struct sw_balance *balance);

#endif

/* balance.h - keeps each tier but the last below its watermarks: moves regions that have not been used for long to a
 * tier behind; and moves back to the first what clients ask for. A move copies compressed bytes, chunk by chunk;
 * nothing is decoded, and the region stays OUT meanwhile.
 *
 * A restore of a region that is being moved cancels the move and waits for the chunks under way; dropping it leaves its
 * frames to the move. thread: loop. */
#ifndef SW_SPILL_BALANCE_H
#define SW_SPILL_BALANCE_H

#include "spill/journal/catalogue.h"
#include "spill/store/store.h"
#include "spill/worker/worker.h"

struct sw_balance {
    struct sw_store *store; /* borrowed, as the next two */
    struct sw_catalogue *catalogue;
    struct sw_worker *worker; /* that carries moves out */
    unsigned high_pct, low_pct;
    bool is_off; /* nothing begins to move by itself any more */
    unsigned n_moves;
    uint64_t room_bytes; /* that an operator wants to leave the first tier, and that have not been started on */
    bool is_demoting[SW_TIERS_MAX]; /* regions leave a tier until it is down at the low watermark */
    uint64_t demotions, promotions; /* that have ended well */
    /* A region's move has ended: an operation that has waited for it may go on. */
    void (*moved)(struct sw_region *region);
};

/* Looks whether regions have to leave a tier. */
void sw_balance_look(struct sw_balance *balance);
/* A job of SW_OP_MOVE is back from the worker. */
void sw_balance_move_ended(struct sw_balance *balance, struct sw_job *job);

/* Begin to move a region that is OUT to the first tier, or from it to one behind; nothing if it is there. errors:
 * -SW_EBUSY (is being moved), -SW_ENOSPACE, -SW_ENOMEM; -SW_ENOTSUP (no tier behind), -SW_EINVAL (packed). */
int sw_balance_prefetch(struct sw_balance *balance, struct sw_region *region, struct sw_err *err);
int sw_balance_demote(struct sw_balance *balance, struct sw_region *region, struct sw_err *err);

#endif

/* transfer.h - frames between memory and the tiers behind it, chunk by chunk, beside the slots of a mover.
 *
 *   out    a slot has copied a frame to host memory -> written to the disk -> the chunk is done
 *   in     read ahead into host memory -> ready -> a slot takes it from there
 *   move   a frame at rest in memory -> written to a tier behind -> its memory is free (demotion), or the other way
 *          round (promotion); from one tier behind to another it is read into memory on its way
 *
 * Transfers belong to their job, which ends when the last one has. All calls: the mover's worker. */
#ifndef SW_SPILL_TRANSFER_H
#define SW_SPILL_TRANSFER_H

#include "spill/mover/mover_state.h"

/* Sends the frame that slot->stored holds in host memory to the disk; the slot is given back. */
void sw_transfer_out(struct sw_mover *m, struct sw_slot *slot);

/* Begins reading chunks that a restore will want next. True if one was begun. */
bool sw_transfer_read_ahead(struct sw_mover *m, struct sw_job *job);
/* True if the chunk can be restored now: it is in the host tier or has been read. */
bool sw_transfer_is_at_hand(const struct sw_job *job, size_t chunk);
/* Hands the host memory of a chunk that was read to the slot: slot->stored, slot->is_staged. */
void sw_transfer_take(struct sw_job *job, struct sw_slot *slot);

/* Goes on with a demotion or promotion. True if something was begun or found to be done. */
bool sw_transfer_move(struct sw_mover *m, struct sw_job *job);

/* Takes in what the disk has finished. True if anything was. */
bool sw_transfer_collect(struct sw_mover *m);
/* A job that has failed gives up what was read for it. */
void sw_transfer_abandon(struct sw_mover *m, struct sw_job *job);

#endif

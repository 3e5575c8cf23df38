/* mover.h - the slots of one device and the runs that share them.
 *
 * The mover deals chunks of the active runs to free slots, in fair shares by tenant, session and request (turns.h). A
 * slot performs the steps of a workflow (workflows.c). A device error, a full tier or a cancellation ends a run: no
 * more of its chunks are dealt, the slots that work on it finish what is queued, all its reservations are released, and
 * only then is the run finished. Short runs that wait at the same time go through a slot together (group.c). Only runs
 * to which something has happened are looked at: thousands may wait.
 *
 * Invariant: memory is unmapped and space released only when no slot uses it. Not thread safe, except for
 * sw_mover_cancel(): everything runs on the device's worker. */
#ifndef SW_SPILL_MOVER_H
#define SW_SPILL_MOVER_H

#include "spill/mover/frame_sink.h"

struct sw_mover;

/* finished() hands back a run that is done, failed or canceled. progress() reports that the phase of some run has
 * changed. Both are called from sw_mover_add, _step and _wait. */
struct sw_mover_host {
    void (*finished)(struct sw_run *run, void *arg);
    void (*progress)(void *arg);
    void *arg;
};

/* Creates a mover. Borrows device and sink. errors: -SW_ENOMEM. */
int sw_mover_new(struct sw_mover **ret, struct sw_device *device, struct sw_frame_sink *sink,
                 const struct sw_mover_host *host, struct sw_err *err);
/* Frees the mover. No run may be active. NULL is a no-op. */
void sw_mover_free(struct sw_mover *mover);

/* Adds a run. It belongs to the mover until finished() hands it back. */
void sw_mover_add(struct sw_mover *mover, struct sw_run *run);
/* Cancels a run that was added, or is about to be, by its signals. thread: any. */
void sw_mover_cancel(struct sw_mover *mover, struct sw_signals *signals);
/* Maps a memory that no run uses yet; unmaps one that no run uses any more, which also ends its description. errors:
 * the device's. */
int sw_mover_map(struct sw_mover *mover, struct sw_run_memory *memory, struct sw_err *err);
void sw_mover_unmap(struct sw_mover *mover, struct sw_run_memory *memory);
/* Checks whether the device still works. errors: -SW_EGPU, -SW_EGPULOST. */
int sw_mover_canary(struct sw_mover *mover, struct sw_err *err);
/* Advances everything that can advance without waiting. Returns false if nothing did. is_polling: the caller polls, and
 * will soon call once without it. While no slot reports and nothing new has come, polling calls do not look for room
 * that others have released. */
bool sw_mover_step(struct sw_mover *mover, bool is_polling);
/* Waits for the slot that has been at work longest. Returns false, at once, if no slot has steps queued. */
bool sw_mover_wait(struct sw_mover *mover);
/* Returns true while steps run. A caller that sleeps until one of them ends may be late for it, and for others that end
 * earlier. */
bool sw_mover_has_steps(const struct sw_mover *mover);
/* Returns true while a pack or an unpack is under way that cannot be given up any more: it has to go on, or be undone.
 */
bool sw_mover_must_go_on(const struct sw_mover *mover);
/* Returns true while a run is active. */
bool sw_mover_busy(const struct sw_mover *mover);
/* Returns true once the device's context has died. Runs then fail with -SW_EGPULOST. */
bool sw_mover_lost(const struct sw_mover *mover);
/* Returns the number of client memories that are mapped. */
unsigned sw_mover_mapped(const struct sw_mover *mover);

#endif

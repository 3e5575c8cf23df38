/* mover.h - the slots of one device and the runs that share them.
 *
 * Chunks of the active runs are dealt to free slots in fair shares by tenant, session and request (turns.h). A slot's
 * steps are those of a workflow (workflows.c). A device error, a full tier or a cancellation ends a run: no more chunks
 * are dealt, the slots that still work on it run dry, all its reservations are released, and only then is the run
 * finished. Short runs that wait at the same time go through a slot together (group.c).
 *
 * Invariant: memory is unmapped and space released only when no slot uses it. Not thread safe: everything runs on the
 * device's worker. */
#ifndef SW_SPILL_MOVER_H
#define SW_SPILL_MOVER_H

#include "spill/mover/frame_sink.h"

struct sw_mover;

/* finished() hands a run back, done, failed or canceled. progress() says that some run's phase has changed. Both are
 * called from sw_mover_add, _step and _wait. */
struct sw_mover_host {
    void (*finished)(struct sw_run *run, void *arg);
    void (*progress)(void *arg);
    void *arg;
};

/* Borrows device and sink. errors: -SW_ENOMEM. */
int sw_mover_new(struct sw_mover **ret, struct sw_device *device, struct sw_frame_sink *sink,
                 const struct sw_mover_host *host, struct sw_err *err);
/* No run may be active. NULL is a no-op. */
void sw_mover_free(struct sw_mover *mover);

/* Takes a run over until finished() gives it back. */
void sw_mover_add(struct sw_mover *mover, struct sw_run *run);
/* Maps a memory that no run uses yet, or unmaps one that no run uses any more, which also ends its description. errors:
 * those of the device. */
int sw_mover_map(struct sw_mover *mover, struct sw_run_memory *memory, struct sw_err *err);
void sw_mover_unmap(struct sw_mover *mover, struct sw_run_memory *memory);
/* Whether the device still works. errors: -SW_EGPU, -SW_EGPULOST. */
int sw_mover_canary(struct sw_mover *mover, struct sw_err *err);
/* Moves everything on that can move without waiting; false if nothing did. is_polling: it is called again and again,
 * and will soon be called without: as long as no slot reports and nothing new has come, it is not looked for
 * cancellations, nor for room that others have given back. */
bool sw_mover_step(struct sw_mover *mover, bool is_polling);
/* Waits for the slot that has been at work longest; false, at once, if no slot has steps queued. */
bool sw_mover_wait(struct sw_mover *mover);
/* True while steps run. Who sleeps until one of them ends comes late to it, and later to others that end before. */
bool sw_mover_has_steps(const struct sw_mover *mover);
/* True while a run is active. */
bool sw_mover_busy(const struct sw_mover *mover);
/* True once the device's context died; runs then fail with -SW_EGPULOST. */
bool sw_mover_lost(const struct sw_mover *mover);
/* Client memories mapped now. */
unsigned sw_mover_mapped(const struct sw_mover *mover);

#endif

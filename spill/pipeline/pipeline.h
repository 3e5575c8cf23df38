/* pipeline.h - the slots of one device and the jobs that share them.
 *
 * Chunks of the active jobs are dealt to free slots in fair shares by tenant, session and request (turns.h). A slot
 * is a small state machine (enum sw_slot_state in pipeline_state.h); a device error, a full tier or a cancellation ends
 * its job: no more chunks are dealt, the slots that still work on it run dry, all its reservations are released, and
 * only then is the job finished. Short jobs that wait at the same time go through a slot together (group.c).
 *
 * Invariant: memory is unmapped and space released only when no slot uses it. Not thread safe: everything runs on the
 * device's worker. */
#ifndef SW_SPILL_PIPELINE_H
#define SW_SPILL_PIPELINE_H

#include "spill/job.h"
#include "spill/placement.h"

struct sw_pipeline;

/* finished() hands a job back, done, failed or canceled. progress() says that some job's phase has changed. Both are
 * called from sw_pipeline_add, _step and _wait. */
struct sw_pipeline_sink {
    void (*finished)(struct sw_job *job, void *arg);
    void (*progress)(void *arg);
    /* Something for sw_pipeline_step() has come from the disk. thread: any. */
    void (*arrived)(void *arg);
    void *arg;
};

/* Borrows device and placement. errors: -SW_ENOMEM. */
int sw_pipeline_new(struct sw_pipeline **ret, struct sw_device *device, struct sw_placement *place,
                    const struct sw_pipeline_sink *sink, struct sw_err *err);
/* No job may be active. NULL is a no-op. */
void sw_pipeline_free(struct sw_pipeline *pipeline);

/* Takes a job over until finished() gives it back. */
void sw_pipeline_add(struct sw_pipeline *pipeline, struct sw_job *job);
/* Moves everything on that can move without waiting; false if nothing did. is_polling: it is called again and again,
 * and will soon be called without: as long as no slot reports and nothing new has come, it is not looked for
 * cancellations, nor for room that others have given back. */
bool sw_pipeline_step(struct sw_pipeline *pipeline, bool is_polling);
/* Waits for the slot that has been at work longest; false, at once, if no slot has steps queued. */
bool sw_pipeline_wait(struct sw_pipeline *pipeline);
/* True while steps run. Who sleeps until one of them ends comes late to it, and later to others that end before. */
bool sw_pipeline_has_steps(const struct sw_pipeline *pipeline);
/* True while a job is active. */
bool sw_pipeline_busy(const struct sw_pipeline *pipeline);
/* True once the device's context died; jobs then fail with -SW_EGPULOST. */
bool sw_pipeline_lost(const struct sw_pipeline *pipeline);
/* Client memories mapped now. */
unsigned sw_pipeline_mapped(const struct sw_pipeline *pipeline);

#endif

/* transit.h - how one worker's jobs share memory for frames in transit, and the asynchronous tiers behind it, by
 * turns.
 *
 * A job that has frames to write to such a tier, or to read from one, has a *transit turn*: by tenant, then session,
 * then request (mover/turns.h), in one line for each direction. While other tenants use these tiers, memory goes by
 * turns, too, and an eighth of it is kept for short frames of tenants that have none there. A tenant alone is not
 * limited. How much a tier is asked for at a time: tier_share.h. Which frame is next: transfer.c. thread: the worker's,
 * all calls. */
#ifndef SW_SPILL_TRANSIT_H
#define SW_SPILL_TRANSIT_H

#include "spill/store/placement.h"
#include "spill/worker/job.h"

struct sw_transit {
    struct sw_placement *place;
    struct sw_turns turns[2]; /* of jobs that want a tier, or may want one, by enum sw_tier_io_kind */
    struct sw_list waiting;   /* struct sw_job: slots of theirs may wait for memory, as run.n_placeless says */
};

void sw_transit_init(struct sw_transit *transit, struct sw_placement *place);
/* Ends a transit. No job may be in it. */
void sw_transit_fini(struct sw_transit *transit);

/* Returns the direction of the job's frames (of a move's first step): to a tier, or from one. */
enum sw_tier_io_kind sw_transit_kind(const struct sw_job *job);

/* Adds the job to the jobs that want a tier, unless it is one of them. errors: -SW_ENOMEM. */
int sw_transit_join(struct sw_transit *transit, struct sw_job *job, struct sw_err *err);
/* Notes that the job may want a tier again. */
void sw_transit_wake(struct sw_transit *transit, struct sw_job *job);
/* Removes a job that is over. */
void sw_transit_leave(struct sw_transit *transit, struct sw_job *job);

/* Reserves and releases memory for a frame in transit, by sw_placement_stage(): for a spill or restore, or for a move
 * from one tier behind memory to another, which has no turn. */
int sw_transit_reserve(struct sw_transit *transit, struct sw_job *job, uint64_t bytes, struct sw_stored *ret,
                       struct sw_err *err);
void sw_transit_release(struct sw_transit *transit, struct sw_job *job, struct sw_stored *staged);

/* Returns true if a frame of this length may use the memory that is kept free. */
bool sw_transit_is_short_newcomer(const struct sw_job *job, uint64_t bytes);

#endif

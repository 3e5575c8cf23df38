/* way.h - how one worker's jobs share memory for frames on their way, and the asynchronous tiers behind it, by turns.
 *
 * A job that has frames to write to such a tier, or to read from one, has a *way turn*: by tenant, then session, then
 * request (mover/turns.h), in one line for each direction. While other tenants use these tiers memory goes by turns,
 * too, and an eighth of it is kept for short frames of tenants that have none there. A tenant alone is not bound. How
 * much a tier is asked for at a time: tier_share.h. Which frame is next: transfer.c. thread: the worker's, all calls.
 */
#ifndef SW_SPILL_WAY_H
#define SW_SPILL_WAY_H

#include "spill/store/placement.h"
#include "spill/worker/job.h"

struct sw_way {
    struct sw_placement *place;
    struct sw_turns turns[2]; /* of jobs that want a tier, or may, by enum sw_tier_io_kind */
    struct sw_list lacking;   /* struct sw_job: slots of theirs may wait for memory, as run.n_placeless has it */
};

void sw_way_init(struct sw_way *way, struct sw_placement *place);
/* No job may be in it. */
void sw_way_fini(struct sw_way *way);

/* Which way the job's frames go, the first step of a move's: to a tier, or from one. */
enum sw_tier_io_kind sw_way_kind(const struct sw_job *job);

/* The job comes among those that want a tier, if it is not there. errors: -SW_ENOMEM. */
int sw_way_join(struct sw_way *way, struct sw_job *job, struct sw_err *err);
/* It may want one again. */
void sw_way_wake(struct sw_way *way, struct sw_job *job);
/* It is over. */
void sw_way_leave(struct sw_way *way, struct sw_job *job);

/* Memory for a frame on its way, as sw_placement_stage() gives it: of a spill or restore, or of a move from one tier
 * behind memory to another, which has no turn. */
int sw_way_stage(struct sw_way *way, struct sw_job *job, uint64_t bytes, struct sw_stored *ret, struct sw_err *err);
void sw_way_unstage(struct sw_way *way, struct sw_job *job, struct sw_stored *staged);

/* A frame of so many bytes may have the memory that is kept free. */
bool sw_way_is_short_newcomer(const struct sw_job *job, uint64_t bytes);

#endif

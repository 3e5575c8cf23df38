/* job.h - what the loop asks of a worker: a run (mover/request.h), mapping or unmapping a memory, or a sign of life.
 *
 * A job belongs to the loop until it is submitted, then to the worker until it comes back. Only its owner touches it,
 * except for `signals`, which both use. A memory (struct sw_run_memory) belongs to the worker while any of its jobs is
 * out. */
#ifndef SW_SPILL_JOB_H
#define SW_SPILL_JOB_H

#include "spill/mover/request.h"
#include "spill/store/quota.h"
#include "spill/tier/tier.h"
#include "spill/worker/order.h"

enum sw_job_kind { SW_JOB_RUN, SW_JOB_MAP, SW_JOB_UNMAP, SW_JOB_CANARY };

struct sw_job {
    struct sw_list node; /* in a queue or list of its owner */
    enum sw_job_kind kind;
    struct sw_run_memory *memory; /* MAP, UNMAP, CANARY: apart from this only run.outcome.err is used */
    struct sw_run run;
    struct sw_signals signals;
    struct sw_order order; /* what it waits for before it begins; holds the loop's reference to the page */
    uint64_t order_since_us, order_look_us; /* order_queue.h: when the wait began; when to look at the word again */
    struct sw_quota *quota;                 /* of the owner's tenant; NULL: none */
    uint64_t charged_bytes; /* taken from the quota; belongs to the loop after the run, also after a failure */
    uint32_t region_slot, region_gen; /* stored in the records of durable tiers */
    enum sw_durability durability;    /* the region's; spill: above SERVICE, all frames go to the tier that keeps it */
    enum sw_prefer prefer;            /* spill: of its request; NONE: the tenant's counts */
    struct sw_tier *from;             /* move: the tier to demote from; NULL: a promotion */
    const struct sw_tier *behind;     /* demotion: chunks go to a tier behind this one */
    struct sw_stored *replaced;       /* move: [n_chunks], frames that were replaced; NULL: they are released at once */
    /* Chunks in transit to or from tiers behind memory (transfer.h); the worker's. */
    unsigned n_transfers, n_ahead; /* in flight; read ahead, including the ready ones */
    size_t n_read;                 /* chunks, from the first, that were considered for reading */
    struct sw_list ready;          /* struct sw_transfer: read, but not taken by a slot yet */
    struct sw_list writes;         /* struct sw_transfer: in memory, waiting for their turn to be written */
    struct sw_turn transit_turn;   /* its place among the jobs that want a tier behind memory (transit.h) */
    struct sw_list waiting;        /* in transit's list */
};

static inline struct sw_job *sw_job_of_run(const struct sw_run *run) {
    return SW_CONTAINER_OF(run, struct sw_job, run);
}

/* Initialises a job, all zero before, that runs one of the request's buffers, or moves frames if it has none. Borrows
 * the request. */
static inline void sw_job_init_run(struct sw_job *job, const struct sw_request *request, unsigned index) {
    job->kind = SW_JOB_RUN;
    sw_list_init(&job->ready);
    sw_list_init(&job->writes);
    sw_list_init(&job->waiting);
    sw_run_init(&job->run, request, index, &job->signals);
}

#endif

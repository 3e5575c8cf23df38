/* job.h - what the loop asks of a worker: a run (mover/request.h), to map or unmap a memory, or a sign of life.
 *
 * A job belongs to the loop until it is submitted, then to the worker until it comes back; the holder alone touches it,
 * but for `signals`, which both use. A memory (struct sw_run_memory) belongs to the worker as long as any of its jobs
 * is out. */
#ifndef SW_SPILL_JOB_H
#define SW_SPILL_JOB_H

#include "spill/mover/request.h"
#include "spill/store/quota.h"
#include "spill/worker/order.h"

enum sw_job_kind { SW_JOB_RUN, SW_JOB_MAP, SW_JOB_UNMAP, SW_JOB_CANARY };

struct sw_job {
    struct sw_list node; /* of whatever queue or list its holder keeps it in */
    enum sw_job_kind kind;
    struct sw_run_memory *memory; /* MAP, UNMAP: of these nothing else counts but run.outcome.err */
    struct sw_run run;
    struct sw_signals signals;
    struct sw_order order;                  /* what it waits for before it begins; the loop's reference to the page */
    uint64_t order_since_us, order_look_us; /* order_queue.h: waits since; when to look at the word again */
    struct sw_quota *quota;                 /* of the owner's tenant; NULL: none */
    uint64_t charged_bytes;                 /* taken from the quota; the loop's from then on, also after a failure */
    uint32_t region_slot, region_gen;       /* named in the records of durable tiers */
    struct sw_tier *from;                   /* move: a demotion of what lies there; NULL: a promotion */
    struct sw_stored *replaced; /* move: [n_chunks], frames that others have taken the place of; NULL: released */
    /* Chunks on their way to or from tiers behind memory (transfer.h), the worker's. */
    unsigned n_transfers, n_ahead; /* under way; read ahead, and those that are ready */
    size_t n_read;                 /* looked at for reading, the first ones */
    struct sw_list ready;          /* struct sw_transfer: read, not taken by a slot yet */
    struct sw_list writes;         /* the same: in memory, to be written when it is their turn */
    struct sw_turn way_turn;       /* its place among those that want a tier behind memory (way.h) */
    struct sw_list lacking;        /* of the way's list */
};

static inline struct sw_job *sw_job_of_run(const struct sw_run *run) {
    return SW_CONTAINER_OF(run, struct sw_job, run);
}

/* A job, all zero before, that runs the request's buffer of that index, or moves frames if it has none. Borrows the
 * request. */
void sw_job_init_run(struct sw_job *job, const struct sw_request *request, unsigned index);

#endif

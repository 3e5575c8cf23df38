/* job.h - what the loop asks of a worker: one spill, restore, pack, unpack, map, unmap, demotion, promotion, or a sign
 * of life.
 *
 * A job belongs to the loop until it is submitted, then to the worker until it comes back; the holder alone touches it,
 * but for `cancel` and `phase`, which are atomic. The memory of a job (struct sw_job_mem) belongs to the worker as long
 * as any of its jobs is out. */
#ifndef SW_SPILL_JOB_H
#define SW_SPILL_JOB_H

#include "base/list.h"
#include "spill/device/device.h"
#include "spill/frames.h"
#include "spill/order.h"
#include "spill/planner/cost.h"
#include "spill/planner/plan_cache.h"
#include "spill/mover/turns.h"
#include "spill/quota.h"
#include <stdatomic.h>
#include <stdbool.h>

enum sw_job_kind {
    SW_JOB_SPILL,
    SW_JOB_RESTORE,
    SW_JOB_PACK,
    SW_JOB_UNPACK,
    SW_JOB_MAP,
    SW_JOB_UNMAP,
    SW_JOB_DEMOTE,
    SW_JOB_PROMOTE,
    SW_JOB_CANARY,
    SW_JOB_KIND_NR
};

/* True for jobs that make frames. */
static inline bool sw_job_encodes(enum sw_job_kind kind) {
    return kind == SW_JOB_SPILL || kind == SW_JOB_PACK;
}

/* True for jobs by which bytes leave a client's memory or come back to it. */
static inline bool sw_job_moves_client_bytes(enum sw_job_kind kind) {
    return sw_job_encodes(kind) || kind == SW_JOB_RESTORE || kind == SW_JOB_UNPACK;
}

/* True for jobs that read and write one range of a client's memory. */
static inline bool sw_job_is_in_place(enum sw_job_kind kind) {
    return kind == SW_JOB_PACK || kind == SW_JOB_UNPACK;
}

/* True for jobs that copy stored frames between tiers, without a device. */
static inline bool sw_job_moves(enum sw_job_kind kind) {
    return kind == SW_JOB_DEMOTE || kind == SW_JOB_PROMOTE;
}

/* "spill" ... */
const char *sw_job_kind_name(enum sw_job_kind kind);

/* How far a spill or pack has come, for the loop to follow. */
enum sw_job_phase { SW_PHASE_STAGING, SW_PHASE_ENCODING, SW_PHASE_STORING };

/* Where a job stands inside the mover. */
enum sw_job_stage {
    SW_STAGE_WAITING,   /* memory not mapped yet */
    SW_STAGE_PREPARING, /* a slot gathers a sample and makes a plan */
    SW_STAGE_RUNNING    /* chunks may be dealt */
};

/* Of a spill or pack. */
enum sw_job_plan_state {
    SW_JOB_PLAN_MISSING,  /* to be found among those that are kept, or made, or it is being made */
    SW_JOB_PLAN_UNPROVEN, /* made for another region; no frame has shown yet whether it suits this one */
    SW_JOB_PLAN_SETTLED   /* what is left goes by it; also the one that stores bytes as they are */
};

/* Compressing does not pay, but is tried on one chunk, or in part, to see whether that is still so. */
enum sw_job_trial {
    SW_TRIAL_NONE,
    SW_TRIAL_WANTED,    /* once there is a plan, which is made for this */
    SW_TRIAL_NEXT_CHUNK /* the plan is for that; those behind it go raw */
};

struct sw_job_mem {
    struct sw_mem_desc desc; /* until mapped */
    struct sw_mapping *mapping;
};

/* Raw frames of a region: chosen once, so that its steps do not share the link with steps of the other way, but for the
 * single one that shows how fast kernels are. */
enum sw_job_way_back { SW_WAY_BACK_OPEN, SW_WAY_BACK_DIRECT, SW_WAY_BACK_KERNELS };

struct sw_job {
    struct sw_list node; /* of whatever queue or list its holder keeps it in */
    enum sw_job_kind kind;
    bool unmap_after;
    struct sw_job_mem *mem;
    uint64_t offset, bytes;        /* range in the memory */
    uint64_t session;              /* sw_owner.number */
    uint64_t op_number;            /* of an operation on several buffers, whose jobs all have it; 0: there is one */
    unsigned buffer;               /* which of them, from 0 */
    enum sw_value_type value_type; /* spill, pack: what its bytes are */
    uint64_t plan_key;             /* the same: whose plans may suit it */
    struct sw_quota *quota;        /* of the owner's tenant; NULL: none */
    struct sw_order order;         /* what it waits for before it begins; the loop's reference to the page */
    uint64_t order_since_us, order_look_us; /* order_queue.h: waits since; when to look at the word again */
    /* Spill, pack: made by the worker, NULL after a failure; restore: the region's, read only; unpack: the region's. */
    struct sw_frames *frames;
    uint32_t region_slot, region_gen; /* named in the records of durable tiers */
    struct sw_tier *from;             /* demotion: what lies there goes to a tier behind */
    struct sw_stored *replaced;       /* move: [n_chunks], frames that others have taken the place of; NULL: released */

    atomic_bool cancel;
    atomic_int phase; /* enum sw_job_phase */

    /* Results. */
    struct sw_err err; /* code 0: success */
    /* Which chunks the step was at work on that failed first: one, or a few side by side. n 0: none in particular. */
    struct sw_job_chunks {
        size_t first, n;
    } failed;
    uint64_t stored_bytes, codec_raw_bytes[SW_CODEC_NR];
    uint64_t charged_bytes;         /* taken from the quota; the loop's from then on, also after a failure */
    uint64_t kept_bytes;            /* the same: taken from what may be kept for the tenant, for its frames' records */
    uint64_t started_us;            /* when it was first dealt with, 0: never */
    uint64_t mapped_us, planned_us; /* when the memory was mapped, the first plan made; 0: never */
    enum sw_cost_reason reason;     /* why it was compressed, or was not: of the last plan */

    /* The mover's own. */
    enum sw_job_stage stage;
    unsigned n_slots;    /* working on it now */
    struct sw_turn turn; /* its place among those that want slots */
    size_t n_dealt, n_encoded, n_done;
    bool is_early;  /* of several buffers: its last chunk that was dealt was, by Johnson's rule (deal.c) */
    bool is_direct; /* raw chunks go directly (direct.c) */
    enum sw_job_way_back way_back;
    /* Spill: some chunks are compressed, others go directly meanwhile; restore: there are frames of both. What shares
     * the link with others is not measured. */
    bool is_mixed;
    bool regroups; /* has left a group, to be served with others that have left it for the same reason (group.c) */
    /* Spill, pack: its plan (plan.c). */
    enum sw_job_plan_state plan_state;
    enum sw_job_trial trial;
    unsigned plan_number, n_retrained;
    struct sw_plan plan;
    struct sw_plan_choice plan_choice;
    /* Chunks on their way to or from the disk (transfer.h). */
    unsigned n_transfers, n_ahead; /* under way; read ahead, and those that are ready */
    size_t n_read;                 /* looked at for reading, the first ones */
    struct sw_list ready;          /* struct sw_transfer: read, not taken by a slot yet */
    struct sw_job_in_place {
        size_t n_ordered;      /* pack: chunks whose frames have a place, the first ones */
        uint64_t end_bytes;    /* pack: where the next frame goes, from the start of the range */
        size_t n_compared;     /* unpack: chunks, the first ones, whose frames have been or are being compared */
        bool is_recovering;    /* nothing is under way but attempts to undo what failed */
        unsigned n_recoveries; /* of these, that failed, too */
        bool lost;             /* too many did */
        bool torn;             /* and a chunk's only good copy went with them */
    } in_place;
};

#endif

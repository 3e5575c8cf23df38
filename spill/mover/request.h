/* request.h - what is asked of a mover, and what becomes of it.
 *
 * A request is an operation on one or several buffers. It does not change while any of its runs is out. Each buffer has
 * a run of its own, which belongs to the mover from sw_mover_add() until the host's finished(); then its outcome and
 * its frames are the host's. Host and mover meet in `signals` alone, meanwhile. */
#ifndef SW_SPILL_MOVER_REQUEST_H
#define SW_SPILL_MOVER_REQUEST_H

#include "base/budget.h"
#include "base/list.h"
#include "spill/device/device.h"
#include "spill/mover/frames.h"
#include "spill/mover/turns.h"
#include "spill/planner/planner.h"
#include <stdatomic.h>
#include <stdbool.h>

enum sw_operation {
    SW_OP_SPILL,
    SW_OP_RESTORE,
    SW_OP_PACK,   /* a spill that leaves its frames at the front of the buffer */
    SW_OP_UNPACK, /* its restore */
    SW_OP_MOVE,   /* stored frames change their place in the sink: without a device, and without buffers */
    SW_OP_NR
};
/* "spill" ... */
const char *sw_operation_name(enum sw_operation operation);

/* True for those that make frames. */
static inline bool sw_operation_encodes(enum sw_operation operation) {
    return operation == SW_OP_SPILL || operation == SW_OP_PACK;
}

/* True for those that read and write one range of a client's memory. */
static inline bool sw_operation_is_in_place(enum sw_operation operation) {
    return operation == SW_OP_PACK || operation == SW_OP_UNPACK;
}

/* A client's memory. The mover's while any run that uses it is out. */
struct sw_run_memory {
    struct sw_mem_desc desc; /* until mapped */
    struct sw_mapping *mapping;
    bool once; /* unmapped at the end of the first run that uses it */
};

/* A range of a memory. */
struct sw_buffer {
    struct sw_run_memory *memory;
    uint64_t offset, bytes;
    enum sw_value_type type; /* spill, pack: what its bytes are */
    /* Which of the region's buffers it is, or is a part of, from 1; 0: the region has one. */
    unsigned number;
    /* Of a part of a buffer: which of the buffer's chunks is its first; spill: and the length of the chunks. 0: the
     * mover chooses the length, and the part is the whole buffer. */
    uint64_t chunk_bytes;
    size_t first_chunk;
};

/* Which of the region's buffers it is a part of, from 0. */
static inline unsigned sw_buffer_part(const struct sw_buffer *buffer) {
    return buffer->number ? buffer->number - 1 : 0;
}

struct sw_request {
    enum sw_operation operation;
    const void *tenant;     /* whose turns its runs take; NULL: nobody's, which counts as one tenant's */
    uint64_t session;       /* of that tenant; from 1, never reused */
    uint64_t number;        /* of one with several buffers: unique; 0: there is one */
    struct sw_budget *kept; /* memory that may be kept for its frames' records; NULL: nobody counts */
    bool may_fill_holes;    /* restore, unpack: pages that the client's memory lacks may be made at our expense */
    unsigned n_buffers;
    const struct sw_buffer *buffers; /* [n_buffers] */
};

/* How far a spill or pack has come, for the host to follow. */
enum sw_phase { SW_PHASE_STAGING, SW_PHASE_ENCODING, SW_PHASE_STORING };

/* What host and mover tell each other while a run is out. */
struct sw_signals {
    atomic_bool cancel; /* by the host */
    atomic_int phase;   /* enum sw_phase, by the mover */
};

struct sw_run_outcome {
    struct sw_err err; /* code 0: success */
    /* Which chunks the step was at work on that failed first: one, or a few side by side. n 0: none in particular. */
    struct sw_failed_chunks {
        size_t first, n;
    } failed;
    uint64_t stored_bytes, codec_raw_bytes[SW_CODEC_NR];
    uint64_t kept_bytes;            /* taken from request->kept; the host's from then on, also after a failure */
    uint64_t started_us;            /* when it was first dealt with, 0: never */
    uint64_t mapped_us, planned_us; /* when the memory was mapped, the first plan made; 0: never */
    enum sw_cost_reason reason;     /* why it was compressed, or was not: of the last plan */
};

/* Where a run stands inside the mover. */
enum sw_run_stage {
    SW_STAGE_WAITING,   /* memory not mapped yet */
    SW_STAGE_PREPARING, /* a slot gathers a sample and makes a plan */
    SW_STAGE_RUNNING    /* chunks may be dealt */
};

struct sw_run {
    const struct sw_request *request;
    unsigned index;                 /* of its buffer */
    const struct sw_buffer *buffer; /* NULL: a move */
    struct sw_signals *signals;
    /* Spill, pack: made by the mover, NULL after a failure; restore, move: the host's, read, or changed by its sink;
     * unpack: the host's, changed. */
    struct sw_frames *frames;
    struct sw_run_outcome outcome;

    /* The sink's: how much it has under way for the run, or holds for it. The run ends at 0. */
    unsigned n_in_sink;

    /* The mover's; its sink may look at it. */
    unsigned n_placeless; /* slots whose frames wait for a place */

    /* The mover's own. */
    struct sw_list node; /* of the runs that are out */
    enum sw_run_stage stage;
    unsigned n_slots;    /* working on it now */
    struct sw_turn turn; /* its place among those that want slots */
    size_t n_dealt, n_encoded, n_done;
    bool is_early;  /* of several buffers: its last chunk that was dealt was, by Johnson's rule (deal.c) */
    bool is_undone; /* it has failed, and what its workflow has to undo has been undone, or is lost */
    bool regroups;  /* has left a group, to be served with others that have left it for the same reason (group.c) */
    struct sw_course course; /* the planner's */
    struct sw_run_in_place {
        size_t n_ordered;      /* pack: chunks whose frames have a place, the first ones */
        uint64_t end_bytes;    /* pack: where the next frame goes, from the start of the range */
        size_t n_compared;     /* unpack: chunks, the first ones, whose frames have been or are being compared */
        bool is_recovering;    /* nothing is under way but attempts to undo what failed */
        unsigned n_recoveries; /* of these, that failed, too */
        bool lost;             /* too many did */
        bool torn;             /* and a chunk's only good copy went with them */
    } in_place;
};

/* A run of the request's buffer of that index, all zero before. Borrows both. */
void sw_run_init(struct sw_run *run, const struct sw_request *request, unsigned index, struct sw_signals *signals);

#endif

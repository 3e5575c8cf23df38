/* request.h - what a mover is asked to do, and its outcome.
 *
 * A request is an operation on one or several buffers. It does not change while any of its runs is in the mover. Each
 * buffer has its own run, which belongs to the mover from sw_mover_add() until the host's finished(). After that its
 * outcome and its frames belong to the host. Meanwhile host and mover communicate only by `signals`. */
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
    SW_OP_UNPACK, /* the restore of a pack */
    SW_OP_MOVE,   /* stored frames change their place in the sink: no device, no buffers */
    SW_OP_NR
};
/* Returns the operation's name, such as "spill". */
const char *sw_operation_name(enum sw_operation operation);

/* Returns true for operations that make frames. */
static inline bool sw_operation_encodes(enum sw_operation operation) {
    return operation == SW_OP_SPILL || operation == SW_OP_PACK;
}

/* Returns true for operations that read and write the same buffer of a client. */
static inline bool sw_operation_is_in_place(enum sw_operation operation) {
    return operation == SW_OP_PACK || operation == SW_OP_UNPACK;
}

/* A client's memory. It belongs to the mover while any run that uses it is there. */
struct sw_run_memory {
    struct sw_mem_desc desc; /* valid until it is mapped */
    void *data;              /* memory of this process, desc.bytes long, which the device adopts; NULL: a client's */
    struct sw_mapping *mapping;
    bool once; /* unmap it at the end of the first run that uses it */
};

/* One of a request's buffers, or a part of one: some bytes of a memory. */
struct sw_buffer {
    struct sw_run_memory *memory;
    uint64_t offset, bytes;
    /* 0: the range holds the raw bytes. Else the client encodes and decodes: the range holds, or gets, a frame of this
     * length. The frame's chunk is the only one, of `bytes` raw bytes. */
    uint64_t frame_bytes;
    bool is_disputed;        /* restore of a frame: a CPU decodes the stored frame first */
    enum sw_value_type type; /* spill, pack: what its bytes are */
    /* Number of the region's buffer, from 1; 0: the region has only one. */
    unsigned number;
    /* For a part of a buffer: its first chunk, and for a spill the length of the chunks. chunk_bytes 0: it is the whole
     * buffer, and the mover chooses the length. */
    uint64_t chunk_bytes;
    size_t first_chunk;
};

/* Returns the index of the region's buffer, from 0. */
static inline unsigned sw_buffer_index(const struct sw_buffer *buffer) {
    return buffer->number ? buffer->number - 1 : 0;
}

/* How much of the memory the range takes. */
static inline uint64_t sw_buffer_range_bytes(const struct sw_buffer *buffer) {
    return buffer->frame_bytes ? buffer->frame_bytes : buffer->bytes;
}

struct sw_request {
    enum sw_operation operation;
    const void *tenant;     /* whose turns its runs take; NULL: no tenant, which counts as one */
    uint64_t session;       /* of that tenant; from 1, never reused */
    uint64_t number;        /* unique for a request of several buffers; 0: there is one buffer */
    struct sw_budget *kept; /* budget for the records of its frames; NULL: not counted */
    bool may_fill_holes;    /* restore, unpack: pages that the client's memory lacks may be allocated at the daemon's
                               expense */
    unsigned n_buffers;
    const struct sw_buffer *buffers; /* [n_buffers] */
};

/* The progress of a spill or pack, for the host. */
enum sw_phase { SW_PHASE_STAGING, SW_PHASE_ENCODING, SW_PHASE_STORING };

/* How host and mover communicate during a run. */
struct sw_signals {
    atomic_bool cancel;        /* set by sw_mover_cancel() */
    atomic_int phase;          /* enum sw_phase, set by the mover */
    atomic_ullong moved_bytes; /* move: stored bytes whose frames have a new place; set by the sink */
};

struct sw_run_outcome {
    struct sw_err err; /* code 0: success */
    /* The chunks of the step that failed first: one, or a few side by side. n 0: not known. */
    struct sw_failed_chunks {
        size_t first, n;
    } failed;
    uint64_t stored_bytes, codec_raw_bytes[SW_CODEC_NR];
    uint64_t kept_bytes; /* taken from request->kept; belongs to the host after the run, also after a failure */
    uint64_t started_us; /* when it began, 0: never */
    uint64_t mapped_us, planned_us; /* when the memory was mapped, and the first plan made; 0: never */
    enum sw_cost_reason reason;     /* why the last plan compressed, or did not */
};

/* The run's stage in the mover. */
enum sw_run_stage {
    SW_STAGE_WAITING,   /* the memory is not mapped yet */
    SW_STAGE_PREPARING, /* a slot gathers a sample and makes a plan */
    SW_STAGE_RUNNING    /* chunks may be dealt */
};

struct sw_workflows;

struct sw_run {
    const struct sw_request *request;
    unsigned index;                 /* the buffer's */
    const struct sw_buffer *buffer; /* NULL: a move */
    struct sw_signals *signals;
    /* Spill, pack: made by the mover, NULL after a failure. Restore, move: the host's; a restore reads them, the sink
     * changes a move's. Unpack: the host's, changed. */
    struct sw_frames *frames;
    struct sw_run_outcome outcome;

    /* The sink's: how much it has under way for the run, or holds for it. The run can end at 0. Where the sink lies in
     * another process the mover adds the slots that are with the sink. */
    unsigned n_in_sink;

    /* The mover's; its sink may read it. */
    unsigned n_placeless; /* slots whose frames wait for a place */

    /* The mover's own. */
    struct sw_list node;                  /* in the list of active runs */
    struct sw_list due;                   /* in the list of runs to look at */
    const struct sw_workflows *workflows; /* its operation's */
    enum sw_run_stage stage;
    unsigned n_slots;    /* slots that work on it now */
    struct sw_turn turn; /* its place among the runs that want slots */
    size_t n_dealt, n_encoded, n_done;
    bool is_early;  /* of several buffers: its last dealt chunk was early by Johnson's rule (deal.c) */
    bool is_undone; /* it has failed, and its workflow has undone what it can, or the bytes are lost */
    bool regroups;  /* it has left a group, to be served with other runs that left for the same reason (group.c) */
    struct sw_course course; /* the planner's */
    struct sw_run_in_place {
        size_t n_ordered;   /* pack: number of chunks, from the first, whose frames have a place */
        uint64_t end_bytes; /* pack: where the next frame goes, from the start of the buffer */
        size_t n_compared;  /* unpack: number of chunks, from the first, whose frames have been or are being compared */
        bool must_go_on;    /* bytes of the client are being overwritten */
        bool is_recovering; /* only attempts to undo the failure are under way */
        unsigned n_recoveries; /* attempts to undo that have failed */
        bool lost;             /* too many failed */
        bool torn;             /* and a chunk's only good copy was lost */
    } in_place;
};

/* Initialises a run for one of the request's buffers. All zero before. Borrows request and signals. */
void sw_run_init(struct sw_run *run, const struct sw_request *request, unsigned index, struct sw_signals *signals);

#endif

/* mover_state.h - what mover.c, chunk_*.c, direct.c, group.c, in_place.c and transfer.c share. All of it belongs to the
 * device's worker. Not for others. */
#ifndef SW_SPILL_MOVER_STATE_H
#define SW_SPILL_MOVER_STATE_H

#include "spill/mover/mover.h"
#include "spill/planner/plan_cache.h"
#include "spill/planner/rules.h"

/* What a slot does, for a chunk or for several, or for a group, whose steps are the same.
 *
 *   any             FREE -> PREPARING -> FREE: before the first chunk, or for a new plan; a group goes on to ENCODING
 *   spill           FREE -> ENCODING -> (room reserved) -> STORING -> (committed, or on to the disk) -> FREE
 *                   FREE -> STORING: raw bytes without an encoder, several chunks at once (direct.c)
 *                   ENCODING again, by another plan, or REPLANNING -> ENCODING: the plan does not suit the chunk
 *                   WAITING before STORING: the host memory for frames that go to the disk is full
 *   restore         FREE -> RESTORING (load, decode and verify queued in one go) -> FREE
 *   pack            FREE -> ENCODING, as a spill -> HOLDING -> PLACING -> FREE
 *   unpack          FREE -> COMPARING -> FREE: before anything else, with all frames
 *                   FREE -> UNPACKING -> FREE: the frame is decoded where it lies
 *                   FREE -> FETCHING -> DECODING -> FREE: the raw bytes will fall on it
 *
 * If its run fails a slot becomes FREE at the end of what is queued, or at once if nothing is, but:
 *
 *   any             -> DRAINING -> FREE: a step could not be queued; what is queued has to end
 *   pack, unpack    PLACING or DECODING -> TORN (-> FREE: it cannot be undone)
 *                   TORN -> DECODING -> FREE: a pack is undone, then chunk by chunk as an unpack
 *                   TORN -> PLACING -> FREE: an unpack is undone */
enum sw_slot_state {
    SW_SLOT_FREE,
    SW_SLOT_PREPARING,  /* has a plan made */
    SW_SLOT_REPLANNING, /* has a plan made for its chunk, among others, which is to be encoded again then */
    SW_SLOT_ENCODING,
    SW_SLOT_STORING, /* frame, or raw bytes, on the way to host memory */
    SW_SLOT_RESTORING,
    SW_SLOT_DRAINING,  /* its run has failed; what is queued has to end */
    SW_SLOT_WAITING,   /* waits for host memory on its way to the disk; nothing queued */
    SW_SLOT_HOLDING,   /* pack: frame made, waits for its turn; nothing queued */
    SW_SLOT_PLACING,   /* frame on its way into the client's memory */
    SW_SLOT_COMPARING, /* finds out which frames lie in the client's memory */
    SW_SLOT_FETCHING,  /* frame on its way out of it */
    SW_SLOT_UNPACKING, /* frame being decoded where it lies in that memory, and stays */
    SW_SLOT_DECODING,  /* fetched frame being decoded, perhaps over where it was: the buffer has the only one */
    SW_SLOT_TORN       /* holds a chunk's only good copy, its frame; nothing queued */
};

/* Short runs whose steps a slot does in one go. */
struct sw_group {
    unsigned n;                  /* members; 0: the slot works for `run`, or is free */
    struct sw_run **runs;        /* [group_items]; NULL: has left since its frame was made */
    struct sw_group_item *items; /* [group_items], in the same order */
    enum sw_operation kind;      /* of all of them: SPILL or RESTORE */
    bool is_ascending;           /* gathering: from one memory, each behind the one before */
    uint64_t raw_bytes, item_bytes;
    struct sw_plan plan; /* spill: by which all are encoded */
};

/* Raw chunks whose bytes a slot moves in one step without encoding them. */
struct sw_direct {
    unsigned n; /* 0: the slot does something else */
    size_t chunks[SW_RAW_MAX];
    struct sw_raw_item items[SW_RAW_MAX];
    struct sw_stored more[SW_RAW_MAX]; /* spill: room for items 1 …; that for item 0 is the slot's `stored` */
};

struct sw_slot {
    enum sw_slot_state state;
    struct sw_run *run; /* NULL: free, or a group's */
    struct sw_group group;
    size_t chunk;
    unsigned n_chunks;         /* unpacking: as many, of which `chunk` is the last; restoring: the first */
    bool unqueued;             /* a step could not be queued; those before it still run */
    unsigned plan_number;      /* encoding: of the plan in use */
    uint64_t age;              /* order in which slots became busy */
    uint64_t planned_since_us; /* preparing, replanning: when it began to make a plan */
    struct sw_slot_measure {
        struct sw_meter *meter; /* of the stage that the queued steps are; NULL: not measured */
        bool is_coder;          /* the stage compresses */
        uint64_t begun_us, bytes;
    } measure;
    struct sw_link *link; /* that its steps use; NULL: none */
    uint64_t link_number; /* which of the steps queued on it */
    struct sw_stored stored;
    struct sw_frame_layout frame; /* encoded, or being restored */
    struct sw_direct direct;      /* STORING, RESTORING: without kernels for each chunk, `chunk` the first one */
    struct {                      /* PLACING, FETCHING: of the slot's frame; COMPARING: of several */
        unsigned n;
        size_t chunks[SW_HEAD_MAX];
        struct sw_head_item items[SW_HEAD_MAX];
    } heads;
};

/* The link to host memory in one direction, by what has been queued on it. */
struct sw_link {
    uint64_t free_us;  /* when it will be through with that */
    uint64_t n_queued; /* steps */
    unsigned n_running;
};
enum { SW_LINK_OUT, SW_LINK_BACK, SW_LINKS };

struct sw_mover {
    struct sw_device *device;
    struct sw_frame_sink *sink;
    struct sw_mover_host host;
    unsigned n_slots, n_mapped;
    bool is_settled; /* since nothing could be moved on no slot has reported and no run has come */
    uint64_t next_age;
    struct sw_list runs;   /* active */
    struct sw_turns turns; /* of those that want slots, or may */
    struct sw_link links[SW_LINKS];
    uint64_t link_opens_us; /* when to look again at what waits for a link; 0: nothing does */
    struct sw_err lost;     /* code 0: the device works */
    struct sw_plan_cache plans;
    /* Many frames in one step take longer than one, so that groups would say nothing true of a chunk. */
    struct sw_cost_class costs[SW_COST_CLASSES], group_costs[SW_COST_CLASSES];
    double plan_s;    /* what making a plan has lately taken; 0: not known */
    uint64_t woke_us; /* since then not every slot has been looked at; 0: all have */
    struct sw_slot slots[];
};

static inline unsigned sw_slot_index(const struct sw_mover *m, const struct sw_slot *slot) {
    return (unsigned)(slot - m->slots);
}

/* Its frame is in memory on its way: out, or back. */
static inline bool sw_slot_is_staged(const struct sw_slot *slot) {
    return slot->stored.use != SW_STORED_RESTS;
}

/* A slot that works for the run, or for another buffer of its request. */
static inline bool sw_slot_serves_op(const struct sw_slot *slot, const struct sw_run *run) {
    return slot->run &&
           (slot->run == run || (run->request->number && slot->run->request->number == run->request->number));
}

static inline struct sw_run *sw_run_of_turn(struct sw_turn *turn) {
    return SW_CONTAINER_OF(turn, struct sw_run, turn);
}

/* ---- mover.c ---- */

void sw_slot_take(struct sw_mover *m, struct sw_slot *slot, enum sw_slot_state state, struct sw_run *run);
void sw_slot_give(struct sw_mover *m, struct sw_slot *slot);
/* A step could not be queued: its run fails, what is already queued on the slot must end. */
void sw_slot_fail(struct sw_mover *m, struct sw_slot *slot, const struct sw_err *err);

/* ---- chunk_spill.c ---- */

/* Of a spill or pack: a plan is still to be made. */
bool sw_run_needs_plan(const struct sw_run *run);
/* Has a free slot make a plan for what is still to be spilled. */
void sw_slot_prepare(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run);
/* PREPARING has ended; REPLANNING has, and the chunk is encoded by the new plan. */
void sw_slot_prepared(struct sw_mover *m, const struct sw_slot *slot);
void sw_slot_replanned(struct sw_mover *m, struct sw_slot *slot);
/* Has a free slot encode the run's next chunk, or take it and those behind it as they are. */
void sw_slot_spill(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run);
/* The frame is in the slot's buffer: has it stored, or made again by another plan. */
void sw_slot_encoded(struct sw_mover *m, struct sw_slot *slot, const struct sw_slot_result *result);
/* Copies the frame to host memory, where it stays, or from where it goes on to the disk. False: has to wait. */
bool sw_slot_begin_store(struct sw_mover *m, struct sw_slot *slot);
/* Room for the first `bytes` of the slot's frame, where they rest if they must, and the steps that copy them there.
 * errors: -SW_EAGAIN, as reserve() of the sink. */
int sw_slot_store(struct sw_mover *m, struct sw_slot *slot, uint64_t bytes, bool must_rest, struct sw_err *err);
/* What was copied to where it stays is there: commits it. */
void sw_slot_stored(struct sw_mover *m, struct sw_slot *slot);

/* ---- chunk_restore.c ---- */

/* Has a free slot restore the run's next chunk, and those behind it that go in the same step. */
void sw_slot_restore(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run);
/* Queues the steps that copy a frame from the tier to `at` of the slot's buffer. */
int sw_slot_load(struct sw_mover *m, const struct sw_slot *slot, const struct sw_stored *stored, uint64_t at,
                 struct sw_err *err);

/* ---- deal.c ---- */

/* The run that one of n_free free slots is to serve. NULL: none wants one, or none that may have it. */
struct sw_run *sw_mover_next_run(struct sw_mover *m, unsigned n_free);
/* A run comes among those that want slots. errors: -SW_ENOMEM. */
int sw_run_join_turns(struct sw_mover *m, struct sw_run *run, struct sw_err *err);
/* A slot works for the run, or does so no more, after which the run may want one again. */
void sw_run_hold_slot(struct sw_run *run);
void sw_run_give_slot(struct sw_mover *m, struct sw_run *run);
/* Bytes of the run that have been dealt out. */
uint64_t sw_run_dealt_bytes(const struct sw_run *run);
/* True if another tenant wants the device, or has lately: steps are short then. */
bool sw_mover_has_neighbours(const struct sw_mover *m, const struct sw_run *run);
/* True if no other request wants the device, nor does another tenant. */
bool sw_mover_is_alone(const struct sw_mover *m, const struct sw_run *run);

/* ---- link.c ---- */

/* True if a step of the run may queue so many bytes on the link now. Beside other tenants' runs long ones wait while
 * others are on it, so that no one waits there for more than a chunk. */
bool sw_link_has_room(struct sw_mover *m, unsigned link, const struct sw_run *run, uint64_t bytes);
/* A slot's step queues them. */
void sw_link_take(struct sw_mover *m, struct sw_slot *slot, unsigned link, uint64_t bytes);
/* The slot has reported. */
void sw_link_ended(struct sw_slot *slot);

/* ---- run.c ---- */

void sw_run_set_phase(struct sw_mover *m, struct sw_run *run, enum sw_phase phase);
/* Length of a spill's or a pack's chunks: as the device can, and as the way to the disk has room for a frame. */
uint64_t sw_run_chunk_bytes(const struct sw_mover *m, const struct sw_run *run);
/* Maps the memory and lays out the chunks. */
int sw_run_start(struct sw_mover *m, struct sw_run *run, struct sw_err *err);
/* The frame of one of its chunks is complete on the device: keeps the books. planned: a codec that makes no shorter
 * frame than raw is given up for that chunk. */
void sw_run_note_frame(struct sw_run *run, size_t chunk, enum sw_codec_id planned, const struct sw_frame_layout *frame);
bool sw_run_complete(const struct sw_run *run);
/* The worker's side of a run is over. */
void sw_run_finish(struct sw_mover *m, struct sw_run *run);

/* ---- group.c ---- */

/* errors: -SW_ENOMEM. */
int sw_group_init(struct sw_group *ret, unsigned max_items, struct sw_err *err);
void sw_group_fini(struct sw_group *group);
/* Has a free slot serve a waiting run together with others that are waiting. False: there are none, or the run is none
 * to be served with others; nothing has changed. */
bool sw_group_serve(struct sw_mover *m, struct sw_slot *slot, struct sw_run *first);
/* The steps of a slot that works for a group have ended with rc. */
void sw_group_ended(struct sw_mover *m, struct sw_slot *slot, int rc, const struct sw_err *err);

/* ---- measure.c ---- */

enum sw_measure_kind {
    SW_MEASURE_ENCODE,
    SW_MEASURE_LINK_OUT,
    SW_MEASURE_RESTORE,
    SW_MEASURE_DIRECT_OUT, /* without kernels for each chunk */
    SW_MEASURE_DIRECT_BACK
};

/* Measures the steps that are about to be queued on a slot until it reports, as `bytes` of a stage. codec: of the plan,
 * or of the frame. raw_bytes: length of the chunk, or of all of a group. */
void sw_measure_begin(struct sw_mover *m, struct sw_slot *slot, enum sw_measure_kind kind, enum sw_codec_id codec,
                      uint64_t raw_bytes, uint64_t bytes);
/* True if what the slot is about to move has only a part of the link, since other chunks of its run, compressed or not,
 * cross meanwhile that are not measured with it: it is not measured then. */
bool sw_slot_shares_link(const struct sw_mover *m, const struct sw_slot *slot);
/* The slot has reported. counts: that the steps have done what was measured. */
void sw_measure_end(struct sw_mover *m, struct sw_slot *slot, bool counts);
/* False of a device that works in host memory. */
bool sw_mover_has_link(const struct sw_mover *m);
/* What is to be encoded by a plan: the rest of a region, or a group, which counts as one chunk. */
struct sw_weighed {
    uint64_t raw_bytes, chunk_bytes, n_chunks;
    const struct sw_run *run; /* or one of them: whose tenant may store so much */
    bool shares_step;         /* a group of chunk_bytes in all, or a member of it */
    bool shares_slots;        /* with the other buffers of its request */
};
/* What is known of chunks, or of groups, of that length; NULL: they are too short. */
struct sw_cost_class *sw_mover_costs(struct sw_mover *m, uint64_t chunk_bytes, bool is_group);
/* What cost.h is to be asked about it, by the rates measured. */
struct sw_cost_question sw_mover_ask(struct sw_mover *m, const struct sw_weighed *what, enum sw_codec_id codec,
                                     double expected_ratio);
/* What the run's next chunk will take: to be encoded and to cross the link, or to cross and be decoded. All 0: not
 * known. */
struct sw_rules_stages sw_run_stages(struct sw_mover *m, const struct sw_run *run);
/* How long making a plan took. */
void sw_measure_plan(struct sw_mover *m, uint64_t us);
/* Whether the next step_bytes of raw chunks, the first one of raw_bytes, go directly: of a run that may, and on their
 * way back. */
bool sw_run_spills_directly(struct sw_mover *m, const struct sw_run *run, uint64_t raw_bytes, uint64_t step_bytes);
bool sw_run_restores_directly(struct sw_mover *m, struct sw_run *run, uint64_t raw_bytes, uint64_t step_bytes);
/* True while a slot moves chunks of the run directly. */
bool sw_run_has_direct_step(const struct sw_mover *m, const struct sw_run *run);

/* ---- plan.c ---- */

/* Segments as long as they may be for chunks of that length, if the plan's frames have any. */
void sw_mover_plan_set_segments(const struct sw_mover *m, struct sw_plan *plan, uint64_t chunk_bytes);
/* Keeps a plan, or turns it into one that stores bytes as they are, and says why. may_retry: it was made to be tried on
 * one chunk, should it not pay. */
struct sw_verdict {
    enum sw_cost_reason reason;
    bool is_direct; /* raw chunks: directly */
    bool is_mixed;  /* some chunks as the plan says, some directly */
};
struct sw_verdict sw_mover_plan_weigh(struct sw_mover *m, enum sw_operation kind, const struct sw_weighed *what,
                                      bool may_retry, struct sw_plan *plan);
/* The same for a run that has got a plan, from its chunk `first` on. */
void sw_run_weigh(struct sw_mover *m, struct sw_run *run, size_t first);
/* Of a run under way, a spill that is being compressed: looks whether that still pays by what has been measured since
 * it was weighed. If not, what is left goes in part, or raw. */
void sw_run_weigh_again(struct sw_mover *m, struct sw_run *run);
/* Who looks for a plan among those that are kept. */
struct sw_plan_query {
    enum sw_operation kind;        /* SPILL, PACK */
    struct sw_weighed what;        /* is to be encoded by it */
    uint64_t key;                  /* of plans that may suit */
    uint64_t bytes;                /* of the region, or of a group's longest */
    struct sw_plan_choice *choice; /* what it has had of them so far */
};
enum sw_plan_found {
    SW_PLAN_NONE,
    SW_PLAN_DUE, /* *ret was worth what a new one costs, which should be made if there is need of one */
    SW_PLAN_USABLE
};
/* The kept plan that should be tried (next) for what has that key. */
enum sw_plan_found sw_mover_plan_find(struct sw_mover *m, const struct sw_plan_query *query, struct sw_plan *ret);
/* True if a plan made for another region is not for the bytes of this frame. */
bool sw_mover_plan_is_stale(const struct sw_plan *plan, const struct sw_frame_layout *frame);
enum sw_misfit {
    SW_MISFIT_ACCEPT, /* the frame will do */
    SW_MISFIT_AGAIN,  /* it is to be made again, by another kept plan */
    SW_MISFIT_PLAN    /* a plan is to be made */
};
/* What to do with a frame that shows that the plan it is by, a kept one, does not suit. AGAIN: *plan is the other one.
 */
enum sw_misfit sw_mover_plan_misfits(struct sw_mover *m, const struct sw_plan_query *query,
                                     const struct sw_frame_layout *frame, struct sw_plan *plan);
/* Of a run that begins: true if it needs no plan of its own, since it has got a kept one, or one that stores bytes as
 * they are: making one could not pay, by what the session's last ones promised. */
bool sw_run_find_plan(struct sw_mover *m, struct sw_run *run);
/* Looks at a frame of the run, made by its plan of that number. */
enum sw_misfit sw_run_judge_plan(struct sw_mover *m, struct sw_run *run, unsigned plan_number,
                                 const struct sw_frame_layout *frame);
/* A frame shows that the bytes are others than those that the run's plan was made for: has a new one made for the rest,
 * if that may pay. */
void sw_run_drifts(struct sw_mover *m, struct sw_run *run, const struct sw_frame_layout *frame);

/* ---- direct.c ---- */

/* Has a free slot take the run's next chunk, if it goes directly, and then others behind it; else nothing has changed.
 * What is next is room for its frame. */
bool sw_direct_take(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run);
/* The room for the first chunk has been reserved: reserves room for more that come to rest in the host tier, up to
 * where there is none left, and queues the step. */
int sw_direct_queue(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err);
/* The chunks are where they should be: commits those behind the first one. */
int sw_direct_commit(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err);
/* True if the slot's chunk comes directly; more of the run's next chunks are dealt to it then. */
bool sw_direct_restores(struct sw_mover *m, struct sw_slot *slot);
int sw_direct_restore(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err);
/* Before the slot is given back. */
void sw_direct_fini(struct sw_mover *m, struct sw_slot *slot);

/* ---- in_place.c ---- */

/* A pack's chunk has been encoded: its frame waits for its turn. */
void sw_in_place_encoded(struct sw_mover *m, struct sw_slot *slot);
/* The steps of a slot in state PLACING, COMPARING, FETCHING, UNPACKING or DECODING have ended with rc. */
void sw_in_place_ended(struct sw_mover *m, struct sw_slot *slot, int rc, const struct sw_err *err);
/* Unpack: true if frames are left to be compared, or all have been and the next chunk may be begun beside those that
 * are under way; passes over raw ones. */
bool sw_in_place_may_unpack(const struct sw_mover *m, struct sw_run *run);
/* Has a free slot do what comes next of an unpack; it may stay free. */
void sw_in_place_unpack(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run);
/* A failed pack or unpack: does what can be done now to get back to bytes that are whole. True if anything was. */
bool sw_in_place_recover(struct sw_mover *m, struct sw_run *run);
/* Nothing is left to recover, or no hope. */
bool sw_in_place_recovered(const struct sw_run *run);
/* Of any run, before it is handed back: a pack's length; -SW_ELOST where bytes could not be recovered. */
void sw_in_place_finish(struct sw_run *run);

#endif

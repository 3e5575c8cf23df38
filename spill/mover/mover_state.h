/* mover_state.h - what the files of this room share. All of it belongs to the
 * device's worker. Not for others. */
#ifndef SW_SPILL_MOVER_STATE_H
#define SW_SPILL_MOVER_STATE_H

#include "spill/mover/mover.h"
#include "spill/planner/rules.h"

struct sw_slot;

/* A way that runs take through slots: a row of what the mover calls. What its steps are is a matter of its own. The
 * last one of an operation's (workflows.c) is its main one, which also speaks for the run. Members may be NULL but
 * where one says otherwise. */
struct sw_workflow {
    bool is_shared; /* several runs in one step: start() maps and charges them itself; not a main one */
    /* Main: whether a run under way wants a slot; never NULL where the operation has slots. */
    bool (*wants)(struct sw_mover *m, struct sw_run *run);
    /* Has a free slot do what comes next of the run. False: this workflow has nothing for it, the next one is asked. */
    bool (*start)(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run);
    /* What was queued on the slot has ended with rc. Queues the next step, or gives the slot back, or keeps it without
     * (slot->runs, slot->waits). Not NULL. */
    void (*step_ended)(struct sw_mover *m, struct sw_slot *slot, int rc, const struct sw_slot_result *result,
                       const struct sw_err *err);
    /* A slot that waits for the link, or for a place, may try again; or its run has failed. Not NULL if slots wait. */
    void (*resume)(struct sw_mover *m, struct sw_slot *slot);
    /* Main: goes on with what needs no slot. True: anything was begun or done. */
    bool (*advance)(struct sw_mover *m, struct sw_run *run);
    /* Main: a run has failed: undoes what can be undone now, and sets run->is_undone at the end. True: anything was. */
    bool (*abandon)(struct sw_mover *m, struct sw_run *run);
    /* Main: before the run is handed back, whatever has become of it. */
    void (*finish)(struct sw_run *run);
};

/* encode.c's steps; workflows that encode count their own from the last one on. */
enum { SW_ENCODE_PREPARING, SW_ENCODE_REPLANNING, SW_ENCODE_ENCODING, SW_ENCODE_STEPS };

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
    const struct sw_workflow *workflow; /* NULL: the slot is free */
    int step;                           /* the workflow's */
    bool runs;                          /* steps are queued, whose end can be asked for */
    bool waits;                         /* none are: for the link, or for a place; workflow->resume() tries again */
    bool lacks_place;                   /* waits: for a place, not for the link */
    bool drains;                        /* a step could not be queued; what is has to end, and is not measured */
    bool plans;                         /* makes a plan */
    bool compresses;                    /* its chunk is compressed, and will have the link, or has it */
    struct sw_run *run;                 /* NULL: free, or a group's */
    struct sw_group group;
    size_t chunk;
    unsigned n_chunks;         /* unpacking: as many, of which `chunk` is the last; restoring: the first */
    bool unqueued;             /* a step could not be queued; those before it still run */
    unsigned plan_number;      /* encoding: of the plan in use */
    uint64_t age;              /* order in which slots became busy */
    uint64_t planned_since_us; /* preparing, replanning: when it began to make a plan */
    struct sw_slot_measure {
        struct sw_meter *meter; /* of the stage that the queued steps are; NULL: not measured */
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
    uint64_t look_us;   /* when to look again at what waits for a link, or in the sink; 0: nothing does */
    struct sw_err lost; /* code 0: the device works */
    struct sw_planner planner;
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

/* ---- workflows.c ---- */

enum { SW_MOST_FIRST_WORKFLOWS = 2 };
/* An operation's workflows: those that are asked first, in their order, NULL ends them; and the one that takes all. */
struct sw_workflows {
    const struct sw_workflow *first[SW_MOST_FIRST_WORKFLOWS + 1], *main;
};
const struct sw_workflows *sw_workflows(enum sw_operation operation);

extern const struct sw_workflow sw_workflow_group, sw_workflow_copy_out, sw_workflow_copy_back, sw_workflow_spill,
    sw_workflow_restore, sw_workflow_pack, sw_workflow_unpack;

/* ---- slot.c ---- */

/* A slot works for the run, or does so no more, after which the run may want one again. */
void sw_run_hold_slot(struct sw_run *run);
void sw_run_give_slot(struct sw_mover *m, struct sw_run *run);
/* A free slot begins to work; run NULL: for several, which the workflow counts. */
void sw_slot_take(struct sw_mover *m, struct sw_slot *slot, const struct sw_workflow *workflow, struct sw_run *run);
void sw_slot_give(struct sw_mover *m, struct sw_slot *slot);
/* Its run fails; a restore does at the slot's chunk and n_chunks - 1 behind it. */
void sw_slot_fail_at(struct sw_mover *m, const struct sw_slot *slot, size_t n_chunks, const struct sw_err *err);
/* The same because a step could not be queued: what is already queued on the slot must end. */
void sw_slot_drain(struct sw_mover *m, struct sw_slot *slot, size_t n_chunks, const struct sw_err *err);
/* Gets a place for a frame of so many bytes, and has the steps queued that bring it there. The slot waits if there is
 * no place now, or the link has no room. */
void sw_slot_store(struct sw_mover *m, struct sw_slot *slot, uint64_t bytes,
                   int (*queue)(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err));
/* Queues the steps that copy the first bytes of the slot's buffer to slot->stored; a frame to `at` of the buffer. */
int sw_slot_copy_out(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err);
int sw_slot_copy_in(struct sw_mover *m, const struct sw_slot *slot, const struct sw_stored *stored, uint64_t at,
                    struct sw_err *err);
/* The frame of the slot's chunk is in slot->stored: commits it, or has it go on. */
int sw_slot_stored(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err);

/* ---- encode.c ---- */

/* Of a spill or pack: a plan is still to be made. */
bool sw_run_needs_plan(const struct sw_run *run);
/* Has a free slot make a plan for what is left, or encode the next chunk. False: there is nothing left. */
bool sw_encode_start(struct sw_mover *m, struct sw_slot *slot, const struct sw_workflow *workflow, struct sw_run *run);
/* One of encode.c's steps has ended well. True: the chunk's frame is in the slot's buffer; else the slot goes on, or
 * has been given back. */
bool sw_encode_ended(struct sw_mover *m, struct sw_slot *slot, const struct sw_slot_result *result);

/* ---- chunk.c ---- */

/* The next chunk of a restore is there. */
bool sw_restore_wants(struct sw_mover *m, struct sw_run *run);

/* ---- deal.c ---- */

/* The run that one of n_free free slots is to serve. NULL: none wants one, or none that may have it. */
struct sw_run *sw_mover_next_run(struct sw_mover *m, unsigned n_free);

/* ---- link.c ---- */

/* True if a step of the run may queue so many bytes on the link now. Beside other tenants' runs long ones wait while
 * others are on it, so that no one waits there for more than a chunk. */
bool sw_link_has_room(struct sw_mover *m, unsigned link, const struct sw_run *run, uint64_t bytes);
/* A slot's step queues them. */
void sw_link_take(struct sw_mover *m, struct sw_slot *slot, unsigned link, uint64_t bytes);
/* The slot has reported. */
void sw_link_ended(struct sw_slot *slot);

/* ---- run.c ---- */

/* A run comes among those that want slots. errors: -SW_ENOMEM. */
int sw_run_join_turns(struct sw_mover *m, struct sw_run *run, struct sw_err *err);
/* Bytes of the run that have been dealt out. */
uint64_t sw_run_dealt_bytes(const struct sw_run *run);
/* True if another tenant wants the device, or has lately: steps are short then. */
bool sw_mover_has_neighbours(const struct sw_mover *m, const struct sw_run *run);
/* True if no other request wants the device, nor does another tenant. */
bool sw_mover_is_alone(const struct sw_mover *m, const struct sw_run *run);
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
/* What the run's next chunk will take: to be encoded and to cross the link, or to cross and be decoded. All 0: not
 * known. */
struct sw_rules_stages sw_run_stages(struct sw_mover *m, const struct sw_run *run);
/* What the planner has to know of a run; of its memory all, or as much as will be known before it begins. */
struct sw_snapshot sw_run_snapshot(struct sw_mover *m, const struct sw_run *run);
/* Where the run's frames may go now. */
struct sw_room sw_run_room(struct sw_mover *m, const struct sw_run *run);
/* True while a slot moves chunks of the run directly. */
bool sw_run_has_direct_step(const struct sw_mover *m, const struct sw_run *run);

#endif

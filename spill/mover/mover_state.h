/* mover_state.h - what the files of this room share. All of it belongs to the device's worker. Not for other rooms. */
#ifndef SW_SPILL_MOVER_STATE_H
#define SW_SPILL_MOVER_STATE_H

#include "base/clock.h"
#include "spill/mover/mover.h"
#include "spill/planner/rules.h"

struct sw_slot;

/* Most chunks that a step decodes beside the frames' place: more would not go faster. */
#define SW_DECODED_AT_ONCE 4u

/* A path that runs take through slots: a row of functions that the mover calls. Only the workflow knows its steps. The
 * last workflow of an operation (workflows.c) is its main one, which also speaks for the run. Members may be NULL
 * unless noted. */
struct sw_workflow {
    bool is_shared; /* one step serves several runs: start() maps and charges them itself; never a main workflow */
    /* Main: returns whether a run under way wants a slot. Never NULL where the operation has slots. */
    bool (*wants)(struct sw_mover *m, struct sw_run *run);
    /* Begins the run's next step on a free slot. Returns false if this workflow has nothing for it; then the next
     * workflow is asked. */
    bool (*start)(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run);
    /* The steps queued on the slot have ended with rc. Queues the next step, or gives the slot back, or keeps it idle
     * (slot->runs, slot->waits, slot->is_away). Never NULL. */
    void (*step_ended)(struct sw_mover *m, struct sw_slot *slot, int rc, const struct sw_slot_result *result,
                       const struct sw_err *err);
    /* A slot that waits for the link or for a place may try again, or its run has failed. Never NULL if slots wait. */
    void (*resume)(struct sw_mover *m, struct sw_slot *slot);
    /* Main: continues work that needs no slot. Returns true if anything was begun or done. */
    bool (*advance)(struct sw_mover *m, struct sw_run *run);
    /* Main: after the run has failed, undoes what can be undone now, and sets run->is_undone at the end. Returns true
     * if anything was undone. */
    bool (*abandon)(struct sw_mover *m, struct sw_run *run);
    /* Main: called before the run is handed back, whatever its outcome. */
    void (*finish)(struct sw_run *run);
};

/* The steps of encode.c. Workflows that encode number their own steps after these. */
enum { SW_ENCODE_PREPARING, SW_ENCODE_REPLANNING, SW_ENCODE_LEARNING, SW_ENCODE_ENCODING, SW_ENCODE_STEPS };

/* Short runs that share a slot's steps. */
struct sw_group {
    unsigned n;                                 /* members; 0: the slot works for `run`, or is free */
    struct sw_run **runs;                       /* [group_items]; NULL: the run has left since its frame was made */
    struct sw_group_item *items;                /* [group_items], in the same order */
    struct sw_frame_item *moved;                /* the same: frames of clients */
    enum sw_operation kind;                     /* SPILL or RESTORE, the same for all members */
    bool is_ascending;                          /* while gathering: all from one memory, in ascending order */
    uint64_t raw_bytes, item_bytes, room_bytes; /* room: for frames that follow each other, whatever they hold */
    struct sw_plan plan;                        /* spill: encodes all members */
};

/* Raw chunks whose bytes a slot moves in one step without encoding them. */
struct sw_direct {
    unsigned n; /* 0: the slot does something else */
    size_t chunks[SW_RAW_MAX];
    struct sw_raw_item items[SW_RAW_MAX];
    struct sw_stored more[SW_RAW_MAX]; /* spill: room for items 1 …; item 0's is the slot's `stored` */
};

struct sw_slot {
    const struct sw_workflow *workflow; /* NULL: the slot is free */
    int step;                           /* one of the workflow's steps */
    bool runs;                          /* steps are queued, and their end can be polled */
    bool waits;         /* no steps are queued: it waits for the link or for a place; workflow->resume() tries again */
    bool lacks_place;   /* it waits for a place, not for the link */
    bool is_away;       /* no steps are queued: its frame buffer is the sink's until sw_mover_slot_done() */
    bool is_retired;    /* no new steps: another process may write to its frame buffer */
    bool is_disputed;   /* its frames were fetched, and did not decode: they are fetched once more */
    bool drains;        /* a step could not be queued; the queued steps have to end, and are not measured */
    bool plans;         /* it makes a plan that its run waits for */
    bool learns;        /* it makes a plan while its run goes on */
    bool compresses;    /* its chunk is compressed, and will use or uses the link */
    struct sw_run *run; /* NULL: free, or serving a group */
    struct sw_group group;
    size_t chunk;
    /* Unpacking: number of chunks, of which `chunk` is the last; restoring, encoding: `chunk` is the first. */
    unsigned n_chunks;
    bool unqueued;                                /* a step could not be queued; earlier ones still run */
    unsigned plan_number;                         /* encoding: number of the plan in use */
    const struct sw_frame_dictionary *dictionary; /* encoding: of the plan in use; NULL: it has none */
    uint64_t age;                                 /* order in which slots became busy */
    uint64_t encoded_since_us;                    /* encoding: when it was queued */
    uint64_t planned_since_us;                    /* making a plan: when it began */
    struct sw_slot_measure {
        struct sw_meter *meter; /* of the stage that the queued steps belong to; NULL: not measured */
        uint64_t begun_us, bytes;
    } measure;
    struct sw_link *link; /* link that its steps use; NULL: none */
    uint64_t link_number; /* number of its step on this link */
    struct sw_stored stored;
    struct sw_frame_layout frame;                /* being encoded, or being restored */
    struct sw_group_item encoded[SW_DECODE_MAX]; /* encoding for a sink in another process: the step's chunks */
    struct sw_frame_item moved;                  /* a client's frame that is copied */
    struct sw_direct direct; /* STORING, RESTORING: raw chunks without kernels for each; `chunk` is the first */
    struct {                 /* PLACING, FETCHING: of the slot's frame; COMPARING: of several */
        unsigned n;
        size_t chunks[SW_HEAD_MAX];
        struct sw_head_item items[SW_HEAD_MAX];
    } heads;
};

/* One direction of the link to host memory, with what was queued on it. */
struct sw_link {
    uint64_t free_us;  /* when the queued steps will have ended */
    uint64_t n_queued; /* steps */
    unsigned n_running;
};
enum { SW_LINK_OUT, SW_LINK_BACK, SW_LINKS };

struct sw_mover {
    struct sw_device *device;
    struct sw_frame_sink *sink;
    struct sw_mover_host host;
    unsigned n_slots, n_mapped;
    bool is_settled; /* since the last step without progress no slot has reported and no run was added */
    uint64_t next_age;
    struct sw_list runs; /* the active ones */
    struct sw_list due;  /* runs to look at: a slot or the sink has reported, they have failed, or they advance without
                            a slot */
    atomic_bool has_canceled; /* set by any thread: a run was canceled since the last look */
    struct sw_turns turns;    /* turns of the runs that want slots, or may want them */
    struct sw_link links[SW_LINKS];
    uint64_t look_us;   /* when to look again at what waits for a link, or in the sink; 0: nothing waits */
    struct sw_err lost; /* code 0: the device works */
    struct sw_planner planner;
    struct sw_list dictionaries; /* dictionary.c: of the plans of runs, slots and the planner */
    uint64_t first_step_us; /* sink in another process: how long the last run's first step has taken; 0: not known */
    uint64_t woke_us;       /* since this time not every slot has been polled; 0: all have */
    uint64_t now_us;        /* the time of this step; 0: not known yet */
    struct sw_slot slots[];
};

static inline unsigned sw_slot_index(const struct sw_mover *m, const struct sw_slot *slot) {
    return (unsigned)(slot - m->slots);
}

static inline bool sw_slot_is_free(const struct sw_slot *slot) {
    return !slot->workflow && !slot->is_retired;
}

/* Returns true if the slot's frame is in memory only in transit: on the spill path, or on the restore path. */
static inline bool sw_slot_is_staged(const struct sw_slot *slot) {
    return slot->stored.use != SW_STORED_RESTS;
}

/* Returns true if the slot works for the run, or for another buffer of its request. */
static inline bool sw_slot_serves_op(const struct sw_slot *slot, const struct sw_run *run) {
    return slot->run &&
           (slot->run == run || (run->request->number && slot->run->request->number == run->request->number));
}

static inline struct sw_run *sw_run_of_turn(struct sw_turn *turn) {
    return SW_CONTAINER_OF(turn, struct sw_run, turn);
}

/* ---- workflows.c ---- */

enum { SW_MOST_FIRST_WORKFLOWS = 4 };
/* The workflows of an operation: `first` are asked first, in order, until NULL; `main` takes everything else. */
struct sw_workflows {
    const struct sw_workflow *first[SW_MOST_FIRST_WORKFLOWS + 1], *main;
};
const struct sw_workflows *sw_workflows(const struct sw_mover *m, enum sw_operation operation);

extern const struct sw_workflow sw_workflow_group, sw_workflow_client_group, sw_workflow_take, sw_workflow_give,
    sw_workflow_copy_out, sw_workflow_copy_back, sw_workflow_spill, sw_workflow_restore, sw_workflow_pack,
    sw_workflow_unpack, sw_workflow_send, sw_workflow_fetch;

/* Returns true if the sink lies in another process: frames stay in slots' buffers, and have no places here. */
static inline bool sw_mover_sink_is_away(const struct sw_mover *m) {
    return m->sink->ops->send != NULL;
}

/* ---- slot.c ---- */

/* Notes that a slot works for the run, or no longer does, after which the run may want a slot again. */
void sw_run_hold_slot(struct sw_run *run);
void sw_run_give_slot(struct sw_mover *m, struct sw_run *run);
/* Begins the work of a free slot. run NULL: for several runs, which the workflow counts. */
void sw_slot_take(struct sw_mover *m, struct sw_slot *slot, const struct sw_workflow *workflow, struct sw_run *run);
void sw_slot_give(struct sw_mover *m, struct sw_slot *slot);
/* Fails the slot's run; a restore fails at the slot's chunk and the n_chunks - 1 after it. */
void sw_slot_fail_at(struct sw_mover *m, const struct sw_slot *slot, size_t n_chunks, const struct sw_err *err);
/* Fails the slot's run because a step could not be queued. The steps that are already queued must end. */
void sw_slot_drain(struct sw_mover *m, struct sw_slot *slot, size_t n_chunks, const struct sw_err *err);
/* Gets a place for a frame of this length, and calls queue() for the steps that bring it there. The slot waits if there
 * is no place now, or no room on the link. */
void sw_slot_store(struct sw_mover *m, struct sw_slot *slot, uint64_t bytes,
                   int (*queue)(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err));
/* Queues the steps that copy the beginning of the slot's buffer to slot->stored; or a frame to `at` in the buffer. */
int sw_slot_copy_out(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err);
int sw_slot_copy_in(struct sw_mover *m, const struct sw_slot *slot, const struct sw_stored *stored, uint64_t at,
                    struct sw_err *err);
/* Commits the frame of the slot's chunk in slot->stored, or sends it on. */
int sw_slot_stored(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err);

/* ---- encode.c ---- */

/* Returns true if a spill or pack still needs a plan to be made. */
bool sw_run_needs_plan(const struct sw_run *run);
/* Begins a plan for the rest, or the encoding of the next n chunks, on a free slot. Returns false if nothing is left.
 * n > 1 only for a sink in another process: their frames follow each other like a group's. */
bool sw_encode_start(struct sw_mover *m, struct sw_slot *slot, const struct sw_workflow *workflow, struct sw_run *run,
                     unsigned n);
/* One of encode.c's steps has succeeded. Returns true if the frames of the slot's chunks are in its buffer; otherwise
 * the slot works on, or was given back. */
bool sw_encode_ended(struct sw_mover *m, struct sw_slot *slot, const struct sw_slot_result *result);

/* ---- chunk.c ---- */

/* Returns true if the next chunk of a restore is in memory. */
bool sw_restore_wants(struct sw_mover *m, struct sw_run *run);

/* ---- deal.c ---- */

/* Returns the run that one of n_free free slots should serve. NULL: no run wants a slot, or none may have it. */
struct sw_run *sw_mover_next_run(struct sw_mover *m, unsigned n_free);

/* ---- link.c ---- */

/* Returns true if a step of the run may queue this many bytes on the link now. Beside other tenants' runs a long step
 * waits while others are on the link, so that no run waits there for more than a chunk. */
bool sw_link_has_room(struct sw_mover *m, unsigned link, const struct sw_run *run, uint64_t bytes);
/* Notes that a slot's step queues these bytes. */
void sw_link_take(struct sw_mover *m, struct sw_slot *slot, unsigned link, uint64_t bytes);
/* Notes that the slot has reported. */
void sw_link_ended(struct sw_slot *slot);

/* ---- run.c ---- */

/* Returns the time of this step. Reading the clock takes as long as much of the work for a short run. */
static inline uint64_t sw_mover_now_us(struct sw_mover *m) {
    if (!m->now_us)
        m->now_us = sw_clock_us();
    return m->now_us;
}
/* Has the run looked at in this step: it may be complete, or has failed. */
static inline void sw_run_look_at(struct sw_mover *m, struct sw_run *run) {
    if (sw_list_empty(&run->due))
        sw_list_append(&m->due, &run->due);
}
/* Fails runs that were canceled since the last call; fails the run if it was. */
void sw_mover_note_canceled(struct sw_mover *m);
void sw_run_note_canceled(struct sw_mover *m, struct sw_run *run);
/* Adds a run to those that want slots. errors: -SW_ENOMEM. */
int sw_run_join_turns(struct sw_mover *m, struct sw_run *run, struct sw_err *err);
/* Returns how many bytes of the run's memory were dealt. */
uint64_t sw_run_dealt_bytes(const struct sw_run *run);
/* Returns true if another tenant wants the device, or recently did: steps are short then. */
bool sw_mover_has_neighbours(const struct sw_mover *m, const struct sw_run *run);
/* Returns true if no other request and no other tenant wants the device. */
bool sw_mover_is_alone(const struct sw_mover *m, const struct sw_run *run);
void sw_run_set_phase(struct sw_mover *m, struct sw_run *run, enum sw_phase phase);
/* Returns the chunk length of a spill or pack: as the device allows, and as the path to the disk has room for a frame.
 */
uint64_t sw_run_chunk_bytes(const struct sw_mover *m, const struct sw_run *run);
/* Gives the run a plan of its own, until it ends. Returns false, and fails the run, if there is no memory for it. */
bool sw_run_get_plan(struct sw_mover *m, struct sw_run *run);
/* Maps the memory and lays out the chunks. */
int sw_run_start(struct sw_mover *m, struct sw_run *run, struct sw_err *err);
/* Records a frame that is complete on the device. planned: the codec that was to be used; the frame is raw if the codec
 * made no shorter one. */
void sw_run_note_frame(struct sw_run *run, size_t chunk, enum sw_codec_id planned, const struct sw_frame_layout *frame);
bool sw_run_complete(const struct sw_run *run);
/* Ends the run on the worker's side. */
void sw_run_finish(struct sw_mover *m, struct sw_run *run);

/* ---- dictionary.c ---- */

/* Makes the plan borrow a copy of its dictionary, if it has one, which stays as long as a run's plan, a slot's step or
 * a kept plan uses it. errors: -SW_ENOMEM. */
int sw_mover_keep_dictionary(struct sw_mover *m, struct sw_plan *plan, struct sw_err *err);
void sw_mover_free_dictionaries(struct sw_mover *m);

/* ---- group_members.c ---- */

/* Allocates a slot's group. errors: -SW_ENOMEM. */
int sw_group_init(struct sw_group *ret, unsigned max_items, struct sw_err *err);
void sw_group_fini(struct sw_group *group);
/* Which runs a workflow serves together. */
struct sw_group_rules {
    bool (*is_eligible)(const struct sw_mover *m, const struct sw_run *run);
    /* An eligible run goes with the members that there are, at least one. */
    bool (*may_join)(const struct sw_mover *m, const struct sw_group *g, const struct sw_run *run);
    /* Adds a run. Returns false if it does not fit any more. */
    bool (*join)(struct sw_mover *m, struct sw_group *g, struct sw_run *run);
};
/* Gathers `first` and other runs of its tenant that go with it, in order. Runs of other tenants are left out, so that
 * no tenant waits for another one's bytes. Returns false if there are none. */
bool sw_group_gather(struct sw_mover *m, struct sw_group *g, struct sw_run *first, const struct sw_group_rules *rules);
/* Begins the work of a free slot for its group. */
void sw_group_take(struct sw_mover *m, struct sw_slot *slot, const struct sw_workflow *workflow);
/* Member i no longer has the slot. */
void sw_group_leave(struct sw_mover *m, struct sw_group *g, unsigned i);
/* Gives the slot back; after a step that had no result. */
void sw_group_give(struct sw_mover *m, struct sw_slot *slot);
void sw_group_give_unserved(struct sw_mover *m, struct sw_slot *slot);
/* Before a step is queued: failed members leave, the others close up. */
void sw_group_drop_failed(struct sw_mover *m, struct sw_group *g);
/* Fails all members. */
void sw_group_fail(struct sw_mover *m, struct sw_group *g, const struct sw_err *err);
void sw_group_set_phase(struct sw_mover *m, const struct sw_group *g, enum sw_phase phase);

/* ---- group.c ---- */

/* The sink has sent the members' frames, or has brought them. */
void sw_group_returned(struct sw_mover *m, struct sw_slot *slot, const struct sw_err *err);

/* ---- client_frame.c ---- */

/* Reads the layout of a client's frame from our copy of it, and checks that it suits the run. errors: -SW_EFRAME. */
int sw_client_frame_parse(const struct sw_run *run, const struct sw_stored *stored, struct sw_frame_layout *ret,
                          struct sw_err *err);

/* ---- measure.c ---- */

enum sw_measure_kind {
    SW_MEASURE_ENCODE,
    SW_MEASURE_LINK_OUT,
    SW_MEASURE_RESTORE,
    SW_MEASURE_DIRECT_OUT, /* without kernels for each chunk */
    SW_MEASURE_DIRECT_BACK
};

/* Measures the steps that are about to be queued on a slot, until it reports, as `bytes` of a stage. codec: the plan's
 * or the frame's. raw_bytes: length of the chunk, or of the whole group. */
void sw_measure_begin(struct sw_mover *m, struct sw_slot *slot, enum sw_measure_kind kind, enum sw_codec_id codec,
                      uint64_t raw_bytes, uint64_t bytes);
/* Returns true if the slot's next step will share the link, because other chunks of its run, compressed
 * or not, cross at the same time and are measured elsewhere. Such a step is not measured. */
bool sw_slot_shares_link(const struct sw_mover *m, const struct sw_slot *slot);
/* Ends the measurement after the slot has reported. counts: the steps did what was to be measured. */
void sw_measure_end(struct sw_mover *m, struct sw_slot *slot, bool counts);
/* Returns the times of the run's next chunk: to be encoded and cross the link, or to cross and be decoded. All 0: not
 * known. */
struct sw_rules_stages sw_run_stages(struct sw_mover *m, const struct sw_run *run);
/* Returns what the planner needs to know about a run: all of its memory, or as much as is known before it begins. */
struct sw_snapshot sw_run_snapshot(struct sw_mover *m, const struct sw_run *run);
/* Returns the room that the run's frames find now. */
struct sw_room sw_run_room(struct sw_mover *m, const struct sw_run *run);
/* Returns true while a slot moves chunks of the run directly. */
bool sw_run_has_direct_step(const struct sw_mover *m, const struct sw_run *run);

#endif

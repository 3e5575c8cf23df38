/* planner.h - decides how a run's bytes move: encoded by which plan, or raw.
 *
 * The planner knows how long recent steps took on one device, and which plans are kept. The mover shows it a snapshot
 * of a run and stores the run's course. The mover asks for the next step and reports how long steps took. The planner
 * is pure: it has no clock, no lock, no allocation and no device. */
#ifndef SW_SPILL_PLANNER_H
#define SW_SPILL_PLANNER_H

#include "codec/codec.h"
#include "codec/frame.h"
#include "spill/planner/cost.h"
#include "spill/planner/plan_cache.h"
#include "spill/planner/rules.h"

/* Where the plan for the run's chunks comes from. */
enum sw_plan_state {
    SW_PLAN_STATE_MISSING,  /* to be found among the kept plans, or made, or it is being made */
    SW_PLAN_STATE_UNPROVEN, /* made for another region; no frame has shown yet whether it matches this one */
    SW_PLAN_STATE_SETTLED   /* the rest of the run uses it; also the plan that stores bytes raw */
};

/* Compressing does not pay, but it is tried on one chunk, or on a part of the region, to see whether this still holds.
 */
enum sw_trial {
    SW_TRIAL_NONE,
    SW_TRIAL_WANTED,    /* as soon as a plan exists; the plan is made for the trial */
    SW_TRIAL_NEXT_CHUNK /* the plan is for the next chunk only; later chunks go raw */
};

/* A denser plan (dense.h) that is learned while chunks go by a usual one. */
enum sw_learning {
    SW_LEARNING_NONE,
    SW_LEARNING_WANTED,   /* as soon as the first chunks are under way */
    SW_LEARNING_UNDER_WAY /* a slot learns it */
};

/* How a region's raw frames are restored. This is chosen once per region, so that its steps do not share the link with
 * steps of the other kind. A single step may still take the other path, to measure the kernels. */
enum sw_restore_path { SW_RESTORE_PATH_OPEN, SW_RESTORE_PATH_DIRECT, SW_RESTORE_PATH_KERNELS };

/* The planner's state for one run. All zero when the run begins. */
struct sw_course {
    uint64_t plan_key; /* key of the plans that may match; SW_PLAN_KEY_DENSE: plans may have a dictionary */
    enum sw_plan_state plan_state;
    enum sw_trial trial;
    enum sw_learning learning;
    /* A run to memory that is too short to learn meanwhile: what it would gain by a denser plan, else 0; the plan for
     * whose column it learns one (plan_cache.h), else 0. */
    double gain_s;
    uint64_t learns_for;
    bool never_waits; /* its denser plan is a kept one; if it needs another, it goes on by a usual one meanwhile */
    unsigned plan_number, n_retrained;
    struct sw_plan *plan; /* the mover's; NULL: restores, and runs that are encoded by other runs' plans */
    struct sw_plan_choice plan_choice;
    enum sw_cost_reason reason; /* why the last plan compresses, or does not */
    enum sw_restore_path restore_path;
    bool is_direct; /* copy engines move raw chunks, without a kernel for each */
    /* Spill: some chunks are compressed while others go directly. Restore: the region has frames of both kinds. Steps
     * that share the link with others are not measured. */
    bool is_mixed;
};

enum { SW_ROOM_PLACES_MAX = 3 };

/* The room that frames find now, in the order in which they look for it. */
struct sw_room {
    uint64_t memory_bytes; /* room for frames that stay in memory */
    unsigned n_behind;     /* number of places after memory, to which frames move on */
    struct sw_room_place {
        uint64_t bytes;     /* room for frames that stay there */
        double write, read; /* bytes per second; 0: not known */
        bool is_store;      /* each frame is an object, which costs a request */
    } behind[SW_ROOM_PLACES_MAX];
    uint64_t allowed_bytes; /* what the run's tenant may still store */
    enum sw_prefer prefer;  /* of its request, or else of its tenant, or else of the operator */
};

/* A run's present state. */
struct sw_snapshot {
    bool is_pack;     /* done only to save room */
    bool is_running;  /* chunks are being dealt; no plan is being made */
    bool has_copying; /* a slot is moving chunks of it directly */
    enum sw_value_type type;
    uint64_t raw_bytes, chunk_bytes;
    size_t n_chunks, n_dealt, n_encoded;
    bool shares_slots; /* it shares the slots with the other buffers of its request */
    struct sw_room room;
};

/* The planner's knowledge of one device. */
struct sw_planner {
    unsigned n_slots;
    uint32_t full_segments; /* segments that keep the device busy */
    bool has_link;          /* false: the device works in host memory, without a link */
    /* The encoder works where the data are, for a sink in another process: what shrinks is compressed, however busy the
     * device is. Raw frames have no way without kernels, and link_out is what that process takes. */
    bool is_beside_data;
    bool takes_dictionaries, learns_dictionaries; /* the device does */
    struct sw_plan_cache plans;
    /* Many frames in one step take longer than one frame, so groups have rates of their own. */
    struct sw_cost_class costs[SW_COST_CLASSES], group_costs[SW_COST_CLASSES];
    double plan_s[2]; /* recent time to make a plan, without a dictionary and with one; 0: not known */
};

/* The bytes that a plan would encode: the rest of a region, or a group, which counts as one chunk. */
struct sw_workload {
    uint64_t raw_bytes, chunk_bytes, n_chunks;
    const struct sw_room *room;
    bool shares_step;  /* a group of chunk_bytes in all, or a member of one */
    bool shares_slots; /* it shares the slots with the other buffers of its request */
};

/* Returns true if a raw frame of this length would go to a store now. */
bool sw_planner_goes_to_store(const struct sw_room *room, uint64_t raw_bytes);

/* ---- the next step ---- */

enum sw_step {
    SW_STEP_WAIT,   /* nothing is left to deal */
    SW_STEP_PLAN,   /* make a plan for the rest */
    SW_STEP_COPY,   /* move the next chunks directly */
    SW_STEP_ENCODE, /* encode the next chunk by the course's plan */
};
/* Returns the next step of a spill or a pack. step_bytes: length of the chunks that a direct step would take. */
enum sw_step sw_planner_next_step(struct sw_planner *p, const struct sw_course *course, const struct sw_snapshot *now,
                                  uint64_t step_bytes);
/* Returns the next step of a restore whose next chunk is raw and raw_bytes long: COPY (directly) or ENCODE (by
 * kernels). */
enum sw_step sw_planner_next_step_back(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now,
                                       uint64_t raw_bytes, uint64_t step_bytes);
/* Reports how long making a plan took. */
void sw_planner_observe_plan(struct sw_planner *p, bool is_dense, uint64_t us);
/* Returns true if plans of this key may have a dictionary. */
static inline bool sw_plan_key_is_dense(uint64_t key) {
    return key & SW_PLAN_KEY_DENSE;
}
/* Hands over a plan that was made for the chunks from `first` on. The course uses it if it pays. Its dictionary must
 * stay as long as the course or a kept plan (plan_cache.h) borrows it. */
void sw_planner_take_plan(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now, size_t first,
                          const struct sw_plan *plan);
/* Returns true if a slot should learn a denser plan for the rest now, while the others go on. */
bool sw_planner_learns_now(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now);
/* Hands over a denser plan that was learned meanwhile. It is kept, and the course uses it for the rest if that saves
 * time. */
void sw_planner_take_denser(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now,
                            const struct sw_plan *plan);

/* ---- rates ---- */

/* Returns what was measured with chunks, or groups, of this length. NULL: they are too short. */
struct sw_cost_class *sw_planner_costs(struct sw_planner *p, uint64_t chunk_bytes, bool is_group);
/* Returns the rates for chunks of this length. All zero: nothing is known. */
struct sw_cost_rates sw_planner_rates(struct sw_planner *p, uint64_t chunk_bytes, bool is_group);
/* Returns the question for cost.h about this workload, with the measured rates. */
struct sw_cost_question sw_planner_ask(struct sw_planner *p, const struct sw_workload *what, enum sw_codec_id codec,
                                       double expected_ratio);

/* ---- plans ---- */

/* Makes the plan's segments as long as chunks of this length allow, if the plan's frames have segments. */
void sw_planner_set_segments(const struct sw_planner *p, struct sw_plan *plan, uint64_t chunk_bytes);
/* Keeps a plan, or turns it into one that stores bytes raw, and returns the reason. may_retry: the plan was made to be
 * tried on one chunk even if it does not pay. */
struct sw_plan_decision {
    enum sw_cost_reason reason;
    bool is_direct; /* raw chunks go directly */
    bool is_mixed;  /* some chunks follow the plan, others go directly */
};
struct sw_plan_decision sw_planner_decide(struct sw_planner *p, bool is_for_room, const struct sw_workload *what,
                                          bool may_retry, struct sw_plan *plan);
/* Decides for a run that has just got a plan, from its chunk `first` on. */
void sw_planner_evaluate(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now, size_t first);
/* Checks whether compressing still pays, by what was measured since the last decision. If not, the rest of the run goes
 * partially compressed, or raw. Call it for a spill that is being compressed. */
void sw_planner_reevaluate(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now);
/* A search for a kept plan. */
struct sw_plan_query {
    bool is_for_room;              /* time does not count */
    struct sw_workload what;       /* to be encoded by the plan */
    uint64_t key;                  /* of the plans that may match */
    uint64_t bytes;                /* length of the region, or of a group's longest member */
    struct sw_plan_choice *choice; /* which plans were tried so far */
};
enum sw_plan_found {
    SW_PLAN_NONE,
    SW_PLAN_DUE, /* *ret has earned the price of a new plan: make one if it is needed */
    SW_PLAN_USABLE
};
/* Finds the kept plan to try (next) for the query's key. */
enum sw_plan_found sw_planner_find(struct sw_planner *p, const struct sw_plan_query *query, struct sw_plan *ret);
/* Returns true if the frame shows that a plan made for another region does not match its bytes. */
bool sw_planner_is_stale(const struct sw_plan *plan, const struct sw_frame_layout *frame);
enum sw_plan_mismatch {
    SW_MISMATCH_ACCEPT, /* keep the frame */
    SW_MISMATCH_RETRY,  /* encode again by another kept plan */
    SW_MISMATCH_REPLAN  /* make a new plan */
};
/* Decides about a frame that does not match the kept plan it was made by. RETRY: *plan is the other kept plan. */
enum sw_plan_mismatch sw_planner_handle_mismatch(struct sw_planner *p, const struct sw_plan_query *query,
                                                 const struct sw_frame_layout *frame, struct sw_plan *plan);
/* Prepares a run that begins. Returns true if it needs no plan of its own: it has got a kept plan, or it stores bytes
 * raw because, by the estimates of the session's recent plans, a new plan could not pay. */
bool sw_planner_begin(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now);
/* Checks a frame that the run's plan of this number has made. */
enum sw_plan_mismatch sw_planner_check_frame(struct sw_planner *p, struct sw_course *course,
                                             const struct sw_snapshot *now, unsigned plan_number,
                                             const struct sw_frame_layout *frame);
/* Returns true if the run would learn a new plan without waiting for it: one with a dictionary, for which the run has
 * no goal that outweighs time. */
bool sw_planner_learns_beside(const struct sw_planner *p, const struct sw_course *course,
                              const struct sw_snapshot *now);
/* Handles a frame which shows that the bytes no longer match the run's plan. The rest gets a new plan, if this may pay.
 */
void sw_planner_handle_drift(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now,
                             const struct sw_frame_layout *frame);

#endif

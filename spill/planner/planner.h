/* planner.h - what to do with a run's bytes: by which plan they are encoded, or whether they go as they are.
 *
 * The planner knows what steps have lately taken on one device, and the plans that are kept. Of a run it is shown a
 * snapshot, and keeps its course. Whoever schedules the steps asks for the next one, and says what they took. Pure: no
 * clock, no lock, no allocation, no device. */
#ifndef SW_SPILL_PLANNER_H
#define SW_SPILL_PLANNER_H

#include "codec/codec.h"
#include "codec/frame.h"
#include "spill/planner/cost.h"
#include "spill/planner/plan_cache.h"
#include "spill/planner/rules.h"

/* Of what is to be encoded. */
enum sw_plan_state {
    SW_PLAN_STATE_MISSING,  /* to be found among those that are kept, or made, or it is being made */
    SW_PLAN_STATE_UNPROVEN, /* made for another region; no frame has shown yet whether it suits this one */
    SW_PLAN_STATE_SETTLED   /* what is left goes by it; also the one that stores bytes as they are */
};

/* Compressing does not pay, but is tried on one chunk, or in part, to see whether that is still so. */
enum sw_trial {
    SW_TRIAL_NONE,
    SW_TRIAL_WANTED,    /* once there is a plan, which is made for this */
    SW_TRIAL_NEXT_CHUNK /* the plan is for that; those behind it go raw */
};

/* Raw frames of a region: chosen once, so that its steps do not share the link with steps of the other way, but for the
 * single one that shows how fast kernels are. */
enum sw_way_back { SW_WAY_BACK_OPEN, SW_WAY_BACK_DIRECT, SW_WAY_BACK_KERNELS };

/* A run's, all zero at its beginning. */
struct sw_course {
    uint64_t plan_key; /* whose plans may suit it */
    enum sw_plan_state plan_state;
    enum sw_trial trial;
    unsigned plan_number, n_retrained;
    struct sw_plan plan;
    struct sw_plan_choice plan_choice;
    enum sw_cost_reason reason; /* why it is compressed, or not: of the last plan */
    enum sw_way_back way_back;
    bool is_direct; /* raw chunks go directly: by copy engines, without kernels for each */
    /* Out: some chunks are compressed, others go directly meanwhile; back: there are frames of both. What shares the
     * link with others is not measured. */
    bool is_mixed;
};

enum { SW_ROOM_PLACES_MAX = 3 };

/* Where frames may go now, in the order in which they look for room. */
struct sw_room {
    uint64_t memory_bytes; /* frames that would come to rest in memory */
    unsigned n_behind;     /* places behind it, to which frames go on */
    struct sw_room_place {
        uint64_t bytes;     /* frames that would come to rest there */
        double write, read; /* bytes per second; 0: not known */
    } behind[SW_ROOM_PLACES_MAX];
    uint64_t allowed_bytes; /* frames that the run's tenant may store yet */
};

/* A run as it is now. */
struct sw_snapshot {
    bool is_pack;     /* done for the room alone */
    bool is_running;  /* chunks are dealt; no plan is being made */
    bool has_copying; /* a slot moves chunks of it directly */
    enum sw_value_type type;
    uint64_t raw_bytes, chunk_bytes;
    size_t n_chunks, n_dealt, n_encoded;
    bool shares_slots; /* with the other buffers of its request */
    struct sw_room room;
};

/* What one device has shown. */
struct sw_planner {
    unsigned n_slots;
    uint32_t full_segments; /* of the device */
    bool has_link;          /* the same: false of one that works in host memory */
    struct sw_plan_cache plans;
    /* Many frames in one step take longer than one, so that groups would say nothing true of a chunk. */
    struct sw_cost_class costs[SW_COST_CLASSES], group_costs[SW_COST_CLASSES];
    double plan_s; /* what making a plan has lately taken; 0: not known */
};

/* What is to be encoded by a plan: the rest of a region, or a group, which counts as one chunk. */
struct sw_weighed {
    uint64_t raw_bytes, chunk_bytes, n_chunks;
    const struct sw_room *room;
    bool shares_step;  /* a group of chunk_bytes in all, or a member of it */
    bool shares_slots; /* with the other buffers of its request */
};

/* ---- the next step ---- */

enum sw_step {
    SW_STEP_WAIT,   /* nothing is left */
    SW_STEP_PLAN,   /* a plan is to be made for what is left */
    SW_STEP_COPY,   /* the next chunks go directly */
    SW_STEP_ENCODE, /* the next chunk by the course's plan */
};
/* Of a spill or pack. step_bytes: of the chunks that a direct step would take. */
enum sw_step sw_planner_next_step(struct sw_planner *p, const struct sw_course *course, const struct sw_snapshot *now,
                                  uint64_t step_bytes);
/* Of a restore whose next chunk, of raw_bytes, is raw, COPY or ENCODE: directly or by kernels. */
enum sw_step sw_planner_next_step_back(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now,
                                       uint64_t raw_bytes, uint64_t step_bytes);
/* How long making a plan took. */
void sw_planner_observe_plan(struct sw_planner *p, uint64_t us);
/* A plan has been made for what is left from chunk `first` on: the course goes by it, if that pays. */
void sw_planner_take_plan(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now, size_t first,
                          const struct sw_plan *plan);

/* ---- rates ---- */

/* What is known of chunks, or of groups, of that length; NULL: they are too short. */
struct sw_cost_class *sw_planner_costs(struct sw_planner *p, uint64_t chunk_bytes, bool is_group);
/* The rates of chunks of that length. All zero: nothing is known. */
struct sw_cost_rates sw_planner_rates(struct sw_planner *p, uint64_t chunk_bytes, bool is_group);
/* What cost.h is to be asked about it, by the rates measured. */
struct sw_cost_question sw_planner_ask(struct sw_planner *p, const struct sw_weighed *what, enum sw_codec_id codec,
                                       double expected_ratio);

/* ---- plans ---- */

/* Segments as long as they may be for chunks of that length, if the plan's frames have any. */
void sw_planner_set_segments(const struct sw_planner *p, struct sw_plan *plan, uint64_t chunk_bytes);
/* Keeps a plan, or turns it into one that stores bytes as they are, and says why. may_retry: it was made to be tried on
 * one chunk, should it not pay. */
struct sw_verdict {
    enum sw_cost_reason reason;
    bool is_direct; /* raw chunks: directly */
    bool is_mixed;  /* some chunks as the plan says, some directly */
};
struct sw_verdict sw_planner_decide(struct sw_planner *p, bool is_pack, const struct sw_weighed *what, bool may_retry,
                                    struct sw_plan *plan);
/* The same for a run that has got a plan, from its chunk `first` on. */
void sw_planner_weigh(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now, size_t first);
/* Of a run under way, a spill that is being compressed: looks whether that still pays by what has been measured since
 * it was weighed. If not, what is left goes in part, or raw. */
void sw_planner_weigh_again(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now);
/* Who looks for a plan among those that are kept. */
struct sw_plan_query {
    bool is_pack;
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
enum sw_plan_found sw_planner_find(struct sw_planner *p, const struct sw_plan_query *query, struct sw_plan *ret);
/* True if a plan made for another region is not for the bytes of this frame. */
bool sw_planner_is_stale(const struct sw_plan *plan, const struct sw_frame_layout *frame);
enum sw_misfit {
    SW_MISFIT_ACCEPT, /* the frame will do */
    SW_MISFIT_AGAIN,  /* it is to be made again, by another kept plan */
    SW_MISFIT_PLAN    /* a plan is to be made */
};
/* What to do with a frame that shows that the plan it is by, a kept one, does not suit. AGAIN: *plan is the other one.
 */
enum sw_misfit sw_planner_misfits(struct sw_planner *p, const struct sw_plan_query *query,
                                  const struct sw_frame_layout *frame, struct sw_plan *plan);
/* Of a run that begins: true if it needs no plan of its own, since it has got a kept one, or one that stores bytes as
 * they are: making one could not pay, by what the session's last ones promised. */
bool sw_planner_begin(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now);
/* Looks at a frame of the run, made by its plan of that number. */
enum sw_misfit sw_planner_judge(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now,
                                unsigned plan_number, const struct sw_frame_layout *frame);
/* A frame shows that the bytes are others than those that the run's plan was made for: has a new one made for the rest,
 * if that may pay. */
void sw_planner_drifts(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now,
                       const struct sw_frame_layout *frame);

#endif

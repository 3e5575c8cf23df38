/* encode.c - makes chunks' frames in a slot's buffer, and the plans for them: the steps that spills and packs share. */
#include "spill/mover/mover_state.h"

#include "base/clock.h"
#include "spill/planner/rules.h"

#include <string.h>

/* Returns the bytes of the buffer that were not dealt yet. */
static uint64_t rest_bytes(const struct sw_run *run) {
    return run->buffer->bytes -
           (run->n_dealt < run->frames->n_chunks ? run->n_dealt * run->frames->chunk_bytes : run->buffer->bytes);
}

static uint64_t rest_offset(const struct sw_run *run) {
    return run->buffer->offset + (run->buffer->bytes - rest_bytes(run));
}

bool sw_run_needs_plan(const struct sw_run *run) {
    return sw_operation_encodes(run->request->operation) && !run->buffer->frame_bytes && rest_bytes(run) > 0 &&
           run->course.plan_state == SW_PLAN_STATE_MISSING;
}

/* Queues the making of a plan for the run's bytes from `offset` of the memory on. */
static void queue_plan(struct sw_mover *m, struct sw_slot *slot, bool is_dense, uint64_t offset, uint64_t bytes) {
    const struct sw_run *run = slot->run;
    struct sw_err err = {0};
    slot->planned_since_us = sw_clock_us();
    if (m->device->ops->make_plan(m->device, sw_slot_index(m, slot), run->buffer->type, is_dense,
                                  run->buffer->memory->mapping, offset, bytes, &err) < 0)
        sw_slot_drain(m, slot, 0, &err);
}

/* Makes a plan that the run waits for. */
static void make_plan(struct sw_mover *m, struct sw_slot *slot, uint64_t offset, uint64_t bytes) {
    slot->run->stage = SW_STAGE_PREPARING;
    slot->plans = true;
    queue_plan(m, slot, sw_plan_key_is_dense(slot->run->course.plan_key), offset, bytes);
}

/* Returns the plan that a slot has made. */
static struct sw_plan made_plan(struct sw_mover *m, const struct sw_slot *slot, bool is_dense) {
    struct sw_plan plan = *m->device->ops->plan(m->device, sw_slot_index(m, slot));
    struct sw_err err = {0};
    sw_planner_observe_plan(&m->planner, is_dense, sw_clock_us() - slot->planned_since_us);
    if (sw_mover_keep_dictionary(m, &plan, &err))
        sw_mover_fail(m, slot->run, &err);
    return plan;
}

/* Uses the plan that a slot has made, from chunk `first` on. */
static void take_plan(struct sw_mover *m, const struct sw_slot *slot, size_t first) {
    struct sw_run *run = slot->run;
    const struct sw_snapshot now = sw_run_snapshot(m, run);
    const struct sw_plan plan = made_plan(m, slot, sw_plan_key_is_dense(run->course.plan_key));
    sw_planner_take_plan(&m->planner, &run->course, &now, first, &plan);
    if (!run->outcome.planned_us)
        run->outcome.planned_us = sw_clock_us();
    if (atomic_load(&run->signals->phase) == SW_PHASE_STAGING)
        sw_run_set_phase(m, run, SW_PHASE_ENCODING);
}

/* One slot at a time, so that plans keep few of the slots from moving bytes. */
static bool any_slot_learns(const struct sw_mover *m) {
    for (unsigned s = 0; s < m->n_slots; s++)
        if (m->slots[s].learns)
            return true;
    return false;
}

/* Begins to learn a denser plan for the rest, while other slots go on. Returns false if none is to be learned now. */
static bool start_learning(struct sw_mover *m, struct sw_slot *slot, const struct sw_workflow *workflow,
                           struct sw_run *run) {
    if (run->course.learning != SW_LEARNING_WANTED || any_slot_learns(m))
        return false;
    const struct sw_snapshot now = sw_run_snapshot(m, run);
    if (!sw_planner_learns_now(&m->planner, &run->course, &now))
        return false;
    sw_slot_take(m, slot, workflow, run);
    slot->step = SW_ENCODE_LEARNING;
    slot->learns = true;
    run->course.learning = SW_LEARNING_UNDER_WAY;
    queue_plan(m, slot, true, rest_offset(run), rest_bytes(run));
    return true;
}

static void take_denser(struct sw_mover *m, const struct sw_slot *slot) {
    struct sw_run *run = slot->run;
    const struct sw_snapshot now = sw_run_snapshot(m, run);
    const struct sw_plan plan = made_plan(m, slot, true);
    sw_planner_take_denser(&m->planner, &run->course, &now, &plan);
}

/* Segments of chunks that all others wait for are shorter: they keep more of the device busy. */
#define URGENT_SEGMENT_LOG2 8u

/* The chunks of a slot are encoded like a group, since their frames are sent together. */
static bool goes_together(const struct sw_mover *m, const struct sw_slot *slot) {
    return sw_mover_sink_is_away(m) && slot->run->request->operation == SW_OP_SPILL;
}

/* The frames of a step with several chunks follow each other, like a group's frames. The link waits for the first
 * chunk, and the restore waits for the last chunk's decoding. */
static int encode_together(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    const struct sw_run *run = slot->run;
    struct sw_plan plan = *run->course.plan;
    if (sw_codec_has_segments(plan.codec) && slot->n_chunks < run->frames->n_chunks && slot->chunk == 0)
        plan.segment_log2 = plan.segment_log2 < URGENT_SEGMENT_LOG2 ? plan.segment_log2 : URGENT_SEGMENT_LOG2;
    for (unsigned i = 0; i < slot->n_chunks; i++)
        slot->encoded[i] = (struct sw_group_item){
            .mapping = run->buffer->memory->mapping,
            .offset = run->buffer->offset + (slot->chunk + i) * run->frames->chunk_bytes,
            .bytes = sw_frames_chunk_bytes(run->frames, slot->chunk + i),
        };
    return m->device->ops->encode_group(m->device, sw_slot_index(m, slot), &plan, slot->encoded, slot->n_chunks, err);
}

static int encode_one(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    const struct sw_run *run = slot->run;
    return m->device->ops->encode(m->device, sw_slot_index(m, slot), run->course.plan, run->buffer->memory->mapping,
                                  run->buffer->offset + slot->chunk * run->frames->chunk_bytes,
                                  sw_frames_chunk_bytes(run->frames, slot->chunk), err);
}

/* Queues the encoding of the slot's chunks by the run's plan. */
static void encode_chunks(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_err err = {0};
    struct sw_run *run = slot->run;
    const uint64_t chunk_bytes = run->frames->n_chunks > 1 ? run->frames->chunk_bytes : run->buffer->bytes;
    uint64_t raw_bytes = 0;
    for (unsigned i = 0; i < slot->n_chunks; i++)
        raw_bytes += sw_frames_chunk_bytes(run->frames, slot->chunk + i);
    slot->step = SW_ENCODE_ENCODING;
    slot->encoded_since_us = sw_clock_us();
    slot->plan_number = run->course.plan_number;
    slot->dictionary = run->course.plan->dictionary;
    slot->compresses = run->course.plan->codec != SW_CODEC_RAW;
    sw_measure_begin(m, slot, SW_MEASURE_ENCODE, run->course.plan->codec,
                     sw_frames_chunk_bytes(run->frames, slot->chunk), raw_bytes);
    sw_planner_set_segments(&m->planner, run->course.plan, chunk_bytes);
    if (goes_together(m, slot) ? encode_together(m, slot, &err) : encode_one(m, slot, &err))
        sw_slot_drain(m, slot, 0, &err);
}

/* Records a frame that is complete on the device, and checks whether the data have drifted. */
static void note_encoded(struct sw_mover *m, const struct sw_slot *slot, size_t chunk) {
    struct sw_run *run = slot->run;
    sw_run_note_frame(run, chunk, run->course.plan->codec, &slot->frame);
    if (run->n_encoded == run->frames->n_chunks)
        sw_run_set_phase(m, run, SW_PHASE_STORING);
    const struct sw_snapshot now = sw_run_snapshot(m, run);
    struct sw_rules_drift drift = {
        .expected_ratio = sw_plan_data_ratio(run->course.plan),
        .raw_bytes = slot->frame.raw_bytes,
        .data_bytes = slot->frame.frame_bytes - slot->frame.data_offset,
        .rest_bytes = rest_bytes(run),
        .chunk_bytes = run->frames->chunk_bytes,
        .n_retrained = run->course.n_retrained,
        .is_beside = sw_planner_learns_beside(&m->planner, &run->course, &now),
    };
    /* Chunks that were under way by an earlier plan say nothing about the present one. */
    if (run->stage == SW_STAGE_RUNNING && run->course.plan_state != SW_PLAN_STATE_MISSING &&
        slot->plan_number == run->course.plan_number && sw_rules_retrain(&drift))
        sw_planner_handle_drift(&m->planner, &run->course, &now, &slot->frame);
    sw_planner_reevaluate(&m->planner, &run->course, &now);
}

/* Discards the frames of the slot's chunks, and queues the making of a plan from the first of these on. */
static void plan_again(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_run *run = slot->run;
    const uint64_t begin = slot->chunk * run->frames->chunk_bytes;
    slot->step = SW_ENCODE_REPLANNING;
    slot->compresses = false;
    run->course.plan_state = SW_PLAN_STATE_MISSING;
    make_plan(m, slot, run->buffer->offset + begin, run->buffer->bytes - begin);
}

/* Records the frames in the slot's buffer. slot->frame is the first one's, and then the last one's. */
static void take_frames(struct sw_mover *m, struct sw_slot *slot) {
    slot->compresses = false;
    for (unsigned i = 0; i < slot->n_chunks; i++) {
        if (i > 0)
            slot->frame = slot->encoded[i].frame;
        slot->compresses |= slot->frame.codec != SW_CODEC_RAW;
        note_encoded(m, slot, slot->chunk + i);
    }
}

/* Checks the first frame in the slot's buffer. Returns true if all are kept; otherwise they are made again by another
 * plan. */
static bool encoded(struct sw_mover *m, struct sw_slot *slot, const struct sw_slot_result *result) {
    slot->frame = goes_together(m, slot) ? slot->encoded[0].frame : result->frame;
    const struct sw_snapshot now = sw_run_snapshot(m, slot->run);
    switch (sw_planner_check_frame(&m->planner, &slot->run->course, &now, slot->plan_number, &slot->frame)) {
    case SW_MISMATCH_RETRY:
        encode_chunks(m, slot);
        return false;
    case SW_MISMATCH_REPLAN:
        plan_again(m, slot);
        return false;
    case SW_MISMATCH_ACCEPT:
        break;
    }
    take_frames(m, slot);
    return true;
}

bool sw_encode_start(struct sw_mover *m, struct sw_slot *slot, const struct sw_workflow *workflow, struct sw_run *run,
                     unsigned n) {
    if (run->stage == SW_STAGE_RUNNING && sw_run_needs_plan(run)) {
        sw_slot_take(m, slot, workflow, run);
        slot->step = SW_ENCODE_PREPARING;
        make_plan(m, slot, rest_offset(run), rest_bytes(run));
        return true;
    }
    if (run->n_dealt == run->frames->n_chunks)
        return false;
    if (start_learning(m, slot, workflow, run))
        return true;
    sw_slot_take(m, slot, workflow, run);
    slot->chunk = run->n_dealt;
    slot->n_chunks = n;
    run->n_dealt += n;
    encode_chunks(m, slot);
    if (run->course.trial == SW_TRIAL_NEXT_CHUNK && run->n_dealt < run->frames->n_chunks)
        sw_plan_init_raw(run->course.plan);
    run->course.trial = SW_TRIAL_NONE;
    return true;
}

bool sw_encode_ended(struct sw_mover *m, struct sw_slot *slot, const struct sw_slot_result *result) {
    struct sw_run *run = slot->run;
    switch (slot->step) {
    case SW_ENCODE_PREPARING:
        take_plan(m, slot, run->n_dealt);
        run->stage = SW_STAGE_RUNNING;
        sw_slot_give(m, slot);
        return false;
    case SW_ENCODE_LEARNING:
        take_denser(m, slot);
        sw_slot_give(m, slot);
        return false;
    case SW_ENCODE_REPLANNING:
        take_plan(m, slot, slot->chunk);
        run->stage = SW_STAGE_RUNNING;
        encode_chunks(m, slot);
        return false;
    default:
        return encoded(m, slot, result);
    }
}

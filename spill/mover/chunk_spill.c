/* chunk_spill.c - what a slot does for a spill, and for a pack up to its frame: plan, encode, store. */
#include "spill/mover/mover_state.h"

#include "base/clock.h"
#include "spill/planner/rules.h"

#include <string.h>

/* Part of the range that has not been dealt out. */
static uint64_t rest_bytes(const struct sw_run *run) {
    return run->buffer->bytes -
           (run->n_dealt < run->frames->n_chunks ? run->n_dealt * run->frames->chunk_bytes : run->buffer->bytes);
}

static uint64_t rest_offset(const struct sw_run *run) {
    return run->buffer->offset + (run->buffer->bytes - rest_bytes(run));
}

bool sw_run_needs_plan(const struct sw_run *run) {
    return sw_operation_encodes(run->request->operation) && rest_bytes(run) > 0 &&
           run->plan_state == SW_PLAN_STATE_MISSING;
}

void sw_slot_prepare(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run) {
    struct sw_err err = {0};
    sw_slot_take(m, slot, SW_SLOT_PREPARING, run);
    run->stage = SW_STAGE_PREPARING;
    slot->planned_since_us = sw_clock_us();
    if (m->device->ops->make_plan(m->device, sw_slot_index(m, slot), run->buffer->type, run->buffer->memory->mapping,
                                  rest_offset(run), rest_bytes(run), &err) < 0)
        sw_slot_fail(m, slot, &err);
}

/* Goes by the plan that a slot has made, from chunk `first` on. */
static void take_plan(struct sw_mover *m, const struct sw_slot *slot, size_t first) {
    struct sw_run *run = slot->run;
    run->plan = *m->device->ops->plan(m->device, sw_slot_index(m, slot));
    run->plan_state = SW_PLAN_STATE_SETTLED;
    sw_measure_plan(m, sw_clock_us() - slot->planned_since_us);
    sw_plan_cache_put(&m->plans, run->plan_key, run->buffer->bytes, &run->plan_choice, &run->plan);
    if (first < run->frames->n_chunks) /* else it came too late for this one */
        sw_run_weigh(m, run, first);
    run->plan_number++;
    if (!run->outcome.planned_us)
        run->outcome.planned_us = sw_clock_us();
    if (atomic_load(&run->signals->phase) == SW_PHASE_STAGING)
        sw_run_set_phase(m, run, SW_PHASE_ENCODING);
}

void sw_slot_prepared(struct sw_mover *m, const struct sw_slot *slot) {
    take_plan(m, slot, slot->run->n_dealt);
    slot->run->stage = SW_STAGE_RUNNING;
}

/* Queues the slot's chunk, by the run's plan. */
static void encode_chunk(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_err err = {0};
    struct sw_run *run = slot->run;
    const uint64_t offset = run->buffer->offset + slot->chunk * run->frames->chunk_bytes,
                   raw_bytes = sw_frames_chunk_bytes(run->frames, slot->chunk);
    slot->plan_number = run->plan_number;
    sw_measure_begin(m, slot, SW_MEASURE_ENCODE, run->plan.codec, raw_bytes, raw_bytes);
    sw_mover_plan_set_segments(m, &run->plan,
                               run->frames->n_chunks > 1 ? run->frames->chunk_bytes : run->buffer->bytes);
    if (m->device->ops->encode(m->device, sw_slot_index(m, slot), &run->plan, run->buffer->memory->mapping, offset,
                               raw_bytes, &err))
        sw_slot_fail(m, slot, &err);
}

void sw_slot_replanned(struct sw_mover *m, struct sw_slot *slot) {
    take_plan(m, slot, slot->chunk);
    slot->run->stage = SW_STAGE_RUNNING;
    slot->state = SW_SLOT_ENCODING;
    encode_chunk(m, slot);
}

static void encode(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run) {
    sw_slot_take(m, slot, SW_SLOT_ENCODING, run);
    slot->chunk = run->n_dealt++;
    encode_chunk(m, slot);
    if (run->trial == SW_TRIAL_NEXT_CHUNK && run->n_dealt < run->frames->n_chunks)
        sw_plan_init_raw(&run->plan);
    run->trial = SW_TRIAL_NONE;
}

/* A chunk's frame is complete on the device: keeps the books and looks whether the data have drifted. */
static void note_encoded(struct sw_mover *m, const struct sw_slot *slot) {
    struct sw_run *run = slot->run;
    sw_run_note_frame(run, slot->chunk, run->plan.codec, &slot->frame);
    if (run->n_encoded == run->frames->n_chunks)
        sw_run_set_phase(m, run, SW_PHASE_STORING);
    struct sw_rules_drift drift = {
        .expected_ratio = sw_plan_data_ratio(&run->plan),
        .raw_bytes = slot->frame.raw_bytes,
        .data_bytes = slot->frame.frame_bytes - slot->frame.data_offset,
        .rest_bytes = rest_bytes(run),
        .chunk_bytes = run->frames->chunk_bytes,
        .n_retrained = run->n_retrained,
    };
    /* Chunks that were under way with the plan before this one say nothing about this one. */
    if (run->stage == SW_STAGE_RUNNING && run->plan_state != SW_PLAN_STATE_MISSING &&
        slot->plan_number == run->plan_number && sw_rules_retrain(&drift))
        sw_run_drifts(m, run, &slot->frame);
    sw_run_weigh_again(m, run);
}

static int queue_store(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    uint64_t at = 0;
    int rc = 0;
    if (slot->direct.n > 0)
        return sw_direct_queue(m, slot, err);
    sw_link_take(m, slot, SW_LINK_OUT, slot->stored.bytes);
    if (slot->state == SW_SLOT_STORING && !sw_slot_shares_link(m, slot))
        sw_measure_begin(m, slot, SW_MEASURE_LINK_OUT, slot->frame.codec, slot->frame.raw_bytes, slot->stored.bytes);
    for (unsigned i = 0; !rc && i < slot->stored.n_extents; i++) {
        const struct sw_extent *extent = &slot->stored.extents[i];
        rc = m->device->ops->store(m->device, sw_slot_index(m, slot), extent->memory, at, extent->bytes, err);
        at += extent->bytes;
    }
    return rc;
}

int sw_slot_store(struct sw_mover *m, struct sw_slot *slot, uint64_t bytes, bool must_rest, struct sw_err *err) {
    const int rc = m->sink->ops->reserve(m->sink, slot->run, bytes, must_rest, &slot->stored, err);
    return rc ? rc : queue_store(m, slot, err);
}

bool sw_slot_begin_store(struct sw_mover *m, struct sw_slot *slot) {
    const uint64_t bytes = slot->frame.frame_bytes;
    struct sw_err err = {0};
    int rc = -SW_EAGAIN;
    slot->state = SW_SLOT_STORING;
    if (sw_link_has_room(m, SW_LINK_OUT, slot->run, bytes))
        rc = sw_slot_store(m, slot, bytes, false, &err);
    if (rc == -SW_EAGAIN) {
        slot->state = SW_SLOT_WAITING;
        return false;
    }
    if (rc)
        sw_slot_fail(m, slot, &err);
    return true;
}

void sw_slot_spill(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run) {
    if (sw_direct_take(m, slot, run))
        sw_slot_begin_store(m, slot);
    else
        encode(m, slot, run);
}

/* Has a plan made for the slot's chunk, whose frame is given up, and those behind it. */
static void plan_again(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_run *run = slot->run;
    const uint64_t begin = slot->chunk * run->frames->chunk_bytes;
    struct sw_err err = {0};
    slot->state = SW_SLOT_REPLANNING;
    run->stage = SW_STAGE_PREPARING;
    run->plan_state = SW_PLAN_STATE_MISSING;
    slot->planned_since_us = sw_clock_us();
    if (m->device->ops->make_plan(m->device, sw_slot_index(m, slot), run->buffer->type, run->buffer->memory->mapping,
                                  run->buffer->offset + begin, run->buffer->bytes - begin, &err) < 0)
        sw_slot_fail(m, slot, &err);
}

void sw_slot_encoded(struct sw_mover *m, struct sw_slot *slot, const struct sw_slot_result *result) {
    slot->frame = result->frame;
    switch (sw_run_judge_plan(m, slot->run, slot->plan_number, &slot->frame)) {
    case SW_MISFIT_AGAIN:
        encode_chunk(m, slot);
        return;
    case SW_MISFIT_PLAN:
        plan_again(m, slot);
        return;
    case SW_MISFIT_ACCEPT:
        break;
    }
    note_encoded(m, slot);
    if (slot->run->request->operation == SW_OP_PACK) {
        sw_in_place_encoded(m, slot);
        return;
    }
    sw_slot_begin_store(m, slot);
}

void sw_slot_stored(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_err err = {0};
    struct sw_run *run = slot->run;
    run->frames->identities[slot->chunk] = sw_frames_identify(run->frames, slot->chunk, &slot->stored);
    if (sw_slot_is_staged(slot)) {
        m->sink->ops->put(m->sink, run, slot->chunk, &slot->stored);
        return;
    }
    if (m->sink->ops->commit(m->sink, &slot->stored, &err)) {
        sw_mover_fail(m, run, &err);
        return;
    }
    run->frames->stored[slot->chunk] = slot->stored;
    memset(&slot->stored, 0, sizeof slot->stored);
    run->n_done++;
    if (sw_direct_commit(m, slot, &err))
        sw_mover_fail(m, run, &err);
}

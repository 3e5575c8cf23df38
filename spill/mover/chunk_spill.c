/* chunk_spill.c - what a slot does for a spill, and for a pack up to its frame: plan, encode, store. */
#include "spill/mover/mover_state.h"

#include "base/clock.h"
#include "spill/planner/rules.h"

#include <string.h>

/* Part of the range that has not been dealt out. */
static uint64_t rest_bytes(const struct sw_job *job) {
    return job->bytes - (job->n_dealt < job->frames->n_chunks ? job->n_dealt * job->frames->chunk_bytes : job->bytes);
}

static uint64_t rest_offset(const struct sw_job *job) {
    return job->offset + (job->bytes - rest_bytes(job));
}

bool sw_job_needs_plan(const struct sw_job *job) {
    return sw_job_encodes(job->kind) && rest_bytes(job) > 0 && job->plan_state == SW_JOB_PLAN_MISSING;
}

void sw_slot_prepare(struct sw_mover *m, struct sw_slot *slot, struct sw_job *job) {
    struct sw_err err = {0};
    sw_slot_take(m, slot, SW_SLOT_PREPARING, job);
    job->stage = SW_STAGE_PREPARING;
    slot->planned_since_us = sw_clock_us();
    if (m->device->ops->make_plan(m->device, sw_slot_index(m, slot), job->value_type, job->mem->mapping,
                                  rest_offset(job), rest_bytes(job), &err) < 0)
        sw_slot_fail(m, slot, &err);
}

/* Goes by the plan that a slot has made, from chunk `first` on. */
static void take_plan(struct sw_mover *m, const struct sw_slot *slot, size_t first) {
    struct sw_job *job = slot->job;
    job->plan = *m->device->ops->plan(m->device, sw_slot_index(m, slot));
    job->plan_state = SW_JOB_PLAN_SETTLED;
    sw_measure_plan(m, sw_clock_us() - slot->planned_since_us);
    sw_plan_cache_put(&m->plans, job->plan_key, job->bytes, &job->plan_choice, &job->plan);
    if (first < job->frames->n_chunks) /* else it came too late for this one */
        sw_job_weigh(m, job, first);
    job->plan_number++;
    if (!job->planned_us)
        job->planned_us = sw_clock_us();
    if (atomic_load(&job->phase) == SW_PHASE_STAGING)
        sw_job_set_phase(m, job, SW_PHASE_ENCODING);
}

void sw_slot_prepared(struct sw_mover *m, const struct sw_slot *slot) {
    take_plan(m, slot, slot->job->n_dealt);
    slot->job->stage = SW_STAGE_RUNNING;
}

/* Queues the slot's chunk, by the job's plan. */
static void encode_chunk(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_err err = {0};
    struct sw_job *job = slot->job;
    const uint64_t offset = job->offset + slot->chunk * job->frames->chunk_bytes,
                   raw_bytes = sw_frames_chunk_bytes(job->frames, slot->chunk);
    slot->plan_number = job->plan_number;
    sw_measure_begin(m, slot, SW_MEASURE_ENCODE, job->plan.codec, raw_bytes, raw_bytes);
    sw_mover_plan_set_segments(m, &job->plan, job->frames->n_chunks > 1 ? job->frames->chunk_bytes : job->bytes);
    if (m->device->ops->encode(m->device, sw_slot_index(m, slot), &job->plan, job->mem->mapping, offset, raw_bytes,
                               &err))
        sw_slot_fail(m, slot, &err);
}

void sw_slot_replanned(struct sw_mover *m, struct sw_slot *slot) {
    take_plan(m, slot, slot->chunk);
    slot->job->stage = SW_STAGE_RUNNING;
    slot->state = SW_SLOT_ENCODING;
    encode_chunk(m, slot);
}

static void encode(struct sw_mover *m, struct sw_slot *slot, struct sw_job *job) {
    sw_slot_take(m, slot, SW_SLOT_ENCODING, job);
    slot->chunk = job->n_dealt++;
    encode_chunk(m, slot);
    if (job->trial == SW_TRIAL_NEXT_CHUNK && job->n_dealt < job->frames->n_chunks)
        sw_plan_init_raw(&job->plan);
    job->trial = SW_TRIAL_NONE;
}

/* A chunk's frame is complete on the device: keeps the books and looks whether the data have drifted. */
static void note_encoded(struct sw_mover *m, const struct sw_slot *slot) {
    struct sw_job *job = slot->job;
    sw_job_note_frame(job, slot->chunk, job->plan.codec, &slot->frame);
    if (job->n_encoded == job->frames->n_chunks)
        sw_job_set_phase(m, job, SW_PHASE_STORING);
    struct sw_rules_drift drift = {
        .expected_ratio = sw_plan_data_ratio(&job->plan),
        .raw_bytes = slot->frame.raw_bytes,
        .data_bytes = slot->frame.frame_bytes - slot->frame.data_offset,
        .rest_bytes = rest_bytes(job),
        .chunk_bytes = job->frames->chunk_bytes,
        .n_retrained = job->n_retrained,
    };
    /* Chunks that were under way with the plan before this one say nothing about this one. */
    if (job->stage == SW_STAGE_RUNNING && job->plan_state != SW_JOB_PLAN_MISSING &&
        slot->plan_number == job->plan_number && sw_rules_retrain(&drift))
        sw_job_drifts(m, job, &slot->frame);
    sw_job_weigh_again(m, job);
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

int sw_slot_store(struct sw_mover *m, struct sw_slot *slot, uint64_t bytes, struct sw_err *err) {
    struct sw_tier *memory = sw_placement_memory(m->place);
    int rc = sw_job_charge(slot->job, bytes, err);
    if (!rc)
        rc = memory->ops->reserve(memory, bytes, &slot->stored, err);
    return rc ? rc : queue_store(m, slot, err);
}

bool sw_slot_begin_store(struct sw_mover *m, struct sw_slot *slot) {
    const uint64_t bytes = slot->frame.frame_bytes;
    struct sw_err err = {0};
    int rc;
    if (!sw_link_has_room(m, SW_LINK_OUT, slot->job, bytes)) {
        slot->state = SW_SLOT_WAITING;
        return false;
    }
    slot->state = SW_SLOT_STORING;
    slot->is_staged = sw_placement_goes_out(m->place, bytes);
    if (slot->is_staged) {
        rc = sw_job_charge(slot->job, bytes, &err);
        if (!rc)
            rc = sw_placement_stage(m->place, SW_TIER_WRITE, bytes, &slot->stored, &err);
        if (rc == -SW_EAGAIN) {
            sw_job_uncharge(slot->job, bytes);
            slot->state = SW_SLOT_WAITING;
            return false;
        }
        if (!rc)
            rc = queue_store(m, slot, &err);
    } else {
        rc = sw_slot_store(m, slot, bytes, &err);
    }
    if (rc)
        sw_slot_fail(m, slot, &err);
    return true;
}

void sw_slot_spill(struct sw_mover *m, struct sw_slot *slot, struct sw_job *job) {
    if (sw_direct_take(m, slot, job))
        sw_slot_begin_store(m, slot);
    else
        encode(m, slot, job);
}

/* Has a plan made for the slot's chunk, whose frame is given up, and those behind it. */
static void plan_again(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_job *job = slot->job;
    const uint64_t begin = slot->chunk * job->frames->chunk_bytes;
    struct sw_err err = {0};
    slot->state = SW_SLOT_REPLANNING;
    job->stage = SW_STAGE_PREPARING;
    job->plan_state = SW_JOB_PLAN_MISSING;
    slot->planned_since_us = sw_clock_us();
    if (m->device->ops->make_plan(m->device, sw_slot_index(m, slot), job->value_type, job->mem->mapping,
                                  job->offset + begin, job->bytes - begin, &err) < 0)
        sw_slot_fail(m, slot, &err);
}

void sw_slot_encoded(struct sw_mover *m, struct sw_slot *slot, const struct sw_slot_result *result) {
    slot->frame = result->frame;
    switch (sw_job_judge_plan(m, slot->job, slot->plan_number, &slot->frame)) {
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
    if (slot->job->kind == SW_JOB_PACK) {
        sw_in_place_encoded(m, slot);
        return;
    }
    sw_slot_begin_store(m, slot);
}

void sw_slot_stored(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_err err = {0};
    struct sw_job *job = slot->job;
    if (slot->stored.tier->ops->commit(slot->stored.tier, &slot->stored, &err)) {
        sw_mover_fail(m, job, &err);
        return;
    }
    job->frames->identities[slot->chunk] = sw_frames_identify(job->frames, slot->chunk, &slot->stored);
    job->frames->stored[slot->chunk] = slot->stored;
    memset(&slot->stored, 0, sizeof slot->stored);
    job->n_done++;
    if (sw_direct_commit(slot, &err))
        sw_mover_fail(m, job, &err);
}

/* client_group.c - short frames that clients make, and decode themselves, go through a slot together.
 *
 * A client sends the frames of many short regions in one packet, and they lie one after the other in its memory. So one
 * step copies all of them to their places, or back, if these follow each other as well by a single copy. Each run keeps
 * its own place, is checked by itself, and fails alone, as in group.c. */
#include "spill/mover/mover_state.h"

#include <string.h>

/* Longer frames are worth a step of their own. */
#define MAX_RUN_BYTES ((uint64_t)1 << 20)
/* As the longest chunk that a client may send: so much another tenant may have to wait for. */
#define MAX_GROUP_BYTES ((uint64_t)16 << 20)
enum { TAKING, GIVING, DRAINING };

static bool is_eligible(const struct sw_mover *m, const struct sw_run *run) {
    const struct sw_buffer *buffer = run->buffer;
    (void)m;
    if (run->stage != SW_STAGE_WAITING || run->outcome.err.code || !buffer->frame_bytes ||
        buffer->bytes > MAX_RUN_BYTES || buffer->is_disputed)
        return false;
    if (run->request->operation == SW_OP_SPILL)
        return true;
    const struct sw_stored *stored = &run->frames->stored[0];
    return run->request->operation == SW_OP_RESTORE && stored->use == SW_STORED_RESTS && sw_stored_is_in_memory(stored);
}

static bool may_join(const struct sw_mover *m, const struct sw_group *g, const struct sw_run *run) {
    const struct sw_run *first = g->runs[0];
    (void)m;
    return run->request->operation == g->kind && run->buffer->memory == first->buffer->memory &&
           run->request->may_fill_holes == first->request->may_fill_holes;
}

static bool join(struct sw_mover *m, struct sw_group *g, struct sw_run *run) {
    const uint64_t bytes = g->raw_bytes + run->buffer->bytes, frame_bytes = g->item_bytes + run->buffer->frame_bytes;
    if (g->n == m->device->ops->info(m->device)->group_items || bytes > MAX_GROUP_BYTES)
        return false;
    if (g->kind == SW_OP_SPILL && !m->sink->ops->rests(m->sink, run, frame_bytes))
        return false;
    g->runs[g->n++] = run;
    g->raw_bytes = bytes;
    g->item_bytes = frame_bytes;
    return true;
}

static const struct sw_group_rules rules = {.is_eligible = is_eligible, .may_join = may_join, .join = join};

/* Maps the memory, and finds the frame's place. */
static int begin(struct sw_mover *m, struct sw_run *run, struct sw_frame_item *ret, struct sw_err *err) {
    int rc = sw_run_start(m, run, err);
    if (rc)
        return rc;
    run->stage = SW_STAGE_RUNNING;
    run->n_dealt = 1;
    run->course.reason = SW_COST_CLIENT;
    struct sw_stored *stored = &run->frames->stored[0];
    *ret = (struct sw_frame_item){.offset = run->buffer->offset, .stored = stored};
    if (run->request->operation == SW_OP_RESTORE)
        return sw_frames_check_memory(run->frames, 0, stored, err);
    rc = m->sink->ops->reserve(m->sink, run, run->buffer->frame_bytes, true, stored, err);
    run->frames->n_begun = rc ? 0 : 1; /* it is released with the run */
    return rc;
}

static int queue(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    const struct sw_group *g = &slot->group;
    const struct sw_run *first = g->runs[0];
    struct sw_mapping *mapping = first->buffer->memory->mapping;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < g->n; i++)
        bytes += g->moved[i].stored->bytes;
    if (g->kind == SW_OP_RESTORE) {
        slot->step = GIVING;
        sw_link_take(m, slot, SW_LINK_BACK, bytes);
        return m->device->ops->give_frames(m->device, sw_slot_index(m, slot), mapping, g->moved, g->n,
                                           first->request->may_fill_holes, err);
    }
    slot->step = TAKING;
    sw_group_set_phase(m, g, SW_PHASE_STORING);
    sw_measure_begin(m, slot, SW_MEASURE_LINK_OUT, SW_CODEC_RAW, g->raw_bytes, bytes);
    sw_link_take(m, slot, SW_LINK_OUT, bytes);
    return m->device->ops->take_frames(m->device, sw_slot_index(m, slot), mapping, g->moved, g->n, err);
}

/* It is not known which member made a step fail. Restores stay, to be repeated one by one. */
static void step_failed(struct sw_mover *m, struct sw_group *g, const struct sw_err *err) {
    if (g->kind == SW_OP_SPILL || err->code == -SW_EGPULOST)
        sw_group_fail(m, g, err);
}

static bool start(struct sw_mover *m, struct sw_slot *slot, struct sw_run *first) {
    struct sw_group *g = &slot->group;
    struct sw_turns_sum charged = {.session = NULL};
    struct sw_err err = {0};
    g->kind = first->request->operation;
    if (!sw_group_gather(m, g, first, &rules))
        return false;
    sw_group_take(m, slot, &sw_workflow_client_group);
    for (unsigned i = 0; i < g->n; i++) {
        sw_turns_sum_add(&m->turns, &charged, &g->runs[i]->turn, g->runs[i]->buffer->frame_bytes);
        if (begin(m, g->runs[i], &g->moved[i], &err))
            sw_mover_fail(m, g->runs[i], &err);
    }
    sw_turns_sum_end(&m->turns, &charged);
    sw_group_drop_failed(m, g);
    if (g->n == 0) {
        sw_group_give(m, slot);
    } else if (queue(m, slot, &err)) {
        step_failed(m, g, &err);
        slot->step = DRAINING;
        slot->drains = true;
    }
    return true;
}

/* Our copy of the frame is whole. */
static int take(struct sw_mover *m, struct sw_run *run, struct sw_err *err) {
    struct sw_stored *stored = &run->frames->stored[0];
    struct sw_frame_layout layout;
    int rc = sw_client_frame_parse(run, stored, &layout, err);
    if (rc)
        return rc;
    sw_run_note_frame(run, 0, layout.codec, &layout);
    run->frames->are_clients[0] = true;
    run->frames->identities[0] = sw_frames_identify(run->frames, 0, stored);
    return m->sink->ops->commit(m->sink, stored, err);
}

static void step_ended(struct sw_mover *m, struct sw_slot *slot, int rc, const struct sw_slot_result *result,
                       const struct sw_err *cause) {
    struct sw_group *g = &slot->group;
    struct sw_err err = {0};
    (void)result;
    if (rc)
        step_failed(m, g, cause);
    if (rc || slot->step == DRAINING) {
        sw_group_give_unserved(m, slot);
        return;
    }
    for (unsigned i = 0; i < g->n; i++) {
        struct sw_run *run = g->runs[i];
        if (run->outcome.err.code)
            continue;
        if (slot->step == TAKING && take(m, run, &err))
            sw_mover_fail(m, run, &err);
        else
            run->n_done = 1;
    }
    sw_group_give(m, slot);
}

const struct sw_workflow sw_workflow_client_group = {.is_shared = true, .start = start, .step_ended = step_ended};

/* group.c - short runs that wait at the same time go through a slot together.
 *
 * A launch, a wait for its end and a round of bookkeeping take longer than the bytes of a short region. So when a slot
 * takes a short run, it also takes all compatible runs that wait, as far as its buffers go: one step encodes them, one
 * step copies their frames to where each has its own room, one step restores them. Only the steps are shared. Each run
 * keeps its own frame and its own outcome, and a failure of its own fails it alone. Nothing is released or unmapped
 * before the slot has reported; until then each member counts the slot as its own.
 *
 * For a sink in another process the frames are gathered in the slot's buffer, and sent together; or fetched together,
 * and decoded.
 *
 * A client can harm only itself: runs of several sessions share a group only as restores, and if a step of such a group
 * fails after it was queued, each member is dealt again, alone. A step that cannot be queued fails all members. */
#include "spill/mover/mover_state.h"

#include "base/assert.h"

#include <string.h>

/* In longer runs the bytes take longer than the steps (20 us at 50 GB/s), and a few runs fill a slot. */
#define MAX_RUN_BYTES ((uint64_t)1 << 20)
/* Enough work for most of a GPU (64 of 64 KiB). If more runs wait, the next slot takes them, and the worker's part of
 * one group overlaps with the device's part of another. */
#define MAX_GROUP_BYTES ((uint64_t)4 << 20)
/* Where the sink lies in another process, a step costs messages and wake-ups there: few long ones are best. */
#define MAX_AWAY_BYTES ((uint64_t)16 << 20)
enum { PREPARING, ENCODING, STORING, RESTORING, DRAINING, GATHERING, SENDING, FETCHING };
/* Place of frames that are not to be stored. */
static const struct sw_stored nowhere;

/* ---- gathering ---- */

/* Returns true for a run of one chunk that a group can serve: it moves from device to host memory or back. */
static bool is_eligible(const struct sw_mover *m, const struct sw_run *run) {
    if ((run->stage != SW_STAGE_WAITING && !run->regroups) || run->outcome.err.code || run->buffer->bytes == 0 ||
        run->buffer->bytes > MAX_RUN_BYTES || run->buffer->frame_bytes ||
        (sw_mover_sink_is_away(m) && !m->sink->ops->send_group))
        return false;
    if (run->request->operation == SW_OP_SPILL)
        return run->buffer->bytes <= sw_run_chunk_bytes(m, run);
    return run->request->operation == SW_OP_RESTORE && run->frames->n_chunks == 1 &&
           sw_stored_is_in_memory(&run->frames->stored[0]);
}

/* Memory of this process is one space, whatever the runs call it. */
static bool is_same_space(const struct sw_run *a, const struct sw_run *b) {
    return a->buffer->memory == b->buffer->memory || (a->buffer->memory->data && b->buffer->memory->data);
}

static uint64_t begin_of(const struct sw_run *run) {
    return (uintptr_t)run->buffer->memory->data + run->buffer->offset;
}

static bool overlaps(const struct sw_run *a, const struct sw_run *b) {
    return is_same_space(a, b) && begin_of(a) < begin_of(b) + b->buffer->bytes &&
           begin_of(b) < begin_of(a) + a->buffer->bytes;
}

static bool follows(const struct sw_run *a, const struct sw_run *b) {
    return is_same_space(a, b) && begin_of(a) + a->buffer->bytes <= begin_of(b);
}

/* Two restores to the same bytes are the client's mistake, but must not make their regions look damaged. */
static bool overlaps_any(const struct sw_group *g, const struct sw_run *run) {
    if (g->is_ascending && follows(g->runs[g->n - 1], run)) /* the usual order of a batch */
        return false;
    for (unsigned i = 0; i < g->n; i++)
        if (overlaps(g->runs[i], run))
            return true;
    return false;
}

/* Runs that have left a group keep the plan that was found for them then. */
static bool has_same_plan(const struct sw_run *a, const struct sw_run *b) {
    return a->course.plan_key == b->course.plan_key && a->regroups == b->regroups &&
           a->course.plan_state == b->course.plan_state && a->course.plan_choice.tried == b->course.plan_choice.tried &&
           a->course.plan_choice.number == b->course.plan_choice.number;
}

static bool may_join(const struct sw_mover *m, const struct sw_group *g, const struct sw_run *run) {
    const struct sw_run *first = g->runs[0];
    if (run->request->operation != g->kind ||
        (sw_mover_sink_is_away(m) && !m->sink->ops->goes_with(m->sink, first, run)))
        return false;
    return g->kind == SW_OP_SPILL ? has_same_plan(first, run) : !overlaps_any(g, run);
}

static uint64_t room_bytes(const struct sw_run *run) {
    return sw_frame_step_bytes(sw_frame_bound_bytes(run->buffer->bytes));
}

/* Returns whether a run fits into the group: into the slot's buffer, and into the host tier. item_bytes: of all. */
static bool fits(struct sw_mover *m, const struct sw_group *g, const struct sw_run *run, uint64_t item_bytes) {
    const struct sw_device_info *info = m->device->ops->info(m->device);
    const uint64_t raw_bytes = g->raw_bytes + run->buffer->bytes;
    if (sw_mover_sink_is_away(m)) /* the frames are encoded, and then gathered behind that */
        return raw_bytes <= MAX_AWAY_BYTES && g->n < m->sink->most_runs &&
               item_bytes + g->room_bytes + room_bytes(run) <= info->group_bytes;
    return item_bytes <= info->group_bytes && raw_bytes <= MAX_GROUP_BYTES &&
           (g->kind != SW_OP_SPILL || m->sink->ops->rests(m->sink, run, raw_bytes));
}

/* Adds a run. Returns false if it does not fit any more. */
static bool join(struct sw_mover *m, struct sw_group *g, struct sw_run *run) {
    const uint64_t item_bytes = g->item_bytes + sw_group_item_bytes(run->buffer->bytes);
    if (g->n == m->device->ops->info(m->device)->group_items || !fits(m, g, run, item_bytes))
        return false;
    g->is_ascending = g->n == 0 || (g->is_ascending && follows(g->runs[g->n - 1], run));
    g->runs[g->n++] = run;
    g->raw_bytes += run->buffer->bytes;
    g->item_bytes = item_bytes;
    g->room_bytes += room_bytes(run);
    return true;
}

static const struct sw_group_rules rules = {.is_eligible = is_eligible, .may_join = may_join, .join = join};

/* It is not known which member made a step fail. Restores stay, to be repeated one by one. */
static void step_failed(struct sw_mover *m, struct sw_group *g, const struct sw_err *err) {
    if (g->kind == SW_OP_SPILL || err->code == -SW_EGPULOST)
        sw_group_fail(m, g, err);
}

/* A step could not be queued. The steps that are already queued on the slot must end. */
static void fail_slot(struct sw_mover *m, struct sw_slot *slot, const struct sw_err *err) {
    step_failed(m, &slot->group, err);
    slot->step = DRAINING;
    slot->drains = true;
}

/* ---- steps ---- */

static struct sw_workload workload_of(const struct sw_group *g, const struct sw_room *room) {
    return (struct sw_workload){
        .raw_bytes = g->raw_bytes, .chunk_bytes = g->raw_bytes, .n_chunks = 1, .room = room, .shares_step = true};
}

/* Queues the encoding by the group's plan, which was just made or found. */
static int encode(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    struct sw_group *g = &slot->group;
    const struct sw_room room = sw_run_room(m, g->runs[0]);
    const struct sw_workload all = workload_of(g, &room);
    const enum sw_cost_reason reason = sw_planner_decide(&m->planner, false, &all, false, &g->plan).reason;
    const uint64_t now_us = sw_mover_now_us(m);
    for (unsigned i = 0; i < g->n; i++) {
        g->runs[i]->course.reason = reason;
        g->runs[i]->outcome.planned_us = now_us;
    }
    sw_group_set_phase(m, g, SW_PHASE_ENCODING);
    sw_planner_set_segments(&m->planner, &g->plan, g->raw_bytes);
    slot->step = ENCODING;
    sw_measure_begin(m, slot, SW_MEASURE_ENCODE, g->plan.codec, g->raw_bytes, g->raw_bytes);
    return m->device->ops->encode_group(m->device, sw_slot_index(m, slot), &g->plan, g->items, g->n, err);
}

/* Returns the member with the most bytes, on which a plan is made. */
static struct sw_run *longest(const struct sw_group *g) {
    struct sw_run *ret = g->runs[0];
    for (unsigned i = 1; i < g->n; i++)
        if (g->runs[i]->buffer->bytes > ret->buffer->bytes)
            ret = g->runs[i];
    return ret;
}

/* Queues the making of a plan on the longest member, for all of them. */
static int make_plan(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    struct sw_run *run = longest(&slot->group);
    run->course.plan_state = SW_PLAN_STATE_SETTLED;
    slot->step = PREPARING;
    slot->plans = true;
    return m->device->ops->make_plan(m->device, sw_slot_index(m, slot), run->buffer->type, false,
                                     run->buffer->memory->mapping, run->buffer->offset, run->buffer->bytes, err);
}

static bool find_plan(struct sw_mover *m, struct sw_group *g) {
    struct sw_run *first = g->runs[0];
    const struct sw_room room = sw_run_room(m, first);
    const struct sw_plan_query query = {.what = workload_of(g, &room),
                                        .key = first->course.plan_key,
                                        .bytes = longest(g)->buffer->bytes,
                                        .choice = &first->course.plan_choice};
    if (!first->regroups)
        return sw_planner_find(&m->planner, &query, &g->plan) == SW_PLAN_USABLE;
    g->plan = *first->course.plan;
    return first->course.plan_state != SW_PLAN_STATE_MISSING;
}

static int spill(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    struct sw_group *g = &slot->group;
    const bool is_found = find_plan(m, g);
    for (unsigned i = 0; i < g->n; i++) {
        struct sw_run *run = g->runs[i];
        run->course.plan_choice = g->runs[0]->course.plan_choice;
        run->course.plan_state = SW_PLAN_STATE_UNPROVEN;
        run->regroups = false;
    }
    return is_found ? encode(m, slot, err) : make_plan(m, slot, err);
}

/* Rates are measured for a single codec. */
static bool is_of_one_codec(const struct sw_group *g) {
    for (unsigned i = 1; i < g->n; i++)
        if (g->items[i].frame.codec != g->items[0].frame.codec)
            return false;
    return true;
}

static int restore(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    struct sw_group *g = &slot->group;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < g->n; i++)
        bytes += g->items[i].frame.frame_bytes;
    slot->step = RESTORING;
    sw_link_take(m, slot, SW_LINK_BACK, bytes);
    if (is_of_one_codec(g))
        sw_measure_begin(m, slot, SW_MEASURE_RESTORE, g->items[0].frame.codec, g->raw_bytes, g->raw_bytes);
    return m->device->ops->restore_group(m->device, sw_slot_index(m, slot), g->items, g->n, err);
}

/* ---- a sink in another process ---- */

/* Hands the slot's buffer to the sink, which sends the frames of all members, or fetches them. */
static void lend(struct sw_mover *m, struct sw_slot *slot, int step) {
    const struct sw_group *g = &slot->group;
    slot->step = step;
    slot->runs = false;
    slot->is_away = true;
    for (unsigned i = 0; i < g->n; i++)
        g->runs[i]->n_in_sink++;
    (step == SENDING ? m->sink->ops->send_group : m->sink->ops->fetch_group)(m->sink, g->runs, g->items, g->n,
                                                                             sw_slot_index(m, slot));
}

/* The frames of all members follow each other in the slot's buffer. */
static void send(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_group *g = &slot->group;
    uint64_t bytes = 0;
    sw_group_drop_failed(m, g);
    if (g->n == 0) {
        sw_group_give(m, slot);
        return;
    }
    for (unsigned i = 0; i < g->n; i++)
        bytes += g->items[i].frame.frame_bytes;
    sw_group_set_phase(m, g, SW_PHASE_STORING);
    sw_measure_begin(m, slot, SW_MEASURE_LINK_OUT, g->plan.codec, g->raw_bytes, bytes);
    lend(m, slot, SENDING);
}

static void fetch(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_group *g = &slot->group;
    uint64_t at = 0;
    for (unsigned i = 0; i < g->n; at += room_bytes(g->runs[i++]))
        g->items[i].frame_at = at;
    lend(m, slot, FETCHING);
}

/* Takes the layout of a frame that was fetched. */
static int take_layout(const struct sw_run *run, struct sw_group_item *item, struct sw_err *err) {
    item->frame = run->frames->layouts[0];
    item->bytes = item->frame.raw_bytes;
    if (item->bytes && item->bytes == run->frames->raw_bytes && item->bytes <= run->buffer->bytes &&
        item->frame.frame_bytes <= sw_frame_bound_bytes(item->bytes))
        return 0;
    return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REGION, "a frame of %llu bytes holds %llu, the buffer has %llu",
                      (unsigned long long)item->frame.frame_bytes, (unsigned long long)item->bytes,
                      (unsigned long long)run->buffer->bytes);
}

/* The frames of members that have not failed are in the slot's buffer. */
static void fetched(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_group *g = &slot->group;
    struct sw_err err = {0};
    for (unsigned i = 0; i < g->n; i++)
        if (!g->runs[i]->outcome.err.code && take_layout(g->runs[i], &g->items[i], &err))
            sw_mover_fail_at(m, g->runs[i], 0, 1, &err);
    sw_group_drop_failed(m, g);
    if (g->n == 0) {
        sw_group_give(m, slot);
        return;
    }
    slot->step = RESTORING;
    slot->runs = true;
    if (m->device->ops->decode_group(m->device, sw_slot_index(m, slot), g->items, g->n, &err))
        fail_slot(m, slot, &err);
}

void sw_group_returned(struct sw_mover *m, struct sw_slot *slot, const struct sw_err *err) {
    struct sw_group *g = &slot->group;
    for (unsigned i = 0; i < g->n; i++)
        g->runs[i]->n_in_sink--;
    if (err && err->code)
        sw_group_fail(m, g, err);
    if (slot->step == FETCHING) {
        fetched(m, slot);
        return;
    }
    for (unsigned i = 0; i < g->n; i++)
        if (!g->runs[i]->outcome.err.code)
            g->runs[i]->n_done = 1;
    sw_group_give(m, slot);
}

/* Maps the memory, and fills the member's item. */
static int begin(struct sw_mover *m, struct sw_run *run, struct sw_group_item *ret, struct sw_err *err) {
    const int rc = run->regroups ? 0 : sw_run_start(m, run, err);
    if (rc)
        return rc;
    run->stage = SW_STAGE_RUNNING;
    run->n_dealt = 1;
    *ret = (struct sw_group_item){.mapping = run->buffer->memory->mapping,
                                  .offset = run->buffer->offset,
                                  .bytes = run->buffer->bytes,
                                  .may_fill_holes = run->request->may_fill_holes};
    if (run->request->operation == SW_OP_SPILL || sw_mover_sink_is_away(m))
        return 0;
    ret->stored = &run->frames->stored[0];
    ret->frame = run->frames->layouts[0];
    return sw_frames_check_memory(run->frames, 0, ret->stored, err);
}

static bool start(struct sw_mover *m, struct sw_slot *slot, struct sw_run *first) {
    struct sw_group *g = &slot->group;
    g->kind = first->request->operation;
    if (!sw_group_gather(m, g, first, &rules))
        return false;
    sw_group_take(m, slot, &sw_workflow_group);
    struct sw_turns_sum charged = {.session = NULL};
    struct sw_err err = {0};
    for (unsigned i = 0; i < g->n; i++) {
        sw_turns_sum_add(&m->turns, &charged, &g->runs[i]->turn, g->runs[i]->buffer->bytes);
        if (begin(m, g->runs[i], &g->items[i], &err))
            sw_mover_fail(m, g->runs[i], &err);
    }
    sw_turns_sum_end(&m->turns, &charged);
    sw_group_drop_failed(m, g);
    if (g->n == 0) {
        sw_group_give(m, slot);
        return true;
    }
    if (g->kind == SW_OP_RESTORE && sw_mover_sink_is_away(m))
        fetch(m, slot);
    else if (g->kind == SW_OP_SPILL ? spill(m, slot, &err) : restore(m, slot, &err))
        fail_slot(m, slot, &err);
    return true;
}

/* ---- reports ---- */

static void planned(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_group *g = &slot->group;
    struct sw_err err = {0};
    g->plan = *m->device->ops->plan(m->device, sw_slot_index(m, slot));
    sw_plan_cache_put(&m->planner.plans, g->runs[0]->course.plan_key, longest(g)->buffer->bytes,
                      &g->runs[0]->course.plan_choice, &g->plan);
    for (unsigned i = 0; i < g->n; i++)
        g->runs[i]->course.plan_choice = g->runs[0]->course.plan_choice;
    sw_group_drop_failed(m, g);
    if (g->n == 0)
        sw_group_give(m, slot);
    else if (encode(m, slot, &err))
        fail_slot(m, slot, &err);
}

/* Decides about the first member that does not match the group's plan, and so about the others. */
struct mismatches {
    const struct sw_run *first; /* NULL: there is none yet */
    enum sw_plan_mismatch answer;
};

static enum sw_plan_mismatch check_frame(struct sw_mover *m, const struct sw_group *g, unsigned i,
                                         struct mismatches *mismatches) {
    struct sw_run *run = g->runs[i];
    const struct sw_frame_layout *frame = &g->items[i].frame;
    if (run->course.plan_state != SW_PLAN_STATE_UNPROVEN)
        return SW_MISMATCH_ACCEPT;
    if (!sw_planner_is_stale(&g->plan, frame)) {
        sw_plan_cache_note_match(&m->planner.plans, run->course.plan_key, &run->course.plan_choice);
        return SW_MISMATCH_ACCEPT;
    }
    if (!sw_run_get_plan(m, run))
        return SW_MISMATCH_ACCEPT;
    if (mismatches->first && mismatches->answer != SW_MISMATCH_ACCEPT) {
        *run->course.plan = *mismatches->first->course.plan;
        run->course.plan_choice = mismatches->first->course.plan_choice;
        return mismatches->answer;
    }
    const struct sw_room room = sw_run_room(m, run);
    const struct sw_plan_query query = {.what = {.raw_bytes = run->buffer->bytes,
                                                 .chunk_bytes = g->raw_bytes,
                                                 .n_chunks = 1,
                                                 .room = &room,
                                                 .shares_step = true},
                                        .key = run->course.plan_key,
                                        .bytes = run->buffer->bytes,
                                        .choice = &run->course.plan_choice};
    *run->course.plan = g->plan;
    mismatches->first = run;
    mismatches->answer = sw_planner_handle_mismatch(&m->planner, &query, frame, run->course.plan);
    return mismatches->answer;
}

/* The run leaves the group for another plan, together with others that do. */
static void regroup(struct sw_run *run, enum sw_plan_mismatch why) {
    run->n_dealt = 0;
    run->regroups = true;
    run->course.plan_state = why == SW_MISMATCH_REPLAN ? SW_PLAN_STATE_MISSING : SW_PLAN_STATE_UNPROVEN;
}

/* Reserves room for a member's frame. Returns false if there is none. */
static bool find_place(struct sw_mover *m, const struct sw_group *g, struct sw_run *run, uint64_t frame_bytes) {
    struct sw_err err;
    if (!m->sink->ops->rests(m->sink, run,
                             frame_bytes)) { /* the tier has filled up meanwhile; the run keeps the plan */
        if (!sw_run_get_plan(m, run))
            return false;
        *run->course.plan = g->plan;
        run->n_dealt = 0;
        return false;
    }
    /* An uncommitted frame is released with the run, once no slot uses it. */
    if (!m->sink->ops->reserve(m->sink, run, frame_bytes, true, &run->frames->stored[0], &err))
        return true;
    sw_mover_fail(m, run, &err);
    return false;
}

/* Accepts a member's frame. Returns false if the member has to leave: for another plan, to be served alone, or because
 * it has failed. */
static bool accept_frame(struct sw_mover *m, struct sw_group *g, unsigned i, struct mismatches *mismatches) {
    struct sw_run *run = g->runs[i];
    const struct sw_frame_layout *frame = &g->items[i].frame;
    const enum sw_plan_mismatch mismatch = check_frame(m, g, i, &mismatches[frame->codec == SW_CODEC_RAW]);
    if (mismatch != SW_MISMATCH_ACCEPT) {
        regroup(run, mismatch);
        return false;
    }
    if (run->outcome.err.code || (!sw_mover_sink_is_away(m) && !find_place(m, g, run, frame->frame_bytes)))
        return false;
    sw_run_note_frame(run, 0, g->plan.codec, frame);
    return true;
}

static void encoded(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_group *g = &slot->group;
    struct mismatches mismatches[2] = {0}; /* for frames that shrank, and for frames that did not */
    struct sw_err err = {0};
    uint64_t bytes = 0;
    for (unsigned i = 0; i < g->n; i++) {
        struct sw_run *run = g->runs[i];
        if (!run->outcome.err.code && accept_frame(m, g, i, mismatches)) {
            g->items[i].stored = &run->frames->stored[0];
            bytes += g->items[i].frame.frame_bytes;
        } else {
            g->items[i].is_left_out = true;
            g->items[i].stored = &nowhere;
            sw_group_leave(m, g, i);
        }
    }
    if (bytes == 0) {
        sw_group_give(m, slot);
        return;
    }
    if (sw_mover_sink_is_away(m) && g->n == 1) { /* its frame is alone in the buffer */
        g->items[0].frame_at = 0;
        send(m, slot);
        return;
    }
    if (sw_mover_sink_is_away(m)) {
        slot->step = GATHERING;
        if (m->device->ops->gather_group(m->device, sw_slot_index(m, slot), g->items, g->n, g->item_bytes, &err))
            fail_slot(m, slot, &err);
        return;
    }
    sw_group_set_phase(m, g, SW_PHASE_STORING);
    slot->step = STORING;
    sw_measure_begin(m, slot, SW_MEASURE_LINK_OUT, g->plan.codec, g->raw_bytes, bytes);
    sw_link_take(m, slot, SW_LINK_OUT, bytes);
    if (m->device->ops->store_group(m->device, sw_slot_index(m, slot), g->items, g->n, &err))
        fail_slot(m, slot, &err);
}

static void stored(struct sw_mover *m, struct sw_group *g) {
    struct sw_err err = {0};
    for (unsigned i = 0; i < g->n; i++) {
        struct sw_run *run = g->runs[i];
        if (!run || run->outcome.err.code)
            continue;
        struct sw_stored *frame = &run->frames->stored[0];
        run->frames->identities[0] = g->items[i].identity;
        if (m->sink->ops->commit(m->sink, frame, &err))
            sw_mover_fail(m, run, &err);
        else
            run->n_done = 1;
    }
}

static void restored(struct sw_mover *m, struct sw_group *g) {
    struct sw_err err;
    for (unsigned i = 0; i < g->n; i++) {
        if (!g->items[i].is_damaged) {
            g->runs[i]->n_done = 1;
            continue;
        }
        if (sw_mover_sink_is_away(m)) { /* perhaps it was spoilt in the buffer: it is fetched again, alone */
            g->runs[i]->n_dealt = 0;
            continue;
        }
        (void)sw_err_set(&err, -SW_ECHECKSUM, SW_SCOPE_REGION, "tiles of a stored frame are damaged");
        sw_mover_fail_at(m, g->runs[i], 0, 1, &err);
    }
}

static void step_ended(struct sw_mover *m, struct sw_slot *slot, int rc, const struct sw_slot_result *result,
                       const struct sw_err *err) {
    struct sw_group *g = &slot->group;
    (void)result;
    if (rc) {
        step_failed(m, g, err);
        sw_group_give_unserved(m, slot);
        return;
    }
    switch (slot->step) {
    case PREPARING:
        planned(m, slot);
        return;
    case ENCODING:
        encoded(m, slot);
        return;
    case GATHERING:
        send(m, slot);
        return;
    case STORING:
        stored(m, g);
        break;
    case RESTORING:
        restored(m, g);
        break;
    default:
        SW_ASSERT(slot->step == DRAINING);
        sw_group_give_unserved(m, slot);
        return;
    }
    sw_group_give(m, slot);
}

const struct sw_workflow sw_workflow_group = {.is_shared = true, .start = start, .step_ended = step_ended};

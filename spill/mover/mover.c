/* mover.c - deals the runs' chunks to free slots, and takes the slots' reports. */
#include "spill/mover/mover_state.h"

#include "base/alloc.h"
#include "base/assert.h"

/* ---- reports ---- */

/* All steps of a slot have ended with rc. */
static void slot_ended(struct sw_mover *m, struct sw_slot *slot, int rc, const struct sw_slot_result *result,
                       const struct sw_err *err) {
    sw_measure_end(m, slot, !rc && !slot->drains);
    sw_link_ended(slot);
    slot->plans = false;
    if (slot->run)
        sw_turns_wake(&m->turns, &slot->run->turn); /* what it wants next may depend on this */
    slot->workflow->step_ended(m, slot, rc, result, err);
}

/* ---- dealing ---- */

/* Bytes that a plan is charged as: it keeps a slot busy at least as long. */
#define PLAN_BYTES ((uint64_t)16 << 20)

static void find_plan(struct sw_mover *m, struct sw_run *run) {
    if (!sw_run_needs_plan(run) || !sw_run_get_plan(m, run))
        return;
    const struct sw_snapshot now = sw_run_snapshot(m, run);
    if (!sw_planner_begin(&m->planner, &run->course, &now))
        return;
    run->outcome.planned_us = sw_mover_now_us(m);
    sw_run_set_phase(m, run, SW_PHASE_ENCODING);
}

/* Maps the memory of a run that begins, and looks for its plan. */
static bool begin(struct sw_mover *m, struct sw_run *run) {
    struct sw_err err = {0};
    if (sw_run_start(m, run, &err)) {
        sw_mover_fail(m, run, &err);
        return false;
    }
    find_plan(m, run);
    if (run->outcome.err.code)
        return false;
    run->stage = SW_STAGE_RUNNING;
    sw_run_look_at(m, run); /* without chunks it is complete */
    return true;
}

/* Serves a run, and charges it for what was dealt. */
static void serve_turn(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run) {
    const struct sw_workflow *const *next = run->workflows->first;
    const uint64_t dealt_bytes = sw_run_dealt_bytes(run);
    /* Shared workflows begin and charge each of their runs. */
    for (; *next && (*next)->is_shared; next++)
        if ((*next)->start(m, slot, run))
            return;
    run->regroups = false;
    if (run->stage != SW_STAGE_WAITING || begin(m, run)) {
        while (*next && !(*next)->start(m, slot, run))
            next++;
        if (!*next)
            (void)run->workflows->main->start(m, slot, run);
    }
    sw_turns_charge(&m->turns, &run->turn,
                    slot->plans || slot->learns ? PLAN_BYTES : sw_run_dealt_bytes(run) - dealt_bytes);
}

static unsigned count_free(const struct sw_mover *m) {
    unsigned n = 0;
    for (unsigned s = 0; s < m->n_slots; s++)
        n += sw_slot_is_free(&m->slots[s]);
    return n;
}

static bool deal(struct sw_mover *m) {
    bool advanced = false;
    for (unsigned s = 0; s < m->n_slots; s++) {
        if (!sw_slot_is_free(&m->slots[s]))
            continue;
        struct sw_run *run = sw_mover_next_run(m, count_free(m));
        if (!run) /* nor for any other slot */
            break;
        serve_turn(m, &m->slots[s], run);
        advanced = true;
    }
    return advanced;
}

/* Returns the slot whose waiting frame has its turn, apart from the `passed` slots. NULL: none. */
static struct sw_slot *next_waiting(struct sw_mover *m, unsigned passed) {
    struct sw_slot *best = NULL;
    for (unsigned s = 0; s < m->n_slots; s++) {
        struct sw_slot *slot = &m->slots[s];
        if (slot->waits && !(passed & 1u << s) && (!best || sw_turns_goes_before(&slot->run->turn, &best->run->turn)))
            best = slot;
    }
    return best;
}

/* Frames that waited for the link, or for host memory: tries again, or gives up if their run has failed. */
static bool store_waiting(struct sw_mover *m) {
    bool advanced = false;
    struct sw_slot *slot;
    for (unsigned passed = 0; (slot = next_waiting(m, passed)); passed |= 1u << sw_slot_index(m, slot)) {
        slot->workflow->resume(m, slot);
        advanced |= !slot->waits;
    }
    return advanced;
}

static struct sw_run *run_of_due(struct sw_list *node) {
    return SW_CONTAINER_OF(node, struct sw_run, due);
}

/* Returns true if the run goes on without a slot, so that it is looked at in each step. */
static bool advances(const struct sw_run *run) {
    return run->stage == SW_STAGE_RUNNING && !run->outcome.err.code && run->workflows->main->advance &&
           !sw_run_complete(run);
}

/* Lets the sink do its next work for the runs. */
static bool transfer(struct sw_mover *m) {
    const struct sw_frame_sink_ops *ops = m->sink->ops;
    bool advanced = ops->collect && ops->collect(m->sink);
    advanced |= store_waiting(m);
    advanced |= ops->deal && ops->deal(m->sink);
    for (struct sw_list *node = m->due.next; node != &m->due; node = node->next) {
        struct sw_run *run = run_of_due(node);
        if (advances(run))
            advanced |= run->workflows->main->advance(m, run);
    }
    return advanced;
}

/* Failed runs are abandoned in any stage: one may have frames in the sink while a plan is made for its rest. */
static bool abandon_runs(struct sw_mover *m) {
    bool advanced = false;
    for (struct sw_list *node = m->due.next; node != &m->due; node = node->next) {
        struct sw_run *run = run_of_due(node);
        if (!run->outcome.err.code)
            continue;
        if (run->n_in_sink > 0 && m->sink->ops->abandon)
            m->sink->ops->abandon(m->sink, run);
        if (run->workflows->main->abandon)
            advanced |= run->workflows->main->abandon(m, run);
    }
    return advanced;
}

/* Returns true if nothing is left to undo. */
static bool is_abandoned(const struct sw_run *run) {
    return run->is_undone || !run->workflows->main->abandon;
}

static bool is_over(const struct sw_run *run) {
    return run->n_slots == 0 && run->n_in_sink == 0 &&
           (run->outcome.err.code ? is_abandoned(run) : sw_run_complete(run));
}

static void finish(struct sw_mover *m, struct sw_run *run) {
    if (run->workflows->main->finish)
        run->workflows->main->finish(run);
    sw_run_finish(m, run);
}

/* Finishes runs that are over. Failed runs are looked at again until then. */
static bool finish_runs(struct sw_mover *m) {
    bool advanced = false;
    for (struct sw_list *node = m->due.next, *next; node != &m->due; node = next) {
        struct sw_run *run = run_of_due(node);
        next = node->next;
        if (is_over(run)) {
            finish(m, run);
            advanced = true;
        } else if (!run->outcome.err.code && !advances(run)) {
            sw_list_remove(node);
        }
    }
    return advanced;
}

/* ---- interface ---- */

int sw_mover_new(struct sw_mover **ret, struct sw_device *device, struct sw_frame_sink *sink,
                 const struct sw_mover_host *host, struct sw_err *err) {
    unsigned n_slots = device->ops->info(device)->n_slots;
    struct sw_mover *m = sw_alloc(sizeof *m + n_slots * sizeof m->slots[0]);
    if (!m)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DEVICE, "out of memory for a mover");
    m->device = device;
    m->sink = sink;
    m->host = *host;
    sink->mover = m;
    m->n_slots = m->planner.n_slots = n_slots;
    m->planner.full_segments = device->ops->info(device)->full_segments;
    m->planner.has_link = device->ops->info(device)->has_link || sw_mover_sink_is_away(m);
    m->planner.is_beside_data = sw_mover_sink_is_away(m);
    m->planner.takes_dictionaries = device->ops->info(device)->takes_dictionaries;
    m->planner.learns_dictionaries = device->ops->info(device)->learns_dictionaries;
    sw_list_init(&m->runs);
    sw_list_init(&m->due);
    sw_list_init(&m->dictionaries);
    sw_turns_init(&m->turns);
    for (unsigned s = 0; s < n_slots; s++) {
        int rc = sw_group_init(&m->slots[s].group, device->ops->info(device)->group_items, err);
        if (rc) {
            sw_mover_free(m);
            return rc;
        }
    }
    *ret = m;
    return 0;
}

void sw_mover_free(struct sw_mover *m) {
    if (!m)
        return;
    SW_ASSERT(sw_list_empty(&m->runs) && m->n_mapped == 0);
    for (unsigned s = 0; s < m->n_slots; s++)
        sw_group_fini(&m->slots[s].group);
    sw_mover_free_dictionaries(m);
    sw_turns_fini(&m->turns);
    sw_free(m);
}

void sw_mover_add(struct sw_mover *m, struct sw_run *run) {
    struct sw_err err;
    run->workflows = sw_workflows(m, run->request->operation);
    sw_list_init(&run->due);
    if (m->lost.code)
        sw_mover_fail(m, run, &m->lost);
    sw_run_note_canceled(m, run); /* before it has come */
    sw_list_append(&m->runs, &run->node);
    if (run->request->operation == SW_OP_MOVE) {
        run->stage = SW_STAGE_RUNNING; /* nothing to map */
        sw_run_look_at(m, run);
    } else if (sw_run_join_turns(m, run, &err)) {
        sw_mover_fail(m, run, &err);
    }
    if (run->buffer)
        run->course.plan_key = sw_plan_key(run->request->session, run->buffer->type, run->buffer->number);
    m->is_settled = false;
}

static bool sink_has_news(const struct sw_mover *m) {
    return m->sink->ops->has_news && m->sink->ops->has_news(m->sink);
}

bool sw_mover_step(struct sw_mover *m, bool is_polling) {
    bool advanced = false;
    m->now_us = 0;
    sw_mover_note_canceled(m);
    for (unsigned s = 0; s < m->n_slots; s++) {
        if (!m->slots[s].runs)
            continue;
        struct sw_slot_result result = {0};
        struct sw_err err = {0};
        int rc = m->device->ops->slot_poll(m->device, s, &result, &err);
        if (rc != -SW_EAGAIN) {
            slot_ended(m, &m->slots[s], rc, &result, &err);
            advanced = true;
        }
    }
    m->woke_us = 0;
    /* Looking at hundreds of short runs takes longer than polling the slots. */
    const bool looks = m->look_us && sw_mover_now_us(m) >= m->look_us;
    if (is_polling && m->is_settled && !advanced && !looks && !sink_has_news(m))
        return false;
    m->look_us = 0;
    advanced |= abandon_runs(m);
    advanced |= transfer(m);
    advanced |= deal(m);
    advanced |= finish_runs(m);
    m->is_settled = !advanced;
    m->now_us = 0;
    return advanced;
}

bool sw_mover_wait(struct sw_mover *m) {
    struct sw_slot *oldest = NULL;
    for (unsigned s = 0; s < m->n_slots; s++) {
        struct sw_slot *slot = &m->slots[s];
        if (slot->runs && (!oldest || slot->age < oldest->age))
            oldest = slot;
    }
    if (!oldest)
        return false;
    struct sw_slot_result result = {0};
    struct sw_err err = {0};
    int rc = m->device->ops->slot_wait(m->device, sw_slot_index(m, oldest), &result, &err);
    const uint64_t woke_us = sw_clock_us();
    sw_mover_note_canceled(m);
    m->now_us = woke_us;
    slot_ended(m, oldest, rc, &result, &err);
    m->now_us = 0;
    m->is_settled = false;
    m->woke_us = woke_us;
    return true;
}

bool sw_mover_has_steps(const struct sw_mover *m) {
    for (unsigned s = 0; s < m->n_slots; s++)
        if (m->slots[s].runs)
            return true;
    return false;
}

bool sw_mover_must_go_on(const struct sw_mover *m) {
    for (const struct sw_list *node = m->runs.next; node != &m->runs; node = node->next)
        if (SW_CONTAINER_OF(node, const struct sw_run, node)->in_place.must_go_on)
            return true;
    return false;
}

void sw_mover_retire_slot(struct sw_mover *m, unsigned s) {
    unsigned n_left = 0;
    for (unsigned i = 0; i < m->n_slots; i++)
        n_left += i != s && !m->slots[i].is_retired;
    m->slots[s].is_retired = n_left > 0;
}

bool sw_mover_busy(const struct sw_mover *m) {
    return !sw_list_empty(&m->runs);
}

bool sw_mover_lost(const struct sw_mover *m) {
    return m->lost.code != 0;
}

unsigned sw_mover_mapped(const struct sw_mover *m) {
    return m->n_mapped;
}

/* mover.c - deals chunks of the runs to free slots, and takes the reports of those that work. */
#include "spill/mover/mover_state.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"

/* ---- slots ---- */

void sw_slot_take(struct sw_mover *m, struct sw_slot *slot, enum sw_slot_state state, struct sw_run *run) {
    slot->state = state;
    slot->run = run;
    slot->age = m->next_age++;
    sw_run_hold_slot(run);
}

void sw_slot_give(struct sw_mover *m, struct sw_slot *slot) {
    m->sink->ops->release(m->sink, &slot->stored); /* empty once it was committed */
    sw_direct_fini(m, slot);
    sw_run_give_slot(m, slot->run);
    slot->run = NULL;
    slot->state = SW_SLOT_FREE;
}

/* At the chunks that the slot restores; on the way out nothing is stored yet that could be bad. */
static void fail_at_slot(struct sw_mover *m, const struct sw_slot *slot, const struct sw_err *err) {
    const size_t n = slot->direct.n > 0 ? slot->direct.n : slot->n_chunks;
    sw_mover_fail_at(m, slot->run, slot->chunk, slot->run->request->operation == SW_OP_RESTORE ? n : 0, err);
}

void sw_slot_fail(struct sw_mover *m, struct sw_slot *slot, const struct sw_err *err) {
    fail_at_slot(m, slot, err);
    slot->state = SW_SLOT_DRAINING;
}

/* ---- reports ---- */

static bool works_in_place(const struct sw_slot *slot) {
    return slot->state == SW_SLOT_PLACING || slot->state == SW_SLOT_COMPARING || slot->state == SW_SLOT_FETCHING ||
           slot->state == SW_SLOT_UNPACKING || slot->state == SW_SLOT_DECODING;
}

/* All steps of a slot have ended with rc. */
static void slot_ended(struct sw_mover *m, struct sw_slot *slot, int rc, const struct sw_slot_result *result,
                       const struct sw_err *err) {
    struct sw_run *run = slot->run;
    sw_measure_end(m, slot, !rc && slot->state != SW_SLOT_DRAINING);
    sw_link_ended(slot);
    if (slot->group.n > 0) {
        sw_group_ended(m, slot, rc, err);
        return;
    }
    sw_turns_wake(&m->turns, &run->turn); /* what it wants next may depend on this */
    if (works_in_place(slot)) {
        sw_in_place_ended(m, slot, rc, err);
        return;
    }
    if (rc)
        fail_at_slot(m, slot, err);
    /* A restore's last chunk is done even if somebody has lost interest. */
    if (slot->state != SW_SLOT_RESTORING && slot->state != SW_SLOT_STORING)
        sw_run_check_canceled(run);
    if (!run->outcome.err.code) {
        switch (slot->state) {
        case SW_SLOT_PREPARING:
            sw_slot_prepared(m, slot);
            break;
        case SW_SLOT_REPLANNING:
            sw_slot_replanned(m, slot);
            return; /* still busy */
        case SW_SLOT_ENCODING:
            sw_slot_encoded(m, slot, result);
            return; /* still busy */
        case SW_SLOT_STORING:
            sw_slot_stored(m, slot);
            break;
        case SW_SLOT_RESTORING:
            run->n_done += slot->direct.n > 0 ? slot->direct.n : slot->n_chunks;
            break;
        default:
            SW_ASSERT(false && "a slot without a healthy run cannot end");
        }
    }
    sw_slot_give(m, slot);
}

/* ---- dealing ---- */

/* What a plan counts for, which keeps a slot busy as long as so many bytes or more. */
#define PLAN_BYTES ((uint64_t)16 << 20)

static void find_plan(struct sw_mover *m, struct sw_run *run) {
    if (!sw_run_needs_plan(run) || !sw_run_find_plan(m, run))
        return;
    run->outcome.planned_us = sw_clock_us();
    sw_run_set_phase(m, run, SW_PHASE_ENCODING);
}

static void serve(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run) {
    struct sw_err err = {0};
    run->regroups = false;
    if (run->stage == SW_STAGE_WAITING) {
        if (sw_run_start(m, run, &err)) {
            sw_mover_fail(m, run, &err);
            return;
        }
        find_plan(m, run);
        run->stage = SW_STAGE_RUNNING;
    }
    if (run->stage == SW_STAGE_RUNNING && sw_run_needs_plan(run))
        sw_slot_prepare(m, slot, run);
    else if (run->request->operation == SW_OP_UNPACK && sw_in_place_may_unpack(m, run))
        sw_in_place_unpack(m, slot, run);
    else if (run->n_dealt < run->frames->n_chunks && sw_operation_encodes(run->request->operation))
        sw_slot_spill(m, slot, run);
    else if (run->n_dealt < run->frames->n_chunks && run->request->operation == SW_OP_RESTORE &&
             m->sink->ops->has(m->sink, run, run->n_dealt))
        sw_slot_restore(m, slot, run);
}

/* Serves a run, and charges it for what that deals out. */
static void serve_turn(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run) {
    const uint64_t dealt_bytes = sw_run_dealt_bytes(run);
    if (sw_group_serve(m, slot, run)) /* whose members are charged each */
        return;
    serve(m, slot, run);
    const bool makes_plan = slot->state == SW_SLOT_PREPARING && slot->planned_since_us;
    sw_turns_charge(&m->turns, &run->turn, makes_plan ? PLAN_BYTES : sw_run_dealt_bytes(run) - dealt_bytes);
}

static unsigned count_free(const struct sw_mover *m) {
    unsigned n = 0;
    for (unsigned s = 0; s < m->n_slots; s++)
        n += m->slots[s].state == SW_SLOT_FREE;
    return n;
}

static bool deal(struct sw_mover *m) {
    bool advanced = false;
    for (unsigned s = 0; s < m->n_slots; s++) {
        if (m->slots[s].state != SW_SLOT_FREE)
            continue;
        struct sw_run *run = sw_mover_next_run(m, count_free(m));
        if (!run) /* for no other slot either */
            break;
        serve_turn(m, &m->slots[s], run);
        advanced = true;
    }
    return advanced;
}

/* Slots with steps queued, whose end can be asked for. */
static bool slot_runs(const struct sw_slot *slot) {
    return slot->state != SW_SLOT_FREE && slot->state != SW_SLOT_HOLDING && slot->state != SW_SLOT_TORN &&
           slot->state != SW_SLOT_WAITING;
}

/* Of the slots whose frames wait and that are not among the `passed` ones, the one whose turn it is; NULL: none. */
static struct sw_slot *next_waiting(struct sw_mover *m, unsigned passed) {
    struct sw_slot *best = NULL;
    for (unsigned s = 0; s < m->n_slots; s++) {
        struct sw_slot *slot = &m->slots[s];
        if (slot->state == SW_SLOT_WAITING && !(passed & 1u << s) &&
            (!best || sw_turns_goes_before(&slot->run->turn, &best->run->turn)))
            best = slot;
    }
    return best;
}

/* Frames that waited for the link, or for host memory: tries again, or gives up with their run. */
static bool store_waiting(struct sw_mover *m) {
    bool advanced = false;
    struct sw_slot *slot;
    for (unsigned passed = 0; (slot = next_waiting(m, passed)); passed |= 1u << sw_slot_index(m, slot)) {
        sw_run_check_canceled(slot->run);
        if (!slot->run->outcome.err.code) {
            advanced |= sw_slot_begin_store(m, slot);
        } else {
            sw_slot_give(m, slot);
            advanced = true;
        }
    }
    return advanced;
}

/* What the sink is to do next for the runs. */
static bool transfer(struct sw_mover *m) {
    const struct sw_frame_sink_ops *ops = m->sink->ops;
    bool advanced = ops->collect && ops->collect(m->sink);
    advanced |= store_waiting(m);
    for (struct sw_list *node = m->runs.next; node != &m->runs; node = node->next) {
        struct sw_run *run = SW_CONTAINER_OF(node, struct sw_run, node);
        if (run->stage != SW_STAGE_RUNNING)
            continue;
        if (run->outcome.err.code)
            ops->abandon(m->sink, run);
        else if (run->request->operation == SW_OP_RESTORE)
            advanced |= ops->get(m->sink, run);
        else if (run->request->operation == SW_OP_MOVE)
            advanced |= ops->move(m->sink, run);
    }
    return advanced;
}

static bool recover_runs(struct sw_mover *m) {
    bool advanced = false;
    for (struct sw_list *node = m->runs.next; node != &m->runs; node = node->next) {
        struct sw_run *run = SW_CONTAINER_OF(node, struct sw_run, node);
        if (run->outcome.err.code && sw_operation_is_in_place(run->request->operation))
            advanced |= sw_in_place_recover(m, run);
    }
    return advanced;
}

static bool finish_runs(struct sw_mover *m) {
    bool advanced = false;
    for (struct sw_list *node = m->runs.next, *next; node != &m->runs; node = next) {
        struct sw_run *run = SW_CONTAINER_OF(node, struct sw_run, node);
        next = node->next;
        if (!sw_run_complete(run))
            sw_run_check_canceled(run);
        if (run->n_slots == 0 && run->n_in_sink == 0 &&
            (run->outcome.err.code ? sw_in_place_recovered(run) : sw_run_complete(run))) {
            sw_run_finish(m, run);
            advanced = true;
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
    m->n_slots = n_slots;
    sw_list_init(&m->runs);
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
    sw_turns_fini(&m->turns);
    sw_free(m);
}

void sw_mover_add(struct sw_mover *m, struct sw_run *run) {
    struct sw_err err = {0};
    if (m->lost.code)
        sw_mover_fail(m, run, &m->lost);
    sw_list_append(&m->runs, &run->node);
    if (run->request->operation == SW_OP_MOVE)
        run->stage = SW_STAGE_RUNNING; /* nothing to map */
    else if (sw_run_join_turns(m, run, &err))
        sw_mover_fail(m, run, &err);
    m->is_settled = false;
}

static bool sink_has_news(const struct sw_mover *m) {
    return m->sink->ops->has_news && m->sink->ops->has_news(m->sink);
}

bool sw_mover_step(struct sw_mover *m, bool is_polling) {
    bool advanced = false;
    for (unsigned s = 0; s < m->n_slots; s++) {
        if (!slot_runs(&m->slots[s]))
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
    /* With hundreds of short runs a look at all of them takes longer than one at the slots. */
    const bool link_opens = m->link_opens_us && sw_clock_us() >= m->link_opens_us;
    if (is_polling && m->is_settled && !advanced && !link_opens && !sink_has_news(m))
        return false;
    m->link_opens_us = 0;
    advanced |= recover_runs(m);
    advanced |= transfer(m);
    advanced |= deal(m);
    advanced |= finish_runs(m);
    m->is_settled = !advanced;
    return advanced;
}

bool sw_mover_wait(struct sw_mover *m) {
    struct sw_slot *oldest = NULL;
    for (unsigned s = 0; s < m->n_slots; s++) {
        struct sw_slot *slot = &m->slots[s];
        if (slot_runs(slot) && (!oldest || slot->age < oldest->age))
            oldest = slot;
    }
    if (!oldest)
        return false;
    struct sw_slot_result result = {0};
    struct sw_err err = {0};
    int rc = m->device->ops->slot_wait(m->device, sw_slot_index(m, oldest), &result, &err);
    const uint64_t woke_us = sw_clock_us();
    slot_ended(m, oldest, rc, &result, &err);
    m->is_settled = false;
    m->woke_us = woke_us;
    return true;
}

bool sw_mover_has_steps(const struct sw_mover *m) {
    for (unsigned s = 0; s < m->n_slots; s++)
        if (slot_runs(&m->slots[s]))
            return true;
    return false;
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

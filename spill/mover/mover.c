/* mover.c - deals chunks of the jobs to free slots, and takes the reports of those that work. */
#include "spill/mover/mover_state.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "spill/mover/transfer.h"

/* ---- slots ---- */

void sw_slot_take(struct sw_mover *m, struct sw_slot *slot, enum sw_slot_state state, struct sw_job *job) {
    slot->state = state;
    slot->job = job;
    slot->age = m->next_age++;
    sw_job_hold_slot(job);
}

void sw_slot_give(struct sw_mover *m, struct sw_slot *slot) {
    if (slot->is_staged && slot->stored.tier)
        sw_placement_arrived(m->place, sw_job_encodes(slot->job->kind) ? SW_TIER_WRITE : SW_TIER_READ, &slot->stored);
    sw_stored_release(&slot->stored); /* empty once it was committed */
    sw_direct_fini(slot);
    slot->is_staged = false;
    sw_job_give_slot(m, slot->job);
    slot->job = NULL;
    slot->state = SW_SLOT_FREE;
}

/* At the chunks that the slot restores; on the way out nothing is stored yet that could be bad. */
static void fail_at_slot(struct sw_mover *m, const struct sw_slot *slot, const struct sw_err *err) {
    const size_t n = slot->direct.n > 0 ? slot->direct.n : slot->n_chunks;
    sw_mover_fail_at(m, slot->job, slot->chunk, slot->job->kind == SW_JOB_RESTORE ? n : 0, err);
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
    struct sw_job *job = slot->job;
    sw_measure_end(m, slot, !rc && slot->state != SW_SLOT_DRAINING);
    sw_link_ended(slot);
    if (slot->group.n > 0) {
        sw_group_ended(m, slot, rc, err);
        return;
    }
    sw_turns_wake(&m->turns, &job->turn); /* what it wants next may depend on this */
    if (works_in_place(slot)) {
        sw_in_place_ended(m, slot, rc, err);
        return;
    }
    if (rc)
        fail_at_slot(m, slot, err);
    /* A restore's last chunk is done even if somebody has lost interest. */
    if (slot->state != SW_SLOT_RESTORING && slot->state != SW_SLOT_STORING)
        sw_job_check_canceled(job);
    if (!job->err.code) {
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
            if (slot->is_staged) {
                sw_transfer_out(m, slot);
                return; /* given back */
            }
            sw_slot_stored(m, slot);
            break;
        case SW_SLOT_RESTORING:
            job->n_done += slot->direct.n > 0 ? slot->direct.n : slot->n_chunks;
            break;
        default:
            SW_ASSERT(false && "a slot without a healthy job cannot end");
        }
    }
    sw_slot_give(m, slot);
}

/* ---- dealing ---- */

/* What a plan counts for, which keeps a slot busy as long as so many bytes or more. */
#define PLAN_BYTES ((uint64_t)16 << 20)

static void find_plan(struct sw_mover *m, struct sw_job *job) {
    if (!sw_job_needs_plan(job) || !sw_job_find_plan(m, job))
        return;
    job->planned_us = sw_clock_us();
    sw_job_set_phase(m, job, SW_PHASE_ENCODING);
}

static void serve(struct sw_mover *m, struct sw_slot *slot, struct sw_job *job) {
    struct sw_err err = {0};
    job->regroups = false;
    if (job->stage == SW_STAGE_WAITING) {
        if (sw_job_start(m, job, &err)) {
            sw_mover_fail(m, job, &err);
            return;
        }
        find_plan(m, job);
        job->stage = SW_STAGE_RUNNING;
    }
    if (job->stage == SW_STAGE_RUNNING && sw_job_needs_plan(job))
        sw_slot_prepare(m, slot, job);
    else if (job->kind == SW_JOB_UNPACK && sw_in_place_may_unpack(m, job))
        sw_in_place_unpack(m, slot, job);
    else if (job->n_dealt < job->frames->n_chunks && sw_job_encodes(job->kind))
        sw_slot_spill(m, slot, job);
    else if (job->n_dealt < job->frames->n_chunks && job->kind == SW_JOB_RESTORE &&
             sw_transfer_is_at_hand(job, job->n_dealt))
        sw_slot_restore(m, slot, job);
}

/* Serves a job, and charges it for what that deals out. */
static void serve_turn(struct sw_mover *m, struct sw_slot *slot, struct sw_job *job) {
    const uint64_t dealt_bytes = sw_job_dealt_bytes(job);
    if (sw_group_serve(m, slot, job)) /* whose members are charged each */
        return;
    serve(m, slot, job);
    const bool makes_plan = slot->state == SW_SLOT_PREPARING && slot->planned_since_us;
    sw_turns_charge(&m->turns, &job->turn, makes_plan ? PLAN_BYTES : sw_job_dealt_bytes(job) - dealt_bytes);
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
        struct sw_job *job = sw_mover_next_job(m, count_free(m));
        if (!job) /* for no other slot either */
            break;
        serve_turn(m, &m->slots[s], job);
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
            (!best || sw_turns_goes_before(&slot->job->turn, &best->job->turn)))
            best = slot;
    }
    return best;
}

/* Frames that waited for the link, or for host memory: tries again, or gives up with their job. */
static bool store_waiting(struct sw_mover *m) {
    bool advanced = false;
    struct sw_slot *slot;
    for (unsigned passed = 0; (slot = next_waiting(m, passed)); passed |= 1u << sw_slot_index(m, slot)) {
        sw_job_check_canceled(slot->job);
        if (!slot->job->err.code) {
            advanced |= sw_slot_begin_store(m, slot);
        } else {
            sw_slot_give(m, slot);
            advanced = true;
        }
    }
    return advanced;
}

/* What the disk is to do next for the jobs. */
static bool transfer(struct sw_mover *m) {
    bool advanced = sw_transfer_collect(m);
    advanced |= store_waiting(m);
    for (struct sw_list *node = m->jobs.next; node != &m->jobs; node = node->next) {
        struct sw_job *job = SW_CONTAINER_OF(node, struct sw_job, node);
        if (job->stage != SW_STAGE_RUNNING)
            continue;
        if (job->err.code)
            sw_transfer_abandon(m, job);
        else if (job->kind == SW_JOB_RESTORE)
            advanced |= sw_transfer_read_ahead(m, job);
        else if (sw_job_moves(job->kind))
            advanced |= sw_transfer_move(m, job);
    }
    return advanced;
}

static bool recover_jobs(struct sw_mover *m) {
    bool advanced = false;
    for (struct sw_list *node = m->jobs.next; node != &m->jobs; node = node->next) {
        struct sw_job *job = SW_CONTAINER_OF(node, struct sw_job, node);
        if (job->err.code && sw_job_is_in_place(job->kind))
            advanced |= sw_in_place_recover(m, job);
    }
    return advanced;
}

static bool finish_jobs(struct sw_mover *m) {
    bool advanced = false;
    for (struct sw_list *node = m->jobs.next, *next; node != &m->jobs; node = next) {
        struct sw_job *job = SW_CONTAINER_OF(node, struct sw_job, node);
        next = node->next;
        if (!sw_job_complete(job))
            sw_job_check_canceled(job);
        if (job->n_slots == 0 && job->n_transfers == 0 && job->n_ahead == 0 &&
            (job->err.code ? sw_in_place_recovered(job) : sw_job_complete(job))) {
            sw_job_finish(m, job);
            advanced = true;
        }
    }
    return advanced;
}

/* ---- interface ---- */

int sw_mover_new(struct sw_mover **ret, struct sw_device *device, struct sw_placement *place,
                 const struct sw_mover_sink *sink, struct sw_err *err) {
    unsigned n_slots = device->ops->info(device)->n_slots;
    struct sw_mover *m = sw_alloc(sizeof *m + n_slots * sizeof m->slots[0]);
    if (!m)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DEVICE, "out of memory for a mover");
    m->device = device;
    m->place = place;
    m->sink = *sink;
    m->n_slots = n_slots;
    sw_list_init(&m->jobs);
    sw_turns_init(&m->turns);
    sw_list_init(&m->arrived);
    (void)pthread_mutex_init(&m->arrived_lock, NULL);
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
    SW_ASSERT(sw_list_empty(&m->jobs) && m->n_mapped == 0 && m->n_transfers == 0);
    for (unsigned s = 0; s < m->n_slots; s++)
        sw_group_fini(&m->slots[s].group);
    sw_turns_fini(&m->turns);
    (void)pthread_mutex_destroy(&m->arrived_lock);
    sw_free(m);
}

void sw_mover_add(struct sw_mover *m, struct sw_job *job) {
    if (job->kind == SW_JOB_UNMAP) {
        sw_job_unmap(m, job);
        sw_mem_desc_fini(&job->mem->desc);
        m->sink.finished(job, m->sink.arg);
        return;
    }
    if (m->lost.code)
        sw_mover_fail(m, job, &m->lost);
    if (job->kind == SW_JOB_CANARY) {
        if (!job->err.code && m->device->ops->canary && m->device->ops->canary(m->device, &job->err))
            sw_mover_fail(m, job, &job->err);
        m->sink.finished(job, m->sink.arg);
        return;
    }
    if (job->kind == SW_JOB_MAP) {
        if (!job->err.code && sw_job_map(m, job, &job->err))
            sw_mover_fail(m, job, &job->err);
        m->sink.finished(job, m->sink.arg);
        return;
    }
    sw_list_init(&job->ready);
    if (sw_job_moves(job->kind))
        job->stage = SW_STAGE_RUNNING; /* nothing to map */
    sw_list_append(&m->jobs, &job->node);
    struct sw_err err = {0};
    if (!sw_job_moves(job->kind) && sw_job_join_turns(m, job, &err))
        sw_mover_fail(m, job, &err);
    m->is_settled = false;
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
    /* With hundreds of short jobs a look at all of them takes longer than one at the slots. */
    const bool link_opens = m->link_opens_us && sw_clock_us() >= m->link_opens_us;
    if (is_polling && m->is_settled && !advanced && !link_opens && !atomic_load(&m->has_arrived))
        return false;
    m->link_opens_us = 0;
    advanced |= recover_jobs(m);
    advanced |= transfer(m);
    advanced |= deal(m);
    advanced |= finish_jobs(m);
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
    return !sw_list_empty(&m->jobs);
}

bool sw_mover_lost(const struct sw_mover *m) {
    return m->lost.code != 0;
}

unsigned sw_mover_mapped(const struct sw_mover *m) {
    return m->n_mapped;
}

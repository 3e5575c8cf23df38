#include "spill/pipeline/pipeline_state.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "spill/pipeline/transfer.h"
#include "spill/policy.h"

#include <string.h>

/* ---- slots ---- */

void sw_slot_take(struct sw_pipeline *p, struct sw_slot *slot, enum sw_slot_state state, struct sw_job *job) {
    slot->state = state;
    slot->job = job;
    slot->age = p->next_age++;
    job->n_slots++;
}

void sw_slot_give(struct sw_pipeline *p, struct sw_slot *slot) {
    if (slot->is_staged && slot->stored.tier)
        sw_placement_arrived(p->place, sw_job_encodes(slot->job->kind) ? SW_TIER_WRITE : SW_TIER_READ, &slot->stored);
    sw_stored_release(&slot->stored); /* empty once it was committed */
    sw_direct_fini(slot);
    slot->is_staged = false;
    slot->job->n_slots--;
    slot->job = NULL;
    slot->waits_for_client = slot->has_chunk = false;
    slot->state = SW_SLOT_FREE;
}

/* A step could not be queued: its job fails, what is already queued on the slot must end. */
static void slot_fail(struct sw_pipeline *p, struct sw_slot *slot, const struct sw_err *err) {
    sw_pipeline_fail(p, slot->job, err);
    slot->state = SW_SLOT_DRAINING;
}

/* ---- steps ---- */

/* Part of the range that has not been dealt out. */
static uint64_t rest_bytes(const struct sw_job *job) {
    return job->bytes - (job->n_dealt < job->frames->n_chunks ? job->n_dealt * job->frames->chunk_bytes : job->bytes);
}

static uint64_t rest_offset(const struct sw_job *job) {
    return job->offset + (job->bytes - rest_bytes(job));
}

/* A plan is still to be made. */
static bool needs_plan(const struct sw_job *job) {
    return sw_job_encodes(job->kind) && rest_bytes(job) > 0 && job->plan_state == SW_JOB_PLAN_MISSING;
}

static void find_plan(struct sw_pipeline *p, struct sw_job *job) {
    if (!needs_plan(job) || !sw_job_find_plan(p, job))
        return;
    job->planned_us = sw_clock_us();
    sw_job_set_phase(p, job, SW_PHASE_ENCODING);
}

/* Waits for the client's event and has a plan made for what is still to be spilled. */
static void prepare(struct sw_pipeline *p, struct sw_slot *slot, struct sw_job *job) {
    const struct sw_device_ops *ops = p->device->ops;
    unsigned s = sw_slot_index(p, slot);
    struct sw_err err = {0};
    int rc = 0;
    sw_slot_take(p, slot, SW_SLOT_PREPARING, job);
    if (job->stage == SW_STAGE_WAITING && job->has_event)
        rc = ops->wait_event(p->device, s, job->session, job->event, &err);
    slot->waits_for_client = rc > 0;
    job->stage = SW_STAGE_PREPARING;
    slot->planned_since_us = needs_plan(job) ? sw_clock_us() : 0;
    if (rc >= 0 && slot->planned_since_us)
        rc = ops->make_plan(p->device, s, job->value_type, job->mem->mapping, rest_offset(job), rest_bytes(job), &err);
    if (rc < 0)
        slot_fail(p, slot, &err);
}

static void prepared(struct sw_pipeline *p, const struct sw_slot *slot, bool waited_for_client) {
    struct sw_job *job = slot->job;
    if (slot->planned_since_us) {
        job->plan = *p->device->ops->plan(p->device, sw_slot_index(p, slot));
        job->plan_state = SW_JOB_PLAN_SETTLED;
        if (!waited_for_client)
            sw_measure_plan(p, sw_clock_us() - slot->planned_since_us);
        sw_plan_cache_put(&p->plans, job->plan_key, &job->plan_choice, &job->plan);
        const size_t first = slot->has_chunk ? slot->chunk : job->n_dealt;
        if (first < job->frames->n_chunks) /* else it came too late for this one */
            sw_job_weigh(p, job, first);
        job->plan_number++;
        if (!job->planned_us)
            job->planned_us = sw_clock_us();
        if (atomic_load(&job->phase) == SW_PHASE_STAGING)
            sw_job_set_phase(p, job, SW_PHASE_ENCODING);
    }
    job->stage = SW_STAGE_RUNNING;
}

/* Queues the slot's chunk, by the job's plan. */
static void encode_chunk(struct sw_pipeline *p, struct sw_slot *slot) {
    struct sw_err err = {0};
    struct sw_job *job = slot->job;
    const uint64_t offset = job->offset + slot->chunk * job->frames->chunk_bytes,
                   raw_bytes = sw_frames_chunk_bytes(job->frames, slot->chunk);
    slot->plan_number = job->plan_number;
    if (!slot->waits_for_client)
        sw_measure_begin(p, slot, SW_MEASURE_ENCODE, job->plan.codec, raw_bytes, raw_bytes);
    sw_plan_set_segments(p, &job->plan, job->frames->n_chunks > 1 ? job->frames->chunk_bytes : job->bytes);
    if (p->device->ops->encode(p->device, sw_slot_index(p, slot), &job->plan, job->mem->mapping, offset, raw_bytes,
                               &err))
        slot_fail(p, slot, &err);
}

static void encode(struct sw_pipeline *p, struct sw_slot *slot, struct sw_job *job) {
    sw_slot_take(p, slot, SW_SLOT_ENCODING, job);
    slot->chunk = job->n_dealt++;
    encode_chunk(p, slot);
    if (job->trial == SW_TRIAL_NEXT_CHUNK && job->n_dealt < job->frames->n_chunks)
        sw_plan_init_raw(&job->plan);
    job->trial = SW_TRIAL_NONE;
}

/* A chunk's frame is complete on the device: keeps the books and looks whether the data have drifted. */
static void note_encoded(struct sw_pipeline *p, const struct sw_slot *slot) {
    struct sw_job *job = slot->job;
    sw_job_note_frame(job, slot->chunk, job->plan.codec, &slot->frame);
    if (job->n_encoded == job->frames->n_chunks)
        sw_job_set_phase(p, job, SW_PHASE_STORING);
    struct sw_policy_drift drift = {
        .expected_ratio = sw_plan_data_ratio(&job->plan),
        .raw_bytes = slot->frame.raw_bytes,
        .data_bytes = slot->frame.frame_bytes - slot->frame.data_offset,
        .rest_bytes = rest_bytes(job),
        .chunk_bytes = job->frames->chunk_bytes,
        .n_retrained = job->n_retrained,
    };
    /* Chunks that were under way with the plan before this one say nothing about this one. */
    if (job->stage == SW_STAGE_RUNNING && job->plan_state != SW_JOB_PLAN_MISSING &&
        slot->plan_number == job->plan_number && sw_policy_retrain(&drift))
        sw_job_drifts(p, job, &slot->frame);
    sw_job_weigh_again(p, job);
}

static int queue_store(struct sw_pipeline *p, struct sw_slot *slot, struct sw_err *err) {
    uint64_t at = 0;
    int rc = 0;
    if (slot->direct.n > 0)
        return sw_direct_queue(p, slot, err);
    if (slot->state == SW_SLOT_STORING && !sw_shares_link(p, slot))
        sw_measure_begin(p, slot, SW_MEASURE_LINK_OUT, slot->frame.codec, slot->frame.raw_bytes, slot->stored.bytes);
    for (unsigned i = 0; !rc && i < slot->stored.n_extents; i++) {
        const struct sw_extent *extent = &slot->stored.extents[i];
        rc = p->device->ops->store(p->device, sw_slot_index(p, slot), extent->memory, at, extent->bytes, err);
        at += extent->bytes;
    }
    return rc;
}

int sw_slot_store(struct sw_pipeline *p, struct sw_slot *slot, uint64_t bytes, struct sw_err *err) {
    struct sw_tier *host = p->place->host;
    int rc = sw_job_charge(slot->job, bytes, err);
    if (!rc)
        rc = host->ops->reserve(host, bytes, &slot->stored, err);
    return rc ? rc : queue_store(p, slot, err);
}

int sw_slot_load(struct sw_pipeline *p, const struct sw_slot *slot, const struct sw_stored *stored, uint64_t at,
                 struct sw_err *err) {
    int rc = 0;
    for (unsigned i = 0; !rc && i < stored->n_extents; i++) {
        rc = p->device->ops->load(p->device, sw_slot_index(p, slot), stored->extents[i].memory, at,
                                  stored->extents[i].bytes, err);
        at += stored->extents[i].bytes;
    }
    return rc;
}

/* Copies a frame to host memory, where it stays, or from where it goes on to the disk. False: has to wait. */
static bool begin_store(struct sw_pipeline *p, struct sw_slot *slot) {
    const uint64_t bytes = slot->frame.frame_bytes;
    struct sw_err err = {0};
    int rc;
    slot->state = SW_SLOT_STORING;
    slot->is_staged = sw_placement_goes_out(p->place, bytes);
    if (slot->is_staged) {
        rc = sw_job_charge(slot->job, bytes, &err);
        if (!rc)
            rc = sw_placement_stage(p->place, SW_TIER_WRITE, bytes, &slot->stored, &err);
        if (rc == -SW_EAGAIN) {
            sw_job_uncharge(slot->job, bytes);
            slot->state = SW_SLOT_WAITING;
            return false;
        }
        if (!rc)
            rc = queue_store(p, slot, &err);
    } else {
        rc = sw_slot_store(p, slot, bytes, &err);
    }
    if (rc)
        slot_fail(p, slot, &err);
    return true;
}

static void spill_next(struct sw_pipeline *p, struct sw_slot *slot, struct sw_job *job) {
    if (sw_direct_take(p, slot, job))
        begin_store(p, slot);
    else
        encode(p, slot, job);
}

/* Has a plan made for the slot's chunk, whose frame is given up, and those behind it. */
static void plan_again(struct sw_pipeline *p, struct sw_slot *slot) {
    struct sw_job *job = slot->job;
    const uint64_t begin = slot->chunk * job->frames->chunk_bytes;
    struct sw_err err = {0};
    slot->state = SW_SLOT_PREPARING;
    slot->has_chunk = true;
    job->stage = SW_STAGE_PREPARING;
    job->plan_state = SW_JOB_PLAN_MISSING;
    slot->planned_since_us = sw_clock_us();
    if (p->device->ops->make_plan(p->device, sw_slot_index(p, slot), job->value_type, job->mem->mapping,
                                  job->offset + begin, job->bytes - begin, &err) < 0)
        slot_fail(p, slot, &err);
}

static void encoded(struct sw_pipeline *p, struct sw_slot *slot, const struct sw_slot_result *result) {
    slot->frame = result->frame;
    switch (sw_job_judge_plan(p, slot->job, slot->plan_number, &slot->frame)) {
    case SW_MISFIT_AGAIN:
        encode_chunk(p, slot);
        return;
    case SW_MISFIT_PLAN:
        plan_again(p, slot);
        return;
    case SW_MISFIT_ACCEPT:
        break;
    }
    note_encoded(p, slot);
    if (slot->job->kind == SW_JOB_PACK) {
        sw_in_place_encoded(p, slot);
        return;
    }
    begin_store(p, slot);
}

static void stored(struct sw_pipeline *p, struct sw_slot *slot) {
    struct sw_err err = {0};
    struct sw_job *job = slot->job;
    if (slot->stored.tier->ops->commit(slot->stored.tier, &slot->stored, &err)) {
        sw_pipeline_fail(p, job, &err);
        return;
    }
    job->frames->stored[slot->chunk] = slot->stored;
    memset(&slot->stored, 0, sizeof slot->stored);
    job->n_done++;
    if (sw_direct_commit(slot, &err))
        sw_pipeline_fail(p, job, &err);
}

/* Where a frame begins in the buffer behind one that ends at `end`. */
static uint64_t next_frame_at(uint64_t end) {
    return (end + SW_FRAME_DATA_ALIGN - 1) / SW_FRAME_DATA_ALIGN * SW_FRAME_DATA_ALIGN;
}

/* How many chunks, the slot's and those behind it, go in one step: as many compressed frames as its buffer holds, so
 * that fewer launches wait for a busy GPU, but not so many that a slot would have nothing to do. One beside other jobs:
 * with more in a turn than a spill's a restore would take its slots and its share of the link. */
static unsigned run_length(const struct sw_pipeline *p, const struct sw_slot *slot) {
    const struct sw_frames *frames = slot->job->frames;
    const uint64_t buffer_bytes = p->device->ops->info(p->device)->buffer_bytes;
    const size_t share = (frames->n_chunks - slot->chunk) / p->n_slots;
    uint64_t end = slot->frame.frame_bytes;
    unsigned n = 1;
    if (slot->is_staged || !sw_pipeline_has_one_job(p))
        return 1;
    for (; n < SW_DECODE_MAX && n < share; n++) {
        const struct sw_frame_layout *next = &frames->layouts[slot->chunk + n];
        end = next_frame_at(end) + next->frame_bytes;
        if (next->codec != slot->frame.codec || sw_stored_is_on_disk(&frames->stored[slot->chunk + n]) ||
            end > buffer_bytes)
            break;
    }
    return n;
}

/* Loads and decodes the slot's chunks. */
static int restore_run(struct sw_pipeline *p, const struct sw_slot *slot, struct sw_err *err) {
    const struct sw_job *job = slot->job;
    struct sw_decode_item items[SW_DECODE_MAX];
    uint64_t at = 0;
    int rc = 0;
    for (unsigned i = 0; !rc && i < slot->n_chunks; i++) {
        const size_t chunk = slot->chunk + i;
        items[i] = (struct sw_decode_item){.layout = &job->frames->layouts[chunk],
                                           .frame_at = at,
                                           .offset = job->offset + chunk * job->frames->chunk_bytes};
        rc = sw_slot_load(p, slot, slot->is_staged ? &slot->stored : &job->frames->stored[chunk], at, err);
        at = next_frame_at(at + items[i].layout->frame_bytes);
    }
    return rc ? rc
              : p->device->ops->decode(p->device, sw_slot_index(p, slot), job->mem->mapping, items, slot->n_chunks,
                                       err);
}

static int restore_steps(struct sw_pipeline *p, struct sw_slot *slot, struct sw_err *err) {
    struct sw_job *job = slot->job;
    slot->frame = job->frames->layouts[slot->chunk];
    slot->n_chunks = 1;
    if (sw_direct_restores(p, slot))
        return sw_direct_restore(p, slot, err);
    slot->n_chunks = run_length(p, slot);
    job->n_dealt += slot->n_chunks - 1;
    uint64_t raw_bytes = 0;
    for (unsigned i = 0; i < slot->n_chunks; i++)
        raw_bytes += job->frames->layouts[slot->chunk + i].raw_bytes;
    /* Beside chunks that come directly there is only a part of the link. How slow kernels are for raw frames is known
     * only so. */
    if (!slot->waits_for_client && (!job->is_mixed || slot->frame.codec == SW_CODEC_RAW))
        sw_measure_begin(p, slot, SW_MEASURE_RESTORE, slot->frame.codec, slot->frame.raw_bytes, raw_bytes);
    return restore_run(p, slot, err);
}

static void restore(struct sw_pipeline *p, struct sw_slot *slot, struct sw_job *job) {
    struct sw_err err = {0};
    sw_slot_take(p, slot, SW_SLOT_RESTORING, job);
    slot->chunk = job->n_dealt++;
    sw_transfer_take(job, slot);
    if (restore_steps(p, slot, &err))
        slot_fail(p, slot, &err);
}

/* All steps of a slot have ended with rc. */
static void slot_ended(struct sw_pipeline *p, struct sw_slot *slot, int rc, const struct sw_slot_result *result,
                       const struct sw_err *err) {
    struct sw_job *job = slot->job;
    const bool waited_for_client = slot->waits_for_client;
    sw_measure_end(p, slot, !rc && slot->state != SW_SLOT_DRAINING);
    slot->waits_for_client = false; /* what comes next on this slot comes after the event */
    if (slot->group.n > 0) {
        sw_group_ended(p, slot, rc, err);
        return;
    }
    if (slot->state == SW_SLOT_PLACING || slot->state == SW_SLOT_FETCHING || slot->state == SW_SLOT_UNPACKING) {
        sw_in_place_ended(p, slot, rc, err);
        return;
    }
    if (rc)
        sw_pipeline_fail(p, job, err);
    /* A restore's last chunk is done even if somebody has lost interest. */
    if (slot->state != SW_SLOT_RESTORING && slot->state != SW_SLOT_STORING)
        sw_job_check_canceled(job);
    if (!job->err.code) {
        switch (slot->state) {
        case SW_SLOT_PREPARING:
            prepared(p, slot, waited_for_client);
            if (!slot->has_chunk)
                break;
            slot->has_chunk = false;
            slot->state = SW_SLOT_ENCODING;
            encode_chunk(p, slot);
            return;
        case SW_SLOT_ENCODING:
            encoded(p, slot, result);
            return; /* still busy */
        case SW_SLOT_STORING:
            if (slot->is_staged) {
                sw_transfer_out(p, slot);
                return; /* given back */
            }
            stored(p, slot);
            break;
        case SW_SLOT_RESTORING:
            job->n_done += slot->direct.n > 0 ? slot->direct.n : slot->n_chunks;
            break;
        default:
            SW_ASSERT(false && "a slot without a healthy job cannot end");
        }
    }
    sw_slot_give(p, slot);
}

/* ---- dealing ---- */

/* A short job whose one chunk needs nothing that is still to be found out: the wait for the client's event and the
 * steps are queued in one go, which saves a round trip to the device. */
static bool serve_at_once(struct sw_pipeline *p, struct sw_slot *slot, struct sw_job *job) {
    struct sw_err err = {0};
    if (!job->has_event || job->frames->n_chunks != 1 ||
        !(job->plan_state != SW_JOB_PLAN_MISSING || (job->kind == SW_JOB_RESTORE && sw_transfer_is_at_hand(job, 0))))
        return false;
    job->stage = SW_STAGE_RUNNING;
    const int rc = p->device->ops->wait_event(p->device, sw_slot_index(p, slot), job->session, job->event, &err);
    slot->waits_for_client = rc > 0;
    if (rc < 0) {
        sw_slot_take(p, slot, SW_SLOT_DRAINING, job);
        slot_fail(p, slot, &err);
    } else if (job->kind == SW_JOB_RESTORE) {
        restore(p, slot, job);
    } else {
        spill_next(p, slot, job);
    }
    return true;
}

static void serve(struct sw_pipeline *p, struct sw_slot *slot, struct sw_job *job) {
    struct sw_err err = {0};
    if (sw_group_serve(p, slot, job))
        return;
    job->regroups = false;
    if (job->stage == SW_STAGE_WAITING) {
        if (sw_job_start(p, job, &err)) {
            sw_pipeline_fail(p, job, &err);
            return;
        }
        find_plan(p, job);
        if (serve_at_once(p, slot, job))
            return;
        if (job->has_event || needs_plan(job)) {
            prepare(p, slot, job);
            return;
        }
        job->stage = SW_STAGE_RUNNING;
    }
    if (job->stage == SW_STAGE_RUNNING && needs_plan(job))
        prepare(p, slot, job);
    else if (job->kind == SW_JOB_UNPACK && sw_in_place_may_unpack(p, job))
        sw_in_place_unpack(p, slot, job);
    else if (job->n_dealt < job->frames->n_chunks && sw_job_encodes(job->kind))
        spill_next(p, slot, job);
    else if (job->n_dealt < job->frames->n_chunks && job->kind == SW_JOB_RESTORE &&
             sw_transfer_is_at_hand(job, job->n_dealt))
        restore(p, slot, job);
}

static bool deal(struct sw_pipeline *p) {
    bool advanced = false;
    for (unsigned s = 0; s < p->n_slots; s++) {
        if (p->slots[s].state != SW_SLOT_FREE)
            continue;
        struct sw_job *job = sw_pipeline_next_job(p);
        if (!job) /* for no other slot either */
            break;
        serve(p, &p->slots[s], job);
        advanced = true;
    }
    return advanced;
}

/* Slots with steps queued, whose end can be asked for. */
static bool slot_runs(const struct sw_slot *slot) {
    return slot->state != SW_SLOT_FREE && slot->state != SW_SLOT_HOLDING && slot->state != SW_SLOT_TORN &&
           slot->state != SW_SLOT_WAITING;
}

/* Frames that waited for host memory: tries again, or gives up with their job. */
static bool store_waiting(struct sw_pipeline *p) {
    bool advanced = false;
    for (unsigned s = 0; s < p->n_slots; s++) {
        struct sw_slot *slot = &p->slots[s];
        if (slot->state != SW_SLOT_WAITING)
            continue;
        sw_job_check_canceled(slot->job);
        if (!slot->job->err.code) {
            advanced |= begin_store(p, slot);
        } else if (slot->waits_for_client) { /* its stream does */
            slot->state = SW_SLOT_DRAINING;
        } else {
            sw_slot_give(p, slot);
            advanced = true;
        }
    }
    return advanced;
}

/* What the disk is to do next for the jobs. */
static bool transfer(struct sw_pipeline *p) {
    bool advanced = sw_transfer_collect(p);
    advanced |= store_waiting(p);
    for (struct sw_list *node = p->jobs.next; node != &p->jobs; node = node->next) {
        struct sw_job *job = SW_CONTAINER_OF(node, struct sw_job, node);
        if (job->stage != SW_STAGE_RUNNING)
            continue;
        if (job->err.code)
            sw_transfer_abandon(p, job);
        else if (job->kind == SW_JOB_RESTORE)
            advanced |= sw_transfer_read_ahead(p, job);
        else if (sw_job_moves(job->kind))
            advanced |= sw_transfer_move(p, job);
    }
    return advanced;
}

static bool recover_jobs(struct sw_pipeline *p) {
    bool advanced = false;
    for (struct sw_list *node = p->jobs.next; node != &p->jobs; node = node->next) {
        struct sw_job *job = SW_CONTAINER_OF(node, struct sw_job, node);
        if (job->err.code && (job->kind == SW_JOB_PACK || job->kind == SW_JOB_UNPACK))
            advanced |= sw_in_place_recover(p, job);
    }
    return advanced;
}

static bool finish_jobs(struct sw_pipeline *p) {
    bool advanced = false;
    for (struct sw_list *node = p->jobs.next, *next; node != &p->jobs; node = next) {
        struct sw_job *job = SW_CONTAINER_OF(node, struct sw_job, node);
        next = node->next;
        if (!sw_job_complete(job))
            sw_job_check_canceled(job);
        if (job->n_slots == 0 && job->n_transfers == 0 && job->n_ahead == 0 &&
            (job->err.code ? sw_in_place_recovered(job) : sw_job_complete(job))) {
            sw_job_finish(p, job);
            advanced = true;
        }
    }
    return advanced;
}

/* ---- interface ---- */

int sw_pipeline_new(struct sw_pipeline **ret, struct sw_device *device, struct sw_placement *place,
                    const struct sw_pipeline_sink *sink, struct sw_err *err) {
    unsigned n_slots = device->ops->info(device)->n_slots;
    struct sw_pipeline *p = sw_alloc(sizeof *p + n_slots * sizeof p->slots[0]);
    if (!p)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DEVICE, "out of memory for a pipeline");
    p->device = device;
    p->place = place;
    p->sink = *sink;
    p->n_slots = n_slots;
    sw_list_init(&p->jobs);
    sw_list_init(&p->arrived);
    p->event_round = 1; /* no job has been looked at */
    (void)pthread_mutex_init(&p->arrived_lock, NULL);
    for (unsigned s = 0; s < n_slots; s++) {
        int rc = sw_group_init(&p->slots[s].group, device->ops->info(device)->group_items, err);
        if (rc) {
            sw_pipeline_free(p);
            return rc;
        }
    }
    *ret = p;
    return 0;
}

void sw_pipeline_free(struct sw_pipeline *p) {
    if (!p)
        return;
    SW_ASSERT(sw_list_empty(&p->jobs) && p->n_mapped == 0 && p->n_transfers == 0);
    for (unsigned s = 0; s < p->n_slots; s++)
        sw_group_fini(&p->slots[s].group);
    (void)pthread_mutex_destroy(&p->arrived_lock);
    sw_free(p);
}

void sw_pipeline_add(struct sw_pipeline *p, struct sw_job *job) {
    if (job->kind == SW_JOB_UNMAP) {
        sw_job_unmap(p, job);
        sw_mem_desc_fini(&job->mem->desc);
        p->sink.finished(job, p->sink.arg);
        return;
    }
    if (p->lost.code)
        sw_pipeline_fail(p, job, &p->lost);
    if (job->kind == SW_JOB_CANARY) {
        if (!job->err.code && p->device->ops->canary && p->device->ops->canary(p->device, &job->err))
            sw_pipeline_fail(p, job, &job->err);
        p->sink.finished(job, p->sink.arg);
        return;
    }
    if (job->kind == SW_JOB_MAP) {
        if (!job->err.code && sw_job_map(p, job, &job->err))
            sw_pipeline_fail(p, job, &job->err);
        p->sink.finished(job, p->sink.arg);
        return;
    }
    sw_list_init(&job->ready);
    if (sw_job_moves(job->kind))
        job->stage = SW_STAGE_RUNNING; /* nothing to map */
    sw_list_append(&p->jobs, &job->node);
    p->is_settled = false;
}

bool sw_pipeline_step(struct sw_pipeline *p, bool is_polling) {
    bool advanced = false;
    for (unsigned s = 0; s < p->n_slots; s++) {
        if (!slot_runs(&p->slots[s]))
            continue;
        struct sw_slot_result result = {0};
        struct sw_err err = {0};
        int rc = p->device->ops->slot_poll(p->device, s, &result, &err);
        if (rc != -SW_EAGAIN) {
            slot_ended(p, &p->slots[s], rc, &result, &err);
            advanced = true;
        }
    }
    p->woke_us = 0;
    /* With hundreds of short jobs a look at all of them takes longer than one at the slots. */
    if (is_polling && p->is_settled && !advanced && !atomic_load(&p->has_arrived))
        return false;
    advanced |= recover_jobs(p);
    advanced |= transfer(p);
    advanced |= deal(p);
    advanced |= finish_jobs(p);
    p->is_settled = !advanced;
    return advanced;
}

bool sw_pipeline_wait(struct sw_pipeline *p) {
    struct sw_slot *oldest = NULL;
    for (unsigned s = 0; s < p->n_slots; s++) {
        struct sw_slot *slot = &p->slots[s];
        if (slot_runs(slot) && !slot->waits_for_client && (!oldest || slot->age < oldest->age))
            oldest = slot;
    }
    if (!oldest)
        return false;
    struct sw_slot_result result = {0};
    struct sw_err err = {0};
    int rc = p->device->ops->slot_wait(p->device, sw_slot_index(p, oldest), &result, &err);
    const uint64_t woke_us = sw_clock_us();
    slot_ended(p, oldest, rc, &result, &err);
    p->is_settled = false;
    p->woke_us = woke_us;
    return true;
}

bool sw_pipeline_has_steps(const struct sw_pipeline *p) {
    for (unsigned s = 0; s < p->n_slots; s++)
        if (slot_runs(&p->slots[s]) && !p->slots[s].waits_for_client)
            return true;
    return false;
}

bool sw_pipeline_busy(const struct sw_pipeline *p) {
    return !sw_list_empty(&p->jobs);
}

bool sw_pipeline_lost(const struct sw_pipeline *p) {
    return p->lost.code != 0;
}

unsigned sw_pipeline_mapped(const struct sw_pipeline *p) {
    return p->n_mapped;
}

#include "spill/pipeline.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "spill/policy.h"

#include <string.h>

enum slot_state { SLOT_FREE, SLOT_PREPARING, SLOT_ENCODING, SLOT_STORING, SLOT_RESTORING, SLOT_DRAINING };

struct slot {
    enum slot_state state;
    struct sw_job *job;
    size_t chunk;
    bool waits_for_client; /* its first step is a client's event: no telling when it ends */
    unsigned plan_number;  /* encoding: of the plan in use */
    uint64_t age;          /* order in which slots became busy */
    struct sw_stored stored;
    struct sw_frame_layout layout; /* restoring */
};

struct sw_pipeline {
    struct sw_device *device;
    struct sw_tier *tier;
    struct sw_pipeline_sink sink;
    unsigned n_slots, n_mapped;
    uint64_t next_age;
    struct sw_list jobs; /* active; the next one to be served first */
    struct sw_err lost;  /* code 0: the device works */
    struct slot slots[];
};

/* ---- jobs ---- */

static void job_fail(struct sw_job *job, const struct sw_err *cause) {
    if (!job->err.code)
        job->err = *cause;
}

static void job_check_canceled(struct sw_job *job) {
    if (!job->err.code && atomic_load_explicit(&job->cancel, memory_order_relaxed))
        (void)sw_err_set(&job->err, -SW_ECANCELED, SW_SCOPE_REQUEST, "canceled");
}

static void job_set_phase(struct sw_pipeline *p, struct sw_job *job, enum sw_job_phase phase) {
    atomic_store(&job->phase, (int)phase);
    p->sink.progress(p->sink.arg);
}

static void job_unmap(struct sw_pipeline *p, struct sw_job *job) {
    if (job->mem->mapping) {
        p->device->ops->unmap(p->device, job->mem->mapping);
        job->mem->mapping = NULL;
        p->n_mapped--;
    }
}

static int job_map(struct sw_pipeline *p, struct sw_job *job, struct sw_err *err) {
    if (job->mem->mapping)
        return 0;
    int rc = p->device->ops->map(p->device, &job->mem->desc, &job->mem->mapping, err);
    if (rc)
        return rc;
    p->n_mapped++;
    sw_mem_desc_fini(&job->mem->desc); /* the mapping has what it needs; descriptors are scarce */
    return 0;
}

/* Microseconds of each stage, for whoever looks for the slow one; a stage that was not reached counts 0. */
static void job_log(const struct sw_job *job, uint64_t moved_us, uint64_t end_us) {
    const uint64_t mapped = job->mapped_us ? job->mapped_us : moved_us;
    const uint64_t planned = job->planned_us ? job->planned_us : mapped;
    sw_log(SW_LOG_DEBUG, "job.stages", "kind=%s bytes=%llu map_us=%llu plan_us=%llu move_us=%llu unmap_us=%llu",
           job->kind == SW_JOB_SPILL ? "spill" : "restore", (unsigned long long)job->bytes,
           (unsigned long long)(mapped - job->started_us), (unsigned long long)(planned - mapped),
           (unsigned long long)(moved_us - planned), (unsigned long long)(end_us - moved_us));
}

/* The worker's side of a job is over. */
static void job_finish(struct sw_pipeline *p, struct sw_job *job) {
    const uint64_t moved_us = sw_clock_us();
    sw_list_remove(&job->node);
    if (job->err.code && job->kind == SW_JOB_SPILL) {
        sw_frames_free(job->frames, p->tier);
        job->frames = NULL;
    }
    if (job->unmap_after) {
        job_unmap(p, job);
        sw_mem_desc_fini(&job->mem->desc); /* still there if mapping failed */
    }
    if (job->started_us)
        job_log(job, moved_us, sw_clock_us());
    p->sink.finished(job, p->sink.arg);
}

static bool job_complete(const struct sw_job *job) {
    return job->stage == SW_STAGE_RUNNING && job->n_done == job->frames->n_chunks;
}

/* A context that died takes every job of the device with it. */
static void note_lost(struct sw_pipeline *p, const struct sw_err *err) {
    if (err->code != -SW_EGPULOST || p->lost.code)
        return;
    p->lost = *err;
    for (struct sw_list *node = p->jobs.next; node != &p->jobs; node = node->next)
        job_fail(SW_CONTAINER_OF(node, struct sw_job, node), err);
}

/* ---- slots ---- */

static void slot_take(struct sw_pipeline *p, struct slot *slot, enum slot_state state, struct sw_job *job) {
    slot->state = state;
    slot->job = job;
    slot->age = p->next_age++;
    job->n_slots++;
}

static void slot_give(struct sw_pipeline *p, struct slot *slot) {
    p->tier->ops->release(p->tier, &slot->stored); /* empty once it was committed */
    slot->job->n_slots--;
    slot->job = NULL;
    slot->waits_for_client = false;
    slot->state = SLOT_FREE;
}

/* A step could not be queued: its job fails, what is already queued on the slot must end. */
static void slot_fail(struct sw_pipeline *p, struct slot *slot, const struct sw_err *err) {
    job_fail(slot->job, err);
    note_lost(p, err);
    slot->state = SLOT_DRAINING;
}

static unsigned slot_index(const struct sw_pipeline *p, const struct slot *slot) {
    return (unsigned)(slot - p->slots);
}

/* ---- steps ---- */

/* Maps the memory and lays out the chunks. */
static int start(struct sw_pipeline *p, struct sw_job *job, struct sw_err *err) {
    uint64_t device_chunk_bytes = p->device->ops->info(p->device)->chunk_bytes;
    job->started_us = sw_clock_us();
    int rc = job_map(p, job, err);
    if (rc)
        return rc;
    job->mapped_us = sw_clock_us();
    if (job->kind == SW_JOB_SPILL) {
        job->frames = sw_frames_new(job->bytes, sw_policy_chunk_bytes(job->bytes, device_chunk_bytes, p->n_slots));
        if (!job->frames)
            return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a region of %llu bytes",
                              (unsigned long long)job->bytes);
    } else if (job->frames->chunk_bytes > device_chunk_bytes) {
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST,
                          "region has chunks of up to %llu bytes, this device takes %llu",
                          (unsigned long long)job->frames->chunk_bytes, (unsigned long long)device_chunk_bytes);
    }
    return 0;
}

/* Part of the range that has not been dealt out. */
static uint64_t rest_bytes(const struct sw_job *job) {
    return job->bytes - (job->n_dealt < job->frames->n_chunks ? job->n_dealt * job->frames->chunk_bytes : job->bytes);
}

static uint64_t rest_offset(const struct sw_job *job) {
    return job->offset + (job->bytes - rest_bytes(job));
}

/* Waits for the client's event and has a plan made for what is still to be spilled. */
static void prepare(struct sw_pipeline *p, struct slot *slot, struct sw_job *job) {
    const struct sw_device_ops *ops = p->device->ops;
    unsigned s = slot_index(p, slot);
    struct sw_err err = {0};
    int rc = 0;
    slot_take(p, slot, SLOT_PREPARING, job);
    slot->waits_for_client = job->stage == SW_STAGE_WAITING && job->has_event;
    job->stage = SW_STAGE_PREPARING;
    job->resample = false;
    if (slot->waits_for_client)
        rc = ops->wait_event(p->device, s, job->event, &err);
    if (!rc && job->kind == SW_JOB_SPILL && rest_bytes(job) > 0)
        rc = ops->make_plan(p->device, s, job->mem->mapping, rest_offset(job), rest_bytes(job), &err);
    if (rc)
        slot_fail(p, slot, &err);
}

static void prepared(struct sw_pipeline *p, const struct slot *slot) {
    struct sw_job *job = slot->job;
    uint64_t rest = rest_bytes(job);
    if (job->kind == SW_JOB_SPILL && rest > 0) {
        job->plan = *p->device->ops->plan(p->device, slot_index(p, slot));
        job->plan_number++;
        if (job->plan_number == 1) {
            job->planned_us = sw_clock_us();
            job_set_phase(p, job, SW_PHASE_ENCODING);
        }
    }
    job->stage = SW_STAGE_RUNNING;
}

static void encode(struct sw_pipeline *p, struct slot *slot, struct sw_job *job) {
    struct sw_err err = {0};
    uint64_t offset = rest_offset(job);
    slot_take(p, slot, SLOT_ENCODING, job);
    slot->chunk = job->n_dealt++;
    slot->plan_number = job->plan_number;
    if (p->device->ops->encode(p->device, slot_index(p, slot), &job->plan, job->mem->mapping, offset,
                               sw_frames_chunk_bytes(job->frames, slot->chunk), &err))
        slot_fail(p, slot, &err);
}

/* A chunk's frame is complete on the device: keeps the books and looks whether the data have drifted. */
static void note_encoded(struct sw_pipeline *p, const struct slot *slot, const struct sw_slot_result *result) {
    struct sw_job *job = slot->job;
    uint64_t raw_bytes = sw_frames_chunk_bytes(job->frames, slot->chunk);
    job->stored_bytes += result->frame_bytes;
    job->codec_raw_bytes[result->codec] += raw_bytes;
    if (++job->n_encoded == job->frames->n_chunks)
        job_set_phase(p, job, SW_PHASE_STORING);
    struct sw_policy_drift drift = {
        .expected_ratio = job->plan.expected_ratio,
        .raw_bytes = raw_bytes,
        .frame_bytes = result->frame_bytes,
        .rest_bytes = rest_bytes(job),
        .chunk_bytes = job->frames->chunk_bytes,
        .n_retrained = job->n_retrained,
    };
    /* Chunks that were under way with the plan before this one say nothing about this one. */
    if (job->stage == SW_STAGE_RUNNING && !job->resample && slot->plan_number == job->plan_number &&
        sw_policy_retrain(&drift)) {
        job->resample = true;
        job->n_retrained++;
    }
}

static void store(struct sw_pipeline *p, struct slot *slot, const struct sw_slot_result *result) {
    struct sw_err err = {0};
    note_encoded(p, slot, result);
    int rc = p->tier->ops->reserve(p->tier, result->frame_bytes, &slot->stored, &err);
    uint64_t at = 0;
    for (unsigned i = 0; !rc && i < slot->stored.n_extents; i++) {
        const struct sw_extent *extent = &slot->stored.extents[i];
        rc = p->device->ops->store(p->device, slot_index(p, slot), extent->memory, at, extent->bytes, &err);
        at += extent->bytes;
    }
    slot->state = SLOT_STORING;
    if (rc)
        slot_fail(p, slot, &err);
}

static void stored(struct sw_pipeline *p, struct slot *slot) {
    struct sw_err err = {0};
    struct sw_job *job = slot->job;
    if (p->tier->ops->commit(p->tier, &slot->stored, &err)) {
        job_fail(job, &err);
        return;
    }
    job->frames->stored[slot->chunk] = slot->stored;
    memset(&slot->stored, 0, sizeof slot->stored);
    job->n_done++;
}

static int restore_steps(struct sw_pipeline *p, struct slot *slot, struct sw_err *err) {
    const struct sw_device_ops *ops = p->device->ops;
    const struct sw_job *job = slot->job;
    const struct sw_stored *frame = &job->frames->stored[slot->chunk];
    uint64_t raw_bytes = sw_frames_chunk_bytes(job->frames, slot->chunk), at = 0;
    unsigned s = slot_index(p, slot);
    int rc = sw_frame_parse(&slot->layout, frame->extents[0].memory, frame->extents[0].bytes, frame->bytes, err);
    if (!rc && slot->layout.raw_bytes != raw_bytes)
        rc = sw_err_set(err, -SW_EFRAME, SW_SCOPE_REGION, "frame holds %llu bytes, %llu were stored",
                        (unsigned long long)slot->layout.raw_bytes, (unsigned long long)raw_bytes);
    for (unsigned i = 0; !rc && i < frame->n_extents; i++) {
        rc = ops->load(p->device, s, frame->extents[i].memory, at, frame->extents[i].bytes, err);
        at += frame->extents[i].bytes;
    }
    if (!rc)
        rc = ops->decode(p->device, s, &slot->layout, job->mem->mapping,
                         job->offset + slot->chunk * job->frames->chunk_bytes, err);
    return rc;
}

static void restore(struct sw_pipeline *p, struct slot *slot, struct sw_job *job) {
    struct sw_err err = {0};
    slot_take(p, slot, SLOT_RESTORING, job);
    slot->chunk = job->n_dealt++;
    if (restore_steps(p, slot, &err))
        slot_fail(p, slot, &err);
}

/* All steps of a slot have ended with rc. */
static void slot_ended(struct sw_pipeline *p, struct slot *slot, int rc, const struct sw_slot_result *result,
                       const struct sw_err *err) {
    struct sw_job *job = slot->job;
    if (rc) {
        job_fail(job, err);
        note_lost(p, err);
    }
    /* A restore's last chunk is done even if somebody has lost interest. */
    if (slot->state != SLOT_RESTORING && slot->state != SLOT_STORING)
        job_check_canceled(job);
    if (!job->err.code) {
        switch (slot->state) {
        case SLOT_PREPARING:
            prepared(p, slot);
            break;
        case SLOT_ENCODING:
            store(p, slot, result);
            return; /* still busy */
        case SLOT_STORING:
            stored(p, slot);
            break;
        case SLOT_RESTORING:
            job->n_done++;
            break;
        case SLOT_DRAINING:
        case SLOT_FREE:
            SW_ASSERT(!"a slot without a healthy job cannot end");
        }
    }
    slot_give(p, slot);
}

/* ---- dealing ---- */

static unsigned client_waits(const struct sw_pipeline *p) {
    unsigned n = 0;
    for (unsigned s = 0; s < p->n_slots; s++)
        n += p->slots[s].waits_for_client;
    return n;
}

static bool job_wants_slot(const struct sw_pipeline *p, const struct sw_job *job) {
    if (job->err.code)
        return false;
    switch (job->stage) {
    case SW_STAGE_WAITING: /* clients that are late with their events get at most half of the slots */
        return !job->has_event || client_waits(p) < (p->n_slots + 1) / 2;
    case SW_STAGE_PREPARING:
        return false;
    case SW_STAGE_RUNNING:
        return job->resample || job->n_dealt < job->frames->n_chunks;
    }
    return false;
}

/* The job whose turn it is; it goes to the end of the line. */
static struct sw_job *next_job(struct sw_pipeline *p) {
    for (struct sw_list *node = p->jobs.next; node != &p->jobs; node = node->next) {
        struct sw_job *job = SW_CONTAINER_OF(node, struct sw_job, node);
        job_check_canceled(job);
        if (job_wants_slot(p, job)) {
            sw_list_remove(node);
            sw_list_append(&p->jobs, node);
            return job;
        }
    }
    return NULL;
}

static void serve(struct sw_pipeline *p, struct slot *slot, struct sw_job *job) {
    struct sw_err err = {0};
    if (job->stage == SW_STAGE_WAITING) {
        if (start(p, job, &err)) {
            job_fail(job, &err);
            note_lost(p, &err);
            return;
        }
        if (job->has_event || (job->kind == SW_JOB_SPILL && job->bytes > 0)) {
            prepare(p, slot, job);
            return;
        }
        job->stage = SW_STAGE_RUNNING;
    }
    if (job->resample)
        prepare(p, slot, job);
    else if (job->n_dealt < job->frames->n_chunks && job->kind == SW_JOB_SPILL)
        encode(p, slot, job);
    else if (job->n_dealt < job->frames->n_chunks)
        restore(p, slot, job);
}

static bool deal(struct sw_pipeline *p) {
    bool advanced = false;
    for (unsigned s = 0; s < p->n_slots; s++) {
        struct sw_job *job = p->slots[s].state == SLOT_FREE ? next_job(p) : NULL;
        if (job) {
            serve(p, &p->slots[s], job);
            advanced = true;
        }
    }
    return advanced;
}

static bool finish_jobs(struct sw_pipeline *p) {
    bool advanced = false;
    for (struct sw_list *node = p->jobs.next, *next; node != &p->jobs; node = next) {
        struct sw_job *job = SW_CONTAINER_OF(node, struct sw_job, node);
        next = node->next;
        if (!job_complete(job))
            job_check_canceled(job);
        if (job->n_slots == 0 && (job->err.code || job_complete(job))) {
            job_finish(p, job);
            advanced = true;
        }
    }
    return advanced;
}

/* ---- interface ---- */

int sw_pipeline_new(struct sw_pipeline **ret, struct sw_device *device, struct sw_tier *tier,
                    const struct sw_pipeline_sink *sink, struct sw_err *err) {
    unsigned n_slots = device->ops->info(device)->n_slots;
    struct sw_pipeline *p = sw_alloc(sizeof *p + n_slots * sizeof p->slots[0]);
    if (!p)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DEVICE, "out of memory for a pipeline");
    p->device = device;
    p->tier = tier;
    p->sink = *sink;
    p->n_slots = n_slots;
    sw_list_init(&p->jobs);
    *ret = p;
    return 0;
}

void sw_pipeline_free(struct sw_pipeline *p) {
    if (p)
        SW_ASSERT(sw_list_empty(&p->jobs) && p->n_mapped == 0);
    sw_free(p);
}

void sw_pipeline_add(struct sw_pipeline *p, struct sw_job *job) {
    if (job->kind == SW_JOB_UNMAP) {
        job_unmap(p, job);
        sw_mem_desc_fini(&job->mem->desc);
        p->sink.finished(job, p->sink.arg);
        return;
    }
    if (p->lost.code)
        job_fail(job, &p->lost);
    sw_list_append(&p->jobs, &job->node);
}

bool sw_pipeline_step(struct sw_pipeline *p) {
    bool advanced = false;
    for (unsigned s = 0; s < p->n_slots; s++) {
        if (p->slots[s].state == SLOT_FREE)
            continue;
        struct sw_slot_result result = {0};
        struct sw_err err = {0};
        int rc = p->device->ops->slot_poll(p->device, s, &result, &err);
        if (rc != -SW_EAGAIN) {
            slot_ended(p, &p->slots[s], rc, &result, &err);
            advanced = true;
        }
    }
    advanced |= deal(p);
    advanced |= finish_jobs(p);
    return advanced;
}

bool sw_pipeline_wait(struct sw_pipeline *p) {
    struct slot *oldest = NULL;
    for (unsigned s = 0; s < p->n_slots; s++) {
        struct slot *slot = &p->slots[s];
        if (slot->state != SLOT_FREE && !slot->waits_for_client && (!oldest || slot->age < oldest->age))
            oldest = slot;
    }
    if (!oldest)
        return false;
    struct sw_slot_result result = {0};
    struct sw_err err = {0};
    int rc = p->device->ops->slot_wait(p->device, slot_index(p, oldest), &result, &err);
    slot_ended(p, oldest, rc, &result, &err);
    return true;
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

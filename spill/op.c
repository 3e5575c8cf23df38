/* op.c - an operation's jobs: one, or one for each buffer of a region that has several.
 *
 * Of several, the operation's own job is never submitted: it sums up what became of theirs, and then ends the operation
 * as if it had been the only one. So a region of several buffers is spilled, or restored, as a whole or not at all. */
#include "spill/engine_state.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "spill/planner/plan_cache.h"

static void fill_job(struct sw_job *job, const struct sw_op *op, const struct sw_range *range) {
    job->mem = &range->mem->side;
    job->offset = range->offset;
    job->bytes = range->bytes;
    job->unmap_after = range->mem->once;
    job->session = op->owner->number;
    job->quota = op->owner->quota;
    job->value_type = range->type;
    job->order = range->order;
    sw_order_page_ref(job->order.page);
}

static struct sw_op *op_alloc(unsigned n) {
    struct sw_op *op = sw_alloc(sizeof *op);
    if (op && n > 1)
        op->parts = sw_alloc_array(n, sizeof *op->parts);
    if (op && n > 1 && !op->parts) {
        sw_free(op);
        return NULL;
    }
    return op;
}

static void fill_op(struct sw_op *op, struct sw_owner *owner, enum sw_job_kind kind, const struct sw_range *ranges,
                    unsigned n) {
    op->owner = owner;
    op->mem = ranges[0].mem;
    op->submitted_us = sw_clock_us();
    op->job.kind = kind;
    op->n_parts = op->n_left = n > 1 ? n : 0;
    if (n == 1) {
        fill_job(&op->job, op, &ranges[0]);
        op->job.plan_key = sw_plan_key(owner->number, ranges[0].type, 0);
    }
    for (unsigned i = 0; i < op->n_parts; i++) {
        struct sw_op_part *part = &op->parts[i];
        part->op = op;
        part->mem = ranges[i].mem;
        fill_job(&part->job, op, &ranges[i]);
        part->job.kind = kind;
        part->job.buffer = i;
        part->job.op_number = owner->engine->last_op_number + 1;
        part->job.plan_key = sw_plan_key(owner->number, ranges[i].type, i + 1);
    }
    owner->engine->last_op_number += n > 1;
}

int sw_op_new(struct sw_op **ret, struct sw_owner *owner, enum sw_job_kind kind, const struct sw_range *ranges,
              unsigned n, struct sw_err *err) {
    struct sw_budget *kept = sw_quota_kept(owner->quota);
    const uint64_t kept_bytes = sizeof(struct sw_op) + (n > 1 ? n * sizeof(struct sw_op_part) : 0);
    const int rc = sw_budget_take(kept, kept_bytes, "an operation", err);
    if (rc)
        return rc;
    struct sw_op *op = op_alloc(n);
    if (!op) {
        sw_budget_give(kept, kept_bytes);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for an operation");
    }
    op->kept = kept;
    op->kept_bytes = kept_bytes;
    fill_op(op, owner, kind, ranges, n);
    *ret = op;
    return 0;
}

static void free_frames(struct sw_op *op) {
    for (unsigned i = 0; i < op->n_parts; i++) {
        if (sw_job_encodes(op->job.kind))
            sw_frames_free(op->parts[i].job.frames);
        else
            sw_free(op->parts[i].job.frames); /* a view */
        op->parts[i].job.frames = NULL;
    }
}

void sw_op_free(struct sw_op *op) {
    free_frames(op);
    sw_order_page_unref(op->job.order.page);
    for (unsigned i = 0; i < op->n_parts; i++)
        sw_order_page_unref(op->parts[i].job.order.page);
    sw_budget_give(op->kept, op->kept_bytes);
    sw_free(op->parts);
    sw_free(op);
}

int sw_op_set_frames(struct sw_op *op, struct sw_frames *frames, struct sw_err *err) {
    const uint64_t views_bytes = op->n_parts ? sw_frames_kept(frames) : 0;
    const int rc = sw_budget_take(op->kept, views_bytes, "a restore of several buffers", err);
    if (rc)
        return rc;
    op->kept_bytes += views_bytes;
    op->job.frames = frames;
    for (unsigned i = 0; i < op->n_parts; i++) {
        op->parts[i].job.frames = sw_frames_view(frames, i);
        op->parts[i].job.bytes = frames->parts[i].raw_bytes;
        if (!op->parts[i].job.frames)
            return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for an operation");
    }
    if (!op->n_parts)
        op->job.bytes = frames->raw_bytes;
    return 0;
}

static void begin(struct sw_mem *mem, struct sw_job *job, struct sw_region_id id) {
    job->region_slot = id.slot;
    job->region_gen = id.gen;
    mem->used = true;
    mem->n_ops++;
    mem->n_in_place += sw_job_is_in_place(job->kind);
}

void sw_op_begin(struct sw_op *op) {
    if (!op->n_parts)
        begin(op->mem, &op->job, op->region->id);
    for (unsigned i = 0; i < op->n_parts; i++)
        begin(op->parts[i].mem, &op->parts[i].job, op->region->id);
}

void sw_op_end(struct sw_op *op) {
    if (!op->n_parts) {
        op->mem->n_in_place -= sw_job_is_in_place(op->job.kind);
        sw_mem_op_ended(op->mem);
    }
    for (unsigned i = 0; i < op->n_parts; i++)
        sw_mem_op_ended(op->parts[i].mem);
}

void sw_op_post(struct sw_op *op) {
    if (!op->n_parts)
        sw_worker_submit(op->mem->worker, &op->job);
    for (unsigned i = 0; i < op->n_parts; i++) {
        struct sw_op_part *part = &op->parts[i];
        if (op->job.frames) /* to be read: until now a move may have been changing them */
            sw_frames_view_update(part->job.frames, op->job.frames);
        sw_worker_submit(part->mem->worker, &part->job);
    }
}

void sw_op_cancel(struct sw_op *op) {
    atomic_store(&op->job.cancel, true);
    for (unsigned i = 0; i < op->n_parts; i++)
        atomic_store(&op->parts[i].job.cancel, true);
}

int sw_op_phase(const struct sw_op *op) {
    int phase = atomic_load(&op->job.phase);
    for (unsigned i = 0; i < op->n_parts; i++) {
        const int other = atomic_load(&op->parts[i].job.phase);
        phase = i == 0 || other < phase ? other : phase;
    }
    return phase;
}

static uint64_t later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* Adds what became of a buffer; the region's reason is that of the longest one. */
static void add(struct sw_job *sum, const struct sw_job *part, uint64_t *longest) {
    sum->stored_bytes += part->stored_bytes;
    sum->charged_bytes += part->charged_bytes;
    sum->kept_bytes += part->kept_bytes;
    for (int codec = 0; codec < SW_CODEC_NR; codec++)
        sum->codec_raw_bytes[codec] += part->codec_raw_bytes[codec];
    if (part->bytes >= *longest) {
        sum->reason = part->reason;
        *longest = part->bytes;
    }
    if (!sum->started_us || (part->started_us && part->started_us < sum->started_us))
        sum->started_us = part->started_us;
    sum->mapped_us = later(sum->mapped_us, part->mapped_us);
    sum->planned_us = later(sum->planned_us, part->planned_us);
}

/* The frames of all buffers are there: from now on they are the region's. */
static void join_frames(struct sw_op *op) {
    struct sw_frames *frames[SW_FRAMES_MAX_PARTS] = {NULL};
    for (unsigned i = 0; i < op->n_parts; i++)
        frames[i] = op->parts[i].job.frames;
    op->job.frames = sw_frames_join(frames, op->n_parts);
    if (!op->job.frames) {
        (void)sw_err_set(&op->job.err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a region of %u buffers",
                         op->n_parts);
        return;
    }
    for (unsigned i = 0; i < op->n_parts; i++) {
        op->job.frames->parts[i].reason = (uint8_t)op->parts[i].job.reason;
        op->parts[i].job.frames = NULL;
    }
}

struct sw_op *sw_op_part_ended(struct sw_job *job) {
    struct sw_op_part *part = SW_CONTAINER_OF(job, struct sw_op_part, job);
    struct sw_op *op = part->op;
    uint64_t longest = 0;
    if (job->err.code && !op->job.err.code) {
        op->job.err = job->err;
        op->job.failed = job->failed;
        if (op->job.frames)
            op->job.failed.first += op->job.frames->parts[job->buffer].first;
        sw_err_context(&op->job.err, "buffer %u of %u", job->buffer + 1, op->n_parts);
        sw_op_cancel(op); /* what another one is told then is no cause */
    }
    if (--op->n_left > 0)
        return NULL;
    for (unsigned i = 0; i < op->n_parts; i++)
        add(&op->job, &op->parts[i].job, &longest);
    if (sw_job_encodes(job->kind) && !op->job.err.code)
        join_frames(op);
    free_frames(op);
    return op;
}

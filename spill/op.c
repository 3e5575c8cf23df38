/* op.c - an operation's request, and the jobs that carry it out: one for each buffer.
 *
 * They sum up what became of each, and the last one that comes back ends the operation: so a region of several buffers
 * is spilled, or restored, as a whole or not at all. */
#include "spill/engine_state.h"

#include "base/alloc.h"
#include "base/clock.h"

static uint64_t op_bytes(unsigned n) {
    return sizeof(struct sw_op) + n * (sizeof(struct sw_op_part) + sizeof(struct sw_buffer));
}

/* The buffers lie behind the parts. */
static struct sw_op *op_alloc(unsigned n) {
    struct sw_op *op = sw_alloc(op_bytes(n));
    if (op)
        op->buffers = (struct sw_buffer *)&op->parts[n];
    return op;
}

static void fill_part(struct sw_op *op, unsigned i, const struct sw_range *range) {
    struct sw_op_part *part = &op->parts[i];
    part->mem = range->mem;
    op->buffers[i] = (struct sw_buffer){.memory = &range->mem->memory,
                                        .offset = range->offset,
                                        .bytes = range->bytes,
                                        .frame_bytes = range->frame_bytes,
                                        .type = range->type,
                                        .number = op->request.n_buffers > 1 ? i + 1 : 0};
    sw_job_init_run(&part->job, &op->request, i);
    part->job.quota = op->owner->quota;
    part->job.order = range->order;
    sw_order_page_ref(part->job.order.page);
}

static void fill_op(struct sw_op *op, struct sw_owner *owner, const struct sw_op_config *config) {
    const unsigned n = config->n;
    op->owner = owner;
    op->series = config->series;
    op->submitted_us = sw_clock_us();
    op->n_left = n;
    op->request = (struct sw_request){.operation = config->operation,
                                      .tenant = owner->quota,
                                      .session = owner->number,
                                      .number = n > 1 ? ++sw_engine_of(owner)->last_op_number : 0,
                                      .kept = sw_quota_kept(owner->quota),
                                      .n_buffers = n,
                                      .buffers = op->buffers};
    for (unsigned i = 0; i < n; i++)
        fill_part(op, i, &config->ranges[i]);
}

int sw_op_new(struct sw_op **ret, struct sw_owner *owner, const struct sw_op_config *config, struct sw_err *err) {
    const unsigned n = config->n;
    struct sw_budget *kept = sw_quota_kept(owner->quota);
    const int rc = sw_budget_take(kept, op_bytes(n), "an operation", err);
    if (rc)
        return rc;
    struct sw_op *op = op_alloc(n);
    if (!op) {
        sw_budget_give(kept, op_bytes(n));
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for an operation");
    }
    op->kept_bytes = op_bytes(n);
    fill_op(op, owner, config);
    *ret = op;
    return 0;
}

static bool has_several(const struct sw_op *op) {
    return op->request.n_buffers > 1;
}

/* Its runs have frames of their own: of several buffers, or of parts of them. Else they are the region's, or go with
 * the run. */
static bool has_own_frames(const struct sw_op *op) {
    return op->series || has_several(op);
}

static void free_frames(struct sw_op *op) {
    for (unsigned i = 0; has_own_frames(op) && i < op->request.n_buffers; i++) {
        struct sw_frames **frames = &op->parts[i].job.run.frames;
        if (sw_operation_encodes(op->request.operation))
            sw_frames_free(*frames);
        else
            sw_frames_delete(*frames); /* a view */
        *frames = NULL;
    }
}

void sw_op_free(struct sw_op *op) {
    free_frames(op);
    for (unsigned i = 0; i < op->request.n_buffers; i++)
        sw_order_page_unref(op->parts[i].job.order.page);
    sw_budget_give(op->request.kept, op->kept_bytes);
    sw_free(op);
}

/* The frames of what a buffer of the operation reads. */
static int make_view(struct sw_op *op, unsigned i, struct sw_err *err) {
    const struct sw_buffer *buffer = &op->buffers[i];
    const unsigned index = sw_buffer_index(buffer);
    const uint64_t chunk_bytes = sw_frames_buffer(op->frames, index).chunk_bytes;
    const size_t n_chunks = buffer->bytes / chunk_bytes + (buffer->bytes % chunk_bytes != 0);
    const uint64_t kept_bytes = sw_frames_kept_bytes(buffer->bytes, chunk_bytes, false);
    const int rc = sw_budget_take(op->request.kept, kept_bytes, "a restore of several buffers", err);
    if (rc)
        return rc;
    op->kept_bytes += kept_bytes;
    op->parts[i].job.run.frames = sw_frames_view(op->frames, index, buffer->first_chunk, n_chunks);
    if (!op->parts[i].job.run.frames)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for an operation");
    return 0;
}

int sw_op_set_frames(struct sw_op *op, struct sw_frames *frames, struct sw_err *err) {
    int rc = 0;
    op->frames = frames;
    for (unsigned i = 0; !rc && i < op->request.n_buffers; i++) {
        if (!op->series)
            op->buffers[i].bytes = sw_frames_buffer(frames, i).raw_bytes;
        if (has_own_frames(op))
            rc = make_view(op, i, err);
        else
            op->parts[i].job.run.frames = frames;
    }
    return rc;
}

/* Its memories are in use until sw_op_end(). */
static void begin(struct sw_op *op) {
    for (unsigned i = 0; i < op->request.n_buffers; i++) {
        struct sw_op_part *part = &op->parts[i];
        part->job.region_slot = op->region->id.slot;
        part->job.region_gen = op->region->id.gen;
        part->mem->used = true;
        part->mem->n_ops++;
        part->mem->n_in_place += sw_operation_is_in_place(op->request.operation);
    }
}

void sw_op_end(struct sw_op *op) {
    sw_list_remove(&op->node);
    op->owner->n_ops--;
    sw_engine_of(op->owner)->n_ops--;
    for (unsigned i = 0; i < op->request.n_buffers; i++) {
        struct sw_mem *mem = op->parts[i].mem;
        mem->n_in_place -= sw_operation_is_in_place(op->request.operation);
        sw_mem_op_ended(mem);
    }
}

void sw_op_post(struct sw_op *op) {
    for (unsigned i = 0; i < op->request.n_buffers; i++) {
        struct sw_op_part *part = &op->parts[i];
        if (op->frames && has_own_frames(op)) /* to be read: until now a move may have been changing them */
            sw_frames_view_update(part->job.run.frames, op->frames);
        sw_worker_submit(part->mem->worker, &part->job);
    }
}

void sw_op_cancel(struct sw_op *op) {
    for (unsigned i = 0; i < op->request.n_buffers; i++)
        atomic_store(&op->parts[i].job.signals.cancel, true);
}

void sw_op_submit(struct sw_op *op, struct sw_region *region, sw_outcome_cb *done, void *arg) {
    struct sw_owner *owner = op->owner;
    struct sw_engine *engine = sw_engine_of(owner);
    op->region = region;
    op->done = done;
    op->arg = arg;
    begin(op);
    sw_list_append(&owner->ops, &op->node);
    owner->n_ops++;
    engine->n_ops++;
    if (region->move)
        region->move->cancel(region->move); /* and goes on when that has ended */
    else
        sw_op_post(op);
    sw_engine_keep_awake(engine);
}

int sw_op_phase(const struct sw_op *op) {
    int phase = SW_PHASE_STORING;
    for (unsigned i = 0; op->n_left > 0 && i < op->request.n_buffers; i++) {
        const int other = atomic_load(&op->parts[i].job.signals.phase);
        phase = other < phase ? other : phase;
    }
    return phase;
}

static uint64_t later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

uint64_t sw_run_weight(const struct sw_run *run) {
    const uint64_t bytes = run->buffer->bytes;
    return run->outcome.reason == SW_COST_CLIENT ? 1 : bytes ? bytes + 1 : 0;
}

void sw_run_outcome_add(struct sw_run_outcome *sum, const struct sw_run *run, uint64_t *most) {
    const struct sw_run_outcome *outcome = &run->outcome;
    sum->stored_bytes += outcome->stored_bytes;
    sum->kept_bytes += outcome->kept_bytes;
    for (int codec = 0; codec < SW_CODEC_NR; codec++)
        sum->codec_raw_bytes[codec] += outcome->codec_raw_bytes[codec];
    if (sw_run_weight(run) >= *most) {
        sum->reason = outcome->reason;
        *most = sw_run_weight(run);
    }
    if (!sum->started_us || (outcome->started_us && outcome->started_us < sum->started_us))
        sum->started_us = outcome->started_us;
    sum->mapped_us = later(sum->mapped_us, outcome->mapped_us);
    sum->planned_us = later(sum->planned_us, outcome->planned_us);
}

static void add(struct sw_op *op, const struct sw_job *job, uint64_t *most) {
    op->charged_bytes += job->charged_bytes;
    sw_run_outcome_add(&op->outcome, &job->run, most);
}

/* The frames of all buffers are there: from now on they are the region's. */
static void join_frames(struct sw_op *op) {
    struct sw_frames *frames[SW_FRAMES_MAX_BUFFERS] = {NULL};
    const unsigned n = op->request.n_buffers;
    for (unsigned i = 0; i < n; i++)
        frames[i] = op->parts[i].job.run.frames;
    op->frames = has_several(op) ? sw_frames_join(frames, n) : frames[0];
    if (!op->frames) {
        (void)sw_err_set(&op->outcome.err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a region of %u buffers", n);
        return;
    }
    for (unsigned i = 0; i < op->frames->n_buffers; i++)
        op->frames->buffers[i].reason = (uint8_t)op->parts[i].job.run.outcome.reason;
    for (unsigned i = 0; i < n; i++)
        op->parts[i].job.run.frames = NULL;
}

/* The first error is the operation's: what the others are told then is no cause. */
static void note_failure(struct sw_op *op, const struct sw_run *run) {
    op->outcome.err = run->outcome.err;
    op->outcome.failed = run->outcome.failed;
    if (op->frames)
        op->outcome.failed.first += sw_frames_buffer(op->frames, run->frames->buffer).first + run->frames->first;
    if (!has_several(op))
        return;
    sw_err_context(&op->outcome.err, "%s %u of %u", op->series ? "part" : "buffer", run->index + 1,
                   op->request.n_buffers);
    sw_op_cancel(op);
}

struct sw_op *sw_op_job_ended(const struct sw_job *job) {
    struct sw_op *op = SW_CONTAINER_OF(job->run.request, struct sw_op, request);
    uint64_t most = 0;
    if (job->run.outcome.err.code && !op->outcome.err.code)
        note_failure(op, &job->run);
    if (--op->n_left > 0)
        return NULL;
    for (unsigned i = 0; i < op->request.n_buffers; i++)
        add(op, &op->parts[i].job, &most);
    if (op->series && sw_operation_encodes(op->request.operation)) /* the frames are the build's */
        return op;
    if (sw_operation_encodes(op->request.operation) && !op->outcome.err.code)
        join_frames(op);
    free_frames(op);
    return op;
}

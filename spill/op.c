/* op.c - an operation: its request, and a job for each buffer.
 *
 * The last job that comes back ends the operation, with the sum of all outcomes: a region of several buffers is spilled
 * or restored as a whole, or not at all. */
#include "spill/engine_state.h"

#include "base/alloc.h"

static uint64_t op_bytes(unsigned n) {
    const uint64_t sum_bytes = n > 1 ? sizeof(struct sw_run_outcome) : 0;
    return sizeof(struct sw_op) + n * (sizeof(struct sw_job) + sizeof(struct sw_buffer)) + sum_bytes;
}

static bool has_several(const struct sw_op *op) {
    return op->request.n_buffers > 1;
}

/* Returns true if each run has frames of its own, for one of several buffers or for a part of one. Otherwise the only
 * run has the region's frames. */
static bool has_own_frames(const struct sw_op *op) {
    return op->series || has_several(op);
}

static void free_frames(struct sw_op *op) {
    for (unsigned i = 0; has_own_frames(op) && i < op->request.n_buffers; i++) {
        struct sw_frames **frames = &op->jobs[i].run.frames;
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
        sw_order_page_unref(op->jobs[i].order.page);
    sw_budget_give(op->request.kept, op->kept_bytes);
    sw_free(op);
}

/* Makes a view of the frames that a buffer's job reads. */
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
    op->jobs[i].run.frames = sw_frames_view(op->frames, index, buffer->first_chunk, n_chunks);
    if (!op->jobs[i].run.frames)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for an operation");
    return 0;
}

static int give_frames(struct sw_op *op, struct sw_frames *frames, struct sw_err *err) {
    int rc = 0;
    op->frames = frames;
    for (unsigned i = 0; !rc && i < op->request.n_buffers; i++) {
        if (has_own_frames(op))
            rc = make_view(op, i, err);
        else
            op->jobs[i].run.frames = frames;
    }
    return rc;
}

/* The buffers lie behind the jobs, and the sum behind the buffers. */
static void fill(struct sw_op *op, const struct sw_admission *a) {
    const unsigned n = a->n;
    op->owner = a->owner;
    op->series = a->series;
    op->submitted_us = sw_engine_now_us(sw_engine_of(a->owner));
    op->n_left = n;
    op->buffers = (struct sw_buffer *)&op->jobs[n];
    op->outcome = n > 1 ? (struct sw_run_outcome *)&op->buffers[n] : &op->jobs[0].run.outcome;
    op->request = (struct sw_request){.operation = a->operation,
                                      .tenant = a->owner->quota,
                                      .session = a->owner->number,
                                      .number = n > 1 ? ++sw_engine_of(a->owner)->last_op_number : 0,
                                      .kept = sw_quota_kept(a->owner->quota),
                                      .may_fill_holes = a->may_fill_holes,
                                      .n_buffers = n,
                                      .buffers = op->buffers};
    for (unsigned i = 0; i < n; i++) {
        struct sw_job *job = &op->jobs[i];
        op->buffers[i] = a->buffers[i];
        op->raw_bytes += a->buffers[i].bytes;
        sw_job_init_run(job, &op->request, i);
        job->quota = a->owner->quota;
        job->order = a->ranges[i].order;
        sw_order_page_ref(job->order.page);
    }
}

int sw_op_new(struct sw_op **ret, const struct sw_admission *a, struct sw_err *err) {
    const uint64_t bytes = op_bytes(a->n);
    int rc;
    struct sw_op *op = sw_budget_alloc(sw_quota_kept(a->owner->quota), bytes, "an operation", &rc, err);
    if (!op)
        return rc;
    op->kept_bytes = bytes;
    fill(op, a);
    if (a->frames)
        rc = give_frames(op, a->frames, err);
    if (rc)
        sw_op_free(op);
    else
        *ret = op;
    return rc;
}

/* The memories are in use until sw_op_end(). */
static void begin(struct sw_op *op) {
    for (unsigned i = 0; i < op->request.n_buffers; i++) {
        struct sw_mem *mem = sw_mem_of(&op->buffers[i]);
        op->jobs[i].region_slot = op->region->id.slot;
        op->jobs[i].region_gen = op->region->id.gen;
        op->jobs[i].durability = op->region->durability;
        op->jobs[i].prefer = op->region->prefer;
        mem->used = true;
        mem->n_ops++;
        mem->n_in_place += sw_operation_is_in_place(op->request.operation);
    }
}

void sw_op_end(struct sw_op *op) {
    sw_list_remove(&op->node);
    op->owner->n_ops--;
    sw_engine_of(op->owner)->n_ops--;
    for (unsigned i = 0; i < op->request.n_buffers; i++) {
        struct sw_mem *mem = sw_mem_of(&op->buffers[i]);
        mem->n_in_place -= sw_operation_is_in_place(op->request.operation);
        sw_mem_op_ended(mem);
    }
}

void sw_op_post(struct sw_op *op) {
    for (unsigned i = 0; i < op->request.n_buffers; i++) {
        struct sw_job *job = &op->jobs[i];
        if (op->frames && has_own_frames(op)) /* until now a move may have changed them */
            sw_frames_view_update(job->run.frames, op->frames);
        sw_worker_submit(sw_mem_of(&op->buffers[i])->worker, job);
    }
}

void sw_op_cancel(struct sw_op *op) {
    for (unsigned i = 0; i < op->request.n_buffers; i++)
        sw_worker_cancel(sw_mem_of(&op->buffers[i])->worker, &op->jobs[i]);
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
        region->move->cancel(region->move); /* the operation is posted when the move has ended */
    else
        sw_op_post(op);
    sw_engine_keep_awake(engine);
}

int sw_op_phase(const struct sw_op *op) {
    int phase = SW_PHASE_STORING;
    for (unsigned i = 0; op->n_left > 0 && i < op->request.n_buffers; i++) {
        const int other = atomic_load(&op->jobs[i].signals.phase);
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

/* Joins the frames of several buffers. */
static void join_frames(struct sw_op *op) {
    struct sw_frames *frames[SW_FRAMES_MAX_BUFFERS];
    const unsigned n = op->request.n_buffers;
    for (unsigned i = 0; i < n; i++)
        frames[i] = op->jobs[i].run.frames;
    op->frames = sw_frames_join(frames, n);
    if (!op->frames) {
        (void)sw_err_set(&op->outcome->err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a region of %u buffers",
                         n);
        return;
    }
    for (unsigned i = 0; i < op->frames->n_buffers; i++)
        op->frames->buffers[i].reason = (uint8_t)op->jobs[i].run.outcome.reason;
    for (unsigned i = 0; i < n; i++)
        op->jobs[i].run.frames = NULL;
}

static void take_frames(struct sw_op *op) {
    if (has_several(op)) {
        join_frames(op);
        return;
    }
    op->frames = op->jobs[0].run.frames;
    op->jobs[0].run.frames = NULL;
}

/* The first error is the operation's: the other jobs fail because they are canceled. */
static void note_failure(struct sw_op *op, const struct sw_run *run) {
    op->outcome->err = run->outcome.err;
    op->outcome->failed = run->outcome.failed;
    if (op->frames)
        op->outcome->failed.first += sw_frames_buffer(op->frames, run->frames->buffer).first + run->frames->first;
    if (!has_several(op))
        return;
    sw_err_context(&op->outcome->err, "%s %u of %u", op->series ? "part" : "buffer", run->index + 1,
                   op->request.n_buffers);
    sw_op_cancel(op);
}

struct sw_op *sw_op_job_ended(const struct sw_job *job) {
    struct sw_op *op = SW_CONTAINER_OF(job->run.request, struct sw_op, request);
    uint64_t most = 0;
    if (job->run.outcome.err.code && (!has_several(op) || !op->outcome->err.code))
        note_failure(op, &job->run);
    if (--op->n_left > 0)
        return NULL;
    for (unsigned i = 0; i < op->request.n_buffers; i++) {
        op->charged_bytes += op->jobs[i].charged_bytes;
        if (has_several(op))
            sw_run_outcome_add(op->outcome, &op->jobs[i].run, &most);
    }
    if (op->series && sw_operation_encodes(op->request.operation)) /* the frames are the build's */
        return op;
    if (sw_operation_encodes(op->request.operation) && !op->outcome->err.code)
        take_frames(op);
    free_frames(op);
    return op;
}

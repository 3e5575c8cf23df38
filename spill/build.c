/* build.c - a region's way from the begin of its build to its commit. */
#include "spill/build.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "spill/engine_state.h"

/* ---- begin ---- */

static void free_frames(struct sw_build *build) {
    for (unsigned i = 0; i < build->n_buffers; i++) {
        sw_frames_free(build->buffers[i].frames);
        build->buffers[i].frames = NULL;
    }
}

/* Its region is gone, or the client's. */
static void build_free(struct sw_build *build) {
    struct sw_owner *owner = build->owner;
    sw_list_remove(&build->node);
    owner->n_builds--;
    sw_budget_give(sw_quota_kept(owner->quota), build->kept_bytes);
    sw_free(build);
    sw_owner_settle(owner);
}

static void give_up_region(struct sw_build *build) {
    free_frames(build);
    build->region->build = NULL;
    sw_region_give_up(build->region);
    build->region = NULL;
}

static void init_buffer(struct sw_build_buffer *buffer, const struct sw_build_buffer_config *config) {
    const bool is_empty = config->raw_bytes == 0 && config->chunk_bytes == 0; /* any length of chunks is right */
    *buffer = (struct sw_build_buffer){.raw_bytes = config->raw_bytes,
                                       .chunk_bytes = is_empty ? SW_BUILD_CHUNK_STEP_BYTES : config->chunk_bytes,
                                       .type = config->type};
}

static struct sw_build *build_new(struct sw_owner *owner, const struct sw_build_config *config, struct sw_err *err) {
    const uint64_t bytes = sizeof(struct sw_build) + config->n_buffers * sizeof(struct sw_build_buffer);
    if (sw_budget_take(sw_quota_kept(owner->quota), bytes, "a build", err))
        return NULL;
    struct sw_build *build = sw_alloc(bytes);
    if (!build) {
        sw_budget_give(sw_quota_kept(owner->quota), bytes);
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a build");
        return NULL;
    }
    build->owner = owner;
    build->kept_bytes = owner->quota ? bytes : 0;
    build->idle_us = sw_clock_us();
    build->n_buffers = config->n_buffers;
    for (unsigned i = 0; i < config->n_buffers; i++)
        init_buffer(&build->buffers[i], &config->buffers[i]);
    sw_list_append(&owner->builds, &build->node);
    owner->n_builds++;
    return build;
}

/* Where the appends' frames come together; where the length of chunks is not known, the only append brings all. */
static int make_frames(struct sw_build *build, struct sw_build_buffer *buffer, struct sw_err *err) {
    if (buffer->chunk_bytes == 0)
        return 0;
    const uint64_t kept_bytes = sw_frames_kept_bytes(buffer->raw_bytes, buffer->chunk_bytes, false);
    const int rc = sw_budget_take(sw_quota_kept(build->owner->quota), kept_bytes, "the records of a region", err);
    if (rc)
        return rc;
    build->region->kept_bytes += kept_bytes;
    buffer->frames = sw_frames_new(buffer->raw_bytes, buffer->chunk_bytes, false);
    if (!buffer->frames)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a region of %llu bytes",
                          (unsigned long long)buffer->raw_bytes);
    buffer->frames->n_begun = 0;
    return 0;
}

int sw_build_begin(struct sw_owner *owner, const struct sw_build_config *config, struct sw_build **ret,
                   struct sw_err *err) {
    struct sw_region_start start = {.name = config->name};
    struct sw_err cause = {0};
    struct sw_build *build = NULL;
    int rc = sw_admit_build(owner, config, &start.raw_bytes, &cause);
    if (!rc && !(build = build_new(owner, config, &cause)))
        rc = cause.code;
    if (!rc)
        rc = sw_region_begin(owner, &start, &build->region, &cause);
    if (!rc) {
        build->id = build->region->id;
        build->region->build = build;
        build->region->priority = config->priority;
    }
    for (unsigned i = 0; !rc && i < config->n_buffers; i++)
        rc = make_frames(build, &build->buffers[i], &cause);
    if (rc && build && build->region)
        give_up_region(build);
    if (rc && build)
        build_free(build);
    if (rc && err)
        *err = cause;
    if (!rc)
        *ret = build;
    return rc;
}

/* ---- its end ---- */

/* The callback is due, or nobody waits for one. */
static void end(struct sw_build *build) {
    struct sw_engine *engine = sw_engine_of(build->owner);
    if (build->is_dropped) {
        build_free(build);
        return;
    }
    build->has_ended = true;
    sw_list_remove(&build->node);
    sw_list_append(&engine->ended_builds, &build->node);
    (void)uv_async_send(&engine->async);
}

/* region: NULL if nothing of it is left. */
static void fill_outcome(struct sw_build *build, const struct sw_region *region) {
    const struct sw_ended ended = {.engine = sw_engine_of(build->owner),
                                   .operation = SW_OP_SPILL,
                                   .what = "build of",
                                   .region = region,
                                   .id = build->id,
                                   .tier = region ? region->tier : NULL,
                                   .sum = &build->sum,
                                   .submitted_us = build->submitted_us};
    sw_outcome_fill(&ended, &build->outcome);
    if (build->submitted_us) /* else it has no bytes */
        sw_outcome_note(&ended, &build->outcome);
}

/* The frames of all buffers, which are the region's from now on. NULL: out of memory. */
static struct sw_frames *join_frames(struct sw_build *build) {
    struct sw_frames *parts[SW_FRAMES_MAX_PARTS] = {NULL};
    for (unsigned i = 0; i < build->n_buffers; i++)
        parts[i] = build->buffers[i].frames;
    struct sw_frames *frames = build->n_buffers > 1 ? sw_frames_join(parts, build->n_buffers) : parts[0];
    for (unsigned i = 0; frames && i < build->n_buffers; i++) {
        build->buffers[i].frames = NULL;
        if (frames->n_parts)
            frames->parts[i].reason = (uint8_t)build->buffers[i].reason;
    }
    return frames;
}

static void fail(struct sw_build *build, const struct sw_err *cause) {
    build->state = SW_BUILD_FAILED;
    build->sum.err = *cause;
    for (struct sw_list *node = build->owner->ops.next; node != &build->owner->ops; node = node->next) {
        struct sw_op *op = SW_CONTAINER_OF(node, struct sw_op, node);
        if (op->build == build)
            sw_op_cancel(op);
    }
}

/* All appends have ended well. */
static void complete(struct sw_build *build) {
    struct sw_region *region = build->region;
    struct sw_frames *frames = join_frames(build);
    if (!frames) {
        (void)sw_err_set(&build->sum.err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a region of %u buffers",
                         build->n_buffers);
        build->state = SW_BUILD_FAILED;
        return;
    }
    build->region = NULL;
    region->build = NULL;
    if (sw_region_complete(region, frames, &build->sum, &build->sum.err))
        build->state = SW_BUILD_FAILED;
    else
        fill_outcome(build, region);
}

/* What is due once no append is under way. */
static void look(struct sw_build *build) {
    if (build->n_ops > 0 || build->has_ended)
        return;
    if (build->state == SW_BUILD_SEALED)
        complete(build);
    if (build->state == SW_BUILD_FAILED) {
        if (build->region)
            give_up_region(build);
        fill_outcome(build, NULL);
    }
    if (build->is_ending || build->is_dropped)
        end(build);
}

void sw_builds_call_back(struct sw_engine *engine) {
    struct sw_list *node;
    while ((node = sw_list_take_first(&engine->ended_builds))) {
        struct sw_build *build = SW_CONTAINER_OF(node, struct sw_build, node);
        const struct sw_outcome outcome = build->outcome;
        sw_outcome_cb *done = build->done;
        void *arg = build->arg;
        build_free(build);
        done(&outcome, arg);
    }
}

void sw_builds_close(struct sw_owner *owner) {
    const struct sw_err closing = {-SW_ECANCELED, .scope = SW_SCOPE_REQUEST, .msg = "the session is closing"};
    owner->n_builds++; /* it must not settle here */
    for (struct sw_list *node = owner->builds.next, *next; node != &owner->builds; node = next) {
        struct sw_build *build = SW_CONTAINER_OF(node, struct sw_build, node);
        next = node->next;
        build->is_dropped = !build->is_ending;
        if (build->state != SW_BUILD_FAILED)
            fail(build, &closing);
        look(build);
    }
    owner->n_builds--;
}

void sw_build_fail(struct sw_build *build, const struct sw_err *cause) {
    if (build->state == SW_BUILD_FAILED || build->has_ended)
        return;
    fail(build, cause);
    look(build);
}

/* ---- appends ---- */

static int check_not_ending(const struct sw_build *build, struct sw_err *err) {
    return build->is_ending ? sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "the build was committed or aborted") : 0;
}

int sw_build_append(struct sw_build *build, const struct sw_range *ranges, unsigned n, sw_outcome_cb *done, void *arg,
                    struct sw_err *err) {
    const struct sw_op_config config = {.operation = SW_OP_SPILL, .ranges = ranges, .n = n, .build = build};
    struct sw_op *op = NULL;
    int rc = check_not_ending(build, err);
    if (rc)
        return rc;
    if (build->state == SW_BUILD_FAILED) {
        if (err)
            *err = build->sum.err;
        return build->sum.err.code;
    }
    rc = sw_admit_append(build, ranges, n, err);
    if (!rc)
        rc = sw_op_new(&op, build->owner, &config, err);
    if (rc)
        return rc;
    for (unsigned i = 0; i < n; i++)
        build->buffers[ranges[i].buffer].end_bytes += ranges[i].bytes;
    build->submitted_us = build->submitted_us ? build->submitted_us : op->submitted_us;
    build->n_ops++;
    sw_op_submit(op, build->region, done, arg);
    return 0;
}

/* The frames of one range: to their place in the build, or away with it. The records that were kept for them are the
 * build's already, unless the length of chunks was not known. */
static void take_frames(struct sw_build *build, struct sw_run *run) {
    struct sw_build_buffer *buffer = &build->buffers[run->buffer->number ? run->buffer->number - 1 : 0];
    struct sw_frames *frames = run->frames;
    uint64_t kept_bytes = run->outcome.kept_bytes;
    run->frames = NULL;
    if (build->state == SW_BUILD_FAILED) {
        sw_frames_free(frames);
    } else if (buffer->frames) {
        sw_frames_put(buffer->frames, frames);
    } else {
        buffer->frames = frames;
        build->region->kept_bytes += kept_bytes;
        kept_bytes = 0;
    }
    sw_budget_give(run->request->kept, kept_bytes);
    sw_run_outcome_add(&build->sum, run, &build->longest_bytes);
    if (run->buffer->bytes >= buffer->longest_bytes) {
        buffer->reason = run->outcome.reason;
        buffer->longest_bytes = run->buffer->bytes;
    }
}

static void fill_append(const struct sw_op *op, struct sw_outcome *ret) {
    const struct sw_ended ended = {.engine = sw_engine_of(op->owner),
                                   .operation = SW_OP_SPILL,
                                   .what = "append to",
                                   .id = op->build->id,
                                   .sum = &op->outcome,
                                   .submitted_us = op->submitted_us};
    sw_outcome_fill(&ended, ret);
    for (unsigned i = 0; i < op->request.n_buffers; i++)
        ret->raw_bytes += op->buffers[i].bytes;
    ret->stored_bytes = op->outcome.stored_bytes;
    ret->codec = sw_frames_most_used(op->outcome.codec_raw_bytes);
    ret->reason = sw_cost_reason_text(op->outcome.reason);
}

void sw_build_append_ended(struct sw_op *op, struct sw_outcome *ret) {
    struct sw_build *build = op->build;
    build->region->charged_bytes += op->charged_bytes;
    if (build->state == SW_BUILD_FAILED) /* it may be canceled for that, and has nothing stored in any case */
        op->outcome.err = build->sum.err;
    else if (op->outcome.err.code)
        fail(build, &op->outcome.err);
    for (unsigned i = 0; i < op->request.n_buffers; i++)
        take_frames(build, &op->parts[i].job.run);
    fill_append(op, ret);
    build->n_ops--;
    build->idle_us = sw_clock_us();
    look(build);
}

/* ---- commit and abort ---- */

static int check_complete(const struct sw_build *build, struct sw_err *err) {
    for (unsigned i = 0; i < build->n_buffers; i++) {
        const struct sw_build_buffer *buffer = &build->buffers[i];
        if (buffer->end_bytes != buffer->raw_bytes)
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "buffer %u has %llu bytes, %llu were appended", i + 1,
                              (unsigned long long)buffer->raw_bytes, (unsigned long long)buffer->end_bytes);
    }
    return 0;
}

static void begin_end(struct sw_build *build, sw_outcome_cb *done, void *arg) {
    build->is_ending = true;
    build->done = done;
    build->arg = arg;
}

int sw_build_commit(struct sw_build *build, uint32_t request, uint32_t index, sw_outcome_cb *done, void *arg,
                    struct sw_err *err) {
    int rc = check_not_ending(build, err);
    if (!rc && build->state == SW_BUILD_OPEN)
        rc = check_complete(build, err);
    if (rc)
        return rc;
    begin_end(build, done, arg);
    if (build->state == SW_BUILD_OPEN) {
        build->state = SW_BUILD_SEALED;
        build->region->request = request;
        build->region->piece = index;
    }
    look(build);
    return 0;
}

int sw_build_abort(struct sw_build *build, sw_outcome_cb *done, void *arg, struct sw_err *err) {
    const struct sw_err aborted = {-SW_ECANCELED, .scope = SW_SCOPE_REQUEST, .msg = "the build was aborted"};
    const int rc = check_not_ending(build, err);
    if (rc)
        return rc;
    begin_end(build, done, arg);
    if (build->state != SW_BUILD_FAILED)
        fail(build, &aborted);
    look(build);
    return 0;
}

enum sw_build_state sw_build_state(const struct sw_build *build) {
    return build->state;
}

uint64_t sw_build_idle_since_us(const struct sw_build *build) {
    return build->n_ops ? 0 : build->idle_us;
}

/* build.c - builds, from begin to commit or abort. */
#include "spill/build.h"

#include "spill/engine_state.h"

/* ---- begin ---- */

static struct sw_build *of(struct sw_series *series) {
    return SW_CONTAINER_OF(series, struct sw_build, series);
}

static void init_buffer(struct sw_build_buffer *buffer, const struct sw_build_buffer_config *config) {
    const bool is_empty = config->raw_bytes == 0 && config->chunk_bytes == 0; /* has no chunks: any length will do */
    *buffer = (struct sw_build_buffer){.raw_bytes = config->raw_bytes,
                                       .chunk_bytes = is_empty ? SW_BUILD_CHUNK_STEP_BYTES : config->chunk_bytes,
                                       .type = config->type};
}

/* Makes the frames that collect those of the appends. If the length of chunks is unknown, the only append makes them.
 */
static int make_frames(struct sw_build *build, struct sw_build_buffer *buffer, struct sw_err *err) {
    if (buffer->chunk_bytes == 0)
        return 0;
    const uint64_t kept_bytes = sw_frames_kept_bytes(buffer->raw_bytes, buffer->chunk_bytes, false);
    const int rc =
        sw_budget_take(sw_quota_kept(build->series.owner->quota), kept_bytes, "the records of a region", err);
    if (rc)
        return rc;
    build->series.region->kept_bytes += kept_bytes;
    buffer->frames = sw_frames_new(buffer->raw_bytes, buffer->chunk_bytes, false);
    if (!buffer->frames)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a region of %llu bytes",
                          (unsigned long long)buffer->raw_bytes);
    buffer->frames->n_begun = 0;
    return 0;
}

/* No append is in flight. */
static void give_up(struct sw_series *series) {
    struct sw_build *build = of(series);
    for (unsigned i = 0; i < build->n_buffers; i++) {
        sw_frames_free(build->buffers[i].frames);
        build->buffers[i].frames = NULL;
    }
    sw_frames_free(build->joined);
    build->joined = NULL;
    sw_region_give_up(sw_series_leave_region(series));
}

/* Takes the frames of all buffers off the build, as one. NULL: out of memory. */
static struct sw_frames *join_frames(struct sw_build *build) {
    struct sw_frames *joined = build->joined;
    build->joined = NULL;
    if (joined)
        return joined;
    struct sw_frames *of[SW_FRAMES_MAX_BUFFERS] = {NULL};
    for (unsigned i = 0; i < build->n_buffers; i++)
        of[i] = build->buffers[i].frames;
    struct sw_frames *frames = build->n_buffers > 1 ? sw_frames_join(of, build->n_buffers) : of[0];
    for (unsigned i = 0; frames && i < build->n_buffers; i++) {
        build->buffers[i].frames = NULL;
        if (frames->n_buffers)
            frames->buffers[i].reason = (uint8_t)build->buffers[i].reason;
    }
    return frames;
}

static int add_durable(struct sw_build *build, struct sw_completion *all, unsigned *n, struct sw_err *err) {
    struct sw_region *region = build->series.region;
    if (region->durability == SW_DURABILITY_SERVICE)
        return 0;
    build->joined = join_frames(build);
    if (!build->joined)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a region");
    all[(*n)++] = (struct sw_completion){region, build->joined, &build->series.sum};
    if (all[0].region->durability != region->durability)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a batch of regions with different durability");
    return 0;
}

/* Only durable regions have something to wait for. */
static int keep(struct sw_series *const *all, unsigned n, struct sw_err *err) {
    struct sw_completion durable[SW_SERIES_MAX_BATCH];
    unsigned n_durable = 0;
    int rc = 0;
    for (unsigned i = 0; !rc && i < n; i++)
        rc = add_durable(of(all[i]), durable, &n_durable, err);
    if (rc || n_durable == 0)
        return rc;
    rc = sw_keeper_keep(&sw_engine_of(all[0]->owner)->keeper, durable, n_durable, sw_series_kept, all[0], err);
    return rc ? rc : 1;
}

/* All appends have ended well. After an error the joined frames are freed with their builds. */
static int complete(struct sw_series *const *all, unsigned n, struct sw_err *err) {
    struct sw_completion done[SW_SERIES_MAX_BATCH] = {{0}};
    for (unsigned i = 0; i < n; i++) {
        done[i] =
            (struct sw_completion){.region = all[i]->region, .frames = join_frames(of(all[i])), .sum = &all[i]->sum};
        if (!done[i].frames) {
            while (i-- > 0)
                of(all[i])->buffers[0].frames = done[i].frames;
            return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a region");
        }
    }
    for (unsigned i = 0; i < n; i++)
        (void)sw_series_leave_region(all[i]);
    const int rc = sw_regions_complete(done, n, err);
    for (unsigned i = 0; !rc && i < n; i++) {
        sw_series_fill(all[i], done[i].region);
        sw_series_note(all[i], done[i].region);
    }
    return rc;
}

/* Every byte was appended, or is being appended. */
static int check_end(const struct sw_series *series, struct sw_err *err) {
    const struct sw_build *build = SW_CONTAINER_OF(series, const struct sw_build, series);
    for (unsigned i = 0; i < build->n_buffers; i++) {
        const struct sw_build_buffer *buffer = &build->buffers[i];
        if (buffer->end_bytes != buffer->raw_bytes)
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "buffer %u has %llu bytes, %llu were appended", i + 1,
                              (unsigned long long)buffer->raw_bytes, (unsigned long long)buffer->end_bytes);
    }
    return 0;
}

/* Frees the build and the region after an error. */
static int fill(struct sw_build *build, const struct sw_build_config *config, struct sw_region *region,
                struct sw_err *err) {
    int rc = 0;
    sw_series_take_region(&build->series, region);
    region->priority = config->priority;
    build->n_buffers = config->n_buffers;
    for (unsigned i = 0; i < config->n_buffers; i++)
        init_buffer(&build->buffers[i], &config->buffers[i]);
    for (unsigned i = 0; !rc && i < config->n_buffers; i++)
        rc = make_frames(build, &build->buffers[i], err);
    if (rc) {
        give_up(&build->series);
        sw_series_free(&build->series);
    }
    return rc;
}

static const struct sw_series_kind kind = {.name = "a build",
                                           .what = "build of",
                                           .op_what = "append to",
                                           .operation = SW_OP_SPILL,
                                           .check_end = check_end,
                                           .keep = keep,
                                           .complete = complete,
                                           .give_up = give_up};

int sw_build_begin(struct sw_owner *owner, const struct sw_build_config *config, struct sw_build **ret,
                   struct sw_err *err) {
    const uint64_t bytes = sizeof(struct sw_build) + config->n_buffers * sizeof(struct sw_build_buffer);
    struct sw_region_start start = {.name = config->name, .durability = config->durability, .prefer = config->prefer};
    struct sw_region *region = NULL;
    int rc = sw_admit_build(owner, config, &start.raw_bytes, err);
    if (rc)
        return rc;
    rc = sw_region_begin(owner, &start, &region, err);
    if (rc)
        return rc;
    struct sw_err cause = {0};
    struct sw_build *build = sw_series_new(owner, bytes, &kind, &cause);
    if (!build) {
        sw_region_give_up(region);
        rc = cause.code;
    } else {
        rc = fill(build, config, region, &cause);
    }
    if (rc && err)
        *err = cause;
    if (!rc)
        *ret = build;
    return rc;
}

/* ---- appends ---- */

int sw_build_append(struct sw_build *build, const struct sw_range *ranges, unsigned n, sw_outcome_cb *done, void *arg,
                    struct sw_err *err) {
    struct sw_op *op = NULL;
    const int rc = sw_admit_append(build, ranges, n, &op, err);
    if (rc)
        return rc;
    for (unsigned i = 0; i < n; i++)
        build->buffers[ranges[i].buffer].end_bytes += ranges[i].bytes;
    sw_series_submit(&build->series, op, done, arg);
    return 0;
}

/* Puts the frames of a range to their place in the build, or frees them if it has failed. The build has paid for their
 * records already, unless the length of chunks was unknown. */
static void take_frames(struct sw_build *build, struct sw_run *run) {
    struct sw_build_buffer *buffer = &build->buffers[sw_buffer_index(run->buffer)];
    struct sw_frames *frames = run->frames;
    uint64_t kept_bytes = run->outcome.kept_bytes;
    run->frames = NULL;
    if (build->series.has_failed) {
        sw_frames_free(frames);
    } else if (buffer->frames) {
        sw_frames_put(buffer->frames, frames);
    } else {
        buffer->frames = frames;
        build->series.region->kept_bytes += kept_bytes;
        kept_bytes = 0;
    }
    sw_budget_give(run->request->kept, kept_bytes);
    sw_run_outcome_add(&build->series.sum, run, &build->most);
    if (sw_run_weight(run) >= buffer->most) {
        buffer->reason = run->outcome.reason;
        buffer->most = sw_run_weight(run);
    }
}

void sw_build_append_ended(struct sw_op *op, struct sw_outcome *ret) {
    struct sw_series *series = op->series;
    series->region->charged_bytes += op->charged_bytes;
    sw_series_note_failure(series, op);
    for (unsigned i = 0; i < op->request.n_buffers; i++)
        take_frames(of(series), &op->jobs[i].run);
    sw_series_fill_op(op, ret);
    sw_series_op_ended(series);
}

/* ---- commit and abort ---- */

int sw_build_check(const struct sw_build *build, struct sw_err *err) {
    const int rc = sw_series_check(&build->series, err);
    return rc ? rc : check_end(&build->series, err);
}

int sw_build_commit_batch(const struct sw_build_end *ends, unsigned n, uint32_t request, sw_outcome_cb *done,
                          struct sw_err *err) {
    struct sw_series *all[SW_SERIES_MAX_BATCH];
    void *args[SW_SERIES_MAX_BATCH];
    const int rc = sw_series_check_number(n, err);
    if (rc)
        return rc;
    for (unsigned i = 0; i < n; i++) {
        all[i] = &ends[i].build->series;
        args[i] = ends[i].arg;
        if (all[i]->region && !all[i]->is_ending) { /* takes effect when the region is recorded */
            all[i]->region->request = request;
            all[i]->region->batch_index = ends[i].index;
        }
    }
    return sw_series_end_all(all, args, n, done, err);
}

int sw_build_commit(struct sw_build *build, uint32_t request, uint32_t index, sw_outcome_cb *done, void *arg,
                    struct sw_err *err) {
    return sw_build_commit_batch(&(struct sw_build_end){build, index, arg}, 1, request, done, err);
}

int sw_build_abort(struct sw_build *build, sw_outcome_cb *done, void *arg, struct sw_err *err) {
    const struct sw_err aborted = {-SW_ECANCELED, .scope = SW_SCOPE_REQUEST, .msg = "the build was aborted"};
    struct sw_series *series = &build->series;
    if (series->is_ending)
        return sw_series_check(series, err);
    if (!series->has_failed)
        sw_series_fail(series, &aborted);
    sw_series_end(series, done, arg);
    return 0;
}

void sw_build_fail(struct sw_build *build, const struct sw_err *cause) {
    sw_series_expire(&build->series, cause);
}

enum sw_build_state sw_build_state(const struct sw_build *build) {
    return build->series.has_failed ? SW_BUILD_FAILED : build->series.is_ending ? SW_BUILD_SEALED : SW_BUILD_OPEN;
}

uint64_t sw_build_idle_since_us(const struct sw_build *build) {
    return sw_series_idle_since_us(&build->series);
}

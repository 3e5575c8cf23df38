/* read.c - reads, from begin to end. */
#include "spill/read.h"

#include "spill/engine_state.h"

static struct sw_read *of(struct sw_series *series) {
    return SW_CONTAINER_OF(series, struct sw_read, series);
}

/* Only one restore may fill holes: the first that has begun to write. */
static void give_up(struct sw_series *series) {
    struct sw_region *region = sw_series_leave_region(series);
    if (!series->sum.mapped_us)
        region->may_fill_holes = of(series)->may_fill_holes;
    sw_region_stay_out(region, of(series)->is_lost);
    if (region->owner->state == SW_OWNER_CLOSING)
        sw_region_let_go(sw_engine_of(region->owner)->config.catalogue, region);
}

/* The stored copy is dropped only if every chunk was asked for. */
static int check_end(const struct sw_series *series, struct sw_err *err) {
    const struct sw_read *read = SW_CONTAINER_OF(series, const struct sw_read, series);
    const size_t n_chunks = series->region->frames->n_chunks;
    if (read->keep || read->n_asked == n_chunks)
        return 0;
    return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%zu of the region's %zu chunks have not been read",
                      n_chunks - read->n_asked, n_chunks);
}

/* Every chunk that was asked for was restored. */
static void come_back(struct sw_series *series) {
    struct sw_read *read = of(series);
    struct sw_region *region = sw_series_leave_region(series);
    if (read->n_asked == region->frames->n_chunks)
        sw_region_come_back(region, read->keep);
    else
        sw_region_stay_out(region, false);
    sw_series_fill(series, region);
    series->outcome.raw_bytes = read->raw_bytes;
    series->outcome.stored_bytes = read->stored_bytes;
    series->outcome.coder = sw_coder_name(read->n_asked > 0 && read->n_raw == 0);
    sw_series_note(series, region);
}

static int complete(struct sw_series *const *all, unsigned n, struct sw_err *err) {
    (void)err;
    for (unsigned i = 0; i < n; i++)
        come_back(all[i]);
    return 0;
}

static const struct sw_series_kind kind = {.name = "a read",
                                           .what = "read of",
                                           .op_what = "chunks of",
                                           .operation = SW_OP_RESTORE,
                                           .check_end = check_end,
                                           .complete = complete,
                                           .give_up = give_up};

int sw_read_begin(struct sw_owner *owner, struct sw_region_id id, struct sw_read **ret,
                  struct sw_buffer_info ret_buffers[SW_FRAMES_MAX_BUFFERS], unsigned *ret_n, struct sw_err *err) {
    struct sw_region *region;
    struct sw_err cause = {0};
    int rc = sw_admit_read(owner, id, &region, err);
    if (rc)
        return rc;
    const uint64_t bytes = sizeof(struct sw_read) + (region->frames->n_chunks + 63) / 64 * sizeof(uint64_t);
    struct sw_read *read = sw_series_new(owner, bytes, &kind, &cause);
    if (!read) {
        if (err)
            *err = cause;
        return cause.code;
    }
    (void)sw_engine_query_buffers(owner, id, ret_buffers, ret_n, NULL); /* cannot fail: it was found */
    read->may_fill_holes = region->may_fill_holes;
    region->may_fill_holes = false;
    sw_region_move(region, SW_REGION_RESTORING);
    sw_series_take_region(&read->series, region);
    *ret = read;
    return 0;
}

const struct sw_frame_layout *sw_read_layout(const struct sw_read *read, const struct sw_range *range) {
    return sw_frames_layout_at(read->series.region->frames, range->buffer, range->at);
}

/* Returns the first of the region's chunks that a buffer of an operation has, and their number. */
static size_t chunks_of(const struct sw_frames *frames, const struct sw_buffer *buffer, size_t *ret_n) {
    const struct sw_frames_buffer all = sw_frames_buffer(frames, sw_buffer_index(buffer));
    *ret_n = buffer->bytes / all.chunk_bytes + (buffer->bytes % all.chunk_bytes != 0);
    return all.first + buffer->first_chunk;
}

static void note_asked(struct sw_read *read, const struct sw_buffer *buffer) {
    size_t n;
    const size_t first = chunks_of(read->series.region->frames, buffer, &n);
    for (size_t i = first; i < first + n; i++) {
        read->n_raw += !buffer->frame_bytes;
        read->n_asked += !(read->was_asked[i / 64] >> i % 64 & 1);
        read->was_asked[i / 64] |= UINT64_C(1) << i % 64;
    }
}

int sw_read_chunks(struct sw_read *read, const struct sw_range *ranges, unsigned n, sw_outcome_cb *done, void *arg,
                   struct sw_err *err) {
    struct sw_op *op = NULL;
    const int rc = sw_admit_chunks(read, ranges, n, &op, err);
    if (rc)
        return rc;
    for (unsigned i = 0; i < n; i++)
        note_asked(read, &op->buffers[i]);
    sw_series_submit(&read->series, op, done, arg);
    return 0;
}

/* Adds up the chunks of one range. */
static void count(struct sw_read *read, struct sw_op *op, unsigned i) {
    const struct sw_frames *frames = read->series.region->frames;
    uint64_t most = UINT64_MAX, stored_bytes = 0; /* the reason is the spill's */
    size_t n;
    const size_t first = chunks_of(frames, &op->buffers[i], &n);
    sw_run_outcome_add(&read->series.sum, &op->jobs[i].run, &most); /* first: op->outcome may be this run's */
    for (size_t chunk = first; chunk < first + n; chunk++) {
        stored_bytes += frames->layouts[chunk].frame_bytes;
        op->outcome->codec_raw_bytes[frames->layouts[chunk].codec] += frames->layouts[chunk].raw_bytes;
    }
    op->outcome->stored_bytes += stored_bytes;
    if (!op->outcome->err.code) {
        read->stored_bytes += stored_bytes;
        read->raw_bytes += op->buffers[i].bytes;
    }
}

void sw_read_chunks_ended(struct sw_op *op, struct sw_outcome *ret) {
    struct sw_series *series = op->series;
    sw_restore_widen(&op->outcome->err);
    of(series)->is_lost |= sw_restore_proves_loss(op->outcome->err.code);
    if (op->outcome->err.code)
        sw_damage_report(&sw_engine_of(op->owner)->store.observer, series->id, op->frames, op->outcome);
    sw_series_note_failure(series, op);
    for (unsigned i = 0; i < op->request.n_buffers; i++)
        count(of(series), op, i);
    sw_series_fill_op(op, ret);
    sw_series_op_ended(series);
}

int sw_read_end_batch(const struct sw_read_end *ends, unsigned n, sw_outcome_cb *done, struct sw_err *err) {
    struct sw_series *all[SW_SERIES_MAX_BATCH];
    void *args[SW_SERIES_MAX_BATCH];
    const int rc = sw_series_check_number(n, err);
    if (rc)
        return rc;
    for (unsigned i = 0; i < n; i++) {
        all[i] = &ends[i].read->series;
        args[i] = ends[i].arg;
        if (all[i]->region && !all[i]->is_ending)
            ends[i].read->keep = ends[i].keep || all[i]->region->name;
    }
    return sw_series_end_all(all, args, n, done, err);
}

int sw_read_end(struct sw_read *read, bool keep, sw_outcome_cb *done, void *arg, struct sw_err *err) {
    return sw_read_end_batch(&(struct sw_read_end){read, keep, arg}, 1, done, err);
}

void sw_read_fail(struct sw_read *read, const struct sw_err *cause) {
    sw_series_expire(&read->series, cause);
}

bool sw_read_has_all(const struct sw_read *read) {
    const struct sw_region *region = read->series.region;
    return !read->series.has_failed && region && read->n_asked == region->frames->n_chunks;
}

enum sw_read_state sw_read_state(const struct sw_read *read) {
    return read->series.has_failed ? SW_READ_FAILED : read->series.is_ending ? SW_READ_ENDING : SW_READ_OPEN;
}

uint64_t sw_read_idle_since_us(const struct sw_read *read) {
    return sw_series_idle_since_us(&read->series);
}

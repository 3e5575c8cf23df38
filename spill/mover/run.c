/* run.c - how a run begins and ends in the mover, and what it shares in between. */
#include "spill/mover/mover_state.h"

#include "base/alloc.h"
#include "base/log.h"
#include "spill/planner/rules.h"

static void run_fail(struct sw_mover *m, struct sw_run *run, const struct sw_err *cause) {
    if (run->outcome.err.code)
        return;
    run->outcome.err = *cause;
    sw_run_look_at(m, run);
}

void sw_mover_cancel(struct sw_mover *m, struct sw_signals *signals) {
    atomic_store(&signals->cancel, true);
    atomic_store(&m->has_canceled, true);
}

void sw_run_note_canceled(struct sw_mover *m, struct sw_run *run) {
    static const struct sw_err canceled = {.code = -SW_ECANCELED, .scope = SW_SCOPE_REQUEST, .msg = "canceled"};
    if (atomic_load_explicit(&run->signals->cancel, memory_order_relaxed))
        run_fail(m, run, &canceled);
}

void sw_mover_note_canceled(struct sw_mover *m) {
    if (!atomic_load_explicit(&m->has_canceled, memory_order_relaxed))
        return;
    (void)atomic_exchange(&m->has_canceled, false); /* before the signals are read */
    m->is_settled = false;
    for (struct sw_list *node = m->runs.next; node != &m->runs; node = node->next)
        sw_run_note_canceled(m, SW_CONTAINER_OF(node, struct sw_run, node));
}

void sw_run_set_phase(struct sw_mover *m, struct sw_run *run, enum sw_phase phase) {
    atomic_store(&run->signals->phase, (int)phase);
    m->host.progress(m->host.arg);
}

void sw_mover_unmap(struct sw_mover *m, struct sw_run_memory *memory) {
    if (memory->mapping) {
        m->device->ops->unmap(m->device, memory->mapping);
        memory->mapping = NULL;
        m->n_mapped--;
        m->now_us = 0; /* it takes a while */
    }
    sw_mem_desc_fini(&memory->desc); /* still there if mapping has failed */
}

/* Notes that the context has died, which fails every run. */
static void note_lost(struct sw_mover *m, const struct sw_err *cause) {
    if (cause->code != -SW_EGPULOST || m->lost.code)
        return;
    m->lost = *cause;
    for (struct sw_list *node = m->runs.next; node != &m->runs; node = node->next)
        run_fail(m, SW_CONTAINER_OF(node, struct sw_run, node), cause);
}

static int refuse_lost(const struct sw_mover *m, struct sw_err *err) {
    if (m->lost.code && err)
        *err = m->lost;
    return m->lost.code;
}

/* Maps for a run; the caller notes a failure as the run's. */
static int map(struct sw_mover *m, struct sw_run_memory *memory, struct sw_err *err) {
    if (memory->mapping)
        return 0;
    memory->desc.once = memory->once;
    int rc = memory->data ? m->device->ops->adopt(m->device, memory->data, memory->desc.bytes, &memory->mapping, err)
                          : m->device->ops->map(m->device, &memory->desc, &memory->mapping, err);
    if (rc)
        return rc;
    m->n_mapped++;
    m->now_us = 0;                   /* it takes a while */
    sw_mem_desc_fini(&memory->desc); /* the mapping has what it needs, and descriptors are scarce */
    return 0;
}

int sw_mover_map(struct sw_mover *m, struct sw_run_memory *memory, struct sw_err *err) {
    int rc = refuse_lost(m, err);
    if (!rc && (rc = map(m, memory, err)))
        note_lost(m, err);
    return rc;
}

int sw_mover_canary(struct sw_mover *m, struct sw_err *err) {
    int rc = refuse_lost(m, err);
    if (!rc && m->device->ops->canary && (rc = m->device->ops->canary(m->device, err)))
        note_lost(m, err);
    return rc;
}

/* Logs the microseconds of each stage, to find the slow one. A stage that was not reached counts 0. */
static void run_log(const struct sw_run *run, uint64_t moved_us, uint64_t end_us) {
    const uint64_t mapped = run->outcome.mapped_us ? run->outcome.mapped_us : moved_us;
    const uint64_t planned = run->outcome.planned_us ? run->outcome.planned_us : mapped;
    sw_log(SW_LOG_DEBUG, "job.stages", "kind=%s bytes=%llu map_us=%llu plan_us=%llu move_us=%llu unmap_us=%llu",
           sw_operation_name(run->request->operation), (unsigned long long)run->buffer->bytes,
           (unsigned long long)(mapped - run->outcome.started_us), (unsigned long long)(planned - mapped),
           (unsigned long long)(moved_us - planned), (unsigned long long)(end_us - moved_us));
}

static void release_frames(struct sw_mover *m, struct sw_run *run) {
    for (size_t i = 0; run->frames && m->sink->ops->release && i < run->frames->n_begun; i++)
        m->sink->ops->release(m->sink, run, &run->frames->stored[i]);
    sw_frames_delete(run->frames);
    run->frames = NULL;
}

/* It is long, and most short runs need none. */
bool sw_run_get_plan(struct sw_mover *m, struct sw_run *run) {
    struct sw_err err = {0};
    int rc;
    if (!run->course.plan)
        run->course.plan = sw_budget_alloc(run->request->kept, sizeof *run->course.plan, "a plan", &rc, &err);
    if (!run->course.plan)
        sw_mover_fail(m, run, &err);
    return run->course.plan != NULL;
}

static void free_plan(struct sw_run *run) {
    if (run->course.plan)
        sw_budget_give(run->request->kept, sizeof *run->course.plan);
    sw_free(run->course.plan);
    run->course.plan = NULL;
}

void sw_run_finish(struct sw_mover *m, struct sw_run *run) {
    const uint64_t moved_us = sw_mover_now_us(m);
    sw_list_remove(&run->node);
    sw_list_remove(&run->due);
    sw_turns_remove(&m->turns, &run->turn, moved_us);
    if (m->sink->ops->ended)
        m->sink->ops->ended(m->sink, run);
    run->outcome.reason = run->course.reason;
    free_plan(run);
    if (run->outcome.err.code && sw_operation_encodes(run->request->operation))
        release_frames(m, run);
    if (run->buffer && run->buffer->memory->once)
        sw_mover_unmap(m, run->buffer->memory);
    if (run->outcome.started_us && sw_log_prints(SW_LOG_DEBUG))
        run_log(run, moved_us, sw_mover_now_us(m));
    m->host.finished(run, m->host.arg);
}

bool sw_run_complete(const struct sw_run *run) {
    return run->stage == SW_STAGE_RUNNING && run->n_done == run->frames->n_chunks;
}

void sw_mover_fail(struct sw_mover *m, struct sw_run *run, const struct sw_err *cause) {
    run_fail(m, run, cause);
    note_lost(m, cause);
}

void sw_mover_fail_at(struct sw_mover *m, struct sw_run *run, size_t chunk, size_t n_chunks,
                      const struct sw_err *cause) {
    if (!run->outcome.err.code)
        run->outcome.failed = (struct sw_failed_chunks){.first = chunk, .n = n_chunks};
    sw_mover_fail(m, run, cause);
}

static uint64_t longest_chunk(const struct sw_mover *m, const struct sw_run *run) {
    const uint64_t device_bytes = m->device->ops->info(m->device)->chunk_bytes, most_sink_bytes = m->sink->chunk_bytes;
    return run->request->operation == SW_OP_SPILL && most_sink_bytes < device_bytes ? most_sink_bytes : device_bytes;
}

uint64_t sw_run_chunk_bytes(const struct sw_mover *m, const struct sw_run *run) {
    return run->buffer->chunk_bytes ? run->buffer->chunk_bytes
                                    : sw_rules_chunk_bytes(run->buffer->bytes, longest_chunk(m, run), m->n_slots);
}

/* Returns the length of a new region's chunks, which are longer if their frames become objects of a store. */
static uint64_t new_chunk_bytes(struct sw_mover *m, const struct sw_run *run) {
    const uint64_t bytes = sw_run_chunk_bytes(m, run);
    if (run->buffer->chunk_bytes || run->request->operation != SW_OP_SPILL || sw_mover_sink_is_away(m))
        return bytes;
    const struct sw_room room = sw_run_room(m, run);
    return sw_planner_goes_to_store(&room, run->buffer->bytes)
               ? sw_rules_object_chunk_bytes(bytes, longest_chunk(m, run))
               : bytes;
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Lengths that were chosen elsewhere: by a client, or on another device. */
static int check_chunks(const struct sw_mover *m, uint64_t longest_bytes, struct sw_err *err) {
    const uint64_t most = m->device->ops->info(m->device)->chunk_bytes;
    if (longest_bytes <= most)
        return 0;
    return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST,
                      "region has chunks of up to %llu bytes, this device takes %llu",
                      (unsigned long long)longest_bytes, (unsigned long long)most);
}

/* A few raw chunks do not count: data that shrink may have places that do not. */
static bool has_raw_and_others(const struct sw_frames *frames) {
    size_t n_raw = 0;
    for (size_t i = 0; i < frames->n_chunks; i++)
        n_raw += frames->layouts[i].codec == SW_CODEC_RAW;
    return n_raw > frames->n_chunks / 8 && n_raw < frames->n_chunks;
}

/* Makes the frames of a spill or pack, once the budget allows to keep their records. */
static int make_frames(struct sw_mover *m, struct sw_run *run, struct sw_err *err) {
    const uint64_t chunk_bytes = new_chunk_bytes(m, run);
    const bool packed = run->request->operation == SW_OP_PACK;
    const uint64_t kept_bytes = sw_frames_kept_bytes(run->buffer->bytes, chunk_bytes, packed);
    int rc = check_chunks(m, least(run->buffer->bytes, chunk_bytes), err);
    if (!rc)
        rc = sw_budget_take(run->request->kept, kept_bytes, "the records of a region", err);
    if (rc)
        return rc;
    run->outcome.kept_bytes = kept_bytes;
    run->frames = sw_frames_new(run->buffer->bytes, chunk_bytes, packed);
    if (!run->frames)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a region of %llu bytes",
                          (unsigned long long)run->buffer->bytes);
    run->frames->buffer = sw_buffer_index(run->buffer);
    run->frames->first = run->buffer->first_chunk;
    run->frames->n_begun = 0;
    return 0;
}

int sw_run_start(struct sw_mover *m, struct sw_run *run, struct sw_err *err) {
    run->outcome.started_us = sw_mover_now_us(m);
    int rc = map(m, run->buffer->memory, err);
    if (rc)
        return rc;
    run->outcome.mapped_us = sw_mover_now_us(m);
    if (sw_operation_encodes(run->request->operation))
        return make_frames(m, run, err);
    rc = check_chunks(m, least(run->frames->raw_bytes, run->frames->chunk_bytes), err);
    if (!rc && run->request->operation == SW_OP_RESTORE)
        run->course.is_mixed = has_raw_and_others(run->frames);
    return rc;
}

void sw_run_note_frame(struct sw_run *run, size_t chunk, enum sw_codec_id planned,
                       const struct sw_frame_layout *frame) {
    if (frame->codec != planned && run->frames->n_chunks == 1)
        run->course.reason = SW_COST_NO_GAIN;
    run->frames->layouts[chunk] = *frame;
    if (chunk >= run->frames->n_begun)
        run->frames->n_begun = chunk + 1;
    run->outcome.stored_bytes += frame->frame_bytes;
    run->outcome.codec_raw_bytes[frame->codec] += frame->raw_bytes;
    run->n_encoded++;
}

void sw_mover_stored(struct sw_mover *m, struct sw_run *run) {
    run->n_done++;
    sw_run_look_at(m, run);
    if (run->course.learning == SW_LEARNING_UNDER_WAY)
        sw_turns_wake(&m->turns, &run->turn); /* it may have waited for this (deal.c) */
}

void sw_mover_wake(struct sw_mover *m, struct sw_run *run) {
    sw_run_look_at(m, run);
    sw_turns_wake(&m->turns, &run->turn);
}

void sw_mover_look_at(struct sw_mover *m, uint64_t us) {
    if (!m->look_us || us < m->look_us)
        m->look_us = us;
}

/* ---- among others ---- */

int sw_run_join_turns(struct sw_mover *m, struct sw_run *run, struct sw_err *err) {
    const bool comes_back = run->request->operation == SW_OP_RESTORE || run->request->operation == SW_OP_UNPACK;
    const uint64_t chunk_bytes = m->device->ops->info(m->device)->chunk_bytes,
                   range_bytes = sw_buffer_range_bytes(run->buffer);
    /* Frames of clients go in the order in which they have come: of several packets that are under way the first is
     * to be answered first, so that the client's coder can go on with its buffer. */
    const struct sw_turn_key key = {.tenant = run->request->tenant,
                                    .session = run->request->session,
                                    .request = run->buffer->frame_bytes ? 0 : run->request->number,
                                    .step_bytes = range_bytes < chunk_bytes ? range_bytes : chunk_bytes,
                                    .lane = comes_back ? SW_TURN_BACK : SW_TURN_OUT};
    return sw_turns_add(&m->turns, &run->turn, &key, sw_mover_now_us(m), err);
}

uint64_t sw_run_dealt_bytes(const struct sw_run *run) {
    if (!run->frames)
        return 0;
    const uint64_t bytes = run->n_dealt * run->frames->chunk_bytes, range_bytes = sw_buffer_range_bytes(run->buffer);
    return bytes < range_bytes ? bytes : range_bytes;
}

bool sw_mover_has_neighbours(const struct sw_mover *m, const struct sw_run *run) {
    return sw_turns_has_neighbours(&m->turns, &run->turn, sw_clock_us());
}

bool sw_mover_is_alone(const struct sw_mover *m, const struct sw_run *run) {
    return m->turns.n_requests <= 1 && !sw_mover_has_neighbours(m, run);
}

/* copy.c - moves raw chunks without encoding them, several in one step of a slot.
 *
 * Beside a busy GPU a step with a kernel takes milliseconds, however little it does, so steps must be long (cost.h says
 * how long). A step needs no buffer of its slot, only room in the tier. A spill's step is cut where the host tier has
 * no more room. The chunk that did not fit is the first one of the next step, which waits or fails like any other. */
#include "spill/mover/mover_state.h"

#include "base/assert.h"

#include <string.h>

static struct sw_cost_direct region_of(const struct sw_mover *m, const struct sw_run *run) {
    return (struct sw_cost_direct){.raw_bytes = run->buffer->bytes,
                                   .n_chunks = run->frames->n_chunks,
                                   .n_slots = m->n_slots,
                                   .is_back = run->request->operation == SW_OP_RESTORE,
                                   .is_alone = sw_mover_is_alone(m, run),
                                   .has_neighbours = sw_mover_has_neighbours(m, run),
                                   .is_mixed = run->request->operation == SW_OP_SPILL && run->course.is_mixed};
}

/* Returns how many chunks of the run, from `first` on, a step would take at most. */
static unsigned step_chunks(const struct sw_mover *m, const struct sw_run *run, size_t first) {
    const struct sw_cost_direct region = region_of(m, run);
    const size_t left = run->frames->n_chunks - first;
    const unsigned n = sw_cost_direct_chunks(&region);
    return left < n ? (unsigned)left : n;
}

static uint64_t step_bytes(const struct sw_run *run, size_t first, unsigned n) {
    uint64_t bytes = 0;
    for (size_t i = first; i < first + n; i++)
        bytes += sw_frames_chunk_bytes(run->frames, i);
    return bytes;
}

static void add(struct sw_slot *slot, size_t chunk, const struct sw_frame_layout *frame,
                const struct sw_stored *stored) {
    const struct sw_run *run = slot->run;
    struct sw_direct *d = &slot->direct;
    SW_ASSERT(d->n < SW_RAW_MAX);
    d->chunks[d->n] = chunk;
    d->items[d->n++] = (struct sw_raw_item){.frame = *frame,
                                            .offset = run->buffer->offset + chunk * run->frames->chunk_bytes,
                                            .stored = stored,
                                            .may_fill_holes = run->request->may_fill_holes};
}

static uint64_t items_bytes(const struct sw_direct *d) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < d->n; i++)
        bytes += d->items[i].frame.raw_bytes;
    return bytes;
}

/* A step is measured as a stage of its own, by its chunks' length. It is not measured beside compressed chunks, with
 * which it shares the link. */
static void measure(struct sw_mover *m, struct sw_slot *slot, enum sw_measure_kind kind) {
    if (!sw_slot_shares_link(m, slot))
        sw_measure_begin(m, slot, kind, SW_CODEC_RAW, slot->direct.items[0].frame.raw_bytes,
                         items_bytes(&slot->direct));
}

/* ---- spill ---- */

/* Returns the layout of the next chunk's raw frame, which is known before it is made. */
static struct sw_frame_layout next_frame(const struct sw_run *run) {
    struct sw_frame_layout frame;
    sw_frame_layout_init(&frame, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, sw_frames_chunk_bytes(run->frames, run->n_dealt),
                         0);
    return frame;
}

/* Deals the run's next chunk to the slot. Its frame counts as encoded. */
static void deal_next(struct sw_mover *m, struct sw_slot *slot, const struct sw_frame_layout *frame,
                      const struct sw_stored *room) {
    struct sw_run *run = slot->run;
    add(slot, run->n_dealt, frame, room);
    sw_run_note_frame(run, run->n_dealt++, SW_CODEC_RAW, frame);
    if (run->n_encoded == run->frames->n_chunks)
        sw_run_set_phase(m, run, SW_PHASE_STORING);
}

/* Reserves room for one more chunk. Returns false if there is none, or none where frames stay. */
static bool reserve_next(struct sw_mover *m, struct sw_slot *slot) {
    const struct sw_frame_layout frame = next_frame(slot->run);
    struct sw_stored *room = &slot->direct.more[slot->direct.n];
    if (!m->sink->ops->rests(m->sink, slot->run, frame.frame_bytes) ||
        m->sink->ops->reserve(m->sink, slot->run, frame.frame_bytes, true, room, NULL))
        return false;
    deal_next(m, slot, &frame, room);
    return true;
}

static int queue_spill(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    struct sw_run *run = slot->run;
    struct sw_direct *d = &slot->direct;
    const struct sw_cost_direct region = region_of(m, run);
    const unsigned most = sw_slot_is_staged(slot) ? 1 : sw_cost_direct_chunks(&region);
    while (d->n < most && run->n_dealt < run->frames->n_chunks && reserve_next(m, slot))
        continue;
    measure(m, slot, SW_MEASURE_DIRECT_OUT);
    sw_link_take(m, slot, SW_LINK_OUT, items_bytes(d));
    return m->device->ops->spill_raw(m->device, sw_slot_index(m, slot), run->buffer->memory->mapping, d->items, d->n,
                                     sw_cost_chunks_by_cpu(&region, slot->chunk, d->n), err);
}

/* Takes the run's next chunks. While this slot is to make a plan, nothing goes. */
static bool start_spill(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run) {
    const size_t chunk = run->n_dealt;
    const struct sw_snapshot now = sw_run_snapshot(m, run);
    if (sw_planner_next_step(&m->planner, &run->course, &now, step_bytes(run, chunk, step_chunks(m, run, chunk))) !=
        SW_STEP_COPY)
        return false;
    sw_slot_take(m, slot, &sw_workflow_copy_out, run);
    slot->chunk = chunk;
    slot->frame = next_frame(run);
    deal_next(m, slot, &slot->frame, &slot->stored);
    sw_slot_store(m, slot, slot->frame.frame_bytes, queue_spill);
    return true;
}

/* Commits the chunks after the first one. */
static int commit_more(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    struct sw_run *run = slot->run;
    struct sw_direct *d = &slot->direct;
    for (unsigned i = 1; i < d->n; i++) {
        struct sw_stored *room = &d->more[i];
        const int rc = m->sink->ops->commit(m->sink, room, err);
        if (rc)
            return rc;
        run->frames->identities[d->chunks[i]] = sw_frames_identify(run->frames, d->chunks[i], room);
        run->frames->stored[d->chunks[i]] = *room;
        memset(room, 0, sizeof *room);
        run->n_done++;
    }
    return 0;
}

static void give(struct sw_mover *m, struct sw_slot *slot) {
    for (unsigned i = 1; i < slot->direct.n; i++)
        m->sink->ops->release(m->sink, slot->run, &slot->direct.more[i]);
    slot->direct.n = 0;
    sw_slot_give(m, slot);
}

static void resume_spill(struct sw_mover *m, struct sw_slot *slot) {
    if (slot->run->outcome.err.code)
        give(m, slot);
    else
        sw_slot_store(m, slot, slot->frame.frame_bytes, queue_spill);
}

static void spill_ended(struct sw_mover *m, struct sw_slot *slot, int rc, const struct sw_slot_result *result,
                        const struct sw_err *cause) {
    struct sw_run *run = slot->run;
    struct sw_err err = {0};
    (void)result;
    if (rc)
        sw_mover_fail(m, run, cause);
    if (!run->outcome.err.code && (sw_slot_stored(m, slot, &err) || commit_more(m, slot, &err)))
        sw_mover_fail(m, run, &err);
    give(m, slot);
}

const struct sw_workflow sw_workflow_copy_out = {
    .start = start_spill, .step_ended = spill_ended, .resume = resume_spill};

/* ---- restore ---- */

/* Returns how many chunks, from `first` on, lie in host memory as raw frames, at most `most`. */
static unsigned count_raw(const struct sw_run *run, size_t first, unsigned most) {
    const struct sw_frames *frames = run->frames;
    unsigned n = 0;
    while (n < most && first + n < frames->n_chunks && frames->layouts[first + n].codec == SW_CODEC_RAW &&
           sw_stored_is_in_memory(&frames->stored[first + n]))
        n++;
    return n;
}

/* Returns how many of the run's next chunks come directly in one step; 0: none. A frame that was brought into memory
 * goes alone. */
static unsigned count_direct(struct sw_mover *m, struct sw_run *run) {
    const struct sw_frames *frames = run->frames;
    const size_t first = run->n_dealt;
    if (frames->layouts[first].codec != SW_CODEC_RAW)
        return 0;
    const unsigned n =
        sw_stored_is_in_memory(&frames->stored[first]) ? count_raw(run, first, step_chunks(m, run, first)) : 1;
    const struct sw_snapshot now = sw_run_snapshot(m, run);
    const enum sw_step step = sw_planner_next_step_back(&m->planner, &run->course, &now,
                                                        frames->layouts[first].raw_bytes, step_bytes(run, first, n));
    return step == SW_STEP_COPY ? n : 0;
}

static int queue_restore(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    const struct sw_direct *d = &slot->direct;
    const struct sw_cost_direct region = region_of(m, slot->run);
    int rc = 0;
    for (unsigned i = 0; !rc && !sw_slot_is_staged(slot) && i < d->n;
         i++) /* a frame that was brought was checked then */
        rc = sw_frames_check_memory(slot->run->frames, d->chunks[i], d->items[i].stored, err);
    if (rc)
        return rc;
    measure(m, slot, SW_MEASURE_DIRECT_BACK);
    sw_link_take(m, slot, SW_LINK_BACK, items_bytes(d));
    return m->device->ops->restore_raw(m->device, sw_slot_index(m, slot), slot->run->buffer->memory->mapping, d->items,
                                       d->n, sw_cost_chunks_by_cpu(&region, slot->chunk, d->n), err);
}

static bool start_restore(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run) {
    const struct sw_frames *frames = run->frames;
    const unsigned n = sw_restore_wants(m, run) ? count_direct(m, run) : 0;
    struct sw_err err = {0};
    if (n == 0)
        return false;
    sw_slot_take(m, slot, &sw_workflow_copy_back, run);
    slot->chunk = run->n_dealt;
    slot->frame = frames->layouts[slot->chunk];
    const bool is_brought = m->sink->ops->take(m->sink, run, slot->chunk, &slot->stored);
    for (unsigned i = 0; i < n; i++) {
        const size_t chunk = run->n_dealt++;
        add(slot, chunk, &frames->layouts[chunk], is_brought ? &slot->stored : &frames->stored[chunk]);
    }
    if (queue_restore(m, slot, &err))
        sw_slot_drain(m, slot, n, &err);
    return true;
}

static void restore_ended(struct sw_mover *m, struct sw_slot *slot, int rc, const struct sw_slot_result *result,
                          const struct sw_err *err) {
    (void)result;
    if (rc)
        sw_slot_fail_at(m, slot, slot->direct.n, err);
    if (!slot->run->outcome.err.code)
        slot->run->n_done += slot->direct.n;
    slot->direct.n = 0; /* its places are the region's, or the slot's `stored` */
    sw_slot_give(m, slot);
}

const struct sw_workflow sw_workflow_copy_back = {.start = start_restore, .step_ended = restore_ended};

/* chunk.c - long regions: on the spill path a chunk is encoded and its frame stored; on the restore path frames are
 * loaded and decoded, several in one step. */
#include "spill/mover/mover_state.h"

enum { STORING = SW_ENCODE_STEPS, RESTORING };

/* ---- spill ---- */

static bool wants_spill(struct sw_mover *m, struct sw_run *run) {
    (void)m;
    return run->n_dealt < run->frames->n_chunks;
}

static bool start_spill(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run) {
    return sw_encode_start(m, slot, &sw_workflow_spill, run, 1);
}

static int queue_store(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    if (!sw_slot_shares_link(m, slot))
        sw_measure_begin(m, slot, SW_MEASURE_LINK_OUT, slot->frame.codec, slot->frame.raw_bytes, slot->stored.bytes);
    return sw_slot_copy_out(m, slot, err);
}

/* Copies the frame to host memory, where it stays, or from where it moves on. */
static void store(struct sw_mover *m, struct sw_slot *slot) {
    slot->step = STORING;
    sw_slot_store(m, slot, slot->frame.frame_bytes, queue_store);
}

static void resume_spill(struct sw_mover *m, struct sw_slot *slot) {
    if (slot->run->outcome.err.code)
        sw_slot_give(m, slot);
    else
        store(m, slot);
}

static void spill_ended(struct sw_mover *m, struct sw_slot *slot, int rc, const struct sw_slot_result *result,
                        const struct sw_err *cause) {
    struct sw_run *run = slot->run;
    struct sw_err err = {0};
    if (rc)
        sw_mover_fail(m, run, cause);
    if (!run->outcome.err.code && slot->step < SW_ENCODE_STEPS) {
        if (sw_encode_ended(m, slot, result))
            store(m, slot);
        return;
    }
    if (!run->outcome.err.code && sw_slot_stored(m, slot, &err))
        sw_mover_fail(m, run, &err);
    sw_slot_give(m, slot);
}

const struct sw_workflow sw_workflow_spill = {
    .wants = wants_spill, .start = start_spill, .step_ended = spill_ended, .resume = resume_spill};

/* ---- restore ---- */

/* Returns where a frame begins in the buffer after one that ends at `end`. */
static uint64_t next_frame_at(uint64_t end) {
    return (end + SW_FRAME_DATA_ALIGN - 1) / SW_FRAME_DATA_ALIGN * SW_FRAME_DATA_ALIGN;
}

/* Returns how many chunks, from the slot's on, go in one step: as many compressed frames as its buffer holds, so that
 * fewer launches wait for a busy GPU, but not so many that another slot would have nothing to do. One beside other
 * runs: a restore with longer turns than a spill's would take its slots and its share of the link. */
static unsigned run_length(const struct sw_mover *m, const struct sw_slot *slot) {
    const struct sw_frames *frames = slot->run->frames;
    const uint64_t buffer_bytes = m->device->ops->info(m->device)->buffer_bytes;
    const size_t share = (frames->n_chunks - slot->chunk) / m->n_slots;
    uint64_t end = slot->frame.frame_bytes;
    unsigned n = 1;
    if (sw_slot_is_staged(slot) || !sw_mover_is_alone(m, slot->run))
        return 1;
    for (; n < SW_DECODED_AT_ONCE && n < share; n++) {
        const struct sw_frame_layout *next = &frames->layouts[slot->chunk + n];
        end = next_frame_at(end) + next->frame_bytes;
        if (next->codec != slot->frame.codec || !sw_stored_is_in_memory(&frames->stored[slot->chunk + n]) ||
            end > buffer_bytes)
            break;
    }
    return n;
}

/* Checks the step's frames in memory before anything is queued: a frame that is not the stored one would be written to
 * the client's memory. Frames from the disk were checked when they were read. */
static int check_run(const struct sw_slot *slot, struct sw_err *err) {
    const struct sw_frames *frames = slot->run->frames;
    int rc = 0;
    for (size_t i = slot->chunk; !rc && !sw_slot_is_staged(slot) && i < slot->chunk + slot->n_chunks; i++)
        rc = sw_frames_check_memory(frames, i, &frames->stored[i], err);
    return rc;
}

/* Queues the loading and decoding of the slot's chunks. */
static int restore_run(struct sw_mover *m, const struct sw_slot *slot, struct sw_err *err) {
    const struct sw_run *run = slot->run;
    struct sw_decode_item items[SW_DECODE_MAX];
    uint64_t at = 0;
    int rc = check_run(slot, err);
    for (unsigned i = 0; !rc && i < slot->n_chunks; i++) {
        const size_t chunk = slot->chunk + i;
        items[i] = (struct sw_decode_item){.layout = &run->frames->layouts[chunk],
                                           .frame_at = at,
                                           .offset = run->buffer->offset + chunk * run->frames->chunk_bytes,
                                           .may_fill_holes = run->request->may_fill_holes};
        rc = sw_slot_copy_in(m, slot, sw_slot_is_staged(slot) ? &slot->stored : &run->frames->stored[chunk], at, err);
        at = next_frame_at(at + items[i].layout->frame_bytes);
    }
    return rc ? rc
              : m->device->ops->decode(m->device, sw_slot_index(m, slot), run->buffer->memory->mapping, items,
                                       slot->n_chunks, err);
}

/* Returns true if chunks of the same request come directly meanwhile: then the step only has a part of the link, and
 * waits behind many chunks. */
static bool is_beside_direct(const struct sw_mover *m, const struct sw_run *run) {
    bool found = run->course.is_mixed;
    for (unsigned s = 0; s < m->n_slots; s++)
        found |= m->slots[s].direct.n > 0 && sw_slot_serves_op(&m->slots[s], run);
    return found;
}

static int restore_steps(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    struct sw_run *run = slot->run;
    uint64_t raw_bytes = 0, frame_bytes = 0;
    slot->n_chunks = run_length(m, slot);
    run->n_dealt += slot->n_chunks - 1;
    for (unsigned i = 0; i < slot->n_chunks; i++) {
        raw_bytes += run->frames->layouts[slot->chunk + i].raw_bytes;
        frame_bytes += run->frames->layouts[slot->chunk + i].frame_bytes;
    }
    sw_link_take(m, slot, SW_LINK_BACK, frame_bytes);
    /* The kernels' rate for raw frames only shows beside others that come directly. */
    if (slot->frame.codec == SW_CODEC_RAW || !is_beside_direct(m, run))
        sw_measure_begin(m, slot, SW_MEASURE_RESTORE, slot->frame.codec, slot->frame.raw_bytes, raw_bytes);
    return restore_run(m, slot, err);
}

bool sw_restore_wants(struct sw_mover *m, struct sw_run *run) {
    return run->n_dealt < run->frames->n_chunks && m->sink->ops->has(m->sink, run, run->n_dealt);
}

static bool start_restore(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run) {
    struct sw_err err = {0};
    if (!sw_restore_wants(m, run))
        return false;
    sw_slot_take(m, slot, &sw_workflow_restore, run);
    slot->step = RESTORING;
    slot->chunk = run->n_dealt++;
    slot->frame = run->frames->layouts[slot->chunk];
    (void)m->sink->ops->take(m->sink, run, slot->chunk, &slot->stored);
    if (restore_steps(m, slot, &err))
        sw_slot_drain(m, slot, slot->n_chunks, &err);
    return true;
}

/* A last chunk that is restored counts, even if the job was canceled. */
static void restore_ended(struct sw_mover *m, struct sw_slot *slot, int rc, const struct sw_slot_result *result,
                          const struct sw_err *err) {
    (void)result;
    if (rc)
        sw_slot_fail_at(m, slot, slot->n_chunks, err);
    if (!slot->run->outcome.err.code)
        slot->run->n_done += slot->n_chunks;
    sw_slot_give(m, slot);
}

static bool advance_restore(struct sw_mover *m, struct sw_run *run) {
    return m->sink->ops->get(m->sink, run);
}

const struct sw_workflow sw_workflow_restore = {
    .wants = sw_restore_wants, .start = start_restore, .step_ended = restore_ended, .advance = advance_restore};

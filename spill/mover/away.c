/* away.c - spills and restores through a sink in another process, which reads and writes the slots' frame buffers.
 *
 * On the spill path a chunk is encoded, and its frame sent. On the restore path frames are fetched, several in one
 * step, and decoded. While the sink has a slot's buffer, the slot is idle, and this process does not touch the buffer,
 * also after the run has failed: the other process may still write to it. So failures and cancellations wait for the
 * sink's report. Raw chunks have frames, too. */
#include "spill/mover/mover_state.h"

#include "base/assert.h"

enum { SENDING = SW_ENCODE_STEPS, FETCHING, DECODING };

/* Hands the slot's buffer to the sink. */
static void lend(struct sw_slot *slot, int step) {
    slot->step = step;
    slot->runs = false;
    slot->is_away = true;
    slot->run->n_in_sink++;
}

static bool wants(struct sw_mover *m, struct sw_run *run) {
    (void)m;
    return run->n_dealt < run->frames->n_chunks;
}

/* ---- spill ---- */

static bool start_send(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run) {
    return sw_encode_start(m, slot, &sw_workflow_send, run);
}

static void send_ended(struct sw_mover *m, struct sw_slot *slot, int rc, const struct sw_slot_result *result,
                       const struct sw_err *cause) {
    struct sw_run *run = slot->run;
    if (rc)
        sw_mover_fail(m, run, cause);
    sw_run_check_canceled(run);
    if (run->outcome.err.code) {
        sw_slot_give(m, slot);
    } else if (sw_encode_ended(m, slot, result)) {
        sw_measure_begin(m, slot, SW_MEASURE_LINK_OUT, slot->frame.codec, slot->frame.raw_bytes,
                         slot->frame.frame_bytes);
        lend(slot, SENDING);
        m->sink->ops->send(m->sink, run, slot->chunk, sw_slot_index(m, slot), &run->frames->layouts[slot->chunk]);
    }
}

/* A last chunk that has arrived counts, even if the run was canceled. */
static void sent(struct sw_mover *m, struct sw_slot *slot) {
    if (!slot->run->outcome.err.code)
        slot->run->n_done++;
    sw_slot_give(m, slot);
}

const struct sw_workflow sw_workflow_send = {.wants = wants, .start = start_send, .step_ended = send_ended};

/* ---- restore ---- */

/* Returns the distance between the rooms of a step's frames. */
static uint64_t room_stride(const struct sw_run *run) {
    const uint64_t bytes = sw_frame_bound_bytes(run->frames->chunk_bytes);
    return (bytes + SW_FRAME_DATA_ALIGN - 1) / SW_FRAME_DATA_ALIGN * SW_FRAME_DATA_ALIGN;
}

/* Returns how many of the run's next chunks go in one step: as many as the buffer has room for, whatever their frames'
 * lengths, but not so many that another slot would have nothing to do. One beside other requests, since all slots'
 * steps share the link. */
static unsigned step_length(const struct sw_mover *m, const struct sw_run *run) {
    const uint64_t fit = m->device->ops->info(m->device)->buffer_bytes / room_stride(run);
    const size_t share = (run->frames->n_chunks - run->n_dealt) / m->n_slots;
    uint64_t n = share < SW_DECODE_MAX ? share : SW_DECODE_MAX;
    n = n < fit ? n : fit;
    return n < 1 || !sw_mover_is_alone(m, run) ? 1 : (unsigned)n;
}

/* Has the step's frames brought to the slot's buffer. */
static void fetch(struct sw_mover *m, struct sw_slot *slot) {
    uint64_t at[SW_DECODE_MAX];
    for (unsigned i = 0; i < slot->n_chunks; i++)
        at[i] = i * room_stride(slot->run);
    lend(slot, FETCHING);
    m->sink->ops->fetch(m->sink, slot->run, slot->chunk, slot->n_chunks, sw_slot_index(m, slot), at, slot->is_disputed);
}

static bool start_fetch(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run) {
    if (!wants(m, run))
        return false;
    slot->n_chunks = step_length(m, run);
    slot->chunk = run->n_dealt;
    run->n_dealt += slot->n_chunks;
    sw_slot_take(m, slot, &sw_workflow_fetch, run);
    fetch(m, slot);
    return true;
}

/* Checks that the chunk's layout is that of a frame which its room holds. */
static int check_layout(const struct sw_run *run, size_t chunk, struct sw_err *err) {
    const struct sw_frame_layout *layout = &run->frames->layouts[chunk];
    const uint64_t raw_bytes = sw_frames_chunk_bytes(run->frames, chunk);
    if (layout->raw_bytes == raw_bytes && layout->frame_bytes <= sw_frame_bound_bytes(raw_bytes))
        return 0;
    return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REGION,
                      "the frame of chunk %zu holds %llu bytes in %llu, but the chunk has %llu", chunk,
                      (unsigned long long)layout->raw_bytes, (unsigned long long)layout->frame_bytes,
                      (unsigned long long)raw_bytes);
}

static int decode(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    const struct sw_run *run = slot->run;
    struct sw_decode_item items[SW_DECODE_MAX];
    int rc = 0;
    for (unsigned i = 0; !rc && i < slot->n_chunks; i++) {
        const size_t chunk = slot->chunk + i;
        rc = check_layout(run, chunk, err);
        items[i] = (struct sw_decode_item){.layout = &run->frames->layouts[chunk],
                                           .frame_at = i * room_stride(run),
                                           .offset = run->buffer->offset + chunk * run->frames->chunk_bytes,
                                           .may_fill_holes = run->request->may_fill_holes};
    }
    return rc ? rc
              : m->device->ops->decode(m->device, sw_slot_index(m, slot), run->buffer->memory->mapping, items,
                                       slot->n_chunks, err);
}

/* The step's frames are in the slot's buffer. */
static void fetched(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_err err = {0};
    sw_run_check_canceled(slot->run);
    if (!slot->run->outcome.err.code && decode(m, slot, &err))
        sw_slot_fail_at(m, slot, slot->n_chunks, &err);
    if (slot->run->outcome.err.code) {
        sw_slot_give(m, slot);
        return;
    }
    slot->step = DECODING;
    slot->runs = true;
}

/* Frames may have been spoilt in the buffer. So the first failure is the sink's to judge. */
static bool disputes(struct sw_slot *slot, int rc) {
    sw_run_check_canceled(slot->run);
    const bool is_bad = rc == -SW_ECHECKSUM || rc == -SW_EFRAME;
    if (!is_bad || slot->is_disputed || slot->run->outcome.err.code)
        return false;
    slot->is_disputed = true;
    return true;
}

static void decode_ended(struct sw_mover *m, struct sw_slot *slot, int rc, const struct sw_slot_result *result,
                         const struct sw_err *err) {
    (void)result;
    if (rc && disputes(slot, rc)) {
        fetch(m, slot);
        return;
    }
    if (rc)
        sw_slot_fail_at(m, slot, slot->n_chunks, err);
    if (!slot->run->outcome.err.code)
        slot->run->n_done += slot->n_chunks;
    sw_slot_give(m, slot);
}

const struct sw_workflow sw_workflow_fetch = {.wants = wants, .start = start_fetch, .step_ended = decode_ended};

/* ---- the sink's reports ---- */

void sw_mover_slot_done(struct sw_mover *m, unsigned s, const struct sw_err *err) {
    struct sw_slot *slot = &m->slots[s];
    SW_ASSERT(s < m->n_slots && slot->is_away);
    slot->is_away = false;
    slot->run->n_in_sink--;
    m->is_settled = false;
    sw_measure_end(m, slot, !err || !err->code);
    if (err && err->code)
        sw_slot_fail_at(m, slot, slot->n_chunks, err);
    if (slot->step == SENDING)
        sent(m, slot);
    else
        fetched(m, slot);
}

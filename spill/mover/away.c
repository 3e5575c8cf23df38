/* away.c - spills and restores through a sink in another process, which reads and writes the slots' frame buffers.
 *
 * On the spill path chunks are encoded, several in one step, and their frames sent. On the restore path frames are
 * fetched, several in one step, and decoded: each step waits for a GPU that an engine fills. While the sink has a
 * slot's buffer, the slot is idle, and this process does not touch the buffer, also after the run has failed: the other
 * process may still write to it. So failures and cancellations wait for the sink's report. Raw chunks have frames, too.
 */
#include "spill/mover/mover_state.h"

#include "base/assert.h"
#include "base/clock.h"

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

/* Returns how many of the run's next chunks one step takes at most: as many as the buffer has room for, whatever their
 * frames' lengths. */
static unsigned most_chunks(const struct sw_mover *m, const struct sw_run *run) {
    const uint64_t fit = m->device->ops->info(m->device)->group_bytes / sw_group_item_bytes(run->frames->chunk_bytes);
    const size_t left = run->frames->n_chunks - run->n_dealt;
    const uint64_t n = fit < SW_DECODE_MAX ? fit : SW_DECODE_MAX;
    return n < 1 ? 1 : n < left ? (unsigned)n : (unsigned)left;
}

static uint64_t room_at(const struct sw_run *run, unsigned i) {
    return i * sw_group_item_bytes(run->frames->chunk_bytes);
}

static void rooms(const struct sw_run *run, unsigned n, uint64_t ret[SW_DECODE_MAX]) {
    for (unsigned i = 0; i < n; i++)
        ret[i] = room_at(run, i);
}

/* ---- spill ---- */

/* A first step that has taken longer has waited for kernels of the engine. */
#define BUSY_US 600u

/* A run's first step is one chunk, so that the link has something to do soon. On an idle device the next steps grow, so
 * that each is encoded while the step before it is copied. On a busy device at most two of our kernels fit side by side
 * where a kernel of the engine ends. So the second step takes as much as it can. */
static unsigned send_length(const struct sw_mover *m, const struct sw_run *run) {
    const unsigned most = most_chunks(m, run);
    const size_t grown = run->n_dealt + 1;
    if (run->n_dealt == 0)
        return 1;
    return m->first_step_us > BUSY_US || most < grown ? most : (unsigned)grown;
}

static bool start_send(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run) {
    return sw_encode_start(m, slot, &sw_workflow_send, run, send_length(m, run));
}

/* The step's frames are in the slot's buffer. */
static void send(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_run *run = slot->run;
    uint64_t at[SW_DECODE_MAX], frame_bytes = 0;
    rooms(run, slot->n_chunks, at);
    for (unsigned i = 0; i < slot->n_chunks; i++)
        frame_bytes += run->frames->layouts[slot->chunk + i].frame_bytes;
    sw_measure_begin(m, slot, SW_MEASURE_LINK_OUT, slot->frame.codec, slot->frame.raw_bytes, frame_bytes);
    lend(slot, SENDING);
    m->sink->ops->send(m->sink, run, slot->chunk, slot->n_chunks, sw_slot_index(m, slot), at);
}

static void send_ended(struct sw_mover *m, struct sw_slot *slot, int rc, const struct sw_slot_result *result,
                       const struct sw_err *cause) {
    struct sw_run *run = slot->run;
    if (rc)
        sw_mover_fail(m, run, cause);
    else if (slot->step == SW_ENCODE_ENCODING && slot->chunk == 0)
        m->first_step_us = sw_clock_us() - slot->encoded_since_us;
    if (run->outcome.err.code) {
        sw_slot_give(m, slot);
    } else if (sw_encode_ended(m, slot, result)) {
        send(m, slot);
    }
}

/* A last chunk that has arrived counts, even if the run was canceled. */
static void sent(struct sw_mover *m, struct sw_slot *slot) {
    if (!slot->run->outcome.err.code)
        slot->run->n_done += slot->n_chunks;
    sw_slot_give(m, slot);
}

const struct sw_workflow sw_workflow_send = {.wants = wants, .start = start_send, .step_ended = send_ended};

/* ---- restore ---- */

/* Returns how many chunks the next step takes: as many as it can, but if what is left fits into the free slots, each of
 * these gets some, and the last one a single chunk, for whose decoding the run has to wait. */
static unsigned fetch_length(const struct sw_mover *m, const struct sw_run *run) {
    const unsigned most = most_chunks(m, run);
    const size_t left = run->frames->n_chunks - run->n_dealt;
    unsigned n_free = 0;
    for (unsigned s = 0; s < m->n_slots; s++)
        n_free += sw_slot_is_free(&m->slots[s]);
    const size_t others = n_free > 1 ? n_free - 1 : 1, share = n_free > 1 ? (left - 1 + others - 1) / others : left;
    return share > most ? most : share > 0 ? (unsigned)share : 1;
}

/* Has the step's frames brought to the slot's buffer. */
static void fetch(struct sw_mover *m, struct sw_slot *slot) {
    uint64_t at[SW_DECODE_MAX];
    rooms(slot->run, slot->n_chunks, at);
    lend(slot, FETCHING);
    m->sink->ops->fetch(m->sink, slot->run, slot->chunk, slot->n_chunks, sw_slot_index(m, slot), at, slot->is_disputed);
}

static bool start_fetch(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run) {
    if (!wants(m, run))
        return false;
    slot->n_chunks = fetch_length(m, run);
    slot->chunk = run->n_dealt;
    run->n_dealt += slot->n_chunks;
    sw_slot_take(m, slot, &sw_workflow_fetch, run);
    fetch(m, slot);
    return true;
}

/* Checks that the chunk's layout fits the chunk, and that the frame fits its room. */
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
                                           .frame_at = room_at(run, i),
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
    m->is_settled = false;
    sw_mover_note_canceled(m);
    sw_measure_end(m, slot, !err || !err->code);
    if (!slot->run) {
        sw_group_returned(m, slot, err);
        return;
    }
    slot->run->n_in_sink--;
    if (err && err->code)
        sw_slot_fail_at(m, slot, slot->n_chunks, err);
    if (slot->step == SENDING)
        sent(m, slot);
    else
        fetched(m, slot);
}

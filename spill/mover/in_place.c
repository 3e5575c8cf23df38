/* in_place.c - pack and unpack: frames that stay at the front of the client's own buffer.
 *
 * Pack encodes chunks side by side into the slots' buffers and places the frames one behind the other, in order. Frame
 * i ends at or before the end of chunk i's raw bytes. So placing it only overwrites raw bytes of chunks up to i, all of
 * which have been encoded. Unpack goes from the last chunk to the first: chunk i's raw bytes lie behind all frames
 * before i.
 *
 * At every moment a chunk whose directory entry says `is_packed` has its frame in the client's buffer. Any other chunk
 * has its raw bytes in their place, unless its step is under way: then its frame is in the slot's buffer. If this step
 * fails, the slot is TORN and keeps its buffer until the step has been undone. A failed pack decodes the frame to its
 * place, and then every chunk packed before, last one first. A failed unpack places the frame again and leaves the rest
 * packed. */
#include "spill/mover/mover_state.h"

#include "base/assert.h"

#include <string.h>

enum { HOLDING = SW_ENCODE_STEPS, PLACING, COMPARING, FETCHING, UNPACKING, DECODING, TORN };

#define PLACE_ALIGN_BYTES 128u /* of frames in the client's buffer: copies are faster between aligned addresses */
#define MAX_RECOVERIES 8       /* failed attempts to undo; a step that fails this often will not succeed */

/* Returns true if the bytes of one chunk's frame overlap another chunk's raw bytes. */
static bool overlaps_raw(const struct sw_frames *frames, size_t framed, size_t raw) {
    const struct sw_packed_chunk *frame = &frames->packed[framed];
    uint64_t start = raw * frames->chunk_bytes;
    return frame->offset < start + sw_frames_chunk_bytes(frames, raw) && start < frame->offset + frame->bytes;
}

/* Returns how many bytes of a chunk's frame lie in the tier. */
static uint64_t front_bytes(const struct sw_run *run, size_t chunk) {
    return run->frames->stored[chunk].bytes;
}

/* ---- failures ---- */

static bool proves_damage(int code) {
    return code == -SW_ECHECKSUM || code == -SW_EFRAME || code == -SW_EVERSION;
}

static void note_failure(struct sw_mover *m, struct sw_run *run, const struct sw_err *err) {
    sw_mover_fail(m, run, err);
    run->in_place.n_recoveries +=
        run->in_place.is_recovering; /* otherwise the step was already under way when another one failed */
    /* An unpack can place a frame again even if the frame is damaged; a pack cannot be undone then. */
    if ((proves_damage(err->code) && run->request->operation == SW_OP_PACK) || err->code == -SW_EGPULOST ||
        run->in_place.n_recoveries > MAX_RECOVERIES)
        run->in_place.lost = true;
}

/* ---- pack ---- */

/* Queues the identification of the frame in the slot's buffer, after the steps that are already queued. */
static int identify_buffer(struct sw_mover *m, struct sw_slot *slot, size_t chunk, struct sw_err *err) {
    slot->heads.n = 1;
    slot->heads.items[0] = (struct sw_head_item){.bytes = slot->run->frames->layouts[chunk].counts_offset};
    return m->device->ops->identify(m->device, sw_slot_index(m, slot), NULL, slot->heads.items, 1, err);
}

/* Copies the beginning of the frame to its place in the tier. */
static int store_front(struct sw_mover *m, struct sw_slot *slot, uint64_t bytes, struct sw_err *err) {
    const int rc = m->sink->ops->reserve(m->sink, slot->run, bytes, true, &slot->stored, err);
    return rc ? rc : sw_slot_copy_out(m, slot, err);
}

/* Decides where a frame goes and queues its placing. The part in the tier is identified there. */
static int place_first(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    struct sw_run *run = slot->run;
    struct sw_frames *frames = run->frames;
    struct sw_packed_chunk *chunk = &frames->packed[slot->chunk];
    uint64_t raw_bytes = sw_frames_chunk_bytes(frames, slot->chunk);
    uint64_t front = slot->frame.frame_bytes > raw_bytes ? slot->frame.data_offset : 0;
    run->in_place.must_go_on = true;
    chunk->offset = run->in_place.end_bytes;
    /* The data section is padded to 16 bytes: what exceeds the chunk's length is not data. */
    chunk->bytes = slot->frame.frame_bytes - front < raw_bytes ? slot->frame.frame_bytes - front : raw_bytes;
    run->in_place.end_bytes += (chunk->bytes + PLACE_ALIGN_BYTES - 1) / PLACE_ALIGN_BYTES * PLACE_ALIGN_BYTES;
    SW_ASSERT(chunk->offset + chunk->bytes <= slot->chunk * frames->chunk_bytes + raw_bytes);
    const int rc = front > 0 ? store_front(m, slot, front, err) : identify_buffer(m, slot, slot->chunk, err);
    return rc ? rc
              : m->device->ops->place(m->device, sw_slot_index(m, slot), run->buffer->memory->mapping,
                                      run->buffer->offset + chunk->offset, front, chunk->bytes, err);
}

/* A slot that works in place keeps its run as long as it has a step. */
static const struct sw_slot *find_slot(const struct sw_mover *m, const struct sw_run *run, int step) {
    for (unsigned s = 0; s < m->n_slots; s++)
        if (m->slots[s].run == run && m->slots[s].step == step)
            return &m->slots[s];
    return NULL;
}

/* Returns the slot whose frame is the next to be placed. */
static struct sw_slot *next_in_order(struct sw_mover *m, const struct sw_run *run) {
    for (unsigned s = 0; s < m->n_slots; s++) {
        struct sw_slot *slot = &m->slots[s];
        if (slot->run == run && slot->step == HOLDING && slot->chunk == run->in_place.n_ordered)
            return slot;
    }
    return NULL;
}

static void hold(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_run *run = slot->run;
    slot->step = HOLDING;
    slot->runs = false;
    while (!run->outcome.err.code && (slot = next_in_order(m, run))) {
        struct sw_err err = {0};
        slot->step = PLACING;
        slot->runs = true;
        run->in_place.n_ordered++;
        if (place_first(m, slot, &err)) {
            slot->unqueued = true;
            note_failure(m, run, &err);
        }
    }
}

/* ---- unpack, and undoing a pack ---- */

/* Skips chunks that an earlier unpack has done. If these were all, the run is complete, and no slot will report it. */
static void skip_raw(struct sw_mover *m, struct sw_run *run) {
    while (run->n_dealt < run->frames->n_chunks &&
           !run->frames->packed[run->frames->n_chunks - 1 - run->n_dealt].is_packed) {
        run->n_dealt++;
        run->n_done++;
        sw_run_look_at(m, run);
    }
}

/* Returns true if a frame of the chunks [first, first + n) lies where the raw bytes of chunk `raw` belong. */
static bool any_overlaps_raw(const struct sw_frames *frames, size_t first, size_t n, size_t raw) {
    for (size_t i = first; i < first + n; i++)
        if (overlaps_raw(frames, i, raw))
            return true;
    return false;
}

/* A chunk's raw bytes may be written only where no frame lies that its own chunk may still need. */
static bool may_write(const struct sw_mover *m, const struct sw_run *run, size_t chunk) {
    for (unsigned s = 0; s < m->n_slots; s++) {
        const struct sw_slot *slot = &m->slots[s];
        if (slot->run == run && slot->chunk > chunk &&
            any_overlaps_raw(run->frames, slot->chunk + 1 - slot->n_chunks, slot->n_chunks, chunk))
            return false;
    }
    return true;
}

static bool may_unpack(struct sw_mover *m, struct sw_run *run) {
    if (run->in_place.n_compared < run->frames->n_chunks)
        return true;
    if (find_slot(m, run, COMPARING))
        return false;
    skip_raw(m, run);
    return run->n_dealt < run->frames->n_chunks && may_write(m, run, run->frames->n_chunks - 1 - run->n_dealt);
}

/* ---- comparing ---- */

/* The beginning of the frame lies in the tier. If it is not the stored frame's, the frame is lost. */
static int check_front(const struct sw_run *run, size_t chunk, struct sw_err *err) {
    if (sw_frames_check_memory(run->frames, chunk, &run->frames->stored[chunk], NULL) == 0)
        return 0;
    return sw_err_set(err, -SW_ELOST, SW_SCOPE_REGION, "the beginning of chunk %zu's frame, in host memory, is damaged",
                      chunk);
}

/* Gathers the next frames to compare, as many as one step takes. Frames that begin in the tier, and frames without a
 * known identity, need no step. */
static int gather_heads(struct sw_slot *slot, struct sw_run *run, struct sw_err *err) {
    const struct sw_frames *frames = run->frames;
    int rc = 0;
    slot->heads.n = 0;
    for (; !rc && run->in_place.n_compared < frames->n_chunks; run->in_place.n_compared++) {
        const size_t i = run->in_place.n_compared;
        if (!frames->packed[i].is_packed || !frames->identities[i])
            continue;
        if (front_bytes(run, i) > 0) {
            rc = check_front(run, i, err);
            continue;
        }
        if (slot->heads.n == SW_HEAD_MAX)
            break;
        slot->heads.chunks[slot->heads.n] = i;
        slot->heads.items[slot->heads.n++] = (struct sw_head_item){.at = run->buffer->offset + frames->packed[i].offset,
                                                                   .bytes = frames->layouts[i].counts_offset};
    }
    return rc;
}

/* All frames are compared before the first byte is written: until then the client's memory is unchanged, and the
 * failure leaves it so. A client that writes there meanwhile harms only its own bytes. The device is woken meanwhile,
 * for the decoding. */
static void begin_compare(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run) {
    struct sw_err err = {0};
    if (run->in_place.n_compared == 0)
        m->device->ops->wake(m->device);
    if (gather_heads(slot, run, &err)) {
        note_failure(m, run, &err);
        return;
    }
    if (slot->heads.n == 0)
        return;
    sw_slot_take(m, slot, &sw_workflow_unpack, run);
    slot->step = COMPARING;
    if (m->device->ops->identify(m->device, sw_slot_index(m, slot), run->buffer->memory->mapping, slot->heads.items,
                                 slot->heads.n, &err)) {
        slot->unqueued = true;
        note_failure(m, run, &err);
    }
}

static void compared(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_run *run = slot->run;
    struct sw_err err = {0};
    int rc = 0;
    for (unsigned i = 0; !rc && i < slot->heads.n; i++)
        rc = sw_frames_check(run->frames, slot->heads.chunks[i], slot->heads.items[i].identity, &err);
    if (rc)
        note_failure(m, run, &err);
    sw_slot_give(m, slot);
}

/* ---- unpacking ---- */

static int fetch(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    const struct sw_run *run = slot->run;
    const struct sw_packed_chunk *chunk = &run->frames->packed[slot->chunk];
    int rc = sw_slot_copy_in(m, slot, &run->frames->stored[slot->chunk], 0, err);
    if (!rc)
        rc = m->device->ops->fetch(m->device, sw_slot_index(m, slot), run->buffer->memory->mapping,
                                   run->buffer->offset + chunk->offset, front_bytes(run, slot->chunk), chunk->bytes,
                                   err);
    return rc ? rc : identify_buffer(m, slot, slot->chunk, err);
}

static int decode(struct sw_mover *m, const struct sw_slot *slot, struct sw_err *err) {
    const struct sw_run *run = slot->run;
    const struct sw_decode_item item = {.layout = &run->frames->layouts[slot->chunk],
                                        .offset = run->buffer->offset + slot->chunk * run->frames->chunk_bytes,
                                        .may_fill_holes = run->request->may_fill_holes};
    return m->device->ops->decode(m->device, sw_slot_index(m, slot), run->buffer->memory->mapping, &item, 1, err);
}

/* Returns true if the frame can be decoded where it lies, and left there. */
static bool stays(const struct sw_run *run, size_t chunk) {
    return !overlaps_raw(run->frames, chunk, chunk) && front_bytes(run, chunk) == 0;
}

/* Returns how many chunks, `last` and earlier ones, go in one step; not so many that another slot would have nothing to
 * do. */
static unsigned run_length(const struct sw_mover *m, const struct sw_run *run, size_t last) {
    const size_t share = (last + 1) / m->n_slots;
    unsigned n = 1;
    while (n < SW_DECODED_AT_ONCE && n < share && run->frames->packed[last - n].is_packed && stays(run, last - n) &&
           !any_overlaps_raw(run->frames, last + 1 - n, n, last - n) && may_write(m, run, last - n))
        n++;
    return n;
}

static int unpack_run(struct sw_mover *m, const struct sw_slot *slot, struct sw_err *err) {
    const struct sw_run *run = slot->run;
    struct sw_decode_item items[SW_DECODE_MAX];
    for (unsigned i = 0; i < slot->n_chunks; i++) {
        const size_t chunk = slot->chunk - i;
        items[i] = (struct sw_decode_item){.layout = &run->frames->layouts[chunk],
                                           .frame_at = run->buffer->offset + run->frames->packed[chunk].offset,
                                           .offset = run->buffer->offset + chunk * run->frames->chunk_bytes,
                                           .identity = run->frames->identities[chunk],
                                           .may_fill_holes = run->request->may_fill_holes};
    }
    return m->device->ops->unpack(m->device, sw_slot_index(m, slot), run->buffer->memory->mapping, items,
                                  slot->n_chunks, err);
}

/* If a chunk's raw bytes overlap its own frame, the frame is fetched first. The fetch is reported on its own, so that
 * it is known whether the buffer holds the frame when decoding fails. The same holds if the tier has a part of the
 * frame. Otherwise the frame is decoded where it lies, and left; but not when a pack is undone, whose frames were not
 * compared before. */
static void begin_unpack(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run, size_t chunk) {
    struct sw_err err = {0};
    const bool frame_stays = run->request->operation == SW_OP_UNPACK && stays(run, chunk);
    slot->n_chunks = frame_stays ? run_length(m, run, chunk) : 1;
    slot->chunk = chunk;
    sw_slot_take(m, slot, run->request->operation == SW_OP_PACK ? &sw_workflow_pack : &sw_workflow_unpack, run);
    slot->step = frame_stays ? UNPACKING : FETCHING;
    if (frame_stays ? unpack_run(m, slot, &err) : fetch(m, slot, &err)) {
        slot->unqueued = true;
        note_failure(m, run, &err);
    }
}

/* May leave the slot free. */
static bool start_unpack(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run) {
    if (!may_unpack(m, run))
        return false;
    if (run->in_place.n_compared < run->frames->n_chunks) {
        begin_compare(m, slot, run);
        return true;
    }
    run->in_place.must_go_on = true;
    begin_unpack(m, slot, run, run->frames->n_chunks - 1 - run->n_dealt);
    run->n_dealt += slot->n_chunks;
    return true;
}

/* ---- reports ---- */

static void placed(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_run *run = slot->run;
    struct sw_packed_chunk *chunk = &run->frames->packed[slot->chunk];
    struct sw_err err = {0};
    if (!chunk->is_packed) /* otherwise an unpack is being undone */
        run->frames->identities[slot->chunk] = slot->stored.extents
                                                   ? sw_frames_identify(run->frames, slot->chunk, &slot->stored)
                                                   : slot->heads.items[0].identity;
    if (!chunk->is_packed && slot->stored.extents) {
        if (m->sink->ops->commit(m->sink, &slot->stored, &err))
            sw_mover_fail(m, run, &err);
        run->frames->stored[slot->chunk] = slot->stored;
        memset(&slot->stored, 0, sizeof slot->stored);
    }
    if (!chunk->is_packed)
        run->n_done++;
    chunk->is_packed = true;
    sw_slot_give(m, slot);
}

static void unpacked(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_run *run = slot->run;
    for (unsigned i = 0; i < slot->n_chunks; i++) {
        run->frames->packed[slot->chunk - i].is_packed = false;
        m->sink->ops->release(m->sink, run, &run->frames->stored[slot->chunk - i]);
    }
    if (run->request->operation == SW_OP_UNPACK)
        run->n_done += slot->n_chunks;
    sw_slot_give(m, slot);
}

static void begin_decode(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_err err = {0};
    slot->step = DECODING;
    slot->runs = true;
    slot->n_chunks = 1;
    if (decode(m, slot, &err)) {
        note_failure(m, slot->run, &err);
        slot->unqueued = true;
    }
}

static void fetched(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_run *run = slot->run;
    struct sw_err err = {0};
    if (sw_frames_check(run->frames, slot->chunk, slot->heads.items[0].identity, &err))
        note_failure(m, run, &err);
    if (err.code || run->in_place.lost || (run->outcome.err.code && run->request->operation == SW_OP_UNPACK))
        sw_slot_give(m, slot); /* nothing was written */
    else
        begin_decode(m, slot);
}

static void keep_torn(struct sw_slot *slot) {
    slot->step = TORN;
    slot->runs = false;
}

static void failed(struct sw_mover *m, struct sw_slot *slot) {
    if (slot->step == COMPARING || slot->step == FETCHING || slot->step == UNPACKING)
        sw_slot_give(m, slot); /* the frame is where it was */
    else
        keep_torn(slot);
}

static void ended(struct sw_mover *m, struct sw_slot *slot, int rc, const struct sw_slot_result *result,
                  const struct sw_err *err) {
    (void)result;
    if (rc)
        note_failure(m, slot->run, err);
    if (rc || slot->unqueued) {
        slot->unqueued = false;
        failed(m, slot);
    } else if (slot->step == PLACING) {
        placed(m, slot);
    } else if (slot->step == COMPARING) {
        compared(m, slot);
    } else if (slot->step == FETCHING) {
        fetched(m, slot);
    } else {
        unpacked(m, slot);
    }
}

/* ---- pack, until the frame exists ---- */

/* The first frame shows whether a kept plan matches. Later frames could not be taken back. */
static bool wants_pack(struct sw_mover *m, struct sw_run *run) {
    (void)m;
    return run->n_dealt < run->frames->n_chunks &&
           (run->course.plan_state != SW_PLAN_STATE_UNPROVEN || run->n_dealt == 0);
}

static bool start_pack(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run) {
    return sw_encode_start(m, slot, &sw_workflow_pack, run, 1);
}

static void pack_ended(struct sw_mover *m, struct sw_slot *slot, int rc, const struct sw_slot_result *result,
                       const struct sw_err *err) {
    struct sw_run *run = slot->run;
    if (slot->step >= SW_ENCODE_STEPS) {
        ended(m, slot, rc, result, err);
        return;
    }
    if (rc)
        sw_mover_fail(m, run, err);
    if (run->outcome.err.code)
        sw_slot_give(m, slot);
    else if (sw_encode_ended(m, slot, result))
        hold(m, slot);
}

/* ---- recovery ---- */

static bool release_slots(struct sw_mover *m, const struct sw_run *run, int step) {
    bool advanced = false;
    for (unsigned s = 0; s < m->n_slots; s++)
        if (m->slots[s].run == run && m->slots[s].step == step) {
            sw_slot_give(m, &m->slots[s]);
            advanced = true;
        }
    return advanced;
}

/* Returns true if a pack has left no traces. */
static bool all_raw(const struct sw_run *run) {
    for (size_t i = 0; run->frames && i < run->frames->n_begun; i++)
        if (run->frames->packed[i].is_packed)
            return false;
    return !run->in_place.torn;
}

/* Gives up: the frames that torn slots held are lost. */
static bool give_up(struct sw_mover *m, struct sw_run *run) {
    bool advanced = release_slots(m, run, TORN);
    run->in_place.torn |= advanced;
    return advanced;
}

static void finish(struct sw_run *run) {
    if (run->request->operation == SW_OP_PACK && !run->outcome.err.code)
        run->outcome.stored_bytes = sw_frames_packed_bytes(run->frames);
    bool bytes_lost = run->request->operation == SW_OP_PACK
                          ? !all_raw(run)
                          : run->in_place.torn && !proves_damage(run->outcome.err.code);
    if (!run->outcome.err.code || !bytes_lost)
        return;
    struct sw_err cause = run->outcome.err;
    (void)sw_err_set(&run->outcome.err, -SW_ELOST, SW_SCOPE_REGION,
                     "the operation failed and could not be undone: the memory's bytes are lost");
    (void)sw_err_detail(&run->outcome.err, "%s", cause.msg);
}

static bool is_undone(const struct sw_run *run) {
    return run->request->operation != SW_OP_PACK || run->in_place.lost || all_raw(run);
}

/* Returns true if steps of the run are queued on any slot. */
static bool is_busy(const struct sw_mover *m, const struct sw_run *run) {
    for (unsigned s = 0; s < m->n_slots; s++)
        if (m->slots[s].run == run && m->slots[s].step != TORN)
            return true;
    return false;
}

static struct sw_slot *last_torn(struct sw_mover *m, const struct sw_run *run) {
    struct sw_slot *last = NULL;
    for (unsigned s = 0; s < m->n_slots; s++) {
        struct sw_slot *slot = &m->slots[s];
        if (slot->run == run && slot->step == TORN && (!last || slot->chunk > last->chunk))
            last = slot;
    }
    return last;
}

/* Undoes the last chunk that is not raw. */
static bool recover_pack(struct sw_mover *m, struct sw_run *run) {
    struct sw_slot *torn = last_torn(m, run), *free_slot = NULL;
    size_t n = run->frames ? run->frames->n_begun : 0; /* no frames: the run had not begun */
    while (n > 0 && !run->frames->packed[n - 1].is_packed && !(torn && torn->chunk == n - 1))
        n--;
    if (n == 0)
        return false;
    if (torn && torn->chunk == n - 1) {
        begin_decode(m, torn); /* its buffer holds the frame */
        return true;
    }
    for (unsigned s = 0; s < m->n_slots && !free_slot; s++)
        free_slot = sw_slot_is_free(&m->slots[s]) ? &m->slots[s] : NULL;
    if (free_slot)
        begin_unpack(m, free_slot, run, n - 1);
    return free_slot != NULL;
}

/* Places the frame of a chunk again that could not be unpacked. */
static bool recover_unpack(struct sw_mover *m, struct sw_run *run) {
    struct sw_slot *torn = last_torn(m, run);
    struct sw_err err = {0};
    if (!torn)
        return false;
    const struct sw_packed_chunk *chunk = &run->frames->packed[torn->chunk];
    torn->step = PLACING;
    torn->runs = true;
    if (m->device->ops->place(m->device, sw_slot_index(m, torn), run->buffer->memory->mapping,
                              run->buffer->offset + chunk->offset, front_bytes(run, torn->chunk), chunk->bytes, &err)) {
        note_failure(m, run, &err);
        torn->unqueued = true;
    }
    return true;
}

static bool recover(struct sw_mover *m, struct sw_run *run) {
    bool advanced = release_slots(m, run, HOLDING);
    if (is_busy(m, run))
        return advanced;
    if (run->in_place.lost)
        return give_up(m, run) || advanced;
    run->in_place.is_recovering = true;
    return (run->request->operation == SW_OP_PACK ? recover_pack(m, run) : recover_unpack(m, run)) || advanced;
}

static bool abandon(struct sw_mover *m, struct sw_run *run) {
    const bool advanced = recover(m, run);
    run->is_undone = is_undone(run);
    return advanced;
}

const struct sw_workflow sw_workflow_pack = {
    .wants = wants_pack, .start = start_pack, .step_ended = pack_ended, .abandon = abandon, .finish = finish};
const struct sw_workflow sw_workflow_unpack = {
    .wants = may_unpack, .start = start_unpack, .step_ended = ended, .abandon = abandon, .finish = finish};

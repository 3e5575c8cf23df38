/* client_frame.c - frames that the client makes, and decodes itself: they are copied to their places, and back.
 *
 * The copy engines alone move such a frame, so the device launches no kernel for it, and no plan is made. A client may
 * write anything into its memory, at any time. So the frame's layout is read from our own copy, and decoders trust
 * nothing else of a frame. */
#include "spill/mover/mover_state.h"

#include <string.h>

/* ---- spill ---- */

static int queue_take(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    const struct sw_run *run = slot->run;
    if (!sw_slot_shares_link(m, slot))
        sw_measure_begin(m, slot, SW_MEASURE_LINK_OUT, SW_CODEC_RAW, run->buffer->bytes, slot->stored.bytes);
    sw_link_take(m, slot, SW_LINK_OUT, slot->stored.bytes);
    slot->moved = (struct sw_frame_item){.offset = run->buffer->offset, .stored = &slot->stored};
    return m->device->ops->take_frames(m->device, sw_slot_index(m, slot), run->buffer->memory->mapping, &slot->moved, 1,
                                       err);
}

static bool start_take(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run) {
    if (!run->buffer->frame_bytes || run->n_dealt == run->frames->n_chunks)
        return false;
    sw_slot_take(m, slot, &sw_workflow_take, run);
    slot->chunk = run->n_dealt++;
    run->course.reason = SW_COST_CLIENT;
    sw_run_set_phase(m, run, SW_PHASE_STORING);
    sw_slot_store(m, slot, run->buffer->frame_bytes, queue_take);
    return true;
}

static void resume_take(struct sw_mover *m, struct sw_slot *slot) {
    if (slot->run->outcome.err.code)
        sw_slot_give(m, slot);
    else
        sw_slot_store(m, slot, slot->run->buffer->frame_bytes, queue_take);
}

/* Copies the frame's beginning, as far as sw_frame_parse() needs it. Returns how much that is. */
static size_t copy_head(const struct sw_stored *stored, uint8_t ret[SW_FRAME_HEAD_MAX_BYTES]) {
    size_t n = 0;
    for (unsigned i = 0; i < stored->n_extents && n < SW_FRAME_HEAD_MAX_BYTES; i++) {
        const struct sw_extent *extent = &stored->extents[i];
        const size_t left = SW_FRAME_HEAD_MAX_BYTES - n, bytes = extent->bytes < left ? (size_t)extent->bytes : left;
        memcpy(ret + n, extent->memory, bytes);
        n += bytes;
    }
    return n;
}

/* A bad frame is the client's error, whatever is wrong with it. Its bytes are not stored yet, so none are lost. */
static int refuse(struct sw_err *err, const struct sw_err *cause) {
    return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "the client's frame is none that can be stored: %s",
                      cause->msg);
}

static int check_suits(const struct sw_run *run, const struct sw_frame_layout *frame, struct sw_err *err) {
    const uint64_t raw_bytes = sw_frames_chunk_bytes(run->frames, 0);
    if (frame->raw_bytes != raw_bytes)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "it holds %llu bytes, the chunk has %llu",
                          (unsigned long long)frame->raw_bytes, (unsigned long long)raw_bytes);
    if (frame->value_type != SW_VALUE_NONE && frame->value_type != run->buffer->type)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "it holds values of type %s, but the buffer's type is %s",
                          sw_value_type_name(frame->value_type), sw_value_type_name(run->buffer->type));
    return 0;
}

int sw_client_frame_parse(const struct sw_run *run, const struct sw_stored *stored, struct sw_frame_layout *ret,
                          struct sw_err *err) {
    uint8_t head[SW_FRAME_HEAD_MAX_BYTES];
    struct sw_err cause = {0};
    int rc = sw_frame_parse(ret, head, copy_head(stored, head), stored->bytes, &cause);
    if (!rc)
        rc = check_suits(run, ret, &cause);
    return rc ? refuse(err, &cause) : 0;
}

static void take_ended(struct sw_mover *m, struct sw_slot *slot, int rc, const struct sw_slot_result *result,
                       const struct sw_err *cause) {
    struct sw_run *run = slot->run;
    struct sw_err err = {0};
    (void)result;
    if (rc)
        sw_mover_fail(m, run, cause);
    if (!run->outcome.err.code && sw_client_frame_parse(run, &slot->stored, &slot->frame, &err))
        sw_mover_fail(m, run, &err);
    if (!run->outcome.err.code) {
        sw_run_note_frame(run, slot->chunk, slot->frame.codec, &slot->frame);
        run->frames->are_clients[slot->chunk] = true;
        if (sw_slot_stored(m, slot, &err))
            sw_mover_fail(m, run, &err);
    }
    sw_slot_give(m, slot);
}

const struct sw_workflow sw_workflow_take = {.start = start_take, .step_ended = take_ended, .resume = resume_take};

/* ---- restore ---- */

enum { VERIFYING, GIVING };

static const struct sw_stored *frame_of(const struct sw_slot *slot) {
    return sw_slot_is_staged(slot) ? &slot->stored : &slot->run->frames->stored[slot->chunk];
}

/* Our own copy may be damaged: the client gets the frame that was stored, or none. A frame that was brought was checked
 * then. */
static int queue_give(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    const struct sw_run *run = slot->run;
    const struct sw_stored *stored = frame_of(slot);
    if (!sw_slot_is_staged(slot) && sw_frames_check_memory(run->frames, slot->chunk, stored, err))
        return err->code;
    slot->step = GIVING;
    sw_link_take(m, slot, SW_LINK_BACK, stored->bytes);
    slot->moved = (struct sw_frame_item){.offset = run->buffer->offset, .stored = stored};
    return m->device->ops->give_frames(m->device, sw_slot_index(m, slot), run->buffer->memory->mapping, &slot->moved, 1,
                                       run->request->may_fill_holes, err);
}

/* The client says that the frame does not decode. Only our own decoder is believed. */
static int queue_verify(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    slot->step = VERIFYING;
    return m->device->ops->verify_frame(m->device, sw_slot_index(m, slot), frame_of(slot), err);
}

static bool start_give(struct sw_mover *m, struct sw_slot *slot, struct sw_run *run) {
    struct sw_err err = {0};
    if (!run->buffer->frame_bytes || !sw_restore_wants(m, run))
        return false;
    sw_slot_take(m, slot, &sw_workflow_give, run);
    slot->chunk = run->n_dealt++;
    (void)m->sink->ops->take(m->sink, run, slot->chunk, &slot->stored);
    if ((run->buffer->is_disputed ? queue_verify : queue_give)(m, slot, &err))
        sw_slot_drain(m, slot, 1, &err);
    return true;
}

static void give_ended(struct sw_mover *m, struct sw_slot *slot, int rc, const struct sw_slot_result *result,
                       const struct sw_err *cause) {
    struct sw_run *run = slot->run;
    struct sw_err err = {0};
    (void)result;
    if (rc)
        sw_slot_fail_at(m, slot, 1, cause);
    if (!run->outcome.err.code && slot->step == VERIFYING) {
        if (queue_give(m, slot, &err))
            sw_slot_drain(m, slot, 1, &err);
        return;
    }
    if (!run->outcome.err.code)
        run->n_done++;
    sw_slot_give(m, slot);
}

const struct sw_workflow sw_workflow_give = {.start = start_give, .step_ended = give_ended};

/* client_short.c - calls whose regions are one short chunk each, encoded and decoded in this process.
 *
 * Messages and wake-ups take longer than the bytes of such a region. So a packet has whole builds, or whole reads, of
 * all regions whose frames are in a slot's buffer: one message tells all frames, and one reply has all results. If the
 * call has several packets, and is all or nothing, the library drops what the others have stored. A restore keeps the
 * stored copies until all bytes are back. */
#include "ipc/client/client_coded_state.h"
#include "ipc/client/client_results.h"

#include "base/clock.h"

/* As the mover's groups take them (spill/mover/group.c). */
#define MOST_BYTES ((uint64_t)1 << 20)
_Static_assert((unsigned)SW_CODER_MOST_RUNS == (unsigned)SW_PROTO_MAX_ITEMS, "a packet has room for a group");

bool sw_short_suits(const struct sw_transfer *x) {
    for (uint32_t i = 0; i < x->call->n; i++) {
        const struct sw_call_request *r = &x->call->requests[i];
        if (r->n_buffers != 1 || !r->buffers[0].bytes || r->buffers[0].bytes > MOST_BYTES || r->name_bytes)
            return false;
    }
    return true;
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

static struct sw_coded *op_of(const struct spillway_ticket *t) {
    const struct sw_transfer *x = t->own.owner;
    return sw_coded_of(x->way);
}

/* Takes where the service has put a frame, and its layout. */
static bool take_frame(struct sw_coder_event *event, unsigned i, const struct sw_wire_frame *frame,
                       uint64_t frames_offset) {
    struct sw_frames *frames = event->runs[i]->run.frames;
    const uint64_t begin = event->at[0],
                   end = event->at[event->n - 1] + sw_frame_step_bytes(event->bytes[event->n - 1]),
                   at = frame->offset - frames_offset;
    if (at < begin || at > end || frame->bytes > end - at || (at - begin) % SW_FRAME_STEP_BYTES ||
        frame->raw_bytes > frames->raw_bytes ||
        !sw_coded_take_layout(&frames->layouts[0], frame, sw_frame_bound_bytes(frame->raw_bytes)))
        return false;
    frames->raw_bytes = frame->raw_bytes;
    if (event->items)
        event->at[i] = at;
    return event->items || at == begin;
}

/* The region is no single chunk: the service has to restore it. */
static bool is_for_service(const struct spillway_ticket *t) {
    return t->operation == SW_MSG_READ && t->error.code == -SW_ENOTSUP;
}

static bool take_replies(struct spillway_ticket *t, const struct sw_msg *msg) {
    struct sw_coder_event *event = t->into;
    struct sw_transfer *x = t->own.owner;
    const struct sw_msg_results *m = &msg->u.results;
    const unsigned n_frames = event->kind == SW_CODER_FETCH ? event->n : 0;
    if (msg->header.type != SW_MSG_RESULTS || m->n_results != event->n || m->n_frames != n_frames)
        return false;
    for (unsigned i = 0; i < n_frames; i++) {
        struct spillway_result result;
        if (!sw_results_read(m, i, &result))
            return false;
        if (result.code == -SW_ENOTSUP) {
            sw_client_result_error(&t->error, m, i);
            return true;
        }
    }
    if (!sw_transfer_take_results(t, msg))
        return false;
    for (unsigned i = 0; i < event->n; i++) {
        struct sw_coder_run *run = event->runs[i];
        const int code = x->results[run->item].code;
        if (code)
            (void)sw_err_set(&run->refused, code, SW_SCOPE_REQUEST, "%s", x->error.text);
        else if (n_frames && !take_frame(event, i, &m->frames[i], op_of(t)->link->frames_offset))
            return false;
    }
    return true;
}

static void replied(struct spillway_ticket *t) {
    struct sw_coder_event *event = t->into;
    struct sw_coded *op = op_of(t);
    const bool is_services = !is_for_service(t);
    struct sw_err err = {0};
    if (t->error.code)
        (void)sw_err_set(&err, t->error.code, (enum sw_scope)t->error.scope, "%s", t->error.text);
    sw_way_forgive(&op->way, &t->error);
    for (unsigned i = 0; i < event->n; i++)
        event->runs[i]->failed_at_service |= is_services && (t->error.code || event->runs[i]->refused.code);
    op->link->active_us = sw_clock_us();
    if (t->error.code == -SW_EPROTO) /* it was given up by this side, and may be under way at the other one */
        sw_coder_condemn(sw_coded_coder(op));
    sw_coder_event_done(sw_coded_coder(op), event, &err);
    if (!is_services)
        t->error = (struct spillway_error){0};
    sw_transfer_packet_done(t);
}

/* ---- packets ----------------------------------------------------------------------------------------------------- */

static void add_build(struct sw_coded *op, const struct sw_coder_event *event, unsigned i, struct sw_arrays *a) {
    const struct sw_coder_run *run = event->runs[i];
    struct sw_transfer *x = op->way.transfer;
    struct sw_item *item = &x->items[run->item];
    const struct sw_item_buffer *b = sw_way_buffer(&op->way, run->item, 0);
    const struct sw_wire_chunk chunk = {.raw_bytes = b->bytes,
                                        .offset = op->link->frames_offset + event->at[i],
                                        .mem = op->link->mem,
                                        .frame_bytes = (uint32_t)event->bytes[i]};
    item->number = sw_client_new_number(sw_way_connection(&op->way));
    sw_arrays_add_item(a, item, SW_BUILD_BEGIN | SW_BUILD_COMMIT);
    sw_arrays_add_buffer(a, b->bytes, sw_coded_chunk_bytes(&op->way, b), item->request->buffers[0].type);
    sw_arrays_add_chunk(a, &chunk, NULL);
}

static void add_read(struct sw_coded *op, const struct sw_coder_event *event, unsigned i, struct sw_arrays *a) {
    const struct sw_coder_run *run = event->runs[i];
    struct sw_item *item = &op->way.transfer->items[run->item];
    const struct sw_wire_chunk chunk = {.raw_bytes = sw_way_buffer(&op->way, run->item, 0)->bytes,
                                        .offset = op->link->frames_offset + event->at[i],
                                        .mem = op->link->mem,
                                        .frame_bytes = (uint32_t)sw_frame_step_bytes(event->bytes[i])};
    item->number = sw_client_new_number(sw_way_connection(&op->way));
    sw_arrays_add_item(a, item,
                       SW_READ_BEGIN | SW_READ_END | SW_READ_KEEP | (event->is_disputed ? SW_READ_DISPUTED : 0u));
    sw_arrays_add_chunk(a, &chunk, NULL);
    a->gathers = true;
}

/* Returns whether the service's limits leave room for the packet. */
static bool may_send(const struct sw_coded *op, unsigned n) {
    const struct spillway *c = sw_way_connection(&op->way);
    return sw_way_may_send(&op->way) && n <= c->max_buffers - c->n_buffers;
}

bool sw_short_send(struct sw_coder_event *event) {
    struct sw_coded *op = event->run->owner;
    struct sw_transfer *x = op->way.transfer;
    const bool is_spill = event->kind == SW_CODER_SEND;
    struct sw_err err = {0};
    if (sw_coded_refuse_event(op, event))
        return true;
    if (op->link->state != SW_CODER_READY || !may_send(op, event->n))
        return false;
    struct sw_arrays *a = sw_arrays_begin(x);
    for (unsigned i = 0; i < event->n; i++) {
        event->numbers[i] = event->runs[i]->item;
        event->runs[i]->refused.code = 0;
        (is_spill ? add_build : add_read)(op, event, i, a);
    }
    struct spillway_ticket *t =
        sw_arrays_send(x, a, event->numbers[0], !sw_transfer_is_each(x), take_replies, replied, &err);
    if (!t) {
        sw_client_note_err(&x->error, &err);
        sw_coded_drop_event(op, event, err.code, err.msg);
        return true;
    }
    t->into = event;
    t->transfer.mem = op->link->mem;
    t->transfer.items = event->numbers;
    t->transfer.is_of_opened = true; /* after a restart the memory is opened anew, under the same number */
    t->transfer.is_append = !is_spill;
    op->link->active_us = sw_clock_us();
    return true;
}

/* client_coded.c - see client_coded.h. Life of a call that is encoded or decoded here:
 *
 *   READY   until the link to the coder is ready, and the caller's streams are where they were at the call
 *   BEGIN   restore: the reads have begun, and say how long the regions and their chunks are
 *   MOVE    runs are in the coder; frames go to the service, or come from it, slot by slot
 *   GIVE_UP the service is to do it: ends what is open; GIVEN_UP: until the answers have come
 *   END     no run is left: ends what is open
 *   OVER    nothing more is sent
 *
 * A frame buffer belongs to the service from the packet that names it until its reply. So a run that fails, or is
 * canceled, is over only when the replies of its slots have come. */
#include "ipc/client/client_coded.h"
#include "ipc/client/client_coded_state.h"
#include "ipc/client/client_results.h"

#include "base/alloc.h"
#include "base/clock.h"
#include <string.h>

/* Buffers that are shorter on average do not pay for packets of their own. */
#define LEAST_BYTES ((uint64_t)1 << 20)
_Static_assert((int)SPILLWAY_PREFER_TIME == (int)SW_PREFER_TIME && (int)SPILLWAY_PREFER_ROOM == (int)SW_PREFER_ROOM,
               "the API and the planner number preferences alike");
_Static_assert(SW_DECODE_MAX <= SW_READ_MAX_DISPUTED, "the frames of a step may be disputed together");

/* Runs of a call that are in the coder at a time. */
enum { MOST_RUNS = 64, MOST_SHORT_RUNS = 2 * SW_CODER_MOST_RUNS };

static struct sw_coder_run *run_at(const struct sw_coded *op, uint32_t i) {
    return &op->runs[op->order[i]];
}

/* ---- frames to the service, and back ------------------------------------------------------------------------------
 */

/* The reply to a packet about a slot's buffer. */
static bool take_frames(struct spillway_ticket *t, const struct sw_msg *msg) {
    struct sw_coder_event *event = t->into;
    struct sw_transfer *x = t->own.owner;
    const struct sw_msg_results *m = &msg->u.results;
    struct spillway_result result;
    if (msg->header.type != SW_MSG_RESULTS || m->n_results != 1 || !sw_results_read(m, 0, &result))
        return false;
    if (result.code) {
        sw_client_result_error(&t->error, m, 0);
        return true;
    }
    if (event->kind == SW_CODER_SEND)
        return m->n_frames == 0;
    if (m->n_frames != event->n)
        return false;
    for (unsigned i = 0; i < event->n; i++)
        if (!sw_coded_take_layout(&event->run->run.frames->layouts[event->chunk + i], &m->frames[i], event->bytes[i]))
            return false;
    sw_way_add_result(&x->results[t->own.part], &result);
    return true;
}

static void frames_done(struct spillway_ticket *t) {
    struct sw_coder_event *event = t->into;
    struct sw_transfer *x = t->own.owner;
    struct sw_err err = {0};
    if (t->error.code)
        (void)sw_err_set(&err, t->error.code, (enum sw_scope)t->error.scope, "%s", t->error.text);
    sw_way_forgive(x->way, &t->error);
    event->run->failed_at_service |= t->error.code != 0;
    sw_coded_of(x->way)->link->active_us = sw_clock_us();
    if (t->error.code == -SW_EPROTO) /* it was given up by this side, and may be under way at the other one */
        sw_coder_condemn(sw_coded_coder(sw_coded_of(x->way)));
    sw_coder_event_done(sw_coded_coder(sw_coded_of(x->way)), event, &err);
    sw_transfer_packet_done(t);
}

/* Sends a packet about a slot's buffer. Returns false if its time has not come. */
static bool send_event(struct sw_coder_event *event) {
    struct sw_coder_run *run = event->run;
    struct sw_coded *op = run->owner;
    struct sw_wire_chunk chunks[SW_DECODE_MAX];
    if (sw_coded_refuse_event(op, event))
        return true;
    /* The service appends the chunks of a buffer in order. After a restart it has no frame buffers at first. */
    if (op->link->state != SW_CODER_READY || !sw_way_may_send(&op->way) ||
        (event->kind == SW_CODER_SEND && event->chunk != run->n_sent))
        return false;
    const struct sw_frames *frames = run->run.frames;
    for (unsigned i = 0; i < event->n; i++)
        chunks[i] = (struct sw_wire_chunk){.at = (event->chunk + i) * frames->chunk_bytes,
                                           .raw_bytes = sw_frames_chunk_bytes(frames, event->chunk + i),
                                           .offset = op->link->frames_offset + event->at[i],
                                           .mem = op->link->mem,
                                           .frame_bytes = (uint32_t)event->bytes[i],
                                           .buffer = (uint16_t)run->buffer_index};
    const unsigned flags = event->kind == SW_CODER_FETCH && event->is_disputed ? SW_READ_DISPUTED : 0;
    struct spillway_ticket *t =
        sw_way_send_chunks(&op->way, run->item, flags, chunks, event->n, NULL, take_frames, frames_done);
    if (!t) {
        sw_coded_drop_event(op, event, -SW_ECANCELED, "the call has ended");
        return true;
    }
    t->into = event;
    op->link->active_us = sw_clock_us();
    run->n_sent += event->n;
    return true;
}

/* Sends the coder's new events, and the events that had to wait. */
static bool send_events(struct sw_coder_link *link) {
    struct sw_list later;
    struct sw_coder_event *event;
    bool sent = false;
    sw_list_init(&later);
    while ((event = sw_coder_next_event(link->coder, &link->user)))
        sw_list_append(&link->waiting, &event->node);
    for (struct sw_list *n; (n = sw_list_take_first(&link->waiting));) {
        struct sw_coder_event *waiting = SW_CONTAINER_OF(n, struct sw_coder_event, node);
        const struct sw_coded *op = waiting->run->owner;
        if ((op->is_short ? sw_short_send : send_event)(waiting))
            sent = true;
        else
            sw_list_append(&later, n);
    }
    sw_list_append_all(&link->waiting, &later);
    return sent;
}

/* ---- runs ---------------------------------------------------------------------------------------------------------
 */

static uint64_t bytes_to_move(const struct sw_coded *op, const struct sw_item_buffer *b) {
    return sw_way_is_spill(&op->way) || op->is_short ? b->bytes : b->stored_bytes;
}

static uint64_t chunk_to_move(const struct sw_coded *op, const struct sw_item_buffer *b) {
    return sw_way_is_spill(&op->way) || op->is_short ? sw_coded_chunk_bytes(&op->way, b) : b->chunk_bytes;
}

static int make_run(struct sw_coded *op, uint32_t item, uint32_t k, struct sw_err *err) {
    const struct sw_transfer *x = op->way.transfer;
    const struct sw_item_buffer *p = sw_way_buffer(&op->way, item, k);
    const struct spillway_buffer *buffer = &x->items[item].request->buffers[k];
    const uint64_t bytes = bytes_to_move(op, p);
    struct sw_coder_run *run = &op->runs[x->items[item].first + k];
    run->user = &op->link->user;
    run->owner = op;
    run->item = item;
    run->buffer_index = k;
    run->goes_in_groups = op->is_short;
    run->request = (struct sw_request){.operation = sw_way_is_spill(&op->way) ? SW_OP_SPILL : SW_OP_RESTORE,
                                       .session = sw_way_connection(&op->way)->number,
                                       .may_fill_holes = true};
    run->prefer = (enum sw_prefer)x->items[item].request->prefer;
    run->buffer.type = (enum sw_value_type)buffer->type;
    run->buffer.number = x->items[item].request->n_buffers > 1 ? k + 1 : 0;
    run->buffer.bytes = bytes;
    run->memory.data = buffer->data;
    if (sw_way_is_spill(&op->way))
        run->buffer.chunk_bytes = chunk_to_move(op, p);
    else if (!(run->run.frames = sw_frames_new(bytes, chunk_to_move(op, p), false)))
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a restore");
    return 0;
}

static void fail_item(struct sw_coded *op, uint32_t item, const struct sw_err *err) {
    struct sw_transfer *x = op->way.transfer;
    if (!x->results[item].code)
        x->results[item].code = err->code;
    sw_client_note_err(&x->error, err);
}

/* Makes the next run. NULL: there is none, or it has failed. */
static struct sw_coder_run *next_run(struct sw_coded *op) {
    const struct sw_transfer *x = op->way.transfer;
    const uint32_t item = op->next_item, k = op->next_buffer;
    struct sw_err err = {0};
    if (k == x->items[item].request->n_buffers) {
        op->next_item++;
        op->next_buffer = 0;
        return NULL;
    }
    op->next_buffer++;
    if (x->results[item].code || !bytes_to_move(op, sw_way_buffer(&op->way, item, k)))
        return NULL;
    if (make_run(op, item, k, &err) < 0) {
        fail_item(op, item, &err);
        return NULL;
    }
    op->order[op->n_runs++] = x->items[item].first + k;
    return run_at(op, op->n_runs - 1);
}

/* Adds the next runs, as many as may be in the coder. */
static void add_runs(struct sw_coded *op) {
    struct sw_coder_run *runs[SW_CODER_MOST_RUNS];
    const uint32_t most = op->is_short ? MOST_SHORT_RUNS : MOST_RUNS;
    while (op->next_item < sw_way_n_items(&op->way) && op->n_runs - op->first_run < most) {
        unsigned n = 0;
        while (n < SW_CODER_MOST_RUNS && op->next_item < sw_way_n_items(&op->way) &&
               op->n_runs - op->first_run < most) {
            runs[n] = next_run(op);
            n += runs[n] != NULL;
        }
        sw_coder_add(sw_coded_coder(op), runs, n);
    }
}

/* Takes a failure. The service can still do the call: nothing was committed, unless each request is by itself. */
static void take_failure(struct sw_coded *op, const struct sw_coder_run *run) {
    const struct sw_err *err = &run->run.outcome.err;
    if (op->falls_back && err->code == -SW_ECANCELED) /* because another one has failed */
        return;
    if (!run->failed_at_service && err->code != -SW_ECANCELED && !op->way.n_ended && !sw_way_must_stop(&op->way))
        op->falls_back = true;
    else
        fail_item(op, run->item, err);
}

/* Takes in the runs that are over. */
static void take_runs(struct sw_coded *op) {
    for (uint32_t i = op->first_run; i < op->n_runs; i++) {
        struct sw_coder_run *run = run_at(op, i);
        if (run->is_taken || !atomic_load_explicit(&run->is_over, memory_order_acquire))
            continue;
        run->is_taken = true;
        if (run->run.outcome.err.code)
            take_failure(op, run);
    }
    while (op->first_run < op->n_runs && run_at(op, op->first_run)->is_taken)
        op->first_run++;
}

static void cancel_runs(struct sw_coded *op) {
    for (uint32_t i = op->first_run; i < op->n_runs; i++)
        sw_coder_cancel(sw_coded_coder(op), run_at(op, i));
}

/* All frames of an item's buffers are with the service, or on their way to it. */
static bool is_sent(const struct sw_coded *op, uint32_t item) {
    const struct sw_item *it = &op->way.transfer->items[item];
    for (uint32_t k = 0; k < it->request->n_buffers; k++) {
        const struct sw_coder_run *run = &op->runs[it->first + k];
        const uint64_t bytes = sw_way_buffer(&op->way, item, k)->bytes;
        /* The run has frames, which the coder's thread makes, once one of them has been handed to this thread. */
        if (bytes && (!run->n_sent || run->n_sent < run->run.frames->n_chunks))
            return false;
    }
    return true;
}

/* Once items before `n` are committed, each by itself, the service cannot do the call any more. */
static void be_patient(struct sw_coded *op, uint32_t n) {
    if (op->is_patient || n == op->way.n_ended || n == sw_way_n_items(&op->way))
        return;
    op->is_patient = true;
    sw_coder_be_patient(sw_coded_coder(op), true);
}

/* Commits the items that are complete: each by itself as soon as it is, or all of them at the end. */
static bool commit_sent(struct sw_coded *op) {
    struct sw_way *way = &op->way;
    const struct sw_transfer *x = way->transfer;
    const bool each = sw_transfer_is_each(x);
    uint32_t n = way->n_ended;
    while (n < sw_way_n_items(way)) {
        if (each && x->results[n].code) {
            be_patient(op, n);
            if (n > way->n_ended && !sw_way_commit(way, n))
                return false;
            way->n_ended = ++n;
            continue;
        }
        if (!is_sent(op, n))
            break;
        if (!x->items[n].number && (!sw_way_may_send(way) || !sw_way_begin_empty(way, n)))
            return false;
        n++;
    }
    if (each)
        be_patient(op, n);
    return (!each && n < sw_way_n_items(way)) || sw_way_commit(way, n);
}

/* ---- a call, step by step -----------------------------------------------------------------------------------------
 */

static bool is_reached(struct sw_mark **mark) {
    if (*mark && !sw_mark_is_reached(*mark))
        return false;
    sw_mark_unref(*mark);
    *mark = NULL;
    return true;
}

static bool is_ready(struct sw_coded *op) {
    const struct sw_transfer *x = op->way.transfer;
    bool are_reached = true;
    if (sw_way_connection(&op->way)->link != SW_LINK_UP || op->link->state != SW_CODER_READY)
        return false;
    for (uint32_t i = 0; i < x->call->n_buffers; i++)
        are_reached = is_reached(&x->buffers[i].mark) && are_reached;
    if (!are_reached)
        sw_coder_link_look_again(op->link, &op->waits_since_us);
    else if (op->waits_since_us)
        op->link->marked_us = 0;
    return are_reached;
}

static void move(struct sw_coded *op) {
    struct sw_way *way = &op->way;
    take_runs(op);
    const bool must_stop = sw_way_must_stop(way), stops = must_stop || op->falls_back;
    if (stops)
        cancel_runs(op);
    else
        add_runs(op);
    if (sw_way_is_spill(way) && !op->is_short && !stops && !commit_sent(op))
        return;
    const bool is_up = sw_way_connection(way)->link == SW_LINK_UP; /* what is open goes with the old connection */
    if (op->falls_back && !must_stop && !is_up)
        return;
    if ((stops || op->next_item == sw_way_n_items(way)) && op->first_run == op->n_runs && !way->transfer->n_in_flight)
        op->stage = op->falls_back && !must_stop ? STAGE_GIVE_UP : STAGE_END;
}

/* The service takes no frames of this process, or something failed here: it encodes and decodes itself. Returns true if
 * the call has another way now. */
static bool gives_up(struct sw_coded *op) {
    struct sw_way *way = &op->way;
    if (op->stage == STAGE_GIVE_UP && sw_way_give_up_open(way))
        op->stage = STAGE_GIVEN_UP;
    const bool is_free = (op->stage == STAGE_READY && op->link->state == SW_CODER_REFUSED) ||
                         (op->stage == STAGE_GIVEN_UP && !way->transfer->n_in_flight);
    if (!is_free)
        return false;
    if (sw_way_must_stop(way)) {
        op->stage = STAGE_END;
        return false;
    }
    if (op->is_short && sw_way_is_spill(way)) /* by packets that have succeeded */
        sw_transfer_drop_stored(way->transfer);
    op->fall_back(way->transfer);
    return true;
}

/* The call is looked at again soon: for want of memory something was not sent, and nothing else may wake it. */
static void look_again(const struct sw_coded *op) {
    enum { PAUSE_US = 1000 };
    if (sw_coded_coder(op))
        sw_coder_wake_at(sw_coded_coder(op), &op->link->user, sw_clock_us() + PAUSE_US);
}

/* A state is looked at after all that lead to it: nothing may wake the call only to go on from where it is. */
static void advance(struct sw_coded *op) {
    struct sw_way *way = &op->way;
    const int code = way->transfer->error.code;
    if (op->stage == STAGE_READY && sw_way_must_stop(way))
        op->stage = STAGE_END;
    if (op->stage == STAGE_READY && is_ready(op))
        op->stage = sw_way_is_spill(way) || op->is_short ? STAGE_MOVE : STAGE_BEGIN;
    if (op->stage == STAGE_BEGIN && sw_way_begin_reads(way))
        op->stage = STAGE_MOVE;
    if (op->stage == STAGE_MOVE) {
        const bool wakes_service =
            op->is_under_way && !op->is_short && sw_way_is_spill(way) && !way->transfer->items[0].number;
        if (wakes_service && !sw_way_must_stop(way) && sw_way_may_send(way)) /* while the first chunk is encoded */
            (void)sw_way_begin_empty(way, 0);
        op->is_under_way = true;
        move(op);
    }
    if (gives_up(op))
        return;
    const bool ends = op->stage == STAGE_END && !way->transfer->n_in_flight;
    if (ends && sw_way_end(way))
        op->stage = STAGE_OVER;
    else if (ends || op->stage == STAGE_GIVE_UP || way->transfer->error.code != code)
        look_again(op);
}

static void advance_all(struct spillway *c) {
    for (struct sw_list *n = c->transfers.next, *next; n != &c->transfers; n = next) {
        struct sw_way *way = SW_CONTAINER_OF(n, struct spillway_ticket, node)->call->way;
        next = n->next;
        if (way && way->ops->advance)
            way->ops->advance(way);
    }
}

void sw_coded_advance(struct spillway *c) {
    bool again = !sw_list_empty(&c->coders);
    while (again) {
        again = false;
        advance_all(c);
        sw_coder_links_step(c);
        for (struct sw_list *n = c->coders.next; n != &c->coders; n = n->next) {
            struct sw_coder_link *link = SW_CONTAINER_OF(n, struct sw_coder_link, node);
            again |= link->coder && send_events(link);
        }
    }
    advance_all(c);
}

/* ---- beginning and end --------------------------------------------------------------------------------------------
 */

static void advance_way(struct sw_way *way) {
    advance(sw_coded_of(way));
}

static bool has_ended(const struct sw_way *way) {
    return SW_CONTAINER_OF(way, const struct sw_coded, way)->stage == STAGE_OVER;
}

static void cancel(struct sw_way *way) {
    cancel_runs(sw_coded_of(way));
    (void)sw_way_end_open(way);
}

static int check_buffer(struct sw_way *way, const struct sw_item_buffer *b, struct sw_err *err) {
    struct sw_coded *op = sw_coded_of(way);
    const uint64_t longest = b->stored_bytes < b->chunk_bytes ? b->stored_bytes : b->chunk_bytes;
    (void)err;
    op->falls_back |= longest > sw_coder_chunk_bytes(sw_coded_coder(op)) || (b->stored_bytes && !b->chunk_bytes);
    return 0;
}

/* The caller's memory is as it was, and so is what is stored, unless something is committed. */
static bool begins_anew(struct sw_way *way) {
    struct sw_coded *op = sw_coded_of(way);
    if (way->n_ended || sw_way_must_stop(way) || op->stage >= STAGE_END)
        return false;
    op->falls_back = true;
    return true;
}

/* Runs of a connection that is closed are brought to their end here: the service no longer uses their buffers, unless
 * it hangs. */
static void finish_runs(struct sw_coded *op) {
    if (sw_way_connection(&op->way)->hangs)
        sw_coder_condemn(sw_coded_coder(op));
    cancel_runs(op);
    for (uint32_t i = op->first_run; i < op->n_runs; i++)
        while (!atomic_load_explicit(&run_at(op, i)->is_over, memory_order_acquire)) {
            sw_coder_drop_events(sw_coded_coder(op), op);
            (void)sw_coder_step(sw_coded_coder(op));
        }
}

static void coded_free(struct sw_way *way) {
    struct sw_coded *op = sw_coded_of(way);
    struct sw_transfer *x = way->transfer;
    if (op->n_runs > op->first_run)
        finish_runs(op);
    if (op->is_patient)
        sw_coder_be_patient(sw_coded_coder(op), false);
    for (uint32_t i = 0; i < op->n_runs; i++) {
        struct sw_coder_run *run = run_at(op, i);
        struct spillway_result *result = &x->results[run->item];
        if (result->code)
            continue;
        if (sw_way_is_spill(way)) {
            if (run->buffer_index == 0) /* the service only knows which side has encoded it */
                result->reason[0] = 0;
            sw_client_combine(result->reason, sizeof result->reason, sw_cost_reason_text(run->run.outcome.reason));
        }
        memcpy(result->coder, "client", sizeof "client");
    }
    for (uint32_t i = 0; op->runs && i < x->call->n_buffers; i++)
        sw_coder_run_fini(&op->runs[i]);
    sw_free(op->runs);
    sw_free(op->order);
    sw_free(op);
}

static const struct sw_way_ops coded_ops = {.has_ended = has_ended,
                                            .cancel = cancel,
                                            .advance = advance_way,
                                            .chunk_bytes = sw_coded_chunk_bytes,
                                            .check_buffer = check_buffer,
                                            .begins_anew = begins_anew,
                                            .free = coded_free};

/* The link for a buffer's memory. Mostly it lies in the allocation of the buffer before, so that the driver need not be
 * asked. */
static struct sw_coder_link *find_next(struct sw_transfer *x, const struct spillway_buffer *buffer,
                                       struct sw_coder_range *range, struct sw_err *err) {
    const uintptr_t address = (uintptr_t)buffer->data;
    if (range->link && address >= range->begin && address <= range->end && buffer->bytes <= range->end - address)
        return range->link;
    return sw_coder_link_find(x->ticket->connection, buffer->data, buffer->bytes, !x->call->is_spill, range, err);
}

static bool pays(const struct sw_transfer *x) {
    uint64_t bytes = 0, n = 0;
    for (uint32_t i = 0; i < x->call->n; i++) {
        const struct sw_call_request *r = &x->call->requests[i];
        bytes += r->bytes;
        for (uint32_t k = 0; k < r->n_buffers; k++)
            n += r->buffers[k].bytes > 0;
    }
    return n > 0 && bytes / n >= LEAST_BYTES;
}

/* The coder of all of the call's memory. NULL: there is none, and the call goes another way. */
static struct sw_coder_link *find_link(struct sw_transfer *x, struct sw_err *err) {
    struct sw_coder_range range = {0};
    struct sw_coder_link *link = NULL;
    for (uint32_t i = 0; i < x->call->n; i++) {
        const struct sw_call_request *r = &x->call->requests[i];
        if (r->flags & SPILLWAY_IN_PLACE)
            return NULL;
        for (uint32_t k = 0; k < r->n_buffers; k++) {
            const struct spillway_buffer *buffer = &r->buffers[k];
            if (!buffer->bytes && r->n_buffers > 1)
                continue;
            struct sw_coder_link *found = buffer->bytes ? find_next(x, buffer, &range, err) : NULL;
            if (!found || (link && found != link))
                return NULL;
            link = found;
        }
    }
    return link;
}

/* One mark serves all buffers of requests with the same stream, since they lie in one context. */
static int mark_request(struct sw_transfer *x, uint32_t i, struct sw_err *err) {
    struct spillway *c = x->ticket->connection;
    const struct sw_call_request *r = &x->call->requests[i];
    struct sw_item_buffer *buffers = &x->buffers[x->items[i].first];
    struct sw_export e = {.kind = SW_MEM_CUDA_IPC};
    uint32_t k = 0;
    int rc = 0;
    while (k + 1 < r->n_buffers && !r->buffers[k].bytes)
        k++;
    struct sw_mark *before = i > 0 ? x->buffers[x->items[i - 1].first].mark : NULL;
    const bool is_marked = i > 0 && r[-1].stream == r->stream;
    if (is_marked && before)
        e.mark = sw_mark_ref(before);
    if (!is_marked)
        rc = sw_export_order(&e, &c->cuda, NULL, r->buffers[k].data, r->stream, err);
    for (k = 0; e.mark && k < r->n_buffers; k++)
        buffers[k].mark = sw_mark_ref(e.mark);
    sw_mark_unref(e.mark);
    return rc;
}

static int mark_buffers(struct sw_transfer *x, bool is_gpu, struct sw_err *err) {
    int rc = 0;
    for (uint32_t i = 0; !rc && i < x->call->n; i++) {
        const struct sw_call_request *r = &x->call->requests[i];
        for (uint32_t k = 0; k < r->n_buffers; k++) {
            struct sw_item_buffer *b = &x->buffers[x->items[i].first + k];
            struct sw_export e = {0};
            /* Registered memory is in use until the call has ended. */
            const struct sw_registered *registered =
                sw_registered_find(x->ticket->connection, r->buffers[k].data, r->buffers[k].bytes, &e);
            b->bytes = r->buffers[k].bytes;
            b->mem = registered ? registered->mem : 0;
        }
        if (is_gpu)
            rc = mark_request(x, i, err);
    }
    return rc;
}

int sw_coded_prepare(struct sw_transfer *x, void (*fall_back)(struct sw_transfer *x), struct sw_err *err) {
    const bool has_codec = x->ticket->connection->has_codec, is_short = has_codec && sw_short_suits(x);
    struct sw_coder_link *link = is_short || (has_codec && pays(x)) ? find_link(x, err) : NULL;
    if (!link)
        return err->code;
    struct sw_coded *op = sw_alloc(sizeof *op);
    if (op) {
        op->runs = sw_alloc_array(x->call->n_buffers, sizeof *op->runs);
        op->order = sw_alloc_array(x->call->n_buffers, sizeof *op->order);
    }
    if (!op || !op->runs || !op->order) {
        if (op) {
            sw_free(op->runs);
            sw_free(op->order);
        }
        sw_free(op);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a call that is encoded here");
    }
    op->way = (struct sw_way){.ops = &coded_ops, .transfer = x};
    op->link = link;
    op->is_short = is_short;
    op->fall_back = fall_back;
    x->way = &op->way;
    return mark_buffers(x, link->place.context != NULL, err);
}

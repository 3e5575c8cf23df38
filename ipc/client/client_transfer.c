/* client_transfer.c - see client_transfer.h. */
#include "ipc/client/client_transfer.h"
#include "ipc/client/client_coded.h"
#include "ipc/client/client_in_place.h"
#include "ipc/client/client_packets.h"
#include "ipc/client/client_results.h"
#include "ipc/client/client_staging.h"
#include "ipc/client/client_way.h"

#include "base/alloc.h"
#include "base/clock.h"
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

_Static_assert((int)SPILLWAY_MAX_BUFFERS == SW_PROTO_MAX_BUFFERS && (int)SPILLWAY_MAX_BUFFERS <= (int)SW_MARKS_MAX,
               "as many as a request has room for");

static bool is_spill(const struct sw_transfer *x) {
    return x->call->is_spill;
}

/* Returns whether the daemon keeps the stored copies of a restore, and the library drops them: all or nothing by
 * several packets. */
static bool drops_at_end(const struct sw_transfer *x) {
    return !is_spill(x) && !sw_transfer_is_each(x) && x->has_several_packets && !x->way;
}

/* ---- packets ----------------------------------------------------------------------------------------------------- */

/* Returns how many of the next items fit into one packet, and the number of their buffers. 0: the first one has to
 * wait.
 */
static uint32_t next_items(const struct spillway *c, const struct sw_transfer *x, uint32_t *ret_n_buffers) {
    uint32_t n = 0, n_buffers = 0;
    for (uint32_t i = x->n_sent; i < x->call->n && n < SW_PROTO_MAX_ITEMS && !x->items[i].is_done; i++, n++) {
        const uint32_t more = x->items[i].request->n_buffers;
        if (n_buffers + more > SW_PROTO_MAX_ITEMS || c->n_buffers + n_buffers + more > c->max_buffers)
            break;
        n_buffers += more;
    }
    *ret_n_buffers = n_buffers;
    return n;
}

static void add_item(struct sw_transfer *x, struct sw_arrays *a, uint32_t i) {
    struct sw_item *item = &x->items[i];
    const struct sw_call_request *r = item->request;
    const bool in_place = r->flags & SPILLWAY_IN_PLACE, keep = (r->flags & SPILLWAY_KEEP) || drops_at_end(x);
    item->number = sw_client_new_number(x->ticket->connection);
    if (is_spill(x))
        sw_arrays_add_item(a, item, SW_BUILD_BEGIN | SW_BUILD_COMMIT | (in_place ? SW_BUILD_IN_PLACE : 0u));
    else
        sw_arrays_add_item(
            a, item, SW_READ_BEGIN | SW_READ_END | (keep ? SW_READ_KEEP : 0u) | (in_place ? SW_READ_IN_PLACE : 0u));
    for (uint32_t k = 0; k < r->n_buffers; k++) {
        const struct sw_item_buffer *b = &x->buffers[item->first + k];
        const struct sw_wire_chunk chunk = {
            .raw_bytes = b->bytes, .offset = b->offset, .mem = b->mem, .buffer = (uint16_t)k};
        if (is_spill(x))
            sw_arrays_add_buffer(a, b->bytes, 0, r->buffers[k].type);
        sw_arrays_add_chunk(a, &chunk, b->mark);
    }
}

/* Makes a packet of n items, and its ticket. The memory that is handed over with it comes first. */
static struct spillway_ticket *packet_new(struct spillway *c, struct sw_transfer *x, uint32_t n, struct sw_list *group,
                                          struct sw_err *err) {
    struct sw_arrays *a = sw_arrays_begin(x);
    struct spillway_ticket *t = sw_ticket_new(c, is_spill(x) ? SW_MSG_BUILD : SW_MSG_READ, err);
    int rc = t ? 0 : -SW_ENOMEM;
    for (uint32_t i = 0; !rc && i < n; i++)
        add_item(x, a, x->n_sent + i);
    if (!rc && x->n_opened == 1 && !x->opened[0].is_open)
        rc = sw_client_add_memory(group, x->opened[0].mem, true, &x->opened[0].export, err);
    if (!rc && !sw_arrays_packet(a, !sw_transfer_is_each(x), group, err))
        rc = -SW_ENOMEM;
    if (!rc)
        return t;
    sw_packets_free(group);
    sw_free(t);
    if (!err->code)
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a request");
    return NULL;
}

/* Items that were done here are not the daemon's. */
static void skip_done(struct sw_transfer *x) {
    while (x->n_sent < x->call->n && x->items[x->n_sent].is_done)
        x->n_sent++;
}

/* Fails the next n items, which cannot be sent. Returns whether the call goes on with the others. */
static bool packet_failed(struct sw_transfer *x, uint32_t n, const struct sw_err *err) {
    sw_client_note_err(&x->error, err);
    for (uint32_t i = 0; sw_transfer_is_each(x) && i < n; i++)
        x->results[x->n_sent++].code = err->code;
    skip_done(x);
    return sw_transfer_is_each(x);
}

/* Sends the next packet. Returns false if it has to wait, or failed. */
static bool send_packet(struct spillway *c, struct sw_transfer *x) {
    struct sw_err err = {0};
    struct sw_list group;
    uint32_t n_buffers;
    if (c->n_in_flight >= c->max_in_flight) /* after a restart the limit may be lower */
        return false;
    const uint32_t n = next_items(c, x, &n_buffers);
    if (!n)
        return false;
    sw_list_init(&group);
    const int rc = sw_transfer_make_ready(x, x->items[x->n_sent].first, n_buffers, &err);
    struct spillway_ticket *t = rc < 0 ? NULL : packet_new(c, x, n, &group, &err);
    if (!t)
        return packet_failed(x, n, &err);
    t->take = sw_transfer_take_results;
    t->own.on_done = sw_transfer_packet_done;
    t->own.owner = x;
    t->own.part = x->n_sent;
    t->transfer.n_items = n;
    t->transfer.n_buffers = n_buffers;
    t->transfer.mem = x->buffers[x->items[x->n_sent].first].mem;
    t->transfer.is_of_call = true;
    t->transfer.is_each = sw_transfer_is_each(x);
    t->transfer.is_of_opened = x->n_opened && x->opened[0].is_open;
    for (uint32_t i = 0; i < n; i++)
        t->transfer.bytes += sw_item_bytes(x, x->n_sent + i);
    x->n_sent += n;
    skip_done(x);
    x->n_in_flight++;
    sw_client_submit(t, &group);
    return true;
}

static bool close_opened(struct spillway *c, struct sw_transfer *x, struct sw_opened *o) {
    const struct sw_msg msg = {.header.type = SW_MSG_MEM_CLOSE, .u.mem_close.mem = o->mem};
    struct sw_list group;
    sw_list_init(&group);
    struct spillway_ticket *t = sw_ticket_new(c, SW_MSG_MEM_CLOSE, NULL);
    if (!t || !sw_packet_new(&group, &msg, NULL)) {
        sw_free(t);
        return false;
    }
    o->is_open = false;
    t->own.on_done = sw_transfer_memory_done;
    t->own.owner = x;
    x->n_in_flight++;
    sw_client_submit(t, &group);
    return true;
}

/* Closes the call's memory after the last packet; the daemon waits for its operations. Returns false without memory for
 * the packets: call it again. */
static bool close_all_opened(struct spillway *c, struct sw_transfer *x) {
    for (uint32_t i = 0; i < x->n_opened; i++)
        if (x->opened[i].is_open && !c->lost.code && !close_opened(c, x, &x->opened[i]))
            return false;
    return true;
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

/* Gives the call's outcome to the items that have none of their own. */
static void set_codes(struct sw_transfer *x) {
    const bool has_stopped = x->cancel_code || x->ticket->connection->lost.code;
    for (uint32_t i = 0; x->error.code && i < x->call->n; i++) {
        const bool is_open = x->way ? has_stopped && !x->items[i].is_stored : i >= x->n_sent;
        if (x->items[i].is_done)
            continue;
        if (!sw_transfer_is_each(x) || (is_open && !x->results[i].code))
            x->results[i].code = x->error.code;
    }
}

static void end_way(struct sw_transfer *x) {
    if (x->way)
        x->way->ops->free(x->way);
    x->way = NULL;
}

static void finish(struct spillway *c, struct sw_transfer *x) {
    /* If a memory could not be opened, the daemon does not know it: the cause is the memory's error. */
    if (x->error.code == -SW_ENOENT && x->open_error.code)
        x->error = x->open_error;
    set_codes(x);
    x->ticket->error = x->error;
    sw_item_buffers_release_marks(x->buffers, x->call->n_buffers);
    if (is_spill(x) && !sw_transfer_is_each(x) && x->error.code)
        sw_transfer_drop_stored(x);
    else if (drops_at_end(x) && !x->error.code)
        sw_transfer_consume(x);
    end_way(x);
    sw_staging_free_unused(c);
    c->n_transfers--;
    sw_ticket_complete(x->ticket);
}

static void check_time(struct sw_transfer *x) {
    if (sw_clock_us() < x->deadline_us)
        return;
    x->deadline_us = UINT64_MAX;
    sw_transfer_cancel(x, -SW_ETIMEDOUT, "the request's timeout_ms is over");
}

static bool has_ended(const struct sw_transfer *x) {
    if (x->way)
        return x->way->ops->has_ended(x->way);
    return x->n_sent == x->call->n || (x->error.code && !sw_transfer_is_each(x)) || x->cancel_code ||
           x->ticket->connection->lost.code;
}

static void finish_if_ended(struct spillway *c, struct sw_transfer *x) {
    if (has_ended(x) && close_all_opened(c, x) && !x->n_in_flight)
        finish(c, x);
}

/* Sends the calls' packets. A later call does not overtake one that waits for room. */
static void advance(struct spillway *c, struct sw_transfer *x, bool *room) {
    if (c->lost.code && !(x->way && x->way->is_in_place)) /* these may need no service */
        sw_client_note_error(&x->error, &c->lost);
    if (x->deadline_us != UINT64_MAX)
        check_time(x);
    while (*room && !x->way && !has_ended(x))
        *room = send_packet(c, x) || has_ended(x);
    finish_if_ended(c, x);
}

static uint64_t first_deadline_us(const struct spillway *c) {
    uint64_t first = UINT64_MAX;
    for (struct sw_list *n = c->transfers.next; n != &c->transfers; n = n->next) {
        const struct sw_transfer *x = SW_CONTAINER_OF(n, struct spillway_ticket, node)->call;
        first = x->deadline_us < first ? x->deadline_us : first;
    }
    return first;
}

/* Sets the timer that wakes spillway_fd() when the first call's time is over. */
static void set_timer(struct spillway *c) {
    const uint64_t us = first_deadline_us(c);
    struct epoll_event event = {.events = EPOLLIN};
    struct itimerspec time = {0}; /* disarmed */
    if (c->timers[SW_TIMER_CALLS] < 0) {
        c->timers[SW_TIMER_CALLS] = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (c->timers[SW_TIMER_CALLS] >= 0 &&
            epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->timers[SW_TIMER_CALLS], &event) < 0) {
            (void)close(c->timers[SW_TIMER_CALLS]);
            c->timers[SW_TIMER_CALLS] = -1;
        }
    }
    c->timer_us = us == UINT64_MAX ? 0 : us;
    if (c->timer_us)
        time.it_value = (struct timespec){.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
    if (c->timers[SW_TIMER_CALLS] >= 0)
        (void)timerfd_settime(c->timers[SW_TIMER_CALLS], TFD_TIMER_ABSTIME, &time, NULL);
}

void sw_transfers_advance(struct spillway *c) {
    bool room = true;
    for (struct sw_list *n; (n = sw_list_take_first(&c->ending));)
        finish_if_ended(c, SW_CONTAINER_OF(n, struct sw_transfer, ending));
    for (struct sw_list *n = c->transfers.next, *next; n != &c->transfers; n = next) {
        struct sw_transfer *x = SW_CONTAINER_OF(n, struct spillway_ticket, node)->call;
        next = n->next;
        advance(c, x, &room);
    }
    if (c->timer_us && sw_clock_us() >= c->timer_us) /* until it is set anew, it keeps spillway_fd() readable */
        set_timer(c);
}

/* Asks the daemon to end one packet's items. Their results come with the packet's own reply. */
static void cancel_packet(struct sw_transfer *x, const struct spillway_ticket *t) {
    struct sw_arrays *a = sw_arrays_begin(x);
    for (uint32_t i = 0; i < t->transfer.n_items; i++)
        sw_arrays_add_item(a, &x->items[t->own.part + i],
                           is_spill(x) ? (unsigned)SW_BUILD_ABORT : SW_READ_END | SW_READ_KEEP);
    (void)sw_arrays_send_unattended(x, a); /* if that fails, the items are not canceled */
}

void sw_transfer_cancel(struct sw_transfer *x, int code, const char *text) {
    struct spillway *c = x->ticket->connection;
    struct sw_err err = {0};
    if (x->cancel_code || (c->lost.code && !(x->way && x->way->is_in_place)))
        return;
    x->cancel_code = code;
    x->cancel_text = text;
    (void)sw_err_set(&err, code, SW_SCOPE_REQUEST, "%s", text);
    if (x->way || x->n_sent < x->call->n)
        sw_client_note_err(&x->error, &err);
    if (x->way)
        x->way->ops->cancel(x->way);
    for (struct sw_list *n = c->running.next; n != &c->running && !x->way; n = n->next) {
        const struct spillway_ticket *t = SW_CONTAINER_OF(n, struct spillway_ticket, node);
        if (t->own.on_done == sw_transfer_packet_done && t->own.owner == x)
            cancel_packet(x, t);
    }
}

void sw_transfer_abandon(struct sw_transfer *x) {
    struct sw_err err = {0};
    if (!is_spill(x) || (!x->way && x->n_sent == x->call->n) || x->cancel_code)
        return;
    x->cancel_code = sw_err_set(&err, -SW_ECANCELED, SW_SCOPE_REQUEST, "the caller no longer waits for the call");
    sw_client_note_err(&x->error, &err);
    if (x->way)
        x->way->ops->cancel(x->way);
}

void sw_transfer_acknowledged(struct sw_transfer *x) {
    x->is_acknowledged |= !x->error.code;
}

bool sw_transfers_use(const struct spillway *c, uint32_t mem) {
    for (struct sw_list *n = c->transfers.next; n != &c->transfers; n = n->next) {
        const struct sw_transfer *x = SW_CONTAINER_OF(n, struct spillway_ticket, node)->call;
        if (sw_item_buffers_use(x->buffers, x->call->n_buffers, mem))
            return true;
    }
    return false;
}

void sw_transfer_free(struct sw_transfer *x) {
    if (!x)
        return;
    if (x->buffers && x->call)
        sw_item_buffers_release_marks(x->buffers, x->call->n_buffers);
    sw_list_remove(&x->ending);
    end_way(x);
    for (uint32_t i = 0; i < x->n_opened; i++)
        sw_export_fini(&x->opened[i].export);
    sw_free(x->opened);
    sw_free(x->items);
    sw_free(x->buffers);
    sw_free(x->results);
    sw_call_free(x->call);
    sw_free(x);
}

/* ---- beginning --------------------------------------------------------------------------------------------------- */

static bool is_same_file(int fd, int other) {
    struct stat a, b;
    return fstat(fd, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static bool is_same_memory(const struct sw_export *e, const struct sw_export *other) {
    if (e->kind != other->kind || e->bytes != other->bytes)
        return false;
    return e->kind == SW_MEM_CUDA_IPC ? memcmp(e->handle, other->handle, sizeof e->handle) == 0
                                      : e->kind == SW_MEM_MEMFD && is_same_file(e->fds[0], other->fds[0]);
}

/* Finds an opened block of cudaMalloc that holds the range, without asking the driver again. */
static const struct sw_opened *find_block(const struct sw_transfer *x, const struct spillway_buffer *buffer) {
    const uintptr_t address = (uintptr_t)buffer->data;
    for (uint32_t i = 0; i < x->n_opened; i++) {
        const struct sw_opened *o = &x->opened[i];
        if (o->base && address >= o->base && address - o->base <= o->export.bytes &&
            buffer->bytes <= o->export.bytes - (address - o->base))
            return o;
    }
    return NULL;
}

static const struct sw_opened *find_same(const struct sw_transfer *x, const struct sw_export *e) {
    for (uint32_t i = 0; i < x->n_opened; i++)
        if (is_same_memory(e, &x->opened[i].export))
            return &x->opened[i];
    return NULL;
}

/* Takes the export. It is handed over when the whole call is known. */
static const struct sw_opened *add_opened(struct spillway *c, struct sw_transfer *x, struct sw_export *e,
                                          const void *data, struct sw_err *err) {
    if (x->n_opened == x->cap_opened) {
        const uint32_t cap = x->cap_opened ? 2 * x->cap_opened : 4;
        struct sw_opened *more = sw_realloc(x->opened, cap * sizeof *more);
        if (!more) {
            (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a request");
            return NULL;
        }
        x->opened = more;
        x->cap_opened = cap;
    }
    struct sw_opened *o = &x->opened[x->n_opened++];
    *o = (struct sw_opened){.mem = sw_client_new_mem(c),
                            .export = *e,
                            .base = e->kind == SW_MEM_CUDA_IPC ? (uintptr_t)data - e->offset : 0};
    o->export.mark = NULL;
    *e = (struct sw_export){.kind = e->kind, .offset = e->offset, .mark = e->mark};
    return o;
}

/* The streams' marks while a call is prepared. */
struct preparation {
    struct spillway *c;
    struct sw_transfer *x;
    struct CUstream_st *stream;
    struct sw_marks marks; /* of the current stream, borrowed: one for each context */
    uint32_t mem;          /* of the previous buffer of this stream; 0: none */
    struct sw_mark *mark;  /* its mark, borrowed */
    bool is_marked;        /* the buffers have their marks, or their streams have got there */
};

static void note_mark(struct preparation *p, struct sw_mark *mark) {
    for (unsigned i = 0; i < p->marks.n; i++)
        if (p->marks.marks[i] == mark)
            return;
    if (mark && p->marks.n < SW_MARKS_MAX)
        p->marks.marks[p->marks.n++] = mark;
}

/* Finds the memory of a buffer: registered, already opened for this call, or to be opened. *ret_inside: an address in
 * it.
 */
static int find_memory(struct preparation *p, const struct spillway_buffer *buffer, struct sw_export *e,
                       uint32_t *ret_mem, const void **ret_inside, bool in_place, bool *ret_is_copied,
                       struct sw_err *err) {
    const struct sw_registered *registered = sw_registered_find(p->c, buffer->data, buffer->bytes, e);
    *ret_inside = registered ? registered->data : buffer->data;
    if (registered) {
        *ret_mem = registered->mem;
        return sw_registered_ready(p->c, registered->mem, err);
    }
    const struct sw_opened *o = find_block(p->x, buffer);
    if (o) {
        e->kind = o->export.kind;
        e->offset = (uintptr_t)buffer->data - o->base;
        *ret_mem = o->mem;
        return 0;
    }
    const int rc = sw_export_find(e, &p->c->cuda, buffer->data, buffer->bytes, err);
    *ret_is_copied = sw_export_is_copied(rc) && !in_place;
    if (rc < 0)
        return rc;
    o = find_same(p->x, e);
    if (!o)
        o = add_opened(p->c, p->x, e, buffer->data, err);
    if (!o)
        return -SW_ENOMEM;
    *ret_mem = o->mem;
    return 0;
}

/* Has the library copy the buffer, if its memory is readable or writable. */
static int stage_buffer(struct preparation *p, const struct spillway_buffer *buffer, struct sw_item_buffer *b,
                        struct sw_err *err) {
    struct sw_transfer *x = p->x;
    const int rc = x->way ? 0 : sw_staged_new(x, err);
    b->bytes = buffer->bytes;
    return rc < 0 ? rc : sw_staged_prepare(sw_staged_of(x), b, buffer, p->stream, p->is_marked, err);
}

static int prepare_buffer(struct preparation *p, const struct spillway_buffer *buffer, struct sw_item_buffer *b,
                          const struct sw_call_request *r, struct sw_err *err) {
    const bool in_place = r->flags & SPILLWAY_IN_PLACE, is_written = !is_spill(p->x) || in_place;
    struct sw_export e = {0};
    const void *inside;
    bool is_copied = false;
    int rc = find_memory(p, buffer, &e, &b->mem, &inside, in_place, &is_copied, err);
    if (is_copied) {
        sw_export_fini(&e);
        err->code = 0;
        return stage_buffer(p, buffer, b, err);
    }
    if (!rc && p->is_marked)
        e.mark = b->mark;
    else if (!rc && b->mem == p->mem) /* of one memory and stream one mark is enough, and the driver is asked once */
        e.mark = p->mark ? sw_mark_ref(p->mark) : NULL;
    else if (!rc)
        rc = sw_export_order(&e, &p->c->cuda, &p->marks, inside, p->stream, err);
    if (!rc && is_written)
        rc = sw_export_make_pages(&e, buffer->data, buffer->bytes, err);
    if (p->is_marked && rc)
        e.mark = NULL; /* stays the buffer's */
    if (!rc) {
        b->offset = e.offset;
        b->bytes = buffer->bytes;
        b->mark = p->mark = e.mark;
        p->mem = b->mem;
        note_mark(p, e.mark);
        e.mark = NULL;
    }
    sw_export_fini(&e);
    return rc;
}

/* Empty buffers have no memory, and perhaps no address. They use the memory of another buffer. */
static int prepare_item(struct preparation *p, uint32_t i, struct sw_err *err) {
    const struct sw_call_request *r = p->x->items[i].request;
    struct sw_item_buffer *buffers = &p->x->buffers[p->x->items[i].first];
    uint32_t some = r->n_buffers;
    int rc = 0;
    if (r->stream != p->stream)
        p->marks.n = p->mem = 0;
    p->stream = r->stream;
    for (uint32_t k = 0; !rc && k < r->n_buffers; k++) {
        if (!r->buffers[k].bytes && r->n_buffers > 1)
            continue;
        rc = prepare_buffer(p, &r->buffers[k], &buffers[k], r, err);
        if (rc < 0 && r->n_buffers > 1)
            sw_err_context(err, "buffer %u", k + 1);
        some = k;
    }
    if (!rc && some == r->n_buffers)
        rc = sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%u buffers without any bytes", r->n_buffers);
    for (uint32_t k = 0; !rc && k < r->n_buffers; k++)
        if (!r->buffers[k].bytes && k != some)
            buffers[k].mem = buffers[some].mem;
    if (rc < 0 && p->x->call->n > 1)
        sw_err_context(err, "request %u of %u", i + 1, p->x->call->n);
    return rc;
}

/* Makes a transfer, which owns the call, with a ticket that is on no list yet. NULL: no memory. */
static struct sw_transfer *transfer_new(struct spillway *c, struct sw_call *call, struct sw_err *err) {
    struct sw_transfer *x = sw_alloc(sizeof *x);
    struct spillway_ticket *t = sw_ticket_new(c, call->is_spill ? SW_MSG_BUILD : SW_MSG_READ, err);
    if (x) {
        sw_list_init(&x->ending);
        x->call = call;
        x->deadline_us = UINT64_MAX;
        x->items = sw_alloc_array(call->n, sizeof *x->items);
        x->buffers = sw_alloc_array(call->n_buffers, sizeof *x->buffers);
        x->results = sw_alloc_array(call->n, sizeof *x->results);
    }
    if (!x || !t || !x->items || !x->buffers || !x->results) {
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a call of %u requests", call->n);
        if (x) {
            x->call = NULL;
            sw_free(x->items);
            sw_free(x->buffers);
            sw_free(x->results);
            sw_free(x);
        }
        sw_free(t);
        return NULL;
    }
    uint32_t first = 0;
    for (uint32_t i = 0; i < call->n; i++) {
        x->items[i] = (struct sw_item){.request = &call->requests[i], .first = first};
        first += call->requests[i].n_buffers;
        t->transfer.bytes += call->requests[i].bytes;
        t->is_durable |= call->requests[i].name_bytes > 0;
    }
    c->has_names |= t->is_durable;
    x->has_several_packets =
        call->n > SW_PROTO_MAX_ITEMS || call->n_buffers > SW_PROTO_MAX_ITEMS || call->n_buffers > c->max_buffers;
    x->ticket = t;
    t->call = x;
    t->user = call->user;
    return x;
}

/* Hands over the call's memory, if the call has several packets or several memories. One memory of a single packet goes
 * with the packet. */
static int open_memories(struct spillway *c, struct sw_transfer *x, struct sw_err *err) {
    if (x->n_opened <= 1 && !x->has_several_packets && !x->way)
        return 0;
    for (uint32_t i = 0; i < x->n_opened; i++) {
        struct spillway_ticket *t = sw_client_open_memory(c, x->opened[i].mem, &x->opened[i].export, err);
        if (!t)
            return -SW_ENOMEM;
        t->own.on_done = sw_transfer_memory_done;
        t->own.owner = x;
        x->opened[i].is_open = true;
        x->n_in_flight++;
    }
    return 0;
}

static void set_deadline(struct sw_transfer *x) {
    if (!x->call->timeout_ms)
        return;
    x->deadline_us = sw_clock_us() + x->call->timeout_ms * UINT64_C(1000);
    set_timer(x->ticket->connection);
}

/* Checks the number of durable regions: all or none is possible only for the regions that one packet commits. */
static int check_durable(const struct sw_transfer *x, struct sw_err *err) {
    const bool has_several_commits = x->way ? x->call->n > SW_PROTO_MAX_ITEMS : x->has_several_packets;
    if (!is_spill(x) || sw_transfer_is_each(x) || !x->ticket->is_durable || !has_several_commits)
        return 0;
    return sw_err_set(
        err, -SW_ELIMIT, SW_SCOPE_REQUEST,
        "%u requests of %u buffers, some with a name, are more than %d: use SPILLWAY_EACH, or several calls",
        x->call->n, x->call->n_buffers, SW_PROTO_MAX_ITEMS);
}

/* Refuses a request that could never be sent. */
static int check_limit(const struct spillway *c, const struct sw_call *call, struct sw_err *err) {
    for (uint32_t i = 0; i < call->n; i++)
        if (call->requests[i].n_buffers > c->max_buffers)
            return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST, "%u buffers: the service allows %u in flight",
                              call->requests[i].n_buffers, c->max_buffers);
    return 0;
}

/* Returns whether a call has failed of which nothing was sent, or done here. */
static bool failed_at_once(const struct sw_transfer *x) {
    return sw_ticket_is_done(x->ticket) && x->error.code && !x->n_sent && !x->items[0].is_done && !x->way &&
           !x->ticket->connection->lost.code;
}

/* Undoes a call that has failed at once. */
static int take_back(struct sw_transfer *x, struct spillway_ticket **ret, struct sw_err *err) {
    (void)sw_err_set(err, x->error.code, (enum sw_scope)x->error.scope, "%s", x->error.text);
    *ret = NULL;
    x->call = NULL; /* still the caller's */
    sw_ticket_destroy(x->ticket);
    return err->code;
}

/* Prepares each buffer for the service's codec. */
static int prepare(struct preparation *p, struct sw_err *err) {
    int rc = 0;
    for (uint32_t i = 0; !rc && i < p->x->call->n; i++)
        rc = p->x->items[i].is_done ? 0 : prepare_item(p, i, err);
    return rc ? rc : check_durable(p->x, err);
}

/* Forgets what the first way has left, except of items that are done. Those before the others are skipped. */
static void begin_anew(struct sw_transfer *x) {
    bool some_done = false;
    for (uint32_t i = 0; i < x->call->n; i++) {
        some_done |= x->items[i].is_done;
        if (x->items[i].is_done)
            continue;
        x->items[i].number = 0;
        memset(&x->results[i], 0, sizeof x->results[i]);
    }
    if (!some_done)
        x->error = (struct spillway_error){0};
    x->has_several_packets |= some_done;
    skip_done(x);
}

static void fail_left(struct sw_transfer *x, const struct sw_err *err) {
    sw_client_note_err(&x->error, err);
    for (uint32_t i = 0; sw_transfer_is_each(x) && i < x->call->n; i++) {
        if (!x->items[i].is_done)
            x->results[i].code = err->code;
        x->items[i].is_done = true;
    }
    skip_done(x);
}

/* The call goes another way: the service encodes or decodes. Nothing of it is open. */
static void fall_back(struct sw_transfer *x) {
    struct spillway *c = x->ticket->connection;
    struct preparation p = {.c = c, .x = x, .is_marked = true};
    struct sw_err err = {0};
    end_way(x);
    begin_anew(x);
    if (prepare(&p, &err) < 0 || open_memories(c, x, &err) < 0)
        fail_left(x, &err);
}

int sw_transfer_start(struct spillway *c, struct sw_call *call, struct spillway_ticket **ret, struct sw_err *err) {
    struct sw_transfer *x = transfer_new(c, call, err);
    if (!x)
        return -SW_ENOMEM;
    struct preparation p = {.c = c, .x = x};
    int rc = check_limit(c, call, err);
    if (!rc)
        rc = sw_in_place_prepare(x, fall_back, err);
    if (!rc && !x->way)
        rc = sw_coded_prepare(x, fall_back, err);
    if (!rc && !x->way)
        rc = prepare(&p, err);
    if (!rc && x->way)
        rc = check_durable(x, err);
    if (!rc)
        rc = sw_in_place_check_others(x, err);
    if (rc < 0) {
        sw_item_buffers_release_marks(x->buffers, call->n_buffers);
        end_way(x);
        sw_free(x->buffers);
        x->buffers = NULL;
        x->call = NULL; /* still the caller's */
        sw_ticket_destroy(x->ticket);
        return rc;
    }
    sw_list_append(&c->transfers, &x->ticket->node);
    c->n_transfers++;
    *ret = x->ticket;
    if (open_memories(c, x, err) < 0) {
        sw_client_note_err(&x->error, err);
        err->code = 0; /* the ticket reports it, because open memory has to be closed first */
    }
    set_deadline(x);
    sw_transfers_advance(c);
    if (x->way) {
        sw_coded_advance(c);
        sw_transfers_advance(c);
    }
    if (x->way)
        sw_staging_advance(c, 0); /* the caller's thread copies when it waits or dispatches */
    return failed_at_once(x) ? take_back(x, ret, err) : 0;
}

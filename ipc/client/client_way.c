/* client_way.c - see client_way.h. */
#include "ipc/client/client_way.h"
#include "ipc/client/client_results.h"

struct sw_item_buffer *sw_way_buffer(const struct sw_way *way, uint32_t item, uint32_t k) {
    return &way->transfer->buffers[way->transfer->items[item].first + k];
}

bool sw_way_must_stop(const struct sw_way *way) {
    const struct sw_transfer *x = way->transfer;
    return (x->error.code && !sw_transfer_is_each(x)) || x->cancel_code || sw_way_connection(way)->lost.code;
}

bool sw_way_may_send(const struct sw_way *way) {
    const struct spillway *c = sw_way_connection(way);
    return c->link == SW_LINK_UP && c->n_in_flight < c->max_in_flight && c->n_buffers < c->max_buffers;
}

void sw_way_add_result(struct spillway_result *sum, const struct spillway_result *part) {
    sum->raw_bytes += part->raw_bytes;
    sum->stored_bytes += part->stored_bytes;
    sum->service_us += part->service_us;
    sw_client_combine(sum->codec, sizeof sum->codec, part->codec);
    sw_client_combine(sum->tier, sizeof sum->tier, part->tier);
    sw_client_combine(sum->reason, sizeof sum->reason, part->reason);
    sw_client_combine(sum->coder, sizeof sum->coder, part->coder);
}

void sw_way_forgive(struct sw_way *way, struct spillway_error *error) {
    if (error->code == -SW_ERESTARTED && way->ops->begins_anew && way->ops->begins_anew(way))
        *error = (struct spillway_error){0};
}

/* The reply to a packet that begins builds or reads. */
static void begun(struct spillway_ticket *t) {
    const struct sw_transfer *x = t->own.owner;
    sw_way_forgive(x->way, &t->error);
    sw_transfer_packet_done(t);
}

/* ---- spill ------------------------------------------------------------------------------------------------------- */

/* Begins a packet about one item: the first one about a build begins it. */
static struct sw_arrays *begin_packet(struct sw_way *way, uint32_t item, unsigned flags) {
    struct sw_item *it = &way->transfer->items[item];
    struct sw_arrays *a = sw_arrays_begin(way->transfer);
    const bool begins = sw_way_is_spill(way) && !it->number;
    if (begins)
        it->number = sw_client_new_number(sw_way_connection(way));
    sw_arrays_add_item(a, it, begins ? (unsigned)SW_BUILD_BEGIN : flags);
    for (uint32_t k = 0; begins && k < it->request->n_buffers; k++) {
        const struct sw_item_buffer *b = sw_way_buffer(way, item, k);
        sw_arrays_add_buffer(a, b->bytes, way->ops->chunk_bytes(way, b), it->request->buffers[k].type);
    }
    return a;
}

struct spillway_ticket *sw_way_send_chunks(struct sw_way *way, uint32_t item, unsigned flags,
                                           const struct sw_wire_chunk *chunks, unsigned n, const struct sw_mark *mark,
                                           bool (*take)(struct spillway_ticket *t, const struct sw_msg *msg),
                                           void (*on_done)(struct spillway_ticket *t)) {
    struct sw_transfer *x = way->transfer;
    struct sw_err err = {0};
    const bool was_begun = x->items[item].number != 0;
    struct sw_arrays *a = begin_packet(way, item, flags);
    int rc = sw_registered_ready(sw_way_connection(way), chunks[0].mem, &err);
    if (!rc && mark)
        rc = sw_client_share_marks(sw_way_connection(way), &err);
    for (unsigned i = 0; i < n; i++)
        sw_arrays_add_chunk(a, &chunks[i], mark);
    struct spillway_ticket *t = rc ? NULL : sw_arrays_send(x, a, item, false, take, on_done, &err);
    if (!t) {
        x->items[item].number = was_begun ? x->items[item].number : 0;
        x->results[item].code = err.code;
        sw_client_note_err(&x->error, &err);
        return NULL;
    }
    t->transfer.mem = chunks[0].mem;
    t->transfer.is_append = true;
    x->items[item].is_open = true;
    return t;
}

static bool take_begun_build(struct spillway_ticket *t, const struct sw_msg *msg) {
    struct spillway_result result;
    const struct sw_msg_results *m = &msg->u.results;
    if (msg->header.type != SW_MSG_RESULTS || m->n_results != 1 || !sw_results_read(m, 0, &result))
        return false;
    if (result.code)
        sw_client_result_error(&t->error, m, 0);
    return true;
}

bool sw_way_begin_empty(struct sw_way *way, uint32_t item) {
    struct sw_transfer *x = way->transfer;
    struct sw_err err = {0};
    struct spillway_ticket *t =
        sw_arrays_send(x, begin_packet(way, item, 0), item, false, take_begun_build, begun, &err);
    if (!t) {
        sw_client_note_err(&x->error, &err);
        return false;
    }
    t->transfer.is_append = true;
    x->items[item].is_open = true;
    return true;
}

bool sw_way_commit(struct sw_way *way, uint32_t end) {
    struct sw_transfer *x = way->transfer;
    struct sw_err err = {0};
    while (way->n_ended < end) {
        if (!sw_way_may_send(way))
            return false;
        const uint32_t first = way->n_ended;
        struct sw_arrays *a = sw_arrays_begin(x);
        for (uint32_t i = first; i < end && a->n_items < SW_PROTO_MAX_ITEMS; i++)
            sw_arrays_add_item(a, &x->items[i], SW_BUILD_COMMIT);
        struct spillway_ticket *t = sw_arrays_send(x, a, first, !sw_transfer_is_each(x), sw_transfer_take_results,
                                                   sw_transfer_packet_done, &err);
        if (!t) {
            sw_client_note_err(&x->error, &err);
            return false;
        }
        t->transfer.is_commit = true;
        for (uint32_t i = 0; i < a->n_items; i++)
            x->items[first + i].is_open = false;
        way->n_ended += a->n_items;
    }
    return true;
}

/* ---- restore ----------------------------------------------------------------------------------------------------- */

static int check_buffers(struct sw_way *way, uint32_t item, uint32_t n, struct sw_err *err) {
    const struct sw_call_request *r = way->transfer->items[item].request;
    int rc = 0;
    if (n != r->n_buffers)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "region %u:%u has %u buffers, %u were given",
                          r->region.slot, r->region.generation, n, r->n_buffers);
    for (uint32_t k = 0; !rc && k < n; k++) {
        const struct sw_item_buffer *b = sw_way_buffer(way, item, k);
        if (b->stored_bytes > b->bytes)
            return sw_err_set(err, -SW_ETOOSMALL, SW_SCOPE_REQUEST, "region has %llu bytes, the buffer %llu",
                              (unsigned long long)b->stored_bytes, (unsigned long long)b->bytes);
        rc = way->ops->check_buffer(way, b, err);
    }
    return rc;
}

/* Takes the service's reply about one item's buffers. */
static void take_begun_item(struct sw_way *way, const struct spillway_ticket *t, const struct sw_wire_buffer *buffers,
                            uint32_t n, const struct sw_msg_results *m, uint32_t i) {
    struct sw_transfer *x = way->transfer;
    const uint32_t item = t->own.part + i;
    struct spillway_result *result = &x->results[item];
    struct sw_err err = {0};
    for (uint32_t k = 0; k < n && k < x->items[item].request->n_buffers; k++) {
        sw_way_buffer(way, item, k)->stored_bytes = buffers[k].raw_bytes;
        sw_way_buffer(way, item, k)->chunk_bytes = buffers[k].chunk_bytes;
    }
    result->size = sizeof *result;
    result->region = x->items[item].request->region;
    x->items[item].is_open = !result->code;
    if (result->code) {
        sw_transfer_note_result(x, t, m, i);
    } else if (check_buffers(way, item, n, &err) < 0) {
        result->code = err.code;
        if (x->call->n > 1)
            sw_err_context(&err, "request %u of %u", item + 1, x->call->n);
        sw_client_note_err(&x->error, &err);
    }
}

/* The reads have begun: the reply says how long everything is. */
static bool take_begun(struct spillway_ticket *t, const struct sw_msg *msg) {
    struct sw_transfer *x = t->own.owner;
    const struct sw_msg_results *m = &msg->u.results;
    uint32_t next = 0;
    if (msg->header.type != SW_MSG_RESULTS || m->n_results != t->transfer.n_items)
        return false;
    for (uint32_t i = 0; i < m->n_results; i++) {
        const uint32_t n = m->results[i].n_buffers;
        struct spillway_result result;
        if (!sw_results_read(m, i, &result) || n > m->n_buffers - next)
            return false;
        x->results[t->own.part + i].code = result.code;
        take_begun_item(x->way, t, &m->buffers[next], n, m, i);
        next += n;
    }
    return true;
}

bool sw_way_begin_reads(struct sw_way *way) {
    struct sw_transfer *x = way->transfer;
    struct sw_err err = {0};
    while (!sw_way_must_stop(way) && way->n_begun < sw_way_n_items(way)) {
        if (!sw_way_may_send(way))
            return false;
        struct sw_arrays *a = sw_arrays_begin(x);
        const uint32_t first = way->n_begun, end = sw_way_n_items(way);
        for (uint32_t i = first; i < end && a->n_items < SW_PROTO_MAX_ITEMS / SPILLWAY_MAX_BUFFERS; i++) {
            x->items[i].number = sw_client_new_number(sw_way_connection(way));
            sw_arrays_add_item(a, &x->items[i], SW_READ_BEGIN);
        }
        struct spillway_ticket *t = sw_arrays_send(x, a, first, !sw_transfer_is_each(x), take_begun, begun, &err);
        if (!t) {
            sw_client_note_err(&x->error, &err);
            return false;
        }
        t->transfer.is_append = true;
        way->n_begun += a->n_items;
    }
    return !x->n_in_flight;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* Sends what ends the open builds or reads. */
static bool end_open(struct sw_way *way, bool (*send)(struct sw_transfer *x, const struct sw_arrays *a)) {
    struct sw_item *items = way->transfer->items;
    const unsigned flags = sw_way_is_spill(way) ? (unsigned)SW_BUILD_ABORT : SW_READ_END | SW_READ_KEEP;
    for (uint32_t first = 0, next = 0; first < sw_way_n_items(way); first = next) {
        struct sw_arrays *a = sw_arrays_begin(way->transfer);
        for (; next < sw_way_n_items(way) && a->n_items < SW_PROTO_MAX_ITEMS; next++)
            if (items[next].is_open)
                sw_arrays_add_item(a, &items[next], flags);
        if (!send(way->transfer, a))
            return false;
        for (uint32_t i = first; i < next; i++)
            items[i].is_open = false;
    }
    return true;
}

bool sw_way_end_open(struct sw_way *way) {
    return end_open(way, sw_arrays_send_unattended);
}

static bool take_any(struct spillway_ticket *t, const struct sw_msg *msg) {
    (void)t;
    return msg->header.type == SW_MSG_RESULTS;
}

static void given_up(struct spillway_ticket *t) {
    struct sw_transfer *x = t->own.owner;
    x->n_in_flight--;
}

static bool send_attended(struct sw_transfer *x, const struct sw_arrays *a) {
    struct sw_err err = {0};
    struct spillway_ticket *t = a->n_items && !x->ticket->connection->lost.code
                                    ? sw_arrays_send(x, a, 0, false, take_any, given_up, &err)
                                    : NULL;
    if (t)
        t->transfer.is_append = true;
    return t || !a->n_items || x->ticket->connection->lost.code;
}

bool sw_way_give_up_open(struct sw_way *way) {
    return end_open(way, send_attended);
}

/* A restore consumes by a request of its own, which is repeated if the connection is lost: its bytes are there. */
bool sw_way_end(struct sw_way *way) {
    if (!sw_way_end_open(way))
        return false;
    if (!sw_way_is_spill(way) && !sw_way_must_stop(way))
        sw_transfer_consume(way->transfer);
    return true;
}

static void end_begun(struct sw_way *way) {
    struct sw_transfer *x = way->transfer;
    struct sw_err err = {0};
    bool has_begun = false;
    const bool fails = !way->ops->begins_anew || !way->ops->begins_anew(way);
    for (uint32_t i = 0; i < sw_way_n_items(way); i++) {
        has_begun |= x->items[i].is_open && fails;
        if (x->items[i].is_open && fails && !x->results[i].code)
            x->results[i].code = -SW_ERESTARTED;
        x->items[i].is_open = false;
    }
    if (!has_begun)
        return;
    (void)sw_err_set(&err, -SW_ERESTARTED, SW_SCOPE_REQUEST,
                     sw_way_is_spill(way) ? "restarted: nothing was stored, repeat the spill"
                                          : "restarted: still stored, repeat the restore");
    sw_client_note_err(&x->error, &err);
}

void sw_ways_reopen(struct spillway *c) {
    for (struct sw_list *n = c->transfers.next; n != &c->transfers; n = n->next) {
        struct sw_way *way = SW_CONTAINER_OF(n, struct spillway_ticket, node)->call->way;
        if (way && !way->ops->has_ended(way))
            end_begun(way);
    }
}

/* client_items.c - the results of a call's requests: replies, marks, dropped regions. */
#include "ipc/client/client_packed.h"
#include "ipc/client/client_results.h"
#include "ipc/client/client_transfer.h"

#include <stdio.h>
#include <string.h>

static bool is_spill(const struct sw_transfer *x) {
    return x->call->is_spill;
}

static void send_discard(struct spillway *c, const struct sw_wire_id *ids, uint16_t n, uint32_t flags) {
    const struct sw_msg msg = {.header.type = SW_MSG_DISCARD, .u.discard = {.flags = flags, .n_ids = n, .ids = ids}};
    if (n && !c->lost.code)
        (void)sw_client_submit_unattended(c, &msg);
}

/* Discards the regions of all items for which `chosen` returns true. */
static void discard(struct sw_transfer *x, bool (*chosen)(const struct sw_transfer *x, uint32_t i), uint32_t flags) {
    struct sw_wire_id ids[SW_PROTO_MAX_ITEMS];
    uint16_t n = 0;
    for (uint32_t i = 0; i < x->call->n; i++) {
        if (!chosen(x, i))
            continue;
        ids[n++] = (struct sw_wire_id){x->results[i].region.slot, x->results[i].region.generation};
        x->items[i].is_stored = x->items[i].is_unpacked = false;
        sw_packed_forget(x->ticket->connection, x->results[i].region);
        if (is_spill(x))
            x->results[i].region = (struct spillway_region){0};
        if (n < SW_PROTO_MAX_ITEMS)
            continue;
        send_discard(x->ticket->connection, ids, n, flags);
        n = 0;
    }
    send_discard(x->ticket->connection, ids, n, flags);
}

static bool is_stored(const struct sw_transfer *x, uint32_t i) {
    return x->items[i].is_stored;
}

static bool is_unseen(const struct sw_transfer *x, uint32_t i) {
    return x->items[i].is_stored && !(x->is_acknowledged && x->items[i].request->name_bytes);
}

static bool is_to_go(const struct sw_transfer *x, uint32_t i) {
    return !x->results[i].code && !(x->items[i].request->flags & SPILLWAY_KEEP);
}

static bool is_unpacked(const struct sw_transfer *x, uint32_t i) {
    return x->items[i].is_unpacked;
}

void sw_transfer_consume_unpacked(struct sw_transfer *x) {
    discard(x, is_unpacked, SW_REQ_CONSUME);
}

void sw_transfer_drop_one(struct sw_transfer *x, uint32_t i) {
    const struct sw_wire_id id = {x->results[i].region.slot, x->results[i].region.generation};
    send_discard(x->ticket->connection, &id, 1, 0);
}

void sw_transfer_drop_stored(struct sw_transfer *x) {
    discard(x, is_stored, 0);
}

void sw_transfer_consume(struct sw_transfer *x) {
    discard(x, is_to_go, SW_REQ_CONSUME);
}

void sw_transfer_drop_unseen(struct sw_transfer *x) {
    discard(x, is_unseen, 0);
}

uint64_t sw_item_bytes(const struct sw_transfer *x, uint32_t i) {
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < x->items[i].request->n_buffers; k++)
        bytes += x->buffers[x->items[i].first + k].bytes;
    return bytes;
}

/* Returns false if the reply does not fit the request. */
static bool take_result(struct sw_transfer *x, uint32_t i) {
    struct spillway_result *result = &x->results[i];
    const uint64_t bytes = sw_item_bytes(x, i);
    if (!result->code &&
        (is_spill(x) ? result->raw_bytes != bytes || !result->region.generation : result->raw_bytes > bytes))
        return false;
    if (!is_spill(x))
        result->region = x->items[i].request->region;
    else if (result->code)
        result->region = (struct spillway_region){0};
    x->items[i].is_stored = is_spill(x) && !result->code;
    return true;
}

void sw_transfer_name_request(const struct sw_transfer *x, uint32_t item, struct spillway_error *error) {
    char text[sizeof error->text];
    if (x->call->n < 2 || x->cancel_code || error->scope > SPILLWAY_SCOPE_REGION)
        return;
    (void)snprintf(text, sizeof text, "request %u of %u: %.220s", item + 1, x->call->n, error->text);
    memcpy(error->text, text, sizeof error->text);
}

/* The daemon counts the requests of a packet that has several. */
void sw_transfer_note_result(struct sw_transfer *x, const struct spillway_ticket *t, const struct sw_msg_results *m,
                             uint32_t i) {
    char number[40];
    if (x->error.code)
        return;
    sw_client_result_error(&x->error, m, i);
    char *text = x->error.text;
    const size_t bytes = (size_t)snprintf(number, sizeof number, "request %u of %u: ", i + 1, (unsigned)m->n_results);
    const bool is_numbered = strncmp(text, number, bytes) == 0;
    if (is_numbered)
        memmove(text, text + bytes, strlen(text + bytes) + 1);
    if (is_numbered || m->n_results == 1)
        sw_transfer_name_request(x, sw_ticket_item(t, i), &x->error);
}

bool sw_transfer_take_results(struct spillway_ticket *t, const struct sw_msg *msg) {
    struct sw_transfer *x = t->own.owner;
    const struct sw_msg_results *m = &msg->u.results;
    if (msg->header.type != SW_MSG_RESULTS || m->n_results != t->transfer.n_items)
        return false;
    for (uint32_t i = 0; i < m->n_results; i++) {
        const uint32_t item = sw_ticket_item(t, i);
        const int cause = x->results[item].code; /* of a build that has failed: its commit fails for that */
        const struct spillway_result *before = i ? &x->results[sw_ticket_item(t, i - 1)] : NULL;
        if (!sw_results_read_next(m, i, before, &x->results[item]) || !take_result(x, item))
            return false;
        if (cause && x->results[item].code)
            x->results[item].code = cause;
        if (x->results[item].code)
            sw_transfer_note_result(x, t, m, i);
    }
    return true;
}

void sw_item_buffers_release_marks(struct sw_item_buffer *buffers, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        sw_mark_unref(buffers[i].mark);
        buffers[i].mark = NULL;
    }
}

static void note_canceled(struct sw_transfer *x, struct spillway_error *error) {
    struct sw_err err = {0};
    if (error->code != -SW_ECANCELED || !x->cancel_code)
        return;
    (void)sw_err_set(&err, x->cancel_code, SW_SCOPE_REQUEST, "%s", x->cancel_text);
    (void)sw_client_report(error, &err);
}

/* Puts the call's number in the place of the packet's, in whose text the daemon counts the requests. */
static void rename_request(const struct sw_transfer *x, const struct spillway_ticket *t, struct spillway_error *error) {
    unsigned i, n;
    int bytes = 0;
    if (sscanf(error->text, "request %u of %u: %n", &i, &n, &bytes) != 2 || !bytes || n != t->transfer.n_items ||
        i < 1 || i > n)
        return;
    memmove(error->text, error->text + bytes, strlen(error->text + bytes) + 1);
    sw_transfer_name_request(x, sw_ticket_item(t, i - 1), error);
}

/* Adds the call's numbers to a text in which the daemon counts the requests of a packet, or that has no number. */
static void name_requests(const struct sw_transfer *x, const struct spillway_ticket *t, struct spillway_error *error) {
    char text[sizeof error->text];
    if (error->code && t->transfer.n_items == 1)
        sw_transfer_name_request(x, sw_ticket_item(t, 0), error);
    if (error->code && t->transfer.n_items > 1 && t->transfer.items)
        rename_request(x, t, error);
    if (!error->code || !x->has_several_packets || t->transfer.n_items < 2 || t->transfer.items)
        return;
    (void)snprintf(text, sizeof text, "of requests %u to %u: %.200s", t->own.part + 1,
                   t->own.part + t->transfer.n_items, error->text);
    memcpy(error->text, text, sizeof error->text);
}

/* Calls are reported in the order of their last replies. */
static void note_ending(struct sw_transfer *x) {
    if (!x->n_in_flight && sw_list_empty(&x->ending))
        sw_list_append(&x->ticket->connection->ending, &x->ending);
}

void sw_transfer_packet_done(struct spillway_ticket *t) {
    struct sw_transfer *x = t->own.owner;
    x->n_in_flight--;
    if (!x->way)
        sw_item_buffers_release_marks(&x->buffers[x->items[t->own.part].first], t->transfer.n_buffers);
    note_canceled(x, &t->error);
    name_requests(x, t, &t->error);
    for (uint32_t i = 0; t->error.code && i < t->transfer.n_items; i++) {
        struct spillway_result *result = &x->results[sw_ticket_item(t, i)];
        result->code = result->code ? result->code : t->error.code; /* the first is the cause */
        if (is_spill(x))
            result->region = (struct spillway_region){0};
    }
    if (t->error.code)
        sw_client_note_error(&x->error, &t->error);
    note_ending(x);
}

/* Handles the reply about a memory that is opened before the packets, or closed after them. */
void sw_transfer_memory_done(struct spillway_ticket *t) {
    struct sw_transfer *x = t->own.owner;
    x->n_in_flight--;
    if (t->operation != SW_MSG_MEM_CLOSE && t->error.code)
        sw_client_note_error(&x->open_error, &t->error);
    note_ending(x);
}

void sw_transfer_settle(const struct spillway_ticket *t, struct sw_wire_id *ret) {
    const struct sw_transfer *x = t->own.owner;
    for (uint32_t i = 0; i < t->transfer.n_items; i++) {
        const struct spillway_region region = x->items[sw_ticket_item(t, i)].request->region;
        ret[i] = is_spill(x) ? (struct sw_wire_id){0} : (struct sw_wire_id){region.slot, region.generation};
    }
}

int sw_transfer_make_ready(struct sw_transfer *x, uint32_t first, uint32_t n, struct sw_err *err) {
    struct spillway *c = x->ticket->connection;
    bool has_marks = false;
    int rc = 0;
    for (uint32_t i = first; !rc && i < first + n; i++) {
        has_marks |= x->buffers[i].mark != NULL;
        if (i == first || x->buffers[i].mem != x->buffers[i - 1].mem)
            rc = sw_registered_ready(c, x->buffers[i].mem, err);
    }
    return !rc && has_marks ? sw_client_share_marks(c, err) : rc;
}

bool sw_item_buffers_use(const struct sw_item_buffer *buffers, uint32_t n, uint32_t mem) {
    for (uint32_t i = 0; i < n; i++)
        if (buffers[i].mem == mem)
            return true;
    return false;
}

bool sw_transfer_packet_uses(const struct spillway_ticket *t, uint32_t mem) {
    const struct sw_transfer *x = t->own.owner;
    return x->way ? t->transfer.mem == mem
                  : sw_item_buffers_use(&x->buffers[x->items[t->own.part].first], t->transfer.n_buffers, mem);
}

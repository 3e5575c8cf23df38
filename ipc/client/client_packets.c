#include "ipc/client/client_packets.h"

#include "base/alloc.h"
#include <string.h>

int sw_transfers_init(struct spillway *c) {
    c->arrays = sw_alloc(sizeof *c->arrays);
    return c->arrays ? 0 : -SW_ENOMEM;
}

struct sw_arrays *sw_arrays_begin(struct sw_transfer *x) {
    struct sw_arrays *a = x->ticket->connection->arrays;
    a->is_spill = x->call->is_spill;
    a->gathers = false;
    a->n_items = a->n_buffers = a->n_chunks = a->name_bytes = 0;
    return a;
}

static void add_build(struct sw_arrays *a, const struct sw_item *item, unsigned flags) {
    const struct sw_call_request *r = item->request;
    struct sw_wire_build *build = &a->builds[a->n_items];
    *build = (struct sw_wire_build){.build = item->number, .flags = (uint16_t)flags};
    if (!(flags & SW_BUILD_BEGIN))
        return;
    build->n_buffers = (uint16_t)r->n_buffers;
    build->name_bytes = r->name_bytes;
    build->keep_priority = r->keep_priority;
    build->durability = r->durability;
    build->prefer = r->prefer;
    memcpy(a->names + a->name_bytes, r->name, r->name_bytes);
    a->name_bytes = (uint16_t)(a->name_bytes + r->name_bytes);
}

static void add_read(struct sw_arrays *a, const struct sw_item *item, unsigned flags) {
    struct sw_wire_read *read = &a->reads[a->n_items];
    *read = (struct sw_wire_read){.read = item->number, .flags = (uint16_t)flags};
    if (!(flags & SW_READ_BEGIN))
        return;
    read->slot = item->request->region.slot;
    read->gen = item->request->region.generation;
}

void sw_arrays_add_item(struct sw_arrays *a, const struct sw_item *item, unsigned flags) {
    if (a->is_spill)
        add_build(a, item, flags);
    else
        add_read(a, item, flags);
    a->n_items++;
}

void sw_arrays_add_buffer(struct sw_arrays *a, uint64_t bytes, uint32_t chunk_bytes, uint16_t type) {
    a->buffers[a->n_buffers++] =
        (struct sw_wire_buffer){.raw_bytes = bytes, .chunk_bytes = chunk_bytes, .value_type = type};
}

void sw_arrays_add_packed(struct sw_arrays *a, uint64_t bytes, uint64_t stored_bytes, uint16_t type, uint8_t codec) {
    sw_arrays_add_buffer(a, bytes, 0, type);
    a->buffers[a->n_buffers - 1].stored_bytes = stored_bytes;
    a->buffers[a->n_buffers - 1].codec = codec;
}

void sw_arrays_add_chunk(struct sw_arrays *a, const struct sw_wire_chunk *chunk, const struct sw_mark *mark) {
    struct sw_wire_chunk *to = &a->chunks[a->n_chunks++];
    *to = *chunk;
    if (mark) {
        to->order_word = sw_mark_word(mark);
        to->order_value = sw_mark_value(mark);
    }
    if (a->is_spill)
        a->builds[a->n_items - 1].n_chunks++;
    else
        a->reads[a->n_items - 1].n_chunks++;
}

static struct sw_msg make_msg(const struct sw_arrays *a, bool all) {
    struct sw_msg msg;
    sw_msg_init(&msg, a->is_spill ? SW_MSG_BUILD : SW_MSG_READ);
    if (a->is_spill)
        msg.u.build = (struct sw_msg_build){.flags = all ? SW_REQ_ALL : 0,
                                            .n_builds = a->n_items,
                                            .n_buffers = a->n_buffers,
                                            .n_chunks = a->n_chunks,
                                            .name_bytes = a->name_bytes,
                                            .builds = a->builds,
                                            .buffers = a->buffers,
                                            .chunks = a->chunks,
                                            .names = a->names};
    else
        msg.u.read = (struct sw_msg_read){.flags = (all ? SW_REQ_ALL : 0u) | (a->gathers ? SW_REQ_GATHER : 0u),
                                          .n_reads = a->n_items,
                                          .n_chunks = a->n_chunks,
                                          .reads = a->reads,
                                          .chunks = a->chunks};
    return msg;
}

struct sw_packet *sw_arrays_packet(const struct sw_arrays *a, bool all, struct sw_list *group, struct sw_err *err) {
    const struct sw_msg msg = make_msg(a, all);
    return sw_packet_new(group, &msg, err);
}

struct spillway_ticket *sw_arrays_send(struct sw_transfer *x, const struct sw_arrays *a, uint32_t first, bool all,
                                       bool (*take)(struct spillway_ticket *t, const struct sw_msg *msg),
                                       void (*on_done)(struct spillway_ticket *t), struct sw_err *err) {
    struct sw_list group;
    sw_list_init(&group);
    struct spillway_ticket *t = sw_ticket_new(x->ticket->connection, a->is_spill ? SW_MSG_BUILD : SW_MSG_READ, err);
    if (!t || !sw_arrays_packet(a, all, &group, err)) {
        sw_free(t);
        return NULL;
    }
    t->take = take;
    t->own.on_done = on_done;
    t->own.owner = x;
    t->own.part = first;
    t->transfer.is_of_call = true;
    t->transfer.is_each = !all;
    t->transfer.n_items = a->n_items;
    t->transfer.n_buffers = a->n_chunks;
    x->n_in_flight++;
    sw_client_submit(t, &group);
    return t;
}

bool sw_arrays_send_unattended(struct sw_transfer *x, const struct sw_arrays *a) {
    const struct sw_msg msg = make_msg(a, false);
    struct spillway *c = x->ticket->connection;
    return !a->n_items || c->lost.code || sw_client_submit_unattended(c, &msg);
}

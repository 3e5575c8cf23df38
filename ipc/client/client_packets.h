/* client_packets.h - inside of libspillway: the BUILD or READ that is being made. Not installed. thread: that of the
 * connection. */
#ifndef SW_IPC_CLIENT_PACKETS_H
#define SW_IPC_CLIENT_PACKETS_H

#include "ipc/client/client_transfer.h"

/* Its arrays. Every record that is added is written whole. */
struct sw_arrays {
    bool is_spill;
    uint16_t n_items, n_buffers, n_chunks, name_bytes;
    struct sw_wire_build builds[SW_PROTO_MAX_ITEMS];
    struct sw_wire_read reads[SW_PROTO_MAX_ITEMS];
    struct sw_wire_buffer buffers[SW_PROTO_MAX_ITEMS];
    struct sw_wire_chunk chunks[SW_PROTO_MAX_ITEMS];
    char names[SW_PROTO_MAX_ITEMS * (SW_PROTO_NAME_BYTES - 1)];
};

/* Those of the connection, empty. */
struct sw_arrays *sw_arrays_begin(struct sw_transfer *x);
/* Adds a build or read with these flags (enum sw_build_flag, enum sw_read_flag). With BEGIN: what the request says, and
 * of a build its buffers, each with this length of chunks. */
void sw_arrays_add_item(struct sw_arrays *a, const struct sw_item *item, unsigned flags);
void sw_arrays_add_buffer(struct sw_arrays *a, uint64_t bytes, uint32_t chunk_bytes, uint16_t type);
/* Adds a chunk to the item that was added last. mark: NULL: it begins at once. */
void sw_arrays_add_chunk(struct sw_arrays *a, const struct sw_wire_chunk *chunk, const struct sw_mark *mark);
/* The packet, appended to *group. all: its items are done all or not at all. errors (NULL): -SW_ENOMEM. */
struct sw_packet *sw_arrays_packet(const struct sw_arrays *a, bool all, struct sw_list *group, struct sw_err *err);
/* Sends it as a ticket of the library's own, about items of the transfer from `first` on. Returns the ticket; NULL:
 * -SW_ENOMEM. */
struct spillway_ticket *sw_arrays_send(struct sw_transfer *x, const struct sw_arrays *a, uint32_t first, bool all,
                                       bool (*take)(struct spillway_ticket *t, const struct sw_msg *msg),
                                       void (*on_done)(struct spillway_ticket *t), struct sw_err *err);
/* Sends it without waiting for its reply, if there are items in it. False: -SW_ENOMEM. */
bool sw_arrays_send_unattended(struct sw_transfer *x, const struct sw_arrays *a);

#endif

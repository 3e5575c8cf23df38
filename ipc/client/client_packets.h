/* client_packets.h - inside of libspillway: makes BUILD and READ packets. Not installed. thread: the connection's. */
#ifndef SW_IPC_CLIENT_PACKETS_H
#define SW_IPC_CLIENT_PACKETS_H

#include "ipc/client/client_transfer.h"

/* The arrays of the packet that is being made. Every record that is added is written completely. */
struct sw_arrays {
    bool is_spill, gathers; /* gathers: SW_REQ_GATHER */
    uint16_t n_items, n_buffers, n_chunks, name_bytes;
    struct sw_wire_build builds[SW_PROTO_MAX_ITEMS];
    struct sw_wire_read reads[SW_PROTO_MAX_ITEMS];
    struct sw_wire_buffer buffers[SW_PROTO_MAX_ITEMS];
    struct sw_wire_chunk chunks[SW_PROTO_MAX_ITEMS];
    char names[SW_PROTO_MAX_ITEMS * (SW_PROTO_NAME_BYTES - 1)];
};

/* Begins a packet: returns the connection's arrays, empty. */
struct sw_arrays *sw_arrays_begin(struct sw_transfer *x);
/* Adds a build or read with these flags (enum sw_build_flag, enum sw_read_flag). After BEGIN of a build, add its
 * buffers, each with its chunk length. */
void sw_arrays_add_item(struct sw_arrays *a, const struct sw_item *item, unsigned flags);
void sw_arrays_add_buffer(struct sw_arrays *a, uint64_t bytes, uint32_t chunk_bytes, uint16_t type);
/* Adds the buffer of a build with SW_BUILD_PACKED. codec: of most bytes. */
void sw_arrays_add_packed(struct sw_arrays *a, uint64_t bytes, uint64_t stored_bytes, uint16_t type, uint8_t codec);
/* Adds a chunk to the last item. mark: NULL: it does not wait. */
void sw_arrays_add_chunk(struct sw_arrays *a, const struct sw_wire_chunk *chunk, const struct sw_mark *mark);
/* Appends the packet to *group. all: all items succeed or none. errors (NULL): -SW_ENOMEM. */
struct sw_packet *sw_arrays_packet(const struct sw_arrays *a, bool all, struct sw_list *group, struct sw_err *err);
/* Sends the packet as a ticket of the library's own. first: the transfer's first item in the packet. Returns the
 * ticket; NULL: -SW_ENOMEM. */
struct spillway_ticket *sw_arrays_send(struct sw_transfer *x, const struct sw_arrays *a, uint32_t first, bool all,
                                       bool (*take)(struct spillway_ticket *t, const struct sw_msg *msg),
                                       void (*on_done)(struct spillway_ticket *t), struct sw_err *err);
/* Sends the packet, unless it is empty, and ignores its reply. Returns false for -SW_ENOMEM. */
bool sw_arrays_send_unattended(struct sw_transfer *x, const struct sw_arrays *a);

#endif

/* packets.h - packets of version 10 put together record by record, right or wrong, and RESULTS read.
 *
 * What does not fit aborts the test. thread: one per packet. */
#ifndef SW_TEST_PACKETS_H
#define SW_TEST_PACKETS_H

#include "ipc/proto.h"
#include "spill/engine.h"

/* A message and the arrays that it borrows, with room for one record too many. */
struct sw_test_packet {
    struct sw_msg msg;
    struct sw_wire_build builds[SW_PROTO_MAX_ITEMS + 1];
    struct sw_wire_read reads[SW_PROTO_MAX_ITEMS + 1];
    struct sw_wire_buffer buffers[SW_PROTO_MAX_ITEMS + 1];
    struct sw_wire_chunk chunks[SW_PROTO_MAX_ITEMS + 1];
    struct sw_wire_id ids[SW_PROTO_MAX_ITEMS + 1];
    char names[(SW_PROTO_MAX_ITEMS + 1) * SW_PROTO_NAME_BYTES];
};

void sw_test_packet(struct sw_test_packet *ret, unsigned type, uint32_t flags);

/* BUILD: a whole build without buffers so far, of number 1, 2, ...; then a buffer of the last build; then a chunk, or
 * one more, of its last buffer. name: NULL: not durable. */
struct sw_wire_build *sw_test_add_build(struct sw_test_packet *packet, const char *name);
struct sw_wire_buffer *sw_test_add_buffer(struct sw_test_packet *packet, uint64_t raw_bytes, unsigned value_type);
struct sw_wire_chunk *sw_test_add_chunk(struct sw_test_packet *packet, uint32_t mem, uint64_t offset,
                                        uint64_t raw_bytes);
/* READ: a whole read without chunks so far; then a chunk of the last read, for its next buffer. */
struct sw_wire_read *sw_test_add_read(struct sw_test_packet *packet, struct sw_region_id id, unsigned flags);
struct sw_wire_chunk *sw_test_add_room(struct sw_test_packet *packet, uint32_t mem, uint64_t offset,
                                       uint64_t raw_bytes);
/* DISCARD, SETTLE. */
void sw_test_add_id(struct sw_test_packet *packet, struct sw_region_id id);

/* The text of that number of a RESULTS or DETAILS; "": none. Valid until the next call. */
const char *sw_test_text(const struct sw_msg *msg, uint8_t number);
/* The code of a result; 0: it has succeeded. */
int sw_test_result_code(const struct sw_msg *msg, unsigned i);
struct sw_region_id sw_test_result_id(const struct sw_msg *msg, unsigned i);

/* Sends a packet of zeros that sw_packet_send() may refuse: of up to twice the most bytes, with up to 253 descriptors.
 */
void sw_test_send_raw(int socket, size_t bytes, unsigned n_fds);

#endif

/* proto.h - the data socket's messages, each declared once as a field list.
 *
 * The socket is SOCK_SEQPACKET on one machine: a packet is one message, a header and the fields in order, little
 * endian, without padding. Descriptors travel by SCM_RIGHTS, with MEM_PARTS and ORDER_PAGE only. A client sends
 * requests, each with a `seq` of its choice that it does not reuse while a reply is due; the daemon answers every
 * request with exactly one packet of the same seq: the request's reply type, or SW_MSG_ERROR. HELLO comes first.
 * Replies may come in any order. An ERROR of seq 0 answers no request: it is about the connection (refused, or a packet
 * whose seq could not be read), so requests start at seq 1. After an ERROR of scope SESSION or wider the daemon closes
 * the connection. While a client does not read its replies, the daemon does not read its requests.
 *
 * Memory is named by the client (`mem`, any number, unique in its session), so that MEM_OPEN, its MEM_PARTS and the
 * SPILL that uses it can be sent without waiting for replies. If MEM_OPEN or MEM_PARTS fail, so does what names it.
 * Memory opened `once` is mapped with the one operation that names it and closed with that. Other memory is mapped
 * before its last packet is answered, serves any number of operations, and is closed by MEM_CLOSE, which is answered
 * when those have ended and it is unmapped.
 *
 * ORDER_PAGE hands over a memfd of 64-bit words, `bytes` long, sealed with F_SEAL_SHRINK and F_SEAL_GROW, with its one
 * descriptor. Requests may then wait for the client's streams (SW_REQ_ORDER): a word and a value that the client has a
 * stream write there. A request whose word has a lower value begins when it has that value, or a higher one, and holds
 * up nobody else meanwhile. Values of a word only rise, from 1, and a word is used again only once it has its value. A
 * page that was refused fails the requests that wait by it. A second page replaces the first one for later requests;
 * after a reconnection the page is handed over again.
 *
 * A batch is up to SW_PROTO_MAX_BATCH spills or restores in one memory that stays open, asked for and answered at once;
 * the fields of the pieces from `count` on mean nothing. Each piece makes, or is, a region of its own. All or nothing:
 * after an ERROR no region of a SPILL_BATCH is stored, and each of a RESTORE_BATCH still is (but for one that was found
 * damaged), while its destinations are undefined. Destinations must not overlap. DROP_BATCH drops what it can; its
 * ERROR is that of the first region that it could not. With `consume` it does what CONSUME does.
 *
 * SPILL_BUFFERS makes one region of up to SW_PROTO_MAX_BUFFERS buffers in memories that stay open, each with a type of
 * values; its answer is a RESULT with the sums and the codec of most bytes, QUERY_BUFFERS tells of each, with its codec
 * and reason. All or nothing: after an ERROR nothing is stored. RESTORE_BUFFERS names as many destinations, in the same
 * order, of which no two may overlap; after an ERROR the region is still stored, unless it was found damaged. waits: 1:
 * that buffer for its word. Of such a region RESTORE and packing know nothing, and all else what
 * they know of any.
 *
 * A session whose daemon is restarted may be gone on with: HELLO_OK has a token, unless nothing survives this daemon,
 * and for how long (reconnect_ms) a successor waits for the session. A client that connects again says HELLO with that
 * token (all zero: a new session); `resumed` says that the session's regions are there. If not, it is a new session, of
 * another token, and ids of the old one mean nothing. Memories do not survive. SETTLE then asks what became of a
 * request whose reply has not come: SPILL, RESTORE, a batch or one of buffers. Its answer is that request's, if the
 * request was carried out; ERESTARTED if not (a spill has stored nothing, a restored region is still stored); ELOST if
 * it was at work in place. The last SETTLE, of type 0, says that all have been asked for; it is answered by OK. Who has
 * not come back has nothing to settle. A spill is found by its seq: for this reason a session's seqs rise, also
 * from one connection to the next, by one mostly and within a connection never by more than 2^20 (EPROTO), and begin
 * again when they are used up. The daemon has then forgotten what was spilled with them.
 *
 * SPILL_DURABLE makes a region that outlives its session: it has a name, unique within the tenant (the uid), stays
 * stored when it is restored, and ends by DROP only. (CONSUME is what a RESTORE that does not keep does in the end, for
 * clients that restore in pieces: a DROP of what is not durable.) ADOPT finds it by its name for a session of the same
 * tenant, to which it belongs from then on, under the same id; its answer is a RESULT. A name of another tenant's is
 * one that does not exist: ENOENT. A SPILL_DURABLE is settled as a SPILL.
 *
 * sw_msg_decode() trusts nothing: a packet of the wrong length, magic or type is refused. Adding a field or a message
 * raises SW_PROTO_VERSION. */
#ifndef SW_IPC_PROTO_H
#define SW_IPC_PROTO_H

#include "base/err.h"
#include "base/mem_kind.h"
#include <stddef.h>
#include <stdint.h>

#define SW_PROTO_MAGIC 0x4C495053u /* "SPIL" */
#define SW_PROTO_VERSION 9
#define SW_PROTO_HEADER_BYTES 16
#define SW_PROTO_MAX_BATCH 256 /* pieces of a batch */
/* Header and body of the longest message, RESTORE_BATCH; a longer packet is refused, and not read whole. */
#define SW_PROTO_MAX_PACKET_BYTES (SW_PROTO_HEADER_BYTES + 12 + 4 + 8 + SW_PROTO_MAX_BATCH * (4 + 4 + 8 + 8))
#define SW_PROTO_MAX_FDS 64     /* per packet, below the kernel's 253 */
#define SW_PROTO_MAX_REASONS 16 /* why regions were compressed, or were not */
#define SW_PROTO_REASON_BYTES 32
#define SW_PROTO_MAX_BUFFERS 64 /* of a region that has several */
#define SW_PROTO_CODEC_BYTES 16
#define SW_PROTO_TIER_BYTES 16
#define SW_PROTO_TOKEN_BYTES 16
#define SW_PROTO_MAX_CHUNKS 64 /* that a packed region tells of in one message */
#define SW_PROTO_NAME_BYTES 64 /* of a durable region's name, with the zero behind it */

/* struct sw_msg_header on the wire: u32 magic, u16 version, u16 type, u32 seq, u32 body_bytes. */
struct sw_msg_header {
    uint32_t magic;
    uint16_t version, type;
    uint32_t seq, body_bytes;
};

/* Flags of SPILL and RESTORE, and of their batches, which cannot be IN_PLACE. */
/* Begins once the word order_word of the order page has order_value. */
#define SW_REQ_ORDER 1u
#define SW_REQ_KEEP 2u /* RESTORE, RESTORE_BATCH: keep the stored copy */
#define SW_REQ_IN_PLACE                                                                                                \
    4u /* pack, unpack: the frames lie at the front of the range itself, RESULT's stored_bytes long */

/* value_type of SPILL, enum spillway_value_type of spillway_packed.h, where the range holds whole numbers of that type;
 * 0: bytes. */

/* advice of ADVISE: enum spillway_advice of spillway.h. */

/* clang-format off */
/* Field kinds: U32(name) U64(name) BYTES(name, n) U32S(name, n) U64S(name, n) */
#define SW_FIELDS_HELLO(U32, U64, BYTES, U32S, U64S) \
    U32(version) BYTES(client, 64) BYTES(token, SW_PROTO_TOKEN_BYTES)
#define SW_FIELDS_HELLO_OK(U32, U64, BYTES, U32S, U64S) \
    U32(version) U32(session) U32(max_in_flight) U32(max_pieces) BYTES(server, 32) U32(resumed) U32(reconnect_ms) \
    BYTES(token, SW_PROTO_TOKEN_BYTES)
#define SW_FIELDS_MEM_OPEN(U32, U64, BYTES, U32S, U64S) \
    U32(mem) U32(kind) U32(n_parts) U32(once) U64(bytes) BYTES(device_uuid, SW_DEVICE_UUID_BYTES) \
    BYTES(handle, SW_MEM_HANDLE_BYTES)
#define SW_FIELDS_MEM_PARTS(U32, U64, BYTES, U32S, U64S) \
    U32(mem) U32(first) U32(count) U64S(part_bytes, SW_PROTO_MAX_FDS)
#define SW_FIELDS_MEM_CLOSE(U32, U64, BYTES, U32S, U64S)  U32(mem)
#define SW_FIELDS_SPILL(U32, U64, BYTES, U32S, U64S) \
    U32(mem) U32(flags) U64(offset) U64(bytes) U32(order_word) U64(order_value) U32(value_type)
#define SW_FIELDS_RESTORE(U32, U64, BYTES, U32S, U64S) \
    U32(slot) U32(gen) U32(mem) U32(flags) U64(offset) U64(bytes) U32(order_word) U64(order_value)
#define SW_FIELDS_DROP(U32, U64, BYTES, U32S, U64S)       U32(slot) U32(gen)
#define SW_FIELDS_QUERY(U32, U64, BYTES, U32S, U64S)      U32(slot) U32(gen)
#define SW_FIELDS_ADVISE(U32, U64, BYTES, U32S, U64S)     U32(slot) U32(gen) U32(advice) U32(value)
#define SW_FIELDS_STATUS(U32, U64, BYTES, U32S, U64S)     U32(reserved)
#define SW_FIELDS_OK(U32, U64, BYTES, U32S, U64S)         U32(reserved)
#define SW_FIELDS_RESULT(U32, U64, BYTES, U32S, U64S) \
    U32(slot) U32(gen) U64(raw_bytes) U64(stored_bytes) U64(service_us) BYTES(codec, SW_PROTO_CODEC_BYTES) \
    BYTES(tier, SW_PROTO_TIER_BYTES) BYTES(reason, SW_PROTO_REASON_BYTES)
#define SW_FIELDS_REGION(U32, U64, BYTES, U32S, U64S) \
    U64(raw_bytes) U64(stored_bytes) BYTES(state, 16) BYTES(codec, SW_PROTO_CODEC_BYTES) \
    BYTES(tier, SW_PROTO_TIER_BYTES)
/* reasons: the texts of RESULT's reason, n_reasons of them, each in a field of its own; reason_spills: how often. */
#define SW_FIELDS_STATUS_OK(U32, U64, BYTES, U32S, U64S) \
    BYTES(version, 32) BYTES(device, 64) U32(n_gpus) U32(sessions) U32(regions) U64(scratch_bytes) \
    U64(scratch_limit_bytes) U64(tier_capacity_bytes) U64(tier_backed_bytes) U64(tier_used_bytes) \
    U64(nvme_capacity_bytes) U64(nvme_used_bytes) U64(mapped_memories) U32(n_reasons) \
    BYTES(reasons, SW_PROTO_MAX_REASONS * SW_PROTO_REASON_BYTES) U64S(reason_spills, SW_PROTO_MAX_REASONS)
#define SW_FIELDS_ERROR(U32, U64, BYTES, U32S, U64S)      U32(scope) U32(cuda) BYTES(name, 16) BYTES(text, 256)

#define SW_FIELDS_SPILL_BATCH(U32, U64, BYTES, U32S, U64S) \
    U32(mem) U32(flags) U32(count) U32(order_word) U64(order_value) U64S(offset, SW_PROTO_MAX_BATCH) \
    U64S(bytes, SW_PROTO_MAX_BATCH)
#define SW_FIELDS_RESTORE_BATCH(U32, U64, BYTES, U32S, U64S) \
    U32(mem) U32(flags) U32(count) U32(order_word) U64(order_value) U32S(slot, SW_PROTO_MAX_BATCH) \
    U32S(gen, SW_PROTO_MAX_BATCH) U64S(offset, SW_PROTO_MAX_BATCH) U64S(bytes, SW_PROTO_MAX_BATCH)
#define SW_FIELDS_DROP_BATCH(U32, U64, BYTES, U32S, U64S) \
    U32(count) U32S(slot, SW_PROTO_MAX_BATCH) U32S(gen, SW_PROTO_MAX_BATCH) U32(consume)
/* Bytes are sums over the pieces; a text is "mixed" where it is not that of all. */
#define SW_FIELDS_RESULT_BATCH(U32, U64, BYTES, U32S, U64S) \
    U32(count) U64(raw_bytes) U64(stored_bytes) U64(service_us) BYTES(codec, SW_PROTO_CODEC_BYTES) \
    BYTES(tier, SW_PROTO_TIER_BYTES) BYTES(reason, SW_PROTO_REASON_BYTES) U32S(slot, SW_PROTO_MAX_BATCH) \
    U32S(gen, SW_PROTO_MAX_BATCH)
/* type and seq of the request; count: regions of a restore, or pieces of a batch; slot, gen: of a restore's. */
#define SW_FIELDS_SETTLE(U32, U64, BYTES, U32S, U64S) \
    U32(type) U32(seq) U32(count) U32S(slot, SW_PROTO_MAX_BATCH) U32S(gen, SW_PROTO_MAX_BATCH)

#define SW_FIELDS_SPILL_BUFFERS(U32, U64, BYTES, U32S, U64S) \
    U32(flags) U32(count) U32S(mem, SW_PROTO_MAX_BUFFERS) \
    U32S(waits, SW_PROTO_MAX_BUFFERS) U32S(order_word, SW_PROTO_MAX_BUFFERS) \
    U64S(order_value, SW_PROTO_MAX_BUFFERS) U32S(value_type, SW_PROTO_MAX_BUFFERS) U64S(offset, SW_PROTO_MAX_BUFFERS) \
    U64S(bytes, SW_PROTO_MAX_BUFFERS)
#define SW_FIELDS_RESTORE_BUFFERS(U32, U64, BYTES, U32S, U64S) \
    U32(slot) U32(gen) U32(flags) U32(count) U32S(mem, SW_PROTO_MAX_BUFFERS) \
    U32S(waits, SW_PROTO_MAX_BUFFERS) U32S(order_word, SW_PROTO_MAX_BUFFERS) \
    U64S(order_value, SW_PROTO_MAX_BUFFERS) U64S(offset, SW_PROTO_MAX_BUFFERS) U64S(bytes, SW_PROTO_MAX_BUFFERS)
#define SW_FIELDS_QUERY_BUFFERS(U32, U64, BYTES, U32S, U64S) U32(slot) U32(gen)
#define SW_FIELDS_REGION_BUFFERS(U32, U64, BYTES, U32S, U64S) \
    U32(count) U64S(raw_bytes, SW_PROTO_MAX_BUFFERS) U64S(stored_bytes, SW_PROTO_MAX_BUFFERS) \
    BYTES(codecs, SW_PROTO_MAX_BUFFERS * SW_PROTO_CODEC_BYTES)                                                          \
    BYTES(reasons, SW_PROTO_MAX_BUFFERS * SW_PROTO_REASON_BYTES)
/* Of a packed region: chunks from `first` on, which must be there unless there are none. n_chunks: all of them; codec,
 * type and n_symbols as in spillway_packed.h. */
#define SW_FIELDS_QUERY_PACKED(U32, U64, BYTES, U32S, U64S) U32(slot) U32(gen) U32(first)
#define SW_FIELDS_REGION_PACKED(U32, U64, BYTES, U32S, U64S) \
    U32(n_chunks) U32(count) U64S(offset, SW_PROTO_MAX_CHUNKS) U64S(bytes, SW_PROTO_MAX_CHUNKS) \
    U64S(raw_bytes, SW_PROTO_MAX_CHUNKS) U32S(codec, SW_PROTO_MAX_CHUNKS) U32S(type, SW_PROTO_MAX_CHUNKS) \
    U32S(n_symbols, SW_PROTO_MAX_CHUNKS)
/* name: zero padded, its last byte is zero. */
#define SW_FIELDS_SPILL_DURABLE(U32, U64, BYTES, U32S, U64S) \
    U32(mem) U32(flags) U64(offset) U64(bytes) U32(order_word) U64(order_value) BYTES(name, SW_PROTO_NAME_BYTES) \
    U32(value_type)
/* bytes: length of the page, a multiple of 8. */
#define SW_FIELDS_ORDER_PAGE(U32, U64, BYTES, U32S, U64S) U64(bytes)
#define SW_FIELDS_CONSUME(U32, U64, BYTES, U32S, U64S)    U32(slot) U32(gen)
#define SW_FIELDS_ADOPT(U32, U64, BYTES, U32S, U64S)      BYTES(name, SW_PROTO_NAME_BYTES)

/* X(NAME, name, type number): requests below 100, replies from 100. Numbers are never reused. */
#define SW_MESSAGES(X) \
    X(HELLO, hello, 1) X(MEM_OPEN, mem_open, 2) X(MEM_PARTS, mem_parts, 3) X(MEM_CLOSE, mem_close, 4) \
    X(SPILL, spill, 5) X(RESTORE, restore, 6) X(DROP, drop, 7) X(QUERY, query, 8) X(STATUS, status, 9) \
    X(ADVISE, advise, 10) X(SPILL_BATCH, spill_batch, 11) X(RESTORE_BATCH, restore_batch, 12) \
    X(DROP_BATCH, drop_batch, 13) X(SETTLE, settle, 14) \
    X(SPILL_BUFFERS, spill_buffers, 15) X(RESTORE_BUFFERS, restore_buffers, 16) \
    X(QUERY_BUFFERS, query_buffers, 17) \
    X(SPILL_DURABLE, spill_durable, 23) X(ADOPT, adopt, 24) \
    X(CONSUME, consume, 25) X(QUERY_PACKED, query_packed, 26) X(ORDER_PAGE, order_page, 27) \
    X(HELLO_OK, hello_ok, 100) X(OK, ok, 101) X(RESULT, result, 102) X(REGION, region, 103) \
    X(STATUS_OK, status_ok, 104) X(ERROR, error, 105) X(RESULT_BATCH, result_batch, 106) \
    X(REGION_BUFFERS, region_buffers, 107) X(REGION_PACKED, region_packed, 108)
/* clang-format on */

enum sw_msg_type {
#define SW_MSG_ENUM(NAME, name, number) SW_MSG_##NAME = (number),
    SW_MESSAGES(SW_MSG_ENUM)
#undef SW_MSG_ENUM
};

/* struct sw_msg_hello { uint32_t version; char client[64]; } and so on. BYTES fields that hold text are zero padded and
 * need not end in a zero: sw_msg_text() makes a string of one. */
#define SW_FIELD_U32(field) uint32_t field;
#define SW_FIELD_U64(field) uint64_t field;
#define SW_FIELD_BYTES(field, n) uint8_t field[n];
#define SW_FIELD_U32S(field, n) uint32_t field[n];
#define SW_FIELD_U64S(field, n) uint64_t field[n];
#define SW_MSG_STRUCT(NAME, name, number)                                                                              \
    struct sw_msg_##name {                                                                                             \
        SW_FIELDS_##NAME(SW_FIELD_U32, SW_FIELD_U64, SW_FIELD_BYTES, SW_FIELD_U32S, SW_FIELD_U64S)                     \
    };
SW_MESSAGES(SW_MSG_STRUCT)
#undef SW_MSG_STRUCT
#undef SW_FIELD_U32
#undef SW_FIELD_U64
#undef SW_FIELD_BYTES
#undef SW_FIELD_U32S
#undef SW_FIELD_U64S

/* Any message, by header.type. Batches make it long: sw_msg_init() clears only what a message needs. */
struct sw_msg {
    struct sw_msg_header header;
    union {
#define SW_MSG_MEMBER(NAME, name, number) struct sw_msg_##name name;
        SW_MESSAGES(SW_MSG_MEMBER)
#undef SW_MSG_MEMBER
    } u;
};

/* Name of a message type for logs, "unknown" if there is none. thread: any. */
const char *sw_msg_name(unsigned type);

/* Makes an empty message: the header, and as much of `u` as is the type's, are zero but for the type. thread: any. */
void sw_msg_init(struct sw_msg *ret, unsigned type);

/* Length of a packet of that type, header included; 0: there is no such type. thread: any. */
size_t sw_msg_packet_bytes(unsigned type);

/* Encodes msg->u by msg->header.type with msg->header.seq; magic, version and length are filled in. packet: room
 * for sw_msg_packet_bytes(). Returns the packet's bytes. thread: any. */
size_t sw_msg_encode(const struct sw_msg *msg, uint8_t *packet);

/* Checks and decodes one packet. On an error ret->header.seq is the packet's seq if one could be read, else 0.
 * errors: -SW_EPROTO (too short, wrong magic, unknown type, wrong length), -SW_EVERSION. thread: any. */
int sw_msg_decode(struct sw_msg *ret, const uint8_t *packet, size_t packet_bytes, struct sw_err *err);

/* Copies a zero padded field into a string; ret_bytes >= field_bytes + 1. Returns ret. */
char *sw_msg_text(char *ret, size_t ret_bytes, const uint8_t *field, size_t field_bytes);
/* Copies a string into a field, zero padded, cut if too long. */
void sw_msg_set_text(uint8_t *field, size_t field_bytes, const char *text);

/* Makes the ERROR message for seq from a failed call's record. */
void sw_msg_from_err(struct sw_msg *ret, uint32_t seq, const struct sw_err *err);
/* The reverse of sw_msg_from_err(); an unknown name becomes -SW_EPROTO. */
void sw_msg_to_err(struct sw_err *ret, const struct sw_msg_error *message);

/* One packet out or in, with descriptors. MSG_NOSIGNAL, MSG_CMSG_CLOEXEC. fds may be NULL if n_fds is 0.
 * sw_packet_send: 0, or -SW_EAGAIN (socket full), -SW_ECONN.
 * sw_packet_receive: *ret_bytes is the packet's length (0: peer closed), *ret_n_fds descriptors in fds
 * (SW_PROTO_MAX_FDS), owned by the caller. errors: -SW_EAGAIN, -SW_ECONN, -SW_EPROTO (packet longer than
 * SW_PROTO_MAX_PACKET_BYTES: consumed), -SW_EFDS (more descriptors than allowed: some are lost), -SW_ELIMIT (this
 * process may have no more: some are lost; the packet is whole, *ret_bytes long). Descriptors
 * may have come with a packet that is refused, too: close() of one can take as long as the peer likes, so it is for the
 * caller to do. thread: any. */
int sw_packet_send(int socket, const uint8_t *packet, size_t bytes, const int *fds, unsigned n_fds);
int sw_packet_receive(int socket, uint8_t *packet, size_t *ret_bytes, int *fds, unsigned *ret_n_fds);

#endif

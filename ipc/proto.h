/* proto.h - the data socket's messages, each declared once as a field list, and their encoder and decoder.
 *
 * PROTOCOL.md says what the messages mean and in which order they come. A packet is one message: a header, the fields
 * in order, then the message's arrays, little endian and without padding. sw_msg_decode() trusts nothing: it refuses a
 * packet of the wrong length, magic or type. A new field or message raises SW_PROTO_VERSION. Messages of version 9 are
 * the ones in proto9.h, and the ones of this file that version 10 has not replaced. */
#ifndef SW_IPC_PROTO_H
#define SW_IPC_PROTO_H

#include "base/err.h"
#include "base/mem_kind.h"
#include "ipc/proto9.h"
#include <stddef.h>
#include <stdint.h>

#define SW_PROTO_MAGIC 0x4C495053u /* "SPIL" */
#define SW_PROTO_VERSION 10
#define SW_PROTO_OLDEST_VERSION 9
#define SW_PROTO_HEADER_BYTES 16
/* A longer packet is refused. Buffers for packets are aligned to SW_PROTO_ALIGN. */
#define SW_PROTO_MAX_PACKET_BYTES 40960
#define SW_PROTO_ALIGN 8
#define SW_PROTO_MAX_ITEMS 256  /* the most builds of one packet; also reads, buffers, chunks, ids, results */
#define SW_PROTO_MAX_FRAMES 64  /* of DETAILS */
#define SW_PROTO_MAX_TEXTS 128  /* of RESULTS and DETAILS */
#define SW_PROTO_MAX_FDS 64     /* per packet, below the kernel's 253 */
#define SW_PROTO_MAX_REASONS 16 /* reasons why regions were compressed, or were not */
#define SW_PROTO_REASON_BYTES 32
#define SW_PROTO_MAX_BUFFERS 64 /* of a region */
#define SW_PROTO_CODEC_BYTES 16
#define SW_PROTO_TIER_BYTES 16
#define SW_PROTO_TOKEN_BYTES 16
#define SW_PROTO_NAME_BYTES 64 /* a durable region's name, with a terminating zero */

/* struct sw_msg_header on the wire: u32 magic, u16 version, u16 type, u32 seq, u32 body_bytes. */
struct sw_msg_header {
    uint32_t magic;
    uint16_t version, type;
    uint32_t seq, body_bytes;
};

/* advice of ADVISE: enum spillway_advice of spillway.h. */

/* ---- records of the arrays; reserved fields must be 0 (EINVAL) ---- */

enum sw_build_flag {
    SW_BUILD_BEGIN = 1,
    SW_BUILD_COMMIT = 2,
    SW_BUILD_ABORT = 4,
    SW_BUILD_IN_PLACE = 8, /* pack */
    SW_BUILD_PACKED = 16   /* with IN_PLACE: the client has packed the buffer, and has the directory; no chunks */
};

/* A build in a BUILD. Its buffers, chunks and name are the next ones of the packet's arrays. */
struct sw_wire_build {
    uint32_t build;        /* the client's number */
    uint16_t flags;        /* enum sw_build_flag */
    uint16_t n_buffers;    /* with BEGIN 1 to 64, else 0 */
    uint16_t n_chunks;     /* in this packet */
    uint8_t name_bytes;    /* with BEGIN: 1 to 63 of a durable region, else 0 */
    uint8_t keep_priority; /* with BEGIN: SPILLWAY_ADVICE_PRIORITY's value */
    uint8_t durability;    /* with BEGIN: enum spillway_durability; above 0 only with a name */
    uint8_t prefer;        /* with BEGIN: enum spillway_prefer */
    uint8_t reserved[2];
};

/* A buffer of a region: to the daemon with BEGIN, to the client in RESULTS and DETAILS. */
struct sw_wire_buffer {
    uint64_t raw_bytes;
    /* Length of every stored chunk but the last one. To the daemon it is a wish, a multiple of 32 KiB: the daemon
     * chooses the largest divisor that is a multiple of 32 KiB and that the engine and all devices take. 0: the daemon
     * chooses freely, and one chunk holds all of the buffer. */
    uint32_t chunk_bytes;
    uint16_t value_type;   /* enum spillway_value_type; 0: bytes without a type */
    uint8_t codec, reason; /* to the client: texts[n - 1]; 0: none. With PACKED: the codec, as in frames */
    uint64_t stored_bytes; /* to the client; with PACKED: the length of the packed bytes */
};

/* A part of a region's buffer, and the range of a memory that has it or gets it. */
struct sw_wire_chunk {
    uint64_t at;          /* offset in the region's buffer */
    uint64_t raw_bytes;   /* length; READ: room */
    uint64_t offset;      /* offset in the memory `mem` */
    uint64_t order_value; /* wait until order_word of the order page has this value; 0: do not wait */
    uint32_t order_word, mem;
    /* 0: the range holds raw bytes. Else its length in bytes: it holds the frame of exactly one stored chunk, whose
     * length is raw_bytes. READ: room for the frame. */
    uint32_t frame_bytes;
    uint16_t buffer, reserved;
};

enum sw_read_flag {
    SW_READ_BEGIN = 1,
    SW_READ_END = 2,
    SW_READ_KEEP = 4,
    SW_READ_IN_PLACE = 8, /* unpack */
    SW_READ_DISPUTED = 16 /* the client got these frames, and they do not decode: the daemon is to verify its own */
};
enum { SW_READ_MAX_DISPUTED = 8 }; /* chunks of such a read */

/* A read in a READ. Its chunks are the next ones of the packet's array. */
struct sw_wire_read {
    uint32_t read;  /* the client's number, from the same counter as builds */
    uint16_t flags; /* enum sw_read_flag */
    uint16_t n_chunks;
    uint32_t slot, gen; /* with BEGIN: the region; else 0 */
};

/* The result of a build, a read or an id, in the order of the request. */
struct sw_wire_result {
    uint32_t number, slot, gen; /* number: the client's; id 0:0: there is none */
    uint16_t scope;             /* enum sw_scope, of the error */
    uint8_t durability;         /* enum spillway_durability that the region has reached */
    uint8_t reserved;
    uint8_t error, codec, tier, reason, coder, state; /* texts[n - 1]; 0: none. error 0: success */
    uint16_t n_buffers; /* in `buffers`: of a read that begins and does not end here, or in DETAILS; else 0 */
    uint64_t raw_bytes, stored_bytes; /* moved by this packet; with COMMIT and END: by all */
};

/* A frame and its place. DETAILS: a frame of a packed region, in the region's memory. RESULTS: the frame that a READ
 * got for a chunk with frame_bytes, in the chunk's memory. */
struct sw_wire_frame {
    uint64_t offset, bytes, raw_bytes;
    uint32_t n_symbols;
    uint16_t buffer;
    uint8_t codec, value_type; /* as in the frame's header */
    uint8_t segment_log2;      /* the same; DETAILS: 0 */
    uint8_t reserved;
    uint16_t dictionary16; /* the same; DETAILS: 0 */
    uint8_t more_reserved[4];
};

struct sw_wire_id {
    uint32_t slot, gen;
};

/* A durable region of the tenant. */
struct sw_wire_listed {
    char name[SW_PROTO_NAME_BYTES], state[12]; /* zero padded */
    uint32_t durability;                       /* enum spillway_durability */
    char tier[16];                             /* zero padded */
    uint64_t raw_bytes, stored_bytes;
    uint32_t slot, gen; /* 0:0: another session has it, or none */
};

/* A name of an error, codec, tier, coder or state, or a reason; zero padded. */
struct sw_wire_text {
    char text[32];
};

/* Flags of BUILD and READ. */
#define SW_REQ_ALL 1u /* the builds of the packet commit, or its reads end, all or none; no effect if none is to */
/* READ: each read is a whole region of one chunk, and gets its frame. The rooms are one run of bytes of one memory,
 * each a multiple of SW_PROTO_FRAME_STEP. There each frame begins at the first such multiple behind the one before. */
#define SW_REQ_GATHER 4u
#define SW_PROTO_FRAME_STEP 4096u
/* Flags of DISCARD. */
#define SW_REQ_CONSUME 2u /* the client has the bytes: durable regions stay */
/* `what` of INSPECT. */
enum sw_inspect { SW_INSPECT_REGION, SW_INSPECT_BUFFERS, SW_INSPECT_FRAMES };

/* clang-format off */
/* Field kinds: U16(name) U32(name) U64(name) BYTES(name, n) U32S(name, n) U64S(name, n) ARRAY(type, name, count):
 * an array of records, whose length is the field `count` of the message. Arrays come last, and together fit into
 * SW_PROTO_MAX_PACKET_BYTES. A decoded message borrows its arrays from the packet, a message to encode from its caller. */
#define SW_FIELDS_HELLO(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(version) BYTES(client, 64) BYTES(token, SW_PROTO_TOKEN_BYTES)
#define SW_FIELDS_HELLO_OK(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(version) U32(session) U32(max_in_flight) U32(max_buffers) BYTES(server, 32) U32(resumed) U32(reconnect_ms) \
    BYTES(token, SW_PROTO_TOKEN_BYTES)
#define SW_FIELDS_MEM_OPEN(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(mem) U32(kind) U32(n_parts) U32(once) U64(bytes) BYTES(device_uuid, SW_DEVICE_UUID_BYTES) \
    BYTES(handle, SW_MEM_HANDLE_BYTES)
#define SW_FIELDS_MEM_PARTS(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(mem) U32(first) U32(count) U64S(part_bytes, SW_PROTO_MAX_FDS)
#define SW_FIELDS_MEM_CLOSE(U16, U32, U64, BYTES, U32S, U64S, ARRAY)  U32(mem)
#define SW_FIELDS_ADVISE(U16, U32, U64, BYTES, U32S, U64S, ARRAY)     U32(slot) U32(gen) U32(advice) U32(value)
#define SW_FIELDS_STATUS(U16, U32, U64, BYTES, U32S, U64S, ARRAY)     U32(reserved)
#define SW_FIELDS_OK(U16, U32, U64, BYTES, U32S, U64S, ARRAY)         U32(reserved)
/* reasons: n_reasons texts of SW_PROTO_REASON_BYTES each; reason_spills: the number of spills for each. */
#define SW_FIELDS_STATUS_OK(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    BYTES(version, 32) BYTES(device, 64) U32(n_gpus) U32(sessions) U32(regions) U64(scratch_bytes) \
    U64(scratch_limit_bytes) U64(tier_capacity_bytes) U64(tier_backed_bytes) U64(tier_used_bytes) \
    U64(nvme_capacity_bytes) U64(nvme_used_bytes) U64(mapped_memories) U32(n_reasons) \
    BYTES(reasons, SW_PROTO_MAX_REASONS * SW_PROTO_REASON_BYTES) U64S(reason_spills, SW_PROTO_MAX_REASONS)
#define SW_FIELDS_ERROR(U16, U32, U64, BYTES, U32S, U64S, ARRAY)      U32(scope) U32(cuda) BYTES(name, 16) BYTES(text, 256)

#define SW_FIELDS_BUILD(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(flags) U16(n_builds) U16(n_buffers) U16(n_chunks) U16(name_bytes) U32(reserved) \
    ARRAY(struct sw_wire_build, builds, n_builds) ARRAY(struct sw_wire_buffer, buffers, n_buffers) \
    ARRAY(struct sw_wire_chunk, chunks, n_chunks) ARRAY(char, names, name_bytes)
#define SW_FIELDS_READ(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(flags) U16(n_reads) U16(n_chunks) U64(reserved) \
    ARRAY(struct sw_wire_read, reads, n_reads) ARRAY(struct sw_wire_chunk, chunks, n_chunks)
#define SW_FIELDS_DISCARD(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(flags) U16(n_ids) U16(reserved) U64(reserved2) ARRAY(struct sw_wire_id, ids, n_ids)
/* type, seq and flags of the request to settle; the ids of its reads, or an id 0:0 for each of its builds. */
#define SW_FIELDS_SETTLE(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(type) U32(seq) U32(flags) U16(n_ids) U16(reserved) ARRAY(struct sw_wire_id, ids, n_ids)
/* first: the first frame to describe. */
#define SW_FIELDS_INSPECT(U16, U32, U64, BYTES, U32S, U64S, ARRAY) U32(slot) U32(gen) U32(what) U32(first)
/* frames: of a READ, one for each chunk with frame_bytes, in the request's order; all 0 if the read has failed. text: of
 * the first error. */
#define SW_FIELDS_RESULTS(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(flags) U16(n_results) U16(n_buffers) U16(n_texts) U16(text_bytes) U32(service_us) \
    U16(n_frames) U16(reserved) U32(reserved2) \
    ARRAY(struct sw_wire_result, results, n_results) ARRAY(struct sw_wire_buffer, buffers, n_buffers) \
    ARRAY(struct sw_wire_frame, frames, n_frames) ARRAY(struct sw_wire_text, texts, n_texts) \
    ARRAY(char, text, text_bytes)
/* n_all: all frames of the region; the array has the ones from `first` on. */
#define SW_FIELDS_DETAILS(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(n_all) U16(n_results) U16(n_buffers) U16(n_frames) U16(n_texts) U32(flags) \
    ARRAY(struct sw_wire_result, results, n_results) ARRAY(struct sw_wire_buffer, buffers, n_buffers) \
    ARRAY(struct sw_wire_frame, frames, n_frames) ARRAY(struct sw_wire_text, texts, n_texts)
/* after: list the names behind this one; all zero: from the first one on. max: 1 to 256. */
#define SW_FIELDS_LIST(U16, U32, U64, BYTES, U32S, U64S, ARRAY) U32(max) BYTES(after, SW_PROTO_NAME_BYTES)
#define SW_FIELDS_LISTING(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U16(n_items) U16(reserved) U32(reserved2) ARRAY(struct sw_wire_listed, items, n_items)
/* bytes: the page's length, a multiple of 8. */
#define SW_FIELDS_ORDER_PAGE(U16, U32, U64, BYTES, U32S, U64S, ARRAY) U64(bytes)
#define SW_FIELDS_ADOPT(U16, U32, U64, BYTES, U32S, U64S, ARRAY)      BYTES(name, SW_PROTO_NAME_BYTES)
/* device_uuid: all zero for the host device. bytes: the frame buffers that the client wants to have there. */
#define SW_FIELDS_CODER(U16, U32, U64, BYTES, U32S, U64S, ARRAY)      BYTES(device_uuid, SW_DEVICE_UUID_BYTES) U64(bytes)
/* bytes: the frame buffers that the client may have there, in all; 0: none. codecs: bit n is set if the daemon takes
 * frames of codec n. chunk_bytes: the longest chunk that the daemon and all of its devices take. */
#define SW_FIELDS_CODER_OK(U16, U32, U64, BYTES, U32S, U64S, ARRAY)   U64(bytes) U64(codecs) U64(chunk_bytes)

/* X(NAME, name, type number): requests below 100, replies from 100. Numbers are never reused. */
#define SW_MESSAGES(X) \
    X(HELLO, hello, 1) X(MEM_OPEN, mem_open, 2) X(MEM_PARTS, mem_parts, 3) X(MEM_CLOSE, mem_close, 4) \
    X(STATUS, status, 9) X(ADVISE, advise, 10) X(ADOPT, adopt, 24) X(ORDER_PAGE, order_page, 27) \
    X(BUILD, build, 30) X(READ, read, 31) X(DISCARD, discard, 32) X(INSPECT, inspect, 33) X(SETTLE, settle, 34) \
    X(LIST, list, 35) X(LISTING, listing, 112) X(CODER, coder, 36) X(CODER_OK, coder_ok, 113) \
    X(HELLO_OK, hello_ok, 100) X(OK, ok, 101) X(STATUS_OK, status_ok, 104) X(ERROR, error, 105) \
    X(RESULTS, results, 110) X(DETAILS, details, 111) \
    SW_MESSAGES_9(X)
/* clang-format on */

enum sw_msg_type {
#define SW_MSG_ENUM(NAME, name, number) SW_MSG_##NAME = (number),
    SW_MESSAGES(SW_MSG_ENUM)
#undef SW_MSG_ENUM
};

/* Declares struct sw_msg_hello { uint32_t version; uint8_t client[64]; ... } and so on. A text in a BYTES field is
 * padded with zeros, and need not end in a zero: sw_msg_text() copies it to a string. */
#define SW_FIELD_U16(field) uint16_t field;
#define SW_FIELD_U32(field) uint32_t field;
#define SW_FIELD_U64(field) uint64_t field;
#define SW_FIELD_BYTES(field, n) uint8_t field[n];
#define SW_FIELD_U32S(field, n) uint32_t field[n];
#define SW_FIELD_U64S(field, n) uint64_t field[n];
#define SW_FIELD_ARRAY(type, field, count) const type *field;
#define SW_MSG_STRUCT(NAME, name, number)                                                                              \
    struct sw_msg_##name {                                                                                             \
        SW_FIELDS_##NAME(SW_FIELD_U16, SW_FIELD_U32, SW_FIELD_U64, SW_FIELD_BYTES, SW_FIELD_U32S, SW_FIELD_U64S,       \
                         SW_FIELD_ARRAY)                                                                               \
    };
SW_MESSAGES(SW_MSG_STRUCT)
#undef SW_MSG_STRUCT
#undef SW_FIELD_U16
#undef SW_FIELD_U32
#undef SW_FIELD_U64
#undef SW_FIELD_BYTES
#undef SW_FIELD_U32S
#undef SW_FIELD_U64S
#undef SW_FIELD_ARRAY

/* Any message; header.type says which. Batches of version 9 make it long, so sw_msg_init() clears only one member. */
struct sw_msg {
    struct sw_msg_header header;
    union {
#define SW_MSG_MEMBER(NAME, name, number) struct sw_msg_##name name;
        SW_MESSAGES(SW_MSG_MEMBER)
#undef SW_MSG_MEMBER
    } u;
};

/* Returns the name of a message type, for logs; "unknown" if there is no such type. thread: any. */
const char *sw_msg_name(unsigned type);

/* Makes an empty message: sets the type, and clears the rest of the header and the type's member of `u`. thread: any.
 */
void sw_msg_init(struct sw_msg *ret, unsigned type);

/* Returns the length of the message's packet with its header; 0: there is no such type. thread: any. */
size_t sw_msg_packet_bytes(const struct sw_msg *msg);

/* Encodes a message with its type, seq and version (0: SW_PROTO_VERSION). Fills in the magic and the length.
 *
 * packet: room for sw_msg_packet_bytes(). Returns the packet's length. thread: any. */
size_t sw_msg_encode(const struct sw_msg *msg, uint8_t *packet);

/* Checks and decodes one packet, which is aligned to SW_PROTO_ALIGN. ret borrows its arrays from the packet.
 *
 * After an error ret->header.seq is the packet's seq, or 0 if the packet has none. errors: -SW_EPROTO (too short, wrong
 * magic, unknown type, wrong length), -SW_EVERSION. thread: any. */
int sw_msg_decode(struct sw_msg *ret, const uint8_t *packet, size_t packet_bytes, struct sw_err *err);

/* Copies a zero padded field into a string, cut to fit. Returns ret. */
char *sw_msg_text(char *ret, size_t ret_bytes, const uint8_t *field, size_t field_bytes);
/* Copies a string into a field, padded with zeros, cut to fit. */
void sw_msg_set_text(uint8_t *field, size_t field_bytes, const char *text);

/* Makes the ERROR message for a seq. */
void sw_msg_from_err(struct sw_msg *ret, uint32_t seq, const struct sw_err *err);
/* Reads an ERROR message. An unknown name becomes -SW_EPROTO. */
void sw_msg_to_err(struct sw_err *ret, const struct sw_msg_error *message);

/* Sends one packet with descriptors (borrowed; NULL if n_fds is 0). Does not wait, and raises no SIGPIPE. errors:
 * -SW_EAGAIN (the socket is full), -SW_ECONN, -SW_EFDS. thread: any. */
int sw_packet_send(int socket, const uint8_t *packet, size_t bytes, const int *fds, unsigned n_fds);
/* Receives one packet and up to SW_PROTO_MAX_FDS descriptors, which are close-on-exec. *ret_bytes 0: the peer closed.
 *
 * - owns: the caller owns the descriptors, also after an error. close() of one can take as long as the peer likes.
 * - errors: -SW_EAGAIN, -SW_ECONN, -SW_EPROTO (longer than SW_PROTO_MAX_PACKET_BYTES; the packet is consumed), -SW_EFDS
 *   (more descriptors than allowed; some are lost), -SW_ELIMIT (this process has no room for all descriptors; some are
 *   lost, but the packet is complete).
 *
 * thread: any. */
int sw_packet_receive(int socket, uint8_t *packet, size_t *ret_bytes, int *fds, unsigned *ret_n_fds);

#endif

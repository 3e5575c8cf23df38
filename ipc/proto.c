#include "ipc/proto.h"

#include "base/assert.h"
#include <stdio.h>
#include <string.h>

/* Fields are copied by a cursor; the same lists drive length, encoder and decoder. */
static void put(uint8_t **cursor, const void *value, size_t bytes) {
    if (bytes) /* the pointer of an empty array may be NULL */
        memcpy(*cursor, value, bytes);
    *cursor += bytes;
}

static void get(const uint8_t **cursor, void *value, size_t bytes) {
    memcpy(value, *cursor, bytes);
    *cursor += bytes;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fields have the byte order of the wire");

#define ALIGNED(record)                                                                                                \
    _Static_assert(sizeof(struct record) % SW_PROTO_ALIGN == 0 && _Alignof(struct record) <= SW_PROTO_ALIGN,           \
                   #record " keeps the next array aligned");
ALIGNED(sw_wire_build)
ALIGNED(sw_wire_buffer)
ALIGNED(sw_wire_chunk)
ALIGNED(sw_wire_read)
ALIGNED(sw_wire_result)
ALIGNED(sw_wire_frame)
ALIGNED(sw_wire_id)
ALIGNED(sw_wire_text)
ALIGNED(sw_wire_listed)
#undef ALIGNED

/* FIXED_BYTES_hello and so on: the length of the body without its arrays. */
enum {
#define U16(field) +2
#define U32(field) +4
#define U64(field) +8
#define BYTES(field, n) +(n)
#define U32S(field, n) +4 * (n)
#define U64S(field, n) +8 * (n)
#define ARRAY(type, field, count)
#define FIXED_BYTES(NAME, name, number)                                                                                \
    FIXED_BYTES_##name = 0 SW_FIELDS_##NAME(U16, U32, U64, BYTES, U32S, U64S, ARRAY),
    SW_MESSAGES(FIXED_BYTES)
#undef FIXED_BYTES
#undef U16
#undef U32
#undef U64
#undef BYTES
#undef U32S
#undef U64S
#undef ARRAY
};

#define FITS(NAME, name, number)                                                                                       \
    _Static_assert(SW_PROTO_HEADER_BYTES + FIXED_BYTES_##name <= SW_PROTO_MAX_PACKET_BYTES, #name " is too long");
SW_MESSAGES(FITS)
#undef FITS
_Static_assert(SW_PROTO_HEADER_BYTES + FIXED_BYTES_build +
                       SW_PROTO_MAX_ITEMS * (sizeof(struct sw_wire_build) + sizeof(struct sw_wire_buffer) +
                                             sizeof(struct sw_wire_chunk) + SW_PROTO_NAME_BYTES - 1) <=
                   SW_PROTO_MAX_PACKET_BYTES,
               "a packet has room for SW_PROTO_MAX_ITEMS durable builds");
_Static_assert(SW_PROTO_HEADER_BYTES + FIXED_BYTES_results +
                       SW_PROTO_MAX_ITEMS * (sizeof(struct sw_wire_result) + sizeof(struct sw_wire_buffer) +
                                             sizeof(struct sw_wire_frame)) +
                       SW_PROTO_MAX_TEXTS * sizeof(struct sw_wire_text) + 256 <=
                   SW_PROTO_MAX_PACKET_BYTES,
               "a packet has room for the results of SW_PROTO_MAX_ITEMS reads with a frame each, and a text");

static size_t fixed_bytes(unsigned type) {
    switch (type) {
#define CASE(NAME, name, number)                                                                                       \
    case number:                                                                                                       \
        return FIXED_BYTES_##name;
        SW_MESSAGES(CASE)
#undef CASE
    default:
        return 0;
    }
}

/* Returns the length of the arrays, from the counts in the fields. */
static size_t array_bytes(const struct sw_msg *msg) {
    size_t bytes = 0;
    switch (msg->header.type) {
#define FIELD(field, ...)
#define ARRAY(type, field, count) bytes += sizeof(type) * m->count;
#define CASE(NAME, name, number)                                                                                       \
    case number: {                                                                                                     \
        const struct sw_msg_##name *m = &msg->u.name;                                                                  \
        (void)m;                                                                                                       \
        SW_FIELDS_##NAME(FIELD, FIELD, FIELD, FIELD, FIELD, FIELD, ARRAY) break;                                       \
    }
        SW_MESSAGES(CASE)
#undef CASE
#undef ARRAY
#undef FIELD
    default:
        break;
    }
    return bytes;
}

size_t sw_msg_packet_bytes(const struct sw_msg *msg) {
    const size_t fixed = fixed_bytes(msg->header.type);
    return fixed ? SW_PROTO_HEADER_BYTES + fixed + array_bytes(msg) : 0;
}

void sw_msg_init(struct sw_msg *ret, unsigned type) {
    memset(&ret->header, 0, sizeof ret->header);
    ret->header.type = (uint16_t)type;
    switch (type) {
#define CASE(NAME, name, number)                                                                                       \
    case number:                                                                                                       \
        memset(&ret->u.name, 0, sizeof ret->u.name);                                                                   \
        break;
        SW_MESSAGES(CASE)
#undef CASE
    default:
        break;
    }
}

const char *sw_msg_name(unsigned type) {
    switch (type) {
#define CASE(NAME, name, number)                                                                                       \
    case number:                                                                                                       \
        return #name;
        SW_MESSAGES(CASE)
#undef CASE
    default:
        return "unknown";
    }
}

size_t sw_msg_encode(const struct sw_msg *msg, uint8_t *packet) {
    const uint32_t magic = SW_PROTO_MAGIC, body = (uint32_t)(fixed_bytes(msg->header.type) + array_bytes(msg));
    const uint16_t version = msg->header.version ? msg->header.version : SW_PROTO_VERSION;
    uint8_t *cursor = packet;
    put(&cursor, &magic, 4);
    put(&cursor, &version, 2);
    put(&cursor, &msg->header.type, 2);
    put(&cursor, &msg->header.seq, 4);
    put(&cursor, &body, 4);
    switch (msg->header.type) {
#define FIELD(field, ...) put(&cursor, &m->field, sizeof m->field);
#define ARRAY(type, field, count) put(&cursor, m->field, sizeof(type) * m->count);
#define CASE(NAME, name, number)                                                                                       \
    case number: {                                                                                                     \
        const struct sw_msg_##name *m = &msg->u.name;                                                                  \
        SW_FIELDS_##NAME(FIELD, FIELD, FIELD, FIELD, FIELD, FIELD, ARRAY) break;                                       \
    }
        SW_MESSAGES(CASE)
#undef CASE
#undef ARRAY
#undef FIELD
    default:
        break;
    }
    return (size_t)(cursor - packet);
}

static int decode_header(struct sw_msg_header *ret, const uint8_t *packet, size_t packet_bytes, struct sw_err *err) {
    memset(ret, 0, sizeof *ret);
    if (packet_bytes < SW_PROTO_HEADER_BYTES)
        return sw_err_set(err, -SW_EPROTO, SW_SCOPE_SESSION, "a packet of %zu bytes is shorter than a header",
                          packet_bytes);
    const uint8_t *cursor = packet;
    get(&cursor, &ret->magic, 4);
    get(&cursor, &ret->version, 2);
    get(&cursor, &ret->type, 2);
    get(&cursor, &ret->seq, 4);
    get(&cursor, &ret->body_bytes, 4);
    if (ret->magic != SW_PROTO_MAGIC)
        return sw_err_set(err, -SW_EPROTO, SW_SCOPE_SESSION, "the packet does not start with the protocol's magic");
    if (ret->version < SW_PROTO_OLDEST_VERSION || ret->version > SW_PROTO_VERSION)
        return sw_err_set(err, -SW_EVERSION, SW_SCOPE_SESSION, "protocol version %u is not supported, only %u to %u",
                          (unsigned)ret->version, (unsigned)SW_PROTO_OLDEST_VERSION, (unsigned)SW_PROTO_VERSION);
    return 0;
}

static void decode_fields(struct sw_msg *ret, const uint8_t *body) {
    const uint8_t *cursor = body;
    switch (ret->header.type) {
#define FIELD(field, ...) get(&cursor, &m->field, sizeof m->field);
#define ARRAY(type, field, count) m->field = NULL;
#define CASE(NAME, name, number)                                                                                       \
    case number: {                                                                                                     \
        struct sw_msg_##name *m = &ret->u.name;                                                                        \
        SW_FIELDS_##NAME(FIELD, FIELD, FIELD, FIELD, FIELD, FIELD, ARRAY) break;                                       \
    }
        SW_MESSAGES(CASE)
#undef CASE
#undef ARRAY
#undef FIELD
    default:
        break;
    }
}

/* Points the message to its arrays, which stay in the packet. */
static void find_arrays(struct sw_msg *ret, const uint8_t *arrays) {
    switch (ret->header.type) {
#define FIELD(field, ...)
#define ARRAY(type, field, count)                                                                                      \
    m->field = (const type *)(const void *)arrays;                                                                     \
    arrays += sizeof(type) * m->count;
#define CASE(NAME, name, number)                                                                                       \
    case number: {                                                                                                     \
        struct sw_msg_##name *m = &ret->u.name;                                                                        \
        (void)m;                                                                                                       \
        SW_FIELDS_##NAME(FIELD, FIELD, FIELD, FIELD, FIELD, FIELD, ARRAY) break;                                       \
    }
        SW_MESSAGES(CASE)
#undef CASE
#undef ARRAY
#undef FIELD
    default:
        break;
    }
}

static int check_length(const struct sw_msg *msg, size_t packet_bytes, size_t expected, struct sw_err *err) {
    const size_t body = packet_bytes - SW_PROTO_HEADER_BYTES;
    if (msg->header.body_bytes == body && body == expected)
        return 0;
    return sw_err_set(err, -SW_EPROTO, SW_SCOPE_SESSION, "%s: the body has %zu bytes (header: %u), must be %zu",
                      sw_msg_name(msg->header.type), body, msg->header.body_bytes, expected);
}

int sw_msg_decode(struct sw_msg *ret, const uint8_t *packet, size_t packet_bytes, struct sw_err *err) {
    SW_ASSERT((uintptr_t)packet % SW_PROTO_ALIGN == 0);
    int rc = decode_header(&ret->header, packet, packet_bytes, err);
    if (rc < 0)
        return rc;
    const size_t fixed = fixed_bytes(ret->header.type);
    if (!fixed)
        return sw_err_set(err, -SW_EPROTO, SW_SCOPE_SESSION, "message type %u is unknown", (unsigned)ret->header.type);
    if (packet_bytes < SW_PROTO_HEADER_BYTES + fixed)
        return check_length(ret, packet_bytes, fixed, err);
    decode_fields(ret, packet + SW_PROTO_HEADER_BYTES);
    rc = check_length(ret, packet_bytes, fixed + array_bytes(ret), err);
    if (rc == 0)
        find_arrays(ret, packet + SW_PROTO_HEADER_BYTES + fixed);
    return rc;
}

char *sw_msg_text(char *ret, size_t ret_bytes, const uint8_t *field, size_t field_bytes) {
    size_t n = strnlen((const char *)field, field_bytes);
    if (n >= ret_bytes)
        n = ret_bytes - 1;
    memcpy(ret, field, n);
    ret[n] = 0;
    return ret;
}

void sw_msg_set_text(uint8_t *field, size_t field_bytes, const char *text) {
    size_t n = strnlen(text, field_bytes);
    memset(field, 0, field_bytes);
    memcpy(field, text, n);
}

void sw_msg_from_err(struct sw_msg *ret, uint32_t seq, const struct sw_err *err) {
    char text[260]; /* longer than msg and detail with punctuation */
    sw_msg_init(ret, SW_MSG_ERROR);
    ret->header.seq = seq;
    ret->u.error.scope = (uint32_t)err->scope;
    ret->u.error.cuda = (uint32_t)err->cuda;
    sw_msg_set_text(ret->u.error.name, sizeof ret->u.error.name, sw_err_name(err->code));
    (void)snprintf(text, sizeof text, "%s%s%s%s", err->msg, err->detail[0] ? " (" : "", err->detail,
                   err->detail[0] ? ")" : "");
    sw_msg_set_text(ret->u.error.text, sizeof ret->u.error.text, text);
}

void sw_msg_to_err(struct sw_err *ret, const struct sw_msg_error *message) {
    char name[17], text[257];
    sw_msg_text(name, sizeof name, message->name, sizeof message->name);
    sw_msg_text(text, sizeof text, message->text, sizeof message->text);
    int code = sw_err_from_name(name);
    enum sw_scope scope = message->scope < SW_SCOPE_NR ? (enum sw_scope)message->scope : SW_SCOPE_SESSION;
    (void)sw_err_set(ret, code ? code : -SW_EPROTO, scope, "%s", text);
    ret->cuda = (int)message->cuda;
}

#include "daemon/session/version9.h"

#include "daemon/session/build.h"
#include "daemon/session/chunks.h"
#include "daemon/session/discard.h"
#include "daemon/session/inspect.h"
#include "daemon/session/read.h"
#include "daemon/session/results9.h"
#include "daemon/session/settle.h"
#include <inttypes.h>
#include <string.h>

_Static_assert(SW_PROTO_MAX_BATCH == SW_PROTO_MAX_ITEMS && SW_PROTO_MAX_BUFFERS <= SW_PROTO_MAX_ITEMS &&
                   SW_PROTO_MAX_CHUNKS == SW_PROTO_MAX_FRAMES,
               "a packet of version 10 has room for a request of version 9");

/* A packet of version 10, translated from version 9. */
struct packet {
    struct sw_wire_build builds[SW_PROTO_MAX_ITEMS];
    struct sw_wire_read reads[SW_PROTO_MAX_ITEMS];
    struct sw_wire_buffer buffers[SW_PROTO_MAX_ITEMS];
    struct sw_wire_chunk chunks[SW_PROTO_MAX_ITEMS];
    unsigned n_chunks;
    struct sw_err err; /* why it cannot be translated */
};

/* The arrays are large: only their used part is written. */
static void begin(struct packet *packet) {
    packet->n_chunks = 0;
    packet->err.code = 0;
}

/* A buffer of version 9: its memory, and the word and value that it waits for. */
struct place {
    uint32_t mem, waits, order_word;
    uint64_t order_value, offset, bytes;
};

static int check_batch(uint32_t count, struct sw_err *err) {
    if (count < 1 || count > SW_PROTO_MAX_BATCH)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "the batch has %" PRIu32 " requests, must be 1 to %u",
                          count, (unsigned)SW_PROTO_MAX_BATCH);
    return 0;
}

static int check_buffers(uint32_t count, const uint32_t *waits, struct sw_err *err) {
    if (count < 1 || count > SW_PROTO_MAX_BUFFERS)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%" PRIu32 " buffers, must be 1 to %d", count,
                          SW_PROTO_MAX_BUFFERS);
    for (uint32_t i = 0; i < count; i++)
        if (waits[i] > 1)
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "buffer %" PRIu32 " of %" PRIu32 ": flags are unknown",
                              i + 1, count);
    return 0;
}

/* Adds a buffer and its chunk. In version 10 the value 0 means that the chunk does not wait. */
static void add_chunk(struct packet *packet, const struct place *place, uint32_t value_type, uint16_t buffer) {
    if (place->waits && place->order_value == 0 && !packet->err.code)
        (void)sw_err_set(&packet->err, -SW_EINVAL, SW_SCOPE_REQUEST,
                         "a buffer cannot wait for the value 0, with which a word begins");
    packet->buffers[packet->n_chunks] = (struct sw_wire_buffer){
        .raw_bytes = place->bytes, .value_type = (uint16_t)(value_type < UINT16_MAX ? value_type : UINT16_MAX)};
    packet->chunks[packet->n_chunks++] = (struct sw_wire_chunk){.raw_bytes = place->bytes,
                                                                .offset = place->offset,
                                                                .order_value = place->waits ? place->order_value : 0,
                                                                .order_word = place->order_word,
                                                                .mem = place->mem,
                                                                .buffer = buffer};
}

/* ---- spills ------------------------------------------------------------------------------------------------------ */

static int build(struct sw_session *session, const struct sw_msg *request, struct packet *packet, unsigned n_builds,
                 const char *name, struct sw_err *err) {
    const struct sw_msg_build m = {.flags = n_builds > 1 ? SW_REQ_ALL : 0,
                                   .n_builds = (uint16_t)n_builds,
                                   .n_buffers = (uint16_t)packet->n_chunks,
                                   .n_chunks = (uint16_t)packet->n_chunks,
                                   .name_bytes = packet->builds[0].name_bytes,
                                   .builds = packet->builds,
                                   .buffers = packet->buffers,
                                   .chunks = packet->chunks,
                                   .names = name};
    if (!packet->err.code)
        return sw_build_packet(session, request, &m, err);
    sw_memtable_use_up(&session->mems, packet->chunks, packet->n_chunks);
    *err = packet->err;
    return err->code;
}

static struct sw_wire_build whole_build(uint32_t flags, unsigned n_buffers, size_t name_bytes) {
    return (struct sw_wire_build){
        .flags = (uint16_t)(SW_BUILD_BEGIN | SW_BUILD_COMMIT | (flags & SW_REQ9_IN_PLACE ? SW_BUILD_IN_PLACE : 0)),
        .n_buffers = (uint16_t)n_buffers,
        .n_chunks = (uint16_t)n_buffers,
        .name_bytes = (uint8_t)name_bytes};
}

/* name: empty: the region is not durable. */
static int spill(struct sw_session *session, const struct sw_msg *request, const struct sw_msg_spill *m,
                 const char *name, struct sw_err *err) {
    struct packet packet;
    const struct place place = {m->mem, m->flags & SW_REQ9_ORDER, m->order_word, m->order_value, m->offset, m->bytes};
    const int rc = sw_check_flags(m->flags, SW_REQ9_ORDER | SW_REQ9_IN_PLACE, err);
    if (rc < 0)
        return rc;
    begin(&packet);
    packet.builds[0] = whole_build(m->flags, 1, strlen(name));
    add_chunk(&packet, &place, m->value_type, 0);
    return build(session, request, &packet, 1, name, err);
}

int sw_on_spill9(void *session, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    (void)ret_reply;
    return spill(session, request->msg, &request->msg->u.spill, "", err);
}

int sw_on_spill_durable9(void *session, const struct sw_received *request, struct sw_msg *ret_reply,
                         struct sw_err *err) {
    const struct sw_msg_spill_durable *m = &request->msg->u.spill_durable;
    const struct sw_msg_spill plain = {.mem = m->mem,
                                       .flags = m->flags,
                                       .offset = m->offset,
                                       .bytes = m->bytes,
                                       .order_word = m->order_word,
                                       .order_value = m->order_value,
                                       .value_type = m->value_type};
    (void)ret_reply;
    if (!m->name[0] || m->name[SW_PROTO_NAME_BYTES - 1])
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "a region's name must have 1 to %u bytes and end in a zero", SW_PROTO_NAME_BYTES - 1u);
    return spill(session, request->msg, &plain, (const char *)m->name, err);
}

int sw_on_spill_batch9(void *session, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    const struct sw_msg_spill_batch *m = &request->msg->u.spill_batch;
    struct packet packet;
    (void)ret_reply;
    if (check_batch(m->count, err) < 0 || sw_check_flags(m->flags, SW_REQ9_ORDER, err) < 0)
        return err->code;
    begin(&packet);
    for (uint32_t i = 0; i < m->count; i++) {
        const struct place place = {m->mem,     m->flags & SW_REQ9_ORDER, m->order_word, m->order_value, m->offset[i],
                                    m->bytes[i]};
        packet.builds[i] = whole_build(0, 1, 0);
        add_chunk(&packet, &place, SW_VALUE_NONE, 0);
    }
    return build(session, request->msg, &packet, m->count, "", err);
}

int sw_on_spill_buffers9(void *session, const struct sw_received *request, struct sw_msg *ret_reply,
                         struct sw_err *err) {
    const struct sw_msg_spill_buffers *m = &request->msg->u.spill_buffers;
    struct packet packet;
    (void)ret_reply;
    if (check_buffers(m->count, m->waits, err) < 0 || sw_check_flags(m->flags, 0, err) < 0)
        return err->code;
    begin(&packet);
    packet.builds[0] = whole_build(0, m->count, 0);
    for (uint32_t i = 0; i < m->count; i++) {
        const struct place place = {m->mem[i],         m->waits[i],  m->order_word[i],
                                    m->order_value[i], m->offset[i], m->bytes[i]};
        add_chunk(&packet, &place, m->value_type[i], (uint16_t)i);
    }
    return build(session, request->msg, &packet, 1, "", err);
}

/* ---- restores ---------------------------------------------------------------------------------------------------- */

static int read_back(struct sw_session *session, const struct sw_msg *request, struct packet *packet, unsigned n_reads,
                     struct sw_err *err) {
    const struct sw_msg_read m = {.flags = n_reads > 1 ? SW_REQ_ALL : 0,
                                  .n_reads = (uint16_t)n_reads,
                                  .n_chunks = (uint16_t)packet->n_chunks,
                                  .reads = packet->reads,
                                  .chunks = packet->chunks};
    if (!packet->err.code)
        return sw_read_packet(session, request, &m, err);
    sw_memtable_use_up(&session->mems, packet->chunks, packet->n_chunks);
    *err = packet->err;
    return err->code;
}

static struct sw_wire_read whole_read(uint32_t flags, uint32_t slot, uint32_t gen, unsigned n_chunks) {
    return (struct sw_wire_read){.flags = (uint16_t)(SW_READ_BEGIN | SW_READ_END |
                                                     (flags & SW_REQ9_KEEP ? SW_READ_KEEP : 0) |
                                                     (flags & SW_REQ9_IN_PLACE ? SW_READ_IN_PLACE : 0)),
                                 .n_chunks = (uint16_t)n_chunks,
                                 .slot = slot,
                                 .gen = gen};
}

int sw_on_restore9(void *session, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    const struct sw_msg_restore *m = &request->msg->u.restore;
    const struct place place = {m->mem, m->flags & SW_REQ9_ORDER, m->order_word, m->order_value, m->offset, m->bytes};
    struct packet packet;
    (void)ret_reply;
    if (sw_check_flags(m->flags, SW_REQ9_ORDER | SW_REQ9_KEEP | SW_REQ9_IN_PLACE, err) < 0)
        return err->code;
    begin(&packet);
    packet.reads[0] = whole_read(m->flags, m->slot, m->gen, 1);
    add_chunk(&packet, &place, SW_VALUE_NONE, 0);
    return read_back(session, request->msg, &packet, 1, err);
}

int sw_on_restore_batch9(void *session, const struct sw_received *request, struct sw_msg *ret_reply,
                         struct sw_err *err) {
    const struct sw_msg_restore_batch *m = &request->msg->u.restore_batch;
    struct packet packet;
    (void)ret_reply;
    if (check_batch(m->count, err) < 0 || sw_check_flags(m->flags, SW_REQ9_ORDER | SW_REQ9_KEEP, err) < 0)
        return err->code;
    begin(&packet);
    for (uint32_t i = 0; i < m->count; i++) {
        const struct place place = {m->mem,     m->flags & SW_REQ9_ORDER, m->order_word, m->order_value, m->offset[i],
                                    m->bytes[i]};
        packet.reads[i] = whole_read(m->flags, m->slot[i], m->gen[i], 1);
        add_chunk(&packet, &place, SW_VALUE_NONE, 0);
    }
    return read_back(session, request->msg, &packet, m->count, err);
}

int sw_on_restore_buffers9(void *session, const struct sw_received *request, struct sw_msg *ret_reply,
                           struct sw_err *err) {
    const struct sw_msg_restore_buffers *m = &request->msg->u.restore_buffers;
    struct packet packet;
    (void)ret_reply;
    if (check_buffers(m->count, m->waits, err) < 0 || sw_check_flags(m->flags, SW_REQ9_KEEP, err) < 0)
        return err->code;
    begin(&packet);
    packet.reads[0] = whole_read(m->flags, m->slot, m->gen, m->count);
    for (uint32_t i = 0; i < m->count; i++) {
        const struct place place = {m->mem[i],         m->waits[i],  m->order_word[i],
                                    m->order_value[i], m->offset[i], m->bytes[i]};
        add_chunk(&packet, &place, SW_VALUE_NONE, (uint16_t)i);
    }
    return read_back(session, request->msg, &packet, 1, err);
}

/* ---- drops ------------------------------------------------------------------------------------------------------- */

static int discard(struct sw_session *session, const struct sw_msg *request, struct sw_result *all, unsigned n,
                   bool is_consumed, struct sw_err *err) {
    struct sw_results results = {.all = all, .n = n};
    sw_discard(session, is_consumed, &results);
    if (!results.n_failed)
        return sw_results_reply(session, request, &results, err);
    *err = results.err;
    return err->code;
}

int sw_on_drop9(void *session, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    const struct sw_msg_drop *m = &request->msg->u.drop;
    (void)ret_reply;
    return discard(session, request->msg, &(struct sw_result){.id = {m->slot, m->gen}}, 1, false, err);
}

int sw_on_consume9(void *session, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    const struct sw_msg_consume *m = &request->msg->u.consume;
    (void)ret_reply;
    return discard(session, request->msg, &(struct sw_result){.id = {m->slot, m->gen}}, 1, true, err);
}

int sw_on_drop_batch9(void *session, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    const struct sw_msg_drop_batch *m = &request->msg->u.drop_batch;
    struct sw_result all[SW_PROTO_MAX_BATCH];
    (void)ret_reply;
    if (check_batch(m->count, err) < 0)
        return err->code;
    for (uint32_t i = 0; i < m->count; i++)
        all[i] = (struct sw_result){.id = {m->slot[i], m->gen[i]}};
    return discard(session, request->msg, all, m->count, m->consume, err);
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

int sw_on_query9(void *session, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    const struct sw_msg_query *m = &request->msg->u.query;
    struct sw_details details;
    const int rc = sw_inspect(session, (struct sw_region_id){m->slot, m->gen}, SW_INSPECT_REGION, 0, &details, err);
    if (rc < 0)
        return rc;
    struct sw_msg_region *reply = &ret_reply->u.region;
    sw_msg_init(ret_reply, SW_MSG_REGION);
    reply->raw_bytes = details.region.raw_bytes;
    reply->stored_bytes = details.region.stored_bytes;
    sw_msg_set_text(reply->state, sizeof reply->state, sw_region_state_name(details.region.state));
    sw_msg_set_text(reply->codec, sizeof reply->codec, sw_codec_name(details.region.codec));
    sw_msg_set_text(reply->tier, sizeof reply->tier, details.region.tier);
    return SW_REPLY_NOW;
}

int sw_on_query_buffers9(void *session, const struct sw_received *request, struct sw_msg *ret_reply,
                         struct sw_err *err) {
    const struct sw_msg_query_buffers *m = &request->msg->u.query_buffers;
    struct sw_details details;
    const int rc = sw_inspect(session, (struct sw_region_id){m->slot, m->gen}, SW_INSPECT_BUFFERS, 0, &details, err);
    if (rc < 0)
        return rc;
    struct sw_msg_region_buffers *reply = &ret_reply->u.region_buffers;
    sw_msg_init(ret_reply, SW_MSG_REGION_BUFFERS);
    reply->count = details.n_buffers;
    for (unsigned i = 0; i < details.n_buffers; i++) {
        reply->raw_bytes[i] = details.buffers[i].raw_bytes;
        reply->stored_bytes[i] = details.buffers[i].stored_bytes;
        sw_msg_set_text(reply->codecs + (size_t)i * SW_PROTO_CODEC_BYTES, SW_PROTO_CODEC_BYTES,
                        sw_codec_name(details.buffers[i].codec));
        sw_msg_set_text(reply->reasons + (size_t)i * SW_PROTO_REASON_BYTES, SW_PROTO_REASON_BYTES,
                        details.buffers[i].reason);
    }
    return SW_REPLY_NOW;
}

int sw_on_query_packed9(void *session, const struct sw_received *request, struct sw_msg *ret_reply,
                        struct sw_err *err) {
    const struct sw_msg_query_packed *m = &request->msg->u.query_packed;
    struct sw_details details;
    const int rc =
        sw_inspect(session, (struct sw_region_id){m->slot, m->gen}, SW_INSPECT_FRAMES, m->first, &details, err);
    if (rc < 0)
        return rc;
    struct sw_msg_region_packed *reply = &ret_reply->u.region_packed;
    sw_msg_init(ret_reply, SW_MSG_REGION_PACKED);
    reply->n_chunks = (uint32_t)details.n_all_frames;
    reply->count = (uint32_t)details.n_frames;
    for (size_t i = 0; i < details.n_frames; i++) {
        const struct spillway_packed_chunk *frame = &details.frames[i];
        reply->offset[i] = frame->offset;
        reply->bytes[i] = frame->bytes;
        reply->raw_bytes[i] = frame->raw_bytes;
        reply->codec[i] = frame->codec;
        reply->type[i] = frame->type;
        reply->n_symbols[i] = frame->n_symbols;
    }
    return SW_REPLY_NOW;
}

/* ---- after a restart --------------------------------------------------------------------------------------------- */

static const struct {
    uint32_t type;
    bool is_build, is_batch;
} settled9[] = {
    {SW_MSG_SPILL, true, false},    {SW_MSG_SPILL_BATCH, true, true},    {SW_MSG_SPILL_BUFFERS, true, false},
    {SW_MSG_RESTORE, false, false}, {SW_MSG_RESTORE_BATCH, false, true}, {SW_MSG_RESTORE_BUFFERS, false, false},
};

static int settle(struct sw_session *session, const struct sw_msg *request, unsigned row, struct sw_msg *ret_reply,
                  struct sw_err *err) {
    const struct sw_msg_settle9 *m = &request->u.settle9;
    const uint32_t most = settled9[row].is_batch ? SW_PROTO_MAX_BATCH : 1;
    const struct sw_settle_query query = {.is_build = settled9[row].is_build, .all = true, .seq = m->seq};
    struct sw_result all[SW_PROTO_MAX_BATCH];
    struct sw_results results = {.all = all, .n = m->count};
    if (m->count < 1 || m->count > most)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%" PRIu32 " requests to settle, must be 1 to %" PRIu32,
                          m->count, most);
    for (uint32_t i = 0; i < m->count; i++)
        all[i] = (struct sw_result){.id = {m->slot[i], m->gen[i]}};
    sw_settle(session, &query, &results);
    if (results.n_failed) {
        *err = results.err;
        return err->code;
    }
    sw_results9_fill(ret_reply, m->type, &results);
    return SW_REPLY_NOW;
}

int sw_on_settle9(void *session, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    const uint32_t type = request->msg->u.settle9.type;
    if (sw_settle_check(session, err) < 0)
        return err->code;
    if (type == 0) {
        sw_settle_end(session);
        sw_msg_init(ret_reply, SW_MSG_OK);
        return SW_REPLY_NOW;
    }
    for (unsigned i = 0; i < sizeof settled9 / sizeof settled9[0]; i++)
        if (settled9[i].type == type)
            return settle(session, request->msg, i, ret_reply, err);
    return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "request of type %" PRIu32 " cannot be settled", type);
}

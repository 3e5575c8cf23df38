#include "daemon/session/buffers.h"

#include "daemon/session/operation.h"
#include "ipc/span.h"
#include <inttypes.h>
#include <string.h>

_Static_assert((int)SW_PROTO_MAX_BUFFERS == (int)SW_FRAMES_MAX_PARTS, "as many as a region may have");

/* What the two requests say of their buffers; value_type: NULL for a restore. */
struct buffers {
    uint32_t count;
    const uint32_t *mem, *waits, *order_word, *value_type;
    const uint64_t *order_value, *offset, *bytes;
};

static int check_buffers(const struct buffers *b, struct sw_err *err) {
    if (b->count < 1 || b->count > SW_PROTO_MAX_BUFFERS)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%" PRIu32 " buffers, must be 1 to %d", b->count,
                          SW_PROTO_MAX_BUFFERS);
    for (uint32_t i = 0; i < b->count; i++)
        if (b->waits[i] > 1)
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "buffer %" PRIu32 " of %" PRIu32 ": flags are unknown",
                              i + 1, b->count);
    return 0;
}

/* Destinations in different memories cannot be told apart here. */
static int check_overlap(const struct buffers *b, struct sw_err *err) {
    for (uint32_t i = 0; i < b->count; i++)
        for (uint32_t k = 0; k < i; k++) {
            const struct sw_span spans[] = {{b->offset[i], b->bytes[i]}, {b->offset[k], b->bytes[k]}};
            struct sw_span sorted[2];
            memcpy(sorted, spans, sizeof sorted);
            if (b->mem[i] == b->mem[k] && sw_spans_overlap(sorted, 2))
                return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "destinations of buffers %u and %u overlap", k + 1,
                                  i + 1);
        }
    return 0;
}

/* Defers the reply, finds the memories and fills in the ranges. */
static int begin(struct sw_session *session, const struct sw_msg *request, const struct buffers *b, uint32_t flags,
                 uint32_t known_flags, struct sw_deferred_reply **ret, struct sw_range *ret_ranges,
                 struct sw_err *err) {
    const struct sw_operation operation = {
        .mems = b->mem, .n_mems = b->count, .flags = flags, .known_flags = known_flags, .n_pieces = b->count};
    struct sw_mem *mems[SW_PROTO_MAX_BUFFERS] = {NULL};
    int rc = sw_operation_begin(session, request, &operation, ret, mems, err);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; rc == 0 && i < b->count; i++) {
        ret_ranges[i] = (struct sw_range){.mem = mems[i],
                                          .offset = b->offset[i],
                                          .bytes = b->bytes[i],
                                          .type = b->value_type ? (enum sw_value_type)b->value_type[i] : SW_VALUE_NONE,
                                          .request = request->header.seq};
        rc = sw_orders_find(&session->orders, b->waits[i], b->order_word[i], b->order_value[i], &ret_ranges[i].order,
                            err);
        if (rc < 0)
            sw_err_context(err, "buffer %" PRIu32 " of %" PRIu32, i + 1, b->count);
    }
    return rc < 0 ? sw_operation_refused(*ret, rc) : 0;
}

int sw_on_spill_buffers(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    struct sw_session *session = arg;
    const struct sw_msg_spill_buffers *spill = &request->msg->u.spill_buffers;
    const struct buffers b = {.count = spill->count,
                              .mem = spill->mem,
                              .waits = spill->waits,
                              .order_word = spill->order_word,
                              .value_type = spill->value_type,
                              .order_value = spill->order_value,
                              .offset = spill->offset,
                              .bytes = spill->bytes};
    struct sw_range ranges[SW_PROTO_MAX_BUFFERS];
    struct sw_deferred_reply *deferred = NULL;
    struct sw_region_id id;
    (void)ret_reply;
    int rc = check_buffers(&b, err);
    if (rc == 0)
        rc = begin(session, request->msg, &b, spill->flags, 0, &deferred, ranges, err);
    if (rc < 0)
        return rc;
    sw_engine_hold(session->service->engine);
    rc = sw_engine_spill_buffers(session->owner, ranges, b.count, sw_operation_ended, deferred, &id, err);
    sw_engine_release(session->service->engine);
    return rc < 0 ? sw_operation_refused(deferred, rc) : SW_REPLY_LATER;
}

int sw_on_restore_buffers(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    struct sw_session *session = arg;
    const struct sw_msg_restore_buffers *restore = &request->msg->u.restore_buffers;
    const struct sw_region_id id = {.slot = restore->slot, .gen = restore->gen};
    const struct buffers b = {.count = restore->count,
                              .mem = restore->mem,
                              .waits = restore->waits,
                              .order_word = restore->order_word,
                              .order_value = restore->order_value,
                              .offset = restore->offset,
                              .bytes = restore->bytes};
    struct sw_range ranges[SW_PROTO_MAX_BUFFERS];
    struct sw_deferred_reply *deferred = NULL;
    (void)ret_reply;
    int rc = check_buffers(&b, err);
    if (rc == 0)
        rc = check_overlap(&b, err);
    if (rc == 0)
        rc = begin(session, request->msg, &b, restore->flags, SW_REQ9_KEEP, &deferred, ranges, err);
    if (rc < 0)
        return rc;
    sw_engine_hold(session->service->engine);
    rc = sw_engine_restore_buffers(session->owner, id, ranges, b.count, restore->flags & SW_REQ9_KEEP,
                                   sw_operation_ended, deferred, err);
    sw_engine_release(session->service->engine);
    return rc < 0 ? sw_operation_refused(deferred, rc) : SW_REPLY_LATER;
}

int sw_on_query_buffers(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    struct sw_session *session = arg;
    const struct sw_msg_query_buffers *query = &request->msg->u.query_buffers;
    struct sw_buffer_info infos[SW_FRAMES_MAX_PARTS];
    unsigned n = 0;
    const int rc =
        sw_engine_query_buffers(session->owner, (struct sw_region_id){query->slot, query->gen}, infos, &n, err);
    if (rc < 0)
        return rc;
    struct sw_msg_region_buffers *reply = &ret_reply->u.region_buffers;
    sw_msg_init(ret_reply, SW_MSG_REGION_BUFFERS);
    reply->count = n;
    for (unsigned i = 0; i < n; i++) {
        reply->raw_bytes[i] = infos[i].raw_bytes;
        reply->stored_bytes[i] = infos[i].stored_bytes;
        sw_msg_set_text(reply->codecs + (size_t)i * SW_PROTO_CODEC_BYTES, SW_PROTO_CODEC_BYTES,
                        sw_codec_name(infos[i].codec));
        sw_msg_set_text(reply->reasons + (size_t)i * SW_PROTO_REASON_BYTES, SW_PROTO_REASON_BYTES, infos[i].reason);
    }
    return SW_REPLY_NOW;
}

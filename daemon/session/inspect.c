#include "daemon/session/inspect.h"

#include "daemon/session/results.h"
#include <inttypes.h>

int sw_inspect(struct sw_session *session, struct sw_region_id id, enum sw_inspect what, size_t first,
               struct sw_details *ret, struct sw_err *err) {
    ret->n_buffers = 0;
    ret->n_frames = ret->n_all_frames = 0;
    int rc = sw_engine_query(session->owner, id, &ret->region, err);
    if (rc == 0 && what == SW_INSPECT_BUFFERS)
        rc = sw_engine_query_buffers(session->owner, id, ret->buffers, &ret->n_buffers, err);
    if (rc == 0 && what == SW_INSPECT_FRAMES)
        rc = sw_engine_query_packed(session->owner, id, first, ret->frames, SW_PROTO_MAX_FRAMES, &ret->n_frames,
                                    &ret->n_all_frames, err);
    return rc;
}

/* A reply, and the arrays that it borrows. */
struct details_reply {
    struct sw_msg msg;
    struct sw_wire_result result;
    struct sw_wire_buffer buffers[SW_PROTO_MAX_BUFFERS];
    struct sw_wire_frame frames[SW_PROTO_MAX_FRAMES];
    struct sw_wire_text texts[SW_PROTO_MAX_TEXTS];
};

static void fill_result(struct details_reply *ret, struct sw_region_id id, const struct sw_region_info *info,
                        struct sw_texts *texts) {
    struct sw_result result = {0};
    sw_result_of_region(&result, id, info);
    ret->result = sw_wire_result_of(&result, texts);
}

static void fill_buffers(struct details_reply *ret, const struct sw_details *details, struct sw_texts *texts) {
    for (unsigned i = 0; i < details->n_buffers; i++)
        ret->buffers[i] = sw_wire_buffer_of(&details->buffers[i], texts);
}

static void fill_frames(struct details_reply *ret, const struct sw_details *details) {
    for (size_t i = 0; i < details->n_frames; i++) {
        const struct spillway_packed_chunk *frame = &details->frames[i];
        ret->frames[i] = (struct sw_wire_frame){.offset = frame->offset,
                                                .bytes = frame->bytes,
                                                .raw_bytes = frame->raw_bytes,
                                                .n_symbols = frame->n_symbols,
                                                .codec = (uint8_t)frame->codec,
                                                .value_type = (uint8_t)frame->type};
    }
}

static void fill(struct details_reply *ret, struct sw_region_id id, const struct sw_details *details) {
    struct sw_texts texts = {.all = ret->texts};
    struct sw_msg_details *m = &ret->msg.u.details;
    sw_msg_init(&ret->msg, SW_MSG_DETAILS);
    fill_result(ret, id, &details->region, &texts);
    fill_buffers(ret, details, &texts);
    fill_frames(ret, details);
    m->n_results = 1;
    ret->result.n_buffers = m->n_buffers = (uint16_t)details->n_buffers;
    m->n_all = (uint32_t)details->n_all_frames;
    m->n_frames = (uint16_t)details->n_frames;
    m->n_texts = (uint16_t)texts.n;
    m->results = &ret->result;
    m->buffers = ret->buffers;
    m->frames = ret->frames;
    m->texts = ret->texts;
}

int sw_on_inspect(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    struct sw_session *session = arg;
    const struct sw_msg_inspect *m = &request->msg->u.inspect;
    const struct sw_region_id id = {m->slot, m->gen};
    struct sw_details details;
    struct details_reply reply;
    (void)ret_reply;
    if (m->what > SW_INSPECT_FRAMES || (m->first && m->what != SW_INSPECT_FRAMES))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "what is %" PRIu32 " and first is %" PRIu32 ": not supported", m->what, m->first);
    const int rc = sw_inspect(session, id, (enum sw_inspect)m->what, m->first, &details, err);
    if (rc < 0)
        return rc;
    fill(&reply, id, &details);
    sw_session_reply_now(session, request->msg, &reply.msg);
    return SW_REPLY_SENT;
}

#include "daemon/session/operation.h"

#include "base/log.h"
#include <inttypes.h>

/* A batch logs and tells of its own end. */
static bool is_spill(unsigned type) {
    return type == SW_MSG_SPILL || type == SW_MSG_SPILL_BUFFERS || type == SW_MSG_SPILL_DURABLE;
}

static int admit(const struct sw_session *session, unsigned type, unsigned n_pieces, struct sw_err *err) {
    if (session->service->draining && (is_spill(type) || type == SW_MSG_SPILL_BATCH))
        return sw_err_set(err, -SW_EDRAINING, SW_SCOPE_REQUEST, "the service is being drained: no new spills");
    if (session->n_operations >= session->service->config->max_session_operations)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                          "the session has %u operations in flight, the most that max_session_operations allows",
                          session->n_operations);
    const uint64_t tenants = session->service->config->tenant_operations;
    if (tenants && session->tenant->n_operations >= tenants)
        return sw_err_set(err, -SW_ETENANTOPS, SW_SCOPE_REQUEST,
                          "the tenant has %u operations in flight, the most that tenant_operations allows",
                          session->tenant->n_operations);
    if (n_pieces && n_pieces > SW_SESSION_MAX_PIECES - session->n_pieces)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                          "the session has %u pieces of batches and buffers in flight, %u more would exceed %u",
                          session->n_pieces, n_pieces, (unsigned)SW_SESSION_MAX_PIECES);
    return 0;
}

/* One memory, or all that hold the buffers of a region: these stay open. */
static int find_memories(struct sw_session *session, const struct sw_operation *operation,
                         struct sw_deferred_reply *deferred, struct sw_mem **ret, struct sw_err *err) {
    if (!operation->n_mems)
        return sw_memtable_begin(&session->mems, operation->mem, ret, &deferred->once, err);
    for (unsigned i = 0; i < operation->n_mems; i++) {
        struct sw_table_mem *once = NULL;
        const int rc = sw_memtable_begin(&session->mems, operation->mems[i], &ret[i], &once, err);
        sw_memtable_end(once);
        if (rc < 0)
            return rc;
        if (once)
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                              "memory %" PRIu32 " was handed over for one operation only", operation->mems[i]);
    }
    return 0;
}

int sw_operation_begin(struct sw_session *session, const struct sw_msg *request, const struct sw_operation *operation,
                       struct sw_deferred_reply **ret, struct sw_mem **ret_mem, struct sw_err *err) {
    const uint32_t unknown = operation->flags & ~operation->known_flags;
    if (unknown)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "flags 0x%" PRIx32 " are unknown", unknown);
    int rc = sw_session_defer_reply(session, request, ret, err);
    if (rc < 0)
        return rc;
    rc = find_memories(session, operation, *ret, ret_mem, err);
    if (rc == 0)
        rc = admit(session, request->header.type, operation->n_pieces, err);
    if (rc < 0)
        return sw_operation_refused(*ret, rc);
    (*ret)->is_operation = true;
    (*ret)->n_pieces = operation->n_pieces;
    session->n_operations++;
    session->tenant->n_operations++;
    session->n_pieces += operation->n_pieces;
    return 0;
}

int sw_operation_refused(struct sw_deferred_reply *deferred, int rc) {
    sw_memtable_end(deferred->once);
    sw_session_cancel_reply(deferred);
    return rc;
}

/* The three fields are as long in either message. */
static void set_texts(const struct sw_result *result, uint8_t codec[SW_PROTO_CODEC_BYTES],
                      uint8_t tier[SW_PROTO_TIER_BYTES], uint8_t reason[SW_PROTO_REASON_BYTES]) {
    sw_msg_set_text(codec, SW_PROTO_CODEC_BYTES, result->codec);
    sw_msg_set_text(tier, SW_PROTO_TIER_BYTES, result->tier);
    sw_msg_set_text(reason, SW_PROTO_REASON_BYTES, result->reason);
}

void sw_result_fill(struct sw_msg *ret, const struct sw_result *result, struct sw_region_id id) {
    struct sw_msg_result *m = &ret->u.result;
    sw_msg_init(ret, SW_MSG_RESULT);
    m->slot = id.slot;
    m->gen = id.gen;
    m->raw_bytes = result->raw_bytes;
    m->stored_bytes = result->stored_bytes;
    m->service_us = result->service_us;
    set_texts(result, m->codec, m->tier, m->reason);
}

void sw_result_fill_batch(struct sw_msg *ret, const struct sw_result *result, const struct sw_region_id *ids,
                          uint32_t n) {
    struct sw_msg_result_batch *m = &ret->u.result_batch;
    sw_msg_init(ret, SW_MSG_RESULT_BATCH);
    m->count = n;
    m->raw_bytes = result->raw_bytes;
    m->stored_bytes = result->stored_bytes;
    m->service_us = result->service_us;
    set_texts(result, m->codec, m->tier, m->reason);
    for (uint32_t i = 0; i < n; i++) {
        m->slot[i] = ids[i].slot;
        m->gen[i] = ids[i].gen;
    }
}

static void log_outcome(uint32_t session, const char *event, const struct sw_outcome *outcome) {
    char name[SW_SESSION_LOG_NAME_BYTES];
    sw_log(SW_LOG_OPERATION, event,
           "session=%" PRIu32 "%s region=%" PRIu32 ":%" PRIu32 " bytes=%" PRIu64 " stored=%" PRIu64 " us=%" PRIu64
           " queued_us=%" PRIu64 " codec=%s tier=%s reason=\"%s\"",
           session, sw_session_log_name(name, outcome->name), outcome->region.slot, outcome->region.gen,
           outcome->raw_bytes, outcome->stored_bytes, outcome->total_us, outcome->queued_us,
           sw_codec_name(outcome->codec), outcome->tier, outcome->reason);
}

void sw_operation_ended(const struct sw_outcome *outcome, void *arg) {
    struct sw_deferred_reply *deferred = arg;
    struct sw_session *session = deferred->session;
    struct sw_service *service = session->service;
    const char *const event = is_spill(deferred->request) ? "spill.done" : "restore.done";
    const uint32_t session_id = session->id;
    const struct sw_result result = {.raw_bytes = outcome->raw_bytes,
                                     .stored_bytes = outcome->stored_bytes,
                                     .service_us = outcome->total_us,
                                     .codec = sw_codec_name(outcome->codec),
                                     .tier = outcome->tier,
                                     .reason = outcome->reason};
    struct sw_msg msg;
    (void)snprintf(deferred->region_name, sizeof deferred->region_name, "%s", outcome->name);
    const bool is_logged = outcome->err.code == 0 && sw_tenant_may_log(session->tenant, SW_LINES_OTHER);
    if (outcome->err.code == 0)
        sw_result_fill(&msg, &result, outcome->region);
    sw_session_finish_reply(deferred, &msg, &outcome->err);
    if (is_logged)
        log_outcome(session_id, event, outcome); /* the client need not wait for the log */
    if (outcome->err.code)
        sw_service_check_devices(service);
}

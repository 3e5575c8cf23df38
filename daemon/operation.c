#include "daemon/operation.h"

#include <inttypes.h>

static int admit(const struct sw_session *session, unsigned type, unsigned n_pieces, struct sw_err *err) {
    if (session->service->draining &&
        (type == SW_MSG_SPILL || type == SW_MSG_SPILL_DURABLE || type == SW_MSG_SPILL_BATCH))
        return sw_err_set(err, -SW_ESHUTDOWN, SW_SCOPE_REQUEST, "the service is being drained: no new spills");
    if (session->n_operations >= session->service->config->max_session_operations)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                          "the session has %u operations in flight, the most allowed", session->n_operations);
    const uint64_t tenants = session->service->config->tenant_operations;
    if (tenants && session->tenant->n_operations >= tenants)
        return sw_err_set(err, -SW_ETENANTOPS, SW_SCOPE_REQUEST,
                          "the tenant has %u operations in flight, the most allowed", session->tenant->n_operations);
    if (n_pieces && n_pieces > SW_SESSION_MAX_PIECES - session->n_pieces)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                          "the session has %u pieces of batches in flight, %u more would exceed %u", session->n_pieces,
                          n_pieces, (unsigned)SW_SESSION_MAX_PIECES);
    return 0;
}

int sw_operation_begin(struct sw_session *session, const struct sw_msg *request, const struct sw_operation *operation,
                       struct sw_promise **ret, struct sw_mem **ret_mem, struct sw_err *err) {
    const uint32_t unknown = operation->flags & ~operation->known_flags;
    if (unknown)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "flags 0x%" PRIx32 " are unknown", unknown);
    int rc = sw_session_promise(session, request, ret, err);
    if (rc < 0)
        return rc;
    rc = sw_memtable_begin(&session->mems, operation->mem, ret_mem, &(*ret)->once, err);
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

int sw_operation_refused(struct sw_promise *promise, int rc) {
    sw_memtable_end(promise->once);
    sw_session_unpromise(promise);
    return rc;
}

#include "daemon/session/discard.h"

#include "daemon/session/chunks.h"

void sw_discard(struct sw_session *session, bool is_consumed, struct sw_results *results) {
    for (unsigned i = 0; i < results->n; i++) {
        struct sw_err err;
        if ((is_consumed ? sw_engine_consume : sw_engine_drop)(session->owner, results->all[i].id, &err) < 0)
            sw_results_fail(results, i, &err);
    }
}

static int check(const struct sw_msg_discard *m, struct sw_err *err) {
    int rc = sw_check_count(m->n_ids, 1, "ids", err);
    if (rc == 0)
        rc = sw_check_flags(m->flags, SW_REQ_CONSUME, err);
    return rc == 0 ? sw_check_reserved(m->reserved | m->reserved2, err) : rc;
}

int sw_on_discard(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    struct sw_session *session = arg;
    const struct sw_msg_discard *m = &request->msg->u.discard;
    struct sw_result all[SW_PROTO_MAX_ITEMS];
    struct sw_results results = {.all = all, .n = m->n_ids};
    (void)ret_reply;
    const int rc = check(m, err);
    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < m->n_ids; i++)
        all[i] = (struct sw_result){.id = {m->ids[i].slot, m->ids[i].gen}};
    sw_discard(session, m->flags & SW_REQ_CONSUME, &results);
    return sw_results_reply(session, request->msg, &results, err);
}

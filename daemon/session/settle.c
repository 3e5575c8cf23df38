/* settle.c - see settle.h. The state of the regions shows whether a request was carried out: the region of a build
 * exists, and the region of a read is IN. With `all`, the builds of an incomplete request are dropped here. Reads are
 * consumed only after all were back, so one region that is IN speaks for all. */
#include "daemon/session/settle.h"

#include "daemon/session/chunks.h"
#include <inttypes.h>

/* A region, if it exists. */
struct found {
    bool is_there;
    struct sw_region_info info;
};

static struct found look(struct sw_session *session, struct sw_region_id id) {
    struct found found = {0};
    found.is_there = sw_engine_query(session->owner, id, &found.info, NULL) == 0;
    return found;
}

static bool is_lost(const struct found *found) {
    return found->is_there && found->info.state == SW_REGION_LOST;
}

/* ---- builds ------------------------------------------------------------------------------------------------------ */

/* Returns the error of a build that was not recorded, or whose stored bytes the restart has lost. The client still has
 * the bytes, except those of a pack. */
static int build_error(bool is_torn, struct sw_err *err) {
    if (is_torn)
        return sw_err_set(err, -SW_ELOST, SW_SCOPE_REGION,
                          "the service restarted during the pack: the bytes in the memory are lost");
    return sw_err_set(err, -SW_ERESTARTED, SW_SCOPE_REQUEST,
                      "the service restarted: nothing was stored, repeat the spill");
}

static void take_back(struct sw_session *session, struct sw_result *result) {
    (void)sw_engine_drop(session->owner, result->id, NULL);
    result->id = (struct sw_region_id){0};
}

static void settle_builds(struct sw_session *session, const struct sw_settle_query *query, struct sw_results *results) {
    struct sw_region_id ids[SW_PROTO_MAX_ITEMS];
    struct sw_err err;
    bool all_built = true, any_torn = false;
    sw_engine_find_by_request(session->owner, query->seq, ids, results->n);
    for (unsigned i = 0; i < results->n; i++) {
        const struct found found = look(session, ids[i]);
        const bool is_built = found.is_there && !is_lost(&found), is_torn = is_lost(&found) && found.info.in_place;
        all_built &= is_built;
        any_torn |= is_torn;
        results->all[i].id = ids[i];
        if (is_built) {
            sw_result_of_region(&results->all[i], ids[i], &found.info);
        } else if (!query->all) {
            (void)build_error(is_torn, &err);
            take_back(session, &results->all[i]);
            sw_results_fail(results, i, &err);
        }
    }
    if (all_built || !query->all)
        return;
    for (unsigned i = 0; i < results->n; i++)
        take_back(session, &results->all[i]);
    (void)build_error(any_torn, &err);
    sw_results_fail_all(results, &err);
}

/* ---- reads ------------------------------------------------------------------------------------------------------- */

static int read_error(const struct found *found, bool is_of_several, struct sw_err *err) {
    if (!found->is_there)
        return sw_err_set(err, -SW_ESTALE, SW_SCOPE_REQUEST,
                          is_of_several ? "the service restarted: some of the regions do not exist"
                                        : "the service restarted: the region does not exist");
    if (is_lost(found))
        return sw_err_set(err, -SW_ELOST, SW_SCOPE_REGION,
                          "the service restarted: the region is lost, or was being unpacked");
    return sw_err_set(err, -SW_ERESTARTED, SW_SCOPE_REQUEST,
                      "the service restarted: the region is still stored, repeat the restore");
}

/* Returns the region that decides the common error: a missing one, else a lost one. */
static const struct found *worst(const struct found *found, unsigned n) {
    const struct found *lost = NULL;
    for (unsigned i = 0; i < n; i++) {
        if (!found[i].is_there)
            return &found[i];
        lost = is_lost(&found[i]) ? &found[i] : lost;
    }
    return lost ? lost : &found[0];
}

static void settle_reads(struct sw_session *session, const struct sw_settle_query *query, struct sw_results *results) {
    struct found found[SW_PROTO_MAX_ITEMS];
    found[0] = (struct found){0};
    struct sw_err err;
    bool any_in = false;
    for (unsigned i = 0; i < results->n; i++) {
        found[i] = look(session, results->all[i].id);
        any_in |= found[i].is_there && found[i].info.state == SW_REGION_IN;
    }
    if (query->all && !any_in) {
        (void)read_error(worst(found, results->n), results->n > 1, &err);
        sw_results_fail_all(results, &err);
        return;
    }
    for (unsigned i = 0; i < results->n; i++) {
        if (!query->all && !(found[i].is_there && found[i].info.state == SW_REGION_IN)) {
            (void)read_error(&found[i], false, &err);
            sw_results_fail(results, i, &err);
        } else if (found[i].is_there) {
            sw_result_of_region(&results->all[i], results->all[i].id, &found[i].info);
            (void)sw_engine_consume(session->owner, results->all[i].id, NULL);
        }
    }
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

int sw_settle_check(const struct sw_session *session, struct sw_err *err) {
    if (session->may_settle)
        return 0;
    return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "the session was not resumed, or has sent its last SETTLE");
}

void sw_settle(struct sw_session *session, const struct sw_settle_query *query, struct sw_results *results) {
    (query->is_build ? settle_builds : settle_reads)(session, query, results);
}

void sw_settle_end(struct sw_session *session) {
    session->may_settle = false;
    sw_engine_forget_in(session->owner);
}

static int check(const struct sw_msg_settle *m, struct sw_err *err) {
    int rc = sw_check_reserved(m->reserved, err);
    if (rc == 0 && m->type == 0 && (m->seq || m->flags || m->n_ids))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "the last SETTLE names no request");
    if (rc < 0 || m->type == 0)
        return rc;
    if (m->type != SW_MSG_BUILD && m->type != SW_MSG_READ)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "request of type %" PRIu32 " cannot be settled", m->type);
    rc = sw_check_flags(m->flags, SW_REQ_ALL, err);
    return rc == 0 ? sw_check_count(m->n_ids, 1, "ids", err) : rc;
}

int sw_on_settle(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    struct sw_session *session = arg;
    const struct sw_msg_settle *m = &request->msg->u.settle;
    struct sw_result all[SW_PROTO_MAX_ITEMS];
    struct sw_results results = {.all = all, .n = m->n_ids};
    int rc = sw_settle_check(session, err);
    if (rc == 0)
        rc = check(m, err);
    if (rc < 0)
        return rc;
    if (m->type == 0) {
        sw_settle_end(session);
        sw_msg_init(ret_reply, SW_MSG_OK);
        return SW_REPLY_NOW;
    }
    for (unsigned i = 0; i < m->n_ids; i++)
        all[i] = (struct sw_result){.id = {m->ids[i].slot, m->ids[i].gen}};
    const struct sw_settle_query query = {
        .is_build = m->type == SW_MSG_BUILD, .all = m->flags & SW_REQ_ALL, .seq = m->seq};
    sw_settle(session, &query, &results);
    return sw_results_reply(session, request->msg, &results, err);
}

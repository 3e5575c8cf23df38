/* settle.c - see settle.h. A request was carried out if its regions say so: those that a spill made are there, one that
 * a restore gave back is IN. A batch is all or nothing: the records of a spill are complete or dropped here, and its
 * regions are consumed only after all of a restore's pieces are back, so that one that is IN speaks for all. */
#include "daemon/session/settle.h"

#include "daemon/session/operation.h"
#include <inttypes.h>
#include <string.h>

struct settled {
    struct sw_session *session;
    const struct sw_msg_settle9 *ask;
    unsigned n_there, n_in, n_lost, n_torn;
    struct sw_region_id ids[SW_PROTO_MAX_BATCH];
    bool there[SW_PROTO_MAX_BATCH];
    uint64_t raw_bytes, stored_bytes;
    struct sw_region_info info; /* of the last one */
};

static bool is_spill(const struct sw_msg_settle9 *ask) {
    return ask->type == SW_MSG_SPILL || ask->type == SW_MSG_SPILL_BATCH || ask->type == SW_MSG_SPILL_BUFFERS;
}

static bool is_batch(const struct sw_msg_settle9 *ask) {
    return ask->type == SW_MSG_SPILL_BATCH || ask->type == SW_MSG_RESTORE_BATCH;
}

static void look(struct settled *s, uint32_t i) {
    struct sw_owner *owner = s->session->owner;
    if (!is_spill(s->ask))
        s->ids[i] = (struct sw_region_id){s->ask->slot[i], s->ask->gen[i]};
    if (sw_engine_query(owner, s->ids[i], &s->info, NULL) < 0)
        return;
    s->there[i] = true;
    s->n_there++;
    s->n_in += s->info.state == SW_REGION_IN;
    s->n_lost += s->info.state == SW_REGION_LOST;
    s->n_torn += s->info.state == SW_REGION_LOST && s->info.in_place;
    s->raw_bytes += s->info.raw_bytes;
    s->stored_bytes += s->info.stored_bytes;
}

static void drop_all(struct settled *s) {
    for (uint32_t i = 0; i < s->ask->count; i++)
        if (s->there[i])
            (void)sw_engine_drop(s->session->owner, s->ids[i], NULL);
}

/* A spill whose reply has not come is taken back where it was not carried out as a whole, or where a restart has lost
 * what it stored: its client still has the bytes, but for those of a pack. */
static int not_done(struct settled *s, struct sw_err *err) {
    const struct sw_msg_settle9 *ask = s->ask;
    if (is_spill(ask)) {
        drop_all(s);
        if (s->n_torn)
            return sw_err_set(err, -SW_ELOST, SW_SCOPE_REGION, "restarted while packing: the memory's bytes are lost");
        return sw_err_set(err, -SW_ERESTARTED, SW_SCOPE_REQUEST, "restarted: nothing was stored, repeat the spill");
    }
    if (s->n_there < ask->count)
        return sw_err_set(err, -SW_ESTALE, SW_SCOPE_REQUEST, "restarted: not all of the regions exist");
    if (s->n_lost)
        return sw_err_set(err, -SW_ELOST, SW_SCOPE_REGION,
                          "restarted: bytes are lost that were being unpacked, or before");
    return sw_err_set(err, -SW_ERESTARTED, SW_SCOPE_REQUEST, "restarted: still stored, repeat the restore");
}

static void fill_reply(const struct settled *s, struct sw_msg *ret) {
    const struct sw_result result = {.raw_bytes = s->raw_bytes,
                                     .stored_bytes = s->stored_bytes,
                                     .codec = sw_codec_name(s->info.codec),
                                     .tier = s->info.tier,
                                     .reason = s->info.reason};
    if (is_batch(s->ask))
        sw_result_fill_batch(ret, &result, s->ids, s->ask->count);
    else
        sw_result_fill(ret, &result, s->ids[0]);
}

int sw_on_settle(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    struct settled s = {.session = arg, .ask = &request->msg->u.settle9};
    const uint32_t count = s.ask->count, most = is_batch(s.ask) ? SW_PROTO_MAX_BATCH : 1;
    if (!s.session->may_settle)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "the session has not come back, or has settled all");
    if (s.ask->type == 0) {
        s.session->may_settle = false;
        sw_engine_forget_in(s.session->owner);
        sw_msg_init(ret_reply, SW_MSG_OK);
        return SW_REPLY_NOW;
    }
    if (!is_spill(s.ask) && s.ask->type != SW_MSG_RESTORE && s.ask->type != SW_MSG_RESTORE_BATCH &&
        s.ask->type != SW_MSG_RESTORE_BUFFERS)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "request of type %" PRIu32 " cannot be settled",
                          s.ask->type);
    if (count < 1 || count > most)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%" PRIu32 " pieces to settle, must be 1 to %" PRIu32,
                          count, most);
    if (is_spill(s.ask))
        sw_engine_find_made(s.session->owner, s.ask->seq, s.ids, count);
    for (uint32_t i = 0; i < count; i++)
        look(&s, i);
    const bool done = is_spill(s.ask) ? s.n_there == count && !s.n_lost : s.n_in > 0;
    if (!done)
        return not_done(&s, err);
    fill_reply(&s, ret_reply);
    for (uint32_t i = 0; !is_spill(s.ask) && i < count; i++)
        if (s.there[i])
            (void)sw_engine_consume(s.session->owner, s.ids[i], NULL);
    return SW_REPLY_NOW;
}

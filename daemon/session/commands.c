#include "daemon/session/commands.h"

#include "base/log.h"
#include "daemon/session/build.h"
#include "daemon/session/coder.h"
#include "daemon/session/discard.h"
#include "daemon/session/inspect.h"
#include "daemon/session/read.h"
#include "daemon/session/results.h"
#include "daemon/session/session.h"
#include "daemon/session/settle.h"
#include "daemon/session/stats.h"
#include "daemon/session/version9.h"
#include "ipc/spillway.h"
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

_Static_assert((int)SPILLWAY_BYTES == (int)SW_VALUE_NONE && (int)SPILLWAY_DEC128 == (int)SW_VALUE_NR - 1,
               "the API and the codecs number value types alike");

/* ---- memories ---------------------------------------------------------------------------------------------------- */

static void on_mem_mapped(const struct sw_err *err, void *arg) {
    struct sw_msg msg;
    sw_msg_init(&msg, SW_MSG_OK);
    sw_session_finish_reply(arg, &msg, err);
}

static void on_mem_closed(void *arg) {
    on_mem_mapped(NULL, arg);
}

/* ---- handlers ---------------------------------------------------------------------------------------------------- */

_Static_assert(SW_PROTO_TOKEN_BYTES == SW_TOKEN_BYTES, "tokens have the same length on the wire and in the engine");

static int new_token(uint8_t ret[SW_TOKEN_BYTES], struct sw_err *err) {
    if (getrandom(ret, SW_TOKEN_BYTES, 0) == SW_TOKEN_BYTES)
        return 0;
    return sw_err_set(err, -SW_EIO, SW_SCOPE_SESSION, "getrandom() gave no bytes for a token");
}

/* Resumes the session of the client's token, or gives the session a new token. Without a catalogue it gets none. */
static int name_session(struct sw_session *session, const struct sw_msg_hello *hello, struct sw_msg_hello_ok *ret,
                        struct sw_err *err) {
    static const uint8_t none[SW_TOKEN_BYTES];
    struct sw_service *service = session->service;
    const uint32_t uid = (uint32_t)session->peer.uid;
    if (!service->catalogue)
        return 0;
    /* A successor counts from the end of its start, which will take about as long as this process's start. */
    ret->reconnect_ms = (uint32_t)(service->config->reconnect_grace_s * 1000 + service->start_us / 1000);
    struct sw_owner *owner =
        memcmp(hello->token, none, sizeof none) ? sw_owner_claim(service->engine, uid, hello->token) : NULL;
    if (owner) {
        ret->resumed = 1;
        memcpy(ret->token, hello->token, sizeof ret->token);
        sw_session_resume(session, owner);
        return 0;
    }
    struct sw_process process;
    sw_peer_identify(&process, session->socket, &session->peer);
    const int rc = new_token(ret->token, err);
    return rc < 0 ? rc : sw_owner_name(session->owner, uid, &process, ret->token, err);
}

static int on_hello(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    struct sw_session *session = arg;
    const struct sw_msg_hello *hello = &request->msg->u.hello;
    const uint16_t version = request->msg->header.version;
    if (hello->version != version)
        return sw_err_set(err, -SW_EVERSION, SW_SCOPE_SESSION,
                          "client speaks version %" PRIu32 ", in a packet of version %u; the service speaks %u and %u",
                          hello->version, (unsigned)version, (unsigned)SW_PROTO_OLDEST_VERSION,
                          (unsigned)SW_PROTO_VERSION);
    char client[300];
    sw_msg_init(ret_reply, SW_MSG_HELLO_OK);
    const int rc = name_session(session, hello, &ret_reply->u.hello_ok, err);
    if (rc < 0)
        return rc;
    session->greeted = true;
    session->version = version;
    sw_session_forget_seqs(session,
                           request->msg->header.seq); /* the client went on counting while there was no service */
    sw_msg_text(session->client, sizeof session->client, hello->client, sizeof hello->client);
    if (sw_tenant_may_log(session->tenant, SW_LINES_OTHER))
        sw_log(SW_LOG_INFO, "session.open", "session=%" PRIu32 " pid=%d uid=%u client=%s resumed=%s", session->id,
               (int)session->peer.pid, (unsigned)session->peer.uid,
               sw_log_quote(client, sizeof client, session->client), ret_reply->u.hello_ok.resumed ? "yes" : "no");
    ret_reply->u.hello_ok.version = version;
    ret_reply->u.hello_ok.session = session->id;
    ret_reply->u.hello_ok.max_in_flight = (uint32_t)session->service->config->max_session_operations;
    ret_reply->u.hello_ok.max_buffers = SW_SESSION_MAX_BUFFERS;
    sw_msg_set_text(ret_reply->u.hello_ok.server, sizeof ret_reply->u.hello_ok.server, "spillwayd " SW_VERSION);
    return SW_REPLY_NOW;
}

/* Answers a MEM_OPEN or MEM_PARTS; rc is the table's return value. A memory that stays is mapped before the answer to
 * its last packet, so that the client learns early what is wrong with it. */
static int memory_taken(struct sw_session *session, const struct sw_msg *msg, uint32_t mem, int rc,
                        struct sw_msg *ret_reply, struct sw_err *err) {
    struct sw_deferred_reply *deferred = NULL;
    sw_msg_init(ret_reply, SW_MSG_OK);
    if (rc <= 0)
        return rc;
    rc = sw_session_defer_reply(session, msg, &deferred, err);
    if (rc < 0)
        return rc;
    sw_memtable_map(&session->mems, mem, on_mem_mapped, deferred);
    return SW_REPLY_LATER;
}

static int on_mem_open(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    struct sw_session *session = arg;
    const struct sw_msg_mem_open *open = &request->msg->u.mem_open;
    return memory_taken(session, request->msg, open->mem, sw_memtable_open(&session->mems, open, err), ret_reply, err);
}

static int on_mem_parts(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    struct sw_session *session = arg;
    const struct sw_msg_mem_parts *parts = &request->msg->u.mem_parts;
    const int rc = request->fds_lost ? sw_memtable_parts_lost(&session->mems, parts, err)
                                     : sw_memtable_parts(&session->mems, parts, request->fds, request->n_fds, err);
    return memory_taken(session, request->msg, parts->mem, rc, ret_reply, err);
}

static int on_order_page(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    struct sw_session *session = arg;
    sw_msg_init(ret_reply, SW_MSG_OK);
    return sw_orders_take(&session->orders, request, &session->tenant->quota.kept, err);
}

static int on_mem_close(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    struct sw_session *session = arg;
    struct sw_deferred_reply *deferred = NULL;
    int rc = sw_session_defer_reply(session, request->msg, &deferred, err);
    if (rc < 0)
        return rc;
    rc = sw_memtable_close(&session->mems, request->msg->u.mem_close.mem, on_mem_closed, deferred, err);
    if (rc > 0)
        return SW_REPLY_LATER;
    sw_session_cancel_reply(deferred);
    sw_msg_init(ret_reply, SW_MSG_OK);
    return rc;
}

static int check_name(const uint8_t name[SW_PROTO_NAME_BYTES], struct sw_err *err) {
    if (name[SW_PROTO_NAME_BYTES - 1])
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a region's name must end in a zero");
    return 0;
}

static int on_adopt(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    struct sw_session *session = arg;
    const uint8_t *name = request->msg->u.adopt.name;
    struct sw_region_info info = {0};
    struct sw_region_id id = {0};
    (void)ret_reply;
    int rc = check_name(name, err);
    if (rc == 0)
        rc = sw_tenant_adopt(session->service, session->tenant, session->owner, (const char *)name, &id, err);
    if (rc == 0)
        rc = sw_engine_query(session->owner, id, &info, err);
    if (rc < 0)
        return rc;
    char text[SW_SESSION_LOG_NAME_BYTES];
    if (sw_tenant_may_log(session->tenant, SW_LINES_OTHER))
        sw_log(SW_LOG_INFO, "region.adopted", "session=%" PRIu32 "%s region=%" PRIu32 ":%" PRIu32, session->id,
               sw_session_log_name(text, (const char *)name), id.slot, id.gen);
    struct sw_result result = {0};
    sw_result_of_region(&result, id, &info);
    return sw_results_reply(session, request->msg, &(struct sw_results){.all = &result, .n = 1}, err);
}

_Static_assert((int)SW_PROTO_MAX_ITEMS == (int)SW_LIST_MAX, "a packet has room for the longest list");

/* A reply, and the array that it borrows. */
struct listing {
    struct sw_msg msg;
    struct sw_wire_listed items[SW_PROTO_MAX_ITEMS];
};

static void fill_listing(struct listing *ret, const struct sw_listed *all, unsigned n) {
    sw_msg_init(&ret->msg, SW_MSG_LISTING);
    for (unsigned i = 0; i < n; i++) {
        struct sw_wire_listed *item = &ret->items[i];
        *item = (struct sw_wire_listed){.raw_bytes = all[i].info.raw_bytes,
                                        .stored_bytes = all[i].info.stored_bytes,
                                        .durability = (uint32_t)all[i].info.durability,
                                        .slot = all[i].id.slot,
                                        .gen = all[i].id.gen};
        sw_msg_set_text((uint8_t *)item->name, sizeof item->name, all[i].name);
        sw_msg_set_text((uint8_t *)item->state, sizeof item->state, sw_region_state_name(all[i].info.state));
        sw_msg_set_text((uint8_t *)item->tier, sizeof item->tier, all[i].info.tier);
    }
    ret->msg.u.listing.n_items = (uint16_t)n;
    ret->msg.u.listing.items = ret->items;
}

static int on_list(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    struct sw_session *session = arg;
    const struct sw_msg_list *list = &request->msg->u.list;
    struct sw_listed all[SW_LIST_MAX];
    struct listing reply;
    (void)ret_reply;
    int rc = check_name(list->after, err);
    if (rc == 0 && (list->max < 1 || list->max > SW_LIST_MAX))
        rc = sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "max is %" PRIu32 ", must be 1 to %d", list->max,
                        SW_LIST_MAX);
    if (rc == 0)
        rc = sw_tenant_enable_durable(session->service, session->tenant, session->owner, err);
    if (rc < 0)
        return rc;
    fill_listing(&reply, all, sw_engine_list(session->owner, (const char *)list->after, all, list->max));
    sw_session_reply_now(session, request->msg, &reply.msg);
    return SW_REPLY_SENT;
}

static int on_advise(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    static const enum sw_advice known[] = {[SPILLWAY_ADVICE_PRIORITY] = SW_ADVISE_PRIORITY,
                                           [SPILLWAY_ADVICE_PIN] = SW_ADVISE_PIN,
                                           [SPILLWAY_ADVICE_PREFETCH] = SW_ADVISE_PREFETCH};
    struct sw_session *session = arg;
    const struct sw_msg_advise *advise = &request->msg->u.advise;
    sw_msg_init(ret_reply, SW_MSG_OK);
    if (advise->advice >= sizeof known / sizeof known[0])
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "advice %" PRIu32 " is unknown", advise->advice);
    return sw_engine_advise(session->owner, (struct sw_region_id){.slot = advise->slot, .gen = advise->gen},
                            known[advise->advice], advise->value, err);
}

static int on_status(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    struct sw_session *session = arg;
    (void)request;
    (void)err;
    sw_msg_init(ret_reply, SW_MSG_STATUS_OK);
    sw_stats_status(session->service, &ret_reply->u.status_ok);
    return SW_REPLY_NOW;
}

const struct sw_command sw_commands[] = {
    {on_hello, SW_MSG_HELLO, false, 0},
    {on_mem_open, SW_MSG_MEM_OPEN, false, 0},
    {on_mem_parts, SW_MSG_MEM_PARTS, true, 0},
    {on_mem_close, SW_MSG_MEM_CLOSE, false, 0},
    {on_order_page, SW_MSG_ORDER_PAGE, true, 0},
    {on_status, SW_MSG_STATUS, false, 0},
    {on_advise, SW_MSG_ADVISE, false, 0},
    {on_adopt, SW_MSG_ADOPT, false, 0},
    {on_list, SW_MSG_LIST, false, 10},
    {sw_on_coder, SW_MSG_CODER, false, 10},
    {sw_on_build, SW_MSG_BUILD, false, 10},
    {sw_on_read, SW_MSG_READ, false, 10},
    {sw_on_discard, SW_MSG_DISCARD, false, 10},
    {sw_on_inspect, SW_MSG_INSPECT, false, 10},
    {sw_on_settle, SW_MSG_SETTLE, false, 10},
    {sw_on_spill9, SW_MSG_SPILL, false, 9},
    {sw_on_spill_durable9, SW_MSG_SPILL_DURABLE, false, 9},
    {sw_on_spill_batch9, SW_MSG_SPILL_BATCH, false, 9},
    {sw_on_spill_buffers9, SW_MSG_SPILL_BUFFERS, false, 9},
    {sw_on_restore9, SW_MSG_RESTORE, false, 9},
    {sw_on_restore_batch9, SW_MSG_RESTORE_BATCH, false, 9},
    {sw_on_restore_buffers9, SW_MSG_RESTORE_BUFFERS, false, 9},
    {sw_on_drop9, SW_MSG_DROP, false, 9},
    {sw_on_drop_batch9, SW_MSG_DROP_BATCH, false, 9},
    {sw_on_consume9, SW_MSG_CONSUME, false, 9},
    {sw_on_query9, SW_MSG_QUERY, false, 9},
    {sw_on_query_buffers9, SW_MSG_QUERY_BUFFERS, false, 9},
    {sw_on_query_packed9, SW_MSG_QUERY_PACKED, false, 9},
    {sw_on_settle9, SW_MSG_SETTLE9, false, 9},
};
const size_t sw_commands_count = sizeof sw_commands / sizeof sw_commands[0];

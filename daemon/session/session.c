#include "daemon/session/session.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/closer.h"
#include "base/log.h"
#include "daemon/session/coder.h"
#include "ipc/dispatch.h"
#include "spill/operator.h"
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>

enum {
    PACKETS_PER_TURN = 32, /* of all sessions of a tenant, before other tenants have their turn */
    HANDLES = 4,           /* of the loop, for each session: poll and timers */
    CLOSING_MS = 10,       /* pause of reading while too many descriptors of the peer's uid wait to be closed */
    FORGET_SEQS = 1 << 30, /* a quarter of all seqs: half of all are forgotten at a time, so the next ones are free */
    MAX_SEQ_STEP = 1 << 20 /* otherwise a client could make each packet forget seqs, which visits all of its regions */
};

/* A reply that waits until the socket has room. */
struct queued {
    struct sw_list node;
    size_t bytes;
    uint8_t packet[];
};

static void on_poll(uv_poll_t *poll, int status, int events);
static void on_no_hello(uv_timer_t *timer);

static struct sw_budget *kept(const struct sw_session *session) {
    return &session->tenant->quota.kept;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* Tells a client that has hung up, but still reads, that its session has ended. Without that, the connection may have
 * ended with this process, and the next one keeps the session. */
static void say_ended(const struct sw_session *session) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    struct sw_msg msg;
    sw_msg_init(&msg, SW_MSG_OK);
    msg.header.version = session->version;
    (void)sw_packet_send(session->socket, packet, sw_msg_encode(&msg, packet), NULL, 0);
}

/* Frees the session when no callback can use it any more. */
static void end_if_done(struct sw_session *session) {
    if (session->open_handles || !session->owner_closed || session->deferred.n)
        return;
    if (session->peer_closed && session->version == SW_PROTO_VERSION)
        say_ended(session);
    /* Hang up only now: a client assumes that the service does not use its memory after the connection's end. */
    sw_peer_hang_up(session->socket);
    sw_memtable_fini(&session->mems);
    sw_orders_fini(&session->orders);
    sw_budget_give(kept(session), session->kept_bytes);
    sw_coder_release(session);
    sw_tenant_leave(session->tenant);
    session->closed(session, session->closed_arg);
    sw_free(session);
}

static void on_handle_closed(uv_handle_t *handle) {
    struct sw_session *session = handle->data;
    session->open_handles--;
    end_if_done(session);
}

static void on_owner_closed(void *arg) {
    struct sw_session *session = arg;
    session->owner_closed = true;
    end_if_done(session);
}

static void drop_queue(struct sw_session *session) {
    struct sw_list *node;
    while ((node = sw_list_take_first(&session->queue)))
        sw_free(SW_CONTAINER_OF(node, struct queued, node));
    sw_budget_give(kept(session), session->queued_bytes);
    session->queued_bytes = session->n_queued = 0;
}

void sw_session_close(struct sw_session *session, const char *why) {
    if (session->closing)
        return;
    session->closing = true;
    if (sw_tenant_may_log(session->tenant, SW_LINES_OTHER))
        sw_log(SW_LOG_INFO, "session.close", "session=%" PRIu32 " why=\"%s\" requests=%" PRIu64 " us=%" PRIu64,
               session->id, why, session->n_requests, sw_clock_us() - session->opened_us);
    uv_close((uv_handle_t *)&session->poll, on_handle_closed);
    uv_close((uv_handle_t *)&session->timer, on_handle_closed);
    uv_close((uv_handle_t *)&session->hello_timer, on_handle_closed);
    uv_close((uv_handle_t *)&session->opens.timer, on_handle_closed);
    drop_queue(session);
    session->mems.owner_closing = true;
    sw_opens_close(session);
    if (session->service->is_stopping)
        sw_owner_leave(session->owner, on_owner_closed, session);
    else
        sw_owner_close(session->owner, on_owner_closed, session);
}

static void close_for_peer(struct sw_session *session) {
    session->peer_closed = !session->service->is_stopping;
    sw_session_close(session, "peer closed");
}

void sw_session_resume(struct sw_session *session, struct sw_owner *owner) {
    sw_owner_close(session->owner, NULL, NULL); /* it owns nothing yet */
    session->owner = session->mems.owner = owner;
    sw_owner_set_tag(owner, session);
    sw_tenant_resume(session->tenant);
    session->may_settle = true;
}

/* Returns whether to read requests. A peer may send as many requests as it may have in flight before it reads the first
 * reply. */
static bool may_read(const struct sw_session *session) {
    return session->n_queued < session->service->config->max_session_operations;
}

static void watch(struct sw_session *session) {
    const bool reads = may_read(session) && !uv_is_active((uv_handle_t *)&session->timer);
    const int events = (reads ? UV_READABLE : 0) | (session->n_queued > 0 ? UV_WRITABLE : 0);
    SW_ASSERT(uv_poll_start(&session->poll, events | UV_DISCONNECT, on_poll) == 0);
}

static void on_pause_over(uv_timer_t *timer) {
    watch(timer->data);
}

/* Returns whether too many descriptors wait to be closed. Then sessions of uids with waiting descriptors are not read
 * from, while others are. */
static bool is_closing_too_many(const struct sw_session *session) {
    const struct sw_fd_budget *budget = &session->service->fds;
    const unsigned waiting = sw_closer_waiting((uint32_t)session->peer.uid);
    return waiting > budget->max_closing / 2 || (waiting && sw_closer_waiting_all() > budget->max_closing);
}

static void close_fds(const struct sw_session *session, const int *fds, unsigned n_fds) {
    for (unsigned i = 0; i < n_fds; i++)
        sw_closer_close(fds[i], (uint32_t)session->peer.uid);
}

static void closed_unopened(struct sw_session *session, void *arg) {
    (void)session;
    (void)arg;
}

/* Ends a session whose socket libuv cannot watch. `closed` of the caller does not run. */
static int give_up(struct sw_session *session, int uv_error, struct sw_err *err) {
    session->closing = true;
    session->closed = closed_unopened;
    (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_SESSION, "the socket cannot be watched: %s", uv_strerror(uv_error));
    sw_session_refuse(session->socket, err);
    session->socket = -1;
    sw_owner_close(session->owner, on_owner_closed, session);
    return -SW_ENOMEM;
}

/* Sends an error about the connection, in the oldest version, which clients of all versions read. If the socket has no
 * room for it, the peer only sees the end. */
static void send_last_error(int socket, const struct sw_err *err) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    struct sw_msg msg;
    sw_msg_from_err(&msg, 0, err);
    msg.header.version = SW_PROTO_OLDEST_VERSION;
    (void)sw_packet_send(socket, packet, sw_msg_encode(&msg, packet), NULL, 0);
}

void sw_session_refuse(int socket, const struct sw_err *err) {
    send_last_error(socket, err);
    sw_peer_hang_up(socket);
}

void sw_session_stop(struct sw_session *session) {
    struct sw_err err;
    (void)sw_err_set(&err, -SW_ESHUTDOWN, SW_SCOPE_SESSION, "the service has been stopped");
    if (!session->closing && sw_list_empty(&session->queue))
        send_last_error(session->socket, &err);
    sw_session_close(session, "daemon is stopping");
}

/* Counts the session and the replies that the kernel buffers for it. */
static int count_session(struct sw_session *session, int socket, struct sw_err *err) {
    int buffer_bytes = 0;
    socklen_t length = sizeof buffer_bytes;
    (void)getsockopt(socket, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, &length);
    const uint64_t bytes = sizeof *session + (buffer_bytes > 0 ? (uint64_t)buffer_bytes : 0);
    const int rc = sw_budget_take(kept(session), bytes, "a session", err);
    session->kept_bytes = rc ? 0 : bytes;
    if (rc && err)
        err->scope = SW_SCOPE_SESSION;
    return rc;
}

/* Makes a session for the peer, if its user is allowed to have one. */
static int session_new(struct sw_session **ret, struct sw_service *service, int socket, struct sw_err *err) {
    struct sw_session *session = sw_alloc(sizeof *session);
    if (!session)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_SESSION, "out of memory for a session");
    int rc = sw_peer_init(&session->peer, socket, err);
    if (rc == 0)
        rc = sw_tenant_allowed(service, &session->peer, socket, err);
    if (rc == 0)
        rc = sw_tenant_join(service, &session->peer, socket, &session->tenant, err);
    if (rc == 0)
        rc = count_session(session, socket, err);
    if (rc == 0)
        rc = sw_owner_open(service->engine, &session->owner, err);
    if (rc < 0) {
        if (session->tenant)
            sw_budget_give(kept(session), session->kept_bytes);
        sw_tenant_leave(session->tenant);
        sw_free(session);
        return rc;
    }
    sw_owner_set_quota(session->owner, &session->tenant->quota);
    *ret = session;
    return 0;
}

int sw_session_open(struct sw_session **ret, struct sw_service *service, int socket, uint32_t id,
                    void (*closed)(struct sw_session *session, void *arg), void *arg, struct sw_err *err) {
    struct sw_session *session = NULL;
    const int rc_new = session_new(&session, service, socket, err);
    if (rc_new < 0) {
        sw_session_refuse(socket, err);
        return rc_new;
    }
    sw_owner_set_tag(session->owner, session);
    session->service = service;
    session->id = id;
    session->socket = socket;
    session->version = SW_PROTO_OLDEST_VERSION;
    session->opened_us = sw_clock_us();
    session->closed = closed;
    session->closed_arg = arg;
    sw_list_init(&session->node);
    sw_list_init(&session->queue);
    sw_idmap_init(&session->deferred);
    sw_opens_init(session);
    sw_memtable_init(&session->mems, session->owner, &session->tenant->fds, &service->fds, kept(session),
                     (unsigned)service->config->max_session_memories);
    session->poll.data = session->timer.data = session->hello_timer.data = session;
    const int rc = uv_poll_init(service->loop, &session->poll, socket);
    if (rc < 0)
        return give_up(session, rc, err);
    SW_ASSERT(uv_timer_init(service->loop, &session->timer) == 0);
    SW_ASSERT(uv_timer_init(service->loop, &session->hello_timer) == 0);
    SW_ASSERT(uv_timer_init(service->loop, &session->opens.timer) == 0);
    if (service->hello_ms)
        (void)uv_timer_start(&session->hello_timer, on_no_hello, service->hello_ms, 0);
    session->open_handles = HANDLES;
    watch(session);
    *ret = session;
    return 0;
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

enum {
    MAX_RESULTS_BYTES = 16 + SW_PROTO_MAX_ITEMS * (sizeof(struct sw_wire_result) + sizeof(struct sw_wire_buffer)) +
                        SW_PROTO_MAX_TEXTS * sizeof(struct sw_wire_text) + sizeof((struct sw_msg_error *)NULL)->text,
    MAX_LISTING_BYTES = 8 + SW_PROTO_MAX_ITEMS * sizeof(struct sw_wire_listed),
    MAX_REPLY_BYTES = MAX_LISTING_BYTES
};
_Static_assert((int)MAX_REPLY_BYTES >= (int)MAX_RESULTS_BYTES, "the longest reply of version 10");

/* Returns the bound of the queue: twice the longest replies to all requests that may be in flight, and to 1024 closed
 * memories. In version 9 the longest reply answers a batch, and the buffers in flight limit the number of batches. */
static size_t max_queued_bytes(const struct sw_session *session) {
    const bool is_9 = session->version < SW_PROTO_VERSION;
    const size_t each = sizeof(struct queued) + SW_PROTO_HEADER_BYTES,
                 operations = (size_t)session->service->config->max_session_operations,
                 n_longest = is_9 && operations > SW_SESSION_MAX_BUFFERS ? SW_SESSION_MAX_BUFFERS : operations,
                 longest = is_9 ? sizeof(struct sw_msg_result_batch) : MAX_REPLY_BYTES;
    return 2 * (n_longest * (each + longest) + operations * (each + sizeof(struct sw_msg_error)) +
                1024 * (each + sizeof(struct sw_msg_ok)));
}

static int enqueue(struct sw_session *session, const uint8_t *packet, size_t bytes) {
    const size_t cost = sizeof(struct queued) + bytes;
    int rc;
    if (session->queued_bytes + cost > max_queued_bytes(session))
        return -SW_ELIMIT;
    struct queued *queued = sw_budget_alloc(kept(session), cost, "a reply", &rc, NULL);
    if (!queued)
        return rc == -SW_ENOMEM ? rc : -SW_ELIMIT;
    queued->bytes = bytes;
    memcpy(queued->packet, packet, bytes);
    sw_list_append(&session->queue, &queued->node);
    session->n_queued++;
    session->queued_bytes += cost;
    return 0;
}

static void reply(struct sw_session *session, struct sw_msg *msg) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    if (session->closing)
        return;
    msg->header.version = session->version;
    const size_t bytes = sw_msg_encode(msg, packet);
    int rc = sw_list_empty(&session->queue) ? sw_packet_send(session->socket, packet, bytes, NULL, 0) : -SW_EAGAIN;
    if (rc == -SW_EAGAIN) {
        rc = enqueue(session, packet, bytes);
        if (rc == 0 && (session->n_queued == 1 || !may_read(session)))
            watch(session);
    }
    if (rc == -SW_ELIMIT)
        sw_session_close(session, "replies are not read");
    else if (rc < 0)
        sw_session_close(session, rc == -SW_ENOMEM ? "no memory for a reply" : "peer is gone");
    else if (sw_list_empty(&session->queue))
        sw_owner_acknowledged(session->owner);
}

static enum sw_log_level level_of(const struct sw_err *err) {
    if (err->scope >= SW_SCOPE_DEVICE)
        return SW_LOG_ERROR;
    return err->scope == SW_SCOPE_SESSION ? SW_LOG_WARNING : SW_LOG_INFO;
}

const char *sw_session_log_name(char ret[SW_SESSION_LOG_NAME_BYTES], const char *name) {
    char quoted[4 * SW_PROTO_NAME_BYTES + 3];
    ret[0] = 0;
    if (name[0])
        (void)snprintf(ret, SW_SESSION_LOG_NAME_BYTES, " region_name=%s", sw_log_quote(quoted, sizeof quoted, name));
    return ret;
}

/* Copies the name of the request's durable region; empty: it has none. */
static void copy_name(char ret[SW_PROTO_NAME_BYTES], const struct sw_msg *request) {
    const struct sw_msg_build *build = &request->u.build;
    const uint8_t *name = request->header.type == SW_MSG_SPILL_DURABLE ? request->u.spill_durable.name
                          : request->header.type == SW_MSG_ADOPT       ? request->u.adopt.name
                                                                       : NULL;
    memset(ret, 0, SW_PROTO_NAME_BYTES);
    if (name)
        memcpy(ret, name, SW_PROTO_NAME_BYTES - 1);
    else if (request->header.type == SW_MSG_BUILD && build->n_builds == 1 && build->name_bytes < SW_PROTO_NAME_BYTES)
        memcpy(ret, build->names, build->name_bytes);
}

/* A request that has failed. */
struct failed {
    unsigned type;
    uint32_t seq;
    const char *region_name; /* of its durable region; empty: none */
};

static void log_failure(const struct sw_session *session, const struct failed *failed, const struct sw_err *err) {
    char text[300], detail[300], name[SW_SESSION_LOG_NAME_BYTES];
    if (err->scope < SW_SCOPE_DEVICE && !sw_tenant_may_log(session->tenant, SW_LINES_FAILED))
        return;
    sw_log(level_of(err), "request.failed",
           "session=%" PRIu32 " request=%s seq=%" PRIu32 "%s name=%s scope=%s cuda=%d text=%s detail=%s", session->id,
           sw_msg_name(failed->type), failed->seq, sw_session_log_name(name, failed->region_name),
           sw_err_name(err->code), sw_scope_name(err->scope), err->cuda, sw_log_quote(text, sizeof text, err->msg),
           sw_log_quote(detail, sizeof detail, err->detail));
}

static void reply_error(struct sw_session *session, const struct failed *failed, const struct sw_err *err) {
    struct sw_msg msg;
    if (session->closing)
        return;
    log_failure(session, failed, err);
    sw_service_count_error(session->service, err->code);
    sw_tenants_reclaim(session->service, session->tenant, failed->type, err->code);
    sw_msg_from_err(&msg, failed->seq, err);
    reply(session, &msg);
}

int sw_session_defer_reply(struct sw_session *session, const struct sw_msg *request, struct sw_deferred_reply **ret,
                           struct sw_err *err) {
    if (sw_idmap_find(&session->deferred, request->header.seq))
        return sw_err_set(err, -SW_EPROTO, SW_SCOPE_SESSION, "seq %" PRIu32 " is used again before its reply was sent",
                          request->header.seq);
    int rc;
    struct sw_deferred_reply *deferred =
        sw_budget_alloc(kept(session), sizeof(struct sw_deferred_reply), "a request", &rc, err);
    if (!deferred)
        return rc;
    deferred->kept_bytes = sizeof *deferred;
    deferred->session = session;
    deferred->request = request->header.type;
    copy_name(deferred->region_name, request);
    sw_list_init(&deferred->once);
    sw_idmap_add(&session->deferred, &deferred->node, request->header.seq);
    *ret = deferred;
    return 0;
}

void *sw_session_alloc(struct sw_deferred_reply *deferred, uint64_t bytes, const char *what, int *ret_rc,
                       struct sw_err *err) {
    void *memory = sw_budget_alloc(kept(deferred->session), bytes, what, ret_rc, err);
    deferred->kept_bytes += memory ? bytes : 0;
    return memory;
}

void sw_session_cancel_reply(struct sw_deferred_reply *deferred) {
    struct sw_session *session = deferred->session;
    sw_memtable_end(&deferred->once);
    sw_idmap_remove(&session->deferred, &deferred->node);
    session->n_operations -= deferred->is_operation;
    session->tenant->n_operations -= deferred->is_operation;
    session->n_buffers -= deferred->n_buffers;
    sw_budget_give(kept(session), deferred->kept_bytes);
    sw_free(deferred);
}

void sw_session_reply_early(struct sw_deferred_reply *deferred, struct sw_msg *msg) {
    msg->header.seq = deferred->node.id;
    reply(deferred->session, msg);
}

void sw_session_report_failure(struct sw_session *session, unsigned type, uint32_t seq, const char *region_name,
                               const struct sw_err *err) {
    if (session->closing)
        return;
    log_failure(session, &(struct failed){.type = type, .seq = seq, .region_name = region_name}, err);
    sw_service_count_error(session->service, err->code);
}

void sw_session_reply_now(struct sw_session *session, const struct sw_msg *request, struct sw_msg *msg) {
    msg->header.seq = request->header.seq;
    reply(session, msg);
}

void sw_session_finish_reply(struct sw_deferred_reply *deferred, struct sw_msg *msg, const struct sw_err *err) {
    struct sw_session *session = deferred->session;
    const uint32_t seq = deferred->node.id;
    const unsigned request = deferred->request;
    char name[SW_PROTO_NAME_BYTES];
    memcpy(name, deferred->region_name, sizeof name);
    sw_session_cancel_reply(deferred);
    if (err && err->code) {
        reply_error(session, &(struct failed){.type = request, .seq = seq, .region_name = name}, err);
    } else if (msg) {
        msg->header.seq = seq;
        reply(session, msg);
    } else if (!session->closing && sw_list_empty(&session->queue)) {
        sw_owner_acknowledged(session->owner); /* the reply was sent early; now the work behind it is done */
    }
    end_if_done(session);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* Answers a packet that cannot be decoded, and ends the session, because its client is broken. */
static void refuse_packet(struct sw_session *session, const struct sw_msg_header *header, const struct sw_err *err) {
    reply_error(session, &(struct failed){.type = header->type, .seq = header->seq, .region_name = ""}, err);
    sw_session_close(session, "malformed packet");
}

void sw_session_forget_seqs(struct sw_session *session, uint32_t seq) {
    session->newest_seq = session->forgotten_seq = seq;
    sw_owner_forget_requests(session->owner, seq);
}

/* Checks that seqs rise by small steps. Requests that the client sends again after a reconnection have lower seqs. */
static int take_seq(struct sw_session *session, uint32_t seq, struct sw_err *err) {
    const int32_t step = (int32_t)(seq - session->newest_seq);
    if (!session->greeted || step < 0)
        return 0;
    if (step > MAX_SEQ_STEP)
        return sw_err_set(err, -SW_EPROTO, SW_SCOPE_SESSION,
                          "seq %" PRIu32 " follows seq %" PRIu32 ", which is too large a step", seq,
                          session->newest_seq);
    session->newest_seq = seq;
    if (seq - session->forgotten_seq >= FORGET_SEQS)
        sw_session_forget_seqs(session, seq);
    return 0;
}

static int check_version(const struct sw_session *session, const struct sw_msg_header *header, struct sw_err *err) {
    if (!session->greeted || header->version == session->version)
        return 0;
    return sw_err_set(err, -SW_EPROTO, SW_SCOPE_SESSION, "packet of version %u in a session of version %u",
                      (unsigned)header->version, (unsigned)session->version);
}

static void take_packet(struct sw_session *session, const uint8_t *packet, size_t bytes, int *fds, unsigned n_fds,
                        bool fds_lost) {
    struct sw_msg request, msg;
    struct sw_err err = {0};
    session->n_requests++;
    if (sw_msg_decode(&request, packet, bytes, &err) < 0 || check_version(session, &request.header, &err) < 0 ||
        take_seq(session, request.header.seq, &err) < 0) {
        close_fds(session, fds, n_fds);
        refuse_packet(session, &request.header, &err);
        return;
    }
    const struct sw_received with_fds = {.msg = &request, .fds = fds, .n_fds = n_fds, .fds_lost = fds_lost};
    const int rc = sw_dispatch(session->service->commands, session->service->n_commands, session, session->greeted,
                               &with_fds, &msg, &err);
    close_fds(session, fds, n_fds); /* the ones that no command has taken */
    if (rc == SW_REPLY_NOW)
        reply(session, &msg);
    if (rc >= 0)
        return;
    char name[SW_PROTO_NAME_BYTES];
    copy_name(name, &request);
    reply_error(session, &(struct failed){.type = request.header.type, .seq = request.header.seq, .region_name = name},
                &err);
    if (err.scope >= SW_SCOPE_SESSION)
        sw_session_close(session, "protocol error");
}

void sw_session_packet(struct sw_session *session, const uint8_t *packet, size_t bytes, int *fds, unsigned n_fds) {
    take_packet(session, packet, bytes, fds, n_fds, false);
}

/* Refuses a packet that is too long or has too many descriptors. Its header was received. */
static void refuse_arrival(struct sw_session *session, const uint8_t *packet, int code, const int *fds,
                           unsigned n_fds) {
    struct sw_msg start;
    struct sw_err err;
    close_fds(session, fds, n_fds);
    (void)sw_msg_decode(&start, packet, SW_PROTO_HEADER_BYTES, NULL);
    if (code == -SW_EFDS)
        (void)sw_err_set(&err, code, SW_SCOPE_SESSION, "the packet has more than %u descriptors",
                         (unsigned)SW_PROTO_MAX_FDS);
    else
        (void)sw_err_set(&err, code, SW_SCOPE_SESSION, "the packet is longer than %u bytes, or empty with descriptors",
                         (unsigned)SW_PROTO_MAX_PACKET_BYTES);
    refuse_packet(session, &start.header, &err);
}

/* Returns a session's share of its tenant's turn, at least one packet. */
static unsigned turn_of(const struct sw_session *session) {
    const unsigned n_sessions = session->tenant->n_sessions;
    return n_sessions < PACKETS_PER_TURN ? PACKETS_PER_TURN / n_sessions : 1;
}

static void read_packets(struct sw_session *session) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    int fds[SW_PROTO_MAX_FDS];
    const unsigned most = turn_of(session);
    for (unsigned i = 0; i < most && !session->closing && may_read(session); i++) {
        size_t bytes = 0;
        unsigned n_fds = 0;
        if (is_closing_too_many(session)) {
            (void)uv_timer_start(&session->timer, on_pause_over, CLOSING_MS, 0);
            watch(session);
            return;
        }
        memset(packet, 0, SW_PROTO_HEADER_BYTES);
        const int rc = sw_packet_receive(session->socket, packet, &bytes, fds, &n_fds);
        if (rc == -SW_EAGAIN)
            return;
        if (rc == -SW_EPROTO || rc == -SW_EFDS)
            refuse_arrival(session, packet, rc, fds, n_fds);
        else if (rc == -SW_ELIMIT) /* this process has no descriptors left: the client made no mistake */
            take_packet(session, packet, bytes, fds, n_fds, true);
        else if (rc < 0)
            sw_session_close(session, "connection reset");
        else if (bytes == 0)
            close_for_peer(session);
        else
            sw_session_packet(session, packet, bytes, fds, n_fds);
    }
}

static void write_packets(struct sw_session *session) {
    while (!sw_list_empty(&session->queue)) {
        struct queued *first = SW_CONTAINER_OF(session->queue.next, struct queued, node);
        const int rc = sw_packet_send(session->socket, first->packet, first->bytes, NULL, 0);
        if (rc == -SW_EAGAIN)
            break;
        if (rc < 0) {
            sw_session_close(session, "peer is gone");
            return;
        }
        session->n_queued--;
        session->queued_bytes -= sizeof *first + first->bytes;
        sw_budget_give(kept(session), sizeof *first + first->bytes);
        sw_list_remove(&first->node);
        sw_free(first);
    }
    if (sw_list_empty(&session->queue))
        sw_owner_acknowledged(session->owner);
    watch(session);
}

static void on_poll(uv_poll_t *poll, int status, int events) {
    struct sw_session *session = poll->data;
    /* Requests that a peer sent before it hung up are not carried out. */
    if (status < 0) {
        sw_session_close(session, "connection reset");
        return;
    }
    if (events & UV_DISCONNECT) {
        close_for_peer(session);
        return;
    }
    if (events & UV_WRITABLE)
        write_packets(session);
    if (events & UV_READABLE && !session->closing)
        read_packets(session);
}

/* Ends a session that has sent no HELLO, because it takes the place of others. After a delay of the loop, the HELLO may
 * have arrived unread: so read first. */
static void on_no_hello(uv_timer_t *timer) {
    struct sw_session *session = timer->data;
    struct sw_msg msg;
    struct sw_err err;
    if (!session->greeted)
        read_packets(session);
    if (session->greeted || session->closing)
        return;
    (void)sw_err_set(&err, -SW_ELIMIT, SW_SCOPE_SESSION, "the client sent no HELLO within %u ms",
                     session->service->hello_ms);
    sw_msg_from_err(&msg, 0, &err);
    reply(session, &msg);
    sw_session_close(session, "no HELLO");
}

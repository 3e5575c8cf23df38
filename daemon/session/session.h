/* session.h - one client connection: its requests, its replies, and what it owns.
 *
 * - A request gets exactly one reply, unless the peer is gone.
 * - While the peer does not read its replies, the session does not read requests. So the queue holds at most the
 *   replies to requests in flight. A queue beyond this bound ends the session.
 * - The end of a session, at any moment, releases exactly what the session owned: descriptors, memories, operations,
 *   regions.
 *
 * thread: loop. */
#ifndef SW_DAEMON_SESSION_H
#define SW_DAEMON_SESSION_H

#include "daemon/service.h"
#include "daemon/session/memtable.h"
#include "daemon/session/open.h"
#include "daemon/session/orders.h"
#include "daemon/session/tenant.h"
#include "ipc/peer.h"
#include "ipc/proto.h"

enum {
    /* Buffers in flight, of packets with several buffers. Each may be an operation of the engine, of 3 KiB. Eight full
     * packets keep a GPU busy while replies and requests are on their way. */
    SW_SESSION_MAX_BUFFERS = 8 * SW_PROTO_MAX_ITEMS,
};
struct sw_session {
    struct sw_list node; /* the server's list */
    struct sw_service *service;
    uint32_t id;
    struct sw_peer peer;
    struct sw_tenant *tenant;
    char client[65]; /* name from HELLO; any bytes */
    bool greeted;
    uint16_t version;                   /* of the protocol; before HELLO the oldest */
    bool may_settle;                    /* the session was resumed, and its last SETTLE has not come */
    uint32_t newest_seq, forgotten_seq; /* forgotten: when seqs were last forgotten */
    struct sw_owner *owner;
    struct sw_memtable mems;
    struct sw_orders orders;
    struct sw_opens opens;
    struct sw_idmap deferred; /* due replies, by seq */
    struct sw_frame_grants grants;
    unsigned n_operations; /* packets of builds or reads in flight */
    unsigned n_buffers;    /* their buffers; packets with one buffer do not count */

    /* The connection; only session.c uses it. */
    int socket;
    uv_poll_t poll;
    uv_timer_t timer;       /* ends a pause of reading */
    uv_timer_t hello_timer; /* ends a session without HELLO */
    unsigned open_handles;
    struct sw_list queue; /* replies for which the socket had no room */
    unsigned n_queued;
    size_t queued_bytes;
    uint64_t kept_bytes; /* taken from the tenant's budget for the session itself */
    bool closing, owner_closed;
    bool peer_closed; /* the client has ended the session */
    uint64_t opened_us, n_requests;
    void (*closed)(struct sw_session *session, void *arg);
    void *closed_arg;
};

/* A reply that is sent later: from a command's SW_REPLY_LATER until sw_session_finish_reply(). */
struct sw_deferred_reply {
    struct sw_idnode node; /* by seq */
    struct sw_session *session;
    uint16_t request; /* message type */
    bool is_operation;
    unsigned n_buffers;                    /* its buffers, if there are several, else 0 */
    uint64_t kept_bytes;                   /* of the tenant's budget */
    struct sw_list once;                   /* memories that were handed over for this request */
    char region_name[SW_PROTO_NAME_BYTES]; /* of the durable region, for the log; empty: none, or not known */
};

/* Starts to serve a connected, non-blocking socket (moved, also on error).
 *
 * - closed: runs once, when the session has released everything. The session is freed after it.
 * - errors: -SW_EUNMAPPED, -SW_EACCES, -SW_ETENANTSESSIONS, -SW_ETENANTMEMORY, -SW_ENOMEM, -SW_ECONN. The peer gets the
 *   error, and `closed` does not run. */
int sw_session_open(struct sw_session **ret, struct sw_service *service, int socket, uint32_t id,
                    void (*closed)(struct sw_session *session, void *arg), void *arg, struct sw_err *err);
/* Resumes a predecessor's session, by its owner. Call it before the first memory. */
void sw_session_resume(struct sw_session *session, struct sw_owner *owner);
/* Sends a peer an error of seq 0, which is about the connection, and hangs up (socket: moved). */
void sw_session_refuse(int socket, const struct sw_err *err);
/* Ends a session because the service stops. The peer gets ESHUTDOWN. */
void sw_session_stop(struct sw_session *session);
/* Hangs up, and releases what the session owns. why: for the log. A second call is a no-op. */
void sw_session_close(struct sw_session *session, const char *why);

/* Forgets the seqs of older spills, because seqs start again after 2^32. seq: the newest. */
void sw_session_forget_seqs(struct sw_session *session, uint32_t seq);

/* Handles one packet as if it had arrived: replies, or ends the session. Descriptors are taken or closed. */
void sw_session_packet(struct sw_session *session, const uint8_t *packet, size_t bytes, int *fds, unsigned n_fds);

/* Defers the reply to `request`. errors: -SW_EPROTO (a reply to that seq is still due), -SW_ENOMEM, -SW_ETENANTMEMORY.
 */
int sw_session_defer_reply(struct sw_session *session, const struct sw_msg *request, struct sw_deferred_reply **ret,
                           struct sw_err *err);
/* Allocates memory that counts until the reply is finished or canceled; the caller frees it. As sw_budget_alloc(). */
void *sw_session_alloc(struct sw_deferred_reply *deferred, uint64_t bytes, const char *what, int *ret_rc,
                       struct sw_err *err);
/* Sends a deferred reply, and ends it and its `once` memories. Sends nothing if the peer is gone.
 *
 * - err: sent as ERROR if it is not NULL and has a code. reply: sent otherwise; NULL: nothing is sent. */
void sw_session_finish_reply(struct sw_deferred_reply *deferred, struct sw_msg *reply, const struct sw_err *err);
/* Sends the reply while the request still makes work, so that the client can go on. sw_session_finish_reply() must
 * follow, without a reply. */
void sw_session_reply_early(struct sw_deferred_reply *deferred, struct sw_msg *reply);
/* Logs and counts the first error of a request (type, seq) that has failed in part. region_name: as in struct
 * sw_deferred_reply. */
void sw_session_report_failure(struct sw_session *session, unsigned type, uint32_t seq, const char *region_name,
                               const struct sw_err *err);
/* Sends the reply to a request that was not deferred. For commands whose reply borrows from them (SW_REPLY_SENT). */
void sw_session_reply_now(struct sw_session *session, const struct sw_msg *request, struct sw_msg *reply);
/* Gets " region_name=...", quoted, for log lines; empty for the empty name. Returns ret. */
enum { SW_SESSION_LOG_NAME_BYTES = sizeof " region_name=\"\"" + 4 * SW_PROTO_NAME_BYTES };
const char *sw_session_log_name(char ret[SW_SESSION_LOG_NAME_BYTES], const char *name);

/* Ends a deferred reply, and its `once` memories, without a reply, because the command answers now. */
void sw_session_cancel_reply(struct sw_deferred_reply *deferred);

#endif

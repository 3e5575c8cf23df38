/* session.h - one client connection: what it sent, what it is still owed, and what it owns.
 *
 * Invariants: a request gets exactly one reply, unless the peer is gone; while the peer does not read, nothing more is
 * read from it, so that its queue holds no more than the replies of what it had under way, and a queue beyond what
 * those can take ends the session; when a session ends, at whatever moment, exactly what it owned is released:
 * descriptors, memories, operations, regions. Must not be used from another thread than the loop's. */
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
    /* Buffers in flight of packets with several: each may be an operation of the engine, 3 KiB; a packet by itself
     * counts as one of the session's. Eight full packets keep a GPU busy while replies and requests are on their way.
     */
    SW_SESSION_MAX_PIECES = 8 * SW_PROTO_MAX_ITEMS,
};
struct sw_session {
    struct sw_list node; /* the server's list */
    struct sw_service *service;
    uint32_t id;
    struct sw_peer peer;
    struct sw_tenant *tenant;
    char client[65]; /* name from HELLO; anything */
    bool greeted;
    uint16_t version;              /* of the protocol, from HELLO to the end; before it, the oldest */
    bool may_settle;               /* it has come back, and has not said yet that it has asked for all */
    uint32_t newest_seq, aged_seq; /* aged: of the request at which older ones' seqs were last forgotten */
    struct sw_owner *owner;
    struct sw_memtable mems;
    struct sw_orders orders;
    struct sw_opens opens;
    struct sw_idmap deferred; /* replies due, by seq */
    unsigned n_operations;    /* packets of builds or reads among them */
    unsigned n_pieces;        /* buffers of those packets that have several */

    /* Connection; session.c's own. */
    int socket;
    uv_poll_t poll;
    uv_timer_t timer;       /* of a pause of reading */
    uv_timer_t hello_timer; /* runs out if no HELLO has come */
    unsigned open_handles;
    struct sw_list queue; /* replies that the socket had no room for */
    unsigned n_queued;
    size_t queued_bytes;
    uint64_t kept_bytes; /* of the tenant's budget, for the session itself */
    bool closing, owner_closed;
    uint64_t opened_us, n_requests;
    void (*closed)(struct sw_session *session, void *arg);
    void *closed_arg;
};

/* A reply that is due later, from a command's SW_REPLY_LATER until sw_session_finish_reply(). */
struct sw_deferred_reply {
    struct sw_idnode node; /* by seq */
    struct sw_session *session;
    uint16_t request; /* message type */
    bool is_operation;
    unsigned n_pieces;                     /* buffers, if there are several, else 0 */
    uint64_t kept_bytes;                   /* of the tenant's budget */
    struct sw_list once;                   /* memories that were handed over for this request */
    char region_name[SW_PROTO_NAME_BYTES]; /* of a durable region, for the log; empty: not known, or none */
};

/* Starts to serve a connected, non-blocking socket (owns: moved, also on error). closed: runs once, when nothing of the
 * session is left; the session's memory is gone after it. errors: -SW_EACCES, -SW_ETENANTSESSIONS, -SW_ENOMEM,
 * -SW_ECONN: the peer was told and `closed` never runs. */
int sw_session_open(struct sw_session **ret, struct sw_service *service, int socket, uint32_t id,
                    void (*closed)(struct sw_session *session, void *arg), void *arg, struct sw_err *err);
/* Goes on with what an owner of a predecessor has; before the first memory. */
void sw_session_resume(struct sw_session *session, struct sw_owner *owner);
/* Tells a peer why it is not served, and hangs up (socket: moved). An error of seq 0 answers no request: it is about
 * the connection. */
void sw_session_refuse(int socket, const struct sw_err *err);
/* Ends it since the service stops, and tells the peer so. */
void sw_session_stop(struct sw_session *session);
/* Hangs up and releases what the session owns; `why` goes to the log. A second call is a no-op. */
void sw_session_close(struct sw_session *session, const char *why);

/* Has the seqs forgotten that regions were spilled with in the round before this one, seen from `seq`. */
void sw_session_age(struct sw_session *session, uint32_t seq);

/* Takes in one packet as if it had arrived: replies, or ends the session. Descriptors are taken or closed. */
void sw_session_packet(struct sw_session *session, const uint8_t *packet, size_t bytes, int *fds, unsigned n_fds);

/* Defers the reply to `request`. errors: -SW_EPROTO (a reply to that seq is still due), -SW_ENOMEM, -SW_ETENANTMEMORY.
 */
int sw_session_defer_reply(struct sw_session *session, const struct sw_msg *request, struct sw_deferred_reply **ret,
                           struct sw_err *err);
/* Counts memory that is kept until the reply is finished or canceled. errors: -SW_ETENANTMEMORY. */
int sw_session_keep(struct sw_deferred_reply *deferred, uint64_t bytes, const char *what, struct sw_err *err);
/* Sends a deferred reply: *reply (its seq is filled in; NULL: nothing), or the error if err is not NULL and has a code;
 * nothing if the peer is gone. Ends it with its `once` memories. */
void sw_session_finish_reply(struct sw_deferred_reply *deferred, struct sw_msg *reply, const struct sw_err *err);
/* Sends the reply before what has to be done for the request is over, since the client can go on meanwhile.
 * sw_session_finish_reply() must follow, without a reply; seq is filled in. */
void sw_session_reply_early(struct sw_deferred_reply *deferred, struct sw_msg *reply);
/* A part of what a request (type, seq) asked for has failed, with this as the first error: it is logged and counted.
 * region_name: as in struct sw_deferred_reply. */
void sw_session_report_failure(struct sw_session *session, unsigned type, uint32_t seq, const char *region_name,
                               const struct sw_err *err);
/* Answers a request that was not deferred, where the reply borrows what goes with its command (SW_REPLY_SENT). */
void sw_session_reply_now(struct sw_session *session, const struct sw_msg *request, struct sw_msg *reply);
/* " region_name=...", quoted, for log lines about a durable region; the empty text for the empty name. Returns ret. */
enum { SW_SESSION_LOG_NAME_BYTES = sizeof " region_name=\"\"" + 4 * SW_PROTO_NAME_BYTES };
const char *sw_session_log_name(char ret[SW_SESSION_LOG_NAME_BYTES], const char *name);

/* There is nothing to be sent later: the command answers, or fails, now. Ends the `once` memories. */
void sw_session_cancel_reply(struct sw_deferred_reply *deferred);

#endif

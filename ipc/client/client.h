/* client.h - inside of libspillway: the connection, its tickets and its packets. Not installed.
 *
 * - A ticket stands for a group of packets with consecutive seqs. The last one is the request, and the others hand over
 *   its memory. The ticket is done when every packet was answered, or the connection is lost.
 * - A caller's ticket, of a call (client_transfer.h), has no packets: they belong to tickets of the library's own.
 * - Every ticket is on one of the connection's lists until it is freed.
 * - Only sw_client_wait*() and sw_client_call() wait.
 *
 * thread: any, one at a time for each connection. */
#ifndef SW_IPC_CLIENT_H
#define SW_IPC_CLIENT_H

#include "base/forecast.h"
#include "base/list.h"
#include "ipc/client/memory.h"
#include "ipc/proto.h"
#include "ipc/spillway.h"
#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

/* MEM_OPEN, one MEM_PARTS for each 64 descriptors, and the operation. */
enum { SW_CLIENT_MAX_GROUP = 2 + (SW_MEM_MAX_PARTS + SW_PROTO_MAX_FDS - 1) / SW_PROTO_MAX_FDS };

/* A packet that waits to be sent; owns its descriptors. */
struct sw_packet {
    struct sw_list node;
    size_t bytes;
    unsigned n_fds;
    int fds[SW_PROTO_MAX_FDS];
    _Alignas(SW_PROTO_ALIGN) uint8_t data[];
};

struct sw_arrays;   /* the packet that is being made: client_packets.h */
struct sw_transfer; /* a call, to the end of its ticket */
struct sw_staging;  /* the arenas */

/* The states of a ticket:
 *
 *   RUNS -> DONE -> DELIVERED
 *   RUNS -> SETTLING -> DONE     a spill or restore that was sent, at least in part, before the connection was lost
 *   RUNS -> REPEATED -> DONE     the same for a request that may be sent twice
 *
 * SETTLING and REPEATED stay when the connection is lost again. An abandoned ticket is freed instead of DONE. */
enum sw_ticket_state {
    SW_TICKET_RUNS,      /* its packets are under way; while the connection is down: all are in the outbox */
    SW_TICKET_SETTLING,  /* the daemon is asked for the result of the request */
    SW_TICKET_REPEATED,  /* the request is sent again */
    SW_TICKET_DONE,      /* all packets were answered, or it has failed */
    SW_TICKET_DELIVERED, /* the same, and the caller has the result with the region's id */
};

struct spillway_ticket {
    struct sw_list node; /* of spillway: running, fresh, counted, done, transfers */
    struct spillway *connection;
    unsigned operation; /* enum sw_msg_type of the last packet; a caller's ticket: BUILD or READ */
    enum sw_ticket_state state;
    bool is_durable; /* a spill, and one of its regions has a name */
    bool abandoned;  /* its caller has freed it: it is freed when it is done */
    void *user;      /* the caller's */
    struct spillway_error error;
    /* Takes the reply to the last packet, except ERROR. Returns false if it does not fit. NULL: any reply is taken. */
    bool (*take)(struct spillway_ticket *t, const struct sw_msg *msg);
    void *into; /* where take() puts the answer */
    struct {    /* the packets of its group; n is 0 for a caller's ticket */
        uint32_t first_seq;
        unsigned n, n_answered;
        bool answered[SW_CLIENT_MAX_GROUP];
        unsigned error_index; /* of the packet whose error is kept: the first one that failed */
    } packets;
    struct {                      /* after the connection was lost */
        uint32_t settled_seq;     /* SETTLING: the request's seq */
        struct sw_packet *repeat; /* a request that may be sent twice; owned; NULL: none */
    } resume;
    struct {                         /* a packet that spills or restores */
        uint32_t mem;                /* of its first item; also of a ticket that only hands memory over */
        bool mem_open;               /* the daemon has accepted MEM_OPEN */
        bool is_of_call;             /* own.owner is a sw_transfer */
        bool is_of_opened;           /* its memory was opened before, for the call */
        bool is_each;                /* its items succeed or fail one by one */
        uint64_t bytes;              /* of all buffers */
        uint32_t n_items, n_buffers; /* builds or reads, and their buffers */
        const uint32_t *items;       /* [n_items] of the call; NULL: from own.part on */
        bool is_append;              /* of an open build or read, which does not survive the daemon */
        bool is_commit;              /* of builds that earlier packets have begun: the same, until it is sent */
    } transfer;
    struct sw_transfer *call; /* a caller's; owned */
    struct { /* of the library's own: on_done() runs when it is done, and must not send; then it is freed */
        void (*on_done)(struct spillway_ticket *t);
        void *owner;    /* for on_done() */
        uint32_t part;  /* of the owner's */
        unsigned place; /* in an arena */
    } own;
};

static inline bool sw_ticket_is_done(const struct spillway_ticket *t) {
    return t->state >= SW_TICKET_DONE;
}

/* Returns whether the ticket was continued by another packet after the connection was lost. */
static inline bool sw_ticket_is_resumed(const struct spillway_ticket *t) {
    return t->state == SW_TICKET_SETTLING || t->state == SW_TICKET_REPEATED;
}

enum sw_link { SW_LINK_UP, SW_LINK_DOWN, SW_LINK_HELLO };

/* Timers in epoll. Their descriptors are -1 until they are needed. */
enum sw_client_timer { SW_TIMER_STAGING, SW_TIMER_RESUME, SW_TIMER_CALLS, SW_TIMER_NR };

/* The functions of the layers above tickets and memory, for these to call. The layers: transport <- tickets <- memory
 * <- operations <- client.c, which fills this in. */
struct pollfd;
struct sw_client_layers {
    /* client_resume.c: takes the reply to its HELLO (false: there is none due); the connection is lost (true: it is
     * tried to come back); goes on with that, if it is time. */
    bool (*take)(struct spillway *c, const struct sw_msg *msg);
    bool (*lost)(struct spillway *c);
    void (*come_back)(struct spillway *c);
    /* Operations. advance: does everything that needs no waiting. use, packet_uses: whether an operation, or the packet
     * of a ticket, uses the memory with this number. is_coded_here: whether a codec of this process works on memory, so
     * that the daemon may never need it. */
    void (*advance)(struct spillway *c);
    bool (*use)(const struct spillway *c, uint32_t mem);
    bool (*packet_uses)(const struct spillway_ticket *t, uint32_t mem);
    bool (*is_coded_here)(struct spillway *c, const void *data, uint64_t bytes);
    /* Adds the descriptors that a wait has to poll, at most `most`. Returns how many. */
    unsigned (*poll)(const struct spillway *c, struct pollfd *ret, unsigned most);
    /* Called by a call that waits, time and again: returns true if it must not sleep, because it attends to a codec of
     * this process. unattend: the wait is over. */
    bool (*attend)(struct spillway *c);
    void (*unattend)(struct spillway *c);
    /* A caller's call. abandon: the caller no longer waits for it. drop_unseen: drops the regions whose ids the caller
     * has not got. free: its end. */
    void (*abandon)(struct sw_transfer *transfer);
    void (*drop_unseen)(struct sw_transfer *transfer);
    void (*free)(struct sw_transfer *transfer);
};

/* A call that sleeps: what it waits for, and by which descriptors. */
struct sw_sleeper {
    bool (*ended)(const void *arg); /* NULL: none sleeps */
    const void *arg;
    enum sw_link link;
    int socket, timers[SW_TIMER_NR];
};

struct spillway {
    const struct sw_client_layers *layers;
    int timers[SW_TIMER_NR];
    pid_t process; /* that opened it; a forked child has the socket open as well */
    /* Both recursive. `calls` is held by a call of the API from its beginning to its end, `lock` by the thread
     * that uses the connection: a call releases it while it sleeps, so that a coder's thread, or a call of another
     * connection, goes on with this one meanwhile. */
    pthread_mutex_t calls, lock;
    struct sw_sleeper sleeper;
    int socket;          /* -1: none, the link is down */
    int64_t service_uid; /* the user that the caller named as the service's; SW_TRUST_NO_USER: none */
    int wake;            /* eventfd, written when a ticket becomes fresh, read by dispatch */
    int epoll;           /* watches wake, the socket and the timers; room in the socket only while packets wait */
    bool woken;
    bool hangs; /* it was closed, and the service has not ended it in time */
    bool polls_room;
    int retry; /* in epoll: a timer for a socket that reports room but takes nothing; -1: never needed */
    uint64_t retry_us, retry_at_us; /* its pause, and when it ends; 0: not set */
    struct spillway_error lost;     /* code 0: alive; else the error that ended the connection */
    enum sw_link link;
    uint64_t up_us;   /* time of the last reconnection; 0: never */
    bool has_names;   /* a durable region was spilled or adopted here */
    bool was_stopped; /* the service has reported its stop since then */
    int connect_ms;   /* of spillway_open() */
    int timeout_ms;   /* of calls that wait for an answer; -1: none */
    struct sw_resume
        *resume; /* state for a reconnection; NULL: the service gave no token, so a lost connection stays lost */
    uint32_t next_seq, next_mem;
    uint32_t next_number;                /* of builds and reads */
    uint32_t max_in_flight, n_in_flight; /* packets that spill or restore */
    uint32_t max_buffers, n_buffers;     /* buffers of those */
    /* spillway_ticket.node. `running`: tickets with packets that are not answered. A call of the caller that has
     * completed is `fresh`, then `counted` (by dispatch), and `done` once its end was reported. Other tickets go from
     * `running` to `done`; tickets with an on_done() leave the lists. */
    struct sw_list running, fresh, counted, done;
    struct sw_list outbox;     /* sw_packet.node, in order */
    struct sw_list registered; /* sw_registered.node */
    struct sw_cuda *cuda;
    bool has_marks;           /* the page of marks was sent to the daemon */
    struct sw_arrays *arrays; /* arrays of the packet that is being made */
    struct sw_list transfers; /* running calls; spillway_ticket.node, oldest first */
    struct sw_list ending;    /* calls whose last reply has come; sw_transfer.ending */
    uint32_t n_transfers;
    uint64_t timer_us;               /* when SW_TIMER_CALLS expires, or has expired; 0: it is not set */
    struct sw_staging *staging;      /* NULL: never needed */
    uint64_t number;                 /* among the process's connections, from 1 */
    bool has_codec;                  /* calls use the codec in this process, if they can */
    struct sw_coder_link *polled;    /* its device works, or the service for it: it has to be polled; NULL: none */
    struct sw_coder_link *attended;  /* the call that waits polls it; NULL: it does not */
    struct sw_list coders;           /* sw_coder_link.node */
    struct sw_list packed;           /* sw_packed_region.node: regions that were packed here */
    struct sw_forecast forecasts[2]; /* of waits: for spills, for restores */
    _Alignas(SW_PROTO_ALIGN) uint8_t received[SW_PROTO_MAX_PACKET_BYTES];
};

/* Registered memory. */
struct sw_registered {
    struct sw_list node;
    const void *data;
    uintptr_t address; /* the same as a number */
    uint64_t bytes;
    uint32_t mem; /* its number in the session */
    enum sw_mem_kind kind;
    uint64_t offset;                 /* of `address` in the exported memory */
    struct sw_err error;             /* why it could not be handed over again after a restart; code 0: no error */
    struct spillway_ticket *closing; /* of the MEM_CLOSE of spillway_unregister(); NULL: none */
    bool refused; /* the daemon could not open it again, and has it as a failed memory until it is closed */
    bool unused;  /* not handed over yet, because the codec of this process works on the memory itself */
};

/* Converts an error to the caller's struct, if ret is not NULL. Returns err->code. */
int sw_client_report(struct spillway_error *ret, const struct sw_err *err);

/* Copies an error of the caller's kind, if ret is not NULL. Returns its code. */
int sw_client_copy_error(struct spillway_error *ret, const struct spillway_error *from);
/* Keep an error in *first, unless there is an earlier one. */
void sw_client_note_error(struct spillway_error *first, const struct spillway_error *error);
void sw_client_note_err(struct spillway_error *first, const struct sw_err *err);

/* Sets the error of a request beyond the daemon's limit. Returns -SW_ELIMIT. */
int sw_client_too_many(unsigned n_in_flight, struct sw_err *err);
/* Combines two texts: the same text, or "mixed". */
void sw_client_combine(char *ret, size_t ret_bytes, const char *part);

/* Begins a call of the API, which sw_client_leave() ends: beside the caller's thread others may use the connection.
 * Calls may nest. Refuses what a forked child does with a connection of its parent's. errors: -SW_EINVAL. */
int sw_client_enter(struct spillway *c, struct spillway_error *error);
void sw_client_leave(struct spillway *c);
/* Enters the connection for another thread than a caller's, until sw_client_step_out(). Returns false if it is in use.
 */
bool sw_client_step_in(struct spillway *c);
void sw_client_step_out(struct spillway *c);
/* Returns a number that no build or read of the connection has. */
uint32_t sw_client_new_number(struct spillway *c);

/* Sends one message that hands over no memory. take, into: of its ticket. Returns the ticket. errors: -SW_ENOMEM, the
 * connection's error (c->lost). */
struct spillway_ticket *sw_client_ask(struct spillway *c, const struct sw_msg *msg,
                                      bool (*take)(struct spillway_ticket *t, const struct sw_msg *msg), void *into,
                                      struct sw_err *err);
/* Sends one message and waits for its reply. Returns the ticket, which is done. The caller looks at its error and frees
 * it. errors: those of sw_client_ask(), -SW_ETIMEDOUT. */
struct spillway_ticket *sw_client_call(struct spillway *c, const struct sw_msg *msg,
                                       bool (*take)(struct spillway_ticket *t, const struct sw_msg *msg), void *into,
                                       int timeout_ms, struct sw_err *err);

/* ---- client_memory.c ---- */

/* Returns a number that no open memory has. */
uint32_t sw_client_new_mem(struct spillway *c);
/* Hands over memory that stays open, under the number `mem`, without waiting. The ticket is done when the daemon has
 * mapped it. errors: -SW_ENOMEM (NULL). */
struct spillway_ticket *sw_client_open_memory(struct spillway *c, uint32_t mem, struct sw_export *e,
                                              struct sw_err *err);
/* Has the daemon close the memory, without waiting. */
void sw_client_close_memory(struct spillway *c, uint32_t mem);
/* Appends the packets that hand exported memory over under the number `mem`. The descriptors move to them. errors:
 * -SW_ENOMEM. */
int sw_client_add_memory(struct sw_list *group, uint32_t mem, bool once, struct sw_export *e, struct sw_err *err);
/* Hands over the page of marks, if the daemon does not have it. Call it before a packet names a mark. While the
 * connection is down, it waits for the reconnection. errors: -SW_ENOMEM, -SW_ELIMIT. */
int sw_client_share_marks(struct spillway *c, struct sw_err *err);
/* Hands the page over again after a reconnection, before packets that name marks. errors: as above. */
int sw_client_reshare_marks(struct spillway *c, struct sw_err *err);
/* Returns whether r contains all of data[0..bytes). */
bool sw_registered_holds(const struct sw_registered *r, const void *data, uint64_t bytes);
/* Finds the registered memory that contains all of data[0..bytes), and sets the kind and offset of *ret. NULL: none. */
const struct sw_registered *sw_registered_find(const struct spillway *c, const void *data, uint64_t bytes,
                                               struct sw_export *ret);
/* Hands over registered memory that has not been used yet, or that failed after a restart. Call it before a packet
 * names memory. Other memory is ready. errors: those of sw_export_find(). */
int sw_registered_ready(struct spillway *c, uint32_t mem, struct sw_err *err);
/* Hands all registered memory over again, after a reconnection. If that fails, packets in the outbox that use the
 * memory get the error. */
void sw_registered_reopen(struct spillway *c);
/* Frees the registrations. The daemon unmaps the memory at the session's end. */
void sw_registered_free(struct spillway *c);

/* ---- client_tickets.c ---- */

/* Make a ticket that is on no list yet, and a packet for one message, which is appended to *group. errors: -SW_ENOMEM.
 */
struct spillway_ticket *sw_ticket_new(struct spillway *c, unsigned operation, struct sw_err *err);
struct sw_packet *sw_packet_new(struct sw_list *group, const struct sw_msg *msg, struct sw_err *err);
/* Copies a packet without descriptors, to repeat it after a restart. NULL: no memory, or the connection cannot come
 * back.
 */
struct sw_packet *sw_packet_copy(const struct spillway *c, const struct sw_list *packet);
/* Frees a packet with its descriptors. */
void sw_packet_free(struct sw_packet *packet);
/* Finds the running ticket of a packet by its seq; NULL: none. */
struct spillway_ticket *sw_ticket_find(struct spillway *c, uint32_t seq);
/* Frees packets that were not submitted, with their descriptors. */
void sw_packets_free(struct sw_list *group);
/* Removes a ticket from its list, and frees it. */
void sw_ticket_destroy(struct spillway_ticket *t);
/* Completes a ticket: reports it to its caller, or frees an abandoned one. */
void sw_ticket_complete(struct spillway_ticket *t);
/* Gives up a ticket, because its caller has freed it. Regions whose ids the caller has not seen are dropped, now or
 * when the operation ends. */
void sw_ticket_abandon(struct spillway_ticket *t);

/* Notes that the caller knows that the ticket is done: it is no longer fresh or counted. */
void sw_ticket_known(struct spillway_ticket *t);

/* Gives the packets the next seqs, and moves them to the outbox. The ticket waits for them. */
void sw_client_enqueue(struct spillway_ticket *t, struct sw_list *group);
/* Sends a request, and ignores its reply. Returns false for -SW_ENOMEM. */
bool sw_client_submit_unattended(struct spillway *c, const struct sw_msg *msg);
/* Does sw_client_enqueue(), and sends as much as fits. The ticket is then running. */
void sw_client_submit(struct spillway_ticket *t, struct sw_list *group);
/* Sends and receives until nothing moves. Returns 0, or the code of c->lost. Call it before a call is refused because
 * of running operations. Otherwise a program that only repeats the call would never see them end. */
int sw_client_pump(struct spillway *c);
/* Pumps until the ticket is done. timeout_ms: -1: no limit. errors: -SW_EAGAIN; not the ticket's own. */
int sw_client_wait(struct spillway_ticket *t, int timeout_ms);
/* Waits for an answer that the daemon gives at once. Time without a connection does not count, since it has a limit of
 * its own. what: for the error. errors: -SW_ETIMEDOUT. */
int sw_client_wait_answer(struct spillway *c, bool (*ended)(const void *arg), const void *arg, int timeout_ms,
                          const char *what, struct sw_err *err);
/* Returns sw_ticket_is_done() of a ticket. */
bool sw_client_is_done(const void *ticket);
/* Waits like sw_client_wait(), until ended(arg). expected_us: how long that will take; 0: not known. */
int sw_client_wait_until(struct spillway *c, bool (*ended)(const void *arg), const void *arg, int timeout_ms,
                         uint64_t expected_us);
/* ---- client_transport.c ---- */

/* Returns the error of a failed call, from its errno: -SW_ELIMIT if descriptors have run out, else -SW_ECONN. */
int sw_client_open_failed(int cause);
/* Connects the first time, until the deadline, and watches the socket. errors: -SW_ENOSERVICE, -SW_EACCES,
 * -SW_ETIMEDOUT, -SW_EUNTRUSTED, -SW_EINVAL, -SW_ELIMIT, -SW_ECONN. */
int sw_transport_open(struct spillway *c, const char *path, uint64_t deadline_us, struct sw_err *err);
int sw_transport_watch(struct spillway *c, struct sw_err *err);
/* Sends as much of the outbox as fits. Returns 0, or -SW_ECONN if the peer is gone. Packets that it sent before can
 * still be received. */
int sw_transport_flush(struct spillway *c);
/* Receives a packet into c->received. errors: -SW_EAGAIN (there is none), -SW_ECONN (the peer is gone), -SW_EFDS (it
 * has descriptors), -SW_EPROTO. */
int sw_transport_receive(struct spillway *c, size_t *ret_bytes);
/* Connects without waiting. *ret does not block, and its server is trusted. errors:
 * -SW_ENOSERVICE, -SW_EACCES, -SW_EUNTRUSTED, -SW_ELIMIT. */
int sw_client_connect(const struct spillway *c, const char *path, int *ret, struct sw_err *err);

/* ---- client_resume.c ---- */

/* Enables reconnections, by the token and with the limit of HELLO_OK. errors: -SW_ENOMEM, -SW_ELIMIT, -SW_ECONN (no
 * timer). */
int sw_resume_enable(struct spillway *c, const char *path, const struct sw_msg_hello_ok *hello, struct sw_err *err);
/* Begins to reconnect after a loss. Returns false if the connection cannot come back. */
bool sw_resume_begin(struct spillway *c);
/* Does the next step of a reconnection, if it is time. */
void sw_resume_advance(struct spillway *c);
/* Takes the reply to the HELLO of a reconnection. Returns false if none is due. */
bool sw_resume_take(struct spillway *c, const struct sw_msg *msg);
/* Connects to the service's next process, and asks for the session once, so that it can be ended there. Returns whether
 * the process will answer. */
bool sw_resume_to_end(struct spillway *c);
void sw_resume_free(struct spillway *c);

/* Ends the connection: running tickets fail with `lost`, and the outbox is dropped. */
void sw_client_fail(struct spillway *c, const struct spillway_error *lost);
/* Ends the connection with an error made of a code and a text. */
void sw_client_fail_text(struct spillway *c, int code, const char *text);

#endif

/* client.h - inside of libspillway: the connection, its tickets and the packets on their way. Not installed.
 *
 * A ticket stands for a group of packets with consecutive seqs, of which the last is the request and those before it
 * hand over its memory. It is done when every packet of the group was answered, or the connection is lost. The caller's
 * tickets, of calls (client_transfer.h), have no packets: those are tickets of the library's own. Every ticket is on
 * one of the connection's lists until it is freed. Nothing here waits but sw_client_wait*(). thread: any, one at a time
 * per connection. */
#ifndef SW_IPC_CLIENT_H
#define SW_IPC_CLIENT_H

#include "base/forecast.h"
#include "base/list.h"
#include "ipc/client/memory.h"
#include "ipc/proto.h"
#include "ipc/spillway.h"
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

struct sw_arrays;   /* client_transfer.c's own */
struct sw_transfer; /* a call, to the end of its ticket */
struct sw_staging;  /* the arenas */

/* Where a ticket is on its way:
 *
 *   RUNS -> DONE -> DELIVERED
 *   RUNS -> SETTLING -> DONE     a spill or restore of which something was sent when the connection was lost
 *   RUNS -> REPEATED -> DONE     likewise a request that may be sent twice
 *
 * One that is SETTLING or REPEATED stays so when the connection is lost again. Where nobody waits for a ticket, it is
 * freed in place of becoming DONE. */
enum sw_ticket_state {
    SW_TICKET_RUNS,      /* its packets, or its parts; while the connection is down: none has left the outbox */
    SW_TICKET_SETTLING,  /* the daemon is asked what became of the request */
    SW_TICKET_REPEATED,  /* the request is sent again */
    SW_TICKET_DONE,      /* all is answered, or has failed */
    SW_TICKET_DELIVERED, /* likewise, and the caller has the result, with all that it needs to name the region */
};

struct spillway_ticket {
    struct sw_list node; /* of spillway: running, fresh, counted, done, transfers */
    struct spillway *connection;
    unsigned operation; /* enum sw_msg_type of the last packet; BUILD or READ also of a caller's ticket */
    enum sw_ticket_state state;
    bool is_durable; /* of a spill: one of its regions has a name */
    bool abandoned;  /* nobody waits for it: it is freed when it is done */
    void *user;      /* the caller's */
    struct spillway_error error;
    /* Takes the reply to the last packet, but not ERROR; false: it is none. NULL: the reply is OK, or of no interest.
     */
    bool (*take)(struct spillway_ticket *t, const struct sw_msg *msg);
    void *into; /* where take() puts what is asked for */
    struct {    /* those that it has sent; n is 0 where only its parts send any */
        uint32_t first_seq;
        unsigned n, n_answered;
        bool answered[SW_CLIENT_MAX_GROUP];
        unsigned error_index; /* of the packet whose error is kept: the first of the group */
    } packets;
    struct {                      /* for when the connection has been lost */
        uint32_t settled_seq;     /* SETTLING: of the request */
        struct sw_packet *repeat; /* a request that may be sent twice; owned; NULL: none */
    } resume;
    struct {                        /* of a packet that spills or restores */
        uint32_t mem;               /* of its first item; also where it is only handed over */
        bool mem_open;              /* the daemon has accepted MEM_OPEN */
        bool is_of_call;            /* own.owner is a sw_transfer */
        bool is_of_opened;          /* in memory that was opened before it, for its call */
        bool is_each;               /* its items succeed or fail one by one */
        uint64_t bytes;             /* length of all buffers */
        uint32_t n_items, n_pieces; /* builds or reads, and their buffers */
        bool is_append;             /* of a build or read of several packets, which ends with the daemon */
    } transfer;
    struct sw_transfer *call; /* a caller's; owned */
    struct { /* one of the library's own: told when it is done, and destroyed then; must not send anything */
        void (*on_done)(struct spillway_ticket *t);
        void *owner;    /* what on_done() is about */
        uint32_t part;  /* of the owner's */
        unsigned place; /* in an arena */
    } own;
};

static inline bool sw_ticket_is_done(const struct spillway_ticket *t) {
    return t->state >= SW_TICKET_DONE;
}

/* Whether it goes on by another packet since the connection was lost. */
static inline bool sw_ticket_is_resumed(const struct spillway_ticket *t) {
    return t->state == SW_TICKET_SETTLING || t->state == SW_TICKET_REPEATED;
}

enum sw_link { SW_LINK_UP, SW_LINK_DOWN, SW_LINK_HELLO };

/* Timers in epoll; their descriptors are -1 until they are needed. */
enum sw_client_timer { SW_TIMER_STAGING, SW_TIMER_RESUME, SW_TIMER_CALLS, SW_TIMER_NR };

/* What lies above tickets and memory, for them to call. The layers: transport <- tickets <- memory <- operations <-
 * client.c, which fills this in. */
struct sw_client_layers {
    /* client_resume.c: takes the reply to its HELLO (false: there is none due); the connection is lost (true: it is
     * tried to come back); goes on with that, if it is time. */
    bool (*take)(struct spillway *c, const struct sw_msg *msg);
    bool (*lost)(struct spillway *c);
    void (*come_back)(struct spillway *c);
    /* Operations: do what can be done without waiting; whether one is in the memory of that number; the same of a
     * packet. */
    void (*advance)(struct spillway *c);
    bool (*use)(const struct spillway *c, uint32_t mem);
    bool (*packet_uses)(const struct spillway_ticket *t, uint32_t mem);
    /* A caller's call: nobody waits for it any more; its regions that nobody has seen are dropped; its end. */
    void (*abandon)(struct sw_transfer *transfer);
    void (*drop_unseen)(struct sw_transfer *transfer);
    void (*free)(struct sw_transfer *transfer);
};

struct spillway {
    const struct sw_client_layers *layers;
    int timers[SW_TIMER_NR];
    pid_t process;       /* that opened it; a forked child has the socket open as well */
    int socket;          /* -1: none, the link is down */
    int64_t service_uid; /* that the caller has named as the service's; SW_TRUST_NO_USER: none */
    int wake;            /* eventfd, written when a ticket becomes fresh, read by dispatch */
    int epoll;           /* watches wake, the socket, and for room in that only while packets wait */
    bool woken;
    bool polls_room;
    int retry; /* timer for a socket that claims to have room but takes nothing, in epoll; -1: never needed */
    uint64_t retry_us, retry_at_us; /* its pause, and when it ends; 0: not set */
    struct spillway_error lost;     /* code 0: alive; else what ended the connection */
    enum sw_link link;
    uint64_t up_us;           /* when it came back last; 0: never */
    bool was_stopped;         /* since then the service has said that it stops */
    int connect_ms;           /* of spillway_open() */
    int timeout_ms;           /* of calls that wait for an answer; -1: none */
    struct sw_resume *resume; /* what it takes to come back; NULL: a connection that is lost is lost for good */
    uint32_t next_seq, next_mem;
    uint32_t next_number;                /* of builds and reads */
    uint32_t max_in_flight, n_in_flight; /* packets that spill or restore */
    uint32_t max_pieces, n_pieces;       /* buffers of those */
    /* spillway_ticket.node. A transfer that has completed is fresh, then counted (by dispatch), and done as soon as the
     * caller knows which it is; other requests are done at once, and what has an on_done() is on none of the three. */
    struct sw_list running, fresh, counted, done;
    struct sw_list outbox;     /* sw_packet.node, in order */
    struct sw_list registered; /* sw_registered.node */
    struct sw_cuda *cuda;
    bool has_marks;           /* the daemon has been sent the page that they are on */
    struct sw_arrays *arrays; /* of the packet that is being made */
    struct sw_list transfers; /* calls that run; spillway_ticket.node, oldest first */
    struct sw_list ending;    /* of them, those whose last reply has come: sw_transfer.ending */
    uint32_t n_transfers;
    int timer;                       /* in epoll, for calls with a bound; -1: never needed */
    struct sw_staging *staging;      /* NULL: never needed */
    struct sw_forecast forecasts[2]; /* of waits: for what goes out, for what comes back */
    _Alignas(SW_PROTO_ALIGN) uint8_t received[SW_PROTO_MAX_PACKET_BYTES];
};

/* Memory that the daemon keeps open until it is unregistered. */
struct sw_registered {
    struct sw_list node;
    const void *data;
    uintptr_t address; /* the same */
    uint64_t bytes;
    uint32_t mem; /* its name in the session */
    enum sw_mem_kind kind;
    uint64_t offset;                 /* of `address` in the exported memory */
    struct sw_err error;             /* why it could not be handed over again after a restart; code 0: it was */
    struct spillway_ticket *closing; /* spillway_unregister() has asked for its end; NULL: it has not */
    bool refused; /* it was, but the daemon has it as one that failed, until it is told to close it */
};

/* Fills the caller's error record, if there is one, from the project's own. Returns err->code. */
int sw_client_report(struct spillway_error *ret, const struct sw_err *err);

/* Hands on an error that is already the caller's kind; ret may be NULL. Returns its code. */
int sw_client_copy_error(struct spillway_error *ret, const struct spillway_error *from);
/* Keep an error as *first, unless there is an earlier one. */
void sw_client_note_error(struct spillway_error *first, const struct spillway_error *error);
void sw_client_note_err(struct spillway_error *first, const struct sw_err *err);

/* No more fits the daemon's limit: returns -SW_ELIMIT. */
int sw_client_too_many(unsigned n_in_flight, struct sw_err *err);
/* Adds a part's text to that of all: the same, or "mixed". */
void sw_client_combine(char *ret, size_t ret_bytes, const char *part);

/* Refuses what a forked child does with a connection of its parent's. errors: -SW_EINVAL. */
int sw_client_check_process(const struct spillway *c, struct spillway_error *error);
/* A number that no build or read of the connection has. */
uint32_t sw_client_new_number(struct spillway *c);

/* Sends one message that hands over no memory; take and into are those of its ticket. Returns its ticket. errors:
 * -SW_ENOMEM, that of c->lost. */
struct spillway_ticket *sw_client_ask(struct spillway *c, const struct sw_msg *msg,
                                      bool (*take)(struct spillway_ticket *t, const struct sw_msg *msg), void *into,
                                      struct sw_err *err);
/* Sends it and waits for its answer. Returns the ticket, done; the caller looks at its error and destroys it. errors:
 * those of sw_client_ask(), -SW_ETIMEDOUT. */
struct spillway_ticket *sw_client_call(struct spillway *c, const struct sw_msg *msg,
                                       bool (*take)(struct spillway_ticket *t, const struct sw_msg *msg), void *into,
                                       int timeout_ms, struct sw_err *err);

/* client_memory.c: a number for a memory that none in use has. */
uint32_t sw_client_new_mem(struct spillway *c);
/* Hands memory over to stay under the name `mem`, without waiting until the daemon has mapped it: then the ticket is
 * done. errors: -SW_ENOMEM (NULL). */
struct spillway_ticket *sw_client_open_memory(struct spillway *c, uint32_t mem, struct sw_export *e,
                                              struct sw_err *err);
/* Has the daemon close it, without waiting. */
void sw_client_close_memory(struct spillway *c, uint32_t mem);
/* Appends the packets that hand exported memory over under the name `mem`; its descriptors move into
 * them. errors: -SW_ENOMEM. */
int sw_client_add_memory(struct sw_list *group, uint32_t mem, bool once, struct sw_export *e, struct sw_err *err);
/* To be called before a mark is named to the daemon: hands over the page that marks are on, if there is one that it
 * does not have. While the connection is down that is done when it comes back. errors: -SW_ENOMEM, -SW_ELIMIT. */
int sw_client_share_marks(struct spillway *c, struct sw_err *err);
/* The connection has come back: hands the page over again, before what names marks. errors: as above. */
int sw_client_reshare_marks(struct spillway *c, struct sw_err *err);
/* Whether r holds all of data[0..bytes). */
bool sw_registered_holds(const struct sw_registered *r, const void *data, uint64_t bytes);
/* The registered memory that holds all of data[0..bytes), with kind and offset of the range put into *ret; or NULL. */
const struct sw_registered *sw_registered_find(const struct spillway *c, const void *data, uint64_t bytes,
                                               struct sw_export *ret);
/* To be called before memory is named to the daemon: what is registered and could not be handed over again after a
 * restart, or was refused then, is tried anew. Any other memory is ready. errors: those of sw_export_find(). */
int sw_registered_ready(struct spillway *c, uint32_t mem, struct sw_err *err);
/* The connection has come back: hands over again what is registered; where that fails, what waits in the outbox to use
 * it has the error. */
void sw_registered_reopen(struct spillway *c);
/* Forgets what is registered; the daemon unmaps it with the end of the session. */
void sw_registered_free(struct spillway *c);

/* A ticket on no list yet, and a packet for one message appended to *group. errors: -SW_ENOMEM. */
struct spillway_ticket *sw_ticket_new(struct spillway *c, unsigned operation, struct sw_err *err);
struct sw_packet *sw_packet_new(struct sw_list *group, const struct sw_msg *msg, struct sw_err *err);
/* A copy of a packet without descriptors, for after a restart; NULL: it cannot be had, or the connection cannot come
 * back. */
struct sw_packet *sw_packet_copy(const struct spillway *c, const struct sw_list *packet);
/* Frees a packet with its descriptors. */
void sw_packet_free(struct sw_packet *packet);
/* The running ticket that a packet of that seq belongs to, or NULL. */
struct spillway_ticket *sw_ticket_find(struct spillway *c, uint32_t seq);
/* Frees packets that were not submitted, with their descriptors. */
void sw_packets_free(struct sw_list *group);
/* Takes a ticket off its list and frees it. */
void sw_ticket_destroy(struct spillway_ticket *t);
/* The ticket is done: its caller is told, or it is destroyed if nobody waits for it. */
void sw_ticket_complete(struct spillway_ticket *t);
/* The caller forgets the ticket: a region whose id it never saw is dropped, now or when the operation ends. */
void sw_ticket_abandon(struct spillway_ticket *t);

/* The caller learns that the ticket is done: neither fresh nor counted any more. */
void sw_ticket_known(struct spillway_ticket *t);

/* Gives packets the next seqs and moves them to the outbox, as all that the ticket waits for. */
void sw_client_enqueue(struct spillway_ticket *t, struct sw_list *group);
/* Sends a request whose answer nobody waits for. False: -SW_ENOMEM; what it names stays until the connection ends. */
bool sw_client_submit_unattended(struct spillway *c, const struct sw_msg *msg);
/* Gives the group its seqs, moves it to the outbox and sends what fits; the ticket then is running. */
void sw_client_submit(struct spillway_ticket *t, struct sw_list *group);
/* Sends and receives until nothing moves. Returns 0, or the code of c->lost. To be called before a call is refused for
 * what is under way: who does nothing but try again would else never see it end. */
int sw_client_pump(struct spillway *c);
/* Pumps until the ticket is done. timeout_ms: -1 no limit. errors: -SW_EAGAIN; the ticket's own are not looked at. */
int sw_client_wait(struct spillway_ticket *t, int timeout_ms);
/* Waits for what the daemon is to answer at once: time in which the connection is away does not count, which has a
 * bound of its own. errors: -SW_ETIMEDOUT; *err says what was not done. */
int sw_client_wait_answer(struct spillway *c, bool (*ended)(const void *arg), const void *arg, int timeout_ms,
                          const char *what, struct sw_err *err);
/* sw_ticket_is_done() of a ticket. */
bool sw_client_is_done(const void *ticket);
/* As sw_client_wait(), until ended(arg). expected_us: how long that will take, 0: not known. */
int sw_client_wait_until(struct spillway *c, bool (*ended)(const void *arg), const void *arg, int timeout_ms,
                         uint64_t expected_us);
/* ---- client_transport.c ---- */

/* The code for an errno of a call that makes what a connection needs: -SW_ELIMIT if there is no descriptor for it, else
 * -SW_ECONN. */
int sw_client_open_failed(int cause);
/* Connects the first time, by then; and watches the socket. errors: -SW_ENOSERVICE, -SW_EACCES, -SW_ETIMEDOUT,
 * -SW_EUNTRUSTED, -SW_EINVAL, -SW_ELIMIT, -SW_ECONN. */
int sw_transport_open(struct spillway *c, const char *path, uint64_t deadline_us, struct sw_err *err);
int sw_transport_watch(struct spillway *c, struct sw_err *err);
/* Sends what fits of the outbox. Returns 0, or -SW_ECONN: the peer is gone, but what it said before may still be read.
 */
int sw_transport_flush(struct spillway *c);
/* Takes a packet into c->received. errors: -SW_EAGAIN (there is none), -SW_ECONN (the peer is gone), -SW_EFDS
 * (descriptors came with it), -SW_EPROTO. */
int sw_transport_receive(struct spillway *c, size_t *ret_bytes);
/* Connects without waiting. Returns 0 with a socket that does not block, and whose server is trusted. errors:
 * -SW_ENOSERVICE, -SW_EACCES, -SW_EUNTRUSTED, -SW_ELIMIT. */
int sw_client_connect(const struct spillway *c, const char *path, int *ret, struct sw_err *err);

/* client_resume.c: the connection may come back by this token, for so long after it was lost. errors: -SW_ENOMEM,
 * -SW_ELIMIT, -SW_ECONN (no timer). */
int sw_resume_enable(struct spillway *c, const char *path, const struct sw_msg_hello_ok *hello, struct sw_err *err);
/* The connection is lost. True: it is tried to come back; what was running is settled then. */
bool sw_resume_begin(struct spillway *c);
/* Goes on with coming back, if it is time. */
void sw_resume_advance(struct spillway *c);
/* Takes the answer to its HELLO. False: there is none due. */
bool sw_resume_take(struct spillway *c, const struct sw_msg *msg);
void sw_resume_free(struct spillway *c);

/* Ends the connection: running tickets fail with `lost`, waiting packets are dropped. */
void sw_client_fail(struct spillway *c, const struct spillway_error *lost);
/* Ends it likewise, with what went wrong in words. */
void sw_client_fail_text(struct spillway *c, int code, const char *text);

#endif

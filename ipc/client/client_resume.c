/* client_resume.c - reconnects to the service's next process, by the session's token.
 *
 *   UP -> DOWN    the socket is closed; requests that were sent are marked to be settled, others stay in the outbox
 *   DOWN -> HELLO the socket is connected; this is tried until the deadline, with longer and longer pauses
 *   HELLO -> UP   the daemon knows the session: memories are handed over again, requests without a reply are settled or
 *                 repeated, and then the outbox is sent
 *   -> lost       the deadline is over, or the daemon does not know the session
 *
 * Nothing here waits. sw_resume_advance() is called wherever packets are received, and a timer asks for it. */
#include "ipc/client/client_coder.h"
#include "ipc/client/client_staging.h"
#include "ipc/client/client_transfer.h"
#include "ipc/client/client_way.h"

#include "base/alloc.h"
#include "base/clock.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_RETRY_US = 5000, LAST_RETRY_US = 500000 };

struct sw_resume {
    uint8_t token[sizeof((struct sw_msg_hello *)0)->token];
    int limit_ms;          /* the caller's limit; -1: none */
    uint32_t reconnect_ms; /* the daemon's limit */
    uint64_t lost_us, deadline_us, next_try_us, retry_us;
    uint32_t hello_seq;
    bool is_known;          /* reconnect_ms comes from the current daemon */
    struct sw_err impostor; /* the error of a server that is not trusted, since the loss; code 0: none */
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
};

/* Makes the path absolute, because the program may change its directory. A path that would be too long stays as given.
 */
static void keep_path(char *ret, size_t ret_bytes, const char *path) {
    char folder[PATH_MAX];
    const bool is_relative = path[0] != '/' && getcwd(folder, sizeof folder);
    const int n = is_relative ? snprintf(ret, ret_bytes, "%s/%s", folder, path) : -1;
    if (n < 0 || (size_t)n >= ret_bytes)
        (void)snprintf(ret, ret_bytes, "%s", path);
}

int sw_resume_enable(struct spillway *c, const char *path, const struct sw_msg_hello_ok *hello, struct sw_err *err) {
    struct epoll_event event = {.events = EPOLLIN};
    struct sw_resume *r = sw_alloc(sizeof *r);
    if (!r)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a connection");
    keep_path(r->path, sizeof r->path, path);
    memcpy(r->token, hello->token, sizeof r->token);
    r->reconnect_ms = hello->reconnect_ms;
    r->limit_ms = -1;
    c->timers[SW_TIMER_RESUME] = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    c->resume = r;
    if (c->timers[SW_TIMER_RESUME] < 0 || epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->timers[SW_TIMER_RESUME], &event) < 0)
        return sw_err_set(err, sw_client_open_failed(errno), SW_SCOPE_SESSION, "timer: %s", strerror(errno));
    return 0;
}

void sw_resume_free(struct spillway *c) {
    sw_free(c->resume);
    c->resume = NULL;
}

static void wake_at(const struct spillway *c, uint64_t us) {
    const struct itimerspec time = {
        .it_value = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000}};
    (void)timerfd_settime(c->timers[SW_TIMER_RESUME], TFD_TIMER_ABSTIME, &time,
                          NULL); /* also makes the timer unreadable */
}

/* Sets the timer for the next step of sw_resume_advance(), at the latest for the deadline. */
static void wake_for(const struct spillway *c, uint64_t step_us) {
    const struct sw_resume *r = c->resume;
    wake_at(c, step_us < r->deadline_us ? step_us : r->deadline_us);
}

static void set_deadline(struct sw_resume *r) {
    const uint64_t limit_ms = r->limit_ms < 0 ? r->reconnect_ms : (uint64_t)r->limit_ms;
    r->deadline_us = r->lost_us + limit_ms * 1000;
}

void spillway_set_reconnect(struct spillway *connection, int timeout_ms) {
    struct sw_resume *r = connection->resume;
    if (!r || sw_client_enter(connection, NULL) < 0)
        return;
    r->limit_ms = timeout_ms;
    if (connection->link != SW_LINK_UP) {
        set_deadline(r);
        wake_for(connection, connection->link == SW_LINK_DOWN || r->is_known ? r->next_try_us : r->deadline_us);
    }
    sw_client_leave(connection);
}

static void hang_up(struct spillway *c) {
    if (c->socket >= 0) {
        (void)epoll_ctl(c->epoll, EPOLL_CTL_DEL, c->socket, NULL); /* a forked child may have the socket open as well */
        (void)shutdown(c->socket, SHUT_RDWR);                      /* for the same reason */
        (void)close(c->socket);
    }
    c->socket = -1;
    c->polls_room = false;
}

/* Lets the timer expire now, so that spillway_fd() becomes readable. */
static void fail(struct spillway *c, int code, const char *text) {
    sw_client_fail_text(c, code, text);
    wake_at(c, 1);
}

/* Ends the connection at the deadline. The error names a server that was not trusted, if there was one. */
static void fail_late(struct spillway *c) {
    struct spillway_error lost;
    if (!c->resume->impostor.code) {
        if (c->was_stopped)
            fail(c, -SW_ESHUTDOWN, "the service has stopped and did not come back in time");
        else
            fail(c, -SW_ECONN, "the daemon closed the connection and did not come back in time");
        return;
    }
    (void)sw_client_report(&lost, &c->resume->impostor);
    sw_client_fail(c, &lost);
    wake_at(c, 1);
}

/* ---- down -------------------------------------------------------------------------------------------------------- */

static bool is_operation(const struct spillway_ticket *t) {
    return (t->operation == SW_MSG_BUILD || t->operation == SW_MSG_READ) && t->transfer.n_items;
}

static void complete(struct spillway_ticket *t, int code) {
    struct sw_err err = {0};
    if (code && !t->error.code) {
        (void)sw_err_set(&err, code, SW_SCOPE_REQUEST, "the service was restarted meanwhile");
        (void)sw_client_report(&t->error, &err);
    }
    sw_ticket_complete(t);
}

static struct sw_packet *packet_of(struct sw_list *node) {
    return SW_CONTAINER_OF(node, struct sw_packet, node);
}

static uint32_t seq_of(const struct sw_packet *p) {
    uint32_t seq;
    memcpy(&seq, p->data + offsetof(struct sw_msg_header, seq), sizeof seq);
    return seq;
}

/* Returns whether the ticket's packets are all in the outbox. Their numbers do not tell: after a reconnection new
 * packets go before those that have waited. */
static bool is_unsent(const struct spillway *c, const struct spillway_ticket *t) {
    struct sw_list *n = c->outbox.next;
    while (n != &c->outbox && seq_of(packet_of(n)) != t->packets.first_seq)
        n = n->next;
    return n != &c->outbox && !sw_ticket_is_resumed(t);
}

/* Returns whether the ticket's packets are about a build or read that is gone with the daemon. */
static bool is_of_no_use(const struct spillway *c, const struct spillway_ticket *t) {
    return t->transfer.is_append || (t->transfer.is_commit && is_unsent(c, t));
}

/* Returns whether the ticket's packets were not sent, and can be sent unchanged after the reconnection. MEM_CLOSE
 * cannot: the memory may be handed over again before. */
static bool can_wait(const struct spillway *c, const struct spillway_ticket *t) {
    return is_unsent(c, t) && !t->transfer.is_of_opened && !is_of_no_use(c, t) &&
           (is_operation(t) || (t->resume.repeat && t->operation != SW_MSG_SETTLE && t->operation != SW_MSG_MEM_CLOSE));
}

/* Marks each running ticket: to be settled, repeated, or done. The daemon's end has closed all memory. A ticket that
 * completes may free or submit others, but none that is on the list. */
static void mark_running(struct spillway *c) {
    for (struct sw_list *n = c->running.next, *next; n != &c->running; n = next) {
        struct spillway_ticket *t = SW_CONTAINER_OF(n, struct spillway_ticket, node);
        next = n->next;
        if (can_wait(c, t))
            continue;
        if (is_of_no_use(c, t)) {
            complete(t, -SW_ERESTARTED);
        } else if (t->error.code || t->operation == SW_MSG_MEM_CLOSE || t->operation == SW_MSG_SETTLE) {
            complete(t, 0);
        } else if (is_operation(t)) {
            if (t->state == SW_TICKET_RUNS)
                t->resume.settled_seq = t->packets.first_seq + t->packets.n - 1;
            t->state = SW_TICKET_SETTLING;
        } else if (t->resume.repeat) {
            t->state = SW_TICKET_REPEATED;
        } else {
            complete(t, -SW_ERESTARTED);
        }
    }
}

/* Frees the packets in the outbox, except those of tickets that can wait. */
static void purge_outbox(struct spillway *c) {
    for (struct sw_list *n = c->outbox.next, *next; n != &c->outbox; n = next) {
        const struct spillway_ticket *t = sw_ticket_find(c, seq_of(packet_of(n)));
        next = n->next;
        if (!t || sw_ticket_is_resumed(t))
            sw_packet_free(packet_of(n));
    }
}

bool sw_resume_begin(struct spillway *c) {
    struct sw_resume *r = c->resume;
    const bool was_up = c->link == SW_LINK_UP;
    if (!r || c->lost.code || (was_up && r->limit_ms == 0))
        return false;
    hang_up(c);
    r->is_known = false;
    c->link = SW_LINK_DOWN;
    c->has_marks = false;
    const uint64_t now_us = sw_clock_us();
    if (was_up) {
        r->lost_us = now_us;
        set_deadline(r);
        r->retry_us = FIRST_RETRY_US;
        r->impostor.code = 0;
        mark_running(c);
        purge_outbox(c);
    }
    r->next_try_us = now_us + r->retry_us;
    r->retry_us = 2 * r->retry_us < LAST_RETRY_US ? 2 * r->retry_us : LAST_RETRY_US;
    wake_for(c, r->next_try_us);
    return true;
}

/* ---- hello ------------------------------------------------------------------------------------------------------- */

static int say_hello(struct spillway *c) {
    struct sw_resume *r = c->resume;
    struct epoll_event event = {.events = EPOLLIN};
    struct sw_msg msg;
    sw_msg_init(&msg, SW_MSG_HELLO);
    msg.header.seq = r->hello_seq = c->next_seq++;
    msg.u.hello.version = SW_PROTO_VERSION;
    sw_msg_set_text(msg.u.hello.client, sizeof msg.u.hello.client, program_invocation_short_name);
    memcpy(msg.u.hello.token, r->token, sizeof msg.u.hello.token);
    if (epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->socket, &event) < 0)
        return -SW_ECONN;
    return sw_packet_send(c->socket, c->received, sw_msg_encode(&msg, c->received), NULL, 0);
}

/* ---- up ---------------------------------------------------------------------------------------------------------- */

static bool make_settle(const struct spillway_ticket *t, struct sw_list *ret) {
    struct sw_wire_id ids[SW_PROTO_MAX_ITEMS];
    struct sw_msg msg;
    sw_msg_init(&msg, SW_MSG_SETTLE);
    sw_transfer_settle(t, ids);
    msg.u.settle = (struct sw_msg_settle){.type = t->operation,
                                          .seq = t->resume.settled_seq,
                                          .flags = t->transfer.is_each ? 0 : SW_REQ_ALL,
                                          .n_ids = (uint16_t)t->transfer.n_items,
                                          .ids = ids};
    return sw_packet_new(ret, &msg, NULL);
}

static bool make_ask(struct spillway *c, const struct spillway_ticket *t, struct sw_list *ret) {
    if (t->state == SW_TICKET_SETTLING)
        return make_settle(t, ret);
    struct sw_packet *copy = sw_packet_copy(c, &t->resume.repeat->node);
    if (copy)
        sw_list_append(ret, &copy->node);
    return copy != NULL;
}

/* Makes the packets that settle or repeat requests, in the order of the tickets. All or none, because after the last
 * SETTLE the daemon forgets the others. */
static bool make_asks(struct spillway *c, struct sw_list *ret) {
    sw_list_init(ret);
    for (struct sw_list *n = c->running.next; n != &c->running; n = n->next) {
        const struct spillway_ticket *t = SW_CONTAINER_OF(n, struct spillway_ticket, node);
        if (sw_ticket_is_resumed(t) && !make_ask(c, t, ret)) {
            sw_packets_free(ret);
            return false;
        }
    }
    return true;
}

static void ask(struct spillway_ticket *t, struct sw_list *asks) {
    struct sw_list group;
    sw_list_init(&group);
    sw_list_append(&group, sw_list_take_first(asks));
    sw_client_enqueue(t, &group);
}

static void try_later(struct spillway *c) {
    c->resume->next_try_us = sw_clock_us() + LAST_RETRY_US;
    wake_for(c, c->resume->next_try_us);
}

/* Goes on with a session that the daemon knows. Memories are handed over again with new tickets behind the running
 * ones. */
static void come_back(struct spillway *c) {
    struct sw_list later, asks;
    struct sw_msg all; /* the last SETTLE */
    struct sw_list *last = c->running.prev;
    if (!make_asks(c, &asks)) { /* try again until there is memory, or the deadline is over */
        try_later(c);
        return;
    }
    sw_list_init(&later);
    sw_list_append_all(&later, &c->outbox);
    if (sw_client_reshare_marks(c, NULL) < 0) {
        sw_packets_free(&asks);
        sw_list_append_all(&c->outbox, &later);
        try_later(c);
        return;
    }
    sw_registered_reopen(c);
    sw_staging_reopen(c);
    sw_coder_links_reopen(c);
    sw_ways_reopen(c);
    bool more = last != &c->running;
    for (struct sw_list *n = c->running.next, *next; more; n = next) {
        struct spillway_ticket *t = SW_CONTAINER_OF(n, struct spillway_ticket, node);
        next = n->next;
        more = n != last;
        if (sw_ticket_is_resumed(t))
            ask(t, &asks);
    }
    sw_msg_init(&all, SW_MSG_SETTLE);
    (void)sw_client_submit_unattended(c, &all);
    sw_list_append_all(&c->outbox, &later);
    c->link = SW_LINK_UP;
    c->up_us = sw_clock_us();
    c->was_stopped = false;
    wake_at(c, 0);
}

bool sw_resume_take(struct spillway *c, const struct sw_msg *msg) {
    struct sw_resume *r = c->resume;
    if (!r || c->link != SW_LINK_HELLO)
        return false;
    const struct sw_msg_hello_ok *ok = &msg->u.hello_ok;
    if (msg->header.type != SW_MSG_HELLO_OK || msg->header.seq != r->hello_seq) {
        (void)sw_resume_begin(c); /* the daemon is stopping, or full: try again */
    } else if (!ok->resumed || ok->version != SW_PROTO_VERSION) {
        hang_up(c);
        fail(c, -SW_ERESTARTED, "the service was restarted and has nothing of this connection any more");
    } else {
        c->max_in_flight = ok->max_in_flight;
        c->max_buffers = ok->max_buffers;
        r->reconnect_ms = ok->reconnect_ms;
        r->is_known = true;
        come_back(c);
    }
    return true;
}

bool sw_resume_to_end(struct spillway *c) {
    struct sw_err err;
    if (!c->resume || c->lost.code == -SW_ERESTARTED)
        return false;
    hang_up(c);
    return sw_client_connect(c, c->resume->path, &c->socket, &err) == 0 && say_hello(c) == 0;
}

/* ---- the next step ----------------------------------------------------------------------------------------------- */

void sw_resume_advance(struct spillway *c) {
    struct sw_resume *r = c->resume;
    struct sw_err err = {0};
    if (!r || c->link == SW_LINK_UP || c->lost.code)
        return;
    const uint64_t now_us = sw_clock_us();
    if (now_us >= r->deadline_us) {
        hang_up(c);
        fail_late(c);
        return;
    }
    if ((c->link != SW_LINK_DOWN && !r->is_known) || now_us < r->next_try_us)
        return;
    if (r->is_known) {
        come_back(c);
        return;
    }
    const int connected = sw_client_connect(c, r->path, &c->socket, &err);
    if (connected == -SW_EUNTRUSTED)
        r->impostor = err;
    if (connected < 0 || say_hello(c) < 0) {
        (void)sw_resume_begin(c); /* try again later */
        return;
    }
    c->link = SW_LINK_HELLO;
    wake_at(c, r->deadline_us);
}

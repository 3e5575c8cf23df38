/* client_tickets.c - tickets: sends their packets, takes their replies, and waits for them. */
#include "ipc/client/client.h"

#include "base/alloc.h"
#include "base/clock.h"
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static bool is_transfer(const struct spillway_ticket *t) {
    return t->operation == SW_MSG_BUILD || t->operation == SW_MSG_READ;
}

/* Returns whether the daemon counts the ticket's packet as an operation. A caller's ticket sends nothing itself, and a
 * packet that only cancels does not count. */
static bool is_in_flight(const struct spillway_ticket *t) {
    return is_transfer(t) && t->transfer.n_items;
}

struct spillway_ticket *sw_ticket_new(struct spillway *c, unsigned operation, struct sw_err *err) {
    struct spillway_ticket *t = sw_alloc(sizeof *t);
    if (!t) {
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a ticket");
        return NULL;
    }
    sw_list_init(&t->node);
    t->connection = c;
    t->operation = operation;
    return t;
}

void sw_ticket_destroy(struct spillway_ticket *t) {
    sw_list_remove(&t->node);
    if (t->call)
        t->connection->layers->free(t->call);
    sw_free(t->resume.repeat);
    sw_free(t);
}

bool sw_client_submit_unattended(struct spillway *c, const struct sw_msg *msg) {
    struct sw_list group;
    sw_list_init(&group);
    struct spillway_ticket *t = sw_ticket_new(c, msg->header.type, NULL);
    if (!t || !sw_packet_new(&group, msg, NULL)) {
        sw_free(t);
        return false;
    }
    t->abandoned = true;
    t->resume.repeat = sw_packet_copy(c, group.next);
    sw_client_submit(t, &group);
    return true;
}

static void close_memory(struct spillway *c, uint32_t mem) {
    const struct sw_msg msg = {.header.type = SW_MSG_MEM_CLOSE, .u.mem_close.mem = mem};
    if (!c->lost.code)
        (void)sw_client_submit_unattended(c, &msg);
}

/* The daemon closes an operation's `once` memory in any case, unless it had no memory (ENOMEM) to begin the operation.
 */
static void close_unused_memory(const struct spillway_ticket *t) {
    if (is_transfer(t) && t->error.code == -SW_ENOMEM && t->transfer.mem_open)
        close_memory(t->connection, t->transfer.mem);
}

/* Drops the regions whose ids the caller has not seen. */
static void drop_unseen_regions(const struct spillway_ticket *t) {
    if (!t->call || t->operation != SW_MSG_BUILD || t->state == SW_TICKET_DELIVERED || t->connection->lost.code)
        return;
    t->connection->layers->drop_unseen(t->call);
}

void sw_ticket_complete(struct spillway_ticket *t) {
    struct spillway *c = t->connection;
    t->state = SW_TICKET_DONE;
    c->n_in_flight -= is_in_flight(t) ? 1u : 0u;
    c->n_buffers -= t->transfer.n_buffers;
    close_unused_memory(t);
    if (t->own.on_done) {
        t->own.on_done(t);
        sw_ticket_destroy(t);
        return;
    }
    if (t->abandoned) {
        drop_unseen_regions(t);
        sw_ticket_destroy(t);
        return;
    }
    sw_list_remove(&t->node);
    sw_list_append(is_transfer(t) ? &c->fresh : &c->done, &t->node);
    if (is_transfer(t) && !c->woken) /* makes spillway_fd() readable, even if another call takes in the reply */
        c->woken = eventfd_write(c->wake, 1) == 0;
}

void sw_ticket_known(struct spillway_ticket *t) {
    sw_list_remove(&t->node);
    sw_list_append(&t->connection->done, &t->node);
}

void sw_ticket_abandon(struct spillway_ticket *t) {
    t->abandoned = true;
    if (t->call && !sw_ticket_is_done(t))
        t->connection->layers->abandon(t->call);
    if (!sw_ticket_is_done(t))
        return;
    drop_unseen_regions(t);
    sw_ticket_destroy(t);
}

void sw_client_fail(struct spillway *c, const struct spillway_error *lost) {
    if (c->lost.code)
        return;
    c->lost = *lost;
    sw_packets_free(&c->outbox);
    c->link = SW_LINK_UP; /* it is not tried to reconnect */
    if (c->socket >= 0)
        (void)shutdown(c->socket, SHUT_RDWR);
    while (!sw_list_empty(&c->running)) {
        struct spillway_ticket *t = SW_CONTAINER_OF(c->running.next, struct spillway_ticket, node);
        if (!t->error.code) /* an error that the daemon reported before is nearer to the cause */
            t->error = *lost;
        sw_ticket_complete(t);
    }
}

void sw_client_fail_text(struct spillway *c, int code, const char *text) {
    struct sw_err err = {0};
    struct spillway_error lost;
    (void)sw_err_set(&err, code, SW_SCOPE_SESSION, "%s", text);
    (void)sw_client_report(&lost, &err);
    sw_client_fail(c, &lost);
}

void sw_client_enqueue(struct spillway_ticket *t, struct sw_list *group) {
    struct spillway *c = t->connection;
    if (c->next_seq - 1 >= UINT32_MAX - SW_CLIENT_MAX_GROUP)
        c->next_seq = 1; /* requests begin at seq 1 */
    t->packets.first_seq = c->next_seq;
    t->packets.n = t->packets.n_answered = 0;
    memset(t->packets.answered, 0, sizeof t->packets.answered);
    for (struct sw_list *n; (n = sw_list_take_first(group)); t->packets.n++) {
        struct sw_packet *p = SW_CONTAINER_OF(n, struct sw_packet, node);
        memcpy(p->data + offsetof(struct sw_msg_header, seq), &c->next_seq, sizeof c->next_seq);
        c->next_seq++;
        sw_list_append(&c->outbox, &p->node);
    }
}

void sw_client_submit(struct spillway_ticket *t, struct sw_list *group) {
    struct spillway *c = t->connection;
    sw_client_enqueue(t, group);
    sw_list_append(&c->running, &t->node);
    c->n_in_flight += is_in_flight(t) ? 1u : 0u;
    c->n_buffers += t->transfer.n_buffers;
    (void)sw_transport_flush(c); /* the next pump notices a lost peer */
}

struct spillway_ticket *sw_ticket_find(struct spillway *c, uint32_t seq) {
    for (struct sw_list *n = c->running.next; n != &c->running; n = n->next) {
        struct spillway_ticket *t = SW_CONTAINER_OF(n, struct spillway_ticket, node);
        if (seq - t->packets.first_seq < t->packets.n)
            return t;
    }
    return NULL;
}

static void take_error(struct spillway_error *ret, const struct sw_msg_error *message) {
    struct sw_err err = {0};
    sw_msg_to_err(&err, message);
    (void)sw_client_report(ret, &err);
    /* The wire's text may be longer than struct sw_err has room for. */
    sw_msg_text(ret->text, sizeof ret->text, message->text, sizeof message->text);
}

#define COPY_TEXT(to, from) sw_msg_text((to), sizeof(to), (from), sizeof(from))

/* Takes the reply to packet `index` of the ticket's group. Returns false if it does not fit the packet. */
static bool take_answer(struct spillway_ticket *t, unsigned index, const struct sw_msg *msg) {
    const bool is_last = index + 1 == t->packets.n;
    if (msg->header.type == SW_MSG_ERROR) {
        if (!t->error.code || index < t->packets.error_index) {
            take_error(&t->error, &msg->u.error);
            t->packets.error_index = index;
        }
        return true;
    }
    if (is_last && t->abandoned && !t->own.on_done && msg->header.type >= SW_MSG_HELLO_OK)
        return true; /* its content does not matter */
    if (is_last && t->take)
        return t->take(t, msg);
    t->transfer.mem_open = t->transfer.mem_open || index == 0;
    return msg->header.type == SW_MSG_OK;
}

/* A drop that was sent twice may find no region the second time. */
static void forgive_repeated_drop(struct spillway_ticket *t) {
    if (t->state == SW_TICKET_REPEATED && (t->error.code == -SW_ESTALE || t->error.code == -SW_ENOENT) &&
        t->operation == SW_MSG_DISCARD)
        t->error = (struct spillway_error){0};
}

static void take_packet(struct spillway *c, const uint8_t *packet, size_t bytes) {
    struct sw_msg msg;
    struct sw_err err = {0};
    if (sw_msg_decode(&msg, packet, bytes, &err) < 0) {
        struct spillway_error lost;
        (void)sw_client_report(&lost, &err);
        sw_client_fail(c, &lost);
        return;
    }
    if (c->layers->take(c, &msg))
        return;
    struct spillway_ticket *t = sw_ticket_find(c, msg.header.seq);
    if (!t && msg.header.type == SW_MSG_ERROR) { /* about the connection: too many sessions, or the service stops */
        struct spillway_error lost;
        take_error(&lost, &msg.u.error);
        c->was_stopped = lost.code == -SW_ESHUTDOWN;
        if (!c->was_stopped || !c->layers->lost(c)) /* the next process may know the session */
            sw_client_fail(c, &lost);
        return;
    }
    const unsigned index = t ? msg.header.seq - t->packets.first_seq : 0;
    if (!t || t->packets.answered[index] || !take_answer(t, index, &msg)) {
        sw_client_fail_text(c, -SW_EPROTO, "the daemon sent an answer that fits no request");
        return;
    }
    t->packets.answered[index] = true;
    if (++t->packets.n_answered < t->packets.n)
        return;
    forgive_repeated_drop(t);
    sw_ticket_complete(t);
}

/* Takes in one packet. Returns false if there is none. */
static bool receive(struct spillway *c) {
    size_t bytes;
    const int rc = sw_transport_receive(c, &bytes);
    if (rc == -SW_EAGAIN || (rc == -SW_ECONN && c->layers->lost(c)))
        return false;
    if (rc == -SW_ECONN)
        sw_client_fail_text(c, -SW_ECONN, "the daemon closed the connection");
    else if (rc == -SW_EFDS)
        sw_client_fail_text(c, -SW_EPROTO, "the daemon sent descriptors, which the protocol does not know");
    else if (rc < 0)
        sw_client_fail_text(c, rc, "the daemon sent a packet that is none");
    else
        take_packet(c, c->received, bytes);
    return true;
}

int sw_client_pump(struct spillway *c) {
    c->layers->come_back(c);
    const enum sw_link link = c->link;
    const int rc = c->lost.code ? 0 : sw_transport_flush(c);
    while (!c->lost.code && receive(c))
        ;
    if (c->link != link && c->link == SW_LINK_UP && !c->lost.code)
        (void)sw_transport_flush(c); /* it was reconnected */
    if (rc < 0 && !c->lost.code && c->link == link && !c->layers->lost(c))
        sw_client_fail_text(c, -SW_ECONN, "the daemon closed the connection");
    c->layers->advance(c);
    return c->lost.code;
}

enum { OWN_POLLED = 4, MOST_POLLED = 20 };

/* A call that sleeps, with the connection in others' hands. */
static void sleep_beside(struct spillway *c, const struct sw_sleeper *sleeper, struct pollfd *fds, unsigned n,
                         const struct timespec *timeout) {
    c->sleeper = *sleeper;
    c->sleeper.link = c->link;
    c->sleeper.socket = c->socket;
    memcpy(c->sleeper.timers, c->timers, sizeof c->timers);
    (void)pthread_mutex_unlock(&c->lock);
    (void)ppoll(fds, n, timeout, NULL);
    (void)pthread_mutex_lock(&c->lock);
    c->sleeper.ended = NULL;
}

/* Waits until the socket has a packet, or room for the outbox, or a staged transfer can go on, or another thread has
 * taken in what is waited for. Returns whether the socket claims to have room. timeout_us: 0: looks only; negative: no
 * limit. stuck: the socket claimed to have room but took nothing, because too many descriptors are in sockets; it is
 * tried again later. */
static bool wait_socket(struct spillway *c, const struct sw_sleeper *sleeper, int64_t timeout_us, bool stuck) {
    struct pollfd fds[MOST_POLLED] = {{.fd = c->socket, .events = POLLIN},
                                      {.fd = c->timers[SW_TIMER_STAGING], .events = POLLIN},
                                      {.fd = c->link == SW_LINK_UP ? -1 : c->timers[SW_TIMER_RESUME], .events = POLLIN},
                                      {.fd = c->timers[SW_TIMER_CALLS], .events = POLLIN}};
    const unsigned n = OWN_POLLED + c->layers->poll(c, &fds[OWN_POLLED], MOST_POLLED - OWN_POLLED);
    if (!stuck && c->link == SW_LINK_UP && !sw_list_empty(&c->outbox))
        fds[0].events |= POLLOUT;
    if (stuck)
        timeout_us = 1000;
    const struct timespec timeout = {.tv_sec = timeout_us / 1000000, .tv_nsec = timeout_us % 1000000 * 1000};
    if (timeout_us == 0)
        (void)ppoll(fds, n, &timeout, NULL);
    else
        sleep_beside(c, sleeper, fds, n, timeout_us < 0 ? NULL : &timeout);
    return fds[0].revents & POLLOUT;
}

/* A sleeping thread wakes up 50 to 250 us late in a virtual machine. So the library polls at first, for short
 * operations, and again near the end that is forecast. */
#define POLL_US 200

/* Returns how long to sleep: 0: poll; -1: until something comes. expected_us: the forecast; 0: not known. */
static int64_t sleep_us(uint64_t elapsed_us, uint64_t expected_us) {
    if (elapsed_us < POLL_US)
        return 0;
    if (elapsed_us + SW_FORECAST_EARLY_US < expected_us)
        return (int64_t)(expected_us - SW_FORECAST_EARLY_US - elapsed_us);
    return expected_us > 0 && elapsed_us < expected_us + SW_FORECAST_LATE_US ? 0 : -1;
}

static int wait_until(struct spillway *c, const struct sw_sleeper *sleeper, int timeout_ms, uint64_t expected_us) {
    const uint64_t begun_us = sw_clock_us(), timeout_us = (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000u;
    bool room = false;
    for (;;) {
        const struct sw_list *first = c->outbox.next;
        (void)sw_client_pump(c);
        if (sleeper->ended(sleeper->arg))
            return 0;
        const uint64_t elapsed_us = sw_clock_us() - begun_us;
        if (timeout_ms >= 0 && elapsed_us >= timeout_us)
            return -SW_EAGAIN;
        int64_t left_us = c->layers->attend(c) ? 0 : sleep_us(elapsed_us, expected_us);
        if (timeout_ms >= 0 && (left_us < 0 || elapsed_us + (uint64_t)left_us > timeout_us))
            left_us = (int64_t)(timeout_us - elapsed_us);
        room = wait_socket(c, sleeper, left_us, room && first == c->outbox.next);
    }
}

int sw_client_wait_until(struct spillway *c, bool (*ended)(const void *arg), const void *arg, int timeout_ms,
                         uint64_t expected_us) {
    const struct sw_sleeper sleeper = {.ended = ended, .arg = arg};
    const int rc = wait_until(c, &sleeper, timeout_ms, expected_us);
    c->layers->unattend(c);
    return rc;
}

bool sw_client_is_done(const void *ticket) {
    return sw_ticket_is_done(ticket);
}

int sw_client_wait_answer(struct spillway *c, bool (*ended)(const void *arg), const void *arg, int timeout_ms,
                          const char *what, struct sw_err *err) {
    const uint64_t timeout_us = (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000u;
    uint64_t from_us = sw_clock_us(), elapsed_us = 0;
    while (timeout_ms < 0 || elapsed_us <= timeout_us) {
        const int left_ms = timeout_ms < 0 ? -1 : (int)((timeout_us - elapsed_us + 999) / 1000);
        if (sw_client_wait_until(c, ended, arg, left_ms, 0) == 0)
            return 0;
        const uint64_t now_us = sw_clock_us();
        if (c->link != SW_LINK_UP)
            from_us = now_us;
        else if (c->up_us > from_us)
            from_us = c->up_us;
        elapsed_us = now_us - from_us;
        if (elapsed_us >= timeout_us)
            break;
    }
    return sw_err_set(err, -SW_ETIMEDOUT, SW_SCOPE_REQUEST, "the service did not answer %s within %d ms", what,
                      timeout_ms);
}

static struct sw_forecast *forecast_of(struct spillway_ticket *t) {
    return is_transfer(t) ? &t->connection->forecasts[t->operation == SW_MSG_READ] : NULL;
}

int sw_client_wait(struct spillway_ticket *t, int timeout_ms) {
    struct sw_forecast *forecast = sw_ticket_is_done(t) ? NULL : forecast_of(t);
    const uint64_t begun_us = sw_clock_us();
    const int rc = sw_client_wait_until(t->connection, sw_client_is_done, t, timeout_ms,
                                        forecast ? sw_forecast_us(forecast, t->transfer.bytes) : 0);
    if (forecast && !rc && !t->error.code)
        sw_forecast_note(forecast, t->transfer.bytes, sw_clock_us() - begun_us);
    return rc;
}

/* ---- calls that wait for their reply ----------------------------------------------------------------------------- */

struct spillway_ticket *sw_client_ask(struct spillway *c, const struct sw_msg *msg,
                                      bool (*take)(struct spillway_ticket *t, const struct sw_msg *msg), void *into,
                                      struct sw_err *err) {
    struct sw_list group;
    sw_list_init(&group);
    if (c->lost.code) { /* perhaps the connection was lost only now: there would be no reply */
        (void)sw_err_set(err, c->lost.code, SW_SCOPE_SESSION, "%s", c->lost.text);
        return NULL;
    }
    struct spillway_ticket *t = sw_ticket_new(c, msg->header.type, err);
    if (!t || !sw_packet_new(&group, msg, err)) {
        sw_free(t);
        return NULL;
    }
    t->take = take;
    t->into = into;
    t->resume.repeat = sw_packet_copy(c, group.next);
    sw_client_submit(t, &group);
    return t;
}

struct spillway_ticket *sw_client_call(struct spillway *c, const struct sw_msg *msg,
                                       bool (*take)(struct spillway_ticket *t, const struct sw_msg *msg), void *into,
                                       int timeout_ms, struct sw_err *err) {
    struct spillway_ticket *t = sw_client_ask(c, msg, take, into, err);
    if (t && sw_client_wait_answer(c, sw_client_is_done, t, timeout_ms, sw_msg_name(msg->header.type), err) < 0) {
        sw_ticket_abandon(t);
        return NULL;
    }
    return t;
}

uint32_t sw_client_new_number(struct spillway *c) {
    return c->next_number++;
}

/* client_wire.c - moves packets between the outbox, the socket and the tickets. */
#include "ipc/client/client_results.h"
#include "ipc/client/client_staging.h"
#include "ipc/client/client_transfer.h"

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

enum { FIRST_RETRY_US = 1000, LAST_RETRY_US = 64000 }; /* of a socket that claims to have room but takes nothing */

static bool is_transfer(const struct spillway_ticket *t) {
    return t->operation == SW_MSG_BUILD || t->operation == SW_MSG_READ;
}

/* One that the daemon counts: neither a caller's, which itself sends nothing, nor one that only cancels. */
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
    sw_transfer_free(t->call);
    sw_free(t->resume.repeat);
    sw_free(t);
}

struct sw_packet *sw_packet_new(struct sw_list *group, const struct sw_msg *msg, struct sw_err *err) {
    struct sw_packet *p = sw_alloc(sizeof *p + sw_msg_packet_bytes(msg));
    if (!p) {
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a request");
        return NULL;
    }
    p->bytes = sw_msg_encode(msg, p->data);
    sw_list_append(group, &p->node);
    return p;
}

struct sw_packet *sw_packet_copy(const struct spillway *c, const struct sw_list *packet) {
    const struct sw_packet *from = SW_CONTAINER_OF(packet, const struct sw_packet, node);
    struct sw_packet *copy = c->resume && from->n_fds == 0 ? sw_alloc(sizeof *copy + from->bytes) : NULL;
    if (!copy)
        return NULL;
    sw_list_init(&copy->node);
    copy->bytes = from->bytes;
    memcpy(copy->data, from->data, from->bytes);
    return copy;
}

void sw_packet_free(struct sw_packet *p) {
    for (unsigned i = 0; i < p->n_fds; i++)
        (void)close(p->fds[i]);
    sw_list_remove(&p->node);
    sw_free(p);
}

static struct sw_packet *first_packet(struct sw_list *list) {
    return sw_list_empty(list) ? NULL : SW_CONTAINER_OF(list->next, struct sw_packet, node);
}

void sw_packets_free(struct sw_list *group) {
    for (struct sw_packet *p; (p = first_packet(group));)
        sw_packet_free(p);
}

void sw_client_submit_unattended(struct spillway *c, const struct sw_msg *msg) {
    struct sw_list group;
    sw_list_init(&group);
    struct spillway_ticket *t = sw_ticket_new(c, msg->header.type, NULL);
    if (!t || !sw_packet_new(&group, msg, NULL)) {
        sw_free(t);
        return;
    }
    t->abandoned = true;
    t->resume.repeat = sw_packet_copy(c, group.next);
    sw_client_submit(t, &group);
}

/* The daemon closes an operation's memory with it, whatever the outcome; only one that it had no memory to begin with
 * may have left its own open. */
static void close_unused_memory(const struct spillway_ticket *t) {
    if (is_transfer(t) && t->error.code == -SW_ENOMEM && t->transfer.mem_open)
        sw_client_close_memory(t->connection, t->transfer.mem);
}

/* Regions whose ids nobody has seen. */
static void drop_unseen_regions(const struct spillway_ticket *t) {
    if (!t->call || t->operation != SW_MSG_BUILD || t->state == SW_TICKET_DELIVERED || t->connection->lost.code)
        return;
    sw_transfer_drop_unseen(t->call);
}

void sw_ticket_complete(struct spillway_ticket *t) {
    struct spillway *c = t->connection;
    t->state = SW_TICKET_DONE;
    c->n_in_flight -= is_in_flight(t) ? 1u : 0u;
    c->n_pieces -= t->transfer.n_pieces;
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
    if (is_transfer(t) && !c->woken) /* spillway_fd() becomes readable, also when another call takes the reply in */
        c->woken = eventfd_write(c->wake, 1) == 0;
}

void sw_ticket_known(struct spillway_ticket *t) {
    sw_list_remove(&t->node);
    sw_list_append(&t->connection->done, &t->node);
}

void sw_ticket_abandon(struct spillway_ticket *t) {
    t->abandoned = true;
    if (t->call && !sw_ticket_is_done(t))
        sw_transfer_abandon(t->call);
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
    c->link = SW_LINK_UP; /* it does not come back */
    if (c->socket >= 0)
        (void)shutdown(c->socket, SHUT_RDWR);
    while (!sw_list_empty(&c->running)) {
        struct spillway_ticket *t = SW_CONTAINER_OF(c->running.next, struct spillway_ticket, node);
        if (!t->error.code) /* what the daemon said about the operation itself is nearer to the cause */
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

static void stop_retry(struct spillway *c) {
    static const struct itimerspec never;
    if (c->retry_at_us)
        (void)timerfd_settime(c->retry, 0, &never, NULL); /* also makes it unreadable again */
    c->retry_us = c->retry_at_us = 0;
}

/* Has spillway_fd() wake a little later, and later each time that nothing has moved. False: there is no timer. */
static bool set_retry(struct spillway *c) {
    const uint64_t now_us = sw_clock_us();
    if (c->retry < 0) {
        struct epoll_event event = {.events = EPOLLIN};
        c->retry = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (c->retry >= 0 && epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->retry, &event) < 0) {
            (void)close(c->retry);
            c->retry = -1;
        }
    }
    if (c->retry < 0 || now_us < c->retry_at_us)
        return c->retry >= 0;
    c->retry_us = !c->retry_us ? FIRST_RETRY_US : 2 * c->retry_us < LAST_RETRY_US ? 2 * c->retry_us : LAST_RETRY_US;
    c->retry_at_us = now_us + c->retry_us;
    const struct itimerspec time = {.it_value.tv_nsec = (long)c->retry_us * 1000};
    (void)timerfd_settime(c->retry, 0, &time, NULL);
    return true;
}

/* A socket may take nothing and claim to have room: too many descriptors are on their way to its peer, or the kernel
 * has no memory for a packet. Who watches it for room then would never sleep. */
static bool claims_room(int socket) {
    struct pollfd p = {.fd = socket, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 && p.revents == POLLOUT;
}

static void watch_room(struct spillway *c, bool refused) {
    const bool waits = !sw_list_empty(&c->outbox), later = waits && refused && claims_room(c->socket) && set_retry(c),
               room = waits && !later;
    if (!later)
        stop_retry(c);
    if (room == c->polls_room)
        return;
    struct epoll_event event = {.events = EPOLLIN | (room ? (uint32_t)EPOLLOUT : 0u)};
    (void)epoll_ctl(c->epoll, EPOLL_CTL_MOD, c->socket, &event);
    c->polls_room = room;
}

/* Returns 0, or -SW_ECONN: the peer is gone, but what it said before may still be read. */
static int flush(struct spillway *c) {
    int rc = 0;
    if (c->link != SW_LINK_UP) {
        stop_retry(c);
        return 0;
    }
    for (struct sw_packet *p; (p = first_packet(&c->outbox));) {
        rc = sw_packet_send(c->socket, p->data, p->bytes, p->fds, p->n_fds);
        if (rc < 0)
            break;
        sw_packet_free(p);
        stop_retry(c);
    }
    watch_room(c, rc == -SW_EAGAIN);
    return rc == -SW_EAGAIN ? 0 : rc;
}

void sw_client_enqueue(struct spillway_ticket *t, struct sw_list *group) {
    struct spillway *c = t->connection;
    if (c->next_seq - 1 >= UINT32_MAX - SW_CLIENT_MAX_GROUP)
        c->next_seq = 1; /* 0, to which HELLOs may have come, is no request's */
    t->packets.first_seq = c->next_seq;
    t->packets.n = t->packets.n_answered = 0;
    memset(t->packets.answered, 0, sizeof t->packets.answered);
    for (struct sw_packet *p; (p = first_packet(group)); t->packets.n++) {
        memcpy(p->data + offsetof(struct sw_msg_header, seq), &c->next_seq, sizeof c->next_seq);
        c->next_seq++;
        sw_list_remove(&p->node);
        sw_list_append(&c->outbox, &p->node);
    }
}

void sw_client_submit(struct spillway_ticket *t, struct sw_list *group) {
    struct spillway *c = t->connection;
    sw_client_enqueue(t, group);
    sw_list_append(&c->running, &t->node);
    c->n_in_flight += is_in_flight(t) ? 1u : 0u;
    c->n_pieces += t->transfer.n_pieces;
    (void)flush(c); /* a peer that is gone is found by the next pump */
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
    /* The wire has room for more text than the record that it passed through. */
    sw_msg_text(ret->text, sizeof ret->text, message->text, sizeof message->text);
}

#define COPY_TEXT(to, from) sw_msg_text((to), sizeof(to), (from), sizeof(from))

void sw_client_result_error(struct spillway_error *ret, const struct sw_msg_results *m, uint32_t i) {
    struct spillway_result result;
    struct sw_err err = {0};
    char text[sizeof ret->text];
    const uint32_t scope = m->results[i].scope < SW_SCOPE_NR ? m->results[i].scope : SW_SCOPE_REQUEST;
    (void)sw_results_read(m, i, &result);
    (void)sw_err_set(&err, result.code, (enum sw_scope)scope, "%s", sw_err_text(result.code));
    (void)sw_client_report(ret, &err);
    if (m->text_bytes)
        memcpy(ret->text, sw_msg_text(text, sizeof text, (const uint8_t *)m->text, m->text_bytes), sizeof text);
}

/* Takes the answer to packet `index` of the ticket's group; false if it is none for that packet. */
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
        return true; /* whatever it says */
    if (is_last && t->take)
        return t->take(t, msg);
    t->transfer.mem_open = t->transfer.mem_open || index == 0;
    return msg->header.type == SW_MSG_OK;
}

/* A drop that was sent twice may find nothing the second time. */
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
    if (sw_resume_take(c, &msg))
        return;
    struct spillway_ticket *t = sw_ticket_find(c, msg.header.seq);
    if (!t && msg.header.type == SW_MSG_ERROR) { /* about the connection itself: too many sessions, service stops */
        struct spillway_error lost;
        take_error(&lost, &msg.u.error);
        c->was_stopped = lost.code == -SW_ESHUTDOWN;
        if (!c->was_stopped || !sw_resume_begin(c)) /* the next process may know the session */
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

/* Takes one packet in. Returns false when there is none. */
static bool receive(struct spillway *c) {
    uint8_t *packet = c->received;
    int fds[SW_PROTO_MAX_FDS];
    size_t bytes = 0;
    unsigned n_fds = 0;
    if (c->socket < 0)
        return false;
    int rc = sw_packet_receive(c->socket, packet, &bytes, fds, &n_fds);
    if (rc == -SW_ECONN) /* a reset is told once, and before what the daemon had said until then */
        rc = sw_packet_receive(c->socket, packet, &bytes, fds, &n_fds);
    for (unsigned i = 0; i < n_fds; i++)
        (void)close(fds[i]);
    if (rc == -SW_EAGAIN)
        return false;
    if ((rc == -SW_ECONN || (!rc && !bytes)) && sw_resume_begin(c))
        return false;
    if (rc == -SW_ECONN || (!rc && !bytes))
        sw_client_fail_text(c, -SW_ECONN, "the daemon closed the connection");
    else if (rc < 0 && rc != -SW_ELIMIT)
        sw_client_fail_text(c, rc, "the daemon sent a packet that is none");
    else if (n_fds || rc < 0)
        sw_client_fail_text(c, -SW_EPROTO, "the daemon sent descriptors, which the protocol does not know");
    else
        take_packet(c, packet, bytes);
    return true;
}

int sw_client_pump(struct spillway *c) {
    sw_resume_advance(c);
    const enum sw_link link = c->link;
    const int rc = c->lost.code ? 0 : flush(c);
    while (!c->lost.code && receive(c))
        ;
    if (c->link != link && c->link == SW_LINK_UP && !c->lost.code)
        (void)flush(c); /* it has come back */
    if (rc < 0 && !c->lost.code && c->link == link && !sw_resume_begin(c))
        sw_client_fail_text(c, -SW_ECONN, "the daemon closed the connection");
    sw_staging_advance(c, 1);
    sw_transfers_advance(c);
    return c->lost.code;
}

void sw_client_set_timer(struct spillway *c) {
    const uint64_t us = sw_transfers_deadline_us(c);
    struct epoll_event event = {.events = EPOLLIN};
    struct itimerspec time = {0}; /* never */
    if (c->timer < 0) {
        c->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (c->timer >= 0 && epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->timer, &event) < 0) {
            (void)close(c->timer);
            c->timer = -1;
        }
    }
    if (us != UINT64_MAX)
        time.it_value = (struct timespec){.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
    if (c->timer >= 0)
        (void)timerfd_settime(c->timer, TFD_TIMER_ABSTIME, &time, NULL);
}

/* Waits until the socket has something, or room for what waits, or a transfer in pieces can go on; true if it claims to
 * have room. timeout_us: negative: none. A socket that claimed so and took nothing (too many descriptors are on their
 * way to its peer) is `stuck`: tried again a little later. */
static bool wait_socket(struct spillway *c, int64_t timeout_us, bool stuck) {
    struct pollfd fds[] = {{.fd = c->socket, .events = POLLIN},
                           {.fd = sw_staging_fd(c), .events = POLLIN},
                           {.fd = sw_resume_fd(c), .events = POLLIN},
                           {.fd = c->timer, .events = POLLIN}};
    if (!stuck && c->link == SW_LINK_UP && !sw_list_empty(&c->outbox))
        fds[0].events |= POLLOUT;
    if (stuck)
        timeout_us = 1000;
    const struct timespec timeout = {.tv_sec = timeout_us / 1000000, .tv_nsec = timeout_us % 1000000 * 1000};
    (void)ppoll(fds, sizeof fds / sizeof fds[0], timeout_us < 0 ? NULL : &timeout, NULL);
    return fds[0].revents & POLLOUT;
}

/* Who sleeps wakes up late, by 50 to 250 us in a virtual machine: what may be a short operation is polled for first,
 * and a longer one towards the end that is forecast. */
#define POLL_US 200

/* For how long to sleep: 0 to poll, -1 until something comes. expected_us: how long it will take, 0: not known. */
static int64_t sleep_us(uint64_t elapsed_us, uint64_t expected_us) {
    if (elapsed_us < POLL_US)
        return 0;
    if (elapsed_us + SW_FORECAST_EARLY_US < expected_us)
        return (int64_t)(expected_us - SW_FORECAST_EARLY_US - elapsed_us);
    return expected_us > 0 && elapsed_us < expected_us + SW_FORECAST_LATE_US ? 0 : -1;
}

int sw_client_wait_until(struct spillway *c, bool (*ended)(const void *arg), const void *arg, int timeout_ms,
                         uint64_t expected_us) {
    const uint64_t begun_us = sw_clock_us(), timeout_us = (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000u;
    bool room = false;
    for (;;) {
        const struct sw_list *first = c->outbox.next;
        (void)sw_client_pump(c);
        if (ended(arg))
            return 0;
        const uint64_t elapsed_us = sw_clock_us() - begun_us;
        if (timeout_ms >= 0 && elapsed_us >= timeout_us)
            return -SW_EAGAIN;
        int64_t left_us = sleep_us(elapsed_us, expected_us);
        if (timeout_ms >= 0 && (left_us < 0 || elapsed_us + (uint64_t)left_us > timeout_us))
            left_us = (int64_t)(timeout_us - elapsed_us);
        room = wait_socket(c, left_us, room && first == c->outbox.next);
    }
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

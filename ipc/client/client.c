/* client.c - the public calls: connections, spill, restore, waiting. */
#include "ipc/client/client_call.h"
#include "ipc/client/client_coded.h"
#include "ipc/client/client_coder.h"
#include "ipc/client/client_in_place.h"
#include "ipc/client/client_packed.h"
#include "ipc/client/client_staging.h"
#include "ipc/client/client_transfer.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "ipc/trust.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define DEFAULT_SOCKET "/run/spillway/data.sock"
enum { OPEN_TIMEOUT_MS = 10000, CLOSE_TIMEOUT_MS = 10000 }; /* a service that pins its first slabs answers late */
enum { CALL_TIMEOUT_MS = 30000 };                           /* longer than a busy service takes */

static bool take_hello(struct spillway_ticket *t, const struct sw_msg *msg) {
    struct sw_msg_hello_ok *ret = t->into;
    if (msg->header.type == SW_MSG_HELLO_OK)
        *ret = msg->u.hello_ok;
    return msg->header.type == SW_MSG_HELLO_OK;
}

static int hello(struct spillway *c, const char *path, uint64_t deadline_us, struct spillway_error *error) {
    struct sw_msg_hello_ok ok = {0};
    struct sw_msg msg = {.header.type = SW_MSG_HELLO, .u.hello.version = SW_PROTO_VERSION};
    struct sw_err err = {0};
    sw_msg_set_text(msg.u.hello.client, sizeof msg.u.hello.client, program_invocation_short_name);
    const uint64_t now_us = sw_clock_us();
    const int left_ms = now_us < deadline_us ? (int)((deadline_us - now_us) / 1000) : 0;
    struct spillway_ticket *t = sw_client_call(c, &msg, take_hello, &ok, left_ms, &err);
    if (!t && err.code == -SW_ETIMEDOUT)
        (void)sw_err_set(&err, -SW_ETIMEDOUT, SW_SCOPE_SESSION, "%s: the service did not answer in %d s", path,
                         c->connect_ms / 1000);
    if (!t)
        return sw_client_report(error, &err);
    int rc = sw_client_copy_error(error, &t->error);
    if (!rc && ok.version != SW_PROTO_VERSION) {
        (void)sw_err_set(&err, -SW_EVERSION, SW_SCOPE_SESSION, "the daemon speaks protocol version %u, libspillway %u",
                         ok.version, (unsigned)SW_PROTO_VERSION);
        rc = sw_client_report(error, &err);
    }
    c->max_in_flight = ok.max_in_flight;
    c->max_buffers = ok.max_buffers;
    if (!rc && c->lost.code) /* right behind the greeting, when the connection could not come back yet */
        rc = sw_client_copy_error(error, &c->lost);
    if (!rc && ok.reconnect_ms && sw_resume_enable(c, path, &ok, &err) < 0)
        rc = sw_client_report(error, &err);
    sw_ticket_destroy(t);
    return rc;
}

/* A coded call may become a staged one. */
static void advance(struct spillway *c) {
    sw_coded_advance(c);
    sw_staging_advance(c, 1);
    sw_transfers_advance(c);
}

static bool is_in_use(const struct spillway *c, uint32_t mem) {
    return sw_staging_uses(c, mem) || sw_coder_links_use(c, mem) || sw_transfers_use(c, mem);
}

static bool is_coded_here(struct spillway *c, const void *data, uint64_t bytes) {
    struct sw_err err = {0};
    return sw_coder_link_find(c, data, bytes, false, NULL, &err) != NULL;
}

static const struct sw_client_layers layers = {.take = sw_resume_take,
                                               .lost = sw_resume_begin,
                                               .come_back = sw_resume_advance,
                                               .advance = advance,
                                               .use = is_in_use,
                                               .poll = sw_coder_links_poll,
                                               .attend = sw_coder_attend,
                                               .unattend = sw_coder_unattend,
                                               .packet_uses = sw_transfer_packet_uses,
                                               .is_coded_here = is_coded_here,
                                               .abandon = sw_transfer_abandon,
                                               .drop_unseen = sw_transfer_drop_unseen,
                                               .free = sw_transfer_free};

static _Atomic uint64_t last_number;

static void init_lock(pthread_mutex_t *lock) {
    pthread_mutexattr_t attributes;
    (void)pthread_mutexattr_init(&attributes);
    (void)pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    (void)pthread_mutex_init(lock, &attributes);
    (void)pthread_mutexattr_destroy(&attributes);
}

/* Makes a connection that is not connected yet; NULL: no memory. */
static struct spillway *connection_new(int64_t service_uid) {
    struct spillway *c = sw_alloc(sizeof *c);
    if (!c)
        return NULL;
    c->service_uid = service_uid;
    c->process = getpid();
    c->timeout_ms = CALL_TIMEOUT_MS;
    c->socket = c->epoll = c->wake = c->retry = -1;
    for (unsigned i = 0; i < SW_TIMER_NR; i++)
        c->timers[i] = -1;
    c->layers = &layers;
    c->next_seq = c->next_mem = c->next_number = 1;
    sw_list_init(&c->running);
    sw_list_init(&c->fresh);
    sw_list_init(&c->counted);
    sw_list_init(&c->done);
    sw_list_init(&c->outbox);
    sw_list_init(&c->registered);
    sw_list_init(&c->transfers);
    sw_list_init(&c->ending);
    sw_list_init(&c->coders);
    sw_list_init(&c->packed);
    c->number = atomic_fetch_add(&last_number, 1) + 1;
    init_lock(&c->calls);
    init_lock(&c->lock);
    if (sw_transfers_init(c) < 0) {
        sw_free(c);
        return NULL;
    }
    return c;
}

/* The flags choose, or else the environment does. */
static int choose_codec(struct spillway_options *options, struct sw_err *err) {
    const uint32_t both = SPILLWAY_CODEC_CLIENT | SPILLWAY_CODEC_SERVICE;
    const char *name = secure_getenv("SPILLWAY_CODEC");
    if ((options->flags & both) == both)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "open: the codec cannot be both the client's and the service's");
    if (options->flags & both || !name || !*name)
        return 0;
    if (strcmp(name, "client") == 0)
        options->flags |= SPILLWAY_CODEC_CLIENT;
    else if (strcmp(name, "service") != 0)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "SPILLWAY_CODEC=%s, must be client or service", name);
    return 0;
}

/* Copies the options, and fills in defaults. */
static int take_options(struct spillway_options *ret, int64_t *ret_service_uid, const struct spillway_options *options,
                        struct sw_err *err) {
    int rc = 0;
    *ret = (struct spillway_options){0};
    if (options)
        rc = sw_versioned_copy(ret, sizeof *ret, sizeof *ret, options, "struct spillway_options", err);
    if (!rc && ret->flags & ~(uint32_t)(SPILLWAY_SERVED_BY | SPILLWAY_CODEC_CLIENT | SPILLWAY_CODEC_SERVICE))
        rc = sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "open: unknown flags 0x%x", (unsigned)ret->flags);
    if (!ret->socket_path)
        ret->socket_path = secure_getenv("SPILLWAY_SOCKET");
    if (!ret->socket_path || !*ret->socket_path)
        ret->socket_path = DEFAULT_SOCKET;
    ret->connect_ms = ret->connect_ms == 0 ? OPEN_TIMEOUT_MS : ret->connect_ms < 0 ? INT_MAX : ret->connect_ms;
    ret->call_ms = ret->call_ms == 0 ? CALL_TIMEOUT_MS : ret->call_ms < 0 ? -1 : ret->call_ms;
    if (!rc)
        rc = choose_codec(ret, err);
    if (rc < 0)
        return rc;
    if (!(ret->flags & SPILLWAY_SERVED_BY))
        return sw_trust_from_environment(ret_service_uid, err);
    *ret_service_uid = (int64_t)ret->server_uid;
    return 0;
}

int spillway_open(struct spillway **ret, const struct spillway_options *options, struct spillway_error *error) {
    struct sw_err err = {0};
    struct spillway_options o;
    int64_t service_uid;
    if (take_options(&o, &service_uid, options, &err) < 0)
        return sw_client_report(error, &err);
    struct spillway *c = connection_new(service_uid);
    if (!c) {
        (void)sw_err_set(&err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a connection");
        return sw_client_report(error, &err);
    }
    c->connect_ms = o.connect_ms;
    c->has_codec = o.flags & SPILLWAY_CODEC_CLIENT;
    c->timeout_ms = o.call_ms;
    const uint64_t deadline_us = sw_clock_us() + (uint64_t)o.connect_ms * 1000;
    (void)sw_client_enter(c, NULL);
    int rc = sw_transport_open(c, o.socket_path, deadline_us, &err);
    if (!rc)
        rc = sw_transport_watch(c, &err);
    rc = rc < 0 ? sw_client_report(error, &err) : hello(c, o.socket_path, deadline_us, error);
    sw_client_leave(c);
    if (rc < 0) {
        spillway_close(c);
        return rc;
    }
    if (o.reconnect_ms > 0)
        spillway_set_reconnect(c, o.reconnect_ms);
    *ret = c;
    return sw_client_report(error, &err);
}

static void destroy_tickets(struct sw_list *list) {
    while (!sw_list_empty(list))
        sw_ticket_destroy(SW_CONTAINER_OF(list->next, struct spillway_ticket, node));
}

/* Returns whether the service may still use memory: then requests are under way. It has none before it has answered
 * HELLO, and after a reconnection. */
static bool may_have_our_memory(const struct spillway *c) {
    return c->max_in_flight && c->link == SW_LINK_UP && (!sw_list_empty(&c->running) || !sw_list_empty(&c->transfers));
}

/* Receives what the daemon sends until it hangs up. Returns whether a packet of that type and seq 0 came; with `stops`,
 * as soon as one of that type comes. */
static bool await_last(struct spillway *c, uint64_t deadline_us, enum sw_msg_type type, bool stops) {
    uint64_t now_us;
    bool came = false;
    while ((now_us = sw_clock_us()) < deadline_us) {
        struct pollfd wait = {.fd = c->socket, .events = POLLIN};
        struct sw_msg msg;
        if (poll(&wait, 1, (int)((deadline_us - now_us) / 1000) + 1) <= 0)
            continue;
        const ssize_t n = recv(c->socket, c->received, sizeof c->received, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return came;
        came = n > 0 && sw_msg_decode(&msg, c->received, (size_t)n, NULL) == 0 && msg.header.type == type &&
               (stops || msg.header.seq == 0);
        if (came && stops)
            return true;
    }
    c->hangs = true;
    return came;
}

/* Ends the session, and waits until the daemon no longer uses its memory. If a region has a name, waits until the
 * session has ended, too, because the daemon's next process would keep the name for this connection. If the daemon has
 * ended instead, comes back to its next process once more. */
static void end_session(struct spillway *c) {
    const uint64_t deadline_us = sw_clock_us() + CLOSE_TIMEOUT_MS * UINT64_C(1000);
    bool has_ended = !c->has_names;
    if (c->socket >= 0) {
        (void)shutdown(c->socket, SHUT_WR);
        if (may_have_our_memory(c) || (c->has_names && c->link == SW_LINK_UP))
            has_ended |= await_last(c, deadline_us, SW_MSG_OK, false);
        (void)shutdown(c->socket, SHUT_RDWR);
    }
    if (has_ended || !sw_resume_to_end(c))
        return;
    if (await_last(c, deadline_us, SW_MSG_HELLO_OK, true)) {
        (void)shutdown(c->socket, SHUT_WR);
        (void)await_last(c, deadline_us, SW_MSG_OK, false);
    }
    (void)shutdown(c->socket, SHUT_RDWR);
}

static void close_descriptors(const struct spillway *c) {
    const int fds[] = {c->socket, c->epoll, c->wake, c->retry};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    for (unsigned i = 0; i < SW_TIMER_NR; i++)
        if (c->timers[i] >= 0)
            (void)close(c->timers[i]);
}

void spillway_close(struct spillway *connection) {
    if (!connection)
        return;
    /* A forked child must neither keep the session alive nor end it, and cannot call CUDA. */
    if (connection->process != getpid()) {
        close_descriptors(connection);
        return;
    }
    (void)sw_client_enter(connection, NULL); /* a coder's thread stays away from now on */
    end_session(connection);                 /* before the CUDA contexts are released */
    close_descriptors(connection);
    sw_packets_free(&connection->outbox);
    sw_resume_free(connection);
    destroy_tickets(&connection->running);
    destroy_tickets(&connection->transfers);
    destroy_tickets(&connection->fresh);
    destroy_tickets(&connection->counted);
    destroy_tickets(&connection->done);
    sw_coder_links_free(connection);
    sw_packed_free_all(connection);
    sw_staging_free(connection);
    sw_registered_free(connection);
    sw_cuda_free(connection->cuda);
    sw_free(connection->arrays);
    sw_client_leave(connection);
    (void)pthread_mutex_destroy(&connection->lock);
    (void)pthread_mutex_destroy(&connection->calls);
    sw_free(connection);
}

/* ---- spill and restore ------------------------------------------------------------------------------------------- */

static int start_locked(struct spillway *c, bool is_spill, const struct spillway_request *requests, uint32_t n,
                        struct spillway_ticket **ret_ticket, struct spillway_error *error) {
    struct sw_err err = {0};
    struct sw_call *call = NULL;
    struct spillway_ticket *t = NULL;
    if (c->n_in_flight >= c->max_in_flight || c->n_transfers >= c->max_in_flight)
        (void)sw_client_pump(c);
    if (c->lost.code && sw_list_empty(&c->packed))
        return sw_client_copy_error(error, &c->lost);
    if (sw_call_new(&call, is_spill, requests, n, &err) < 0)
        return sw_client_report(error, &err);
    if (c->lost.code && !sw_in_place_is_alone(c, call)) {
        sw_call_free(call);
        return sw_client_copy_error(error, &c->lost);
    }
    if (c->n_transfers >= c->max_in_flight)
        (void)sw_client_too_many(c->n_transfers, &err);
    else
        (void)sw_transfer_start(c, call, &t, &err);
    if (err.code)
        sw_call_free(call);
    else
        *ret_ticket = t;
    return sw_client_report(error, &err);
}

static int start(struct spillway *c, bool is_spill, const struct spillway_request *requests, uint32_t n,
                 struct spillway_ticket **ret_ticket, struct spillway_error *error) {
    int rc = sw_client_enter(c, error);
    if (rc < 0)
        return rc;
    rc = start_locked(c, is_spill, requests, n, ret_ticket, error);
    sw_client_leave(c);
    return rc;
}

int spillway_spill(struct spillway *connection, const struct spillway_request *requests, uint32_t n,
                   struct spillway_ticket **ret_ticket, struct spillway_error *error) {
    return start(connection, true, requests, n, ret_ticket, error);
}

int spillway_restore(struct spillway *connection, const struct spillway_request *requests, uint32_t n,
                     struct spillway_ticket **ret_ticket, struct spillway_error *error) {
    return start(connection, false, requests, n, ret_ticket, error);
}

/* The length of the first version of struct spillway_result. */
#define RESULT_BYTES offsetof(struct spillway_result, durability)

static int check_results(const struct spillway_ticket *t, const struct spillway_result *results, uint32_t n,
                         struct spillway_error *error) {
    const uint32_t n_requests = t->call->call->n;
    struct sw_err err = {0};
    if (results && n != n_requests)
        (void)sw_err_set(&err, -SW_EINVAL, SW_SCOPE_REQUEST, "room for %u results, must be %u, one for each request", n,
                         n_requests);
    if (!results || err.code)
        return sw_client_report(error, &err);
    return sw_check_size(results->size, RESULT_BYTES, "struct spillway_result", error);
}

static void fill_results(const struct spillway_ticket *t, struct spillway_result *results) {
    const size_t stride = results->size;
    for (uint32_t i = 0; i < t->call->call->n; i++) {
        uint8_t *to = (uint8_t *)results + i * stride;
        memcpy(to, &stride, sizeof stride);
        sw_versioned_fill(to, &t->call->results[i], sizeof *results);
    }
}

void spillway_set_timeout(struct spillway *connection, int timeout_ms) {
    connection->timeout_ms = timeout_ms < 0 ? -1 : timeout_ms;
}

int spillway_prepare(struct spillway *connection, const void *memory, struct spillway_error *error) {
    struct sw_err err = {0};
    int rc = sw_client_enter(connection, error);
    if (rc < 0)
        return rc;
    if (connection->lost.code) {
        rc = sw_client_copy_error(error, &connection->lost);
    } else {
        sw_coder_prepare(connection, memory);
        (void)sw_staging_prepare(connection, memory, &err);
        rc = sw_client_report(error, &err);
    }
    sw_client_leave(connection);
    return rc;
}

static int wait_locked(struct spillway_ticket *ticket, int timeout_ms, struct spillway_result *results, uint32_t n,
                       struct spillway_error *error) {
    const int rc = check_results(ticket, results, n, error);
    if (rc < 0)
        return rc;
    if (sw_client_wait(ticket, timeout_ms) < 0) {
        struct sw_err err = {0};
        (void)sw_err_set(&err, -SW_EAGAIN, SW_SCOPE_REQUEST, "operation still runs after %d ms", timeout_ms);
        return sw_client_report(error, &err);
    }
    sw_ticket_known(ticket);
    if (results)
        fill_results(ticket, results);
    if (results)
        ticket->state = SW_TICKET_DELIVERED;
    else
        sw_transfer_acknowledged(ticket->call);
    return sw_client_copy_error(error, &ticket->error);
}

int spillway_wait(struct spillway_ticket *ticket, int timeout_ms, struct spillway_result *results, uint32_t n,
                  struct spillway_error *error) {
    struct spillway *c = ticket->connection;
    int rc = sw_client_enter(c, error);
    if (rc < 0)
        return rc;
    rc = wait_locked(ticket, timeout_ms, results, n, error);
    sw_client_leave(c);
    return rc;
}

int spillway_cancel(struct spillway_ticket *ticket, struct spillway_error *error) {
    struct spillway *c = ticket->connection;
    const int rc = sw_client_enter(c, error);
    if (rc < 0)
        return rc;
    if (!sw_ticket_is_done(ticket)) {
        sw_transfer_cancel(ticket->call, -SW_ECANCELED, "canceled by spillway_cancel()");
        if (!c->woken) /* what was never sent has no answer that would wake an event loop */
            c->woken = eventfd_write(c->wake, 1) == 0;
    }
    sw_client_leave(c);
    return rc;
}

void spillway_ticket_free(struct spillway_ticket *ticket) {
    struct spillway *c = ticket ? ticket->connection : NULL;
    if (!c || sw_client_enter(c, NULL) < 0)
        return;
    sw_ticket_abandon(ticket);
    sw_client_leave(c);
}

int spillway_fd(const struct spillway *connection) {
    return connection->epoll;
}

int spillway_dispatch(struct spillway *connection, struct spillway_error *error) {
    int n_completed = 0;
    eventfd_t count;
    const int foreign = sw_client_enter(connection, error);
    if (foreign < 0)
        return foreign;
    (void)sw_client_pump(connection);
    for (; !sw_list_empty(&connection->fresh); n_completed++)
        sw_list_append(&connection->counted, sw_list_take_first(&connection->fresh));
    if (connection->woken)
        (void)eventfd_read(connection->wake, &count);
    connection->woken = false;
    const int rc = sw_client_copy_error(error, &connection->lost);
    sw_client_leave(connection);
    return rc < 0 ? rc : n_completed;
}

struct spillway_ticket *spillway_next_done(struct spillway *connection) {
    if (sw_client_enter(connection, NULL) < 0)
        return NULL;
    struct sw_list *list = sw_list_empty(&connection->counted) ? &connection->fresh : &connection->counted;
    struct spillway_ticket *ticket =
        sw_list_empty(list) ? NULL : SW_CONTAINER_OF(list->next, struct spillway_ticket, node);
    if (ticket)
        sw_ticket_known(ticket);
    sw_client_leave(connection);
    return ticket;
}

void *spillway_ticket_user(const struct spillway_ticket *ticket) {
    return ticket->user;
}

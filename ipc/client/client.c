/* client.c - the calls of spillway.h. */
#include "ipc/client/client_batch.h"
#include "ipc/client/client_buffers.h"
#include "ipc/client/client_staging.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "ipc/trust.h"
#include <errno.h>
#include <fcntl.h>
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
enum { OPEN_TIMEOUT_MS = 10000, CLOSE_TIMEOUT_MS = 10000 }; /* who pins its first slabs does not answer at once */
enum { CALL_TIMEOUT_MS = 30000 }; /* longer than a busy service takes, shorter than anybody believes in */

_Static_assert((int)SPILLWAY_SCOPE_DAEMON == (int)SW_SCOPE_DAEMON, "one list of scopes");

int sw_client_report(struct spillway_error *ret, const struct sw_err *err) {
    if (!ret)
        return err->code;
    memset(ret, 0, sizeof *ret);
    ret->code = err->code;
    ret->scope = (enum spillway_scope)err->scope;
    ret->cuda = err->cuda;
    if (err->code)
        (void)snprintf(ret->name, sizeof ret->name, "%s", sw_err_name(err->code));
    const char *open = err->detail[0] ? " (" : "", *close = err->detail[0] ? ")" : "";
    char text[sizeof err->msg + sizeof err->detail + 3];
    (void)snprintf(text, sizeof text, "%s%s%s%s", err->msg, open, err->detail, close);
    sw_msg_text(ret->text, sizeof ret->text, (const uint8_t *)text, strlen(text));
    return err->code;
}

int sw_client_copy_error(struct spillway_error *ret, const struct spillway_error *from) {
    if (ret)
        *ret = *from;
    return from->code;
}

void sw_client_note_error(struct spillway_error *first, const struct spillway_error *error) {
    if (!first->code)
        *first = *error;
}

void sw_client_note_err(struct spillway_error *first, const struct sw_err *err) {
    struct spillway_error error;
    (void)sw_client_report(&error, err);
    sw_client_note_error(first, &error);
}

int sw_client_too_many(unsigned n_in_flight, struct sw_err *err) {
    return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                      "%u operations are in flight, the most that max_session_operations allows", n_in_flight);
}

void sw_client_combine(char *ret, size_t ret_bytes, const char *part) {
    if (strcmp(ret, part) != 0)
        (void)snprintf(ret, ret_bytes, "%s", *ret ? "mixed" : part);
}

int sw_client_open_failed(int cause) {
    return sw_is_out_of_descriptors(cause) ? -SW_ELIMIT : -SW_ECONN;
}

static int new_socket(const char *path, int flags, struct sockaddr_un *ret_address, int *ret, struct sw_err *err) {
    const size_t path_bytes = strlen(path);
    if (path_bytes >= sizeof ret_address->sun_path)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_SESSION, "socket path of %zu bytes is longer than %zu", path_bytes,
                          sizeof ret_address->sun_path - 1);
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret_address->sun_path, path, path_bytes);
    *ret = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
    if (*ret >= 0)
        return 0;
    return sw_err_set(err, sw_client_open_failed(errno), SW_SCOPE_SESSION, "socket: %s", strerror(errno));
}

static int not_connected(const char *path, int cause, struct sw_err *err) {
    switch (cause) {
    case EACCES:
        return sw_err_set(err, -SW_EACCES, SW_SCOPE_SESSION, "%s: %s; is this user in the socket's group?", path,
                          strerror(cause));
    case EAGAIN:
        return sw_err_set(err, -SW_ETIMEDOUT, SW_SCOPE_SESSION, "%s: the service did not take the connection in %d s",
                          path, OPEN_TIMEOUT_MS / 1000);
    case EPROTOTYPE:
        return sw_err_set(err, -SW_ENOSERVICE, SW_SCOPE_SESSION,
                          "%s: a socket of another kind, as control.sock is; that of clients is data.sock", path);
    default:
        return sw_err_set(err, -SW_ENOSERVICE, SW_SCOPE_SESSION, "%s: %s; is spillwayd running?", path,
                          strerror(cause));
    }
}

int sw_client_connect(const struct spillway *c, const char *path, int *ret, struct sw_err *err) {
    struct sockaddr_un address;
    int fd = -1;
    int rc = new_socket(path, SOCK_NONBLOCK, &address, &fd, err);
    if (!rc && connect(fd, (const struct sockaddr *)&address, sizeof address) < 0)
        rc = not_connected(path, errno, err);
    if (!rc)
        rc = sw_trust_check(fd, path, c->service_uid, err);
    if (rc && fd >= 0)
        (void)close(fd);
    if (!rc)
        *ret = fd;
    return rc;
}

/* connect() within the time for it, however many signals interrupt it: each attempt has what the ones before left. */
static int connect_in_time(int socket, const struct sockaddr_un *address, uint64_t deadline_us) {
    for (uint64_t now_us; (now_us = sw_clock_us()) < deadline_us;) {
        const uint64_t left_us = deadline_us - now_us;
        const struct timeval timeout = {.tv_sec = (time_t)(left_us / 1000000),
                                        .tv_usec = (suseconds_t)(left_us % 1000000)};
        (void)setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
        const int rc = connect(socket, (const struct sockaddr *)address, sizeof *address);
        if (rc == 0 || errno != EINTR)
            return rc;
    }
    errno = EAGAIN; /* as connect() has it */
    return -1;
}

static int connect_socket(struct spillway *c, const char *path, uint64_t deadline_us, struct sw_err *err) {
    struct sockaddr_un address;
    const int made = new_socket(path, 0, &address, &c->socket, err);
    if (made < 0)
        return made;
    if (connect_in_time(c->socket, &address, deadline_us) < 0)
        return not_connected(path, errno, err);
    if (fcntl(c->socket, F_SETFL, O_NONBLOCK) < 0)
        return sw_err_set(err, -SW_ECONN, SW_SCOPE_SESSION, "fcntl: %s", strerror(errno));
    return sw_trust_check(c->socket, path, c->service_uid, err);
}

static int watch_socket(struct spillway *c, struct sw_err *err) {
    struct epoll_event event = {.events = EPOLLIN};
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->epoll < 0 || c->wake < 0 || epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->socket, &event) < 0 ||
        epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->wake, &event) < 0)
        return sw_err_set(err, sw_client_open_failed(errno), SW_SCOPE_SESSION, "epoll: %s", strerror(errno));
    return 0;
}

struct spillway_ticket *sw_client_ask(struct spillway *c, struct sw_msg *msg, struct sw_err *err) {
    struct sw_list group;
    sw_list_init(&group);
    if (c->lost.code) { /* perhaps only now: nothing would ever answer */
        (void)sw_err_set(err, c->lost.code, SW_SCOPE_SESSION, "%s", c->lost.text);
        return NULL;
    }
    struct spillway_ticket *t = sw_ticket_new(c, msg->header.type, err);
    if (!t || !sw_packet_new(&group, msg, err)) {
        sw_free(t);
        return NULL;
    }
    t->resume.repeat = sw_packet_copy(c, group.next);
    sw_client_submit(t, &group);
    return t;
}

struct spillway_ticket *sw_client_call(struct spillway *c, struct sw_msg *msg, int timeout_ms, struct sw_err *err) {
    struct spillway_ticket *t = sw_client_ask(c, msg, err);
    if (t && sw_client_wait_answer(c, sw_client_is_done, t, timeout_ms, sw_msg_name(msg->header.type), err) < 0) {
        sw_ticket_abandon(t);
        return NULL;
    }
    return t;
}

int sw_client_check_process(const struct spillway *c, struct spillway_error *error) {
    struct sw_err err = {0};
    if (c->process != getpid())
        (void)sw_err_set(&err, -SW_EINVAL, SW_SCOPE_SESSION,
                         "the connection is that of process %d, which has forked this one: open another one here",
                         (int)c->process);
    return sw_client_report(error, &err);
}

static int hello(struct spillway *c, const char *path, uint64_t deadline_us, struct spillway_error *error) {
    struct sw_msg msg = {.header.type = SW_MSG_HELLO, .u.hello.version = SW_PROTO_OLDEST_VERSION};
    struct sw_err err = {0};
    sw_msg_set_text(msg.u.hello.client, sizeof msg.u.hello.client, program_invocation_short_name);
    const uint64_t now_us = sw_clock_us();
    const int left_ms = now_us < deadline_us ? (int)((deadline_us - now_us) / 1000) : 0;
    struct spillway_ticket *t = sw_client_call(c, &msg, left_ms, &err);
    if (!t && err.code == -SW_ETIMEDOUT)
        (void)sw_err_set(&err, -SW_ETIMEDOUT, SW_SCOPE_SESSION, "%s: the service did not answer in %d s", path,
                         OPEN_TIMEOUT_MS / 1000);
    if (!t)
        return sw_client_report(error, &err);
    int rc = sw_client_copy_error(error, &t->error);
    if (!rc && t->answer.hello.version != SW_PROTO_OLDEST_VERSION) {
        (void)sw_err_set(&err, -SW_EVERSION, SW_SCOPE_SESSION, "the daemon speaks protocol version %u, libspillway %u",
                         t->answer.hello.version, (unsigned)SW_PROTO_OLDEST_VERSION);
        rc = sw_client_report(error, &err);
    }
    c->max_in_flight = t->answer.hello.max_in_flight;
    c->max_pieces = t->answer.hello.max_pieces;
    if (!rc && t->answer.hello.reconnect_ms && sw_resume_enable(c, path, &t->answer.hello, &err) < 0)
        rc = sw_client_report(error, &err);
    sw_ticket_destroy(t);
    return rc;
}

/* A connection that is not connected; NULL: no memory. */
static struct spillway *connection_new(int64_t service_uid) {
    struct spillway *c = sw_alloc(sizeof *c);
    if (!c)
        return NULL;
    c->service_uid = service_uid;
    c->process = getpid();
    c->timeout_ms = CALL_TIMEOUT_MS;
    c->socket = c->epoll = c->wake = c->retry = -1;
    c->next_seq = c->next_mem = 1;
    sw_list_init(&c->running);
    sw_list_init(&c->fresh);
    sw_list_init(&c->counted);
    sw_list_init(&c->done);
    sw_list_init(&c->outbox);
    sw_list_init(&c->registered);
    sw_list_init(&c->batches);
    sw_list_init(&c->buffers);
    return c;
}

static int open_connection(struct spillway **ret, const char *socket_path, int64_t service_uid,
                           struct spillway_error *error) {
    struct sw_err err = {0};
    if (!socket_path)
        socket_path = secure_getenv("SPILLWAY_SOCKET");
    if (!socket_path || !*socket_path)
        socket_path = DEFAULT_SOCKET;
    struct spillway *c = connection_new(service_uid);
    if (!c) {
        (void)sw_err_set(&err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a connection");
        return sw_client_report(error, &err);
    }
    const uint64_t deadline_us = sw_clock_us() + OPEN_TIMEOUT_MS * UINT64_C(1000);
    int rc = connect_socket(c, socket_path, deadline_us, &err);
    if (!rc)
        rc = watch_socket(c, &err);
    rc = rc < 0 ? sw_client_report(error, &err) : hello(c, socket_path, deadline_us, error);
    if (rc < 0) {
        spillway_close(c);
        return rc;
    }
    *ret = c;
    return sw_client_report(error, &err);
}

int spillway_open(struct spillway **ret, const char *socket_path, struct spillway_error *error) {
    struct sw_err err = {0};
    int64_t service_uid;
    if (sw_trust_from_environment(&service_uid, &err) < 0)
        return sw_client_report(error, &err);
    return open_connection(ret, socket_path, service_uid, error);
}

int spillway_open_served_by(struct spillway **ret, const char *socket_path, uint32_t service_uid,
                            struct spillway_error *error) {
    return open_connection(ret, socket_path, (int64_t)service_uid, error);
}

static void destroy_tickets(struct sw_list *list) {
    while (!sw_list_empty(list))
        sw_ticket_destroy(SW_CONTAINER_OF(list->next, struct spillway_ticket, node));
}

/* Any request may be about memory that was handed over, or hand some over. One that has only just been connected to
 * again has none. */
static bool may_have_our_memory(const struct spillway *c) {
    return c->link == SW_LINK_UP && (!sw_list_empty(&c->running) || !sw_list_empty(&c->batches) ||
                                     !sw_list_empty(&c->buffers) || sw_staging_is_running(c));
}

/* The daemon hangs up when it has let go of the session's memory. What it still says until then is of no interest. */
static void await_hang_up(int socket) {
    const uint64_t deadline_us = sw_clock_us() + CLOSE_TIMEOUT_MS * UINT64_C(1000);
    uint64_t now_us;
    while ((now_us = sw_clock_us()) < deadline_us) {
        _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
        struct pollfd wait = {.fd = socket, .events = POLLIN};
        if (poll(&wait, 1, (int)((deadline_us - now_us) / 1000) + 1) <= 0)
            continue;
        const ssize_t n = recv(socket, packet, sizeof packet, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return;
    }
}

static void close_descriptors(const struct spillway *c) {
    const int fds[] = {c->socket, c->epoll, c->wake, c->retry};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
}

void spillway_close(struct spillway *connection) {
    if (!connection)
        return;
    /* A forked child must neither keep the session alive nor end it; and cannot call CUDA for the rest. */
    if (connection->process != getpid()) {
        close_descriptors(connection);
        return;
    }
    /* The daemon first: what it still reads of our memory is let go before contexts are. */
    if (connection->socket >= 0) {
        (void)shutdown(connection->socket, SHUT_WR);
        if (may_have_our_memory(connection))
            await_hang_up(connection->socket);
        (void)shutdown(connection->socket, SHUT_RDWR);
    }
    close_descriptors(connection);
    sw_packets_free(&connection->outbox);
    sw_resume_free(connection);
    destroy_tickets(&connection->running);
    destroy_tickets(&connection->batches);
    destroy_tickets(&connection->buffers);
    destroy_tickets(&connection->fresh);
    destroy_tickets(&connection->counted);
    destroy_tickets(&connection->done);
    sw_staging_free(connection);
    sw_composites_free(connection);
    sw_registered_free(connection);
    sw_cuda_free(connection->cuda);
    sw_free(connection);
}

/* Fields that SPILL and RESTORE have in common, written into either. */
#define SET_RANGE(message, ticket, export, flags_)                                                                     \
    do {                                                                                                               \
        (message)->mem = (ticket)->transfer.mem;                                                                       \
        (message)->flags = (flags_) | ((export)->mark ? SW_REQ9_ORDER : 0);                                            \
        (message)->offset = (export)->offset;                                                                          \
        (message)->bytes = (ticket)->transfer.bytes;                                                                   \
        if ((export)->mark) {                                                                                          \
            (message)->order_word = sw_mark_word((export)->mark);                                                      \
            (message)->order_value = sw_mark_value((export)->mark);                                                    \
        }                                                                                                              \
    } while (0)

int sw_client_transfer(struct spillway_ticket *t, struct sw_msg *operation, uint32_t flags, struct sw_export *e,
                       bool registered, struct sw_err *err) {
    struct sw_list group;
    int rc = registered ? sw_registered_ready(t->connection, t->transfer.mem, err) : 0;
    sw_list_init(&group);
    if (rc == 0 && e->mark)
        rc = sw_client_share_marks(t->connection, err);
    if (rc < 0)
        return rc;
    if (operation->header.type == SW_MSG_SPILL)
        SET_RANGE(&operation->u.spill, t, e, flags);
    else if (operation->header.type == SW_MSG_SPILL_DURABLE)
        SET_RANGE(&operation->u.spill_durable, t, e, flags);
    else
        SET_RANGE(&operation->u.restore, t, e, flags);
    if (t->operation == SW_MSG_RESTORE)
        t->transfer.region = (struct spillway_region){operation->u.restore.slot, operation->u.restore.gen};
    if (!registered)
        rc = sw_client_add_memory(&group, t->transfer.mem, true, e, err);
    if (rc < 0 || !sw_packet_new(&group, operation, err)) {
        sw_packets_free(&group);
        return -SW_ENOMEM;
    }
    t->transfer.mark = e->mark;
    e->mark = NULL;
    sw_client_submit(t, &group);
    return 0;
}

/* Memory that cannot be handed over: a transfer in pieces. In place there is none, so that error stands. */
static int start_staged(struct spillway *c, const struct sw_msg *operation, uint32_t flags, const void *data,
                        uint64_t bytes, struct CUstream_st *stream, struct spillway_ticket **ret_ticket,
                        struct spillway_error *error) {
    struct sw_staging_request request = {.operation = operation->header.type,
                                         .keep = flags & SW_REQ9_KEEP,
                                         .data = (uint8_t *)data, /* written to by restores only */
                                         .bytes = bytes,
                                         .stream = stream};
    if (request.operation == SW_MSG_RESTORE)
        request.region = (struct spillway_region){operation->u.restore.slot, operation->u.restore.gen};
    else
        request.value_type = operation->u.spill.value_type;
    return sw_staging_start(c, &request, ret_ticket, error);
}

static int start(struct spillway *c, struct sw_msg *operation, uint32_t flags, const void *data, uint64_t bytes,
                 struct CUstream_st *stream, struct spillway_ticket **ret_ticket, struct spillway_error *error) {
    struct sw_err err = {0};
    struct sw_export export = {0};
    const int foreign = sw_client_check_process(c, error);
    if (foreign < 0)
        return foreign;
    if (c->n_in_flight >= c->max_in_flight)
        (void)sw_client_pump(c);
    if (c->lost.code)
        return sw_client_copy_error(error, &c->lost);
    const bool in_place = flags & SW_REQ9_IN_PLACE, durable = operation->header.type == SW_MSG_SPILL_DURABLE;
    if (!in_place && operation->header.type == SW_MSG_RESTORE &&
        sw_region_is_composite((struct spillway_region){.slot = operation->u.restore.slot}))
        return start_staged(c, operation, flags, data, bytes, stream, ret_ticket, error);
    const struct sw_registered *registered = sw_registered_find(c, data, bytes, &export);
    int rc = registered ? 0 : sw_export_find(&export, &c->cuda, data, bytes, &err);
    if (sw_export_is_copied(rc) && !in_place && !durable)
        return start_staged(c, operation, flags, data, bytes, stream, ret_ticket, error);
    if (!rc && c->n_in_flight >= c->max_in_flight)
        rc = sw_client_too_many(c->n_in_flight, &err);
    if (!rc)
        rc = sw_export_order(&export, &c->cuda, NULL, data, stream, &err);
    if (!rc && (in_place || operation->header.type == SW_MSG_RESTORE))
        rc = sw_export_make_pages(&export, data, bytes, &err);
    struct spillway_ticket *t = rc < 0 ? NULL : sw_ticket_new(c, durable ? SW_MSG_SPILL : operation->header.type, &err);
    if (t) {
        t->transfer.durable = durable;
        t->transfer.mem = registered ? registered->mem : sw_client_new_mem(c);
        t->transfer.bytes = bytes;
        rc = sw_client_transfer(t, operation, flags, &export, registered != NULL, &err);
    }
    sw_export_fini(&export);
    if (!t || rc < 0) {
        if (t)
            sw_ticket_destroy(t);
        return sw_client_report(error, &err);
    }
    *ret_ticket = t;
    return sw_client_report(error, &err);
}

/* The daemon knows nothing of a region in pieces, and no such region is packed. */
static int refuse_composite(struct spillway_region region, struct spillway_error *error) {
    struct sw_err err = {0};
    (void)sw_err_set(&err, -SW_EINVAL, SW_SCOPE_REQUEST, "region %u:%u is not packed: restore it", region.slot,
                     region.generation);
    return sw_client_report(error, &err);
}

static void restore_msg(struct sw_msg *ret, struct spillway_region region) {
    sw_msg_init(ret, SW_MSG_RESTORE);
    ret->u.restore.slot = region.slot;
    ret->u.restore.gen = region.generation;
}

int spillway_spill(struct spillway *connection, const void *data, uint64_t bytes, struct CUstream_st *stream,
                   struct spillway_ticket **ret_ticket, struct spillway_error *error) {
    return spillway_spill_typed(connection, data, bytes, SPILLWAY_BYTES, stream, ret_ticket, error);
}

int spillway_spill_typed(struct spillway *connection, const void *data, uint64_t bytes, enum spillway_value_type type,
                         struct CUstream_st *stream, struct spillway_ticket **ret_ticket,
                         struct spillway_error *error) {
    struct sw_msg msg;
    sw_msg_init(&msg, SW_MSG_SPILL);
    msg.u.spill.value_type = (uint32_t)type;
    return start(connection, &msg, 0, data, bytes, stream, ret_ticket, error);
}

static int set_name(uint8_t ret[SW_PROTO_NAME_BYTES], const char *name, struct spillway_error *error) {
    struct sw_err err = {0};
    const size_t bytes = strlen(name);
    if (bytes == 0 || bytes >= SW_PROTO_NAME_BYTES)
        (void)sw_err_set(&err, -SW_EINVAL, SW_SCOPE_REQUEST, "a region's name of %zu bytes, must be 1 to %d", bytes,
                         SW_PROTO_NAME_BYTES - 1);
    else
        sw_msg_set_text(ret, SW_PROTO_NAME_BYTES, name);
    return sw_client_report(error, &err);
}

int spillway_spill_durable(struct spillway *connection, const char *name, const void *data, uint64_t bytes,
                           struct CUstream_st *stream, struct spillway_ticket **ret_ticket,
                           struct spillway_error *error) {
    struct sw_msg msg;
    sw_msg_init(&msg, SW_MSG_SPILL_DURABLE);
    const int rc = set_name(msg.u.spill_durable.name, name, error);
    return rc < 0 ? rc : start(connection, &msg, 0, data, bytes, stream, ret_ticket, error);
}

int spillway_restore(struct spillway *connection, struct spillway_region region, void *data, uint64_t bytes,
                     struct CUstream_st *stream, unsigned flags, struct spillway_ticket **ret_ticket,
                     struct spillway_error *error) {
    struct sw_msg msg;
    restore_msg(&msg, region);
    if (flags & ~SPILLWAY_RESTORE_KEEP) {
        struct sw_err err = {0};
        (void)sw_err_set(&err, -SW_EINVAL, SW_SCOPE_REQUEST, "restore: unknown flags 0x%x", flags);
        return sw_client_report(error, &err);
    }
    return start(connection, &msg, flags & SPILLWAY_RESTORE_KEEP ? SW_REQ9_KEEP : 0, data, bytes, stream, ret_ticket,
                 error);
}

int spillway_pack(struct spillway *connection, void *data, uint64_t bytes, struct CUstream_st *stream,
                  struct spillway_ticket **ret_ticket, struct spillway_error *error) {
    return spillway_pack_typed(connection, data, bytes, SPILLWAY_BYTES, stream, ret_ticket, error);
}

int spillway_pack_typed(struct spillway *connection, void *data, uint64_t bytes, enum spillway_value_type type,
                        struct CUstream_st *stream, struct spillway_ticket **ret_ticket, struct spillway_error *error) {
    struct sw_msg msg;
    sw_msg_init(&msg, SW_MSG_SPILL);
    msg.u.spill.value_type = (uint32_t)type;
    return start(connection, &msg, SW_REQ9_IN_PLACE, data, bytes, stream, ret_ticket, error);
}

int spillway_unpack(struct spillway *connection, struct spillway_region region, void *data, uint64_t bytes,
                    struct CUstream_st *stream, struct spillway_ticket **ret_ticket, struct spillway_error *error) {
    struct sw_msg msg;
    restore_msg(&msg, region);
    if (sw_region_is_composite(region))
        return refuse_composite(region, error);
    return start(connection, &msg, SW_REQ9_IN_PLACE, data, bytes, stream, ret_ticket, error);
}

int spillway_wait(struct spillway_ticket *ticket, int timeout_ms, struct spillway_result *ret,
                  struct spillway_error *error) {
    const int rc = sw_client_check_process(ticket->connection, error);
    if (rc < 0)
        return rc;
    if (sw_client_wait(ticket, timeout_ms) < 0) {
        struct sw_err err = {0};
        (void)sw_err_set(&err, -SW_EAGAIN, SW_SCOPE_REQUEST, "operation still runs after %d ms", timeout_ms);
        return sw_client_report(error, &err);
    }
    sw_ticket_known(ticket);
    if (!ticket->error.code && ret)
        *ret = ticket->answer.transfer;
    if (!ticket->error.code && (ret || ticket->batch || ticket->transfer.durable)) /* a batch's ids are in its pieces */
        ticket->state = SW_TICKET_DELIVERED;
    return sw_client_copy_error(error, &ticket->error);
}

void spillway_ticket_free(struct spillway_ticket *ticket) {
    if (ticket && sw_client_check_process(ticket->connection, NULL) == 0)
        sw_ticket_abandon(ticket);
}

int spillway_fd(const struct spillway *connection) {
    return connection->epoll;
}

int spillway_dispatch(struct spillway *connection, struct spillway_error *error) {
    int n_completed = 0;
    eventfd_t count;
    const int foreign = sw_client_check_process(connection, error);
    if (foreign < 0)
        return foreign;
    (void)sw_client_pump(connection);
    for (; !sw_list_empty(&connection->fresh); n_completed++)
        sw_list_append(&connection->counted, sw_list_take_first(&connection->fresh));
    if (connection->woken)
        (void)eventfd_read(connection->wake, &count);
    connection->woken = false;
    const int rc = sw_client_copy_error(error, &connection->lost);
    return rc < 0 ? rc : n_completed;
}

struct spillway_ticket *spillway_next_done(struct spillway *connection) {
    struct sw_list *first = connection->counted.next;
    if (sw_client_check_process(connection, NULL) < 0)
        return NULL;
    if (first == &connection->counted)
        first = connection->fresh.next;
    if (first == &connection->fresh)
        return NULL;
    struct spillway_ticket *ticket = SW_CONTAINER_OF(first, struct spillway_ticket, node);
    sw_ticket_known(ticket);
    return ticket;
}

void spillway_set_timeout(struct spillway *connection, int timeout_ms) {
    connection->timeout_ms = timeout_ms < 0 ? -1 : timeout_ms;
}

void spillway_ticket_set_user(struct spillway_ticket *ticket, void *user) {
    ticket->user = user;
}

void *spillway_ticket_user(const struct spillway_ticket *ticket) {
    return ticket->user;
}

/* Sends a question, waits for its answer. Returns the done ticket, or NULL with *ret_rc and *error set. */
static struct spillway_ticket *ask(struct spillway *c, struct sw_msg *msg, int *ret_rc, struct spillway_error *error) {
    struct sw_err err = {0};
    *ret_rc = sw_client_check_process(c, error);
    if (*ret_rc < 0)
        return NULL;
    if (c->lost.code) {
        *ret_rc = sw_client_copy_error(error, &c->lost);
        return NULL;
    }
    struct spillway_ticket *t = sw_client_call(c, msg, c->timeout_ms, &err);
    if (!t) {
        *ret_rc = sw_client_report(error, &err);
        return NULL;
    }
    *ret_rc = sw_client_copy_error(error, &t->error);
    return t;
}

/* A region in pieces, of a connection that can be asked about it. */
static bool is_own_composite(const struct spillway *c, struct spillway_region region) {
    return sw_region_is_composite(region) && !c->lost.code && c->process == getpid();
}

int spillway_drop(struct spillway *connection, struct spillway_region region, struct spillway_error *error) {
    struct sw_msg msg = {.header.type = SW_MSG_DROP, .u.drop = {.slot = region.slot, .gen = region.generation}};
    int rc;
    if (is_own_composite(connection, region))
        return sw_composite_drop(connection, region, error);
    struct spillway_ticket *t = ask(connection, &msg, &rc, error);
    if (t)
        sw_ticket_destroy(t);
    return rc;
}

/* Of a durable spill whose ticket was freed the region is dropped once its id is known: also if it were adopted first.
 */
static int check_none_is_to_be_dropped(struct spillway *c, struct spillway_error *error) {
    struct sw_err err = {0};
    const int foreign = sw_client_check_process(c, error);
    if (foreign < 0)
        return foreign;
    (void)sw_client_pump(c); /* drops that are due go first */
    for (const struct sw_list *node = c->running.next; node != &c->running; node = node->next) {
        const struct spillway_ticket *t = SW_CONTAINER_OF(node, const struct spillway_ticket, node);
        if (t->abandoned && t->transfer.durable)
            (void)sw_err_set(&err, -SW_EBUSY, SW_SCOPE_REQUEST,
                             "a durable spill whose ticket was freed still runs on this connection: try again");
    }
    return sw_client_report(error, &err);
}

int spillway_adopt(struct spillway *connection, const char *name, struct spillway_region *ret,
                   struct spillway_error *error) {
    struct sw_msg msg;
    sw_msg_init(&msg, SW_MSG_ADOPT);
    int rc = set_name(msg.u.adopt.name, name, error);
    if (!rc)
        rc = check_none_is_to_be_dropped(connection, error);
    struct spillway_ticket *t = rc < 0 ? NULL : ask(connection, &msg, &rc, error);
    if (!t)
        return rc;
    if (!rc)
        *ret = t->answer.transfer.region;
    sw_ticket_destroy(t);
    return rc;
}

int spillway_query(struct spillway *connection, struct spillway_region region, struct spillway_region_info *ret,
                   struct spillway_error *error) {
    struct sw_msg msg = {.header.type = SW_MSG_QUERY, .u.query = {.slot = region.slot, .gen = region.generation}};
    int rc;
    if (is_own_composite(connection, region))
        return sw_composite_query(connection, region, ret, error);
    struct spillway_ticket *t = ask(connection, &msg, &rc, error);
    if (!t)
        return rc;
    if (!rc)
        *ret = t->answer.region;
    sw_ticket_destroy(t);
    return rc;
}

int spillway_query_buffers(struct spillway *connection, struct spillway_region region, struct spillway_buffer_info *ret,
                           uint32_t *ret_n, struct spillway_error *error) {
    struct sw_msg msg = {.header.type = SW_MSG_QUERY_BUFFERS,
                         .u.query_buffers = {.slot = region.slot, .gen = region.generation}};
    struct spillway_region_info info;
    int rc;
    if (sw_region_is_composite(region)) {
        rc = spillway_query(connection, region, &info, error);
        if (rc < 0)
            return rc;
        *ret = (struct spillway_buffer_info){.raw_bytes = info.raw_bytes, .stored_bytes = info.stored_bytes};
        memcpy(ret->codec, info.codec, sizeof ret->codec);
        *ret_n = 1;
        return rc;
    }
    struct spillway_ticket *t = ask(connection, &msg, &rc, error);
    if (!t)
        return rc;
    if (!rc) {
        *ret_n = t->answer.buffers.n;
        memcpy(ret, t->answer.buffers.info, t->answer.buffers.n * sizeof *ret);
    }
    sw_ticket_destroy(t);
    return rc;
}

int spillway_query_packed(struct spillway *connection, struct spillway_region region, struct spillway_packed_chunk *ret,
                          uint32_t max, uint32_t *ret_n, struct spillway_error *error) {
    uint32_t first = 0, n_chunks;
    if (sw_region_is_composite(region))
        return refuse_composite(region, error);
    do {
        struct sw_msg msg = {.header.type = SW_MSG_QUERY_PACKED,
                             .u.query_packed = {.slot = region.slot, .gen = region.generation, .first = first}};
        int rc;
        struct spillway_ticket *t = ask(connection, &msg, &rc, error);
        if (!t)
            return rc;
        n_chunks = t->answer.packed.n_chunks;
        for (uint32_t i = 0; !rc && i < t->answer.packed.n && first < max; i++)
            ret[first++] = t->answer.packed.chunk[i];
        sw_ticket_destroy(t);
        if (rc < 0)
            return rc;
    } while (first < max && first < n_chunks);
    *ret_n = n_chunks;
    return 0;
}

int spillway_advise(struct spillway *connection, struct spillway_region region, enum spillway_advice advice,
                    unsigned value, struct spillway_error *error) {
    struct sw_msg msg = {
        .header.type = SW_MSG_ADVISE,
        .u.advise = {.slot = region.slot, .gen = region.generation, .advice = (uint32_t)advice, .value = value}};
    int rc;
    if (is_own_composite(connection, region))
        return sw_composite_advise(connection, region, &msg, error);
    struct spillway_ticket *t = ask(connection, &msg, &rc, error);
    if (t)
        sw_ticket_destroy(t);
    return rc;
}

int spillway_status(struct spillway *connection, struct spillway_status *ret, struct spillway_error *error) {
    struct sw_msg msg = {.header.type = SW_MSG_STATUS};
    int rc;
    struct spillway_ticket *t = ask(connection, &msg, &rc, error);
    if (!t)
        return rc;
    if (!rc)
        *ret = t->answer.status;
    sw_ticket_destroy(t);
    return rc;
}

const char *spillway_error_name(int code) {
    return sw_err_name(code);
}

const char *spillway_error_text(int code) {
    return sw_err_text(code);
}

#include "daemon/control/control.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/closer.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "daemon/acceptor.h"
#include "daemon/control/control_handlers.h"
#include "daemon/control/control_rights.h"
#include "daemon/control/http.h"
#include "daemon/control/metrics.h"
#include "daemon/users.h"
#include "ipc/peer.h"
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    READ_BYTES = 16 << 10,         /* the buffer's first length */
    STOP_READING_BYTES = 64 << 10, /* unread answers: no more requests of this peer are carried out */
    SPARE_FDS = 64,                /* for operators, while too many of the clients' descriptors wait to be closed */
};

enum { REFUSED_LINES = 10 }; /* a refused peer can try as often as it likes */

struct sw_control {
    struct sw_control_context context;
    struct sw_acceptor acceptor;
    struct sw_http *http;
    struct sw_control_groups groups;
    struct sw_list connections; /* the one served last is at the end */
    unsigned n_connections;
    uv_idle_t turn; /* active while requests wait; each turn is preceded by a poll for everything else */
    struct sw_log_limit refusals;
    unsigned n_open_parts; /* acceptor, HTTP, events, turn: what has to be closed besides connections */
    bool closing;
    void (*closed)(void *arg);
    void *closed_arg;
};

struct connection {
    struct sw_list node;
    struct sw_control *control;
    struct sw_rpc_caller caller;
    struct sw_subscriber subscriber;
    uv_pipe_t pipe;
    char *in; /* received bytes: an incomplete line, or lines that wait */
    size_t in_bytes, in_cap, n_taken;
    struct sw_rpc_work work;    /* a line being processed */
    bool is_reading, is_ending; /* ending: closes once everything is written */
    bool waits_for_turn;        /* it has requests */
    bool said_all;              /* the peer sends no more, but may still be reading */
    bool is_closed;
};

struct answer {
    uv_write_t request;
    struct connection *connection;
    char *text;
};

static void look(struct connection *c);

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void end_if_done(struct sw_control *control) {
    if (!control->closing || control->n_open_parts || control->n_connections)
        return;
    void (*closed)(void *) = control->closed;
    void *arg = control->closed_arg;
    sw_free(control);
    closed(arg);
}

static void on_pipe_closed(uv_handle_t *handle) {
    struct connection *c = handle->data;
    struct sw_control *control = c->control;
    sw_list_remove(&c->node);
    control->n_connections--;
    free(sw_rpc_end(&c->work));
    sw_free(c->in);
    sw_free(c);
    end_if_done(control);
}

/* Closes the socket in a closer thread: the last close() frees what the peer has sent, which may take long, so the
 * loop's close() must not be the last. */
static void hang_up_softly(const uv_pipe_t *pipe) {
    uv_os_fd_t socket;
    if (uv_fileno((const uv_handle_t *)pipe, &socket) == 0)
        sw_peer_hang_up(dup(socket)); /* ThreadSanitizer follows it, but not F_DUPFD_CLOEXEC */
}

static void hang_up(struct connection *c) {
    if (c->is_closed)
        return;
    c->is_closed = true;
    sw_unsubscribe(&c->subscriber);
    hang_up_softly(&c->pipe);
    uv_close((uv_handle_t *)&c->pipe, on_pipe_closed);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static size_t unread_bytes(const struct connection *c) {
    return uv_stream_get_write_queue_size((const uv_stream_t *)&c->pipe);
}

static void on_written(uv_write_t *request, int status) {
    struct answer *answer = SW_CONTAINER_OF(request, struct answer, request);
    struct connection *c = answer->connection;
    free(answer->text);
    sw_free(answer);
    if (status < 0 || (c->is_ending && unread_bytes(c) == 0)) {
        hang_up(c);
    } else if (!c->is_closed && unread_bytes(c) < STOP_READING_BYTES) {
        sw_subscriber_resume(&c->subscriber);
        look(c);
    }
}

/* text: moved; NULL is a no-op. Returns false, and hangs up, if the text cannot be sent. */
static bool send_text(struct connection *c, char *text) {
    struct answer *answer = NULL;
    const size_t bytes = text ? strlen(text) : 0;
    if (!text || c->is_closed) {
        free(text);
        return true;
    }
    if (unread_bytes(c) + bytes <= SW_CONTROL_MAX_ANSWER_BYTES)
        answer = sw_alloc(sizeof *answer);
    const uv_buf_t buffer = uv_buf_init(text, (unsigned)bytes);
    if (answer) {
        answer->connection = c;
        answer->text = text;
        if (uv_write(&answer->request, (uv_stream_t *)&c->pipe, &buffer, 1, on_written) == 0)
            return true;
    }
    sw_log(SW_LOG_INFO, "control.close", "uid=%u why=\"answers are not read\"", c->caller.uid);
    sw_free(answer);
    free(text);
    hang_up(c);
    return false;
}

static bool send_event(struct sw_subscriber *subscriber, const char *line) {
    struct connection *c = SW_CONTAINER_OF(subscriber, struct connection, subscriber);
    if (c->is_closed || unread_bytes(c) + strlen(line) > SW_CONTROL_MAX_EVENT_BYTES)
        return false;
    char *copy = strdup(line);
    return copy && send_text(c, copy);
}

static void log_refused(struct sw_log_limit *limit, uint32_t uid, const struct sw_err *err) {
    unsigned left_out;
    char text[300];
    if (sw_log_limit_allows(limit, REFUSED_LINES, &left_out))
        sw_log(SW_LOG_WARNING, "control.refused", "uid=%u name=%s text=%s left_out=%u", uid, sw_err_name(err->code),
               sw_log_quote(text, sizeof text, err->msg), left_out);
}

/* Reports an error of the connection as a whole, and ends it. */
static void refuse(struct connection *c, const struct sw_err *err) {
    log_refused(&c->control->refusals, c->caller.uid, err);
    c->is_ending = true;
    (void)uv_read_stop((uv_stream_t *)&c->pipe);
    char *line = sw_rpc_error_line(SW_RPC_FAILED, err);
    if (line)
        (void)send_text(c, line);
    else
        hang_up(c);
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret) {
    struct connection *c = handle->data;
    (void)suggested;
    if (c->in_bytes == c->in_cap) {
        const size_t cap = c->in_cap ? 2 * c->in_cap : READ_BYTES;
        char *in = cap <= (size_t)2 * SW_CONTROL_MAX_LINE_BYTES ? sw_realloc(c->in, cap) : NULL;
        if (in) {
            c->in = in;
            c->in_cap = cap;
        }
    }
    *ret = uv_buf_init(c->in + c->in_bytes, (unsigned)(c->in_cap - c->in_bytes)); /* length 0: UV_ENOBUFS */
}

static void watch(struct connection *c, bool on);
static void on_turn(uv_idle_t *turn);

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer) {
    struct connection *c = stream->data;
    (void)buffer;
    if (n < 0 && n != UV_EOF) {
        watch(c, false);
        hang_up(c);
        return;
    }
    if (n == UV_EOF) {
        c->said_all = true;
        if (c->in_bytes > c->n_taken) /* the last line may lack its newline; the read has left room for it */
            c->in[c->in_bytes++] = '\n';
    } else {
        c->in_bytes += (size_t)n;
    }
    look(c);
}

/* Called only before reading more: once for all the lines of a read. */
static void make_room(struct connection *c) {
    c->in_bytes -= c->n_taken;
    if (c->n_taken && c->in_bytes)
        memmove(c->in, c->in + c->n_taken, c->in_bytes);
    c->n_taken = 0;
}

static void watch(struct connection *c, bool on) {
    if (c->is_closed || c->is_ending)
        return;
    if (on)
        make_room(c);
    if (c->is_reading == on)
        return;
    c->is_reading = on;
    if (on)
        SW_ASSERT(uv_read_start((uv_stream_t *)&c->pipe, on_alloc, on_read) == 0);
    else
        (void)uv_read_stop((uv_stream_t *)&c->pipe);
}

/* Gets the next line. Returns false if none is complete. Skips empty lines. */
static bool next_line(struct connection *c, const char **ret, size_t *ret_bytes) {
    while (c->n_taken < c->in_bytes && (c->in[c->n_taken] == '\n' || c->in[c->n_taken] == '\r'))
        c->n_taken++;
    *ret = c->in + c->n_taken;
    const char *end = c->n_taken < c->in_bytes ? memchr(*ret, '\n', c->in_bytes - c->n_taken) : NULL;
    *ret_bytes = end ? (size_t)(end - *ret) : c->in_bytes - c->n_taken;
    return end != NULL;
}

/* No further request follows: hangs up when all answers are written. */
static void end(struct connection *c) {
    c->is_ending = true;
    if (unread_bytes(c) == 0)
        hang_up(c);
}

/* Decides what to wait for: a turn, if there is a request and room for its answer; otherwise for answers to be written,
 * or for more input. */
static void look(struct connection *c) {
    const char *line;
    size_t bytes = 0;
    struct sw_err err;
    c->waits_for_turn = false;
    if (c->is_ending || c->is_closed)
        return;
    const bool is_full = unread_bytes(c) >= STOP_READING_BYTES, is_there = c->work.line || next_line(c, &line, &bytes);
    if (!is_full && bytes > SW_CONTROL_MAX_LINE_BYTES) {
        (void)sw_err_set(&err, -SW_ELIMIT, SW_SCOPE_SESSION, "a line is longer than %u bytes",
                         (unsigned)SW_CONTROL_MAX_LINE_BYTES);
        refuse(c, &err);
        return;
    }
    if (!is_full && is_there) {
        c->waits_for_turn = true;
        (void)uv_idle_start(&c->control->turn, on_turn);
    }
    watch(c, !is_full && !is_there && !c->said_all);
    if (c->said_all && !is_there)
        end(c);
}

/* Carries out one request. A batch's answer is sent when all its requests are done, or when it exceeds what a peer may
 * leave unread. */
static void take_request(struct connection *c) {
    const char *line;
    size_t bytes;
    if (!c->work.line && next_line(c, &line, &bytes)) {
        sw_rpc_begin(&c->work, line, bytes);
        c->n_taken += bytes + 1;
    }
    if (sw_rpc_step(&c->work, sw_control_handlers, &c->control->context, &c->caller) &&
        unread_bytes(c) + c->work.bytes <= SW_CONTROL_MAX_ANSWER_BYTES)
        return;
    (void)send_text(c, sw_rpc_end(&c->work));
}

static struct connection *next_waiting(const struct sw_control *control) {
    for (struct sw_list *node = control->connections.next; node != &control->connections; node = node->next) {
        struct connection *c = SW_CONTAINER_OF(node, struct connection, node);
        if (c->waits_for_turn && !c->is_closed)
            return c;
    }
    return NULL;
}

static void on_turn(uv_idle_t *turn) {
    struct sw_control *control = turn->data;
    struct connection *c = next_waiting(control);
    for (unsigned i = 0; c && i < SW_CONTROL_REQUESTS_PER_TURN; i++) {
        sw_list_remove(&c->node);
        sw_list_append(&control->connections, &c->node);
        take_request(c);
        look(c);
        c = next_waiting(control);
    }
    if (!c)
        (void)uv_idle_stop(turn);
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

/* A peer without rights gets an error, and is not read from. */
static void admit(struct connection *c, int socket) {
    struct sw_control *control = c->control;
    const struct sw_service *service = control->context.service;
    struct sw_peer peer;
    struct sw_err err;
    int rc = sw_peer_init(&peer, socket, &err);
    c->caller.uid = rc == 0 ? peer.uid : UINT32_MAX;
    if (rc == 0 && control->n_connections > SW_CONTROL_MAX_CONNECTIONS)
        rc = sw_err_set(&err, -SW_ELIMIT, SW_SCOPE_SESSION, "too many connections: %u control connections are open",
                        (unsigned)SW_CONTROL_MAX_CONNECTIONS);
    if (rc == 0)
        rc = sw_users_check(service, peer.uid, &err);
    if (rc == 0)
        c->caller.right = sw_control_right(socket, &peer, &control->groups, &service->userns);
    if (rc == 0 && c->caller.right == SW_CONTROL_NOTHING)
        rc = sw_err_set(&err, -SW_EACCES, SW_SCOPE_SESSION,
                        "user %u may not use the control socket: only root, control_group and control_read_group",
                        c->caller.uid);
    if (rc < 0)
        refuse(c, &err);
    else
        watch(c, true);
}

static bool is_full(void *arg) {
    const struct sw_control *control = arg;
    return sw_closer_waiting_all() > control->context.service->fds.max_closing + SPARE_FDS;
}

static void on_accepted(int socket, void *arg) {
    struct sw_control *control = arg;
    struct connection *c = sw_alloc(sizeof *c);
    if (!c) {
        sw_peer_hang_up(socket);
        return;
    }
    c->control = control;
    c->caller.arg = &c->subscriber;
    c->pipe.data = c;
    sw_subscriber_init(&c->subscriber, control->context.events, send_event);
    sw_list_append(&control->connections, &c->node);
    control->n_connections++;
    SW_ASSERT(uv_pipe_init(control->context.service->loop, &c->pipe, 0) == 0);
    if (uv_pipe_open(&c->pipe, socket) < 0) {
        sw_peer_hang_up(socket);
        hang_up(c);
        return;
    }
    admit(c, socket);
}

/* ---- start and stop ---------------------------------------------------------------------------------------------- */

static char *make_metrics(void *arg) {
    const struct sw_control *control = arg;
    return sw_metrics_text(control->context.service, control->context.events);
}

static int open_socket(struct sw_control *control, struct sw_err *err) {
    const struct sw_service *service = control->context.service;
    const struct sw_config *config = service->config;
    char path[SW_CONFIG_PATH_BYTES];
    if (strcmp(config->control_socket, "none") == 0)
        return 0;
    int rc = sw_control_groups(&control->groups, config, &service->userns, err);
    const struct sw_listener_config listener = {.option = "control_socket",
                                                .path = sw_config_control_path(path, config),
                                                .mode = (mode_t)config->control_socket_mode,
                                                .type = SOCK_STREAM,
                                                .gid = control->groups.all,
                                                .fdstore = service->fdstore,
                                                .keep_as = service->catalogue ? "control" : NULL};
    if (rc == 0)
        rc = sw_acceptor_open(&control->acceptor, service->loop, &listener, on_accepted, control, err);
    control->n_open_parts += rc == 0;
    control->acceptor.is_full = is_full;
    return rc;
}

static void forget(void *arg) {
    (void)arg;
}

int sw_control_open(struct sw_control **ret, struct sw_service *service, struct sw_err *err) {
    const struct sw_config *config = service->config;
    *ret = NULL;
    if (strcmp(config->control_socket, "none") == 0 && !config->metrics_port)
        return 0;
    struct sw_control *control = sw_alloc(sizeof *control);
    if (!control)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the control socket");
    control->context.service = service;
    control->acceptor.listener.socket = -1;
    sw_list_init(&control->connections);
    (void)uv_idle_init(service->loop, &control->turn);
    control->turn.data = control;
    control->n_open_parts++;
    int rc = sw_events_open(&control->context.events, service->loop, err);
    control->n_open_parts += rc == 0;
    if (rc == 0)
        rc = open_socket(control, err);
    if (rc == 0 && config->metrics_port) {
        rc = sw_http_open(&control->http, service->loop, config->metrics_address, (unsigned)config->metrics_port,
                          make_metrics, control, err);
        control->n_open_parts += rc == 0;
        if (rc == 0 && strncmp(config->metrics_address, "127.", 4) != 0)
            sw_log(SW_LOG_WARNING, "metrics.exposed",
                   "address=%s port=%u then=\"everyone who reaches it can read uids and how much each uses\"",
                   config->metrics_address, (unsigned)config->metrics_port);
    }
    if (rc < 0)
        sw_control_close(control, forget, NULL);
    else
        *ret = control;
    return rc;
}

static void on_part_closed(void *arg) {
    struct sw_control *control = arg;
    control->n_open_parts--;
    end_if_done(control);
}

static void on_turn_closed(uv_handle_t *turn) {
    on_part_closed(turn->data);
}

void sw_control_close(struct sw_control *control, void (*closed)(void *arg), void *arg) {
    control->closing = true;
    control->closed = closed;
    control->closed_arg = arg;
    uv_close((uv_handle_t *)&control->turn, on_turn_closed);
    sw_events_close(control->context.events, on_part_closed, control);
    if (control->acceptor.open_handles)
        sw_acceptor_close(&control->acceptor, on_part_closed);
    if (control->http)
        sw_http_close(control->http, on_part_closed, control);
    for (struct sw_list *node = control->connections.next, *next; node != &control->connections; node = next) {
        next = node->next;
        hang_up(SW_CONTAINER_OF(node, struct connection, node));
    }
}

#include "daemon/server.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"
#include "daemon/listener.h"
#include "daemon/session.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>

enum {
    ACCEPTS_PER_TURN = 16, /* then the sessions get their turn */
    RETRY_MS = 100,        /* pause of accepting while descriptors or memory are short */
};

struct sw_server {
    struct sw_service *service;
    struct sw_listener listener;
    uv_poll_t poll;
    uv_timer_t retry;
    unsigned open_handles;
    struct sw_list sessions;
    uint32_t last_id;
    bool closing;
    void (*closed)(void *arg);
    void *closed_arg;
};

static void end_if_done(struct sw_server *server) {
    if (!server->closing || server->open_handles || !sw_list_empty(&server->sessions))
        return;
    void (*closed)(void *) = server->closed;
    void *arg = server->closed_arg;
    sw_free(server);
    closed(arg);
}

static void on_session_closed(struct sw_session *session, void *arg) {
    struct sw_server *server = arg;
    sw_list_remove(&session->node);
    server->service->n_sessions--;
    end_if_done(server);
}

static void log_refused(const struct sw_err *err) {
    char text[300];
    sw_log(SW_LOG_WARNING, "session.refused", "name=%s text=%s", sw_err_name(err->code),
           sw_log_quote(text, sizeof text, err->msg));
}

static void serve(struct sw_server *server, int socket) {
    struct sw_service *service = server->service;
    struct sw_session *session = NULL;
    struct sw_err err;
    if (service->n_sessions >= service->config->max_sessions) {
        (void)sw_err_set(&err, -SW_ELIMIT, SW_SCOPE_SESSION, "%u sessions are open (max_sessions)",
                         service->n_sessions);
        log_refused(&err);
        sw_session_refuse(socket, &err);
        return;
    }
    if (++server->last_id == 0)
        server->last_id = 1;
    if (sw_session_open(&session, service, socket, server->last_id, on_session_closed, server, &err) < 0) {
        log_refused(&err);
        return;
    }
    sw_list_append(&server->sessions, &session->node);
    service->n_sessions++;
}

static void on_connection(uv_poll_t *poll, int status, int events);

static void on_retry(uv_timer_t *timer) {
    struct sw_server *server = timer->data;
    SW_ASSERT(uv_poll_start(&server->poll, UV_READABLE, on_connection) == 0);
}

static void on_connection(uv_poll_t *poll, int status, int events) {
    struct sw_server *server = poll->data;
    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        const int socket = accept4(server->listener.socket, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (socket >= 0) {
            serve(server, socket);
            continue;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        /* The connection stays in the backlog, so the socket stays readable: look away, or the loop would spin. */
        sw_log(SW_LOG_WARNING, "accept.failed", "cause=\"%s\" next_try_ms=%d", strerror(errno), RETRY_MS);
        (void)uv_poll_stop(&server->poll);
        (void)uv_timer_start(&server->retry, on_retry, RETRY_MS, 0);
        return;
    }
}

int sw_server_open(struct sw_server **ret, struct sw_service *service, struct sw_err *err) {
    struct sw_server *server = sw_alloc(sizeof *server);
    if (!server)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "no memory for the server");
    int rc = sw_listener_open(&server->listener, service->config->data_socket,
                              (mode_t)service->config->data_socket_mode, err);
    if (rc < 0) {
        sw_free(server);
        return rc;
    }
    rc = uv_poll_init(service->loop, &server->poll, server->listener.socket);
    if (rc < 0) {
        sw_listener_close(&server->listener);
        sw_free(server);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "socket cannot be watched: %s", uv_strerror(rc));
    }
    SW_ASSERT(uv_timer_init(service->loop, &server->retry) == 0);
    server->open_handles = 2;
    server->poll.data = server->retry.data = server;
    server->service = service;
    sw_list_init(&server->sessions);
    SW_ASSERT(uv_poll_start(&server->poll, UV_READABLE, on_connection) == 0);
    *ret = server;
    return 0;
}

static void on_handle_closed(uv_handle_t *handle) {
    struct sw_server *server = handle->data;
    server->open_handles--;
    end_if_done(server);
}

void sw_server_close(struct sw_server *server, void (*closed)(void *arg), void *arg) {
    if (!server)
        return;
    server->closing = true;
    server->closed = closed;
    server->closed_arg = arg;
    uv_close((uv_handle_t *)&server->poll, on_handle_closed);
    uv_close((uv_handle_t *)&server->retry, on_handle_closed);
    sw_listener_close(&server->listener);
    for (struct sw_list *at = server->sessions.next; at != &server->sessions; at = at->next)
        sw_session_close(SW_CONTAINER_OF(at, struct sw_session, node), "daemon is stopping");
}

void sw_server_abandon(struct sw_server *server) {
    if (server)
        sw_listener_close(&server->listener);
}

#include "daemon/session/server.h"

#include "base/alloc.h"
#include "base/closer.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "daemon/acceptor.h"
#include "daemon/session/commands.h"
#include "daemon/session/session.h"
#include "ipc/peer.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>

enum { REFUSED_LINES = 10 }; /* in SW_LOG_LIMIT_US */

struct sw_server {
    struct sw_service *service;
    struct sw_acceptor acceptor;
    struct sw_list sessions;
    struct sw_log_limit refusals;
    uint32_t last_id;
    bool acceptor_closed;
    void (*closed)(void *arg);
    void *closed_arg;
};

static void end_if_done(struct sw_server *server) {
    if (!server->acceptor_closed || !sw_list_empty(&server->sessions))
        return;
    void (*closed)(void *) = server->closed;
    void *arg = server->closed_arg;
    server->service->sessions = NULL;
    sw_free(server);
    closed(arg);
}

static void on_session_closed(struct sw_session *session, void *arg) {
    struct sw_server *server = arg;
    sw_list_remove(&session->node);
    server->service->n_sessions--;
    end_if_done(server);
}

static void log_refused(struct sw_server *server, const struct sw_err *err) {
    unsigned left_out;
    char text[300];
    if (sw_log_limit_allows(&server->refusals, REFUSED_LINES, &left_out))
        sw_log(SW_LOG_WARNING, "session.refused", "name=%s text=%s left_out=%u", sw_err_name(err->code),
               sw_log_quote(text, sizeof text, err->msg), left_out);
}

/* Returns whether too many descriptors wait to be closed. A peer can delay the closing of its socket, and its uid is
 * known only after accept(). So this is the last limit. */
static bool is_full(void *arg) {
    const struct sw_server *server = arg;
    return sw_closer_waiting_all() > server->service->fds.max_closing;
}

static int check_room(const struct sw_service *service, struct sw_err *err) {
    if (service->n_sessions >= service->config->max_sessions)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_SESSION, "%u sessions are open, the most that max_sessions allows",
                          service->n_sessions);
    if (service->n_sessions >= service->fds.max_sessions)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_SESSION,
                          "%u sessions are open, and the service has no descriptors for more (LimitNOFILE=)",
                          service->n_sessions);
    return 0;
}

static void serve(int socket, void *arg) {
    struct sw_server *server = arg;
    struct sw_service *service = server->service;
    struct sw_session *session = NULL;
    struct sw_err err;
    if (check_room(service, &err) < 0) {
        sw_service_count_error(service, err.code);
        log_refused(server, &err);
        sw_session_refuse(socket, &err);
        return;
    }
    if (++server->last_id == 0)
        server->last_id = 1;
    if (sw_session_open(&session, service, socket, server->last_id, on_session_closed, server, &err) < 0) {
        sw_service_count_error(service, err.code);
        log_refused(server, &err);
        return;
    }
    sw_list_append(&server->sessions, &session->node);
    service->n_sessions++;
}

int sw_server_open(struct sw_server **ret, struct sw_service *service, struct sw_err *err) {
    struct sw_server *server = sw_alloc(sizeof *server);
    if (!server)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the server");
    const struct sw_listener_config listener = {.option = "data_socket",
                                                .path = service->config->data_socket,
                                                .mode = (mode_t)service->config->data_socket_mode,
                                                .type = SOCK_SEQPACKET,
                                                .gid = SW_LISTENER_ANY_GROUP,
                                                .fdstore = service->fdstore,
                                                .keep_as = service->catalogue ? "data" : NULL};
    const int rc = sw_acceptor_open(&server->acceptor, service->loop, &listener, serve, server, err);
    if (rc < 0) {
        sw_free(server);
        return rc;
    }
    server->acceptor.is_full = is_full;
    server->service = service;
    sw_list_init(&server->sessions);
    service->sessions = &server->sessions;
    service->commands = sw_commands;
    service->n_commands = sw_commands_count;
    *ret = server;
    return 0;
}

static void on_acceptor_closed(void *arg) {
    struct sw_server *server = arg;
    server->acceptor_closed = true;
    end_if_done(server);
}

void sw_server_close(struct sw_server *server, void (*closed)(void *arg), void *arg) {
    if (!server)
        return;
    server->closed = closed;
    server->closed_arg = arg;
    sw_acceptor_close(&server->acceptor, on_acceptor_closed);
    for (struct sw_list *at = server->sessions.next; at != &server->sessions; at = at->next)
        sw_session_stop(SW_CONTAINER_OF(at, struct sw_session, node));
}

void sw_server_abandon(struct sw_server *server) {
    if (server)
        sw_acceptor_abandon(&server->acceptor);
}

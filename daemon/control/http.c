#include "daemon/control/http.h"

#include "base/alloc.h"
#include "base/assert.h"
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A client sends its request as soon as it is connected, so a silent connection is ended early and does not keep others
 * out. */
enum { MAX_CONNECTIONS = 64, TIMEOUT_S = 2, BACKLOG = 64, PARTS = 2 };

struct sw_http {
    struct MHD_Daemon *mhd;
    uv_poll_t poll;   /* the library's epoll descriptor */
    uv_timer_t timer; /* for its next time-out */
    unsigned open_handles;
    char *(*make_text)(void *arg);
    void *arg;
    void (*closed)(void *arg);
    void *closed_arg;
};

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *type, char *text) {
    struct MHD_Response *response = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(text);
        return MHD_NO;
    }
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    const enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_bytes, void **request) {
    struct sw_http *http = arg;
    unsigned status = MHD_HTTP_OK;
    (void)version;
    (void)upload;
    (void)upload_bytes;
    (void)request;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        status = MHD_HTTP_METHOD_NOT_ALLOWED;
    else if (strcmp(url, "/metrics") != 0 && strcmp(url, "/healthz") != 0)
        status = MHD_HTTP_NOT_FOUND;
    const bool is_metrics = status == MHD_HTTP_OK && strcmp(url, "/metrics") == 0;
    char *text = is_metrics ? http->make_text(http->arg) : strdup(status == MHD_HTTP_OK ? "ok\n" : "see /metrics\n");
    if (!text)
        return MHD_NO;
    return answer(connection, status,
                  is_metrics ? "text/plain; version=0.0.4; charset=utf-8" : "text/plain; charset=utf-8", text);
}

static void go_on(struct sw_http *http);

static void on_poll(uv_poll_t *poll, int status, int events) {
    (void)status;
    (void)events;
    go_on(poll->data);
}

static void on_timer(uv_timer_t *timer) {
    go_on(timer->data);
}

static unsigned count(const struct sw_http *http) {
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->mhd, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
    return info ? info->num_connections : 0;
}

/* Runs the library, and schedules the next run. With the maximum of connections it stops listening, and starts again
 * only if it is run after some of them have ended; nothing else would run it then. */
static void go_on(struct sw_http *http) {
    MHD_UNSIGNED_LONG_LONG ms;
    const unsigned before = count(http);
    (void)MHD_run(http->mhd);
    if (count(http) < before)
        (void)MHD_run(http->mhd);
    if (MHD_get_timeout(http->mhd, &ms) == MHD_YES)
        (void)uv_timer_start(&http->timer, on_timer, ms, 0);
    else
        (void)uv_timer_stop(&http->timer);
}

static int listen_on(const char *text, unsigned port, struct sw_err *err) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    SW_ASSERT(inet_pton(AF_INET, text, &address.sin_addr) == 1); /* checked with the configuration */
    const int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(fd, (const struct sockaddr *)&address, sizeof address) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    const int failure = errno;
    if (fd >= 0)
        (void)close(fd);
    return sw_err_set(err, -SW_EIO, SW_SCOPE_DAEMON, "metrics_port %u of %s: %s%s", port, text, strerror(failure),
                      failure == EADDRINUSE ? ": choose another port, or stop the program that has it (ss -ltnp)" : "");
}

int sw_http_open(struct sw_http **ret, uv_loop_t *loop, const char *address, unsigned port,
                 char *(*make_text)(void *arg), void *arg, struct sw_err *err) {
    const int socket = listen_on(address, port, err);
    if (socket < 0)
        return socket;
    struct sw_http *http = sw_alloc(sizeof *http);
    if (http)
        http->mhd = MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, on_request, http, MHD_OPTION_LISTEN_SOCKET, socket,
                                     MHD_OPTION_CONNECTION_LIMIT, MAX_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
                                     TIMEOUT_S, MHD_OPTION_END);
    const union MHD_DaemonInfo *info =
        http && http->mhd ? MHD_get_daemon_info(http->mhd, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!info || uv_poll_init(loop, &http->poll, info->epoll_fd) < 0) {
        if (http && http->mhd)
            MHD_stop_daemon(http->mhd); /* this closes the socket, too */
        else
            (void)close(socket);
        sw_free(http);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "metrics_port %u cannot be served", port);
    }
    SW_ASSERT(uv_timer_init(loop, &http->timer) == 0);
    http->open_handles = PARTS;
    http->poll.data = http->timer.data = http;
    http->make_text = make_text;
    http->arg = arg;
    SW_ASSERT(uv_poll_start(&http->poll, UV_READABLE, on_poll) == 0);
    *ret = http;
    return 0;
}

static void on_handle_closed(uv_handle_t *handle) {
    struct sw_http *http = handle->data;
    if (--http->open_handles > 0)
        return;
    void (*closed)(void *) = http->closed;
    void *arg = http->closed_arg;
    MHD_stop_daemon(http->mhd);
    sw_free(http);
    closed(arg);
}

void sw_http_close(struct sw_http *http, void (*closed)(void *arg), void *arg) {
    http->closed = closed;
    http->closed_arg = arg;
    uv_close((uv_handle_t *)&http->poll, on_handle_closed);
    uv_close((uv_handle_t *)&http->timer, on_handle_closed);
}

#include "daemon/acceptor.h"

#include "base/assert.h"
#include "base/log.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum {
    ACCEPTS_PER_TURN = 16, /* after these the connections have their turn */
    RETRY_MS = 100,        /* pause of accepting while descriptors or memory are short */
};

static void on_connection(uv_poll_t *poll, int status, int events);

static void on_retry(uv_timer_t *timer) {
    struct sw_acceptor *acceptor = timer->data;
    SW_ASSERT(uv_poll_start(&acceptor->poll, UV_READABLE, on_connection) == 0);
}

/* The connection stays in the backlog, so the socket stays readable: without a pause the loop would spin. */
static void pause_accepting(struct sw_acceptor *acceptor) {
    (void)uv_poll_stop(&acceptor->poll);
    (void)uv_timer_start(&acceptor->retry, on_retry, RETRY_MS, 0);
}

static void on_connection(uv_poll_t *poll, int status, int events) {
    struct sw_acceptor *acceptor = poll->data;
    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        if (acceptor->is_full && acceptor->is_full(acceptor->arg)) {
            pause_accepting(acceptor);
            return;
        }
        const int socket = accept4(acceptor->listener.socket, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (socket >= 0) {
            acceptor->accepted(socket, acceptor->arg);
            continue;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        sw_log(SW_LOG_WARNING, "accept.failed", "cause=\"%s\" next_try_ms=%d", strerror(errno), RETRY_MS);
        pause_accepting(acceptor);
        return;
    }
}

int sw_acceptor_open(struct sw_acceptor *ret, uv_loop_t *loop, const struct sw_listener_config *config,
                     void (*accepted)(int socket, void *arg), void *arg, struct sw_err *err) {
    memset(ret, 0, sizeof *ret);
    int rc = sw_listener_open(&ret->listener, config, err);
    if (rc < 0)
        return rc;
    rc = uv_poll_init(loop, &ret->poll, ret->listener.socket);
    if (rc < 0) {
        sw_listener_close(&ret->listener);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "socket cannot be watched: %s", uv_strerror(rc));
    }
    SW_ASSERT(uv_timer_init(loop, &ret->retry) == 0);
    ret->open_handles = 2;
    ret->poll.data = ret->retry.data = ret;
    ret->accepted = accepted;
    ret->arg = arg;
    SW_ASSERT(uv_poll_start(&ret->poll, UV_READABLE, on_connection) == 0);
    return 0;
}

static void on_handle_closed(uv_handle_t *handle) {
    struct sw_acceptor *acceptor = handle->data;
    if (--acceptor->open_handles == 0)
        acceptor->closed(acceptor->arg);
}

void sw_acceptor_close(struct sw_acceptor *acceptor, void (*closed)(void *arg)) {
    acceptor->closed = closed;
    uv_close((uv_handle_t *)&acceptor->poll, on_handle_closed);
    uv_close((uv_handle_t *)&acceptor->retry, on_handle_closed);
    sw_listener_close(&acceptor->listener);
}

void sw_acceptor_abandon(struct sw_acceptor *acceptor) {
    sw_listener_close(&acceptor->listener);
}

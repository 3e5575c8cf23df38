#include "daemon/ctl/connection.h"

#include "base/alloc.h"
#include "ipc/trust.h"
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { READ_BYTES = 64 << 10, MAX_LINE_BYTES = 64 << 20, TIMEOUT_MS = 30000 };

struct sw_ctl {
    int socket;
    char *in;
    size_t in_bytes, in_cap;
    size_t taken_bytes; /* length of the line returned last, with its newline */
    json_int_t id;
};

/* Another server on this path would receive the operator's commands, and its answers would be believed. */
static int check_server(int socket, const char *path, struct sw_err *err) {
    int64_t service_uid;
    const int rc = sw_trust_from_environment(&service_uid, err);
    return rc ? rc : sw_trust_check(socket, path, service_uid, err);
}

static int not_connected(const char *path, int cause, struct sw_err *err) {
    if (cause == EPROTOTYPE)
        return sw_err_set(err, -SW_ENOSERVICE, SW_SCOPE_SESSION,
                          "%.40s is a socket of another kind, like data.sock; use control.sock", path);
    return sw_err_set(err, cause == EACCES ? -SW_EACCES : -SW_ENOSERVICE, SW_SCOPE_SESSION, "%.60s: %s%s", path,
                      strerror(cause), cause == ENOENT || cause == ECONNREFUSED ? "; is spillwayd running there?" : "");
}

int sw_ctl_open(struct sw_ctl **ret, const char *path, struct sw_err *err) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t bytes = strlen(path);
    if (bytes >= sizeof address.sun_path)
        return sw_err_set(err, -SW_ENOSERVICE, SW_SCOPE_SESSION, "%.40s...: too long for the path of a socket", path);
    memcpy(address.sun_path, path, bytes + 1);
    struct sw_ctl *ctl = sw_alloc(sizeof *ctl);
    if (!ctl)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_SESSION, "out of memory");
    ctl->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = 0;
    if (ctl->socket < 0 || connect(ctl->socket, (const struct sockaddr *)&address, sizeof address) < 0)
        rc = not_connected(path, errno, err);
    if (rc == 0)
        rc = check_server(ctl->socket, path, err);
    if (rc == 0)
        *ret = ctl;
    else
        sw_ctl_close(ctl);
    return rc;
}

void sw_ctl_close(struct sw_ctl *ctl) {
    if (!ctl)
        return;
    if (ctl->socket >= 0)
        (void)close(ctl->socket);
    sw_free(ctl->in);
    sw_free(ctl);
}

static int lost(struct sw_err *err, const char *why) {
    return sw_err_set(err, -SW_ECONN, SW_SCOPE_SESSION, "control connection: %s", why);
}

static int send_all(struct sw_ctl *ctl, const char *text, size_t bytes, struct sw_err *err) {
    while (bytes) {
        const ssize_t n = send(ctl->socket, text, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return lost(err, strerror(errno));
        text += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int sw_ctl_send(struct sw_ctl *ctl, const char *line, struct sw_err *err) {
    const int rc = send_all(ctl, line, strlen(line), err);
    return rc < 0 ? rc : send_all(ctl, "\n", 1, err);
}

/* Reads available input, at least one byte. */
static int fill(struct sw_ctl *ctl, int timeout_ms, struct sw_err *err) {
    struct pollfd wait = {.fd = ctl->socket, .events = POLLIN};
    if (ctl->in_cap - ctl->in_bytes < READ_BYTES) {
        const size_t cap = 2 * ctl->in_cap + READ_BYTES;
        char *in = cap <= MAX_LINE_BYTES ? sw_realloc(ctl->in, cap) : NULL;
        if (!in)
            return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_SESSION, "out of memory for an answer");
        ctl->in = in;
        ctl->in_cap = cap;
    }
    const int ready = poll(&wait, 1, timeout_ms);
    if (ready == 0)
        return sw_err_set(err, -SW_EAGAIN, SW_SCOPE_REQUEST, "nothing came in time");
    const ssize_t n = ready > 0 ? recv(ctl->socket, ctl->in + ctl->in_bytes, ctl->in_cap - ctl->in_bytes, 0) : -1;
    if (n < 0 && errno == EINTR)
        return 0;
    if (n <= 0)
        return lost(err, n == 0 ? "the service has closed it" : strerror(errno));
    ctl->in_bytes += (size_t)n;
    return 0;
}

int sw_ctl_receive(struct sw_ctl *ctl, int timeout_ms, const char **ret_line, struct sw_err *err) {
    if (ctl->taken_bytes) {
        ctl->in_bytes -= ctl->taken_bytes;
        memmove(ctl->in, ctl->in + ctl->taken_bytes, ctl->in_bytes);
        ctl->taken_bytes = 0;
    }
    for (;;) {
        char *end = ctl->in_bytes ? memchr(ctl->in, '\n', ctl->in_bytes) : NULL;
        if (end) {
            *end = 0;
            ctl->taken_bytes = (size_t)(end - ctl->in) + 1;
            *ret_line = ctl->in;
            return 0;
        }
        const int rc = fill(ctl, timeout_ms, err);
        if (rc < 0)
            return rc;
    }
}

static int error_of(const json_t *error, struct sw_err *err) {
    const char *name = json_string_value(json_object_get(json_object_get(error, "data"), "name"));
    const char *message = json_string_value(json_object_get(error, "message"));
    const int code = name ? sw_err_from_name(name) : 0;
    return sw_err_set(err, code ? code : -SW_EPROTO, SW_SCOPE_REQUEST, "%s", message ? message : "failed");
}

/* Takes an answer to request `id`, or to the connection as a whole; skips notifications. Returns 1 if it is neither. */
static int take_answer(const char *line, json_int_t id, json_t **ret_result, struct sw_err *err) {
    json_t *answer = json_loads(line, 0, NULL);
    if (!answer)
        return sw_err_set(err, -SW_EPROTO, SW_SCOPE_SESSION, "the peer is not a control socket");
    json_t *result = json_object_get(answer, "result"), *error = json_object_get(answer, "error");
    const json_t *answered = json_object_get(answer, "id");
    int rc = 1;
    if (error && (json_is_null(answered) || json_integer_value(answered) == id)) {
        rc = error_of(error, err);
    } else if (result && json_integer_value(answered) == id) {
        *ret_result = json_incref(result);
        rc = 0;
    }
    json_decref(answer);
    return rc;
}

int sw_ctl_call(struct sw_ctl *ctl, const char *method, json_t *params, json_t **ret_result, struct sw_err *err) {
    json_t *request =
        json_pack("{s:s, s:s, s:o*, s:I}", "jsonrpc", "2.0", "method", method, "params", params, "id", ++ctl->id);
    char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
    json_decref(request);
    int rc = text ? sw_ctl_send(ctl, text, err) : sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory");
    free(text);
    if (rc == -SW_ECONN)
        rc = 0; /* the service may have sent the reason before it closed the connection */
    const char *line;
    while (rc == 0) {
        rc = sw_ctl_receive(ctl, TIMEOUT_MS, &line, err);
        if (rc < 0)
            return rc == -SW_EAGAIN ? lost(err, "no answer in time") : rc;
        const int taken = take_answer(line, ctl->id, ret_result, err);
        if (taken <= 0)
            return taken;
    }
    return rc;
}

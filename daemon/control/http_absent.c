/* http_absent.c - replaces http.c in builds without libmicrohttpd. */
#include "base/assert.h"
#include "daemon/control/http.h"

int sw_http_open(struct sw_http **ret, uv_loop_t *loop, const char *address, unsigned port,
                 char *(*make_text)(void *arg), void *arg, struct sw_err *err) {
    (void)ret;
    (void)loop;
    (void)address;
    (void)make_text;
    (void)arg;
    return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_DAEMON,
                      "metrics_port %u: built without libmicrohttpd: use spillwayctl metrics instead", port);
}

void sw_http_close(struct sw_http *http, void (*closed)(void *arg), void *arg) {
    (void)closed;
    (void)arg;
    SW_ASSERT(!http && "there is none");
}

/* http.h - metrics for Prometheus on a TCP port: GET /metrics; and GET /healthz for probes, which is answered while the
 * service's loop runs.
 *
 * It runs libmicrohttpd on the service's own loop: it never waits, and has no thread. Every user of the machine may
 * read. thread: loop. */
#ifndef SW_DAEMON_HTTP_H
#define SW_DAEMON_HTTP_H

#include "base/err.h"
#include <uv.h>

struct sw_http;

/* Serves the port of an IPv4 address. make_text: returns the text of an answer (freed by free()), NULL: out of memory.
 * errors: -SW_EIO (the port is taken, or not permitted), -SW_ENOMEM, -SW_ENOTSUP (built without libmicrohttpd). */
int sw_http_open(struct sw_http **ret, uv_loop_t *loop, const char *address, unsigned port,
                 char *(*make_text)(void *arg), void *arg, struct sw_err *err);
/* Ends every connection, calls `closed` once, later. */
void sw_http_close(struct sw_http *http, void (*closed)(void *arg), void *arg);

#endif

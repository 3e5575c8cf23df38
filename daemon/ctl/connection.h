/* connection.h - the operator's end of the control socket: one request at a time, and notifications in between.
 *
 * Calls block; it is for programs that do nothing else meanwhile. thread: one per connection. */
#ifndef SW_CTL_CONNECTION_H
#define SW_CTL_CONNECTION_H

#include "base/err.h"

struct json_t; /* jansson.h */
struct sw_ctl;

#define SW_CTL_SOCKET "/run/spillway/control.sock"

/* Connects. errors: -SW_ENOSERVICE (no service listens there), -SW_EACCES, -SW_EUNTRUSTED, -SW_EINVAL
 * ($SPILLWAY_SERVICE_UID), -SW_ENOMEM. */
int sw_ctl_open(struct sw_ctl **ret, const char *path, struct sw_err *err);
void sw_ctl_close(struct sw_ctl *ctl);

/* Calls a method. params: moved; NULL: none. *ret_result: owned by the caller. errors: -SW_ECONN (the connection ended,
 * or no answer came in time), -SW_EPROTO, or the service's error, by its name. */
int sw_ctl_call(struct sw_ctl *ctl, const char *method, struct json_t *params, struct json_t **ret_result,
                struct sw_err *err);

/* Sends a line unchanged (its newline is added). errors: -SW_ECONN. */
int sw_ctl_send(struct sw_ctl *ctl, const char *line, struct sw_err *err);
/* Gets the next line, of any kind, without its newline; valid until the next call. timeout_ms -1: no limit. errors:
 * -SW_EAGAIN (nothing came in time), -SW_ECONN, -SW_ENOMEM. */
int sw_ctl_receive(struct sw_ctl *ctl, int timeout_ms, const char **ret_line, struct sw_err *err);

#endif

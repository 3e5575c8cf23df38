/* connection.h - the operator's end of the control socket: one request at a time, and notifications between.
 *
 * Waits; for programs that do nothing else meanwhile. thread: one per connection. */
#ifndef SW_CTL_CONNECTION_H
#define SW_CTL_CONNECTION_H

#include "base/err.h"

struct json_t; /* jansson.h */
struct sw_ctl;

#define SW_CTL_SOCKET "/run/spillway/control.sock"

/* errors: -SW_ENOSERVICE (nobody listens there), -SW_EACCES, -SW_EUNTRUSTED, -SW_EINVAL ($SPILLWAY_SERVICE_UID),
 * -SW_ENOMEM.
 */
int sw_ctl_open(struct sw_ctl **ret, const char *path, struct sw_err *err);
void sw_ctl_close(struct sw_ctl *ctl);

/* Carries a method out. params: moved; NULL: none. *ret_result: owned by the caller. errors: -SW_ECONN (the connection
 * ended, or nothing came in time), -SW_EPROTO, or what the service answered, by the name in its error. */
int sw_ctl_call(struct sw_ctl *ctl, const char *method, struct json_t *params, struct json_t **ret_result,
                struct sw_err *err);

/* Sends a line as it is (its newline is added). errors: -SW_ECONN. */
int sw_ctl_send(struct sw_ctl *ctl, const char *line, struct sw_err *err);
/* Next line, whatever it says, without its newline; valid until the next call. timeout_ms -1: no limit. errors:
 * -SW_EAGAIN (nothing came in time), -SW_ECONN, -SW_ENOMEM. */
int sw_ctl_receive(struct sw_ctl *ctl, int timeout_ms, const char **ret_line, struct sw_err *err);

#endif

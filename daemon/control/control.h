/* control.h - the control socket: who may connect, lines in, lines out.
 *
 * Serves operators beside the data socket, on the same loop. Everything a peer can pile up has a bound: connections,
 * the length of a line, answers that it does not read, events; and so has what all of them together have done before
 * clients get their turn. Whatever a peer sends is answered or ends its connection; nothing it sends ends the service.
 * thread: loop. */
#ifndef SW_DAEMON_CONTROL_H
#define SW_DAEMON_CONTROL_H

#include "daemon/service.h"

struct sw_control;

enum {
    SW_CONTROL_MAX_CONNECTIONS = 32,
    SW_CONTROL_REQUESTS_PER_TURN = 4, /* of the loop, for all connections: one can take milliseconds */
    SW_CONTROL_MAX_LINE_BYTES = 256 << 10,
    SW_CONTROL_MAX_ANSWER_BYTES = 8 << 20,  /* not read yet, of one connection: then it ends */
    SW_CONTROL_MAX_EVENT_BYTES = 256 << 10, /* of these, for events: what comes then is left out */
};

/* Listens and serves, unless control_socket is none and metrics_port 0: *ret is NULL then. errors: those of
 * sw_listener_open(), -SW_ENOMEM, -SW_ECONFIG (no such group), those of sw_http_open(). */
int sw_control_open(struct sw_control **ret, struct sw_service *service, struct sw_err *err);
/* Sends the events there are, ends every connection, calls `closed` once. */
void sw_control_close(struct sw_control *control, void (*closed)(void *arg), void *arg);
/* Removes the socket file, for an exit that does not wait. NULL: no-op. */
void sw_control_abandon(struct sw_control *control);

#endif

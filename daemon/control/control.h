/* control.h - the control socket: who may connect, lines in, lines out.
 *
 * It serves operators beside the data socket, on the same loop. Everything that a peer can accumulate has a limit:
 * connections, the length of a line, unread answers, events. The work for all peers together is limited, too, so that
 * clients get their turn. Everything that a peer sends is answered or ends its connection; nothing that it sends ends
 * the service. thread: loop. */
#ifndef SW_DAEMON_CONTROL_H
#define SW_DAEMON_CONTROL_H

#include "daemon/service.h"

struct sw_control;

enum {
    SW_CONTROL_MAX_CONNECTIONS = 32,
    SW_CONTROL_REQUESTS_PER_TURN = 4, /* of the loop, for all connections together: one request can take milliseconds */
    SW_CONTROL_MAX_LINE_BYTES = 256 << 10,
    SW_CONTROL_MAX_ANSWER_BYTES = 8 << 20,  /* unread, of one connection, which then ends */
    SW_CONTROL_MAX_EVENT_BYTES = 256 << 10, /* part of it for events; further events are left out */
};

/* Listens and serves, unless control_socket is none and metrics_port is 0: then *ret is NULL. errors:
 * sw_listener_open()'s, -SW_ENOMEM, -SW_ECONFIG (no such group), sw_http_open()'s. */
int sw_control_open(struct sw_control **ret, struct sw_service *service, struct sw_err *err);
/* Sends pending events, ends every connection, calls `closed` once. */
void sw_control_close(struct sw_control *control, void (*closed)(void *arg), void *arg);

#endif

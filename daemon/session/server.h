/* server.h - accepts clients on the data socket, and has the list of their sessions. thread: loop. */
#ifndef SW_DAEMON_SERVER_H
#define SW_DAEMON_SERVER_H

#include "daemon/service.h"

struct sw_server;

/* Starts to listen and to serve. service: borrowed until closed. errors: those of sw_listener_open(), -SW_ENOMEM. */
int sw_server_open(struct sw_server **ret, struct sw_service *service, struct sw_err *err);
/* Stops accepting, ends every session, then calls `closed` once. NULL: no-op.
 *
 * The socket file is removed at once, unless the service manager keeps the socket. In a kept socket, clients wait for
 * the next process, and resume their sessions there. */
void sw_server_close(struct sw_server *server, void (*closed)(void *arg), void *arg);
/* Removes the socket file, for an exit that does not wait for sw_server_close(). NULL: no-op. */
void sw_server_abandon(struct sw_server *server);

#endif

/* acceptor.h - takes connections from a listening socket and hands them on, without ever spinning or waiting.
 *
 * For the data socket and the control socket alike. thread: loop. */
#ifndef SW_DAEMON_ACCEPTOR_H
#define SW_DAEMON_ACCEPTOR_H

#include "daemon/listener.h"
#include <uv.h>

struct sw_acceptor {
    struct sw_listener listener;
    uv_poll_t poll;
    uv_timer_t retry;
    unsigned open_handles; /* closed() has not run */
    void (*accepted)(int socket, void *arg);
    bool (*is_full)(void *arg); /* while it says so nobody is accepted, but stays in the backlog; NULL: never */
    void (*closed)(void *arg);
    void *arg;
};

/* Listens and watches. accepted: gets each connection, non-blocking (owned by it). *ret stays where it is until
 * `closed` has run. errors: those of sw_listener_open(), -SW_ENOMEM. */
int sw_acceptor_open(struct sw_acceptor *ret, uv_loop_t *loop, const struct sw_listener_config *config,
                     void (*accepted)(int socket, void *arg), void *arg, struct sw_err *err);
/* Stops accepting; the socket file is gone at once. `closed` runs once, later, with the arg of open. */
void sw_acceptor_close(struct sw_acceptor *acceptor, void (*closed)(void *arg));
/* Removes the socket file, for an exit that does not wait. */
void sw_acceptor_abandon(struct sw_acceptor *acceptor);

#endif

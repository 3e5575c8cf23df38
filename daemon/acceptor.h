/* acceptor.h - takes connections from a listening socket and hands them on, without busy-waiting or blocking.
 *
 * For both the data socket and the control socket. thread: loop. */
#ifndef SW_DAEMON_ACCEPTOR_H
#define SW_DAEMON_ACCEPTOR_H

#include "daemon/listener.h"
#include <uv.h>

struct sw_acceptor {
    struct sw_listener listener;
    uv_poll_t poll;
    uv_timer_t retry;
    unsigned open_handles; /* while above 0, closed() has not run */
    void (*accepted)(int socket, void *arg);
    bool (*is_full)(
        void *arg); /* while it returns true, connections are not accepted and stay in the backlog; NULL: never */
    void (*closed)(void *arg);
    void *arg;
};

/* Listens and watches. accepted: gets each connection, non-blocking (it owns it). *ret stays at its address until
 * `closed` has run. errors: sw_listener_open()'s, -SW_ENOMEM. */
int sw_acceptor_open(struct sw_acceptor *ret, uv_loop_t *loop, const struct sw_listener_config *config,
                     void (*accepted)(int socket, void *arg), void *arg, struct sw_err *err);
/* Stops accepting and removes the socket file at once. `closed` runs once, later, with the arg of open. */
void sw_acceptor_close(struct sw_acceptor *acceptor, void (*closed)(void *arg));
/* Removes the socket file, for an exit that does not wait. */
void sw_acceptor_abandon(struct sw_acceptor *acceptor);

#endif

/* daemon.h - the service from start to stop: devices, tiers, engine and server are opened in this order and closed in
 * reverse. thread: loop. */
#ifndef SW_DAEMON_DAEMON_H
#define SW_DAEMON_DAEMON_H

#include "base/err.h"
#include "config/config.h"
#include <uv.h>

struct sw_daemon;

/* The callbacks of a daemon. `stopped` runs once, when everything is closed, after sw_daemon_stop() or after a device
 * was lost (exit_code 1: only a new process can use it again). `load` reads the configuration again. */
struct sw_daemon_hooks {
    void (*stopped)(int exit_code, void *arg);
    int (*load)(struct sw_config *ret, void *arg, struct sw_err *err);
    void *arg;
};

/* Starts to serve; logs and reports readiness. config, hooks: copied. errors: those of the parts; nothing is left open
 * then, except for the engine, which closes on the loop: run it. */
int sw_daemon_start(struct sw_daemon **ret, uv_loop_t *loop, const struct sw_config *config,
                    const struct sw_daemon_hooks *hooks, struct sw_err *err);
/* Reads the configuration again, applies the options that may change at run time, and logs the result. */
void sw_daemon_reload(struct sw_daemon *daemon);
/* Stops in order; a second call is a no-op. */
void sw_daemon_stop(struct sw_daemon *daemon);
/* Removes the socket file of clients, for an immediate exit after sw_daemon_stop(), which has removed the other one.
 * NULL: no-op. */
void sw_daemon_abandon(struct sw_daemon *daemon);

#endif

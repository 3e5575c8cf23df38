/* daemon.h - the service from start to stop: devices, tier, engine and server, opened in this order and closed in the
 * reverse one. thread: loop. */
#ifndef SW_DAEMON_DAEMON_H
#define SW_DAEMON_DAEMON_H

#include "base/err.h"
#include "config/config.h"
#include <uv.h>

struct sw_daemon;

/* What a daemon calls back with. `stopped` runs once, when everything is closed, after sw_daemon_stop() or after a
 * device was lost (exit_code 1: only a new process can use it again). `load` reads the configuration again. */
struct sw_daemon_hooks {
    void (*stopped)(int exit_code, void *arg);
    int (*load)(struct sw_config *ret, void *arg, struct sw_err *err);
    void *arg;
};

/* Starts to serve; logs and notifies readiness. config, hooks: copied.
 * errors: those of what is opened; nothing is left open then, except what the engine closes on the loop: run it. */
int sw_daemon_start(struct sw_daemon **ret, uv_loop_t *loop, const struct sw_config *config,
                    const struct sw_daemon_hooks *hooks, struct sw_err *err);
/* Reads the configuration again and applies what may change at run time; logs what came of it. */
void sw_daemon_reload(struct sw_daemon *daemon);
/* Orderly stop; a second call is a no-op. */
void sw_daemon_stop(struct sw_daemon *daemon);
/* Leaves no socket file behind, for an exit right after. NULL: no-op. */
void sw_daemon_abandon(struct sw_daemon *daemon);

#endif

/* daemon.h - the service from start to stop: devices, tier, engine and server, opened in this order and closed in the
 * reverse one. thread: loop. */
#ifndef SW_DAEMON_DAEMON_H
#define SW_DAEMON_DAEMON_H

#include "base/err.h"
#include "config/config.h"
#include <uv.h>

struct sw_daemon;

/* Starts to serve; logs and notifies readiness. config: borrowed until stopped. `stopped` runs once, when everything is
 * closed, after sw_daemon_stop() or after a device was lost (exit_code 1: only a new process can use it again).
 * errors: those of what is opened; nothing is left open then, except what the engine closes on the loop: run it. */
int sw_daemon_start(struct sw_daemon **ret, uv_loop_t *loop, const struct sw_config *config,
                    void (*stopped)(int exit_code, void *arg), void *arg, struct sw_err *err);
/* Orderly stop; a second call is a no-op. */
void sw_daemon_stop(struct sw_daemon *daemon);
/* Leaves no socket file behind, for an exit right after. NULL: no-op. */
void sw_daemon_abandon(struct sw_daemon *daemon);

#endif

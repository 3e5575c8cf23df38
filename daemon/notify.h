/* notify.h - tells the service manager about start, stop and health (sd_notify's protocol, without its library).
 *
 * A no-op when $NOTIFY_SOCKET is not set; a lost message is not an error: the manager has its own timeouts. */
#ifndef SW_DAEMON_NOTIFY_H
#define SW_DAEMON_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

/* Somebody listens. thread: any. */
bool sw_notify_is_heard(void);
/* state: "READY=1", "STOPPING=1" ... Returns 0, or the errno of what failed. thread: any. */
int sw_notify(const char *state);
/* As sw_notify(), with a descriptor (borrowed): "FDSTORE=1\nFDNAME=..." */
int sw_notify_fd(const char *state, int fd);
/* Waits until the manager has taken in all that it was told before; at most so long. Returns 0, ETIMEDOUT, or the
 * errno of what failed. */
int sw_notify_barrier(int timeout_ms);
/* How often the manager wants to hear "WATCHDOG=1", in microseconds; 0: it does not. */
uint64_t sw_notify_watchdog_us(void);

#endif

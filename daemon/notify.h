/* notify.h - tells the service manager about start, stop and health (sd_notify's protocol, without its library).
 *
 * A no-op if $NOTIFY_SOCKET is not set. A lost message is not an error: the manager has its own timeouts. */
#ifndef SW_DAEMON_NOTIFY_H
#define SW_DAEMON_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

/* Returns whether there is a service manager to notify. thread: any. */
bool sw_notify_is_heard(void);
/* Sends a state, such as "READY=1" or "STOPPING=1". Returns 0, or the errno of the failure. thread: any. */
int sw_notify(const char *state);
/* Like sw_notify(), with a descriptor (borrowed): "FDSTORE=1\nFDNAME=..." */
int sw_notify_fd(const char *state, int fd);
/* Waits until the manager has processed all earlier messages, or the time is over. Returns 0, ETIMEDOUT, or the errno
 * of the failure. */
int sw_notify_barrier(int timeout_ms);
/* Returns how often the manager expects "WATCHDOG=1", in microseconds; 0: never. */
uint64_t sw_notify_watchdog_us(void);

#endif

/* notify.h - tells the service manager about start and stop (sd_notify's protocol, without its library).
 *
 * A no-op when $NOTIFY_SOCKET is not set; a lost message is not an error: the manager has its own timeouts. */
#ifndef SW_DAEMON_NOTIFY_H
#define SW_DAEMON_NOTIFY_H

/* state: "READY=1", "STOPPING=1" ... Returns 0, or the errno of what failed. thread: any. */
int sw_notify(const char *state);

#endif

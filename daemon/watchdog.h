/* watchdog.h - tells the service manager that the service is alive, as often as it expects ($WATCHDOG_USEC): while the
 * loop runs, and every device has recently done something small for its worker. The manager kills and restarts a
 * service that hangs. thread: loop. */
#ifndef SW_DAEMON_WATCHDOG_H
#define SW_DAEMON_WATCHDOG_H

#include "daemon/service.h"

struct sw_watchdog;

/* Starts the watchdog. *ret stays NULL if the manager expects no messages. service: borrowed until closed. errors:
 * -SW_ENOMEM. */
int sw_watchdog_open(struct sw_watchdog **ret, struct sw_service *service, struct sw_err *err);
/* Stops the watchdog. NULL: no-op. */
void sw_watchdog_close(struct sw_watchdog *watchdog);

#endif

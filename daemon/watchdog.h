/* watchdog.h - tells the service manager that the service is alive, as often as it wants to hear it ($WATCHDOG_USEC):
 * while the loop runs, and every device has done something small for its worker not long ago. Whoever hangs is killed
 * and started again by the manager. thread: loop. */
#ifndef SW_DAEMON_WATCHDOG_H
#define SW_DAEMON_WATCHDOG_H

#include "daemon/service.h"

struct sw_watchdog;

/* *ret stays NULL where nobody wants to hear. service: borrowed until closed. errors: -SW_ENOMEM. */
int sw_watchdog_open(struct sw_watchdog **ret, struct sw_service *service, struct sw_err *err);
/* NULL: no-op. */
void sw_watchdog_close(struct sw_watchdog *watchdog);

#endif

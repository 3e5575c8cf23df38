/* metrics.h - the service's figures in Prometheus' text format (version 0.0.4).
 *
 * A metric that exists is always there, with 0 if nothing has happened, so that alerts never ask for what is missing.
 * thread: loop. */
#ifndef SW_DAEMON_METRICS_H
#define SW_DAEMON_METRICS_H

#include "daemon/control/events.h"
#include "daemon/service.h"

/* owns: the caller, until free(). NULL: no memory. */
char *sw_metrics_text(const struct sw_service *service, const struct sw_events *events);

#endif

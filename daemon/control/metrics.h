/* metrics.h - the service's statistics in Prometheus' text format (version 0.0.4).
 *
 * Every metric is always present, with 0 if nothing has happened, so that alerts never query a missing metric. thread:
 * loop. */
#ifndef SW_DAEMON_METRICS_H
#define SW_DAEMON_METRICS_H

#include "daemon/control/events.h"
#include "daemon/service.h"

/* Returns the text. owns: the caller, until free(). NULL: out of memory. */
char *sw_metrics_text(const struct sw_service *service, const struct sw_events *events);

#endif

/* control_handlers.h - the handlers of the control methods: one call into the service each. thread: loop. */
#ifndef SW_DAEMON_CONTROL_HANDLERS_H
#define SW_DAEMON_CONTROL_HANDLERS_H

#include "daemon/control/events.h"
#include "daemon/control/rpc.h"
#include "daemon/service.h"

/* The context of the handlers; borrowed by each call. */
struct sw_control_context {
    struct sw_service *service;
    struct sw_events *events;
};

/* The handlers, by method. Their context is a struct sw_control_context; the caller's arg is its struct
 * sw_subscriber. */
extern sw_control_fn *const sw_control_handlers[SW_CONTROL_METHOD_NR];

/* control_regions.c */
sw_control_fn sw_on_control_sessions, sw_on_control_regions, sw_on_control_snapshot, sw_on_control_spill,
    sw_on_control_demote, sw_on_control_promote, sw_on_control_drop;
/* control_tenants.c */
sw_control_fn sw_on_control_tenants;
/* control_remote.c */
sw_control_fn sw_on_control_remote_gc, sw_on_control_remote_rewrap;
/* control_stats.c */
sw_control_fn sw_on_control_stats, sw_on_control_tiers;

#endif

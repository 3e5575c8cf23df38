/* events.h - tells connections of the control socket what happens, as it happens.
 *
 * An event is a log line of level info or above, or of an operation (log.h). Lines come from any thread and go to
 * subscribers on the loop; queues have bounds, and what does not fit is counted and told. Without subscribers nothing
 * is taken in, and costs nothing. All but the tap inside: thread loop. */
#ifndef SW_DAEMON_EVENTS_H
#define SW_DAEMON_EVENTS_H

#include "base/err.h"
#include "base/list.h"
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct sw_events;

/* One who wants to know; embedded in a connection. */
struct sw_subscriber {
    struct sw_list node;
    struct sw_events *events;
    bool is_on;
    char only[257];     /* names, separated by commas; empty: all */
    uint64_t n_dropped; /* not told of yet */
    /* Takes a line (borrowed) for the peer; false: no room. */
    bool (*send)(struct sw_subscriber *subscriber, const char *line);
};

/* errors: -SW_ENOMEM. */
int sw_events_open(struct sw_events **ret, uv_loop_t *loop, struct sw_err *err);
/* Sends what is there to the subscribers and ends; there are no more subscribers then. NULL: no-op. */
void sw_events_close(struct sw_events *events, void (*closed)(void *arg), void *arg);

void sw_subscriber_init(struct sw_subscriber *ret, struct sw_events *events,
                        bool (*send)(struct sw_subscriber *subscriber, const char *line));
/* only: NULL for all; cut to fit. Again: changes what is wanted. */
void sw_subscribe(struct sw_subscriber *subscriber, const char *only);
/* No more events; not on: a no-op. */
void sw_unsubscribe(struct sw_subscriber *subscriber);
/* There is room again: tells what was left out meanwhile. */
void sw_subscriber_resume(struct sw_subscriber *subscriber);

/* Subscribers now, and events that were left out for any of them since the start. */
unsigned sw_events_subscribers(const struct sw_events *events);
uint64_t sw_events_dropped(const struct sw_events *events);

#endif

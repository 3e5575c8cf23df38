/* events.h - sends events to connections of the control socket as they happen.
 *
 * An event is a log line of level info or above, or of an operation (log.h). Lines come from any thread and go to
 * subscribers on the loop. Queues have limits; lines that do not fit are counted, and the count is reported. Without
 * subscribers nothing is collected. All but the tap inside: thread loop. */
#ifndef SW_DAEMON_EVENTS_H
#define SW_DAEMON_EVENTS_H

#include "base/err.h"
#include "base/list.h"
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct sw_events;

/* A subscriber; embedded in a connection. */
struct sw_subscriber {
    struct sw_list node;
    struct sw_events *events;
    bool is_on;
    char only[257];     /* names, separated by commas; empty: all */
    uint64_t n_dropped; /* not reported yet */
    /* Takes a line (borrowed) for the peer; returns false if there is no room. */
    bool (*send)(struct sw_subscriber *subscriber, const char *line);
};

/* Starts to collect events. errors: -SW_ENOMEM. */
int sw_events_open(struct sw_events **ret, uv_loop_t *loop, struct sw_err *err);
/* Sends pending events and ends; all subscribers are unsubscribed. NULL: no-op. */
void sw_events_close(struct sw_events *events, void (*closed)(void *arg), void *arg);

void sw_subscriber_init(struct sw_subscriber *ret, struct sw_events *events,
                        bool (*send)(struct sw_subscriber *subscriber, const char *line));
/* Subscribes. only: NULL for all; cut to fit. A second call changes `only`. */
void sw_subscribe(struct sw_subscriber *subscriber, const char *only);
/* Unsubscribes; no-op if not subscribed. */
void sw_unsubscribe(struct sw_subscriber *subscriber);
/* Reports events that were left out, now that there is room again. */
void sw_subscriber_resume(struct sw_subscriber *subscriber);

/* Return the present subscribers, and the events left out for any of them since the start. */
unsigned sw_events_subscribers(const struct sw_events *events);
uint64_t sw_events_dropped(const struct sw_events *events);

#endif

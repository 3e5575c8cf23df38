/* event_names.h - the events that the service sends: the log lines of level info and above, and the lines of
 * operations.
 *
 * An unknown name in a subscription is a typing mistake, and no event would ever match it. If you add a log line, add
 * its event's name; a test compares this list with the sources. thread: any, no state. */
#ifndef SW_DAEMON_EVENT_NAMES_H
#define SW_DAEMON_EVENT_NAMES_H

#include "base/err.h"

/* The names of events, in alphabetical order; NULL ends them. */
extern const char *const sw_event_names[];

/* Checks names separated by commas; the part of a name before a dot is accepted, too. errors: -SW_EINVAL, with the
 * unknown name and a similar one. */
int sw_event_names_check(const char *only, struct sw_err *err);

#endif

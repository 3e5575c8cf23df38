/* event_names.h - the events that the service tells of: the log lines of level info and above, and those of operations.
 *
 * A name that is asked for and not here is a typing mistake, and nothing would ever come of it. Whoever adds a log line
 * adds its event's name; a test compares this list with the sources. thread: any, no state. */
#ifndef SW_DAEMON_EVENT_NAMES_H
#define SW_DAEMON_EVENT_NAMES_H

#include "base/err.h"

/* In the order of the alphabet; NULL ends them. */
extern const char *const sw_event_names[];

/* Checks names separated by commas; the beginning of one, up to a dot, will do. errors: -SW_EINVAL, with the name that
 * is not known and a similar one. */
int sw_event_names_check(const char *only, struct sw_err *err);

#endif

/* discard.h - DISCARD: drops regions, or consumes restored ones. thread: loop. */
#ifndef SW_DAEMON_DISCARD_H
#define SW_DAEMON_DISCARD_H

#include "daemon/session/results.h"
#include "daemon/session/session.h"
#include "ipc/dispatch.h"

sw_command_fn sw_on_discard;

/* Discards the regions that the results name, and fills in a result for each. is_consumed: the client has the bytes, so
 * durable regions stay. */
void sw_discard(struct sw_session *session, bool is_consumed, struct sw_results *results);

#endif

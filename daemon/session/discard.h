/* discard.h - DISCARD: regions that are no longer wanted. thread: loop. */
#ifndef SW_DAEMON_DISCARD_H
#define SW_DAEMON_DISCARD_H

#include "daemon/session/results.h"
#include "daemon/session/session.h"
#include "ipc/dispatch.h"

sw_command_fn sw_on_discard;

/* Discards what it can of the results' ids, each with a result. is_consumed: their bytes are in the client's memory, so
 * that durable regions stay. */
void sw_discard(struct sw_session *session, bool is_consumed, struct sw_results *results);

#endif

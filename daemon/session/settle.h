/* settle.h - SETTLE: tells the result of a request that a predecessor of this process may have carried out. thread:
 * loop.
 */
#ifndef SW_DAEMON_SETTLE_H
#define SW_DAEMON_SETTLE_H

#include "daemon/session/results.h"
#include "daemon/session/session.h"
#include "ipc/dispatch.h"

sw_command_fn sw_on_settle;

/* The request to settle: its builds, or its reads, whose ids are in the results. */
struct sw_settle_query {
    bool is_build, all;
    uint32_t seq;
};

/* Checks that the session may settle. errors: -SW_EINVAL (it was not resumed, or its last SETTLE has come). */
int sw_settle_check(const struct sw_session *session, struct sw_err *err);
/* Finds the result of each build or read. With `all`, all have succeeded, or all fail with one error. */
void sw_settle(struct sw_session *session, const struct sw_settle_query *query, struct sw_results *results);
/* Ends the settling: the client has asked for all requests. */
void sw_settle_end(struct sw_session *session);

#endif

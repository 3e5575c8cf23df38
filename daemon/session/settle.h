/* settle.h - SETTLE: what became of a request that a process before this one may have carried out. thread: loop. */
#ifndef SW_DAEMON_SETTLE_H
#define SW_DAEMON_SETTLE_H

#include "daemon/session/results.h"
#include "daemon/session/session.h"
#include "ipc/dispatch.h"

sw_command_fn sw_on_settle;

/* The request: its builds, or its reads, of which the results have the ids. */
struct sw_settled {
    bool is_build, all;
    uint32_t seq;
};

/* -SW_EINVAL: the session has not come back, or has settled all. */
int sw_settle_check(const struct sw_session *session, struct sw_err *err);
/* Finds out what became of each; fills in the results. With `all`, all have failed, with one error, or none. */
void sw_settle(struct sw_session *session, const struct sw_settled *ask, struct sw_results *results);
/* The client has asked for all. */
void sw_settle_end(struct sw_session *session);

#endif

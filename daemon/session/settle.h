/* settle.h - SETTLE: what became of a request that a process before this one may have carried out. thread: loop. */
#ifndef SW_DAEMON_SETTLE_H
#define SW_DAEMON_SETTLE_H

#include "ipc/dispatch.h"

int sw_on_settle(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err);

#endif

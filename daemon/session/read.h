/* read.h - READ: regions back into the client's memories. Reads are whole so far: each begins and ends in one packet,
 * and one chunk has room for all of a buffer. thread: loop. */
#ifndef SW_DAEMON_READ_H
#define SW_DAEMON_READ_H

#include "daemon/session/session.h"
#include "ipc/dispatch.h"

sw_command_fn sw_on_read;

/* Does what `read` says, for `request`, which is answered in the session's version. Returns as a command does. The
 * memories `once` that the packet names are used up, also after an error. errors: -SW_EPROTO (lengths do not add up),
 * -SW_EINVAL, -SW_ENOTSUP (an open read, frames), those of sw_operation_begin() and sw_engine_restore_buffers(). */
int sw_read_packet(struct sw_session *session, const struct sw_msg *request, const struct sw_msg_read *read,
                   struct sw_err *err);

#endif

/* read.h - READ: restores regions into the client's memories.
 *
 * A read that begins and ends in one packet, with a chunk for all of each buffer, is one operation of the engine. Other
 * reads are open (read_open.h). thread: loop. */
#ifndef SW_DAEMON_READ_H
#define SW_DAEMON_READ_H

#include "daemon/session/session.h"
#include "ipc/dispatch.h"

sw_command_fn sw_on_read;

/* Carries out `read`, and answers `request` in the session's version. Returns as a command does.
 *
 * - The memories opened `once` that the packet names are used up, also after an error.
 * - errors: -SW_EPROTO (lengths do not add up), -SW_EINVAL, those of sw_operation_begin(),
 *   sw_engine_restore() and sw_read_apply(). */
int sw_read_packet(struct sw_session *session, const struct sw_msg *request, const struct sw_msg_read *read,
                   struct sw_err *err);

#endif

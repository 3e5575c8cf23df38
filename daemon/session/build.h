/* build.h - BUILD: regions from chunks of the client's memories. Builds are whole so far: each begins and commits in
 * one packet, and one chunk holds all of a buffer. thread: loop. */
#ifndef SW_DAEMON_BUILD_H
#define SW_DAEMON_BUILD_H

#include "daemon/session/session.h"
#include "ipc/dispatch.h"

sw_command_fn sw_on_build;

/* Does what `build` says, for `request`, which is answered in the session's version. Returns as a command does. The
 * memories `once` that the packet names are used up, also after an error. errors: -SW_EPROTO (lengths do not add up),
 * -SW_EINVAL, -SW_ENOTSUP (an open build, frames), those of sw_operation_begin() and sw_engine_spill_buffers(). */
int sw_build_packet(struct sw_session *session, const struct sw_msg *request, const struct sw_msg_build *build,
                    struct sw_err *err);

#endif

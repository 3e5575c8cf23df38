/* build.h - BUILD: makes regions from chunks of the client's memories.
 *
 * A build that begins and commits in one packet, with one chunk for each buffer, is one operation of the engine. Other
 * builds are open (build_open.h). thread: loop. */
#ifndef SW_DAEMON_BUILD_H
#define SW_DAEMON_BUILD_H

#include "daemon/session/session.h"
#include "ipc/dispatch.h"

sw_command_fn sw_on_build;

/* Carries out `build`, and answers `request` in the session's version. Returns as a command does.
 *
 * - The memories opened `once` that the packet names are used up, also after an error.
 * - errors: -SW_EPROTO (lengths do not add up), -SW_EINVAL, those of sw_operation_begin(),
 *   sw_engine_spill() and sw_build_apply(). */
int sw_build_packet(struct sw_session *session, const struct sw_msg *request, const struct sw_msg_build *build,
                    struct sw_err *err);

#endif

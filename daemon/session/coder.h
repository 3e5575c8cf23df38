/* coder.h - CODER: grants frame buffers to clients that encode and decode themselves.
 *
 * A client's frame buffers are its own GPU memory, which the service cannot take back. It only limits them:
 * gpu_frame_bytes for each GPU. A tenant gets at most three quarters of what other tenants leave of it, and a process
 * three quarters of what the tenant's other processes leave of that. So something is left for later clients. The
 * sessions of a process share one grant. A grant ends with its sessions, or when the client asks anew; what was granted
 * before others came stays until then. thread: loop. */
#ifndef SW_DAEMON_CODER_H
#define SW_DAEMON_CODER_H

#include "daemon/session/session.h"
#include "ipc/dispatch.h"

sw_command_fn sw_on_coder;

/* Gives back what a session was granted. Call it at the session's end. */
void sw_coder_release(struct sw_session *session);
/* Returns the bytes that are granted now, on all devices. */
uint64_t sw_coder_granted_bytes(const struct sw_service *service);

/* Returns the longest chunk that the engine and all devices take. */
uint64_t sw_coder_chunk_bytes(const struct sw_service *service);

#endif

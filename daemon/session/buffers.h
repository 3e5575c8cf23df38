/* buffers.h - regions of several buffers: one operation in many memories, and what became of each of them. For
 * daemon/session/commands.c. thread: loop. */
#ifndef SW_DAEMON_BUFFERS_H
#define SW_DAEMON_BUFFERS_H

#include "ipc/dispatch.h"

sw_command_fn sw_on_spill_buffers, sw_on_restore_buffers, sw_on_query_buffers;

#endif

/* version9.h - requests of version 9 that version 10 has replaced.
 *
 * Each is translated to builds, reads, ids to discard, or a query, and gets the reply of version 9 (results9.h).
 * thread: loop. */
#ifndef SW_DAEMON_VERSION9_H
#define SW_DAEMON_VERSION9_H

#include "ipc/dispatch.h"

sw_command_fn sw_on_spill9, sw_on_spill_durable9, sw_on_spill_batch9, sw_on_spill_buffers9;
sw_command_fn sw_on_restore9, sw_on_restore_batch9, sw_on_restore_buffers9;
sw_command_fn sw_on_drop9, sw_on_drop_batch9, sw_on_consume9;
sw_command_fn sw_on_query9, sw_on_query_buffers9, sw_on_query_packed9;
sw_command_fn sw_on_settle9;

#endif

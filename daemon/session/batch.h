/* batch.h - batches: many spills or restores of one message, each a region and an operation of its own in the engine,
 * that have one reply.
 *
 * A batch is all or nothing: its first failure cancels the pieces that still run, and what a spill had stored until
 * then is dropped. A restore keeps every stored copy until all pieces are back. The reply is due when the last piece
 * has ended. For daemon/session/commands.c. thread: loop. */
#ifndef SW_DAEMON_BATCH_H
#define SW_DAEMON_BATCH_H

#include "ipc/dispatch.h"

sw_command_fn sw_on_spill_batch, sw_on_restore_batch, sw_on_drop_batch;

#endif

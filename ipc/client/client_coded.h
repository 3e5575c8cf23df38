/* client_coded.h - inside of libspillway: calls whose bytes are encoded and decoded in this process.
 *
 * The chunks of such a call (client_way.h) are frames, made by a coder (client_coder.h) in buffers that the service
 * reads and writes. So the service opens none of the caller's memory, and runs no kernel. Not installed. thread: the
 * connection's. */
#ifndef SW_IPC_CLIENT_CODED_H
#define SW_IPC_CLIENT_CODED_H

#include "ipc/client/client_transfer.h"

/* Makes a call a coded one, if a coder works on all of its memory and it pays: sets transfer->way, and the marks of its
 * buffers. Returns 0 also if the call goes another way. fall_back: called when nothing of the call is open any more and
 * its way is of no more use, since the service has to encode or decode; it gives the call another way. errors: those of
 * spillway_spill() about memory and streams. */
int sw_coded_prepare(struct sw_transfer *transfer, void (*fall_back)(struct sw_transfer *transfer), struct sw_err *err);
/* Goes on with the coded calls of a connection. */
void sw_coded_advance(struct spillway *c);

#endif

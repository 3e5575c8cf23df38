/* client_buffers.h - inside of libspillway: several buffers spilled as one region, or restored, under one ticket.
 *
 * Memory that is not registered is opened for the request and closed behind it; all of these packets are tickets of the
 * library's own, sent at once, and sw_buffers_advance(), called wherever packets are taken in, completes the caller's
 * ticket when the last of them was answered: then nothing is mapped any more. Not installed. thread: that of the
 * connection. */
#ifndef SW_IPC_CLIENT_BUFFERS_H
#define SW_IPC_CLIENT_BUFFERS_H

#include "ipc/client/client.h"

/* Completes what has ended. */
void sw_buffers_advance(struct spillway *c);
/* Whether the ticket is that of a request's packet that names the memory of that number. */
bool sw_buffers_use(const struct spillway_ticket *t, uint32_t mem);
/* Takes the answer to QUERY_BUFFERS; false if it is none. */
bool sw_buffers_take(struct spillway_ticket *t, const struct sw_msg_region_buffers *message);
/* Gives its marks back. NULL is a no-op. */
void sw_buffers_free(struct sw_buffers *buffers);

#endif

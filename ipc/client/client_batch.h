/* client_batch.h - inside of libspillway: many pieces of registered memory spilled or restored under one ticket.
 *
 * The pieces go to the daemon in packets of up to SW_PROTO_MAX_BATCH of one memory; each packet is a ticket of the
 * library's own, and sw_batches_advance(), called wherever packets are taken in, sends what the daemon's limits leave
 * room for. The daemon makes a packet all or nothing, the library the batch: what a failed spill has stored is dropped,
 * and a restore of several packets keeps all stored copies until the last of them is back. Not installed. thread: that
 * of the connection. */
#ifndef SW_IPC_CLIENT_BATCH_H
#define SW_IPC_CLIENT_BATCH_H

#include "ipc/client/client.h"

/* Sends and finishes what can be without waiting. */
void sw_batches_advance(struct spillway *c);
/* Takes the answer to a packet; false if it is none for that packet. */
bool sw_batch_take(struct spillway_ticket *t, const struct sw_msg_result_batch *message);
/* Fills in the regions of a packet that is to be settled. */
void sw_batch_settle(const struct spillway_ticket *t, struct sw_msg_settle9 *ret);
/* Nobody waits for the running batch any more: the caller's pieces are not touched again, and a spill stops. */
void sw_batch_abandon(struct sw_batch *batch);
/* Has the daemon drop the batch's regions, without waiting. */
void sw_batch_drop(struct sw_batch *batch);
/* Whether a running batch has pieces in the memory of that number. */
bool sw_batches_use(const struct spillway *c, uint32_t mem);
/* With its ticket. NULL is a no-op. */
void sw_batch_free(struct sw_batch *batch);

#endif

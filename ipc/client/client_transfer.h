/* client_transfer.h - inside of libspillway: calls of spillway_spill() and spillway_restore(), of memory that the
 * daemon opens itself.
 *
 * A call has one ticket and n items, one for each request. They travel in packets of up to SW_PROTO_MAX_ITEMS; each
 * packet is a ticket of the library's own, and sw_transfers_advance(), called wherever packets are taken in, sends what
 * the daemon's limits leave room for. Memory that is not registered is opened before the first packet and closed behind
 * the last. The daemon makes a packet all or nothing; of several packets the library makes the call so: it drops what a
 * failed spill has stored, and a restore keeps all stored copies until the last of them is back. Not installed. thread:
 * that of the connection. */
#ifndef SW_IPC_CLIENT_TRANSFER_H
#define SW_IPC_CLIENT_TRANSFER_H

#include "ipc/client/client.h"

/* Before the first call. errors: -SW_ENOMEM. */
int sw_transfers_init(struct spillway *c);
/* Sends and finishes what can be without waiting. */
void sw_transfers_advance(struct spillway *c);
/* When a call's time is over, by sw_clock_us(); UINT64_MAX: none has a bound. */
uint64_t sw_transfers_deadline_us(const struct spillway *c);
/* The ids that a packet is settled by: one for each of its items, 0:0 of a build. */
void sw_transfer_settle(const struct spillway_ticket *t, struct sw_wire_id *ret);
/* Asks the daemon to end what runs; the call ends with this code, or as it would have. */
void sw_transfer_cancel(struct sw_transfer *transfer, int code, const char *text);
/* Nobody waits for the running call any more: a spill stops. */
void sw_transfer_abandon(struct sw_transfer *transfer);
/* Has the daemon drop the regions that its caller cannot know, without waiting. */
void sw_transfer_drop_unseen(struct sw_transfer *transfer);
/* The caller has been told of its success, but not of its regions. */
void sw_transfer_told(struct sw_transfer *transfer);
/* What became of each request, at the end; returns how many there are. */
uint32_t sw_transfer_results(const struct sw_transfer *transfer, const struct spillway_result **ret);
/* Whether the ticket's packet of a call names the memory of that number. */
bool sw_transfer_packet_uses(const struct spillway_ticket *t, uint32_t mem);
/* Whether a running call has buffers in the memory of that number. */
bool sw_transfers_use(const struct spillway *c, uint32_t mem);
/* With its ticket. NULL is a no-op. */
void sw_transfer_free(struct sw_transfer *transfer);

/* Sends one item of one buffer in memory that stays open, as a ticket of the library's own, whose result it gets. mark:
 * moves into the ticket, also NULL. errors (NULL): -SW_ENOMEM, those of sw_registered_ready(); the mark is then still
 * the caller's. */
struct sw_one {
    bool is_spill, keep;
    struct spillway_region region; /* restore */
    uint16_t type;                 /* spill */
    uint32_t mem;
    uint64_t offset, bytes;
    struct sw_mark *mark;
    void (*on_done)(struct spillway_ticket *t);
    void *owner;
};
struct spillway_ticket *sw_client_send_one(struct spillway *c, const struct sw_one *one, struct sw_err *err);

#endif

/* client_transfer.h - inside of libspillway: calls of spillway_spill() and spillway_restore().
 *
 * A call has one ticket, and an item for each request. Packets are tickets of the library's own. sw_transfers_advance()
 * sends them as the daemon's limits allow, and is called wherever packets are received. Memory that is not registered
 * is opened before the first packet, and closed after the last one.
 *
 * - A whole call (client_transfer.c): the daemon opens all of the memory. A packet has up to SW_PROTO_MAX_ITEMS whole
 *   builds or reads, all or none. If the call has several packets, the library makes it all or nothing: after a failed
 *   spill it drops the stored regions, and a restore keeps all stored copies until the last region is back.
 * - A staged call (client_staging.h): some memory has to be copied. Builds and reads are open while their chunks go
 *   through an arena, and are committed or ended together after the last chunk.
 *
 * Not installed. thread: the connection's. */
#ifndef SW_IPC_CLIENT_TRANSFER_H
#define SW_IPC_CLIENT_TRANSFER_H

#include "ipc/client/client.h"
#include "ipc/client/client_call.h"

struct sw_arena;
struct sw_way; /* client_way.h */

/* One buffer of an item, in a memory that the daemon knows by its number. */
struct sw_item_buffer {
    uint32_t mem;
    uint64_t offset, bytes;
    struct sw_mark *mark; /* in the request's stream; a reference; NULL: do not wait */
    /* Staged: */
    struct sw_arena *arena;             /* it is copied through this arena; NULL: the daemon opens its memory */
    uint64_t stored_bytes, chunk_bytes; /* restore: of the region's buffer, known when the read has begun */
};

/* One request of the call. */
struct sw_item {
    const struct sw_call_request *request;
    uint32_t first;   /* of its buffers; it has request->n_buffers of them */
    uint32_t number;  /* the number of its build or read; 0: none yet */
    bool is_stored;   /* spill: the daemon has the region */
    bool is_open;     /* not whole: the daemon has begun it, and it is not committed or ended */
    bool is_done;     /* packed or unpacked here, or that has failed: its result is known */
    bool is_unpacked; /* here, and the daemon was not told yet */
};

/* A memory that is opened for the call. */
struct sw_opened {
    uint32_t mem;
    struct sw_export export;
    uintptr_t base; /* address of its first byte, if the kind has one; else 0 */
    bool is_open;   /* MEM_OPEN was sent, and MEM_CLOSE was not */
};

struct sw_transfer {
    struct sw_list ending;          /* in spillway.ending, or in no list */
    struct spillway_ticket *ticket; /* the caller's */
    struct sw_call *call;           /* owned */
    struct sw_way *way;             /* owned; NULL: whole */
    bool has_several_packets;
    uint64_t deadline_us; /* UINT64_MAX: none */
    int cancel_code;      /* the error of the cancel; 0: not canceled */
    const char *cancel_text;
    struct spillway_error error;      /* the first */
    struct spillway_error open_error; /* the first memory that could not be opened */
    bool is_acknowledged;             /* the caller knows that it has succeeded */
    uint32_t n_opened, cap_opened;
    struct sw_opened *opened;
    uint32_t n_sent, n_in_flight;    /* items; tickets of the library's own */
    struct sw_item *items;           /* [call->n] */
    struct sw_item_buffer *buffers;  /* [call->n_buffers] */
    struct spillway_result *results; /* [call->n] */
};

/* Returns the call's item of which part i of a ticket's packet is. */
static inline uint32_t sw_ticket_item(const struct spillway_ticket *t, uint32_t i) {
    return t->transfer.items ? t->transfer.items[i] : t->own.part + i;
}

static inline bool sw_transfer_is_each(const struct sw_transfer *x) {
    return x->call->flags & SPILLWAY_EACH;
}

/* Prepares the operations of a connection, before its first call (client_packets.c). errors: -SW_ENOMEM. */
int sw_transfers_init(struct spillway *c);

/* ---- client_transfer.c ---- */

/* Sends packets and finishes calls as far as possible without waiting. */
void sw_transfers_advance(struct spillway *c);
/* Asks the daemon to end what runs; the call ends with this code, or as it would have. */
void sw_transfer_cancel(struct sw_transfer *transfer, int code, const char *text);
/* Notes that the caller no longer waits for the running call: a spill stops. */
void sw_transfer_abandon(struct sw_transfer *transfer);
/* Notes that the caller knows of the call's success, but not the regions' ids. */
void sw_transfer_acknowledged(struct sw_transfer *transfer);
/* Returns whether a running call has buffers in this memory. */
bool sw_transfers_use(const struct spillway *c, uint32_t mem);
/* Frees a transfer, with its ticket. NULL: no-op. */
void sw_transfer_free(struct sw_transfer *transfer);

/* Starts a call. owns: call moves to the ticket, except after an error. errors: those of spillway_spill(). */
int sw_transfer_start(struct spillway *c, struct sw_call *call, struct spillway_ticket **ret, struct sw_err *err);

/* ---- client_items.c: the results of the requests ---- */

/* Gets the ids with which a packet is settled, one for each item; 0:0 for a build. */
void sw_transfer_settle(const struct spillway_ticket *t, struct sw_wire_id *ret);
/* Return whether the ticket's packet, or any of these buffers, names this memory. */
bool sw_transfer_packet_uses(const struct spillway_ticket *t, uint32_t mem);
bool sw_item_buffers_use(const struct sw_item_buffer *buffers, uint32_t n, uint32_t mem);
/* Drops the regions whose ids the caller has not seen, or all stored regions, without waiting. */
void sw_transfer_drop_unseen(struct sw_transfer *transfer);
void sw_transfer_drop_stored(struct sw_transfer *transfer);
/* Returns the bytes of all buffers of an item. */
uint64_t sw_item_bytes(const struct sw_transfer *transfer, uint32_t item);
void sw_item_buffers_release_marks(struct sw_item_buffer *buffers, uint32_t n);
/* Handles the reply about a memory that is opened before the packets, or closed after them. */
void sw_transfer_memory_done(struct spillway_ticket *t);
/* Puts the item's number in the call before the error's text, unless the call has one item, or the error is not about
 * it. */
void sw_transfer_name_request(const struct sw_transfer *x, uint32_t item, struct spillway_error *error);
/* Makes the failed result i of a packet's reply the call's error, unless it has one. Its text counts the call's
 * requests.
 */
void sw_transfer_note_result(struct sw_transfer *x, const struct spillway_ticket *t, const struct sw_msg_results *m,
                             uint32_t i);
/* Takes the results of the items from t->own.part on. Returns false if they do not fit the request. */
bool sw_transfer_take_results(struct spillway_ticket *t, const struct sw_msg *msg);
/* Handles the end of a packet: gives its marks back, and sets the error of its items or of the call. */
void sw_transfer_packet_done(struct spillway_ticket *t);
/* Consumes the restored regions that their requests do not keep; those that were unpacked here. */
void sw_transfer_consume(struct sw_transfer *transfer);
void sw_transfer_consume_unpacked(struct sw_transfer *transfer);
/* Drops the region of an item's result. */
void sw_transfer_drop_one(struct sw_transfer *transfer, uint32_t item);
/* Hands over what these buffers need, before a packet names them. errors: those of sw_registered_ready(). */
int sw_transfer_make_ready(struct sw_transfer *transfer, uint32_t first_buffer, uint32_t n, struct sw_err *err);

#endif

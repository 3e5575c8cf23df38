/* client_transfer.h - inside of libspillway: calls of spillway_spill() and spillway_restore().
 *
 * A call has one ticket and n items, one for each request; each buffer of an item is a piece. Packets are tickets of
 * the library's own, which sw_transfers_advance(), called wherever packets are taken in, sends as the daemon's limits
 * leave room. Memory that is not registered is opened before the first packet and closed behind the last. There are two
 * ways:
 *
 *   whole   (client_transfer.c): the daemon opens all of the memory. A packet has up to SW_PROTO_MAX_ITEMS whole builds
 *           or reads, which the daemon does all or none. Of several packets the library makes the call so: it drops
 * what a failed spill has stored, and a restore keeps all stored copies until the last of them is back staged
 * (client_staging.h): some of it has to be copied. Builds and reads are open while their chunks go through an arena,
 * and all of the call are committed, or ended, behind the last
 *
 * Not installed. thread: that of the connection. */
#ifndef SW_IPC_CLIENT_TRANSFER_H
#define SW_IPC_CLIENT_TRANSFER_H

#include "ipc/client/client.h"
#include "ipc/client/client_call.h"

struct sw_arena;
struct sw_way; /* client_way.h */

/* One buffer of an item, in a memory that the daemon knows by its number. */
struct sw_piece {
    uint32_t mem;
    uint64_t offset, bytes;
    struct sw_mark *mark; /* in the request's stream; a reference; NULL: nothing to wait for */
    /* Staged: */
    struct sw_arena *arena;             /* that it is copied through; NULL: the daemon opens its memory */
    uint64_t stored_bytes, chunk_bytes; /* restore: of the region's buffer, once the read has begun */
};

/* One request of the call. */
struct sw_item {
    const struct sw_call_request *request;
    uint32_t first;  /* of its pieces, request->n_buffers of them */
    uint32_t number; /* of its build or read; 0: none yet */
    bool is_stored;  /* spill: the daemon has the region */
    bool is_open;    /* not whole: the daemon has begun it, and it is not committed or ended */
};

/* A memory that is opened for the call. */
struct sw_opened {
    uint32_t mem;
    struct sw_export export;
    uintptr_t base; /* address of its first byte, where the kind has one; else 0 */
    bool is_open;   /* sent to be opened, and not to be closed */
};

struct sw_transfer {
    struct sw_list ending;          /* of spillway.ending, or alone */
    struct spillway_ticket *ticket; /* the caller's */
    struct sw_call *call;           /* owned */
    struct sw_way *way;             /* owned; NULL: whole */
    bool has_several_packets;
    uint64_t deadline_us; /* UINT64_MAX: none */
    int cancel_code;      /* of what was canceled; 0: nothing was */
    const char *cancel_text;
    struct spillway_error error;      /* the first */
    struct spillway_error open_error; /* the first memory that could not be opened */
    bool told;                        /* the caller knows that it has succeeded */
    uint32_t n_opened, cap_opened;
    struct sw_opened *opened;
    uint32_t n_sent, n_in_flight;    /* items; tickets of the library's own */
    struct sw_item *items;           /* [call->n] */
    struct sw_piece *pieces;         /* [call->n_buffers] */
    struct spillway_result *results; /* [call->n] */
};

static inline bool sw_transfer_is_each(const struct sw_transfer *x) {
    return x->call->flags & SPILLWAY_EACH;
}

/* client_packets.c: before the first call. errors: -SW_ENOMEM. */
int sw_transfers_init(struct spillway *c);

/* ---- client_transfer.c ---- */

/* Sends and finishes what can be without waiting. */
void sw_transfers_advance(struct spillway *c);
/* Asks the daemon to end what runs; the call ends with this code, or as it would have. */
void sw_transfer_cancel(struct sw_transfer *transfer, int code, const char *text);
/* Nobody waits for the running call any more: a spill stops. */
void sw_transfer_abandon(struct sw_transfer *transfer);
/* The caller has been told of its success, but not of its regions. */
void sw_transfer_told(struct sw_transfer *transfer);
/* Whether a running call has buffers in the memory of that number. */
bool sw_transfers_use(const struct spillway *c, uint32_t mem);
/* With its ticket. NULL is a no-op. */
void sw_transfer_free(struct sw_transfer *transfer);

/* Starts a call. owns: call moves into the ticket, but after an error. errors: those of spillway_spill(). */
int sw_transfer_start(struct spillway *c, struct sw_call *call, struct spillway_ticket **ret, struct sw_err *err);

/* ---- client_items.c: what becomes of the requests ---- */

/* The ids that a packet is settled by: one for each of its items, 0:0 of a build. */
void sw_transfer_settle(const struct spillway_ticket *t, struct sw_wire_id *ret);
/* Whether the ticket's packet of a call, or any of these pieces, names the memory of that number. */
bool sw_transfer_packet_uses(const struct spillway_ticket *t, uint32_t mem);
bool sw_pieces_use(const struct sw_piece *pieces, uint32_t n, uint32_t mem);
/* Has the daemon drop the regions that its caller cannot know, or all that are stored, without waiting. */
void sw_transfer_drop_unseen(struct sw_transfer *transfer);
void sw_transfer_drop_stored(struct sw_transfer *transfer);
/* Bytes of all buffers of an item. */
uint64_t sw_item_bytes(const struct sw_transfer *transfer, uint32_t item);
void sw_pieces_release_marks(struct sw_piece *pieces, uint32_t n);
/* A memory has been opened before, or closed behind, the packets. */
void sw_transfer_memory_done(struct spillway_ticket *t);
/* Takes what RESULTS say of the items from t->own.part on. False: it does not fit what was asked for. */
bool sw_transfer_take_results(struct spillway_ticket *t, const struct sw_msg *msg);
/* A packet has been answered: its marks are given back, its items or the call have its error. */
void sw_transfer_packet_done(struct spillway_ticket *t);
/* Has the daemon forget regions that were restored, where the request does not keep them. */
void sw_transfer_consume(struct sw_transfer *transfer);
/* What the daemon is to know before it is told of these pieces. errors: those of sw_registered_ready(). */
int sw_transfer_make_ready(struct sw_transfer *transfer, uint32_t first_piece, uint32_t n, struct sw_err *err);

#endif

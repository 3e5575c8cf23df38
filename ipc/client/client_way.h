/* client_way.h - inside of libspillway: calls that move their bytes by several packets.
 *
 * The builds of such a call are open while their chunks are appended, and are committed together behind the last one.
 * Its reads are open while their chunks come, and are ended together. After an error nothing of the call is stored, or
 * all of its regions still are. client_staging.c and client_coded.c move the chunks; this file has what they share. The
 * calls of client_in_place.c have neither builds nor reads. Not installed. thread: the connection's. */
#ifndef SW_IPC_CLIENT_WAY_H
#define SW_IPC_CLIENT_WAY_H

#include "ipc/client/client_packets.h"

struct sw_way_ops {
    /* Returns true if nothing more is to be sent for the call, or copied. Packets may be under way. */
    bool (*has_ended)(const struct sw_way *way);
    /* The call was canceled or abandoned: ends what is open. */
    void (*cancel)(struct sw_way *way);
    /* Goes on with the call, whose chunks do not wait for other calls' copies. NULL: another function does. */
    void (*advance)(struct sw_way *way);
    /* The chunk length that a build asks the service for, of this buffer; 0: the service chooses. */
    uint32_t (*chunk_bytes)(const struct sw_way *way, const struct sw_item_buffer *b);
    /* Checks a buffer whose stored_bytes and chunk_bytes have just become known. errors: the call's, or the item's. */
    int (*check_buffer)(struct sw_way *way, const struct sw_item_buffer *b, struct sw_err *err);
    /* Another process of the service does not know the call's builds and reads. Returns true if the call begins anew,
     * so that this is no error; NULL: it never does. */
    bool (*begins_anew)(struct sw_way *way);
    void (*free)(struct sw_way *way);
};

/* Every way embeds this first. */
struct sw_way {
    const struct sw_way_ops *ops;
    struct sw_transfer *transfer;
    bool is_in_place;          /* client_in_place.c: the bytes stay where they are */
    uint32_t n_begun, n_ended; /* items: reads that were begun; builds that were committed, or that have failed */
};

static inline struct spillway *sw_way_connection(const struct sw_way *way) {
    return way->transfer->ticket->connection;
}

static inline bool sw_way_is_spill(const struct sw_way *way) {
    return way->transfer->call->is_spill;
}

static inline uint32_t sw_way_n_items(const struct sw_way *way) {
    return way->transfer->call->n;
}

struct sw_item_buffer *sw_way_buffer(const struct sw_way *way, uint32_t item, uint32_t k);
/* Returns true if the call is to stop. If the requests of a call succeed or fail one by one, only an error that
 * concerns all of them stops it. */
bool sw_way_must_stop(const struct sw_way *way);
/* Returns true if the service is there, and its limits leave room for one more packet. Another process of the service
 * would not know the call's builds and reads. */
bool sw_way_may_send(const struct sw_way *way);

/* Sends a packet with n chunks of the item, which lie in one memory. flags: of a read's record. mark: NULL: they begin
 * at once. Returns NULL if it could not be sent; the item then has the error. */
struct spillway_ticket *sw_way_send_chunks(struct sw_way *way, uint32_t item, unsigned flags,
                                           const struct sw_wire_chunk *chunks, unsigned n, const struct sw_mark *mark,
                                           bool (*take)(struct spillway_ticket *t, const struct sw_msg *msg),
                                           void (*on_done)(struct spillway_ticket *t));
/* Begins a build that no chunk has begun. Returns false if that could not be sent. */
bool sw_way_begin_empty(struct sw_way *way, uint32_t item);
/* Commits the builds from n_ended to the item `end`, all or none, unless each is by itself. Returns false if it has to
 * be called again. */
bool sw_way_commit(struct sw_way *way, uint32_t end);
/* Has the service begin the next reads. Returns false if it has to be called again. */
bool sw_way_begin_reads(struct sw_way *way);
/* Clears an error that says that the service was restarted, if the call begins anew. */
void sw_way_forgive(struct sw_way *way, struct spillway_error *error);
/* Adds what the reply to a chunk says to the item's result. */
void sw_way_add_result(struct spillway_result *sum, const struct spillway_result *part);
/* Ends reads, and builds that will not be committed. Returns false if there was no memory for it, and some still are
 * open. */
bool sw_way_end_open(struct sw_way *way);
/* Ends all that is open, and waits for the answers, which do not matter: then the call can begin anew. Returns false if
 * there was no memory for it. */
bool sw_way_give_up_open(struct sw_way *way);
/* Nothing is left to move: ends what is open. A restore that has succeeded then consumes its regions. Returns false if
 * it has to be called again. */
bool sw_way_end(struct sw_way *way);
/* Fails open builds and reads, when the connection has come back to a service that does not know them, or has their
 * calls begin anew. */
void sw_ways_reopen(struct spillway *c);

#endif

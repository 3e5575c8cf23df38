/* operation.h - a packet of builds or reads, from its admission to its reply.
 *
 * Each build or read, a *piece* of the packet, is an operation of the engine. The reply is due when the last piece has
 * ended and what the packet handed over for one use (`once`) is unmapped. With `all` the pieces are done all or not at
 * all: the first failure cancels the others, and regions that were built until then are dropped; reads keep the stored
 * copies until all are back. Without it each piece has its own result. thread: loop. */
#ifndef SW_DAEMON_OPERATION_H
#define SW_DAEMON_OPERATION_H

#include "daemon/session/results.h"
#include "daemon/session/session.h"

struct sw_operation;
struct sw_piece;

struct sw_ask {
    bool is_build;
    bool all;
    bool keep;          /* reads, with `all`: the stored copies stay */
    unsigned n;         /* builds or reads, at least 1 */
    unsigned n_buffers; /* of all of them */
};

/* Defers the reply and counts the operation until the reply is sent. errors: those of sw_session_defer_reply(),
 * -SW_EDRAINING, -SW_ELIMIT, -SW_ETENANTOPS, -SW_ENOMEM, -SW_ETENANTMEMORY. */
int sw_operation_begin(struct sw_session *session, const struct sw_msg *request, const struct sw_ask *ask,
                       struct sw_operation **ret, struct sw_err *err);

/* The packet's next build or read, under the client's number; NULL: all have had their turn, or one that was refused
 * has ended the packet. keep_priority: of a region that it builds. */
struct sw_piece *sw_operation_next(struct sw_operation *operation, uint32_t number, uint8_t keep_priority);
/* What it asks for, for the engine: the client's memory of a number; a memory for a buffer without bytes that lies in
 * none (of n buffers of the piece); what a chunk waits for (value 0: nothing); the id of its region, which the engine
 * or the caller fills in. errors: those of sw_memtable_begin() and sw_orders_find(). */
int sw_piece_memory(struct sw_piece *piece, uint32_t number, unsigned n, struct sw_mem **ret, struct sw_err *err);
int sw_piece_empty_memory(struct sw_piece *piece, unsigned n, struct sw_mem **ret, struct sw_err *err);
int sw_piece_order(struct sw_piece *piece, uint32_t word, uint64_t value, struct sw_order *ret, struct sw_err *err);
struct sw_region_id *sw_piece_id(struct sw_piece *piece);
/* The engine's callback. arg: the piece. */
sw_outcome_cb sw_piece_ended;
/* The piece is under way (rc 0), or was refused. */
void sw_piece_begun(struct sw_piece *piece, int rc, const struct sw_err *err);

/* All pieces have had their turn. Returns SW_REPLY_LATER, or the error if none of them is under way; the operation is
 * then gone. */
int sw_operation_go(struct sw_operation *operation, struct sw_err *err);

#endif

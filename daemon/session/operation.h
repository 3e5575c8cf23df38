/* operation.h - a packet of builds or reads, from its admission to its reply.
 *
 * Each build or read of the packet is a *piece* of it. A piece has the engine do something, or several things, and has
 * ended when all of them have. The reply is due when the last piece has ended and what the packet handed over for one
 * use (`once`) is unmapped. With `all` the pieces are done all or not at all: the first failure cancels the others, and
 * regions that were built until then are dropped; reads keep the stored copies until all are back. Without it each
 * piece has its own result. thread: loop. */
#ifndef SW_DAEMON_OPERATION_H
#define SW_DAEMON_OPERATION_H

#include "daemon/session/results.h"
#include "daemon/session/session.h"

struct sw_operation;
struct sw_piece;

struct sw_ask {
    bool is_build;
    bool begins;        /* some of its builds or reads begin */
    bool ends;          /* some of them end well, if they do; others than these are not logged */
    bool only_cancels;  /* it has no work done, so no limit holds it up */
    bool all;           /* all of them end */
    bool keep;          /* reads, with `all`: the stored copies stay */
    unsigned n;         /* builds or reads, at least 1 */
    unsigned n_buffers; /* of all of them, or chunks, if those are more */
};

/* Defers the reply and counts the operation until the reply is sent. errors: those of sw_session_defer_reply(),
 * -SW_EDRAINING, -SW_ELIMIT, -SW_ETENANTOPS, -SW_ENOMEM, -SW_ETENANTMEMORY. */
int sw_operation_begin(struct sw_session *session, const struct sw_msg *request, const struct sw_ask *ask,
                       struct sw_operation **ret, struct sw_err *err);

/* The packet's next build or read, under the client's number; NULL: all have had their turn. keep_priority: of a region
 * that it builds by sw_piece_ended(). */
struct sw_piece *sw_operation_next(struct sw_operation *operation, uint32_t number, uint8_t keep_priority);
/* With `all`, why a piece before this one has failed, so that this one has nothing to begin; 0: none has. */
int sw_piece_moot(const struct sw_piece *piece, struct sw_err *err);
/* What it asks for, for the engine: the client's memory of a number; a memory for a buffer without bytes that lies in
 * none (of n buffers of the piece); what a chunk waits for (value 0: nothing); the id of its region, which the engine
 * or the caller fills in; the packet's seq, and the piece's place in it. errors: those of sw_memtable_begin() and
 * sw_orders_find(). */
int sw_piece_memory(struct sw_piece *piece, uint32_t number, unsigned n, struct sw_mem **ret, struct sw_err *err);
int sw_piece_empty_memory(struct sw_piece *piece, unsigned n, struct sw_mem **ret, struct sw_err *err);
int sw_piece_order(struct sw_piece *piece, uint32_t word, uint64_t value, struct sw_order *ret, struct sw_err *err);
struct sw_region_id *sw_piece_id(struct sw_piece *piece);
uint32_t sw_piece_seq(const struct sw_piece *piece);
unsigned sw_piece_index(const struct sw_piece *piece);

/* It is a whole build or read, which its client can cancel by its number from now on. errors: those of
 * sw_opens_enter(). */
int sw_piece_enter(struct sw_piece *piece, bool is_read, struct sw_err *err);
/* It ends an open build or read: that has ended with the engine's sw_piece_ended(). */
void sw_piece_end(struct sw_piece *piece, struct sw_open *open);
/* It begins a read that goes on behind this packet: so the reply tells what its region's buffers are (copied). errors:
 * -SW_EINVAL (a reply has no room for more), -SW_ENOMEM, -SW_ETENANTMEMORY. */
int sw_piece_tell(struct sw_piece *piece, const struct sw_buffer_info *buffers, unsigned n, struct sw_err *err);
/* The engine will call back once more: sw_piece_moved() when it has worked on chunks, sw_piece_ended() with what became
 * of the build or read as a whole. */
void sw_piece_expect(struct sw_piece *piece);
sw_outcome_cb sw_piece_moved, sw_piece_ended; /* arg: the piece */
/* It has failed, though the engine may still call back for it. */
void sw_piece_fail(struct sw_piece *piece, const struct sw_err *cause);
/* The piece is under way (rc 0), or has ended if nothing is expected; or it was refused. */
void sw_piece_begun(struct sw_piece *piece, int rc, const struct sw_err *err);
/* Has a piece end early that waits for the end of its build or read. */
void sw_piece_cancel(struct sw_piece *piece);

/* All pieces have had their turn. Returns SW_REPLY_LATER, or the error if none of them was begun; the operation is then
 * gone. */
int sw_operation_go(struct sw_operation *operation, struct sw_err *err);

#endif

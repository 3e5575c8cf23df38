/* client_staging.h - inside of libspillway: copies memory that the daemon cannot open, through an arena that the daemon
 * keeps open (client_arena.h).
 *
 * The chunks of such a call (client_way.h) go through the arena one after the other. sw_staging_advance() does the next
 * steps, and is called wherever packets are received. Not installed. thread: the connection's. */
#ifndef SW_IPC_CLIENT_STAGING_H
#define SW_IPC_CLIENT_STAGING_H

#include "ipc/client/client_transfer.h"

/* The bytes that are copied at a time, and how many of them an arena has room for. */
#define SW_PIECE_BYTES ((uint64_t)16 << 20)
enum { SW_ARENA_PIECES = 4 };

/* ---- of a call ---- */

struct sw_staged;

/* Makes a call a staged one. errors: -SW_ENOMEM, -SW_ELIMIT. */
int sw_staged_new(struct sw_transfer *transfer, struct sw_err *err);
/* Returns NULL if the call is not staged. */
struct sw_staged *sw_staged_of(const struct sw_transfer *transfer);
/* Finds the arena for a buffer's memory, and marks the request's stream, unless the buffer is marked already. errors:
 * -SW_EMEMKIND, -SW_ERANGE, -SW_ENOMEM, -SW_ELIMIT, those of CUDA. */
int sw_staged_prepare(struct sw_staged *staged, struct sw_item_buffer *b, const struct spillway_buffer *buffer,
                      struct CUstream_st *stream, bool is_marked, struct sw_err *err);

/* ---- of a connection ---- */

/* Makes the arena of the memory's GPU or of the host, with all of its pages, and the page of marks, and waits until the
 * daemon has them. errors: those of spillway_prepare(). */
int sw_staging_prepare(struct spillway *c, const void *memory, struct sw_err *err);
/* Does the next steps of all staged calls without waiting. copies: the most copies of host memory. */
void sw_staging_advance(struct spillway *c, unsigned copies);
/* Frees unused arenas that the daemon could not open. */
void sw_staging_free_unused(struct spillway *c);
/* Hands the arenas over again, after a reconnection. */
void sw_staging_reopen(struct spillway *c);
/* Returns whether an arena has this memory number. */
bool sw_staging_uses(const struct spillway *c, uint32_t mem);
/* Frees the arenas. No call may run. */
void sw_staging_free(struct spillway *c);

#endif

/* client_staging.h - inside of libspillway: memory that the daemon cannot open is copied through an arena, memory of
 * the library's own that the daemon keeps open (client_arena.h).
 *
 * The chunks of such a call (client_way.h) go through the arena, piece by piece. sw_staging_advance(), called wherever
 * packets are taken in, does what is due next. Not installed. thread: that of the connection. */
#ifndef SW_IPC_CLIENT_STAGING_H
#define SW_IPC_CLIENT_STAGING_H

#include "ipc/client/client_transfer.h"

/* Bytes of a piece that is copied at a time, and pieces of an arena. */
#define SW_PIECE_BYTES ((uint64_t)16 << 20)
enum { SW_ARENA_PIECES = 4 };

/* ---- of a call ---- */

struct sw_staged;

/* Makes a call a staged one. errors: -SW_ENOMEM, -SW_ELIMIT. */
int sw_staged_new(struct sw_transfer *transfer, struct sw_err *err);
/* Returns NULL if the call is not staged. */
struct sw_staged *sw_staged_of(const struct sw_transfer *transfer);
/* Finds the arena for a buffer's memory, and marks the request's stream. errors: -SW_EMEMKIND, -SW_ERANGE, -SW_ENOMEM,
 * -SW_ELIMIT, those of CUDA. */
int sw_staged_prepare(struct sw_staged *staged, struct sw_piece *piece, const struct spillway_buffer *buffer,
                      struct CUstream_st *stream, struct sw_err *err);

/* ---- of a connection ---- */

/* Makes the arena of the memory's GPU, or the host's, with all its pages, and what orders operations behind streams,
 * and waits until the daemon has it. errors: those of spillway_prepare(). */
int sw_staging_prepare(struct spillway *c, const void *memory, struct sw_err *err);
/* Does what can be done without waiting; at most `copies` pieces of the host's memory are copied. */
void sw_staging_advance(struct spillway *c, unsigned copies);
/* Frees arenas that the daemon could not open, once no call uses them. */
void sw_staging_free_unused(struct spillway *c);
/* The connection has come back: hands the arenas over again. */
void sw_staging_reopen(struct spillway *c);
/* Whether an arena goes by that number of a memory. */
bool sw_staging_uses(const struct spillway *c, uint32_t mem);
/* Frees the arenas. No call may run any more. */
void sw_staging_free(struct spillway *c);

#endif

/* client_arena.h - inside of libspillway: staging arenas, through which memory is copied that the daemon cannot open.
 *
 * - An arena is a memfd for the host's memory, or a block on a GPU. It is made when it is first needed. The daemon
 *   opens it once, and it is kept until the connection ends.
 * - An arena has SW_ARENA_PIECES places of SW_PIECE_BYTES. A longer chunk takes several adjacent places.
 * - The caller's thread copies memory of the host. A stream of the library's copies memory of a GPU, and the daemon
 *   waits for it by a mark.
 *
 * Not installed. thread: the connection's. */
#ifndef SW_IPC_CLIENT_ARENA_H
#define SW_IPC_CLIENT_ARENA_H

#include "ipc/client/client_staging.h"

enum { SW_ARENA_HOST = -1 };
#define SW_ARENA_BYTES (SW_ARENA_PIECES * SW_PIECE_BYTES)

struct sw_place {
    const void *user;       /* NULL: free */
    unsigned n;             /* in the first of several taken together: how many; else 0 */
    uint8_t *data;          /* the user's memory that it holds */
    uint64_t arrived_bytes; /* restored bytes, to be copied out */
    uint64_t copied_bytes;  /* of these */
    bool arrived;
};

struct sw_arena {
    struct sw_list node;
    int gpu; /* ordinal, or SW_ARENA_HOST */
    uint64_t bytes;
    int fd;
    struct sw_cuda_block *block;
    uint32_t mem;
    struct sw_export range;      /* kind, and the offset of the first byte */
    uint64_t made;               /* host: a bit for each 64th of the arena; set: all of its pages exist */
    bool open;                   /* the daemon has mapped it */
    struct spillway_error error; /* why the daemon could not map it */
    unsigned n_users;
    bool wanted; /* a transfer waits for places, or for its turn to copy; later transfers wait behind it */
    bool freed;  /* places were freed since the round began, while it was wanted */
    struct sw_place places[SW_ARENA_PIECES];
};

/* ---- the arenas of a connection, a list of sw_arena.node --------------------------------------------------------- */

/* Gets the arena of the memory `near`, on a GPU or the host. Makes it and hands it over if there is none. owns: the
 * list. errors: -SW_ENOMEM, -SW_ELIMIT, those of CUDA. */
int sw_arena_get(struct spillway *c, struct sw_list *arenas, int gpu, const void *near, struct sw_arena **ret,
                 struct sw_err *err);
/* Frees unused arenas that the daemon could not open, so that the next call tries again. */
void sw_arenas_free_unused(struct spillway *c, struct sw_list *arenas);
/* Begins a round: no transfer waits for an arena. */
void sw_arenas_begin_round(struct sw_list *arenas);
/* Returns whether a transfer that found too few places in this round may find more now. */
bool sw_arenas_freed(const struct sw_list *arenas);
/* Hands the arenas over again, after a reconnection. */
void sw_arenas_reopen(struct spillway *c, struct sw_list *arenas);
/* Returns whether an arena has this memory number. */
bool sw_arenas_use(const struct sw_list *arenas, uint32_t mem);
void sw_arenas_free(struct sw_list *arenas);

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* Returns the first of n adjacent free places, or -1. */
int sw_arena_find_places(const struct sw_arena *arena, unsigned n);
/* Takes n places. data: the user's memory that they hold. */
void sw_arena_take(struct sw_arena *arena, unsigned first, unsigned n, const void *user, uint8_t *data);
/* Frees the places that were taken together. first: as taken. */
void sw_arena_give_back(struct sw_arena *arena, unsigned first);
/* Makes the pages of a taken place's first bytes in this process. The kernel charges a memfd's page to the process that
 * writes to it first, and in a restore that would be the daemon. errors: -SW_ENOMEM, -SW_EIO. */
int sw_arena_make(struct sw_arena *arena, unsigned place, uint64_t bytes, struct sw_err *err);
/* Copies bytes [at, at + bytes) of a taken place from the user's memory (in) or to it. On a GPU it only queues the
 * copy. errors: -SW_EIO (the memory is gone), -SW_ENOMEM, those of CUDA. */
int sw_arena_copy(const struct sw_arena *arena, unsigned place, uint64_t at, uint64_t bytes, bool in,
                  struct sw_err *err);
/* Makes a mark behind all copies that the arena's stream has; none for the host's arena. owns: ret->mark is the
 * caller's.
 */
int sw_arena_mark(struct spillway *c, const struct sw_arena *arena, struct sw_export *ret, struct sw_err *err);

#endif

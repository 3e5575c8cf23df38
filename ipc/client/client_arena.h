/* client_arena.h - inside of libspillway: memory of the library's own that the daemon keeps open, and through which
 * goes what cannot be handed over.
 *
 * One memfd for the host's memory and one block on each GPU: made when it is first needed, opened by the daemon once,
 * kept until the connection ends. It has SW_ARENA_PIECES places of a piece each, of which a longer chunk
 * takes several. Memory of the host is copied by the caller's thread; memory of a GPU on a stream of the library's,
 * which the daemon waits for by an event. Not installed. thread: that of the connection. */
#ifndef SW_IPC_CLIENT_ARENA_H
#define SW_IPC_CLIENT_ARENA_H

#include "ipc/client/client_staging.h"

enum { SW_ARENA_HOST = -1 };
#define SW_ARENA_BYTES (SW_ARENA_PIECES * SW_PIECE_BYTES)

struct sw_place {
    const void *user;       /* NULL: free */
    unsigned n;             /* first of so many that belong together; 0: not the first */
    uint8_t *data;          /* what it holds, in the user's memory */
    uint64_t arrived_bytes; /* restored, to be copied out */
    uint64_t copied_bytes;  /* of those */
    bool arrived;
};

struct sw_arena {
    struct sw_list node;
    int gpu; /* ordinal, or SW_ARENA_HOST */
    uint64_t bytes;
    int fd;
    struct sw_cuda_block *block;
    uint32_t mem;
    struct sw_export range;      /* kind, and offset of its first byte */
    uint64_t made;               /* host: a bit for each 64th of it that has all its pages */
    bool open;                   /* the daemon has mapped it */
    struct spillway_error error; /* or could not */
    unsigned n_users;
    bool wanted; /* by a transfer that found too little of it free, or may not copy now: those behind it wait */
    bool freed;  /* of what is wanted, since the round began */
    struct sw_place places[SW_ARENA_PIECES];
};

/* ---- those of a connection, a list of sw_arena.node -------------------------------------------------------------- */

/* That for memory of a GPU, or the host's, of which `near` is some; makes it and hands it over if there is none.
 * owns: the list. errors: -SW_ENOMEM, -SW_ELIMIT, those of CUDA. */
int sw_arena_get(struct spillway *c, struct sw_list *arenas, int gpu, const void *near, struct sw_arena **ret,
                 struct sw_err *err);
/* Frees those that nobody uses and that the daemon could not open: the next call tries anew. */
void sw_arenas_free_unused(struct spillway *c, struct sw_list *arenas);
/* Nobody wants any for now. */
void sw_arenas_begin_round(struct sw_list *arenas);
/* Whether who found too little of one in this round may find more now. */
bool sw_arenas_freed(const struct sw_list *arenas);
/* The connection has come back: hands them over again. */
void sw_arenas_reopen(struct spillway *c, struct sw_list *arenas);
/* Whether one goes by that number of a memory. */
bool sw_arenas_use(const struct sw_list *arenas, uint32_t mem);
void sw_arenas_free(struct sw_list *arenas);

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* The first of n free places side by side, or -1. */
int sw_arena_find_places(const struct sw_arena *arena, unsigned n);
/* data: what they hold, in the user's memory. */
void sw_arena_take(struct sw_arena *arena, unsigned first, unsigned n, const void *user, uint8_t *data);
/* first: as taken; all that were taken with it are free again. */
void sw_arena_give_back(struct sw_arena *arena, unsigned first);
/* Has the first bytes of a taken place made of this process's memory: the kernel charges a memfd's page to who writes
 * to it first, which of a restore would be the daemon. errors: -SW_ENOMEM, -SW_EIO. */
int sw_arena_make(struct sw_arena *arena, unsigned place, uint64_t bytes, struct sw_err *err);
/* Copies bytes [at, at + bytes) of a taken place from the user's memory (in) or to it; on a GPU it is only queued.
 * errors: -SW_EIO (the memory is not there), -SW_ENOMEM, those of CUDA. */
int sw_arena_copy(const struct sw_arena *arena, unsigned place, uint64_t at, uint64_t bytes, bool in,
                  struct sw_err *err);
/* An event behind all that the arena's stream has been given, for the daemon or the library to wait for; none for the
 * host's. owns ret->mark: the caller. */
int sw_arena_mark(struct spillway *c, const struct sw_arena *arena, struct sw_export *ret, struct sw_err *err);

#endif

/* client_staging.h - inside of libspillway: memory that cannot be handed over goes to the daemon and back piece by
 * piece, through an arena: memory of the library's own that the daemon keeps open.
 *
 * What such a spill leaves is a composite: an id of the library's own for the daemon's regions of its pieces. A
 * transfer in pieces is a ticket without packets of its own; every piece is a ticket of the library's, and
 * sw_staging_advance(), called wherever packets are taken in, does what is due next. Pieces are always restored with
 * their stored copy kept and dropped at the very end, so that a restore that fails half-way can be tried again. Not
 * installed. thread: that of the connection. */
#ifndef SW_IPC_CLIENT_STAGING_H
#define SW_IPC_CLIENT_STAGING_H

#include "ipc/client/client.h"

/* Bytes of a piece, and pieces of an arena. */
#define SW_PIECE_BYTES ((uint64_t)16 << 20)
enum { SW_ARENA_PIECES = 4 };

/* ---- client_staging.c: transfers in pieces ----------------------------------------------------------------------- */

struct sw_staging_request {
    unsigned operation;            /* SW_MSG_BUILD or SW_MSG_READ */
    struct spillway_region region; /* restore: a composite, or the daemon's */
    uint16_t value_type;           /* spill */
    void *user;                    /* the caller's */
    bool keep;
    uint8_t *data;
    uint64_t bytes;
    struct CUstream_st *stream;
};

/* Starts a transfer in pieces. Spill: of memory that cannot be handed over. Restore: of a composite into any memory, or
 * of one region of the daemon into memory that cannot be handed over. errors: as spillway_spill(). */
int sw_staging_start(struct spillway *c, const struct sw_staging_request *request, struct spillway_ticket **ret,
                     struct spillway_error *error);
/* Makes the arena of the memory's GPU, or the host's, with all its pages, and what orders operations behind streams,
 * and waits until the daemon has it. errors: those of spillway_prepare(). */
int sw_staging_prepare(struct spillway *c, const void *memory, struct sw_err *err);
/* Does what can be done without waiting; at most `copies` pieces of the host's memory are copied. */
void sw_staging_advance(struct spillway *c, unsigned copies);
/* Nobody waits for the running ticket any more: a spill stops. */
void sw_staging_abandon(struct sw_staged *op);
/* A running transfer stops, with this code. */
void sw_staging_cancel(struct sw_staged *op, int code, const char *text);
/* A descriptor that becomes readable when sw_staging_advance() is due without a packet; -1: none. */
int sw_staging_fd(const struct spillway *c);
/* The connection has come back: hands the arenas over again. Transfers straight into memory that was theirs fail. */
void sw_staging_reopen(struct spillway *c);
/* Whether an arena, or a transfer in pieces that still runs, goes by that number of a memory. */
bool sw_staging_uses(const struct spillway *c, uint32_t mem);
/* Whether a transfer in pieces has not ended. */
bool sw_staging_is_running(const struct spillway *connection);
/* Frees running transfers with their tickets, and the arenas. No packet may be on its way any more. */
void sw_staging_free(struct spillway *c);

/* ---- client_composite.c: ids of regions in pieces ---------------------------------------------------------------- */

struct sw_composite {
    struct spillway_region id;
    uint64_t raw_bytes;
    bool busy; /* a transfer is moving it */
    uint32_t n_parts;
    struct spillway_region parts[]; /* the daemon's; generation 0: not there */
};

/* The daemon's slots never have the bit: its table is shorter (config.c), and an id that has it is refused. */
#define SW_COMPOSITE_SLOT 0x80000000u

static inline bool sw_region_is_composite(struct spillway_region region) {
    return region.slot & SW_COMPOSITE_SLOT;
}

/* A busy composite without an id and without parts. owns: the caller, until sw_composite_enter(); sw_free(). errors:
 * -SW_ENOMEM. */
int sw_composite_new(struct sw_composite **ret, uint64_t raw_bytes, uint32_t n_parts, struct sw_err *err);
/* Gives it an id; the connection owns it from then on. errors: -SW_ENOMEM, -SW_ELIMIT. */
int sw_composite_enter(struct spillway *c, struct sw_composite *composite, struct sw_err *err);
/* errors (NULL): -SW_ENOENT, -SW_ESTALE. */
struct sw_composite *sw_composite_find(const struct spillway *c, struct spillway_region id, struct sw_err *err);
/* Drops the parts in the daemon, without waiting, and frees the composite; its id, if it has one, is used up. */
void sw_composite_discard(struct spillway *c, struct sw_composite *composite);
/* As sw_composite_discard(), because its bytes are back: of a durable region the stored copy stays. */
void sw_composite_consume(struct spillway *c, struct sw_composite *composite);
/* spillway_drop(), spillway_query() and spillway_advise() of a composite. */
int sw_composite_drop(struct spillway *c, struct spillway_region id, struct spillway_error *error);
int sw_composite_query(struct spillway *c, struct spillway_region id, struct spillway_region_info *ret,
                       struct spillway_error *error);
int sw_composite_advise(struct spillway *c, struct spillway_region id, uint32_t advice, uint32_t value,
                        struct spillway_error *error);
/* Frees what is left at the end of the connection. */
void sw_composites_free(struct spillway *c);

#endif

/* pieces.h - a client of a service that may be killed at any point (killed_service.h). It knows for each region, called
 * a piece here, which of its requests were sent and which replies it has got.
 *
 * Functions do nothing once the service is dead. A request that fails although no fault was planned fails the test.
 * thread: one. */
#ifndef SW_TEST_PIECES_H
#define SW_TEST_PIECES_H

#include "spill/engine.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/wire.h"

enum { SW_PIECE_BYTES = 100001, SW_PIECES_MAX = 12 };

enum sw_piece_stage {
    SW_PIECE_NONE,
    SW_PIECE_SPILLING, /* asked for, not answered */
    SW_PIECE_STORED,
    SW_PIECE_REFUSED,   /* the answer was an error */
    SW_PIECE_RESTORING, /* so that it is consumed */
    SW_PIECE_DROPPING,
    SW_PIECE_GONE,
};

/* A region, as its client knows it. */
struct sw_piece {
    enum sw_piece_stage stage;
    struct sw_region_id id;    /* gen 0: not known to the client */
    uint32_t request, index;   /* of its spill */
    struct sw_memory from, to; /* of a batch only the first owns it */
    uint64_t offset;
    bool packed, durable;
    unsigned n_buffers;
    unsigned batch; /* first piece + 1 of the pieces that are restored together; 0: alone */
    unsigned group; /* the same for pieces that are committed together */
    bool is_out;    /* a successor has found it */
};

/* The client; for the test to set up before each service. */
extern struct sw_pieces {
    struct sw_piece at[SW_PIECES_MAX];
    unsigned n;
    struct sw_wire wire;
    uint32_t last_mem;
    bool is_dead; /* the service */
    unsigned n_errors;
} sw_pieces;

/* n pieces side by side. */
struct sw_piece *sw_pieces_new(unsigned n);
/* Whether the bytes are those of the piece with this index. */
bool sw_piece_holds(const uint8_t *data, unsigned index);

/* Notes what became of a request. Returns whether it succeeded; else the service is dead, or a record has failed. */
bool sw_piece_answered(int rc);
/* Sends a request that concerns n pieces, which are in `meanwhile` from then on, and in `then` when it is answered. */
bool sw_piece_ask(struct sw_msg *msg, struct sw_piece *p, unsigned n, enum sw_piece_stage meanwhile,
                  enum sw_piece_stage then);

/* Version 9: a request for each kind of region. */
void sw_piece_spill(struct sw_piece *p, bool in_place);
void sw_piece_spill_durable(struct sw_piece *p, const char *name);
void sw_piece_spill_buffers(struct sw_piece *p); /* two halves */
void sw_piece_spill_batch(struct sw_piece *p, unsigned n);
void sw_piece_restore(struct sw_piece *p, uint32_t flags);
void sw_piece_restore_buffers(struct sw_piece *p);
void sw_piece_restore_batch(struct sw_piece *p, unsigned n);
void sw_piece_drop(struct sw_piece *p);
void sw_piece_await_moves(void);

/* Version 10: packets of n pieces, each with a result of its own. */
void sw_piece_build_packet(struct sw_piece *p, unsigned n, uint32_t flags, const char *name_of_first);
void sw_piece_read_packet(struct sw_piece *p, unsigned n, uint32_t flags);
void sw_piece_discard_packet(struct sw_piece *p, unsigned n);
/* The same by several packets, all or none. */
void sw_piece_build_open(struct sw_piece *p, unsigned n, const char *name_of_first);
void sw_piece_read_open(struct sw_piece *p, unsigned n);

#endif

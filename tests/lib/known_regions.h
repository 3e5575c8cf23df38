/* known_regions.h - a client of a service that may be killed at any point (killed_service.h). It knows for each of its
 * regions which requests were sent and which replies it has got.
 *
 * Functions do nothing once the service is dead. A request that fails although no fault was planned fails the test.
 * thread: one. */
#ifndef SW_TEST_KNOWN_REGIONS_H
#define SW_TEST_KNOWN_REGIONS_H

#include "spill/engine.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/wire.h"

enum { SW_KNOWN_BYTES = 70001, SW_KNOWN_REGIONS_MAX = 12 };

enum sw_known_stage {
    SW_KNOWN_NONE,
    SW_KNOWN_SPILLING, /* asked for, not answered */
    SW_KNOWN_STORED,
    SW_KNOWN_REFUSED,   /* the answer was an error */
    SW_KNOWN_RESTORING, /* so that it is consumed */
    SW_KNOWN_DROPPING,
    SW_KNOWN_GONE,
};

/* A region, as its client knows it. */
struct sw_known_region {
    enum sw_known_stage stage;
    struct sw_region_id id;    /* gen 0: not known to the client */
    uint32_t request, index;   /* of its spill */
    struct sw_memory from, to; /* of a batch only the first owns it */
    uint64_t offset;
    bool packed, durable;
    unsigned n_buffers;
    unsigned batch; /* first region + 1 of the regions that are restored together; 0: alone */
    unsigned group; /* the same for regions that are committed together */
    bool is_out;    /* a successor has found it */
};

/* The client; for the test to set up before each service. */
extern struct sw_known_regions {
    struct sw_known_region at[SW_KNOWN_REGIONS_MAX];
    unsigned n;
    struct sw_wire wire;
    uint32_t last_mem;
    bool is_dead; /* the service */
    unsigned n_errors;
} sw_known;

/* n regions side by side. */
struct sw_known_region *sw_known_regions_new(unsigned n);
/* Whether the bytes are those of the region with this index. */
bool sw_known_holds(const uint8_t *data, unsigned index);

/* Notes what became of a request. Returns whether it succeeded; else the service is dead, or a record has failed. */
bool sw_known_answered(int rc);
/* Sends a request that concerns n regions, which are in `meanwhile` from then on, and in `then` when it is answered. */
bool sw_known_ask(struct sw_msg *msg, struct sw_known_region *p, unsigned n, enum sw_known_stage meanwhile,
                  enum sw_known_stage then);

/* Version 9: a request for each kind of region. */
void sw_known_spill(struct sw_known_region *p, bool in_place);
void sw_known_spill_durable(struct sw_known_region *p, const char *name);
void sw_known_spill_buffers(struct sw_known_region *p); /* two halves */
void sw_known_spill_batch(struct sw_known_region *p, unsigned n);
void sw_known_restore(struct sw_known_region *p, uint32_t flags);
void sw_known_restore_buffers(struct sw_known_region *p);
void sw_known_restore_batch(struct sw_known_region *p, unsigned n);
void sw_known_drop(struct sw_known_region *p);
void sw_known_await_moves(void);

/* Version 10: packets of n regions, each with a result of its own. */
void sw_known_build_packet(struct sw_known_region *p, unsigned n, uint32_t flags, const char *name_of_first);
void sw_known_read_packet(struct sw_known_region *p, unsigned n, uint32_t flags);
void sw_known_discard_packet(struct sw_known_region *p, unsigned n);
/* The same by several packets, all or none. */
void sw_known_build_open(struct sw_known_region *p, unsigned n, const char *name_of_first);
void sw_known_read_open(struct sw_known_region *p, unsigned n);

#endif

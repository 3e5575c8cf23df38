/* builds_rig.h - a packet_rig with two memories, and packets of whole builds and reads in it. One for each test
 * program.
 *
 * A failure fails the test. thread: one, the loop's. */
#ifndef SW_TEST_BUILDS_RIG_H
#define SW_TEST_BUILDS_RIG_H

#include "tests/lib/packet_rig.h"

enum {
    SW_BUILDS_BYTES = 3000, /* of a buffer: whole numbers of every type */
    SW_BUILDS_MEMORY_BYTES = SW_PROTO_MAX_ITEMS * SW_BUILDS_BYTES,
    SW_BUILDS_MEMS = 2 /* SW_PACKET_RIG_MEM and the next number, handed over to stay */
};

extern struct sw_builds {
    struct sw_packet_rig rig;
    int fds[SW_BUILDS_MEMS];
    uint8_t *memory[SW_BUILDS_MEMS], *original[SW_BUILDS_MEMS]; /* the same bytes at first */
} sw_builds;

/* Checked fixture. */
void sw_builds_open(void);
void sw_builds_close(void);

/* Both memories: have their bytes; are overwritten; get their bytes again. */
void sw_builds_ck_memory(void);
void sw_builds_wipe(void);
void sw_builds_fill_again(void);
int sw_builds_close_memory(uint32_t mem);
/* Nothing is under way. Waits until so many memories are open. */
void sw_builds_ck_rest(unsigned n_regions, unsigned n_mems);

/* Makes a packet of n whole builds of a buffer each, side by side. */
void sw_builds_make(struct sw_test_packet *ret, unsigned n, uint32_t flags);
/* Makes a packet of whole reads of what the last reply says was built so. */
void sw_builds_make_reads(struct sw_test_packet *ret, unsigned n, uint32_t flags, unsigned read_flags);
/* Drops all regions of the session; the n regions of the last reply by a DISCARD. */
void sw_builds_drop_all(void);
void sw_builds_discard_all(unsigned n);

#endif

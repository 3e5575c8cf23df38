/* open_builds.h - a client that builds regions by several packets, in front of a session inside the test.
 *
 * For one test program each: its state is static. What does not fit fails the test. thread: one, the loop's. */
#ifndef SW_TEST_OPEN_BUILDS_H
#define SW_TEST_OPEN_BUILDS_H

#include "tests/lib/packet_rig.h"

#include <check.h>
#include <string.h>

enum {
    STEP = SW_BUILD_CHUNK_STEP_BYTES,
    N_STEPS = 16,
    TAIL = 1000, /* of the last chunk */
    MEMORY_BYTES = N_STEPS * STEP,
    MEM = SW_PACKET_RIG_MEM,
    ONCE = 50,
    NUMBER = 7000 /* of the first build */
};

static struct sw_packet_rig rig;
static struct sw_test_packet packet;
static inline void setup(void) {
    sw_packet_rig_open(&rig, MEMORY_BYTES);
}

static inline void teardown(void) {
    sw_packet_rig_close(&rig);
}

static inline void new_packet(uint32_t flags) {
    sw_test_packet(&packet, SW_MSG_BUILD, flags);
}

static inline struct sw_wire_build *add(uint32_t number, unsigned flags) {
    struct sw_wire_build *build = sw_test_add_build(&packet, NULL);
    build->build = number;
    build->flags = (uint16_t)flags;
    return build;
}

static inline void add_buffer(uint64_t raw_bytes, uint32_t chunk_bytes) {
    sw_test_add_buffer(&packet, raw_bytes, 0)->chunk_bytes = chunk_bytes;
}

/* A buffer has the memory's bytes at the same place. Buffers follow each other. */
static inline struct sw_wire_chunk *add_chunk(unsigned buffer, uint64_t at, uint64_t raw_bytes) {
    struct sw_wire_chunk *chunk = &packet.chunks[packet.msg.u.build.n_chunks++];
    packet.builds[packet.msg.u.build.n_builds - 1].n_chunks++;
    *chunk =
        (struct sw_wire_chunk){.at = at, .raw_bytes = raw_bytes, .offset = at, .mem = MEM, .buffer = (uint16_t)buffer};
    return chunk;
}

static inline int call(void) {
    return sw_packet_rig_call(&rig, &packet);
}

static inline uint32_t send_packet(void) {
    return sw_packet_rig_send(&rig, &packet.msg, NULL, 0);
}

static inline int code_of(unsigned i) {
    return sw_test_result_code(&rig.reply, i);
}

/* Begins a build of one buffer, which has chunks of a step each. */
static inline void begin(uint32_t number, uint64_t raw_bytes) {
    new_packet(0);
    (void)add(number, SW_BUILD_BEGIN);
    add_buffer(raw_bytes, STEP);
    ck_assert_int_eq(call(), 0);
}

static inline void make_append(uint32_t number, unsigned flags, uint64_t at, uint64_t raw_bytes) {
    new_packet(0);
    (void)add(number, flags);
    (void)add_chunk(0, at, raw_bytes);
}

static inline int append(uint32_t number, unsigned flags, uint64_t at, uint64_t raw_bytes) {
    make_append(number, flags, at, raw_bytes);
    return call();
}

static inline int say(uint32_t number, unsigned flags) {
    new_packet(0);
    (void)add(number, flags);
    return call();
}

static inline struct sw_region_id last_id(void) {
    return sw_test_result_id(&rig.reply, 0);
}

/* Restores a region of one buffer. */
static inline void ck_restored(struct sw_region_id id, uint64_t raw_bytes) {
    memset(rig.memory, 0, MEMORY_BYTES);
    sw_test_packet(&packet, SW_MSG_READ, 0);
    (void)sw_test_add_read(&packet, id, 0);
    (void)sw_test_add_room(&packet, MEM, 0, raw_bytes);
    ck_assert_int_eq(call(), 0);
    ck_assert_mem_eq(rig.memory, rig.original, raw_bytes);
    memcpy(rig.memory, rig.original, MEMORY_BYTES);
}

static inline int list(const char *after, uint32_t max) {
    struct sw_msg msg = {.header.type = SW_MSG_LIST, .u.list.max = max};
    memcpy(msg.u.list.after, after, strlen(after));
    const int rc = sw_packet_rig_await_seq(&rig, sw_packet_rig_send(&rig, &msg, NULL, 0));
    ck_assert(rc != 0 || rig.reply.header.type == SW_MSG_LISTING);
    return rc;
}

#endif

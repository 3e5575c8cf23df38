/* client_frames.h - a client that makes frames, in front of a session inside the test: it encodes chunks, stores them
 * by builds, and reads frames back.
 *
 * For one test program each: its state is static. What does not fit fails the test. thread: one, the loop's. */
#ifndef SW_TEST_CLIENT_FRAMES_H
#define SW_TEST_CLIENT_FRAMES_H

#include "codec/plan/planning.h"
#include "tests/lib/content.h"
#include "tests/lib/packet_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    STEP = SW_BUILD_CHUNK_STEP_BYTES,
    CHUNK = 2 * STEP,
    N_CHUNKS = 5,
    RAW_BYTES = (N_CHUNKS - 1) * CHUNK + 1000,
    ROOM = CHUNK + STEP, /* for a frame; one behind the other from FRAMES on */
    FRAMES = N_CHUNKS * CHUNK,
    MEMORY_BYTES = FRAMES + N_CHUNKS * ROOM,
    MEM = SW_PACKET_RIG_MEM,
    ONCE = 50,
    HOLES = 51,
    NUMBER = 7000
};

static struct sw_packet_rig rig;
static struct sw_test_packet packet;
static uint8_t *raw; /* [RAW_BYTES] the client's bytes */
static uint32_t frame_bytes[N_CHUNKS];

static inline uint64_t chunk_bytes(unsigned i) {
    return i < N_CHUNKS - 1 ? CHUNK : RAW_BYTES - (N_CHUNKS - 1) * CHUNK;
}

static inline uint64_t frame_at(unsigned i) {
    return FRAMES + i * (uint64_t)ROOM;
}

static inline uint8_t *frame(unsigned i) {
    return rig.memory + frame_at(i);
}

/* Makes the client's bytes. */
static inline void make_raw(enum sw_value_type type) {
    if (type == SW_VALUE_NONE)
        sw_content_fill(raw, RAW_BYTES, SW_CONTENT_TEXT, 7);
    for (unsigned i = 0; type == SW_VALUE_U32 && i < RAW_BYTES / 4; i++)
        memcpy(raw + 4 * i, &(uint32_t){1000 + i % 7}, 4);
}

/* The client's codec: all of its bytes as frames. */
static inline void encode_by(const struct sw_plan *plan) {
    for (unsigned i = 0; i < N_CHUNKS; i++) {
        uint64_t bytes = 0;
        ck_assert_int_eq(sw_codec_encode(plan, raw + i * CHUNK, chunk_bytes(i), frame(i), ROOM, &bytes, NULL), 0);
        ck_assert(bytes < chunk_bytes(i) || i == N_CHUNKS - 1); /* the last one is too short: a raw frame */
        frame_bytes[i] = (uint32_t)bytes;
    }
}

static inline void encode(enum sw_value_type type) {
    static uint8_t sample[SW_SAMPLE_MAX_BYTES];
    struct sw_plan plan;
    make_raw(type);
    sw_plan_make(&plan, type, raw, RAW_BYTES, sample);
    ck_assert_int_ne(plan.codec, SW_CODEC_RAW);
    encode_by(&plan);
}

static inline void setup(void) {
    sw_packet_rig_open(&rig, MEMORY_BYTES);
    raw = malloc(RAW_BYTES);
    memset(rig.memory, 0, MEMORY_BYTES);
    encode(SW_VALUE_NONE);
}

static inline void teardown(void) {
    sw_packet_rig_close(&rig);
    free(raw);
}

static inline int call(void) {
    return sw_packet_rig_call(&rig, &packet);
}

static inline void new_build(uint32_t number, unsigned flags, uint32_t wish) {
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    struct sw_wire_build *build = sw_test_add_build(&packet, NULL);
    build->build = number;
    build->flags = (uint16_t)flags;
    if (flags & SW_BUILD_BEGIN)
        sw_test_add_buffer(&packet, RAW_BYTES, 0)->chunk_bytes = wish;
}

static inline struct sw_wire_chunk *add_any(unsigned buffer, uint64_t at, uint64_t raw_bytes, uint64_t offset) {
    struct sw_wire_chunk *chunk = &packet.chunks[packet.msg.u.build.n_chunks++];
    packet.builds[packet.msg.u.build.n_builds - 1].n_chunks++;
    *chunk = (struct sw_wire_chunk){
        .at = at, .raw_bytes = raw_bytes, .offset = offset, .mem = MEM, .buffer = (uint16_t)buffer};
    return chunk;
}

/* Chunk i of a buffer, as a frame. */
static inline struct sw_wire_chunk *add_frame(unsigned buffer, unsigned i) {
    struct sw_wire_chunk *chunk = add_any(buffer, i * (uint64_t)CHUNK, chunk_bytes(i), frame_at(i));
    chunk->frame_bytes = frame_bytes[i];
    return chunk;
}

/* Build NUMBER, which has failed. */
static inline void abort_build(int code) {
    new_build(NUMBER, SW_BUILD_ABORT, 0);
    ck_assert_int_eq(call(), code);
}

/* A build of all frames by one packet. */
static inline struct sw_region_id store_frames(uint32_t number) {
    new_build(number, SW_BUILD_BEGIN | SW_BUILD_COMMIT, CHUNK);
    for (unsigned i = 0; i < N_CHUNKS; i++)
        (void)add_frame(0, i);
    ck_assert_int_eq(call(), 0);
    return sw_test_result_id(&rig.reply, 0);
}

static inline const char *coder(unsigned i) {
    return sw_test_text(&rig.reply, rig.reply.u.results.results[i].coder);
}

static inline void new_read(uint32_t number, unsigned flags, struct sw_region_id id) {
    sw_test_packet(&packet, SW_MSG_READ, 0);
    struct sw_wire_read *read = sw_test_add_read(&packet, id, 0);
    read->read = number;
    read->flags = (uint16_t)flags;
}

static inline struct sw_wire_chunk *add_room(unsigned buffer, uint64_t at, uint64_t raw_bytes, uint64_t offset) {
    struct sw_wire_chunk *chunk = sw_test_add_room(&packet, MEM, offset, raw_bytes);
    chunk->buffer = (uint16_t)buffer;
    chunk->at = at;
    return chunk;
}

static inline struct sw_wire_chunk *add_frame_room(unsigned buffer, unsigned i) {
    struct sw_wire_chunk *chunk = add_room(buffer, i * (uint64_t)CHUNK, chunk_bytes(i), frame_at(i));
    chunk->frame_bytes = ROOM;
    return chunk;
}

/* Restored as bytes: those are the client's. */
static inline void ck_restored(struct sw_region_id id) {
    memset(rig.memory, 0, RAW_BYTES);
    new_read(NUMBER, SW_READ_BEGIN | SW_READ_END, id);
    (void)add_room(0, 0, RAW_BYTES, 0);
    ck_assert_int_eq(call(), 0);
    ck_assert_mem_eq(rig.memory, raw, RAW_BYTES);
    ck_assert_str_eq(coder(0), "daemon");
}

/* Frame n of the last reply is chunk i, complete, and decodes to the client's bytes. */
static inline void ck_frame(unsigned n, unsigned buffer, unsigned i) {
    static uint8_t out[CHUNK];
    const struct sw_wire_frame *f = &rig.reply.u.results.frames[n];
    struct sw_frame_layout layout;
    uint64_t bytes = 0;
    ck_assert_uint_lt(n, rig.reply.u.results.n_frames);
    ck_assert(f->offset == frame_at(i) && f->buffer == buffer && f->raw_bytes == chunk_bytes(i));
    ck_assert_int_eq(sw_frame_parse(&layout, frame(i), f->bytes, f->bytes, NULL), 0);
    ck_assert(f->codec == layout.codec && f->value_type == layout.value_type && f->n_symbols == layout.n_symbols);
    ck_assert_uint_eq(f->segment_log2, layout.segment_log2);
    ck_assert_uint_eq((uint64_t)f->dictionary16 * SW_FRAME_ALIGN, layout.dictionary_bytes);
    ck_assert_int_eq(sw_codec_decode(frame(i), f->bytes, out, sizeof out, &bytes, NULL), 0);
    ck_assert_uint_eq(bytes, chunk_bytes(i));
    ck_assert_mem_eq(out, raw + i * CHUNK, bytes);
}

static inline void ck_rest(unsigned n_regions, unsigned n_open) {
    sw_packet_rig_check_rest(&rig, n_regions, n_open);
}

#endif

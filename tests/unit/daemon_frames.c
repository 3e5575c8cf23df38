/* Frames that the client makes: what is stored as frames comes back as bytes, and the other way round; what a client
 * may do wrong, and what becomes of it, and of nobody else. */
#include "codec/plan/planning.h"
#include "daemon/session/coder.h"
#include "spill/engine_state.h"
#include "tests/lib/content.h"
#include "tests/lib/packet_rig.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

static uint64_t chunk_bytes(unsigned i) {
    return i < N_CHUNKS - 1 ? CHUNK : RAW_BYTES - (N_CHUNKS - 1) * CHUNK;
}

static uint64_t frame_at(unsigned i) {
    return FRAMES + i * (uint64_t)ROOM;
}

static uint8_t *frame(unsigned i) {
    return rig.memory + frame_at(i);
}

/* What the client has. */
static void make_raw(enum sw_value_type type) {
    if (type == SW_VALUE_NONE)
        sw_content_fill(raw, RAW_BYTES, SW_CONTENT_TEXT, 7);
    for (unsigned i = 0; type == SW_VALUE_U32 && i < RAW_BYTES / 4; i++)
        memcpy(raw + 4 * i, &(uint32_t){1000 + i % 7}, 4);
}

/* The client's codec: all of its bytes as frames. */
static void encode(enum sw_value_type type) {
    static uint8_t sample[SW_SAMPLE_MAX_BYTES];
    struct sw_plan plan;
    make_raw(type);
    sw_plan_make(&plan, type, raw, RAW_BYTES, sample);
    ck_assert_int_ne(plan.codec, SW_CODEC_RAW);
    for (unsigned i = 0; i < N_CHUNKS; i++) {
        uint64_t bytes = 0;
        ck_assert_int_eq(sw_codec_encode(&plan, raw + i * CHUNK, chunk_bytes(i), frame(i), ROOM, &bytes, NULL), 0);
        ck_assert(bytes < chunk_bytes(i) || i == N_CHUNKS - 1); /* the last one is too short: a raw frame */
        frame_bytes[i] = (uint32_t)bytes;
    }
}

static void setup(void) {
    sw_packet_rig_open(&rig, MEMORY_BYTES);
    raw = malloc(RAW_BYTES);
    memset(rig.memory, 0, MEMORY_BYTES);
    encode(SW_VALUE_NONE);
}

static void teardown(void) {
    sw_packet_rig_close(&rig);
    free(raw);
}

/* ---- packets ---- */

static int call(void) {
    return sw_packet_rig_call(&rig, &packet);
}

static void new_build(uint32_t number, unsigned flags, uint32_t wish) {
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    struct sw_wire_build *build = sw_test_add_build(&packet, NULL);
    build->build = number;
    build->flags = (uint16_t)flags;
    if (flags & SW_BUILD_BEGIN)
        sw_test_add_buffer(&packet, RAW_BYTES, 0)->chunk_bytes = wish;
}

static struct sw_wire_chunk *add_any(unsigned buffer, uint64_t at, uint64_t raw_bytes, uint64_t offset) {
    struct sw_wire_chunk *chunk = &packet.chunks[packet.msg.u.build.n_chunks++];
    packet.builds[packet.msg.u.build.n_builds - 1].n_chunks++;
    *chunk = (struct sw_wire_chunk){
        .at = at, .raw_bytes = raw_bytes, .offset = offset, .mem = MEM, .buffer = (uint16_t)buffer};
    return chunk;
}

/* Chunk i of a buffer, as a frame. */
static struct sw_wire_chunk *add_frame(unsigned buffer, unsigned i) {
    struct sw_wire_chunk *chunk = add_any(buffer, i * (uint64_t)CHUNK, chunk_bytes(i), frame_at(i));
    chunk->frame_bytes = frame_bytes[i];
    return chunk;
}

/* Build NUMBER, which has failed. */
static void abort_build(int code) {
    new_build(NUMBER, SW_BUILD_ABORT, 0);
    ck_assert_int_eq(call(), code);
}

/* A build of all frames by one packet. */
static struct sw_region_id store_frames(uint32_t number) {
    new_build(number, SW_BUILD_BEGIN | SW_BUILD_COMMIT, CHUNK);
    for (unsigned i = 0; i < N_CHUNKS; i++)
        (void)add_frame(0, i);
    ck_assert_int_eq(call(), 0);
    return sw_test_result_id(&rig.reply, 0);
}

/* The bytes as bytes, which the daemon encodes. */
static struct sw_region_id store_raw(uint32_t number, enum sw_value_type type) {
    make_raw(type);
    memcpy(rig.memory, raw, RAW_BYTES);
    new_build(number, SW_BUILD_BEGIN | SW_BUILD_COMMIT, CHUNK);
    packet.buffers[0].value_type = (uint16_t)type;
    (void)add_any(0, 0, RAW_BYTES, 0);
    ck_assert_int_eq(call(), 0);
    memset(rig.memory, 0, MEMORY_BYTES);
    return sw_test_result_id(&rig.reply, 0);
}

static const char *coder(unsigned i) {
    return sw_test_text(&rig.reply, rig.reply.u.results.results[i].coder);
}

static void new_read(uint32_t number, unsigned flags, struct sw_region_id id) {
    sw_test_packet(&packet, SW_MSG_READ, 0);
    struct sw_wire_read *read = sw_test_add_read(&packet, id, 0);
    read->read = number;
    read->flags = (uint16_t)flags;
}

static const struct sw_region_id none;

static struct sw_wire_chunk *add_room(unsigned buffer, uint64_t at, uint64_t raw_bytes, uint64_t offset) {
    struct sw_wire_chunk *chunk = sw_test_add_room(&packet, MEM, offset, raw_bytes);
    chunk->buffer = (uint16_t)buffer;
    chunk->at = at;
    return chunk;
}

static struct sw_wire_chunk *add_frame_room(unsigned buffer, unsigned i) {
    struct sw_wire_chunk *chunk = add_room(buffer, i * (uint64_t)CHUNK, chunk_bytes(i), frame_at(i));
    chunk->frame_bytes = ROOM;
    return chunk;
}

/* Restored as bytes: those are the client's. */
static void ck_restored(struct sw_region_id id) {
    memset(rig.memory, 0, RAW_BYTES);
    new_read(NUMBER, SW_READ_BEGIN | SW_READ_END, id);
    (void)add_room(0, 0, RAW_BYTES, 0);
    ck_assert_int_eq(call(), 0);
    ck_assert_mem_eq(rig.memory, raw, RAW_BYTES);
    ck_assert_str_eq(coder(0), "daemon");
}

/* Frame n of the last reply is chunk i, complete, and decodes to the client's bytes. */
static void ck_frame(unsigned n, unsigned buffer, unsigned i) {
    static uint8_t out[CHUNK];
    const struct sw_wire_frame *f = &rig.reply.u.results.frames[n];
    struct sw_frame_layout layout;
    uint64_t bytes = 0;
    ck_assert_uint_lt(n, rig.reply.u.results.n_frames);
    ck_assert(f->offset == frame_at(i) && f->buffer == buffer && f->raw_bytes == chunk_bytes(i));
    ck_assert_int_eq(sw_frame_parse(&layout, frame(i), f->bytes, f->bytes, NULL), 0);
    ck_assert(f->codec == layout.codec && f->value_type == layout.value_type && f->n_symbols == layout.n_symbols);
    ck_assert_uint_eq(f->segment_log2, layout.segment_log2);
    ck_assert_int_eq(sw_codec_decode(frame(i), f->bytes, out, sizeof out, &bytes, NULL), 0);
    ck_assert_uint_eq(bytes, chunk_bytes(i));
    ck_assert_mem_eq(out, raw + i * CHUNK, bytes);
}

static void ck_rest(unsigned n_regions, unsigned n_open) {
    sw_packet_rig_check_rest(&rig, n_regions, n_open);
}

/* ---- frames in, bytes out, and the other way round ---- */

/* The loop's index: by one packet, or by one for each frame. */
START_TEST(what_a_client_encodes_the_daemon_restores) {
    struct sw_region_id id;
    if (_i == 0) {
        id = store_frames(NUMBER);
    } else {
        new_build(NUMBER, SW_BUILD_BEGIN, CHUNK);
        ck_assert_int_eq(call(), 0);
        for (unsigned i = 0; i < N_CHUNKS; i++) {
            new_build(NUMBER, i == N_CHUNKS - 1 ? SW_BUILD_COMMIT : 0, 0);
            (void)add_frame(0, i);
            ck_assert_int_eq(call(), 0);
            ck_assert_str_eq(coder(0), "client");
        }
        id = sw_test_result_id(&rig.reply, 0);
    }
    uint64_t stored_bytes = 0;
    for (unsigned i = 0; i < N_CHUNKS; i++)
        stored_bytes += frame_bytes[i];
    const struct sw_wire_result *result = &rig.reply.u.results.results[0];
    ck_assert_uint_eq(result->raw_bytes, RAW_BYTES);
    ck_assert_uint_eq(result->stored_bytes, stored_bytes);
    ck_assert_str_eq(coder(0), "client");
    ck_assert_str_eq(sw_test_text(&rig.reply, result->reason), "encoded by the client");
    ck_rest(1, 0);
    ck_restored(id);
    ck_rest(0, 0);
}
END_TEST

/* The loop's index: as bytes, or as numbers; and from one packet, or several. */
START_TEST(what_the_daemon_encodes_a_client_decodes) {
    const enum sw_value_type type = _i & 1 ? SW_VALUE_U32 : SW_VALUE_NONE;
    const bool is_one = _i & 2;
    const struct sw_region_id id = store_raw(NUMBER, type);
    ck_assert_str_eq(coder(0), "daemon");
    new_read(NUMBER, SW_READ_BEGIN | (is_one ? SW_READ_END : 0), id);
    for (unsigned i = 0; i < (is_one ? N_CHUNKS : 2); i++)
        (void)add_frame_room(0, i);
    ck_assert_int_eq(call(), 0);
    ck_assert_uint_eq(rig.reply.u.results.n_frames, is_one ? N_CHUNKS : 2);
    ck_assert_str_eq(coder(0), "client");
    for (unsigned i = 0; i < rig.reply.u.results.n_frames; i++)
        ck_frame(i, 0, i);
    if (!is_one) {
        new_read(NUMBER, SW_READ_END, none);
        for (unsigned i = N_CHUNKS; i-- > 2;)
            (void)add_frame_room(0, i);
        ck_assert_int_eq(call(), 0);
        ck_assert_uint_eq(rig.reply.u.results.results[0].raw_bytes, RAW_BYTES);
        ck_assert_str_eq(coder(0), "client");
        for (unsigned i = N_CHUNKS; i-- > 2;)
            ck_frame(N_CHUNKS - 1 - i, 0, i);
    }
    ck_rest(0, 0);
}
END_TEST

/* Frames and bytes in one build, in one read, and in one packet. */
START_TEST(frames_and_bytes_may_be_mixed) {
    memcpy(rig.memory, raw, RAW_BYTES);
    new_build(NUMBER, SW_BUILD_BEGIN, CHUNK);
    (void)add_frame(0, 0);
    (void)add_any(0, CHUNK, 2 * CHUNK, CHUNK);
    (void)add_frame(0, 3);
    ck_assert_int_eq(call(), 0);
    ck_assert_str_eq(coder(0), "daemon");
    new_build(NUMBER, SW_BUILD_COMMIT, 0);
    (void)add_frame(0, 4);
    ck_assert_int_eq(call(), 0);
    ck_assert_str_eq(coder(0), "daemon");
    const struct sw_region_id id = sw_test_result_id(&rig.reply, 0);
    memset(rig.memory, 0, MEMORY_BYTES);
    new_read(NUMBER, SW_READ_BEGIN | SW_READ_END | SW_READ_KEEP, id);
    (void)add_room(0, 0, CHUNK, 0);
    (void)add_frame_room(0, 1);
    (void)add_room(0, 2 * CHUNK, CHUNK, 2 * CHUNK);
    (void)add_frame_room(0, 3);
    (void)add_frame_room(0, 4);
    ck_assert_int_eq(call(), 0);
    ck_assert_str_eq(coder(0), "daemon");
    ck_assert_uint_eq(rig.reply.u.results.n_frames, 3);
    ck_frame(0, 0, 1);
    ck_frame(1, 0, 3);
    ck_frame(2, 0, 4);
    ck_assert_mem_eq(rig.memory, raw, CHUNK);
    ck_assert_mem_eq(rig.memory + 2 * CHUNK, raw + 2 * CHUNK, CHUNK);
    ck_restored(id);
    ck_rest(0, 0);
}
END_TEST

/* Buffers of bytes, of numbers and without bytes, durable, with memory for one packet. */
START_TEST(several_buffers_with_frames) {
    sw_packet_rig_add_memory(&rig, ONCE, rig.fd, MEMORY_BYTES, true);
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    struct sw_wire_build *build = sw_test_add_build(&packet, "frames");
    build->flags = SW_BUILD_BEGIN;
    sw_test_add_buffer(&packet, 2 * CHUNK, 0)->chunk_bytes = CHUNK;
    sw_test_add_buffer(&packet, 0, 0)->chunk_bytes = CHUNK;
    sw_test_add_buffer(&packet, RAW_BYTES, SW_VALUE_U32)->chunk_bytes = CHUNK;
    add_frame(0, 0)->mem = ONCE;
    add_frame(0, 1)->mem = ONCE;
    ck_assert_int_eq(call(), 0);
    uint8_t *text = malloc(2 * CHUNK);
    memcpy(text, raw, 2 * CHUNK);
    encode(SW_VALUE_U32);
    new_build(1, SW_BUILD_COMMIT, 0);
    for (unsigned i = 0; i < N_CHUNKS; i++)
        (void)add_frame(2, i);
    ck_assert_int_eq(call(), 0);
    ck_assert_str_eq(coder(0), "client");
    const struct sw_region_id id = sw_test_result_id(&rig.reply, 0);
    memset(rig.memory, 0, MEMORY_BYTES);
    new_read(NUMBER, SW_READ_BEGIN | SW_READ_END, id);
    (void)add_room(0, 0, 2 * CHUNK, 0);
    for (unsigned i = 0; i < N_CHUNKS; i++)
        (void)add_frame_room(2, i);
    ck_assert_int_eq(call(), 0);
    ck_assert_uint_eq(rig.reply.u.results.n_buffers, 0);
    for (unsigned i = 0; i < N_CHUNKS; i++)
        ck_frame(i, 2, i);
    ck_assert_mem_eq(rig.memory, text, 2 * CHUNK);
    free(text);
    ck_rest(1, 0); /* it is durable */
}
END_TEST

/* With SW_REQ_ALL: builds of frames, and reads of frames, all or none; the loop's index: one of them fails. */
START_TEST(all_or_none_with_frames) {
    enum { N = 3 };
    struct sw_region_id ids[N];
    sw_test_packet(&packet, SW_MSG_BUILD, SW_REQ_ALL);
    for (unsigned k = 0; k < N; k++) {
        (void)sw_test_add_build(&packet, k == 1 ? "durable" : NULL);
        sw_test_add_buffer(&packet, 2 * CHUNK, 0)->chunk_bytes = CHUNK;
        (void)add_frame(0, 0);
        (void)add_frame(0, 1);
    }
    if (_i == 1)
        packet.chunks[3].frame_bytes -= 16; /* not the frame's length */
    ck_assert_int_eq(call(), _i == 1 ? -SW_EFRAME : 0);
    ck_rest(_i == 1 ? 0 : N, 0);
    if (_i == 1)
        return;
    for (unsigned k = 0; k < N; k++)
        ids[k] = sw_test_result_id(&rig.reply, k);
    memset(rig.memory, 0, MEMORY_BYTES);
    sw_test_packet(&packet, SW_MSG_READ, SW_REQ_ALL);
    for (unsigned k = 0; k < N; k++) {
        (void)sw_test_add_read(&packet, ids[k], 0);
        for (unsigned i = 0; k < 2 && i < 2; i++)
            add_room(0, i * CHUNK, CHUNK, frame_at(2 * k + i))->frame_bytes = ROOM;
    }
    (void)add_room(0, 0, 2 * CHUNK, 0);
    if (_i == 2)
        packet.chunks[3].frame_bytes = frame_bytes[1] - 1;
    ck_assert_int_eq(call(), _i == 2 ? -SW_ETOOSMALL : 0);
    ck_rest(_i == 2 ? N : 1, 0);
    if (_i == 2)
        return;
    ck_assert_uint_eq(rig.reply.u.results.n_frames, 4);
    for (unsigned n = 0; n < 4; n++) {
        const struct sw_wire_frame *f = &rig.reply.u.results.frames[n];
        uint64_t bytes = 0;
        static uint8_t out[CHUNK];
        ck_assert_uint_eq(f->offset, frame_at(n));
        ck_assert_int_eq(sw_codec_decode(frame(n), f->bytes, out, sizeof out, &bytes, NULL), 0);
        ck_assert_mem_eq(out, raw + n % 2 * CHUNK, CHUNK);
    }
    ck_assert_mem_eq(rig.memory, raw, 2 * CHUNK);
}
END_TEST

/* Without SW_REQ_ALL the frames of a read that fails are there, and all 0. */
START_TEST(frames_of_a_read_that_fails_are_empty) {
    const struct sw_wire_frame empty = {0};
    const struct sw_region_id id = store_frames(NUMBER);
    sw_test_packet(&packet, SW_MSG_READ, 0);
    (void)sw_test_add_read(&packet, (struct sw_region_id){4000, 1}, 0);
    (void)add_frame_room(0, 0);
    (void)sw_test_add_read(&packet, id, SW_READ_KEEP);
    (void)add_frame_room(0, 1);
    (void)sw_test_add_read(&packet, id, SW_READ_KEEP); /* EBUSY */
    (void)add_frame_room(0, 2);
    ck_assert_int_eq(call(), 0);
    ck_assert_int_eq(sw_test_result_code(&rig.reply, 0), -SW_ENOENT);
    ck_assert_int_eq(sw_test_result_code(&rig.reply, 1), 0);
    ck_assert_int_eq(sw_test_result_code(&rig.reply, 2), -SW_EBUSY);
    ck_assert_uint_eq(rig.reply.u.results.n_frames, 3);
    ck_assert_mem_eq(&rig.reply.u.results.frames[0], &empty, sizeof empty);
    ck_frame(1, 0, 1);
    ck_assert_mem_eq(&rig.reply.u.results.frames[2], &empty, sizeof empty);
    ck_restored(id);
}
END_TEST

/* ---- bad frames ---- */

static void set_header(unsigned i, void (*change)(struct sw_frame_header *h)) {
    struct sw_frame_header h;
    struct sw_frame_layout layout;
    memcpy(&h, frame(i), sizeof h);
    ck_assert_int_eq(sw_frame_parse(&layout, frame(i), frame_bytes[i], frame_bytes[i], NULL), 0);
    change(&h);
    /* A hash that is right: only what it says is wrong. */
    layout.codec = (enum sw_codec_id)h.codec;
    layout.segment_log2 = h.segment_log2;
    layout.n_tiles = h.n_tiles;
    layout.n_symbols = h.n_symbols;
    layout.value_type = (enum sw_value_type)h.value_type;
    layout.raw_bytes = h.raw_bytes;
    layout.frame_bytes = h.frame_bytes;
    sw_frame_header_init((struct sw_frame_header *)(void *)frame(i), &layout, frame(i) + SW_FRAME_HEADER_BYTES);
}

static void other_raw_bytes(struct sw_frame_header *h) {
    h->raw_bytes -= 8;
}

static void other_length(struct sw_frame_header *h) {
    h->frame_bytes -= 16;
}

static void unknown_codec(struct sw_frame_header *h) {
    h->codec = SW_CODEC_NR;
}

static void wrong_segments(struct sw_frame_header *h) {
    h->segment_log2 = 20;
}

static void too_many_symbols(struct sw_frame_header *h) {
    h->n_symbols = SW_FRAME_MAX_SYMBOLS + 1;
}

static void more_tiles(struct sw_frame_header *h) {
    h->n_tiles++;
}

enum bad {
    TRUNCATED,
    LONGER,
    TOO_SHORT,
    TOO_LONG,
    OTHER_RAW_BYTES,
    OTHER_LENGTH,
    OTHER_CHUNK,
    WRONG_TYPE,
    UNKNOWN_CODEC,
    WRONG_SEGMENTS,
    TOO_MANY_SYMBOLS,
    MORE_TILES,
    HEADER_HASH,
    OTHER_VERSION,
    RANDOM_BYTES,
    ZEROS,
    N_BAD
};

/* Spoils frame 2 and the chunk that speaks of it. */
static void spoil(enum bad bad, struct sw_wire_chunk *chunk) {
    switch (bad) {
    case TRUNCATED:
        chunk->frame_bytes -= 16;
        break;
    case LONGER:
        chunk->frame_bytes += 16;
        break;
    case TOO_SHORT:
        chunk->frame_bytes = 1;
        break;
    case TOO_LONG:
        chunk->frame_bytes = (uint32_t)sw_frame_bound_bytes(CHUNK) + 16;
        break;
    case OTHER_RAW_BYTES:
        set_header(2, other_raw_bytes);
        break;
    case OTHER_LENGTH:
        set_header(2, other_length);
        break;
    case OTHER_CHUNK: /* the last one, which is shorter */
        chunk->offset = frame_at(N_CHUNKS - 1);
        chunk->frame_bytes = frame_bytes[N_CHUNKS - 1];
        break;
    case WRONG_TYPE:
        make_raw(SW_VALUE_U32);
        encode(SW_VALUE_U32);
        chunk->frame_bytes = frame_bytes[2];
        break;
    case UNKNOWN_CODEC:
        set_header(2, unknown_codec);
        break;
    case WRONG_SEGMENTS:
        set_header(2, wrong_segments);
        break;
    case TOO_MANY_SYMBOLS:
        set_header(2, too_many_symbols);
        break;
    case MORE_TILES:
        set_header(2, more_tiles);
        break;
    case HEADER_HASH:
        frame(2)[20] ^= 1;
        break;
    case OTHER_VERSION:
        frame(2)[4]++;
        break;
    case RANDOM_BYTES:
        sw_content_fill(frame(2), ROOM, SW_CONTENT_RANDOM, 3);
        break;
    case ZEROS:
        memset(frame(2), 0, ROOM);
        break;
    case N_BAD:
        break;
    }
}

/* Nothing of such a build stays, and the daemon takes the next one. */
START_TEST(a_bad_frame_fails_its_build) {
    new_build(NUMBER, SW_BUILD_BEGIN, CHUNK);
    (void)add_frame(0, 0);
    (void)add_frame(0, 1);
    ck_assert_int_eq(call(), 0);
    new_build(NUMBER, 0, 0);
    spoil((enum bad)_i, add_frame(0, 2));
    ck_assert_int_eq(call(), -SW_EFRAME);
    encode(SW_VALUE_NONE);
    new_build(NUMBER, SW_BUILD_COMMIT, 0);
    (void)add_frame(0, 3);
    ck_assert_int_eq(call(), -SW_EFRAME);
    ck_rest(0, 0);
    ck_assert_uint_eq(rig.session->tenant->quota.bytes, 0);
    ck_restored(store_frames(NUMBER + 1));
    ck_rest(0, 0);
}
END_TEST

/* The frame is copied once its word is there, and what was copied is looked at, whatever the client does meanwhile. */
START_TEST(a_frame_that_changes_before_it_is_copied) {
    sw_packet_rig_add_page(&rig);
    new_build(NUMBER, SW_BUILD_BEGIN, CHUNK);
    struct sw_wire_chunk *chunk = add_frame(0, 0);
    chunk->order_word = 3;
    chunk->order_value = 1;
    const uint32_t seq = sw_packet_rig_send(&rig, &packet.msg, NULL, 0);
    sw_packet_rig_idle(&rig);
    frame(0)[10] ^= 1;
    atomic_store(&rig.words[3], 1);
    ck_assert_int_eq(sw_packet_rig_await_seq(&rig, seq), -SW_EFRAME);
    abort_build(-SW_EFRAME);
    ck_rest(0, 0);
    frame(0)[10] ^= 1;
    ck_restored(store_frames(NUMBER + 1));
}
END_TEST

static void count_alarm(const struct sw_bad_frame *frame, void *arg) {
    (void)frame;
    ++*(unsigned *)arg;
}

/* What a read of all bytes says; *ret_alarms: the alarms that it raised of a damaged tier. */
static int read_bad(struct sw_region_id id, unsigned *ret_alarms) {
    struct sw_observer *observer = &sw_engine_of(rig.session->owner)->store.observer;
    const struct sw_observer before = *observer;
    *ret_alarms = 0;
    *observer = (struct sw_observer){.bad_frame = count_alarm, .arg = ret_alarms};
    memset(rig.memory, 0, RAW_BYTES);
    new_read(NUMBER, SW_READ_BEGIN | SW_READ_END, id);
    (void)add_room(0, 0, RAW_BYTES, 0);
    const int rc = call();
    *observer = before;
    return rc;
}

/* A header that is right before content that is not: the client's own bytes are lost, nothing else, and nobody is told
 * that a tier is damaged. Also if the daemon has encoded the most of it. */
START_TEST(a_frame_whose_content_is_bad) {
    const struct sw_region_id good = store_frames(NUMBER);
    unsigned n_alarms;
    frame(1)[frame_bytes[1] - 40] ^= 0x55;
    memcpy(rig.memory, raw, RAW_BYTES);
    new_build(NUMBER + 1, SW_BUILD_BEGIN | SW_BUILD_COMMIT, CHUNK);
    for (unsigned i = 0; i < N_CHUNKS; i++)
        (void)(i == 1 || _i == 0 ? add_frame(0, i) : add_any(0, i * (uint64_t)CHUNK, chunk_bytes(i), i * CHUNK));
    ck_assert_int_eq(call(), 0);
    const int rc = read_bad(sw_test_result_id(&rig.reply, 0), &n_alarms);
    ck_assert_msg(rc == -SW_ECHECKSUM || rc == -SW_EFRAME, "%s", sw_err_name(rc));
    ck_assert_uint_eq(n_alarms, 0);
    ck_restored(good);
    ck_rest(1, 0); /* the bad one is lost, until it is dropped */
}
END_TEST

/* What the tier has changed, of frames of the daemon and of the client. */
START_TEST(a_tier_that_damages_frames_raises_an_alarm) {
    struct sw_region *region = NULL;
    unsigned n_alarms;
    memcpy(rig.memory, raw, RAW_BYTES);
    new_build(NUMBER, SW_BUILD_BEGIN | SW_BUILD_COMMIT, CHUNK);
    for (unsigned i = 0; i < N_CHUNKS; i++)
        (void)(_i == 0 ? add_frame(0, i) : add_any(0, i * (uint64_t)CHUNK, chunk_bytes(i), i * CHUNK));
    ck_assert_int_eq(call(), 0);
    const struct sw_region_id id = sw_test_result_id(&rig.reply, 0);
    ck_assert_int_eq(
        sw_region_find(&sw_engine_of(rig.session->owner)->store.regions, rig.session->owner, id, &region, NULL), 0);
    ((uint8_t *)region->frames->stored[2].extents[0].memory)[100] ^= 1;
    ck_assert_int_lt(read_bad(id, &n_alarms), 0);
    ck_assert_uint_eq(n_alarms, 1);
}
END_TEST

/* What a client says of a frame is checked once a second for its tenant; between that the frame is only sent again. */
START_TEST(a_frame_that_a_client_disputes) {
    const struct sw_region_id good = store_frames(NUMBER);
    frame(1)[frame_bytes[1] - 40] ^= 0x55;
    const struct sw_region_id bad = store_frames(NUMBER + 1);
    new_read(NUMBER, SW_READ_BEGIN | SW_READ_END | SW_READ_KEEP | SW_READ_DISPUTED, good);
    (void)add_frame_room(0, 0);
    ck_assert_int_eq(call(), 0);
    ck_frame(0, 0, 0);
    const unsigned disputed = SW_READ_BEGIN | SW_READ_END | SW_READ_KEEP | SW_READ_DISPUTED;
    new_read(NUMBER, disputed, bad);
    (void)add_frame_room(0, 1);
    ck_assert_int_eq(call(), 0);
    ck_assert_uint_eq(rig.reply.u.results.n_frames, 1);
    rig.session->tenant->disputed_us -= 1000000;
    new_read(NUMBER, disputed, bad);
    (void)add_frame_room(0, 1);
    int rc = call();
    ck_assert_msg(rc == -SW_ECHECKSUM || rc == -SW_EFRAME, "%s", sw_err_name(rc));
    new_read(NUMBER, disputed, bad);
    (void)add_frame_room(0, 1);
    ck_assert_int_eq(call(), -SW_ELOST);
    ck_restored(good);
    ck_rest(1, 0);
}
END_TEST

START_TEST(what_may_not_be_disputed) {
    const struct sw_region_id id = store_frames(NUMBER);
    new_read(NUMBER, SW_READ_BEGIN | SW_READ_END | SW_READ_KEEP | SW_READ_DISPUTED, id);
    (void)add_room(0, 0, RAW_BYTES, 0);
    ck_assert_int_eq(call(), -SW_EINVAL); /* not a frame */
    new_read(NUMBER, SW_READ_BEGIN | SW_READ_END | SW_READ_KEEP | SW_READ_DISPUTED, id);
    for (unsigned i = 0; i <= SW_READ_MAX_DISPUTED; i++)
        add_frame_room(0, 0)->offset = i * (uint64_t)ROOM;
    ck_assert_int_eq(call(), -SW_EINVAL); /* too many */
    ck_restored(id);
    ck_rest(0, 0);
}
END_TEST

/* Frames whose sections point anywhere: the daemon's decoder finds an error, or bytes, and stays inside. */
START_TEST(frames_with_wild_content_harm_nobody) {
    const struct sw_region_id good = store_frames(NUMBER);
    uint64_t random = 1 + (uint64_t)_i;
    encode(_i % 2 ? SW_VALUE_U32 : SW_VALUE_NONE);
    new_build(NUMBER + 1, SW_BUILD_BEGIN | SW_BUILD_COMMIT, CHUNK);
    packet.buffers[0].value_type = _i % 2 ? SW_VALUE_U32 : SW_VALUE_NONE;
    for (unsigned i = 0; i < N_CHUNKS; i++) {
        struct sw_frame_layout layout;
        ck_assert_int_eq(sw_frame_parse(&layout, frame(i), frame_bytes[i], frame_bytes[i], NULL), 0);
        for (unsigned k = 0; k < 20; k++)
            frame(i)[layout.records_offset + sw_random(&random) % (frame_bytes[i] - layout.records_offset)] =
                (uint8_t)sw_random(&random);
        (void)add_frame(0, i);
    }
    ck_assert_int_eq(call(), 0);
    const struct sw_region_id wild = sw_test_result_id(&rig.reply, 0);
    new_read(NUMBER, SW_READ_BEGIN | SW_READ_END | SW_READ_KEEP, wild);
    (void)add_room(0, 0, RAW_BYTES, 0);
    const int rc = call();
    ck_assert_msg(rc == -SW_ECHECKSUM || rc == -SW_EFRAME, "%s", sw_err_name(rc));
    make_raw(SW_VALUE_NONE);
    ck_restored(good);
}
END_TEST

/* ---- what a chunk may not ask for ---- */

static struct sw_region_id region_to_read;

struct wrong {
    const char *what;
    int code;
    uint32_t wish;
    uint64_t at, raw_bytes, offset;
    uint32_t frame_bytes;
};

START_TEST(what_an_append_of_a_frame_may_not_ask_for) {
    const uint32_t bytes = frame_bytes[0];
    const struct wrong rows[] = {
        {"two chunks", -SW_EINVAL, CHUNK, 0, 2 * CHUNK, FRAMES, bytes},
        {"a part of a chunk", -SW_EINVAL, CHUNK, 0, STEP, FRAMES, bytes},
        {"no bytes", -SW_EINVAL, CHUNK, 0, 0, FRAMES, bytes},
        {"another place", -SW_EINVAL, CHUNK, CHUNK, CHUNK, FRAMES, bytes},
        {"no wish", -SW_EINVAL, 0, 0, RAW_BYTES, FRAMES, bytes},
        {"a wish that is not taken as it is", -SW_EINVAL, 33 * STEP, 0, 33 * STEP, FRAMES, bytes},
        {"bytes beyond the memory", -SW_ERANGE, CHUNK, 0, CHUNK, MEMORY_BYTES - bytes + 1, bytes},
        {"a place beyond the memory", -SW_ERANGE, CHUNK, 0, CHUNK, UINT64_MAX - 8, bytes},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        new_build(NUMBER + i, SW_BUILD_BEGIN, rows[i].wish);
        if (rows[i].wish == 33 * STEP)
            packet.buffers[0].raw_bytes = 66 * STEP;
        struct sw_wire_chunk *chunk = add_any(0, rows[i].at, rows[i].raw_bytes, rows[i].offset);
        chunk->frame_bytes = rows[i].frame_bytes;
        const int rc = call();
        ck_assert_msg(rc == rows[i].code, "%s: %s", rows[i].what, sw_err_name(rc));
        new_build(NUMBER + i, SW_BUILD_ABORT, 0);
        ck_assert_int_eq(call(), rows[i].code);
        ck_rest(0, 0);
    }
}
END_TEST

START_TEST(what_a_read_of_a_frame_may_not_ask_for) {
    const uint32_t bytes = frame_bytes[0];
    const struct wrong rows[] = {
        {"a place where no chunk begins", -SW_EINVAL, 0, STEP, CHUNK, FRAMES, ROOM},
        {"a chunk that is longer", -SW_ETOOSMALL, 0, 0, CHUNK - 1, FRAMES, ROOM},
        {"a frame that is longer", -SW_ETOOSMALL, 0, 0, CHUNK, FRAMES, bytes - 1},
        {"the end", -SW_EINVAL, 0, N_CHUNKS * CHUNK, CHUNK, FRAMES, ROOM},
        {"room beyond the memory", -SW_ERANGE, 0, 0, CHUNK, MEMORY_BYTES - bytes + 1, bytes},
    };
    region_to_read = store_frames(NUMBER);
    new_read(NUMBER, SW_READ_BEGIN, region_to_read);
    ck_assert_int_eq(call(), 0);
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        new_read(NUMBER, 0, none);
        add_room(0, rows[i].at, rows[i].raw_bytes, rows[i].offset)->frame_bytes = rows[i].frame_bytes;
        const int rc = call();
        ck_assert_msg(rc == rows[i].code, "%s: %s", rows[i].what, sw_err_name(rc));
    }
    /* Rooms that overlap, though their raw lengths would not, and the other way round. */
    new_read(NUMBER, 0, none);
    (void)add_frame_room(0, 0);
    add_room(0, CHUNK, CHUNK, frame_at(0) + ROOM - 1)->frame_bytes = ROOM;
    ck_assert_int_eq(call(), -SW_EINVAL);
    new_read(NUMBER, 0, none);
    add_room(0, 0, CHUNK, FRAMES)->frame_bytes = bytes;
    add_room(0, CHUNK, CHUNK, FRAMES + bytes)->frame_bytes = frame_bytes[1];
    ck_assert_int_eq(call(), 0);
    /* A chunk with room for more gets one frame all the same. */
    new_read(NUMBER, SW_READ_END | SW_READ_KEEP, none);
    add_room(0, CHUNK, RAW_BYTES, frame_at(1))->frame_bytes = ROOM;
    ck_assert_int_eq(call(), 0);
    ck_frame(0, 0, 1);
    ck_restored(region_to_read);
    ck_rest(0, 0);
}
END_TEST

/* ---- room, holes ---- */

START_TEST(frames_count_as_the_tenants_bytes) {
    rig.session->tenant->quota.max_bytes = frame_bytes[0] + frame_bytes[1];
    new_build(NUMBER, SW_BUILD_BEGIN, CHUNK);
    (void)add_frame(0, 0);
    (void)add_frame(0, 1);
    ck_assert_int_eq(call(), 0);
    ck_assert_uint_eq(rig.session->tenant->quota.bytes, frame_bytes[0] + frame_bytes[1]);
    new_build(NUMBER, 0, 0);
    (void)add_frame(0, 2);
    ck_assert_int_eq(call(), -SW_ETENANTBYTES);
    abort_build(-SW_ETENANTBYTES);
    ck_rest(0, 0);
    ck_assert_uint_eq(rig.session->tenant->quota.bytes, 0);
}
END_TEST

/* Pages that the client's memory lacks: read as zeros, which are no frame; not made to be written to. */
START_TEST(frames_in_memory_with_holes) {
    const struct sw_device *device = rig.service.service.devices[0];
    const int fd = memfd_create("holes", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(ftruncate(fd, MEMORY_BYTES) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    sw_packet_rig_add_memory(&rig, HOLES, fd, MEMORY_BYTES, false);
    new_build(NUMBER, SW_BUILD_BEGIN, CHUNK);
    add_frame(0, 0)->mem = HOLES;
    ck_assert_int_eq(call(), -SW_EFRAME);
    abort_build(-SW_EFRAME);
    const struct sw_region_id id = store_frames(NUMBER + 1);
    new_read(NUMBER, SW_READ_BEGIN | SW_READ_END | SW_READ_KEEP, id);
    add_frame_room(0, 0)->mem = HOLES;
    ck_assert_int_eq(call(), device->ops->info(device)->is_unguarded ? 0 : -SW_EUNALLOCATED);
    ck_restored(id);
    (void)close(fd);
}
END_TEST

/* ---- frame buffers of clients ---- */

enum { MIB = 1 << 20 };

/* Asks for frame buffers on the host device. Returns what the session has then. */
static uint64_t ask_coder(struct sw_session *session, int peer, uint64_t bytes) {
    _Alignas(SW_PROTO_ALIGN) uint8_t buffer[SW_PROTO_MAX_PACKET_BYTES];
    static uint32_t seq = 1000;
    struct sw_msg msg = {.header = {.type = SW_MSG_CODER, .version = SW_PROTO_VERSION, .seq = ++seq},
                         .u.coder.bytes = bytes};
    size_t n = 0;
    unsigned n_fds = 0;
    sw_session_packet(session, buffer, sw_msg_encode(&msg, buffer), NULL, 0);
    ck_assert_int_eq(sw_packet_receive(peer, buffer, &n, NULL, &n_fds), 0);
    ck_assert_int_eq(sw_msg_decode(&msg, buffer, n, NULL), 0);
    ck_assert_uint_eq(msg.header.type, SW_MSG_CODER_OK);
    ck_assert_uint_eq(msg.u.coder_ok.codecs, (UINT64_C(1) << SW_CODEC_NR) - 1);
    ck_assert_uint_eq(msg.u.coder_ok.chunk_bytes, MIB);
    return msg.u.coder_ok.bytes;
}

static uint64_t ask(uint64_t bytes) {
    return ask_coder(rig.session, rig.peer, bytes);
}

static void end_session(struct sw_session *session, const bool *closed, int peer) {
    sw_session_close(session, "test");
    while (!*closed)
        (void)uv_run(&rig.service.loop, UV_RUN_ONCE);
    (void)close(peer);
}

/* Another session, as if of another process. */
static struct sw_session *open_other(int *ret_peer, bool *closed, int32_t pid) {
    struct sw_session *other = sw_test_service_session(&rig.service, ret_peer, closed);
    other->version = SW_PROTO_VERSION;
    other->peer.pid = pid;
    return other;
}

START_TEST(a_client_gets_frame_buffers_as_long_as_there_are_some) {
    struct sw_service *service = &rig.service.service;
    int peer;
    bool closed = false;
    service->config->gpu_frame_bytes = 160 * MIB;
    ck_assert_uint_eq(ask(30 * MIB), 30 * MIB);
    ck_assert_uint_eq(ask(200 * MIB), 90 * MIB); /* instead of the first: 3/4 of the tenant's 3/4 */
    ck_assert_uint_eq(ask(0), 0);
    ck_assert_uint_eq(ask(60 * MIB), 60 * MIB);
    struct sw_session *other = open_other(&peer, &closed, 1); /* of the same tenant */
    ck_assert_uint_eq(ask_coder(other, peer, 60 * MIB), 45 * MIB);
    ck_assert_uint_eq(sw_coder_granted_bytes(service), 105 * MIB);
    ck_assert_uint_eq(rig.session->tenant->grants.bytes[0], 105 * MIB);
    service->config->gpu_frame_bytes = 50 * MIB;
    ck_assert_uint_eq(ask_coder(other, peer, 60 * MIB), 0); /* the first session has more than all */
    ck_assert_uint_eq(ask(60 * MIB), 50 * MIB * 9 / 16);
    service->config->gpu_frame_bytes = 160 * MIB;
    end_session(other, &closed, peer);
    ck_assert_uint_eq(sw_coder_granted_bytes(service), 50 * MIB * 9 / 16);
    ck_assert_uint_eq(ask(90 * MIB), 90 * MIB);
    ck_assert_uint_eq(ask(0), 0);
    ck_assert_uint_eq(sw_coder_granted_bytes(service), 0);
}
END_TEST

/* Sessions of one process hand over the same memory: it counts once. */
START_TEST(sessions_of_a_process_share_a_grant) {
    struct sw_service *service = &rig.service.service;
    struct sw_list sessions;
    int peers[2];
    bool closed[2];
    struct sw_session *same = open_other(&peers[0], &closed[0], rig.session->peer.pid),
                      *unknown = open_other(&peers[1], &closed[1], 0);
    sw_list_init(&sessions);
    sw_list_append(&sessions, &rig.session->node);
    sw_list_append(&sessions, &same->node);
    sw_list_append(&sessions, &unknown->node);
    service->sessions = &sessions;
    service->config->gpu_frame_bytes = 64 * MIB;
    ck_assert_uint_eq(ask(30 * MIB), 30 * MIB);
    ck_assert_uint_eq(ask_coder(same, peers[0], 30 * MIB), 30 * MIB);
    ck_assert_uint_eq(sw_coder_granted_bytes(service), 30 * MIB);
    ck_assert_uint_eq(ask_coder(same, peers[0], 64 * MIB), 36 * MIB);
    ck_assert_uint_eq(sw_coder_granted_bytes(service), 36 * MIB);
    ck_assert_uint_eq(ask_coder(unknown, peers[1], 64 * MIB), 9 * MIB); /* perhaps of another process */
    ck_assert_uint_eq(ask_coder(unknown, peers[1], 0), 0);
    ck_assert_uint_eq(ask_coder(same, peers[0], 0), 0);
    ck_assert_uint_eq(sw_coder_granted_bytes(service), 30 * MIB);
    ck_assert_uint_eq(ask_coder(same, peers[0], 10 * MIB), 10 * MIB);
    sw_coder_release(rig.session);
    ck_assert_uint_eq(sw_coder_granted_bytes(service), 10 * MIB);
    end_session(same, &closed[0], peers[0]);
    ck_assert_uint_eq(sw_coder_granted_bytes(service), 0);
    end_session(unknown, &closed[1], peers[1]);
    service->sessions = NULL;
}
END_TEST

/* A tenant that has much leaves something to others, and less once it asks anew. */
START_TEST(tenants_share_the_frame_buffers) {
    struct sw_service *service = &rig.service.service;
    struct sw_tenant stranger = *rig.session->tenant, *own = rig.session->tenant;
    int peer;
    bool closed = false;
    service->config->gpu_frame_bytes = 160 * MIB;
    ck_assert_uint_eq(ask(160 * MIB), 90 * MIB);
    struct sw_session *other = open_other(&peer, &closed, 1);
    stranger.grants = (struct sw_frame_grants){{0}};
    other->tenant = &stranger;
    ck_assert_uint_eq(ask_coder(other, peer, 160 * MIB), 70 * MIB * 9 / 16);
    const uint64_t left = 160 * MIB - 70 * MIB * 9 / 16;
    ck_assert_uint_le(ask(160 * MIB), left * 9 / 16);
    for (unsigned i = 0; i < 20; i++) { /* to equal shares */
        (void)ask_coder(other, peer, 160 * MIB);
        (void)ask(160 * MIB);
    }
    ck_assert_uint_le(rig.session->grants.bytes[0] - other->grants.bytes[0], 16);
    ck_assert_uint_eq(ask(0), 0);
    ck_assert_uint_eq(ask_coder(other, peer, 160 * MIB), 90 * MIB);
    ck_assert_uint_eq(ask_coder(other, peer, 0), 0);
    other->tenant = own;
    end_session(other, &closed, peer);
    ck_assert_uint_eq(sw_coder_granted_bytes(service), 0);
}
END_TEST

START_TEST(a_device_that_is_not_in_use_has_no_frame_buffers) {
    struct sw_msg msg = {.header.type = SW_MSG_CODER, .u.coder = {.device_uuid = {1}, .bytes = MIB}};
    ck_assert_int_eq(sw_packet_rig_await_seq(&rig, sw_packet_rig_send(&rig, &msg, NULL, 0)), -SW_EDEVICE);
    ck_assert_uint_eq(sw_coder_granted_bytes(&rig.service.service), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("frames of clients");
    TCase *tcase = tcase_create("frames of clients");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, what_a_client_encodes_the_daemon_restores, 0, 2);
    tcase_add_loop_test(tcase, what_the_daemon_encodes_a_client_decodes, 0, 4);
    tcase_add_test(tcase, frames_and_bytes_may_be_mixed);
    tcase_add_test(tcase, several_buffers_with_frames);
    tcase_add_loop_test(tcase, all_or_none_with_frames, 0, 3);
    tcase_add_test(tcase, frames_of_a_read_that_fails_are_empty);
    tcase_add_loop_test(tcase, a_bad_frame_fails_its_build, 0, N_BAD);
    tcase_add_test(tcase, a_frame_that_changes_before_it_is_copied);
    tcase_add_loop_test(tcase, a_frame_whose_content_is_bad, 0, 2);
    tcase_add_loop_test(tcase, a_tier_that_damages_frames_raises_an_alarm, 0, 2);
    tcase_add_test(tcase, a_frame_that_a_client_disputes);
    tcase_add_test(tcase, what_may_not_be_disputed);
    tcase_add_loop_test(tcase, frames_with_wild_content_harm_nobody, 0, 20);
    tcase_add_test(tcase, what_an_append_of_a_frame_may_not_ask_for);
    tcase_add_test(tcase, what_a_read_of_a_frame_may_not_ask_for);
    tcase_add_test(tcase, frames_count_as_the_tenants_bytes);
    tcase_add_test(tcase, frames_in_memory_with_holes);
    tcase_add_test(tcase, a_client_gets_frame_buffers_as_long_as_there_are_some);
    tcase_add_test(tcase, sessions_of_a_process_share_a_grant);
    tcase_add_test(tcase, tenants_share_the_frame_buffers);
    tcase_add_test(tcase, a_device_that_is_not_in_use_has_no_frame_buffers);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

/* Frames that the client makes: what is stored as frames comes back as bytes, and the other way round; what a chunk
 * with a frame may not ask for; what frames count as. */
#include "base/clock.h"
#include "codec/onpair/onpair.h"
#include "spill/engine_state.h"
#include "tests/lib/client_frames.h"
#include "tests/lib/packet_rig.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- packets ---- */

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

static const struct sw_region_id none;

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

static void fetch_disputed(struct sw_region_id id) {
    new_read(NUMBER, SW_READ_BEGIN | SW_READ_END | SW_READ_KEEP | SW_READ_DISPUTED, id);
    for (unsigned i = 0; i < N_CHUNKS; i++)
        (void)add_frame_room(0, i);
    ck_assert_int_eq(call(), 0);
}

/* A tenant has the frames that it disputes verified once a second, at most. */
START_TEST(disputed_frames_are_seldom_verified) {
    const struct sw_region_id id = store_frames(NUMBER);
    uint64_t *last_us = &rig.session->tenant->disputed_us;
    fetch_disputed(id);
    ck_assert_uint_gt(*last_us, 0);
    const uint64_t recent_us = *last_us = sw_clock_us() - 100000;
    fetch_disputed(id);
    ck_assert(*last_us == recent_us || sw_clock_us() - recent_us > 1000000);
    const uint64_t old_us = *last_us = sw_clock_us() - 1000000;
    fetch_disputed(id);
    ck_assert_uint_gt(*last_us, old_us);
    ck_restored(id);
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

/* What the reply says of a frame is all that a GPU's decoder knows of it. */
START_TEST(frames_with_a_dictionary) {
    static struct sw_frame_dictionary dictionary;
    const struct sw_plan plan = {.codec = SW_CODEC_ONPAIR, .segment_log2 = 10, .dictionary = &dictionary};
    struct sw_frame_layout layout;
    make_raw(SW_VALUE_NONE);
    ck_assert_int_eq(sw_onpair_learn(&dictionary, raw, CHUNK, SW_ONPAIR_PIECE_BYTES, 256), 0);
    encode_by(&plan);
    const struct sw_region_id id = store_frames(NUMBER);
    memset(rig.memory + FRAMES, 0, MEMORY_BYTES - FRAMES);
    new_read(NUMBER, SW_READ_BEGIN | SW_READ_END | SW_READ_KEEP, id);
    for (unsigned i = 0; i < N_CHUNKS; i++)
        (void)add_frame_room(0, i);
    ck_assert_int_eq(call(), 0);
    for (unsigned i = 0; i < N_CHUNKS; i++) {
        const struct sw_wire_frame *f = &rig.reply.u.results.frames[i];
        ck_frame(i, 0, i);
        ck_assert_int_eq(sw_frame_parse(&layout, frame(i), f->bytes, f->bytes, NULL), 0);
        ck_assert_int_eq(layout.codec, i < N_CHUNKS - 1 ? SW_CODEC_ONPAIR : SW_CODEC_RAW);
    }
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

/* ---- frames that are gathered ---- */

/* A region of the one chunk i. */
static struct sw_region_id store_one(unsigned i) {
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    (void)sw_test_add_build(&packet, NULL);
    sw_test_add_buffer(&packet, chunk_bytes(i), 0)->chunk_bytes = CHUNK;
    add_any(0, 0, chunk_bytes(i), frame_at(i))->frame_bytes = frame_bytes[i];
    ck_assert_int_eq(call(), 0);
    return sw_test_result_id(&rig.reply, 0);
}

static void new_gathering(const struct sw_region_id *ids, unsigned n) {
    memset(rig.memory, 0xEE, MEMORY_BYTES);
    sw_test_packet(&packet, SW_MSG_READ, SW_REQ_GATHER);
    for (unsigned i = 0; i < n; i++) {
        (void)sw_test_add_read(&packet, ids[i], SW_READ_KEEP);
        add_room(0, 0, CHUNK, frame_at(i))->frame_bytes = ROOM;
    }
}

/* A region of buffers of so many bytes each. */
static struct sw_region_id store_buffers(unsigned n, uint64_t bytes) {
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    (void)sw_test_add_build(&packet, NULL);
    for (unsigned i = 0; i < n; i++) {
        (void)sw_test_add_buffer(&packet, bytes, 0);
        (void)sw_test_add_chunk(&packet, MEM, i * bytes, bytes);
    }
    ck_assert_int_eq(call(), 0);
    return sw_test_result_id(&rig.reply, 0);
}

/* The loop's index: one region is not there, or has several chunks, or several buffers, or no bytes. */
START_TEST(frames_of_short_regions_follow_each_other) {
    static uint8_t out[CHUNK];
    struct sw_region_id ids[N_CHUNKS];
    uint64_t at = FRAMES, bytes;
    const struct sw_region_id several = store_frames(NUMBER);
    for (unsigned i = 0; i < N_CHUNKS; i++)
        ids[i] = store_one(i);
    if (_i == 1)
        ids[2] = none;
    if (_i == 2)
        ids[2] = several;
    if (_i > 2)
        ids[2] = store_buffers(_i == 3 ? 2 : 1, _i == 3 ? 4096 : 0);
    new_gathering(ids, N_CHUNKS);
    ck_assert_int_eq(call(), 0);
    ck_assert_uint_eq(rig.reply.u.results.n_frames, N_CHUNKS);
    for (unsigned i = 0; i < N_CHUNKS; i++) {
        const struct sw_wire_frame *f = &rig.reply.u.results.frames[i];
        const int code = i == 2 && _i == 1 ? -SW_ENOENT : i == 2 && _i >= 2 ? -SW_ENOTSUP : 0;
        ck_assert_int_eq(sw_test_result_code(&rig.reply, i), code);
        if (code)
            continue;
        ck_assert_uint_eq(f->offset, at);
        ck_assert_uint_eq(f->bytes, frame_bytes[i]);
        ck_assert_int_eq(sw_codec_decode(rig.memory + at, f->bytes, out, sizeof out, &bytes, NULL), 0);
        ck_assert_uint_eq(bytes, chunk_bytes(i));
        ck_assert_mem_eq(out, raw + i * (size_t)CHUNK, bytes);
        at += (f->bytes + 4095) / 4096 * 4096;
    }
    for (uint64_t k = at; k < MEMORY_BYTES; k++) /* nothing is written behind the last one */
        ck_assert_uint_eq(rig.memory[k], 0xEE);
    ck_restored(several);
}
END_TEST

/* Overwrites a region's stored frame. */
static void overwrite(struct sw_region_id id, const uint8_t *content) {
    struct sw_region *region;
    ck_assert_int_eq(sw_region_find(&rig.service.service.engine->store.regions, rig.session->owner, id, &region, NULL),
                     0);
    const struct sw_stored *stored = &region->frames->stored[0];
    for (unsigned i = 0; i < stored->n_extents; i++, content += stored->extents[i - 1].bytes)
        memcpy(stored->extents[i].memory, content, stored->extents[i].bytes);
}

/* Frames that were stored together, and of which two were exchanged: these are refused, and the others come, each into
 * its own room. */
START_TEST(exchanged_frames_of_short_regions_are_refused) {
    enum { N = 4 };
    static uint8_t out[CHUNK];
    struct sw_region_id ids[N];
    uint64_t bytes;
    encode(SW_VALUE_U32);
    ck_assert_uint_eq(frame_bytes[0], frame_bytes[1]);
    ck_assert_int_ne(memcmp(frame(0), frame(1), frame_bytes[0]), 0);
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    for (unsigned i = 0; i < N; i++) {
        (void)sw_test_add_build(&packet, NULL);
        sw_test_add_buffer(&packet, CHUNK, SW_VALUE_U32)->chunk_bytes = CHUNK;
        add_any(0, 0, CHUNK, frame_at(i))->frame_bytes = frame_bytes[i];
    }
    ck_assert_int_eq(call(), 0);
    for (unsigned i = 0; i < N; i++)
        ids[i] = sw_test_result_id(&rig.reply, i);
    overwrite(ids[0], frame(1));
    overwrite(ids[1], frame(0));
    new_gathering(ids, N);
    ck_assert_int_eq(call(), 0);
    for (unsigned i = 0; i < N; i++) {
        const struct sw_wire_frame *f = &rig.reply.u.results.frames[i];
        ck_assert_int_eq(sw_test_result_code(&rig.reply, i), i < 2 ? -SW_ECHECKSUM : 0);
        if (i < 2)
            continue;
        ck_assert_int_eq(sw_codec_decode(rig.memory + f->offset, f->bytes, out, sizeof out, &bytes, NULL), 0);
        ck_assert_mem_eq(out, raw + i * (size_t)CHUNK, CHUNK);
    }
}
END_TEST

START_TEST(what_reads_that_are_gathered_may_not_ask_for) {
    const struct sw_region_id ids[] = {store_one(0), store_one(1)};
    for (unsigned wrong = 0; wrong < 7; wrong++) {
        new_gathering(ids, 2);
        struct sw_wire_chunk *second = &packet.chunks[1];
        if (wrong == 0)
            packet.reads[1].flags = SW_READ_BEGIN;
        else if (wrong == 1)
            second->offset += 4096;
        else if (wrong == 2)
            second->offset = frame_at(0);
        else if (wrong == 3)
            second->mem = ONCE;
        else if (wrong == 4)
            second->frame_bytes -= 16;
        else if (wrong == 5)
            second->frame_bytes = 0;
        else
            add_room(0, 0, CHUNK, frame_at(2))->frame_bytes = ROOM;
        ck_assert_int_eq(call(), -SW_EINVAL);
    }
    new_gathering(ids, 2);
    packet.chunks[0].frame_bytes = 4096; /* no room for the frame */
    packet.chunks[1].offset = packet.chunks[0].offset + 4096;
    ck_assert_int_eq(call(), 0);
    ck_assert_int_eq(sw_test_result_code(&rig.reply, 0), -SW_ETOOSMALL);
    ck_assert_int_eq(sw_test_result_code(&rig.reply, 1), 0);
    ck_assert_uint_eq(rig.reply.u.results.frames[1].offset, FRAMES);
}
END_TEST

/* While a frame is to be read, its own bytes cannot be packed; those behind it can, also where its chunk's bytes, which
 * are more, would lie. Loop: behind it, or not. */
START_TEST(a_frame_uses_no_more_than_its_bytes) {
    sw_packet_rig_add_page(&rig);
    ck_assert_uint_lt(frame_bytes[0] + 4096, CHUNK);
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    sw_test_add_build(&packet, NULL)->build = NUMBER;
    sw_test_add_buffer(&packet, CHUNK, 0)->chunk_bytes = CHUNK;
    add_frame(0, 0)->order_value = 1;
    const uint32_t seq = sw_packet_rig_send(&rig, &packet.msg, NULL, 0);
    sw_packet_rig_idle(&rig);
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    sw_test_add_build(&packet, NULL)->flags |= SW_BUILD_IN_PLACE;
    (void)sw_test_add_buffer(&packet, 4096, 0);
    (void)sw_test_add_chunk(&packet, MEM, frame_at(0) + frame_bytes[0] - !_i, 4096);
    ck_assert_int_eq(call(), _i ? 0 : -SW_EBUSY);
    atomic_store(&rig.words[0], 1);
    ck_assert_int_eq(sw_packet_rig_await_seq(&rig, seq), 0);
    ck_assert_str_eq(coder(0), "client");
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
    /* A chunk with room for more still gets one frame. */
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

int main(void) {
    Suite *suite = suite_create("frames of clients");
    TCase *tcase = tcase_create("frames of clients");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, what_a_client_encodes_the_daemon_restores, 0, 2);
    tcase_add_loop_test(tcase, what_the_daemon_encodes_a_client_decodes, 0, 4);
    tcase_add_test(tcase, disputed_frames_are_seldom_verified);
    tcase_add_test(tcase, frames_and_bytes_may_be_mixed);
    tcase_add_test(tcase, frames_with_a_dictionary);
    tcase_add_test(tcase, several_buffers_with_frames);
    tcase_add_loop_test(tcase, all_or_none_with_frames, 0, 3);
    tcase_add_test(tcase, frames_of_a_read_that_fails_are_empty);
    tcase_add_loop_test(tcase, frames_of_short_regions_follow_each_other, 0, 5);
    tcase_add_test(tcase, exchanged_frames_of_short_regions_are_refused);
    tcase_add_loop_test(tcase, a_frame_uses_no_more_than_its_bytes, 0, 2);
    tcase_add_test(tcase, what_reads_that_are_gathered_may_not_ask_for);
    tcase_add_test(tcase, what_an_append_of_a_frame_may_not_ask_for);
    tcase_add_test(tcase, what_a_read_of_a_frame_may_not_ask_for);
    tcase_add_test(tcase, frames_count_as_the_tenants_bytes);
    tcase_add_test(tcase, frames_in_memory_with_holes);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

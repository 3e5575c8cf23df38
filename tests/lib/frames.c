#include "tests/lib/frames.h"
#include "codec/codec.h"

#include "tests/lib/guard.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static void check_parts(const struct sw_guard *frame, const uint8_t *data, size_t bytes) {
    struct sw_frame_layout layout;
    size_t got;
    ck_assert_int_eq(sw_frame_parse(&layout, frame->data, frame->bytes, frame->bytes, NULL), 0);
    for (int by_tiles = 0; by_tiles < 2; by_tiles++) {
        const size_t part =
            by_tiles ? (size_t)SW_TILE_SEGMENTS << layout.segment_log2 : (size_t)1 << layout.segment_log2;
        struct sw_guard room = sw_guard_new(part, SW_GUARD_AT_END);
        for (size_t i = 0; i * part < bytes; i++) {
            const size_t want = bytes - i * part < part ? bytes - i * part : part;
            uint8_t *out = room.data + part - want;
            ck_assert_int_eq(by_tiles
                                 ? sw_codec_decode_tile(frame->data, frame->bytes, (uint32_t)i, out, want, &got, NULL)
                                 : sw_codec_decode_segment(frame->data, frame->bytes, i, out, want, &got, NULL),
                             0);
            ck_assert_uint_eq(got, want);
            ck_assert(memcmp(out, data + i * part, want) == 0);
        }
        sw_guard_free(&room);
    }
}

/* Leaves bytes where the next calls have their variables. */
static __attribute__((noinline)) void dirty_stack(void) {
    volatile uint8_t room[64 << 10];
    for (size_t i = 0; i < sizeof room; i++)
        room[i] = 0xA5;
}

/* A frame contains nothing of the memory's old content, which may be another tenant's, nor of the stack's. */
static void check_alone(const struct sw_plan *plan, const struct sw_guard *frame, const uint8_t *data, size_t bytes) {
    const uint64_t bound = sw_frame_bound_bytes(bytes);
    uint64_t frame_bytes = 0;
    struct sw_guard room = sw_guard_new(bound, SW_GUARD_AT_END);
    memset(room.data, 0xA5, bound);
    dirty_stack();
    ck_assert_int_eq(sw_codec_encode(plan, data, bytes, room.data, bound, &frame_bytes, NULL), 0);
    ck_assert_uint_eq(frame_bytes, frame->bytes);
    for (uint64_t i = 0; memcmp(room.data, frame->data, frame_bytes) != 0; i++)
        ck_assert_msg(room.data[i] == frame->data[i], "%s, type %d, %zu bytes: byte %llu of the frame is left over",
                      sw_codec_name(plan->codec), (int)plan->value_type, bytes, (unsigned long long)i);
    sw_guard_free(&room);
}

struct sw_guard sw_frame_encode_decode(const struct sw_plan *plan, const uint8_t *data, size_t bytes) {
    const uint64_t bound = sw_frame_bound_bytes(bytes);
    uint64_t frame_bytes = 0, raw_bytes = 0;
    struct sw_err err = {0};
    struct sw_guard in = sw_guard_new(bytes, SW_GUARD_AT_END), out = sw_guard_new(bytes, SW_GUARD_AT_END);
    struct sw_guard room = sw_guard_new(bound, SW_GUARD_AT_END);
    if (bytes)
        memcpy(in.data, data, bytes);
    ck_assert_msg(sw_codec_encode(plan, in.data, bytes, room.data, bound, &frame_bytes, &err) == 0, "%s", err.msg);
    ck_assert_uint_le(frame_bytes, bound);
    ck_assert_uint_eq(frame_bytes % SW_FRAME_ALIGN, 0);
    struct sw_guard frame = sw_guard_new(frame_bytes, SW_GUARD_AT_END);
    memcpy(frame.data, room.data, frame_bytes);
    ck_assert_msg(sw_codec_decode(frame.data, frame_bytes, out.data, bytes, &raw_bytes, &err) == 0, "%zu bytes: %s",
                  bytes, err.msg);
    ck_assert_uint_eq(raw_bytes, bytes);
    ck_assert_msg(bytes == 0 || memcmp(out.data, data, bytes) == 0, "%s, type %d, %zu bytes",
                  sw_codec_name(plan->codec), (int)plan->value_type, bytes);
    check_alone(plan, &frame, in.data, bytes);
    sw_guard_free(&room);
    sw_guard_free(&out);
    sw_guard_free(&in);
    return frame;
}

uint64_t sw_frame_round_trip(const struct sw_plan *plan, const uint8_t *data, size_t bytes) {
    struct sw_guard frame = sw_frame_encode_decode(plan, data, bytes);
    const uint64_t frame_bytes = frame.bytes;
    check_parts(&frame, data, bytes);
    sw_guard_free(&frame);
    return frame_bytes;
}

static void ck_chunk(const uint8_t *at, const struct spillway_packed_chunk *chunk, const uint8_t *original) {
    uint8_t *room = malloc(chunk->raw_bytes + 1);
    uint64_t raw_bytes = 0;
    struct sw_err err = {0};
    ck_assert_ptr_nonnull(room);
    if (chunk->codec == SPILLWAY_CODEC_RAW) {
        ck_assert_uint_eq(chunk->bytes, chunk->raw_bytes);
        memcpy(room, at, chunk->bytes);
    } else {
        struct sw_frame_layout layout;
        const size_t head = chunk->bytes < SW_FRAME_HEAD_MAX_BYTES ? chunk->bytes : SW_FRAME_HEAD_MAX_BYTES;
        ck_assert_uint_eq(chunk->offset % SW_FRAME_DATA_ALIGN, 0);
        ck_assert_int_eq(sw_frame_parse(&layout, at, head, chunk->bytes, &err), 0);
        ck_assert(layout.codec == (enum sw_codec_id)chunk->codec && layout.value_type == chunk->type);
        ck_assert_uint_eq(layout.n_symbols, chunk->n_symbols);
        ck_assert_int_eq(sw_codec_decode(at, chunk->bytes, room, chunk->raw_bytes, &raw_bytes, &err), 0);
        ck_assert_uint_eq(raw_bytes, chunk->raw_bytes);
    }
    ck_assert(memcmp(room, original, chunk->raw_bytes) == 0);
    free(room);
}

uint64_t sw_packed_ck(const uint8_t *region, uint64_t packed_bytes, const struct spillway_packed_chunk *chunks,
                      size_t n_chunks, const uint8_t *original, uint64_t bytes) {
    uint64_t at = 0, decoded = 0;
    for (size_t i = 0; i < n_chunks; i++) {
        const struct spillway_packed_chunk *chunk = &chunks[i];
        ck_assert(chunk->offset + chunk->bytes <= packed_bytes && chunk->bytes <= chunk->raw_bytes);
        ck_assert_uint_le(at + chunk->raw_bytes, bytes);
        ck_assert(i + 1 == n_chunks || chunk->raw_bytes == chunks[0].raw_bytes);
        if (chunk->codec != SPILLWAY_CODEC_ELSEWHERE) {
            ck_chunk(region + chunk->offset, chunk, original + at);
            decoded += chunk->raw_bytes;
        }
        at += chunk->raw_bytes;
    }
    ck_assert_uint_eq(at, bytes);
    return decoded;
}

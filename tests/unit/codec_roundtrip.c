/* Whatever goes in comes out, whole, by tiles and by segments, and no frame is longer than the bound. All buffers touch
 * a page without access. */
#include "codec/codec.h"
#include "codec/plan/plan.h"
#include "tests/lib/content.h"
#include "tests/lib/frames.h"
#include "tests/lib/guard.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct sw_plan v5t_plan(const struct sw_params *table, unsigned segment_log2) {
    return (struct sw_plan){.codec = SW_CODEC_V5T, .segment_log2 = segment_log2, .params = *table};
}

static struct sw_plan trained_plan(const uint8_t *data, size_t bytes, unsigned segment_log2) {
    struct sw_params table;
    sw_v5t_table_train(&table, data, bytes < SW_SAMPLE_MAX_BYTES ? bytes : SW_SAMPLE_MAX_BYTES,
                       SW_SAMPLE_SHORT_PIECE_BYTES);
    return v5t_plan(&table, segment_log2);
}

static void check_parts(const struct sw_guard *frame, const uint8_t *data, size_t bytes) {
    struct sw_frame_layout layout, raw;
    struct sw_err err = {0};
    size_t got;
    ck_assert_int_eq(sw_frame_parse(&layout, frame->data, frame->bytes, frame->bytes, &err), 0);
    sw_frame_layout_init(&raw, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, bytes, 0);
    ck_assert_msg(layout.codec == SW_CODEC_RAW || frame->bytes < raw.frame_bytes, "%zu bytes as long as they were",
                  bytes);
    const size_t segment_bytes = (size_t)1 << layout.segment_log2, tile_bytes = SW_TILE_SEGMENTS * segment_bytes;
    for (size_t at = 0; at < bytes; at += segment_bytes) {
        size_t want = bytes - at < segment_bytes ? bytes - at : segment_bytes;
        struct sw_guard out = sw_guard_new(want, SW_GUARD_AT_END);
        ck_assert_msg(
            sw_codec_decode_segment(frame->data, frame->bytes, at / segment_bytes, out.data, want, &got, &err) == 0,
            "%s", err.msg);
        ck_assert_uint_eq(got, want);
        ck_assert_mem_eq(out.data, data + at, want);
        sw_guard_free(&out);
    }
    for (size_t at = 0; at < bytes; at += tile_bytes) {
        size_t want = bytes - at < tile_bytes ? bytes - at : tile_bytes;
        struct sw_guard out = sw_guard_new(want, SW_GUARD_AT_END);
        ck_assert_int_eq(
            sw_codec_decode_tile(frame->data, frame->bytes, (uint32_t)(at / tile_bytes), out.data, want, &got, &err),
            0);
        ck_assert_uint_eq(got, want);
        ck_assert_mem_eq(out.data, data + at, want);
        sw_guard_free(&out);
    }
    ck_assert_int_eq(sw_codec_decode_segment(frame->data, frame->bytes, (bytes + segment_bytes - 1) / segment_bytes,
                                             NULL, 0, &got, NULL),
                     -SW_ERANGE);
    ck_assert_int_eq(sw_codec_decode_tile(frame->data, frame->bytes, layout.n_tiles, NULL, 0, &got, NULL), -SW_ERANGE);
}

static void round_trip(const struct sw_plan *plan, const uint8_t *data, size_t bytes) {
    struct sw_guard frame = sw_frame_encode_decode(plan, data, bytes);
    check_parts(&frame, data, bytes);
    sw_guard_free(&frame);
}

static const size_t lengths[] = {0,    1,    2,     3,     4,     7,     8,     9,     15,    16,   17,
                                 255,  256,  257,   511,   512,   513,   1023,  1024,  1025,  4097, 8191,
                                 8192, 8193, 16383, 16385, 32767, 32768, 32769, 65537, 100003};

START_TEST(test_lengths) {
    const unsigned segment_log2 = 8 + (unsigned)_i % 3;
    const enum sw_content kind = (enum sw_content)(_i / 3);
    uint8_t *data = malloc(100003);
    ck_assert_ptr_nonnull(data);
    sw_content_fill(data, 100003, kind, 7);
    struct sw_plan plan = trained_plan(data, 100003, segment_log2), raw;
    sw_plan_init_raw(&raw);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        round_trip(&plan, data, lengths[i]);
        if (segment_log2 == 8)
            round_trip(&raw, data, lengths[i]);
    }
    free(data);
}
END_TEST

/* Every length around a segment's and a tile's first bytes, with one plan for all. */
START_TEST(test_every_short_length) {
    uint8_t data[1400];
    sw_content_fill(data, sizeof data, SW_CONTENT_TEXT, 3);
    struct sw_plan plan = trained_plan(data, sizeof data, 8);
    for (size_t bytes = 0; bytes <= sizeof data; bytes++) {
        struct sw_guard frame = sw_frame_encode_decode(&plan, data, bytes);
        sw_guard_free(&frame);
    }
}
END_TEST

/* Symbols of every length, from tables that no training would make, cut at every place by segment ends. */
START_TEST(test_symbols) {
    static const unsigned letters[] = {2, 3, 26, 256};
    const unsigned segment_log2 = 8 + (unsigned)_i % 3;
    const size_t bytes = ((size_t)SW_TILE_SEGMENTS << segment_log2) * 3 + 77;
    struct sw_params table;
    uint8_t *data = malloc(bytes);
    ck_assert_ptr_nonnull(data);
    sw_content_table(&table, letters[_i / 3], (uint64_t)_i);
    struct sw_plan plan = v5t_plan(&table, segment_log2);
    for (uint64_t seed = 0; seed < 3; seed++) {
        sw_content_fill_symbols(data, bytes, &table, seed);
        round_trip(&plan, data, bytes);
        sw_content_fill(data, bytes, SW_CONTENT_MIXED, seed);
        round_trip(&plan, data, bytes);
    }
    free(data);
}
END_TEST

/* A segment that holds one symbol again and again, of each length, at each phase. */
START_TEST(test_cut_symbols) {
    struct sw_params table = {.n_symbols = 1};
    uint8_t data[8192 + 300];
    const unsigned length = (unsigned)_i;
    table.length[0] = (uint8_t)length;
    for (unsigned i = 0; i < length; i++)
        table.value[0] |= (uint64_t)('a' + i) << 8 * i;
    table.own[SW_V5T_N2] = length == 2;
    table.own[SW_V5T_N1] = length == 1;
    struct sw_plan plan = v5t_plan(&table, 8);
    for (unsigned phase = 0; phase < length; phase++) {
        for (size_t i = 0; i < sizeof data; i++)
            data[i] = (uint8_t)('a' + (i + phase) % length);
        struct sw_guard frame = sw_frame_encode_decode(&plan, data, sizeof data);
        sw_guard_free(&frame);
    }
}
END_TEST

START_TEST(test_alignment) {
    const size_t bytes = 40000;
    uint8_t data[40000];
    sw_content_fill(data, bytes, SW_CONTENT_TEXT, 5);
    struct sw_plan plan = trained_plan(data, bytes, 10);
    const uint64_t bound = sw_frame_bound_bytes(bytes);
    uint8_t *first = NULL;
    uint64_t first_bytes = 0;
    for (size_t shift = 0; shift < 16; shift++) {
        struct sw_guard in = sw_guard_new(bytes + shift, SW_GUARD_AT_START), frame;
        struct sw_guard out = sw_guard_new(bytes + shift, SW_GUARD_AT_START);
        uint64_t frame_bytes, raw_bytes;
        memcpy(in.data + shift, data, bytes);
        frame = sw_guard_new(bound + shift, SW_GUARD_AT_START);
        ck_assert_int_eq(sw_codec_encode(&plan, in.data + shift, bytes, frame.data, bound, &frame_bytes, NULL), 0);
        if (!first) {
            first = malloc(frame_bytes);
            ck_assert_ptr_nonnull(first);
            first_bytes = frame_bytes;
            memcpy(first, frame.data, frame_bytes);
        }
        ck_assert_uint_eq(frame_bytes, first_bytes);
        ck_assert_mem_eq(frame.data, first, first_bytes);
        memmove(frame.data + shift, frame.data, frame_bytes);
        for (size_t to = 0; to < 16; to += shift ? 15 : 1) {
            size_t room = bytes + shift - to;
            if (room < bytes) {
                sw_guard_free(&out);
                out = sw_guard_new(bytes + to, SW_GUARD_AT_END);
                room = bytes;
            }
            ck_assert_int_eq(sw_codec_decode(frame.data + shift, frame_bytes, out.data + to, room, &raw_bytes, NULL),
                             0);
            ck_assert_mem_eq(out.data + to, data, bytes);
        }
        sw_guard_free(&out);
        sw_guard_free(&frame);
        sw_guard_free(&in);
    }
    free(first);
}
END_TEST

START_TEST(test_large) {
    const size_t bytes = ((size_t)3 << 20) + 12345;
    uint8_t *data = malloc(bytes);
    ck_assert_ptr_nonnull(data);
    sw_content_fill(data, bytes, _i ? SW_CONTENT_MIXED : SW_CONTENT_TEXT, 11);
    struct sw_plan plan = trained_plan(data, bytes, 10);
    struct sw_guard frame = sw_frame_encode_decode(&plan, data, bytes);
    if (_i == 0)
        ck_assert_uint_lt(frame.bytes, bytes / 3);
    sw_guard_free(&frame);
    free(data);
}
END_TEST

/* Content that a v5t frame would enlarge is stored raw, and the growth stays what the format promises. */
START_TEST(test_growth) {
    static const size_t sizes[] = {0, 1, 100, 8192, 8193, 32768, 32769, 1 << 20};
    uint8_t *data = malloc(1 << 20);
    ck_assert_ptr_nonnull(data);
    for (unsigned letters = 2; letters <= 256; letters += 127) {
        struct sw_params table;
        sw_content_table(&table, letters, letters);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            ck_assert_uint_lt(sw_frame_bound_bytes(sizes[i]), (uint64_t)(1.005 * (double)sizes[i]) + 4096);
            for (unsigned kind = 0; kind < SW_CONTENT_NR; kind++) {
                struct sw_plan plan = v5t_plan(&table, 8 + kind % 3);
                sw_content_fill(data, sizes[i], (enum sw_content)kind, kind);
                struct sw_guard frame = sw_frame_encode_decode(&plan, data, sizes[i]);
                struct sw_frame_layout raw;
                sw_frame_layout_init(&raw, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, sizes[i], 0);
                ck_assert_uint_le(frame.bytes, raw.frame_bytes);
                ck_assert_uint_le(raw.frame_bytes, 256 + sizes[i] + sizes[i] / 1000);
                sw_guard_free(&frame);
            }
        }
    }
    free(data);
}
END_TEST

/* The bound must also hold for v5t frames as such, which sw_codec_encode() would replace by raw ones: a tile that
 * shrinks by one word each segment is the longest v5t frame that can be written. */
START_TEST(test_bound_of_barely_shrinking) {
    const size_t bytes = 1 << 20, segment = 256;
    uint8_t *data = malloc(bytes);
    struct sw_params table;
    ck_assert_ptr_nonnull(data);
    sw_content_table(&table, 256, 1);
    struct sw_plan plan = v5t_plan(&table, 8);
    uint64_t state = 9;
    for (size_t at = 0; at < bytes; at += segment)
        for (size_t i = 0; i < segment;) { /* one-byte symbols, and a few long ones to save some bytes */
            uint32_t code = i < 40 ? table.n_symbols - 1 - (uint32_t)(sw_random(&state) % 40)
                                   : table.own[SW_V5T_N2] + (uint32_t)(sw_random(&state) % table.own[SW_V5T_N1]);
            for (unsigned b = 0; b < table.length[code] && i < segment; b++)
                data[at + i++] = (uint8_t)(table.value[code] >> 8 * b);
        }
    struct sw_guard frame = sw_frame_encode_decode(&plan, data, bytes);
    sw_guard_free(&frame);
    free(data);
}
END_TEST

START_TEST(test_refused_arguments) {
    uint8_t data[100] = {0}, frame[8192], out[100];
    uint64_t frame_bytes = 77, raw_bytes = 77;
    size_t bytes = 77;
    struct sw_plan plan;
    struct sw_err err = {0};
    sw_plan_init_raw(&plan);
    uint64_t bound = sw_frame_bound_bytes(sizeof data);
    memset(frame, 0xAB, sizeof frame);
    ck_assert_int_eq(sw_codec_encode(&plan, data, sizeof data, frame, bound - 1, &frame_bytes, &err), -SW_ETOOSMALL);
    ck_assert_uint_eq(frame_bytes, 77);
    ck_assert_uint_eq(frame[0], 0xAB);
    ck_assert_int_eq(sw_codec_encode(&plan, data, SW_FRAME_MAX_RAW_BYTES + 1, frame, UINT64_MAX, &frame_bytes, &err),
                     -SW_EINVAL);
    plan.codec = (enum sw_codec_id)SW_CODEC_NR;
    ck_assert_int_eq(sw_codec_encode(&plan, data, sizeof data, frame, bound, &frame_bytes, &err), -SW_EINVAL);
    for (unsigned codec = 0; codec < SW_CODEC_NR; codec++)
        for (unsigned type = 0; type < SW_VALUE_NR; type++) {
            plan.codec = (enum sw_codec_id)codec;
            plan.value_type = (enum sw_value_type)type;
            if (sw_codec_takes(plan.codec, plan.value_type))
                continue;
            ck_assert_int_eq(sw_codec_encode(&plan, data, sizeof data, frame, bound, &frame_bytes, &err), -SW_EINVAL);
            ck_assert_ptr_nonnull(strstr(err.msg, "cannot store values of type "));
        }
    ck_assert_uint_eq(frame_bytes, 77);
    ck_assert_uint_eq(frame[0], 0xAB);
    sw_plan_init_raw(&plan);
    ck_assert_int_eq(sw_codec_encode(&plan, data, sizeof data, frame, bound, &frame_bytes, &err), 0);
    out[0] = 0xCD;
    ck_assert_int_eq(sw_codec_decode(frame, frame_bytes, out, 99, &raw_bytes, &err), -SW_ETOOSMALL);
    ck_assert_int_eq(sw_codec_decode_segment(frame, frame_bytes, 0, out, 99, &bytes, &err), -SW_ETOOSMALL);
    ck_assert_int_eq(sw_codec_decode_tile(frame, frame_bytes, 0, out, 99, &bytes, &err), -SW_ETOOSMALL);
    ck_assert_uint_eq(out[0], 0xCD);
    ck_assert_uint_eq(raw_bytes, 77);
    ck_assert_uint_eq(bytes, 77);
}
END_TEST

/* A frame's head is as long as said, and no frame is shorter than its records and counts. */
START_TEST(test_bounds_of_heads) {
    static const uint64_t contents[] = {0, 1, 100000, (uint64_t)1 << 30, SW_FRAME_MAX_RAW_BYTES};
    for (size_t i = 0; i < sizeof contents / sizeof contents[0]; i++)
        for (unsigned codec = 0; codec < SW_CODEC_NR; codec++) {
            const struct sw_codec_format *format = sw_codec_format_of(codec);
            struct sw_frame_layout layout;
            sw_frame_layout_init(&layout, (enum sw_codec_id)codec, format->min_segment_log2, contents[i],
                                 format->max_symbols);
            ck_assert_uint_ge(sw_frame_head_bound_bytes(contents[i]), layout.counts_offset);
            ck_assert_uint_le(sw_frame_least_bytes(contents[i]), layout.data_offset + contents[i]);
            ck_assert_int_eq(sw_codec_has_segments((enum sw_codec_id)codec),
                             format->min_segment_log2 != format->max_segment_log2);
        }
    const uint64_t raw_bytes = (uint64_t)1 << 30, least = sw_frame_least_bytes(raw_bytes);
    ck_assert(1364 * least < raw_bytes && raw_bytes < 1366 * least);
}
END_TEST

START_TEST(test_names_of_types) {
    for (enum sw_value_type type = SW_VALUE_NONE; type < SW_VALUE_NR; type++)
        ck_assert_int_eq(sw_value_type_find(sw_value_type_name(type)), type);
    ck_assert_int_eq(sw_value_type_find("u24"), SW_VALUE_NONE);
    ck_assert_uint_eq(sw_value_type_bytes(SW_VALUE_NONE), 1);
    ck_assert_uint_eq(sw_value_type_bytes(SW_VALUE_DEC128), 16);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codec_roundtrip");
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, test_lengths, 0, 3 * SW_CONTENT_NR);
    tcase_add_test(tests, test_every_short_length);
    tcase_add_loop_test(tests, test_symbols, 0, 12);
    tcase_add_loop_test(tests, test_cut_symbols, 1, 9);
    tcase_add_test(tests, test_alignment);
    tcase_add_loop_test(tests, test_large, 0, 2);
    tcase_add_test(tests, test_growth);
    tcase_add_test(tests, test_bound_of_barely_shrinking);
    tcase_add_test(tests, test_refused_arguments);
    tcase_add_test(tests, test_bounds_of_heads);
    tcase_add_test(tests, test_names_of_types);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

/* numbers.c - frames of numbers that one side made decode on the other, for every type, width, count and alignment.
 *
 * SW_TEST_SMALL=1 leaves out most widths and the larger sizes, for runs under compute-sanitizer. */
#include "tests/lib/numbers.h"
#include "codec/bitpack/bitpack_core.h"
#include "codec/codec.h"
#include "codec/lz/lz.h"
#include "codec/plan/plan.h"
#include "tests/lib/content.h"
#include "tests/lib/gpu_frames.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A plan by the first half of a column; it does not know the values of the other half. */
static struct sw_plan plan_of(enum sw_codec_id codec, enum sw_value_type type, const uint8_t *data, size_t bytes) {
    struct sw_plan plan = {.codec = codec, .segment_log2 = SW_NUMBERS_SEGMENT_LOG2, .value_type = type};
    sw_plan_learn(&plan, data, bytes / 2);
    return plan;
}

static uint8_t *new_column(enum sw_value_type type, enum sw_numbers kind, unsigned bits, size_t bytes) {
    uint8_t *data = malloc(bytes + 1);
    ck_assert_ptr_nonnull(data);
    sw_numbers_fill(data, 0, bytes, type, kind, bits, 7 + bits);
    return data;
}

/* The host's frame and the GPU's, too, are of one length: they differ in nothing but the order of tiles. */
static void round_trip(const struct sw_plan *plan, const uint8_t *data, size_t bytes, size_t shift) {
    uint8_t *frame = aligned_alloc(16, (sw_frame_bound_bytes(bytes) + 15) / 16 * 16);
    struct sw_frame_layout layout;
    uint64_t by_host;
    ck_assert_ptr_nonnull(frame);
    sw_gpu_round_trip(plan, data, bytes, shift);
    ck_assert_int_eq(sw_codec_encode(plan, data, bytes, frame, sw_frame_bound_bytes(bytes), &by_host, NULL), 0);
    ck_assert_int_eq(sw_frame_parse(&layout, frame, by_host, by_host, NULL), 0);
    if (layout.codec == plan->codec)
        ck_assert_uint_eq(sw_gpu_encode_frame(plan, data, bytes, shift, frame), by_host);
    free(frame);
}

/* Tries every codec of codecs.def that takes the type. */
static void round_trips(enum sw_value_type type, const uint8_t *data, size_t bytes, size_t shift) {
    for (unsigned codec = 0; codec < SW_CODEC_NR; codec++) {
        if (!sw_codec_takes((enum sw_codec_id)codec, type))
            continue;
        const struct sw_plan plan = plan_of((enum sw_codec_id)codec, type, data, bytes);
        round_trip(&plan, data, bytes, shift);
    }
}

START_TEST(every_width) {
    static const enum sw_numbers kinds[] = {SW_NUMBERS_UNIFORM, SW_NUMBERS_SORTED, SW_NUMBERS_OFTEN, SW_NUMBERS_FEW,
                                            SW_NUMBERS_STEPS};
    const enum sw_value_type type = (enum sw_value_type)_i;
    const unsigned value_bits = sw_value_bits(type) < 64 ? sw_value_bits(type) : 64;
    for (unsigned bits = 0; bits <= value_bits; bits += sw_gpu_small_run() ? 5 : 1) {
        const size_t bytes = (size_t)2 * SW_NUMBERS_TILE_BYTES + 3 * sw_vector_bytes(value_bits);
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            uint8_t *data = new_column(type, kinds[i], bits, bytes);
            round_trips(type, data, bytes, 0);
            free(data);
        }
    }
}
END_TEST

START_TEST(every_kind_and_count) {
    static const size_t counts[] = {0,    1,    2,    3,    31,    33,    128,   129,   1023,   1024,
                                    1025, 4095, 8192, 8193, 16385, 32768, 32769, 70001, 300007, 5000011};
    const enum sw_value_type type = (enum sw_value_type)_i;
    const size_t value_bytes = sw_value_bits(type) / 8;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (enum sw_numbers kind = SW_NUMBERS_UNIFORM; kind < SW_NUMBERS_NR; kind++) {
            const size_t bytes = counts[i] * value_bytes + i % value_bytes;
            if (counts[i] > (sw_gpu_small_run() ? 20000 : 100000) && (sw_gpu_small_run() || kind != SW_NUMBERS_MIXED))
                continue;
            uint8_t *data = new_column(type, kind, 4 + (unsigned)i % 4, bytes);
            round_trips(type, data, bytes, 0);
            free(data);
        }
}
END_TEST

START_TEST(every_alignment) {
    const enum sw_value_type type = (enum sw_value_type)_i;
    const size_t bytes = 100003;
    uint8_t *data = new_column(type, SW_NUMBERS_MIXED, 6, bytes);
    for (size_t shift = 0; shift < 16; shift += sw_gpu_small_run() ? 7 : 1)
        round_trips(type, data, bytes, shift);
    free(data);
}
END_TEST

START_TEST(any_content) {
    uint8_t *data = malloc(100003);
    ck_assert_ptr_nonnull(data);
    for (unsigned kind = 0; kind < SW_CONTENT_NR; kind++) {
        sw_content_fill(data, 100003, (enum sw_content)kind, 3);
        round_trips((enum sw_value_type)_i, data, 100003, 0);
    }
    free(data);
}
END_TEST

/* Matches of every window, at its greatest distance and farther, and longer than the search compares. */
START_TEST(every_window_of_lz) {
    static const unsigned windows[] = {32, 64, 128, 255};
    const enum sw_value_type type = (enum sw_value_type)_i;
    const size_t bytes = 2 * SW_NUMBERS_TILE_BYTES + 4099, value_bytes = sw_value_bits(type) / 8;
    if ((sw_gpu_small_run() && type > SW_VALUE_U64) || !sw_codec_takes(SW_CODEC_LZ, type))
        return; /* symbols are bytes: only their number matters */
    uint8_t *data = malloc(bytes);
    ck_assert_ptr_nonnull(data);
    for (unsigned period = 1; period < 300; period += sw_gpu_small_run() ? 47 : period < 70 ? 1 : 7) {
        uint64_t state = period;
        for (size_t i = 0; i < bytes; i++)
            data[i] = i < period * value_bytes || i % 211 == period ? (uint8_t)sw_random(&state)
                                                                    : data[i - period * value_bytes];
        for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w++) {
            struct sw_plan plan;
            sw_plan_init_lz(&plan, type, windows[w]);
            round_trip(&plan, data, bytes, period % 16);
        }
    }
    free(data);
}
END_TEST

/* Damage anywhere behind the header is found, and nothing outside the buffers is touched (guards; memcheck). */
START_TEST(damaged_frames) {
    const enum sw_value_type type = (enum sw_value_type)_i;
    const size_t bytes = 100001;
    uint8_t *data = new_column(type, SW_NUMBERS_MIXED, 5, bytes), *out = malloc(bytes);
    uint8_t *frame = aligned_alloc(16, (sw_frame_bound_bytes(bytes) + 15) / 16 * 16);
    ck_assert(frame && out);
    for (unsigned codec = 0; codec < SW_CODEC_NR; codec++) {
        if (!sw_codec_takes((enum sw_codec_id)codec, type))
            continue;
        const struct sw_plan plan = plan_of((enum sw_codec_id)codec, type, data, bytes);
        const uint64_t frame_bytes = sw_gpu_encode_frame(&plan, data, bytes, 0, frame);
        struct sw_frame_layout layout;
        uint64_t state = 77;
        ck_assert_int_eq(sw_frame_parse(&layout, frame, frame_bytes, frame_bytes, NULL), 0);
        for (int round = 0; round < (sw_gpu_small_run() ? 40 : 300); round++) {
            const uint64_t r = sw_random(&state), meta = layout.data_offset - layout.records_offset;
            const uint64_t span = r & 1 ? meta : frame_bytes - layout.records_offset;
            const uint64_t at = layout.records_offset + (r >> 8) % span;
            const uint8_t old = frame[at];
            frame[at] ^= (uint8_t)(1 + (r >> 1) % 255);
            const uint32_t bad = sw_gpu_decode_frame(frame, frame_bytes, 0, layout.n_tiles, 0, out, bytes);
            ck_assert_msg(bad > 0 || !memcmp(data, out, bytes), "byte %llu", (unsigned long long)at);
            frame[at] = old;
        }
    }
    free(frame);
    free(data);
    free(out);
}
END_TEST

/* Adds a case for each type: CK_RUN_CASE=NAME runs it alone. */
static void add(Suite *suite, const char *name, const TTest *test) {
    TCase *tcase = tcase_create(name);
    tcase_add_loop_test(tcase, test, 1, SW_VALUE_NR);
    suite_add_tcase(suite, tcase);
}

int main(void) {
    const int rc = sw_gpu_codec_start();
    if (rc)
        return rc;
    Suite *suite = suite_create("gpu numbers");
    add(suite, "widths", every_width);
    add(suite, "counts", every_kind_and_count);
    add(suite, "alignments", every_alignment);
    add(suite, "content", any_content);
    add(suite, "windows", every_window_of_lz);
    add(suite, "damage", damaged_frames);
    return sw_test_run(suite, CK_NOFORK); /* one CUDA context for all tests */
}

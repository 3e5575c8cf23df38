/* Codec lz: any input comes back. Repetitions within the window are found, and take the bytes that the format says. */
#include "codec/codec.h"
#include "codec/lz/lz.h"
#include "codec/lz/lz_core.h"
#include "codec/plan/planning.h"
#include "tests/lib/content.h"
#include "tests/lib/frames.h"
#include "tests/lib/numbers.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const enum sw_value_type types[] = {SW_VALUE_U8, SW_VALUE_I16, SW_VALUE_U32, SW_VALUE_F64};
static const unsigned windows[] = {32, 64, 128, 255};
enum { N_TYPES = 4, N_WINDOWS = 4, MOST_BYTES = 3 * SW_LZ_BLOCK_BYTES };

/* Bytes of a frame of up to one tile besides its data. */
enum { OVERHEAD_BYTES = 128 };

static uint64_t round_trip(enum sw_value_type type, unsigned window, const uint8_t *data, size_t bytes) {
    struct sw_plan plan;
    sw_plan_init_lz(&plan, type, window);
    return sw_frame_round_trip(&plan, data, bytes);
}

static uint64_t data_bytes(enum sw_value_type type, unsigned window, const uint8_t *data, size_t bytes) {
    return round_trip(type, window, data, bytes) - OVERHEAD_BYTES;
}

/* `period` random symbols, again and again. */
static void fill_period(uint8_t *data, size_t bytes, unsigned symbol_bytes, unsigned period) {
    uint64_t state = period;
    for (size_t i = 0; i < bytes; i++)
        data[i] = i < (size_t)period * symbol_bytes ? (uint8_t)(sw_random(&state) >> 32)
                                                    : data[i - (size_t)period * symbol_bytes];
}

START_TEST(test_every_period) {
    const enum sw_value_type type = types[_i % N_TYPES];
    const unsigned symbol_bytes = sw_lz_symbol_bytes(type), window = windows[_i / N_TYPES];
    uint8_t data[MOST_BYTES];
    for (unsigned period = 1; period <= 300; period += period < 40 || period > 250 ? 1 : 7) {
        const size_t bytes = MOST_BYTES - period;
        fill_period(data, bytes, symbol_bytes, period);
        const uint64_t stored = data_bytes(type, window, data, bytes);
        /* Three blocks: a period each, two bits a literal, and a bit for 32 symbols; or all of it, but for bytes that
         * are equal by chance. */
        if (period <= window)
            ck_assert_uint_le(stored, 3 * ((uint64_t)period * (symbol_bytes + 1) + 64));
        else if (symbol_bytes > 1)
            ck_assert_uint_ge(stored, bytes);
    }
}
END_TEST

START_TEST(test_every_length) {
    static uint8_t data[2 * 32768 + 4099];
    const enum sw_value_type type = types[_i];
    static const size_t longer[] = {4095, 4096, 4097, 8191, 32767, 32768, 32769, 65536, 2 * 32768 + 4099};
    sw_content_fill(data, sizeof data, SW_CONTENT_MIXED, 5);
    for (size_t bytes = 0; bytes < 300; bytes++)
        (void)round_trip(type, 0, data, bytes);
    for (size_t i = 0; i < sizeof longer / sizeof longer[0]; i++)
        (void)round_trip(type, 0, data, longer[i]);
    memset(data, 7, 300);
    for (size_t bytes = 0; bytes < 300; bytes++)
        (void)round_trip(type, 0, data, bytes);
}
END_TEST

START_TEST(test_any_content) {
    const enum sw_value_type type = (enum sw_value_type)_i;
    uint8_t *data = malloc(50003);
    ck_assert_ptr_nonnull(data);
    for (unsigned w = 0; w < N_WINDOWS; w++) {
        for (unsigned kind = 0; kind < SW_CONTENT_NR; kind++) {
            sw_content_fill(data, 50003, (enum sw_content)kind, 3);
            (void)round_trip(type, windows[w], data, 50003);
        }
        for (unsigned kind = 0; kind < SW_NUMBERS_NR; kind++) {
            sw_numbers_fill(data, 0, 50003, type, (enum sw_numbers)kind, 5, 3);
            (void)round_trip(type, windows[w], data, 50003);
        }
    }
    free(data);
}
END_TEST

/* One value costs a symbol and a bit for 32 of them; noise costs nothing but the counts. */
START_TEST(test_extremes) {
    static uint8_t data[32768];
    const unsigned symbol_bytes = sw_lz_symbol_bytes(types[_i]);
    memset(data, 0xC3, sizeof data);
    ck_assert_uint_le(data_bytes(types[_i], 0, data, sizeof data), 8 * (4 * (uint64_t)sw_lz_groups(symbol_bytes) + 28));
    sw_content_fill(data, sizeof data, SW_CONTENT_RANDOM, 9);
    ck_assert_uint_le(data_bytes(types[_i], 0, data, sizeof data), sizeof data);
}
END_TEST

/* A match as the last symbols of a block, and one that would reach into the block before. */
START_TEST(test_block_ends) {
    const unsigned symbol_bytes = sw_lz_symbol_bytes(types[_i]);
    uint8_t data[MOST_BYTES];
    for (unsigned n = 1; n < 80; n++) {
        const size_t match = (size_t)n * symbol_bytes;
        sw_content_fill(data, sizeof data, SW_CONTENT_RANDOM, n);
        memcpy(data + SW_LZ_BLOCK_BYTES - match, data + SW_LZ_BLOCK_BYTES - 2 * match, match);
        memcpy(data + SW_LZ_BLOCK_BYTES, data + SW_LZ_BLOCK_BYTES - match, match);
        (void)round_trip(types[_i], 255, data, sizeof data);
        (void)round_trip(types[_i], 32, data, SW_LZ_BLOCK_BYTES + match - 1);
    }
}
END_TEST

/* A wider window never finds less here, and a narrow one finds nothing beyond its end. */
START_TEST(test_window_levels) {
    uint8_t data[MOST_BYTES];
    uint64_t before = 0;
    fill_period(data, sizeof data, 4, 100);
    for (unsigned w = N_WINDOWS; w-- > 0;) {
        const uint64_t stored = data_bytes(SW_VALUE_U32, windows[w], data, sizeof data);
        ck_assert_uint_ge(stored, before);
        ck_assert(windows[w] < 100 ? stored >= sizeof data : stored < sizeof data / 5);
        before = stored;
    }
}
END_TEST

START_TEST(test_every_alignment) {
    static uint8_t data[70001], shifted[70017], frame[80000];
    struct sw_plan plan;
    uint64_t frame_bytes, raw_bytes;
    sw_plan_init_lz(&plan, types[_i], 0);
    sw_content_fill(data, sizeof data, SW_CONTENT_TEXT, 4);
    for (size_t shift = 0; shift < 16; shift++) {
        memcpy(shifted + shift, data, sizeof data);
        ck_assert_int_eq(
            sw_codec_encode(&plan, shifted + shift, sizeof data, frame, sizeof frame - 16, &frame_bytes, NULL), 0);
        memset(shifted, 0, sizeof shifted);
        memmove(frame + shift, frame, frame_bytes);
        ck_assert_int_eq(
            sw_codec_decode(frame + shift, frame_bytes, shifted + 15 - shift, sizeof data, &raw_bytes, NULL), 0);
        ck_assert_mem_eq(shifted + 15 - shift, data, sizeof data);
    }
}
END_TEST

/* One value again and again: a literal and a match, whose distance is stored before the literal. Nothing lies
 * before the block, nor at no distance. */
START_TEST(test_distances_end_at_the_block) {
    uint8_t data[300], frame[65536];
    struct sw_plan plan;
    struct sw_frame_layout layout;
    uint64_t frame_bytes, raw_bytes;
    const unsigned symbol_bytes = sw_lz_symbol_bytes(types[_i]);
    memset(data, 7, sizeof data);
    sw_plan_init_lz(&plan, types[_i], 255);
    ck_assert_int_eq(sw_codec_encode(&plan, data, sizeof data, frame, sizeof frame, &frame_bytes, NULL), 0);
    ck_assert_int_eq(sw_frame_parse(&layout, frame, frame_bytes, frame_bytes, NULL), 0);
    size_t at = frame_bytes - 1;
    while (frame[at] != 7)
        at--;
    at -= symbol_bytes - 1 + 4; /* that was the literal's last byte; distances are padded to four bytes */
    ck_assert(at >= layout.data_offset && frame[at] == 1);
    for (unsigned distance = 0; distance < 256; distance++) {
        frame[at] = (uint8_t)distance;
        ck_assert_int_eq(sw_codec_decode(frame, frame_bytes, data, sizeof data, &raw_bytes, NULL),
                         distance == 1 ? 0 : -SW_EFRAME);
    }
}
END_TEST

/* The published format's ratio on these is 1.89. */
START_TEST(test_order_keys) {
    static uint8_t keys[1 << 18];
    sw_numbers_fill(keys, 0, sizeof keys, SW_VALUE_U32, SW_NUMBERS_ORDERS, 1, 1);
    ck_assert_double_ge((double)sizeof keys / (double)round_trip(SW_VALUE_U32, 32, keys, sizeof keys), 2.75);
    /* With bytes as symbols it is 2.49. */
    ck_assert_double_ge((double)sizeof keys / (double)round_trip(SW_VALUE_U8, 255, keys, sizeof keys), 3.5);
}
END_TEST

/* Records whose fields are random, so that only their repetition shrinks them: with room for a dictionary, which says
 * that time hardly counts, this codec is chosen, with a window that a record fits into. Else it is not. */
START_TEST(test_is_chosen_where_time_hardly_counts) {
    enum { RECORD_BYTES = 4 * 40 };
    static uint8_t data[1 << 20], sample[SW_SAMPLE_MAX_BYTES];
    static struct sw_frame_dictionary room;
    uint64_t seed = 1;
    for (size_t at = 0; at < sizeof data; at++)
        data[at] = at % 2048 < RECORD_BYTES ? (uint8_t)sw_random(&seed) : data[at - RECORD_BYTES];
    for (unsigned i = 0; i < 2; i++) {
        struct sw_planning p;
        sw_planning_begin(&p, SW_VALUE_U32, sizeof data, false, i ? &room : NULL);
        ck_assert_int_eq(p.takes_long, i);
        (void)sw_sample_gather(sample, data, sizeof data, p.piece_bytes);
        sw_planning_learn(&p, sample);
        ck_assert_int_eq(p.step, SW_PLANNING_DONE);
        ck_assert_int_eq(p.plan.codec == SW_CODEC_LZ, i);
        if (i)
            ck_assert_uint_eq(p.plan.params.own[SW_LZ_WINDOW], 64);
        ck_assert(!i || (p.plan.expected_ratio > 2 && p.plan.expected_ratio == p.plan.ratios[SW_CODEC_LZ]));
    }
}
END_TEST

/* Without that room it is used only if it is asked for by name. */
/* Room may count more than time, and then time again: what another codec has learned is still there. */
START_TEST(test_another_codec_can_be_chosen_again) {
    enum { VALUES = 16 << 10, PERIOD = 30 };
    static uint32_t values[VALUES];
    static const uint32_t few[] = {0x12345678, 0x9abcdef1, 0x13579bdf, 0x2468ace2};
    uint64_t state = 1;
    struct sw_plan plan;
    for (size_t i = 0; i < VALUES; i++)
        values[i] = i < PERIOD ? few[sw_random(&state) >> 62] : values[i - PERIOD];
    sw_plan_init_typed(&plan, SW_VALUE_U32, values, sizeof values, sizeof values);
    ck_assert_int_eq(plan.codec, SW_CODEC_DICT);
    const double ratio = plan.expected_ratio;
    sw_plan_try_slow(&plan, SW_VALUE_U32, values, sizeof values, sizeof values);
    ck_assert_int_eq(plan.codec, SW_CODEC_LZ);
    ck_assert(plan.expected_ratio > ratio);
    ck_assert_double_eq(plan.ratios[SW_CODEC_LZ], plan.expected_ratio);
    (void)sw_frame_round_trip(&plan, (const uint8_t *)values, sizeof values);
    sw_plan_switch(&plan, SW_CODEC_DICT);
    ck_assert_double_eq(plan.expected_ratio, ratio);
    const double bytes = (double)sw_frame_round_trip(&plan, (const uint8_t *)values, sizeof values);
    ck_assert_double_lt(bytes, 1.1 * sizeof values / ratio);
}
END_TEST

START_TEST(test_is_not_chosen) {
    static struct sw_frame_dictionary room;
    struct sw_planning p;
    struct sw_plan plan;
    uint8_t data[SW_SAMPLE_MAX_BYTES];
    for (unsigned period = 1; period < 255; period += 60) {
        fill_period(data, sizeof data, 4, period);
        sw_plan_init_typed(&plan, SW_VALUE_U32, data, sizeof data, 1 << 26);
        ck_assert_int_ne(plan.codec, SW_CODEC_LZ);
        sw_plan_init(&plan, data, sizeof data, 1 << 26);
        ck_assert_int_ne(plan.codec, SW_CODEC_LZ);
    }
    ck_assert(!sw_plan_init_numbers(&plan, SW_CODEC_LZ, SW_VALUE_U32));
    sw_content_fill(data, sizeof data, SW_CONTENT_RANDOM, 1);
    sw_planning_begin(&p, SW_VALUE_U32, sizeof data, false, &room); /* nor where it gains nothing */
    sw_planning_learn(&p, data);
    ck_assert_int_eq(p.plan.codec, SW_CODEC_RAW);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codec_lz");
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, test_every_period, 0, N_TYPES * N_WINDOWS);
    tcase_add_loop_test(tests, test_every_length, 0, N_TYPES);
    tcase_add_loop_test(tests, test_any_content, 1, SW_VALUE_DEC128);
    tcase_add_loop_test(tests, test_extremes, 0, N_TYPES);
    tcase_add_loop_test(tests, test_block_ends, 0, N_TYPES);
    tcase_add_test(tests, test_window_levels);
    tcase_add_loop_test(tests, test_every_alignment, 0, N_TYPES);
    tcase_add_loop_test(tests, test_distances_end_at_the_block, 0, N_TYPES);
    tcase_add_test(tests, test_order_keys);
    tcase_add_test(tests, test_is_chosen_where_time_hardly_counts);
    tcase_add_test(tests, test_another_codec_can_be_chosen_again);
    tcase_add_test(tests, test_is_not_chosen);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

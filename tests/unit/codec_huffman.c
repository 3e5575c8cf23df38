/* huffman: how few bits values take, that values unlike the sample come back, and which tables the decoder refuses. */
#include "codec/checksum.h"
#include "codec/codec.h"
#include "codec/huffman/huffman_core.h"
#include "codec/plan/planning.h"
#include "tests/lib/content.h"
#include "tests/lib/frames.h"
#include "tests/lib/numbers.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define N_OF(array) (sizeof(array) / sizeof(array)[0])

static uint8_t sample[SW_SAMPLE_MAX_BYTES];

/* ---- ratios ---- */

static const struct {
    enum sw_value_type type;
    enum sw_numbers kind;
    unsigned bits;
    double least; /* ratio, everything counted */
} columns[] = {
    {SW_VALUE_BF16, SW_NUMBERS_WEIGHTS, 0, 1.49},
    {SW_VALUE_F32, SW_NUMBERS_WEIGHTS, 0, 1.19},
    {SW_VALUE_F8, SW_NUMBERS_WEIGHTS, 0, 1.22},
    {SW_VALUE_F16, SW_NUMBERS_WEIGHTS, 0, 1.17},
    {SW_VALUE_DEC128, SW_NUMBERS_UNIFORM, 24, 5.17},
    {SW_VALUE_DEC128, SW_NUMBERS_UNIFORM, 40, 3.1},
    {SW_VALUE_DEC128, SW_NUMBERS_UNIFORM, 63, 1.97},
    {SW_VALUE_DEC128, SW_NUMBERS_OUTLIER, 24, 3.5},
    {SW_VALUE_DEC128, SW_NUMBERS_MULTIPLES, 20, 128. / 66},
};

START_TEST(values_take_few_bits) {
    const size_t bytes = (size_t)4 << 20 | 16 * 77;
    uint8_t *data = malloc(bytes);
    struct sw_plan plan;
    ck_assert_ptr_nonnull(data);
    sw_numbers_fill(data, 0, bytes, columns[_i].type, columns[_i].kind, columns[_i].bits, 5);
    sw_plan_make(&plan, columns[_i].type, data, bytes, sample);
    ck_assert_msg(plan.codec == SW_CODEC_HUFFMAN, "%s", sw_codec_name(plan.codec));
    struct sw_guard frame = sw_frame_encode_decode(&plan, data, bytes);
    const double ratio = (double)bytes / (double)frame.bytes;
    ck_assert_msg(ratio >= columns[_i].least, "%.3f", ratio);
    ck_assert_double_ge(plan.expected_ratio, 0.97 * ratio);
    ck_assert_double_le(plan.expected_ratio, 1.03 * ratio);
    sw_guard_free(&frame);
    free(data);
}
END_TEST

/* Bases of 128 bits, with a carry between their halves, below zero and above. */
START_TEST(decimals_have_any_base) {
    enum { N = 30000 };
    static uint64_t value[N][2];
    const uint64_t low = UINT64_MAX - 5000, high = _i ? (uint64_t)1 << 62 : (uint64_t)-3;
    uint64_t state = 1;
    struct sw_plan plan;
    for (size_t i = 0; i < N; i++) {
        value[i][0] = low + sw_random(&state) % 65536;
        value[i][1] = high + (value[i][0] < low);
    }
    sw_plan_make(&plan, SW_VALUE_DEC128, value, sizeof value, sample);
    ck_assert_int_eq(plan.codec, SW_CODEC_HUFFMAN);
    ck_assert_double_ge((double)sizeof value / (double)sw_frame_round_trip(&plan, (const uint8_t *)value, sizeof value),
                        7.5);
}
END_TEST

/* Decimals whose bytes around the middle take any value: what is stored of them together lies in both halves. */
START_TEST(parts_are_stored_across_the_middle) {
    enum { N = 20000, BYTES = 16, FIRST = 5, LAST = 10 };
    static uint8_t values[N][BYTES];
    uint64_t state = 1;
    struct sw_plan plan;
    for (unsigned i = 0; i < N; i++)
        for (unsigned part = FIRST; part <= LAST; part++)
            values[i][part] = (uint8_t)(sw_random(&state) >> 32);
    ck_assert(sw_plan_init_by_codec(&plan, SW_CODEC_HUFFMAN, SW_VALUE_DEC128, *values, 60000, NULL));
    const uint64_t frame_bytes = sw_frame_round_trip(&plan, *values, sizeof values);
    ck_assert_double_ge((double)sizeof values / (double)frame_bytes, 2);
}
END_TEST

/* Of values that differ in many bytes, those bytes get codes that gain most. */
START_TEST(codes_are_for_the_bytes_that_gain_most) {
    enum { N = 40000, BYTES = 8 };
    static uint8_t values[N][BYTES];
    static const unsigned bits[BYTES] = {2, 2, 2, 2, 7, 7, 7, 7};
    uint64_t state = 1;
    struct sw_plan plan;
    for (unsigned i = 0; i < N; i++)
        for (unsigned part = 0; part < BYTES; part++) /* in codes of as many bits, which are no neighbours */
            values[i][part] = (uint8_t)((sw_random(&state) >> 32) % (1u << bits[part]) * 37);
    ck_assert(sw_plan_init_by_codec(&plan, SW_CODEC_HUFFMAN, SW_VALUE_F64, *values, 60000, NULL));
    const uint64_t frame_bytes = sw_frame_round_trip(&plan, *values, sizeof values);
    ck_assert_double_ge((double)sizeof values / (double)frame_bytes, 1.4); /* four bytes of 8 in a byte and a bit */
}
END_TEST

/* Whatever the constant is, its bytes take no codes. */
START_TEST(constant_bytes_may_have_any_value) {
    enum { N = 4000, BYTES = 8 };
    static uint8_t values[N][BYTES];
    uint64_t first_bytes = 0;
    for (unsigned constant = 0; constant < 256; constant += 15) {
        uint64_t state = 1;
        struct sw_plan plan;
        memset(values, (int)constant, sizeof values);
        for (unsigned i = 0; i < N; i++)
            values[i][0] = (uint8_t)((sw_random(&state) >> 32) % 4 * 37);
        ck_assert(sw_plan_init_by_codec(&plan, SW_CODEC_HUFFMAN, SW_VALUE_F64, *values, sizeof values, NULL));
        const uint64_t frame_bytes = sw_frame_round_trip(&plan, *values, sizeof values);
        first_bytes = constant ? first_bytes : frame_bytes;
        ck_assert_uint_eq(frame_bytes, first_bytes);
    }
}
END_TEST

/* ---- what the sample did not show ---- */

/* Values with symbols that have no code, and with other constants, between those that were learned. */
START_TEST(unknown_values_are_escapes) {
    static const enum sw_value_type types[] = {SW_VALUE_NONE, SW_VALUE_F8,  SW_VALUE_BF16,
                                               SW_VALUE_F32,  SW_VALUE_F64, SW_VALUE_DEC128};
    enum { BYTES = 100003 };
    static uint8_t data[BYTES];
    const enum sw_value_type type = types[_i];
    uint64_t state = 2;
    struct sw_plan plan;
    for (unsigned apart = 3; apart < 3000; apart *= 7) {
        if (type == SW_VALUE_NONE)
            sw_content_fill(data, sizeof data, SW_CONTENT_HEX, 1);
        else
            sw_numbers_fill(data, 0, sizeof data, type,
                            type == SW_VALUE_DEC128 ? SW_NUMBERS_UNIFORM : SW_NUMBERS_WEIGHTS, 12, 1);
        ck_assert(sw_plan_init_by_codec(&plan, SW_CODEC_HUFFMAN, type, data, 60000, NULL));
        for (size_t at = 0; at < sizeof data; at += 1 + sw_random(&state) % apart)
            data[at] = (uint8_t)(sw_random(&state) >> 32);
        (void)sw_frame_round_trip(&plan, data, sizeof data);
    }
}
END_TEST

/* Nothing to learn, or next to nothing: constants, one value, less than one. */
START_TEST(samples_of_any_length) {
    static uint8_t data[5000];
    struct sw_plan plan;
    for (int type = SW_VALUE_NONE; type < SW_VALUE_NR; type++)
        for (size_t bytes = 0; bytes < 70 && sw_codec_takes(SW_CODEC_HUFFMAN, (enum sw_value_type)type); bytes++) {
            memset(data, (int)bytes, sizeof data);
            ck_assert(sw_plan_init_by_codec(&plan, SW_CODEC_HUFFMAN, (enum sw_value_type)type, data, bytes, NULL));
            (void)sw_frame_round_trip(&plan, data, sizeof data);
            sw_content_fill(data, sizeof data, SW_CONTENT_MIXED, bytes);
            (void)sw_frame_round_trip(&plan, data, sizeof data);
        }
}
END_TEST

/* ---- plans ---- */

/* dict and huffman both have symbols: the plan keeps those of the better one, and can not switch to the other. */
START_TEST(one_codec_has_the_symbols) {
    enum { BYTES = 1 << 20 };
    static uint8_t data[BYTES];
    struct sw_plan plan;
    for (int is_few = 0; is_few < 2; is_few++) {
        sw_numbers_fill(data, 0, BYTES, SW_VALUE_BF16, is_few ? SW_NUMBERS_FEW : SW_NUMBERS_WEIGHTS, 4, 1);
        sw_plan_make(&plan, SW_VALUE_BF16, data, BYTES, sample);
        ck_assert_int_eq(plan.codec, is_few ? SW_CODEC_DICT : SW_CODEC_HUFFMAN);
        ck_assert_double_eq(plan.ratios[is_few ? SW_CODEC_HUFFMAN : SW_CODEC_DICT], 0);
        (void)sw_frame_round_trip(&plan, data, BYTES);
    }
    uint64_t state = 1;
    for (size_t i = 0; i < BYTES; i += 2) { /* both are good: a few of 64 values are frequent */
        data[i] = (uint8_t)(__builtin_ctzll(sw_random(&state) >> 8 | (uint64_t)1 << 20) * 3);
        data[i + 1] = 0x3F;
    }
    sw_plan_make(&plan, SW_VALUE_BF16, data, BYTES, sample);
    ck_assert_int_eq(plan.codec, SW_CODEC_HUFFMAN);
    ck_assert_double_gt(plan.ratios[SW_CODEC_FOR], 0);
    ck_assert_double_eq(plan.ratios[SW_CODEC_DICT], 0);
}
END_TEST

/* ---- refused tables ---- */

/* A frame with one change of its section, and a hash that fits. */
struct change {
    unsigned byte; /* of the section */
    uint8_t value;
};

static int decode_changed(const struct sw_guard *frame, struct change change) {
    static uint8_t out[200000];
    uint8_t *copy = malloc(frame->bytes);
    struct sw_frame_header h;
    uint64_t raw_bytes;
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, frame->data, frame->bytes);
    copy[sizeof h + change.byte] = change.value;
    memcpy(&h, copy, sizeof h);
    h.header_hash =
        sw_hash_finish(sw_hash_update(sw_hash_update(0, copy, offsetof(struct sw_frame_header, header_hash)),
                                      copy + sizeof h, sw_frame_table_bytes(h.n_symbols)));
    memcpy(copy, &h, sizeof h);
    const int rc = sw_codec_decode(copy, frame->bytes, out, sizeof out, &raw_bytes, NULL);
    free(copy);
    return rc;
}

START_TEST(invalid_sections_are_refused) {
    enum { BYTES = 100000, FIRST_LENGTHS = 8 * SW_HUFFMAN_TABLES };
    static uint8_t data[BYTES];
    static const struct change changes[] = {
        {0, 0},                /* no parts */
        {0, 3},                /* three */
        {0, 32},               /* too many */
        {0, 1},                /* one cannot be rotated */
        {1, SW_HUFFMAN_FORMS}, /* no such form */
        {1, SW_HUFFMAN_ABOVE}, /* not of four parts */
        {2, 0},                /* no tables */
        {2, 2},                /* the section is too short for two */
        {3, 0},                /* no escape */
        {3, 12},               /* too long a code */
        {8, 0},                /* the only table codes two parts */
        {8, SW_HUFFMAN_CONSTANT + 1},
        {11, SW_HUFFMAN_RAW},  /* no part has the table */
        {FIRST_LENGTHS, 0x11}, /* two codes of one bit, and others */
        {FIRST_LENGTHS, 0xC0}, /* too long a code */
    };
    struct sw_plan plan;
    sw_numbers_fill(data, 0, BYTES, SW_VALUE_F32, SW_NUMBERS_WEIGHTS, 0, 1);
    ck_assert(sw_plan_init_by_codec(&plan, SW_CODEC_HUFFMAN, SW_VALUE_F32, data, BYTES, NULL));
    struct sw_guard frame = sw_frame_encode_decode(&plan, data, BYTES);
    ck_assert_uint_eq(plan.params.n_symbols, sw_huffman_section_symbols(1));
    ck_assert_uint_eq(frame.data[SW_FRAME_HEADER_BYTES + 11], 0); /* the exponent's table */
    for (size_t i = 0; i < N_OF(changes); i++)
        ck_assert_msg(decode_changed(&frame, changes[i]) == -SW_EFRAME, "change %zu", i);
    ck_assert_int_eq(decode_changed(&frame, (struct change){8 * plan.params.n_symbols, 1}), 0); /* it is ignored */
    sw_guard_free(&frame);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codec_huffman");
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, values_take_few_bits, 0, (int)N_OF(columns));
    tcase_add_loop_test(tests, decimals_have_any_base, 0, 2);
    tcase_add_test(tests, parts_are_stored_across_the_middle);
    tcase_add_test(tests, codes_are_for_the_bytes_that_gain_most);
    tcase_add_test(tests, constant_bytes_may_have_any_value);
    tcase_add_loop_test(tests, unknown_values_are_escapes, 0, 6);
    tcase_add_test(tests, samples_of_any_length);
    tcase_add_test(tests, one_codec_has_the_symbols);
    tcase_add_test(tests, invalid_sections_are_refused);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

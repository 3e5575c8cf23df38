/* Columns of numbers of every type: what goes in comes out, whole, by tiles and by segments, whatever the values, their
 * number and the bits that they need. */
#include "codec/bitpack/bitpack.h"
#include "codec/codec.h"
#include "codec/plan/plan.h"
#include "tests/lib/content.h"
#include "tests/lib/frames.h"
#include "tests/lib/numbers.h"
#include "tests/lib/run.h"
#include "tests/lib/tpch_tables.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define N_OF(array) (sizeof(array) / sizeof(array)[0])

static struct sw_plan plan_of(enum sw_codec_id codec, enum sw_value_type type) {
    return (struct sw_plan){.codec = codec, .segment_log2 = SW_NUMBERS_SEGMENT_LOG2, .value_type = type};
}

static uint64_t round_trip(enum sw_codec_id codec, enum sw_value_type type, const uint8_t *data, size_t bytes) {
    struct sw_plan plan = plan_of(codec, type);
    sw_plan_learn(&plan, data, bytes / 2); /* the other half may have values that the plan does not know */
    return sw_frame_round_trip(&plan, data, bytes);
}

/* Tries every codec of codecs.def that takes the type. Codecs of integers take short floats as unsigned numbers. */
static void round_trips(enum sw_value_type type, const uint8_t *data, size_t bytes) {
    for (unsigned codec = 0; codec < SW_CODEC_NR; codec++)
        if (sw_codec_takes((enum sw_codec_id)codec, type) &&
            (type < SW_VALUE_BF16 || !sw_codec_takes((enum sw_codec_id)codec, SW_VALUE_U16)))
            (void)round_trip((enum sw_codec_id)codec, type, data, bytes);
}

static uint8_t *new_column(enum sw_value_type type, enum sw_numbers kind, unsigned bits, size_t bytes) {
    uint8_t *data = malloc(bytes + 1);
    ck_assert_ptr_nonnull(data);
    sw_numbers_fill(data, 0, bytes, type, kind, bits, 7 + bits);
    return data;
}

START_TEST(test_every_width) {
    const enum sw_value_type type = (enum sw_value_type)_i;
    const unsigned value_bits = sw_value_bits(type) < 64 ? sw_value_bits(type) : 64;
    for (unsigned bits = (unsigned)_i % SW_TEST_EVERY; bits <= value_bits; bits += SW_TEST_EVERY) {
        const size_t bytes = (size_t)3 * sw_vector_bytes(value_bits);
        uint8_t *data = new_column(type, SW_NUMBERS_UNIFORM, bits, bytes);
        /* header, record, counts, padding before the data, and the bits themselves */
        if (type < SW_VALUE_F32)
            ck_assert_uint_le(round_trip(SW_CODEC_FOR, type, data, bytes),
                              64 + 16 + SW_NUMBERS_COUNT_BYTES(1, false) + 127 + (uint64_t)3 * 128 * bits);
        round_trips(type, data, bytes);
        free(data);
    }
}
END_TEST

START_TEST(test_every_kind_and_count) {
    static const size_t counts[] = {0,    1,    2,    3,    15,   31,   32,   33,   127,   128,   129,
                                    1023, 1024, 1025, 2048, 4095, 8191, 8192, 8193, 16384, 16385, 32769};
    const enum sw_value_type type = (enum sw_value_type)(1 + _i / SW_NUMBERS_NR);
    const enum sw_numbers kind = (enum sw_numbers)(_i % SW_NUMBERS_NR);
    const size_t value_bytes = sw_value_bits(type) / 8;
    for (size_t i = (size_t)(_i + _i / SW_NUMBERS_NR) % SW_TEST_EVERY; i < N_OF(counts); i += SW_TEST_EVERY)
        for (size_t tail = 0; tail < value_bytes; tail += 1 + tail) { /* bytes that are no whole value */
            const size_t bytes = counts[i] * value_bytes + tail;
            uint8_t *data = new_column(type, kind, 4 + (unsigned)(counts[i] % 4), bytes);
            round_trips(type, data, bytes);
            free(data);
        }
}
END_TEST

/* Any bytes are numbers, too. */
START_TEST(test_any_content) {
    uint8_t *data = malloc(100003);
    ck_assert_ptr_nonnull(data);
    for (unsigned kind = 0; kind < SW_CONTENT_NR; kind++) {
        sw_content_fill(data, 100003, (enum sw_content)kind, 3);
        round_trips((enum sw_value_type)_i, data, 100003);
        round_trips((enum sw_value_type)_i, data, 4099);
    }
    free(data);
}
END_TEST

/* A vector of outliers or of small numbers costs only itself. */
START_TEST(test_outliers_cost_their_vector) {
    const size_t bytes = (size_t)64 * sw_vector_bytes(32);
    uint8_t *data = new_column(SW_VALUE_I32, SW_NUMBERS_UNIFORM, 8, bytes);
    const uint64_t without = round_trip(SW_CODEC_FOR, SW_VALUE_I32, data, bytes);
    const int32_t outlier = INT32_MAX;
    memcpy(data + 5000, &outlier, sizeof outlier);
    ck_assert_uint_eq(round_trip(SW_CODEC_FOR, SW_VALUE_I32, data, bytes), without + (uint64_t)24 * 128);
    free(data);
}
END_TEST

START_TEST(test_alignment) {
    const enum sw_codec_id codec = (enum sw_codec_id)_i;
    const enum sw_value_type type = sw_codec_takes(codec, SW_VALUE_I32) ? SW_VALUE_I32 : SW_VALUE_F32;
    const size_t bytes = 70001;
    uint8_t *frame = malloc(sw_frame_bound_bytes(bytes) + 16), *shifted = malloc(bytes + 16);
    ck_assert(frame && shifted);
    if (sw_codec_takes(codec, type)) {
        uint8_t *data = new_column(type, SW_NUMBERS_MIXED, 9, bytes);
        for (size_t shift = 0; shift < 16; shift++) {
            struct sw_plan plan = plan_of(codec, type);
            uint64_t frame_bytes, raw_bytes;
            sw_plan_learn(&plan, data, bytes);
            memcpy(shifted + shift, data, bytes);
            ck_assert_int_eq(
                sw_codec_encode(&plan, shifted + shift, bytes, frame, sw_frame_bound_bytes(bytes), &frame_bytes, NULL),
                0);
            memset(shifted, 0, bytes + 16);
            memmove(frame + shift, frame, frame_bytes);
            ck_assert_int_eq(sw_codec_decode(frame + shift, frame_bytes, shifted + 15 - shift, bytes, &raw_bytes, NULL),
                             0);
            ck_assert_mem_eq(shifted + 15 - shift, data, bytes);
        }
        free(data);
    }
    free(shifted);
    free(frame);
}
END_TEST

/* The codec that stores a column in the least, by a sample of it, and about as little as was expected. */
static const struct {
    enum sw_value_type type;
    enum sw_numbers kind;
    unsigned bits;
    enum sw_codec_id codec;
} choices[] = {
    {SW_VALUE_U32, SW_NUMBERS_UNIFORM, 8, SW_CODEC_FOR},
    {SW_VALUE_I64, SW_NUMBERS_UNIFORM, 20, SW_CODEC_FOR},
    {SW_VALUE_U8, SW_NUMBERS_UNIFORM, 3, SW_CODEC_FOR},
    {SW_VALUE_U32, SW_NUMBERS_SORTED, 4, SW_CODEC_DFOR},
    {SW_VALUE_I64, SW_NUMBERS_SORTED, 9, SW_CODEC_DFOR},
    {SW_VALUE_I32, SW_NUMBERS_RUNS, 12, SW_CODEC_RFOR},
    {SW_VALUE_U64, SW_NUMBERS_RUNS, 15, SW_CODEC_RFOR},
    {SW_VALUE_U32, SW_NUMBERS_UNIFORM, 32, SW_CODEC_RAW},
    {SW_VALUE_I16, SW_NUMBERS_UNIFORM, 16, SW_CODEC_RAW},
    {SW_VALUE_I32, SW_NUMBERS_EQUAL, 0, SW_CODEC_RADIX},
    {SW_VALUE_U8, SW_NUMBERS_EQUAL, 0, SW_CODEC_FOR},
    {SW_VALUE_I64, SW_NUMBERS_ODD, 3, SW_CODEC_RADIX},
    {SW_VALUE_F64, SW_NUMBERS_ODD, 5, SW_CODEC_RADIX},
    {SW_VALUE_I64, SW_NUMBERS_ORDERS, 0, SW_CODEC_DRADIX},
    {SW_VALUE_F64, SW_NUMBERS_UNIFORM, 16, SW_CODEC_ALP},
    {SW_VALUE_F32, SW_NUMBERS_RARE, 16, SW_CODEC_ALP},
    {SW_VALUE_F64, SW_NUMBERS_OFTEN, 20, SW_CODEC_ALP},
    {SW_VALUE_F64, SW_NUMBERS_RUNS, 12, SW_CODEC_RFOR},
    {SW_VALUE_I64, SW_NUMBERS_FEW, 6, SW_CODEC_DICT},
    {SW_VALUE_U32, SW_NUMBERS_FEW, 7, SW_CODEC_DICT},
    {SW_VALUE_I16, SW_NUMBERS_FEW, 2, SW_CODEC_DICT},
    {SW_VALUE_U8, SW_NUMBERS_FEW, 1, SW_CODEC_DICT},
    {SW_VALUE_I32, SW_NUMBERS_STEPS, 12, SW_CODEC_SFOR},
    {SW_VALUE_U64, SW_NUMBERS_STEPS, 15, SW_CODEC_SFOR},
    {SW_VALUE_F64, SW_NUMBERS_FEW, 5, SW_CODEC_DICT},
    {SW_VALUE_U32, SW_NUMBERS_FEW, 12, SW_CODEC_RAW},
    {SW_VALUE_I64, SW_NUMBERS_FEW, 9, SW_CODEC_DICT},
    {SW_VALUE_U16, SW_NUMBERS_FEW, 5, SW_CODEC_DICT},
    {SW_VALUE_I32, SW_NUMBERS_OUTLIER, 12, SW_CODEC_PFOR},
    {SW_VALUE_U64, SW_NUMBERS_OUTLIER, 12, SW_CODEC_PFOR},
    {SW_VALUE_I32, SW_NUMBERS_RARE, 9, SW_CODEC_PFOR},
    {SW_VALUE_I64, SW_NUMBERS_MULTIPLES, 12, SW_CODEC_PFOR},
    {SW_VALUE_U32, SW_NUMBERS_MULTIPLES, 17, SW_CODEC_PFOR},
    {SW_VALUE_I32, SW_NUMBERS_SENTINEL, 8, SW_CODEC_PDFOR},
    {SW_VALUE_U64, SW_NUMBERS_SENTINEL, 8, SW_CODEC_PDFOR},
    {SW_VALUE_F8, SW_NUMBERS_WEIGHTS, 0, SW_CODEC_HUFFMAN},
    {SW_VALUE_BF16, SW_NUMBERS_WEIGHTS, 0, SW_CODEC_HUFFMAN},
    {SW_VALUE_F16, SW_NUMBERS_WEIGHTS, 0, SW_CODEC_HUFFMAN},
    {SW_VALUE_F32, SW_NUMBERS_WEIGHTS, 0, SW_CODEC_HUFFMAN},
    {SW_VALUE_DEC128, SW_NUMBERS_UNIFORM, 24, SW_CODEC_HUFFMAN},
    {SW_VALUE_DEC128, SW_NUMBERS_OUTLIER, 40, SW_CODEC_HUFFMAN},
    {SW_VALUE_BF16, SW_NUMBERS_FEW, 3, SW_CODEC_DICT},
    {SW_VALUE_U32, SW_NUMBERS_UNIFORM, 31, SW_CODEC_RAW}, /* 3 % are not worth the time */
};

START_TEST(test_choice) {
    const size_t bytes[] = {65536, 4 << 20};
    uint8_t *sample = malloc(SW_SAMPLE_MAX_BYTES);
    ck_assert_ptr_nonnull(sample);
    for (size_t i = 0; i < N_OF(bytes); i++) {
        uint8_t *data = new_column(choices[_i].type, choices[_i].kind, choices[_i].bits, bytes[i]);
        struct sw_plan plan;
        sw_plan_init_typed(&plan, choices[_i].type, sample,
                           sw_sample_gather(sample, data, bytes[i], SW_SAMPLE_LONG_PIECE_BYTES), bytes[i]);
        ck_assert_msg(plan.codec == choices[_i].codec, "%zu bytes: %s", bytes[i], sw_codec_name(plan.codec));
        if (plan.codec != SW_CODEC_RAW) {
            const double ratio = (double)bytes[i] / (double)round_trip(plan.codec, plan.value_type, data, bytes[i]);
            ck_assert_double_ge(ratio, 0.9 * plan.expected_ratio);
            ck_assert_double_le(ratio, (plan.codec == SW_CODEC_RFOR || plan.codec == SW_CODEC_SFOR ? 1.75 : 1.15) *
                                           plan.expected_ratio);
        }
        free(data);
    }
    free(sample);
}
END_TEST

/* Products have a range that a piece of the sample seldom has whole, but the sample has. */
START_TEST(test_prices_are_packed) {
    struct sw_tpch *tpch = sw_tpch_new(0.1, 1);
    ck_assert_ptr_nonnull(tpch);
    const uint64_t orders = sw_tpch_orders(tpch), rows = sw_tpch_rows(tpch, SW_L_EXTENDEDPRICE, 0, orders);
    uint8_t *data = malloc(sw_tpch_bound_bytes(SW_L_EXTENDEDPRICE, rows)), *sample = malloc(SW_SAMPLE_MAX_BYTES);
    ck_assert(data && sample);
    const uint64_t bytes = sw_tpch_fill(tpch, SW_L_EXTENDEDPRICE, 0, orders, data, NULL);
    struct sw_plan plan;
    sw_plan_init_typed(&plan, SW_VALUE_I64, sample, sw_sample_gather(sample, data, bytes, SW_SAMPLE_LONG_PIECE_BYTES),
                       bytes);
    ck_assert_msg(plan.codec == SW_CODEC_FOR, "%s", sw_codec_name(plan.codec));
    ck_assert_double_ge(plan.expected_ratio, 64 / 24.2);
    free(sample);
    free(data);
    sw_tpch_free(tpch);
}
END_TEST

/* Noise in one piece of the sample is an exception, not the rule. */
static const struct {
    enum sw_numbers kind;
    enum sw_codec_id codec;
} choices_with_an_odd_piece[] = {{SW_NUMBERS_STEPS, SW_CODEC_SFOR}, {SW_NUMBERS_RUNS, SW_CODEC_RFOR}};

START_TEST(test_choice_with_an_odd_piece) {
    enum { BYTES = 4 << 20 };
    uint8_t *data = new_column(SW_VALUE_I32, choices_with_an_odd_piece[_i].kind, 12, BYTES),
            *sample = malloc(SW_SAMPLE_MAX_BYTES);
    struct sw_plan plan;
    ck_assert_ptr_nonnull(sample);
    sw_numbers_fill(data + sw_sample_offset(BYTES, SW_SAMPLE_LONG_PIECE_BYTES, 4), 0, SW_SAMPLE_LONG_PIECE_BYTES,
                    SW_VALUE_I32, SW_NUMBERS_UNIFORM, 32, 1);
    sw_plan_init_typed(&plan, SW_VALUE_I32, sample, sw_sample_gather(sample, data, BYTES, SW_SAMPLE_LONG_PIECE_BYTES),
                       BYTES);
    ck_assert_msg(plan.codec == choices_with_an_odd_piece[_i].codec, "%s", sw_codec_name(plan.codec));
    free(data);
    free(sample);
}
END_TEST

START_TEST(test_refused_types) {
    uint8_t data[100] = {0}, frame[8192];
    uint64_t frame_bytes;
    struct sw_err err = {0};
    const struct sw_plan untyped = plan_of(SW_CODEC_FOR, SW_VALUE_NONE), unknown = plan_of(SW_CODEC_FOR, SW_VALUE_NR),
                         typed = {.codec = SW_CODEC_RAW, .segment_log2 = 10, .value_type = SW_VALUE_U8},
                         integer = plan_of(SW_CODEC_ALP, SW_VALUE_I64);
    const struct sw_plan *const plans[] = {&untyped, &unknown, &typed, &integer};
    for (size_t i = 0; i < N_OF(plans); i++)
        ck_assert_int_eq(sw_codec_encode(plans[i], data, sizeof data, frame, sizeof frame, &frame_bytes, &err),
                         -SW_EINVAL);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codec_numbers");
    TCase *tests = tcase_create("all"), *choice = tcase_create("choice");
    tcase_add_loop_test(tests, test_every_width, 1, SW_VALUE_NR);
    tcase_add_loop_test(tests, test_every_kind_and_count, 0, (SW_VALUE_NR - 1) * SW_NUMBERS_NR);
    tcase_add_loop_test(tests, test_any_content, 1, SW_VALUE_NR);
    tcase_add_test(tests, test_outliers_cost_their_vector);
    tcase_add_loop_test(tests, test_alignment, 0, SW_CODEC_NR);
    tcase_add_loop_test(choice, test_choice, 0, (int)N_OF(choices));
    tcase_add_test(choice, test_prices_are_packed);
    tcase_add_loop_test(choice, test_choice_with_an_odd_piece, 0, (int)N_OF(choices_with_an_odd_piece));
    tcase_add_test(tests, test_refused_types);
    suite_add_tcase(suite, tests);
    suite_add_tcase(suite, choice);
    return sw_test_run(suite, CK_FORK);
}

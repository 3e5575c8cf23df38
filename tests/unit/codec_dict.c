/* Dictionaries: their number of values, unknown values, and invalid dictionaries. codec_numbers.c tests the common
 * parts of all codecs of numbers. */
#include "codec/bitpack/bitpack.h"
#include "codec/codec.h"
#include "codec/plan/plan.h"
#include "tests/lib/content.h"
#include "tests/lib/frames.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Header, record, counts of a tile, and padding before the data. */
#define HEAD_BYTES (64 + 16 + SW_NUMBERS_COUNT_BYTES(0, true) + 127)
#define MAX_VALUES 20000

/* A column in the making. */
struct column {
    enum sw_value_type type;
    size_t n;
    uint8_t data[8 * MAX_VALUES];
};

static struct column *column_new(int type) {
    struct column *c = malloc(sizeof *c);
    ck_assert_ptr_nonnull(c);
    c->type = (enum sw_value_type)type;
    c->n = 0;
    return c;
}

static size_t column_bytes(const struct column *c) {
    return c->n * sw_value_type_bytes(c->type);
}

static void put(struct column *c, uint64_t bits) {
    const size_t value_bytes = sw_value_type_bytes(c->type);
    memcpy(c->data + value_bytes * c->n++, &bits, value_bytes);
}

static struct sw_plan plan_of(const struct column *c, size_t sample_bytes) {
    struct sw_plan plan;
    ck_assert(sw_plan_init_numbers(&plan, SW_CODEC_DICT, c->type));
    sw_plan_learn(&plan, c->data, sample_bytes);
    return plan;
}

/* Different numbers for different i below the type's: they lie all over its range. */
static uint64_t spread(const struct column *c, uint64_t i) {
    return i * 0x9E3779B97F4A7C15u << (64 - sw_value_bits(c->type)) >> (64 - sw_value_bits(c->type));
}

/* Every number of values: they take as few bits as there are codes, and 256 leave one of them without a code. */
START_TEST(test_every_number_of_values) {
    static const unsigned numbers[] = {1, 2, 3, 4, 5, 16, 17, 127, 128, 129, 254, 255, 256, 257};
    const unsigned bits = sw_value_bits((unsigned)_i), most = bits == 8 ? 128 : 255;
    for (size_t n = 0; n < sizeof numbers / sizeof numbers[0]; n++) {
        struct column *c = column_new(_i);
        while (c->n < 4096)
            put(c, spread(c, c->n % numbers[n]));
        const struct sw_plan plan = plan_of(c, column_bytes(c));
        const unsigned known = plan.params.n_symbols, width = known > 1 ? sw_width_of(known - 1) : 0;
        if (numbers[n] <= most && bits > 8) /* one value too many for 7 bits is cheaper as exceptions */
            ck_assert(known == numbers[n] || (numbers[n] == 129 && known == 128));
        ck_assert_uint_le(known, most);
        for (unsigned i = 0; i + 1 < known; i++)
            ck_assert_uint_lt(plan.params.value[i], plan.params.value[i + 1]);
        const uint64_t frame_bytes = sw_frame_round_trip(&plan, c->data, column_bytes(c));
        if (numbers[n] == known)
            ck_assert_uint_le(frame_bytes, HEAD_BYTES + 9 * known + 16 + (uint64_t)4 * 128 * width);
        free(c);
    }
}
END_TEST

/* The frequent ones of many values have codes. */
START_TEST(test_frequent_values) {
    struct column *c = column_new(_i);
    uint64_t state = 1;
    while (c->n < 8192)
        put(c, sw_random(&state) % 50 ? spread(c, sw_random(&state) % 4) : sw_random(&state));
    const struct sw_plan plan = plan_of(c, column_bytes(c));
    ck_assert_uint_eq(plan.params.n_symbols, 4);
    const uint64_t frame_bytes = sw_frame_round_trip(&plan, c->data, column_bytes(c));
    ck_assert_uint_le(frame_bytes, column_bytes(c) / 2 + 128);
    free(c);
}
END_TEST

/* A column of which the plan knows nothing, and one of which it knows all but the last value. */
START_TEST(test_unknown_values) {
    struct column *c = column_new(_i);
    for (unsigned i = 0; i < 1024; i++)
        put(c, spread(c, i % 7));
    const size_t known_bytes = column_bytes(c);
    for (unsigned i = 0; i < 5000; i++)
        put(c, spread(c, 100 + i % 7));
    const struct sw_plan plan = plan_of(c, known_bytes);
    (void)sw_frame_round_trip(&plan, c->data, column_bytes(c));
    (void)sw_frame_round_trip(&plan, c->data, known_bytes + sw_value_type_bytes(c->type));
    for (size_t bytes = known_bytes - 9; bytes < known_bytes + 9; bytes++) /* values that are not whole */
        (void)sw_frame_round_trip(&plan, c->data, bytes);
    free(c);
}
END_TEST

/* A vector of codes that are digits has up to 255 exceptions. */
START_TEST(test_most_exceptions) {
    const enum sw_codec_id codec = _i ? SW_CODEC_DRADIX : SW_CODEC_RADIX;
    for (unsigned exceptions = 254; exceptions <= 257; exceptions++) {
        struct column *c = column_new(SW_VALUE_U64);
        struct sw_plan plan;
        uint64_t sum = 0;
        for (unsigned i = 0; i < 5 * SW_VECTOR_VALUES; i++) {
            const unsigned at = i % SW_VECTOR_VALUES;
            const bool is_known = i < 4 * SW_VECTOR_VALUES || at % 3 || at >= 3 * exceptions;
            const uint64_t value = is_known ? i % 5 : spread(c, i);
            sum += value;
            put(c, codec == SW_CODEC_RADIX ? value : sum);
        }
        ck_assert(sw_plan_init_numbers(&plan, codec, c->type));
        sw_plan_learn(&plan, c->data, (size_t)4 * 8 * SW_VECTOR_VALUES);
        ck_assert_uint_eq(plan.params.n_symbols, 5);
        const uint64_t frame_bytes = sw_frame_round_trip(&plan, c->data, column_bytes(c));
        ck_assert_uint_lt(frame_bytes, column_bytes(c) / 2);
        free(c);
    }
}
END_TEST

/* Too many for a dictionary: nothing is learnt, and the frame is raw. */
START_TEST(test_no_dictionary) {
    struct column *c = column_new(SW_VALUE_U32);
    while (c->n < MAX_VALUES)
        put(c, spread(c, c->n));
    struct sw_plan plan = plan_of(c, column_bytes(c));
    ck_assert_uint_eq(plan.params.n_symbols, 0);
    (void)sw_frame_round_trip(&plan, c->data, column_bytes(c));
    plan = plan_of(c, 0);
    ck_assert_uint_eq(plan.params.n_symbols, 0);
    c->n = 0;
    while (c->n < MAX_VALUES) /* also if half of the values are one */
        put(c, c->n % 2 ? 5 : spread(c, c->n));
    plan = plan_of(c, column_bytes(c));
    ck_assert_uint_eq(plan.params.n_symbols, 0);
    free(c);
}
END_TEST

/* Bit patterns, not numbers: zeros of both signs, infinities and every NaN are values of their own. */
START_TEST(test_special_floats) {
    static const uint64_t f64[] = {0,
                                   0x8000000000000000,
                                   0x7FF0000000000000,
                                   0xFFF0000000000000,
                                   0x7FF8000000000000,
                                   0x7FF0000000000001,
                                   0xFFFFFFFFFFFFFFFF,
                                   1};
    static const uint64_t f32[] = {0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF, 1};
    struct column *c = column_new(_i);
    while (c->n < 3000)
        put(c, (_i == SW_VALUE_F64 ? f64 : f32)[c->n * c->n % 11 % 8]);
    const struct sw_plan plan = plan_of(c, column_bytes(c));
    ck_assert_uint_ge(plan.params.n_symbols, 5);
    (void)sw_frame_round_trip(&plan, c->data, column_bytes(c));
    free(c);
}
END_TEST

/* The greatest value has the bits that fill an unfinished dictionary. */
START_TEST(test_all_ones) {
    for (unsigned known = 0; known < 2; known++) {
        struct column *c = column_new(_i);
        for (unsigned i = 0; i < 512; i++)
            put(c, known ? ~(uint64_t)0 - i % 5 : i % 5);
        const size_t sample_bytes = column_bytes(c);
        for (unsigned i = 0; i < 100; i++)
            put(c, ~(uint64_t)0);
        const struct sw_plan plan = plan_of(c, sample_bytes);
        (void)sw_frame_round_trip(&plan, c->data, column_bytes(c));
        free(c);
    }
}
END_TEST

static void rehash(uint8_t *frame, uint32_t n_symbols) {
    struct sw_frame_header h;
    memcpy(&h, frame, sizeof h);
    h.header_hash =
        sw_hash_finish(sw_hash_update(sw_hash_update(0, frame, offsetof(struct sw_frame_header, header_hash)),
                                      frame + sizeof h, (9 * (size_t)n_symbols + 15) / 16 * 16));
    memcpy(frame, &h, sizeof h);
}

/* A dictionary of values of another length is refused; another value in it is found by the tiles' hash. */
START_TEST(test_damaged_dictionary) {
    struct column *c = column_new(SW_VALUE_I32);
    while (c->n < 2000)
        put(c, spread(c, c->n % 9));
    const struct sw_plan plan = plan_of(c, column_bytes(c));
    const uint64_t bound = sw_frame_bound_bytes(column_bytes(c));
    uint8_t *frame = malloc(bound), *out = malloc(column_bytes(c));
    uint64_t frame_bytes, raw_bytes;
    ck_assert(frame && out);
    ck_assert_int_eq(sw_codec_encode(&plan, c->data, column_bytes(c), frame, bound, &frame_bytes, NULL), 0);
    for (unsigned i = 0; i < 9; i++) {
        uint8_t *const length = &frame[SW_FRAME_HEADER_BYTES + 8 * 9 + i];
        for (uint8_t bytes = 0; bytes < 10; bytes++) {
            *length = bytes;
            rehash(frame, 9);
            ck_assert_int_eq(sw_codec_decode(frame, frame_bytes, out, column_bytes(c), &raw_bytes, NULL),
                             bytes == 4 ? 0 : -SW_EFRAME);
        }
        *length = 4;
    }
    frame[SW_FRAME_HEADER_BYTES + 8]++;
    rehash(frame, 9);
    ck_assert_int_eq(sw_codec_decode(frame, frame_bytes, out, column_bytes(c), &raw_bytes, NULL), -SW_ECHECKSUM);
    free(out);
    free(frame);
    free(c);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codec_dict");
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, test_every_number_of_values, 1, SW_VALUE_DEC128);
    tcase_add_loop_test(tests, test_frequent_values, 1, SW_VALUE_DEC128);
    tcase_add_loop_test(tests, test_unknown_values, 1, SW_VALUE_DEC128);
    tcase_add_loop_test(tests, test_most_exceptions, 0, 2);
    tcase_add_test(tests, test_no_dictionary);
    tcase_add_loop_test(tests, test_special_floats, SW_VALUE_F32, SW_VALUE_F64 + 1);
    tcase_add_loop_test(tests, test_all_ones, 1, SW_VALUE_DEC128);
    tcase_add_test(tests, test_damaged_dictionary);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

/* Codecs with exceptions, pfor and pdfor: how few bits they take, and which steps they learn. And sequences whose
 * beginnings take all bits. */
#include "codec/codec.h"
#include "codec/pfor/grid.h"
#include "codec/pfor/patched.h"
#include "codec/plan/plan.h"
#include "tests/lib/content.h"
#include "tests/lib/numbers.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define N_OF(array) (sizeof(array) / sizeof(array)[0])

/* Encodes and decodes; returns the bits that a value takes. */
static double bits_per_value(const struct sw_plan *plan, const void *data, size_t bytes) {
    const uint64_t bound = sw_frame_bound_bytes(bytes);
    uint64_t frame_bytes = 0, raw_bytes = 0;
    uint8_t *frame = malloc(bound), *out = malloc(bytes);
    ck_assert(frame && out);
    ck_assert_int_eq(sw_codec_encode(plan, data, bytes, frame, bound, &frame_bytes, NULL), 0);
    ck_assert_int_eq(sw_codec_decode(frame, frame_bytes, out, bytes, &raw_bytes, NULL), 0);
    ck_assert_uint_eq(raw_bytes, bytes);
    ck_assert(memcmp(out, data, bytes) == 0);
    free(frame);
    free(out);
    return (double)frame_bytes * sw_value_bits(plan->value_type) / (double)bytes;
}

static double bits_when_planned(enum sw_value_type type, const void *data, size_t bytes) {
    uint8_t *sample = malloc(SW_SAMPLE_MAX_BYTES);
    struct sw_plan plan;
    ck_assert_ptr_nonnull(sample);
    sw_plan_init_typed(&plan, type, sample, sw_sample_gather(sample, data, bytes, SW_SAMPLE_LONG_PIECE_BYTES), bytes);
    free(sample);
    return bits_per_value(&plan, data, bytes);
}

static const struct {
    enum sw_value_type type;
    enum sw_numbers kind;
    unsigned bits;
    double most;
} columns[] = {
    {SW_VALUE_I32, SW_NUMBERS_OUTLIER, 12, 12.4},   {SW_VALUE_I64, SW_NUMBERS_OUTLIER, 12, 12.4},
    {SW_VALUE_I32, SW_NUMBERS_SENTINEL, 8, 8.2},    {SW_VALUE_U64, SW_NUMBERS_SENTINEL, 8, 8.5},
    {SW_VALUE_I64, SW_NUMBERS_MULTIPLES, 12, 12.3}, {SW_VALUE_U32, SW_NUMBERS_MULTIPLES, 17, 17.3},
    {SW_VALUE_I32, SW_NUMBERS_RARE, 9, 9.8},        {SW_VALUE_I32, SW_NUMBERS_OFTEN, 9, 12},
};

START_TEST(few_bits_with_exceptions) {
    const size_t bytes = (size_t)8 << 20 | 1234 * 8;
    uint8_t *data = malloc(bytes);
    ck_assert_ptr_nonnull(data);
    sw_numbers_fill(data, 0, bytes, columns[_i].type, columns[_i].kind, columns[_i].bits, 5);
    const double bits = bits_when_planned(columns[_i].type, data, bytes);
    ck_assert_msg(bits <= columns[_i].most, "%.3f bits, wanted at most %.3f", bits, columns[_i].most);
    free(data);
}
END_TEST

/* An outlier costs its own bytes, on either side, in any lane, and also if there are some in each vector. */
START_TEST(outliers_cost_their_own_bits) {
    enum { VALUES = 1 << 16 };
    static const int64_t outliers[] = {INT64_MAX, INT64_MIN};
    int64_t *data = malloc(VALUES * sizeof *data);
    uint64_t state = 1;
    ck_assert_ptr_nonnull(data);
    for (unsigned each = 1; each <= 16; each *= 2) {
        sw_numbers_fill(data, 0, VALUES * sizeof *data, SW_VALUE_I64, SW_NUMBERS_UNIFORM, 10, 7);
        for (size_t vector = 0; vector < VALUES / 1024; vector++)
            for (unsigned i = 0; i < each; i++)
                data[vector * 1024 + sw_random(&state) % 1024] = outliers[_i < 2 ? (unsigned)_i : i % 2];
        const struct sw_plan plan = {.codec = SW_CODEC_PFOR, .segment_log2 = 10, .value_type = SW_VALUE_I64};
        ck_assert_double_le(bits_per_value(&plan, data, VALUES * sizeof *data), 10.3 + each * 80.0 / 1024);
    }
    free(data);
}
END_TEST

/* Lanes without numbers, which are not on the grid, do not hide that another lane has an outlier. */
START_TEST(lanes_may_be_empty) {
    struct sw_patched_numbers numbers = {.bits = 32, .is_in_order = _i};
    const unsigned in_lane = SW_VECTOR_VALUES / SW_VECTOR_LANES;
    for (unsigned i = 0; i < SW_VECTOR_VALUES / 4; i++) { /* eight lanes */
        const unsigned at = _i ? i : i / in_lane * 128 + i % in_lane;
        numbers.number[at] = i == 77 ? 1u << 30 : 1000 + i % 50;
        numbers.is_there[at] = true;
        numbers.n++;
    }
    const struct sw_patched best = sw_patched_choose(&numbers);
    ck_assert_uint_eq(best.n_packed, numbers.n - 1);
    ck_assert_uint_le(best.width, 6);
}
END_TEST

/* The multiples of a step, also of signed and odd values, and with a residue. */
START_TEST(steps_are_learned) {
    enum { VALUES = 1 << 14 };
    static const uint64_t steps[] = {2, 3, 40, 1000, 86400, 65536, 86400000000000, (uint64_t)3 << 60};
    uint64_t *data = malloc(VALUES * sizeof *data), state = 9;
    struct sw_params params = {.n_symbols = 0};
    struct sw_grid grid;
    const uint64_t step = steps[_i % (int)N_OF(steps)];
    const enum sw_value_type type = _i < (int)N_OF(steps) ? SW_VALUE_U64 : SW_VALUE_I64;
    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < VALUES; i++) /* a few steps only: more would be past 64 bits */
        data[i] = 17 + step * (sw_random(&state) % (step >> 60 ? 4 : 5000)) + (type == SW_VALUE_I64 ? -step : 0);
    data[VALUES / 2] += 1; /* one value that is not a multiple does not spoil it */
    sw_grid_learn(&params, data, VALUES * sizeof *data, type);
    sw_grid_init(&grid, params.own, 64);
    ck_assert_uint_eq(grid.divisor, step);
    for (size_t i = 0; i < VALUES; i++) {
        const uint64_t value = data[i] ^ (uint64_t)(type == SW_VALUE_I64) << 63;
        uint64_t k;
        ck_assert_int_eq(sw_grid_find(&grid, 64, value, &k), i != VALUES / 2);
        ck_assert(i == VALUES / 2 || k * step + grid.residue == value);
    }
    free(data);
}
END_TEST

/* Where a column ceases to be multiples, vectors are packed without the step. */
START_TEST(vectors_without_multiples) {
    enum { VALUES = 1 << 15 };
    uint32_t *data = malloc(VALUES * sizeof *data);
    struct sw_plan plan = {.codec = SW_CODEC_PFOR, .segment_log2 = 10, .value_type = SW_VALUE_U32};
    ck_assert_ptr_nonnull(data);
    sw_numbers_fill(data, 0, VALUES * sizeof *data, SW_VALUE_U32, SW_NUMBERS_MULTIPLES, 8, 3);
    sw_plan_learn(&plan, data, 4096);
    sw_numbers_fill(data + VALUES / 2, 0, VALUES / 2 * sizeof *data, SW_VALUE_U32, SW_NUMBERS_UNIFORM, 8, 3);
    ck_assert_double_le(bits_per_value(&plan, data, VALUES * sizeof *data), 8.3);
    free(data);
}
END_TEST

/* Pieces of multiples of 40: one of 16 may be off, and one that lies on a finer grid does not make all finer. Half of
 * them are too few. */
START_TEST(steps_are_those_of_most_pieces) {
    enum { PIECE = SW_SAMPLE_LONG_PIECE_BYTES / 4, PIECES = 16 };
    static const struct {
        unsigned off, finer;
        uint64_t divisor;
    } samples[] = {{0, 0, 40}, {1, 0, 40}, {0, 1, 40}, {8, 0, 1}};
    for (size_t k = 0; k < N_OF(samples); k++) {
        static uint32_t values[PIECES * PIECE];
        struct sw_params params = {.n_symbols = 0};
        uint64_t state = k + 1, divisor;
        for (unsigned i = 0; i < PIECES * PIECE; i++) {
            const unsigned piece = PIECES - 1 - i / PIECE; /* the last ones are different */
            const uint32_t step = piece < samples[k].off ? 1 : piece < samples[k].finer ? 20 : 40;
            values[i] = (uint32_t)(sw_random(&state) % 10000) * step;
        }
        sw_grid_learn(&params, values, sizeof values, SW_VALUE_U32);
        memcpy(&divisor, params.own, sizeof divisor);
        ck_assert_uint_eq(divisor, samples[k].divisor);
    }
}
END_TEST

/* Few sequences, whose beginnings are as far apart as values can be: their width means something else. */
START_TEST(sequences_of_the_whole_range) {
    static uint32_t values[3 * SW_VECTOR_VALUES];
    struct sw_plan plan;
    for (uint32_t i = 0; i < sizeof values / sizeof values[0]; i++)
        values[i] = (i / 300 % 2 ? 0xFFFF0000u : 0) + i;
    ck_assert(sw_plan_init_numbers(&plan, SW_CODEC_SFOR, _i ? SW_VALUE_I32 : SW_VALUE_U32));
    ck_assert_double_le(bits_per_value(&plan, values, sizeof values), 33);
    for (uint32_t i = 0; i < sizeof values / sizeof values[0]; i++)
        values[i] ^= 0x80000000u;
    ck_assert_double_le(bits_per_value(&plan, values, sizeof values), 33);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codec_patched");
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, sequences_of_the_whole_range, 0, 2);
    tcase_add_loop_test(tests, few_bits_with_exceptions, 0, (int)N_OF(columns));
    tcase_add_loop_test(tests, outliers_cost_their_own_bits, 0, 3);
    tcase_add_loop_test(tests, lanes_may_be_empty, 0, 2);
    tcase_add_loop_test(tests, steps_are_learned, 0, 16);
    tcase_add_test(tests, vectors_without_multiples);
    tcase_add_test(tests, steps_are_those_of_most_pieces);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

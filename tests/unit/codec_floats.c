/* Floats as decimals: every number of places, special values, every number of exceptions, and malformed vectors.
 * codec_numbers.c tests the common parts of all codecs of numbers. */
#include "codec/alprd/alprd_core.h"
#include "codec/codec.h"
#include "tests/lib/content.h"
#include "tests/lib/frames.h"
#include "tests/lib/run.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const enum sw_value_type types[] = {SW_VALUE_F32, SW_VALUE_F64};
/* Header, record, counts of a tile, and padding before the data. */
#define HEAD_BYTES (64 + 16 + SW_FLOATS_COUNT_BYTES(1) + 127)

static struct sw_plan plan_of(enum sw_codec_id codec, enum sw_value_type type) {
    return (struct sw_plan){.codec = codec, .segment_log2 = SW_NUMBERS_SEGMENT_LOG2, .value_type = type};
}

/* A column in the making. */
struct column {
    enum sw_value_type type;
    size_t n;
    uint8_t data[8 * 70000];
};

static void put(struct column *c, double value) {
    const float narrow = (float)value;
    if (c->type == SW_VALUE_F64)
        memcpy(c->data + 8 * c->n++, &value, sizeof value);
    else
        memcpy(c->data + 4 * c->n++, &narrow, sizeof narrow);
}

static void put_bits(struct column *c, uint64_t bits) {
    const size_t value_bytes = sw_value_bits(c->type) / 8;
    memcpy(c->data + value_bytes * c->n++, &bits, value_bytes);
}

static uint64_t round_trip(const struct column *c, enum sw_codec_id codec) {
    const struct sw_plan plan = plan_of(codec, c->type);
    return sw_frame_round_trip(&plan, c->data, c->n * sw_value_bits(c->type) / 8);
}

/* Returns the bytes of a vector whose numbers have `width` bits. */
static size_t packed_bytes(enum sw_value_type type, unsigned width, unsigned exceptions) {
    return sw_alp_units(sw_value_bits(type), width, sw_alp_tag(0, exceptions)) * (size_t)SW_UNIT_BYTES;
}

static struct column *column_new(int type) {
    struct column *c = malloc(sizeof *c);
    ck_assert_ptr_nonnull(c);
    c->type = types[type];
    c->n = 0;
    return c;
}

/* Decimals of so many places are numbers of few bits, none of them an exception. */
START_TEST(test_every_place) {
    const int places = _i / 2 + SW_ALP_LEAST_PLACES;
    struct column *c = column_new(_i % 2);
    const double power = pow(10, abs(places));
    uint64_t state = (uint64_t)_i;
    if ((unsigned)(_i / 2) < sw_alp_choices(sw_value_bits(c->type)) && places <= 15) {
        while (c->n < SW_VECTOR_VALUES) {
            const int number = (int)(sw_random(&state) % 50001) - 25000;
            if (c->type == SW_VALUE_F32)
                put(c, places < 0 ? number * power : (double)((float)number / (float)power));
            else
                put(c, places < 0 ? number * power : number / power);
        }
        ck_assert_uint_le(round_trip(c, SW_CODEC_ALP), HEAD_BYTES + packed_bytes(c->type, 16, 0));
    }
    free(c);
}
END_TEST

/* All the numbers that fit, and the first that do not. */
START_TEST(test_greatest_numbers) {
    struct column *c = column_new(_i % 2);
    for (int shift = 0; shift < 64; shift++)
        for (int64_t near = -3; near <= 3; near++) {
            const double number = (double)(((uint64_t)1 << shift) + (uint64_t)near);
            put(c, number);
            put(c, -number);
            put(c, number / 100);
            put(c, -number / 1e15);
        }
    (void)round_trip(c, SW_CODEC_ALP);
    free(c);
}
END_TEST

static uint64_t special(enum sw_value_type type, uint64_t i, uint64_t *state) {
    const unsigned bits = sw_value_bits(type), fraction = bits == 64 ? 52 : 23;
    const uint64_t infinity = (((uint64_t)1 << (bits - 1 - fraction)) - 1) << fraction;
    const uint64_t low = ((uint64_t)1 << fraction) - 1, sign = (i / 8 % 2) << (bits - 1), draw = sw_random(state) & low;
    const uint64_t kinds[8] = {0, infinity, infinity | draw, infinity | 1, 1, draw, low, infinity - 1};
    return sign | kinds[i % 8];
}

/* Zeros of both signs, infinities, NaNs with their payloads, denormals and the greatest values: alone, among decimals,
 * and at both ends of a vector. */
START_TEST(test_special_values) {
    static const unsigned rarities[] = {1, 2, 7, 50, 1024, 3000};
    static const size_t counts[] = {1, 2, 31, 100, 1023, 1024, 1025, 5000, 9000};
    struct column *c = column_new(_i % 2);
    uint64_t state = 5;
    for (size_t r = 0; r < sizeof rarities / sizeof rarities[0]; r++)
        for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
            for (c->n = 0; c->n < counts[n];)
                if (c->n % rarities[r] == 0)
                    put_bits(c, special(c->type, c->n / rarities[r], &state));
                else
                    put(c, (double)(sw_random(&state) % 1000) / 10);
            (void)round_trip(c, SW_CODEC_ALP);
            (void)round_trip(c, SW_CODEC_ALPRD);
        }
    free(c);
}
END_TEST

/* A vector has decimals and any number of exceptions anywhere, and takes the expected bytes. */
START_TEST(test_every_count_of_exceptions) {
    struct column *c = column_new(_i % 2);
    const size_t raw_bytes = sw_vector_bytes(sw_value_bits(c->type));
    uint64_t state = 9;
    for (unsigned exceptions = 0; exceptions <= SW_VECTOR_VALUES; exceptions += exceptions < 70 ? 1 : 53) {
        unsigned left = exceptions;
        for (c->n = 0; c->n < SW_VECTOR_VALUES;) {
            if (sw_random(&state) % (SW_VECTOR_VALUES - c->n) < left) {
                put_bits(c, special(c->type, 2, &state) | 1);
                left--;
            } else {
                put(c, (double)(sw_random(&state) % 4096) / 100);
            }
        }
        const size_t bytes = packed_bytes(c->type, 12, exceptions);
        ck_assert_uint_le(round_trip(c, SW_CODEC_ALP), HEAD_BYTES + (bytes < raw_bytes ? bytes : raw_bytes));
    }
    free(c);
}
END_TEST

/* Outliers do not make the other numbers wider. */
START_TEST(test_far_numbers) {
    struct column *c = column_new(_i % 2);
    uint64_t state = 3;
    while (c->n < SW_VECTOR_VALUES)
        if (c->n % 200 == 77)
            put(c, (c->n & 1 ? 1e6 : -1e6) + (double)c->n);
        else
            put(c, (double)(sw_random(&state) % 256) / 4);
    ck_assert_uint_le(round_trip(c, SW_CODEC_ALP), HEAD_BYTES + packed_bytes(c->type, 13, 5));
    free(c);
}
END_TEST

/* Numbers with fractions of all bits: of few exponents, alone, and with any others besides. */
START_TEST(test_reals) {
    struct column *c = column_new(_i % 2);
    const unsigned bits = sw_value_bits(c->type), exponents = 1u << _i / 2;
    uint64_t state = (uint64_t)_i;
    for (unsigned others = 0; others < 300; others += 1 + others * 2) {
        unsigned left = others;
        for (c->n = 0; c->n < SW_VECTOR_VALUES;) {
            const double fraction = 1 + (double)(sw_random(&state) >> 12) / 0x1p52;
            if (sw_random(&state) % (SW_VECTOR_VALUES - c->n) >= left) {
                put(c, ldexp(fraction, (int)(c->n % exponents)));
            } else {
                put_bits(c, sw_random(&state));
                left--;
            }
        }
        /* A bit for each value and for each doubling of the exponents, or exceptions. */
        const unsigned width = bits - (bits == 64 ? 12 : 9);
        const size_t most = sw_alprd_units(bits, width + 1, sw_alprd_tag((unsigned)_i / 2, others)) * (size_t)16;
        ck_assert_uint_le(round_trip(c, SW_CODEC_ALPRD), HEAD_BYTES + most + 256 * (size_t)(others > 0));
    }
    free(c);
}
END_TEST

/* The last vector lacks values, which count as its first one. If that is an exception, they are none. */
START_TEST(test_missing_values_are_no_exceptions) {
    struct column *c = column_new(_i);
    const unsigned bits = sw_value_bits(c->type), mantissa = bits == 64 ? 52 : 23;
    uint64_t state = 3;
    for (unsigned n = SW_VECTOR_VALUES - 40; n < SW_VECTOR_VALUES; n += 3) {
        c->n = 0;
        for (unsigned i = 0; i < n; i++) /* of eight exponents, the most that have a code; the first value of a ninth */
            put_bits(c, (uint64_t)(i ? 64 + i % 8 : 1) << mantissa | sw_random(&state) >> (64 - mantissa));
        ck_assert_uint_lt(round_trip(c, SW_CODEC_ALPRD), n * bits / 8);
    }
    free(c);
}
END_TEST

/* Vectors that no encoder writes are refused. */
START_TEST(test_malformed) {
    struct column *c = column_new(_i % 2);
    const struct sw_plan plan = plan_of(SW_CODEC_ALP, c->type);
    const size_t value_bytes = sw_value_bits(c->type) / 8, bytes = SW_VECTOR_VALUES * value_bytes;
    const uint64_t bound = sw_frame_bound_bytes(bytes);
    uint8_t *frame = malloc(bound), *out = malloc(bytes);
    uint64_t frame_bytes, raw_bytes;
    struct sw_frame_layout layout;
    ck_assert(frame && out);
    while (c->n < SW_VECTOR_VALUES)
        if (c->n % 100 == 50)
            put(c, NAN);
        else
            put(c, (double)c->n / 10);
    ck_assert_int_eq(sw_codec_encode(&plan, c->data, bytes, frame, bound, &frame_bytes, NULL), 0);
    ck_assert_int_eq(sw_frame_parse(&layout, frame, frame_bytes, frame_bytes, NULL), 0);
    uint8_t *width = frame + layout.counts_offset + SW_TILE_BASES_BYTES, *tag = width + SW_TILE_MAX_FLOAT_VECTORS;
    uint8_t *place = frame + layout.data_offset + *width * 128u + 10 * value_bytes;
    const struct {
        uint8_t *at;
        uint16_t value;
    } changes[] = {
        {tag, (uint16_t)sw_alp_tag(0, 1025)},
        {tag, (uint16_t)sw_alp_tag(sw_alp_choices(sw_value_bits(c->type)), 10)},
        {tag, (uint16_t)sw_alp_tag(8, 900)}, /* would take more than the content */
        {width, (uint16_t)(sw_alp_max_width(sw_value_bits(c->type)) + 1)},
        {place, 1024},
        {place, 0xFFFF},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        uint8_t old[2];
        memcpy(old, changes[i].at, sizeof old);
        memcpy(changes[i].at, &changes[i].value, sizeof old);
        ck_assert_int_eq(sw_codec_decode(frame, frame_bytes, out, bytes, &raw_bytes, NULL), -SW_EFRAME);
        memcpy(changes[i].at, old, sizeof old);
    }
    ck_assert_int_eq(sw_codec_decode(frame, frame_bytes, out, bytes, &raw_bytes, NULL), 0);
    free(frame);
    free(out);
    free(c);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codec_floats");
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, test_every_place, 0, 2 * SW_ALP_F64_CHOICES);
    tcase_add_loop_test(tests, test_greatest_numbers, 0, 2);
    tcase_add_loop_test(tests, test_special_values, 0, 2);
    tcase_add_loop_test(tests, test_every_count_of_exceptions, 0, 2);
    tcase_add_loop_test(tests, test_far_numbers, 0, 2);
    tcase_add_loop_test(tests, test_reals, 0, 8);
    tcase_add_loop_test(tests, test_missing_values_are_no_exceptions, 0, 2);
    tcase_add_loop_test(tests, test_malformed, 0, 2);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

#include "tests/lib/numbers.h"

#include "codec/bitpack/bitpack_core.h"
#include "tests/lib/content.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_VALUES 65536
#define STRETCH_VALUES 1500 /* of one kind, in mixed columns */

/* A column in the making: its parameters and where it stands. */
struct column {
    unsigned value_bits, bits;
    unsigned exponent_bits; /* of floats; 0: integers */
    uint64_t least, greatest, middle, seed, state, value, rows_left;
};

static uint64_t low_bits(uint64_t v, unsigned bits) {
    return bits >= 64 ? v : v & (((uint64_t)1 << bits) - 1);
}

static unsigned exponent_bits_of(enum sw_value_type type) {
    switch (type) {
    case SW_VALUE_F64:
        return 11;
    case SW_VALUE_F32:
    case SW_VALUE_BF16:
        return 8;
    case SW_VALUE_F16:
        return 5;
    case SW_VALUE_F8:
        return 4;
    default:
        return 0;
    }
}

static struct column column_of(enum sw_value_type type, unsigned bits, uint64_t seed) {
    const unsigned type_bits = sw_value_bits(type), value_bits = type_bits < 64 ? type_bits : 64;
    const uint64_t top = (uint64_t)1 << (value_bits - 1);
    const bool is_signed = type >= SW_VALUE_F32 || sw_value_is_signed(type);
    return (struct column){
        .value_bits = value_bits,
        .bits = bits,
        .exponent_bits = exponent_bits_of(type),
        .least = is_signed ? top : 0,
        .greatest = is_signed ? top - 1 : low_bits(~(uint64_t)0, value_bits),
        .middle = is_signed ? low_bits(-(uint64_t)(bits ? low_bits(seed, bits) / 2 : 3), value_bits) : top / 4,
        .seed = seed,
    };
}

/* Value `i` of a block; the column stands at it. */
static uint64_t next_value(struct column *c, enum sw_numbers kind, uint64_t i) {
    const uint64_t draw = low_bits(sw_random(&c->state), c->bits);
    switch (kind) {
    case SW_NUMBERS_EQUAL:
        return c->middle;
    case SW_NUMBERS_EXTREMES:
        return i % 2 ? c->greatest : c->least;
    case SW_NUMBERS_OUTLIER:
        return i % 1024 == c->seed % 1024 ? c->greatest : c->middle + draw;
    case SW_NUMBERS_SORTED:
        return c->value += draw;
    case SW_NUMBERS_NEARLY:
        return c->value += i % 37 ? draw : -(draw / 2);
    case SW_NUMBERS_FALLING:
        return c->value -= draw;
    case SW_NUMBERS_SENTINEL:
        c->value += draw;
        return i % 1024 == c->seed % 1024 ? c->greatest : c->value;
    case SW_NUMBERS_MULTIPLES:
        return c->middle + draw * (c->value_bits == 64 ? 86400000000000 : 40);
    case SW_NUMBERS_FEW:
        return low_bits((draw + 1) * 0x9E3779B97F4A7C15u, c->value_bits);
    case SW_NUMBERS_ODD:
        return low_bits((sw_random(&c->state) % (low_bits(UINT64_MAX, c->bits) + 2) + 1) * 0x9E3779B97F4A7C15u,
                        c->value_bits);
    case SW_NUMBERS_STEPS:
        return c->value = i % (1u << c->bits / 3) ? c->value + 1 : c->middle + draw;
    case SW_NUMBERS_RUNS:
        return c->value = i % (1u << c->bits / 3) ? c->value : c->middle + draw;
    case SW_NUMBERS_ORDERS:
        if (!c->rows_left) {
            c->rows_left = 1 + sw_random(&c->state) % 7;
            c->value += c->value % 8 == 7 ? 25 : 1;
        }
        c->rows_left--;
        return c->value;
    default:
        return c->middle + draw;
    }
}

/* The bits of the nearest float; too large numbers become infinite. */
static uint64_t float_bits(const struct column *c, double v) {
    const unsigned fraction_bits = c->value_bits - 1 - c->exponent_bits;
    const int bias = (1 << (c->exponent_bits - 1)) - 1;
    uint64_t bits = 0;
    int exponent = 0;
    if (c->value_bits == 64) {
        memcpy(&bits, &v, sizeof v);
        return bits;
    }
    (void)frexp(v, &exponent);
    exponent = fabs(v) > 0 && exponent - 1 > 1 - bias ? exponent - 1 : 1 - bias;
    const uint64_t steps = (uint64_t)nearbyint(ldexp(fabs(v), (int)fraction_bits - exponent));
    bits = ((uint64_t)(exponent + bias - 1) << fraction_bits) + steps; /* the leading 1 adds one to the exponent */
    const uint64_t infinite = low_bits(~(uint64_t)0, c->exponent_bits) << fraction_bits;
    return (bits < infinite ? bits : infinite) | (uint64_t)signbit(v) << (c->value_bits - 1);
}

/* The bits of a float of hundredths. */
static uint64_t hundredths(const struct column *c, uint64_t value) {
    const int64_t number = c->value_bits == 64 ? (int64_t)value : (int32_t)(uint32_t)value;
    return float_bits(c, (double)number / 100);
}

/* The sum of many numbers is nearly normal. */
static uint64_t weight(struct column *c) {
    const double deviation = 4 / sqrt(12) * 4294967296.0;
    double sum = 0;
    for (int i = 0; i < 16; i++)
        sum += (double)(sw_random(&c->state) >> 32) - 2147483647.5;
    return float_bits(c, sum / deviation * (c->value_bits == 8 ? 100 : 0.02));
}

/* Numbers with fractions of all their bits; one in 97 is special. */
static uint64_t real(struct column *c, uint64_t i) {
    static const uint64_t exponents[] = {0, 0, 0x7FF, 0x7FF, 0x800, 0xFFF, 0x7FE, 1}; /* sign first, then 11 bits */
    const unsigned exponent_bits = c->exponent_bits, fraction_bits = c->value_bits - 1 - exponent_bits;
    const uint64_t draw = sw_random(&c->state), bias = ((uint64_t)1 << (exponent_bits - 1)) - 1;
    const uint64_t special = exponents[i / 97 % 8], sign = special >> 11;
    const uint64_t least_bits = special & low_bits(~(uint64_t)0, exponent_bits);
    if (i % 97)
        return low_bits(bias + draw % (1 + c->bits % 16), exponent_bits) << fraction_bits |
               low_bits(draw >> 8, fraction_bits);
    return sign << (c->value_bits - 1) | least_bits << fraction_bits | (i % 2 ? low_bits(draw, fraction_bits) : 0);
}

static uint64_t next_bits(struct column *c, enum sw_numbers kind, uint64_t i) {
    if (kind == SW_NUMBERS_REALS)
        return c->exponent_bits ? real(c, i) : low_bits(sw_random(&c->state), c->value_bits);
    if (kind == SW_NUMBERS_WEIGHTS && c->exponent_bits)
        return weight(c);
    if (kind == SW_NUMBERS_RARE || kind == SW_NUMBERS_OFTEN)
        if (sw_random(&c->state) % (kind == SW_NUMBERS_RARE ? 100 : 20) == 0)
            return low_bits(sw_random(&c->state), c->value_bits);
    const uint64_t value = next_value(c, kind, i);
    return c->exponent_bits ? hundredths(c, value) : value;
}

/* The kind that value `i` of a mixed column has. */
static enum sw_numbers mixed_kind(const struct column *c, uint64_t i) {
    const unsigned n = c->exponent_bits ? SW_NUMBERS_REALS + 1 : SW_NUMBERS_MIXED;
    return (enum sw_numbers)(i / STRETCH_VALUES % n);
}

static void fill_block(uint8_t *to, size_t value_bytes, uint64_t block, uint64_t from, uint64_t n, struct column *c,
                       enum sw_numbers kind) {
    c->state = c->seed ^ (block + 1) * 0x9E3779B97F4A7C15u;
    c->value = c->middle + low_bits(block * BLOCK_VALUES, c->value_bits) * (((uint64_t)1 << (c->bits & 63)) / 2);
    c->rows_left = 0;
    for (uint64_t i = 0; i < from + n; i++) {
        const uint64_t value = next_bits(c, kind == SW_NUMBERS_MIXED ? mixed_kind(c, i) : kind, i);
        const uint64_t words[2] = {value, value >> 63 ? UINT64_MAX : 0};
        if (i >= from)
            memcpy(to + (i - from) * value_bytes, words, value_bytes);
    }
}

void sw_numbers_fill(void *ret, uint64_t first, size_t bytes, enum sw_value_type type, enum sw_numbers kind,
                     unsigned bits, uint64_t seed) {
    struct column c = column_of(type, bits, seed);
    const size_t value_bytes = sw_value_bits(type) / 8, n = bytes / value_bytes;
    uint8_t *to = ret;
    for (uint64_t at = first; at < first + n;) {
        const uint64_t from = at % BLOCK_VALUES, left = first + n - at;
        const uint64_t here = left < BLOCK_VALUES - from ? left : BLOCK_VALUES - from;
        fill_block(to + (at - first) * value_bytes, value_bytes, at / BLOCK_VALUES, from, here, &c, kind);
        at += here;
    }
    memset(to + n * value_bytes, 0x5A, bytes - n * value_bytes);
}

bool sw_numbers_parse(const char *name, enum sw_value_type *ret_type, enum sw_numbers *ret_kind, unsigned *ret_bits) {
    static const char *const kinds[SW_NUMBERS_NR] = {
        "uniform", "equal", "extremes", "outlier", "sorted", "nearly",   "falling",   "runs",    "mixed", "rare",
        "often",   "reals", "few",      "steps",   "orders", "sentinel", "multiples", "weights", "odd"};
    char type[8], kind[16], rest;
    if (sscanf(name, "%7[^:]:%15[^:]:%2u%c", type, kind, ret_bits, &rest) != 3)
        return false;
    *ret_type = sw_value_type_find(type);
    int k = SW_NUMBERS_NR - 1;
    while (k >= 0 && strcmp(kind, kinds[k]) != 0)
        k--;
    *ret_kind = (enum sw_numbers)k;
    return k >= 0 && *ret_type != SW_VALUE_NONE && *ret_bits <= sw_value_bits(*ret_type);
}

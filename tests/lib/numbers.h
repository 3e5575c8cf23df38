/* numbers.h - seeded columns of numbers of every type, of kinds that matter to the codecs of numbers.
 *
 * Floats are hundredths: the integers of the kind, of 32 or 64 bits, divided by 100. 8-bit floats have four bits of
 * exponent. Decimals of 128 bits are integers of 64 bits.
 *
 * Deterministic: same arguments, same bytes on every machine. thread: any. */
#ifndef SW_TEST_NUMBERS_H
#define SW_TEST_NUMBERS_H

#include "codec/frame.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum sw_numbers {
    SW_NUMBERS_UNIFORM,   /* `bits` random bits above a number in the type's middle */
    SW_NUMBERS_EQUAL,     /* one value */
    SW_NUMBERS_EXTREMES,  /* the type's least and greatest value in turn */
    SW_NUMBERS_OUTLIER,   /* uniform, but for the type's greatest value once in 1024 */
    SW_NUMBERS_SORTED,    /* ascending by random gaps of `bits` bits */
    SW_NUMBERS_NEARLY,    /* the same, a step back in between */
    SW_NUMBERS_FALLING,   /* descending, past the type's least value */
    SW_NUMBERS_RUNS,      /* uniform values, each of them 1 << gap times, gap being a third of `bits` */
    SW_NUMBERS_MIXED,     /* a vector or so of each of these; of floats also of the next three */
    SW_NUMBERS_RARE,      /* uniform, but for any bits once in 100, at random */
    SW_NUMBERS_OFTEN,     /* the same once in 20 */
    SW_NUMBERS_REALS,     /* any bits; floats: any fraction of numbers from 1 to 1 << bits % 16, and special values */
    SW_NUMBERS_FEW,       /* 1 << bits values that lie all over the type's range */
    SW_NUMBERS_STEPS,     /* ascending by one, from a new value wherever runs have one */
    SW_NUMBERS_ORDERS,    /* keys of orders by their rows: ascending, eight of 32 numbers, each of them 1 to 7 times */
    SW_NUMBERS_SENTINEL,  /* sorted, but for the type's greatest value once in 1024 */
    SW_NUMBERS_MULTIPLES, /* uniform multiples of 40, of days in nanoseconds if a value has 64 bits */
    SW_NUMBERS_WEIGHTS,   /* floats: normal, with a deviation of 0.02, of 8-bit floats 100; else as uniform */
    SW_NUMBERS_ODD,       /* as few, but one value more */
    SW_NUMBERS_NR
};

/* Fills `bytes` with values [first, ...) of a column; the bytes after the last whole value are a part of one. Columns
 * are made of blocks of 65536 values that do not depend on each other, so that threads can share the work. bits: 0 to
 * the type's. */
void sw_numbers_fill(void *ret, uint64_t first, size_t bytes, enum sw_value_type type, enum sw_numbers kind,
                     unsigned bits, uint64_t seed);

/* Reads "u32:sorted:4": a type, a kind and its bits. False if it is none. */
bool sw_numbers_parse(const char *name, enum sw_value_type *ret_type, enum sw_numbers *ret_kind, unsigned *ret_bits);

#ifdef __cplusplus
}
#endif
#endif

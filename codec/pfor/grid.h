/* grid.h - numbers that are all a residue plus a multiple of a divisor (pfor/FORMAT.md), for host and device.
 *
 * Dates as nanoseconds are multiples of a day, and prices may be multiples of 40. Their multiples take fewer bits.
 * Number k of a grid is residue + k * divisor. Signed values are first made unsigned, in the same order. thread: any.
 */
#ifndef SW_PFOR_GRID_H
#define SW_PFOR_GRID_H

#include "codec/params.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sw_grid {
    uint64_t divisor, residue;
    uint64_t inverse; /* of the divisor's odd part, mod 2^64 */
    uint64_t most;    /* the greatest multiple of the divisor below 2^bits, divided by the divisor */
    unsigned zeros;   /* the divisor's trailing zero bits */
};

/* Makes the grid of a plan's params.own for values of 32 or 64 bits. A plan that has learned none has the divisor 1. */
void sw_grid_init(struct sw_grid *ret, const uint32_t own[SW_PARAMS_OWN], unsigned bits);
/* Learns the grid of most of a sample of long pieces, and stores it in the params. */
void sw_grid_learn(struct sw_params *ret, const void *sample, size_t sample_bytes, enum sw_value_type type);

/* Finds the number of an unsigned value; false: the value is not on the grid. A product with the inverse divides what
 * is divisible; everything else becomes too large (T. Granlund, P. Montgomery, "Division by Invariant Integers using
 * Multiplication", PLDI 1994, section 9). */
SW_HOST_DEVICE static inline int sw_grid_find(const struct sw_grid *g, unsigned bits, uint64_t value, uint64_t *ret) {
    if (bits == 64) {
        const uint64_t y = (value - g->residue) * g->inverse;
        *ret = y >> g->zeros | y << (64 - g->zeros) % 64;
    } else {
        const uint32_t y = ((uint32_t)value - (uint32_t)g->residue) * (uint32_t)g->inverse;
        *ret = y >> g->zeros | y << (32 - g->zeros) % 32;
    }
    return *ret <= g->most;
}

#ifdef __cplusplus
}
#endif
#endif

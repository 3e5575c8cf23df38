/* alp_core.h - floats as decimals (alp/FORMAT.md), for host and device: a vector's tag, and the choice of its decimal
 * places.
 *
 * The results of the arithmetic are part of the format, so host and device must round alike. alp.c and alp_gpu.cu say
 * how they ensure that. thread: any. */
#ifndef SW_ALP_CORE_H
#define SW_ALP_CORE_H

#include "codec/bitpack/bitpack_core.h"

#define SW_ALP_ROUND_TOP (SW_ALP_ROUND_BITS >> 52) /* sign and exponent, as long as the number fits */

#define SW_ALP_SAMPLED 32 /* values of a vector that are sampled for the choice */

/* Returns which of a lane's values is sampled. The sampled places are spread over the vector, and are not all odd or
 * all even. */
SW_HOST_DEVICE static inline unsigned sw_alp_sampled(unsigned bits, unsigned lane) {
    return lane % 4 * 8 + lane / 4 % (SW_UNIT_BYTES * 8 / bits);
}

SW_HOST_DEVICE static inline unsigned sw_alp_tag(unsigned choice, unsigned n_exceptions) {
    return choice << SW_ALP_CHOICE_SHIFT | n_exceptions;
}

/* Estimates the bits that a vector takes if all its values are like the sampled ones. range: the range of the sampled
 * numbers without exceptions, a whole number as the bits of a float32. */
SW_HOST_DEVICE static inline unsigned sw_alp_cost(unsigned bits, unsigned n_exceptions, uint32_t range) {
    const unsigned width = range ? (range >> 23) - 126 : 0;
    return SW_VECTOR_VALUES * width + SW_VECTOR_VALUES / SW_ALP_SAMPLED * n_exceptions * (bits + 16);
}

/* The 2^width numbers from `from` on. */
struct sw_alp_window {
    int64_t from;
    unsigned width;
};

/* Returns a window of about four times the range of the sampled numbers, around them. Numbers outside of it become
 * exceptions, which is cheaper than more bits for all numbers. */
SW_HOST_DEVICE static inline struct sw_alp_window sw_alp_window_around(int64_t least, int64_t most) {
    struct sw_alp_window w;
    w.width = sw_width_of((uint64_t)(most - least)) + 2;
    w.from = least - (((int64_t)1 << w.width) - (most - least)) / 2;
    return w;
}

/* Returns the narrowest window for the numbers from `least` to `most`, all of which are in window `in`. It lies inside
 * of `in`. */
SW_HOST_DEVICE static inline struct sw_alp_window sw_alp_window_of(struct sw_alp_window in, int64_t least,
                                                                   int64_t most) {
    struct sw_alp_window w;
    w.width = sw_width_of((uint64_t)(most - least));
    w.from = in.from + ((int64_t)1 << in.width) - ((int64_t)1 << w.width);
    w.from = w.from < least ? w.from : least;
    return w;
}

SW_HOST_DEVICE static inline int sw_alp_is_in(struct sw_alp_window w, int64_t number) {
    return (uint64_t)(number - w.from) >> w.width == 0;
}

#endif

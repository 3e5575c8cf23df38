/* patched_core.h - the choice of a window for a vector's numbers, for host and device. Numbers outside of the window
 * become exceptions (pfor/FORMAT.md).
 *
 * Host and device choose alike, from the ranges of the lanes' numbers. A lane that has an outlier has a wide range, but
 * most lanes have none. So of the lanes' smallest numbers the largest is no outlier, and of their largest numbers the
 * smallest is none. Lanes are looked at in groups, first of four and then of one. Groups of four have almost the range
 * of the whole vector; among single lanes some are without outliers even if there are many. thread: any. */
#ifndef SW_PFOR_PATCHED_CORE_H
#define SW_PFOR_PATCHED_CORE_H

#include "codec/bitpack/bitpack_core.h"

#define SW_PATCHED_GROUP_LANES 4 /* the next groups have a quarter of these */

/* A vector of which more values are not on the plan's grid is also tried without a grid. */
#define SW_PFOR_FEW_EXCEPTIONS 64

/* The numbers from `from` to `from + last`. `last` is a power of two less one. */
struct sw_patched_window {
    uint64_t from, last;
};

SW_HOST_DEVICE static inline uint64_t sw_patched_last(unsigned width) {
    return width ? ~(uint64_t)0 >> (64 - width) : 0;
}

/* Returns a window around the numbers from `low` to `high`. If it has room down to `least`, the smallest number of all,
 * or up to `most`, the largest, then there are no outliers on this side, and it begins or ends there. If there are
 * outliers on both sides, it is twice as long, and sw_patched_window_of() finds out what it needs. */
SW_HOST_DEVICE static inline struct sw_patched_window
sw_patched_window_around(unsigned bits, uint64_t least, uint64_t low, uint64_t high, uint64_t most) {
    const uint64_t greatest = sw_patched_last(bits);
    struct sw_patched_window w;
    w.last = sw_patched_last(sw_width_of(high - low));
    uint64_t room = w.last - (high - low);
    if (low - least <= room) {
        w.from = least;
    } else if (most - high <= room) {
        w.from = most - w.last;
    } else {
        room += w.last + 1;
        w.last += w.last + 1;
        w.from = low - (room / 2 < low - least ? room / 2 : low - least);
    }
    w.from = w.from < greatest - w.last ? w.from : greatest - w.last;
    return w;
}

/* Returns the narrowest window for the numbers from `least` to `most`, all of which are in window `in`. It lies inside
 * of `in`, so that it has no other numbers. It begins at `best` if it can. */
SW_HOST_DEVICE static inline struct sw_patched_window sw_patched_window_of(struct sw_patched_window in, uint64_t least,
                                                                           uint64_t most, uint64_t best) {
    struct sw_patched_window w;
    w.last = sw_patched_last(sw_width_of(most - least));
    const uint64_t end = in.last - w.last + in.from; /* the last possible beginning */
    w.from = end < least ? end : least;
    if (best <= w.from && best >= in.from && most - best <= w.last)
        w.from = best;
    return w;
}

#endif

/* alprd_core.h - floats in two parts (alprd/FORMAT.md), for host and device: a vector's tag, and the choice of its cut.
 * thread: any. */
#ifndef SW_ALPRD_CORE_H
#define SW_ALPRD_CORE_H

#include "codec/alp/alp_core.h"

SW_HOST_DEVICE static inline unsigned sw_alprd_tag(unsigned code_width, unsigned n_exceptions) {
    return code_width << SW_ALP_CHOICE_SHIFT | n_exceptions;
}

/* A cut of a vector: the upper `left` bits of its values come from a dictionary with codes of code_width bits. cost:
 * the bits that the vector takes if all its values are like the sampled ones. */
struct sw_alprd_cut {
    unsigned left, code_width, cost;
};

/* Replaces *c if the cut after `left` bits, with a dictionary of n_entries, is better. n_exceptions: its exceptions
 * among the sampled values. Only powers of two are considered for n_entries. */
SW_HOST_DEVICE static inline void sw_alprd_consider(struct sw_alprd_cut *c, unsigned bits, unsigned left,
                                                    unsigned n_entries, unsigned n_exceptions) {
    const unsigned code_width = sw_width_of(n_entries - 1);
    const unsigned cost =
        SW_VECTOR_VALUES * (bits - left + code_width) + SW_VECTOR_VALUES / SW_ALP_SAMPLED * n_exceptions * 32;
    if ((n_entries & (n_entries - 1)) != 0 || cost >= c->cost)
        return;
    c->left = left;
    c->code_width = code_width;
    c->cost = cost;
}

#endif

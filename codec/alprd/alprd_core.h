/* alprd_core.h - floats in two parts (alprd/FORMAT.md), for host and device alike: a vector's tag, and how it is cut.
 * thread: any. */
#ifndef SW_ALPRD_CORE_H
#define SW_ALPRD_CORE_H

#include "codec/alp/alp_core.h"

SW_HOST_DEVICE static inline unsigned sw_alprd_tag(unsigned code_width, unsigned n_exceptions) {
    return code_width << SW_ALP_CHOICE_SHIFT | n_exceptions;
}

/* How a vector is cut: `left` upper bits of its values come from a dictionary with codes of code_width bits. cost: bits
 * that a vector would take if all of it were like the sampled values. */
struct sw_alprd_cut {
    unsigned left, code_width, cost;
};

/* Makes *c the better one of it and the cut that leaves n_exceptions among the sampled values with n_entries, which
 * must be a power of two to be considered. */
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

/* alprd_core.h - floats in two parts (alprd/FORMAT.md), for host and device alike: what a vector's tag says, and how it
 * is cut. thread: any. */
#ifndef SW_ALPRD_CORE_H
#define SW_ALPRD_CORE_H

#include "codec/alp/alp_core.h"

#define SW_ALPRD_MAX_LEFT 16u /* bits */
#define SW_ALPRD_ENTRIES 8u   /* of the dictionary of left parts, 16 bits each */
#define SW_ALPRD_MAX_CODE_WIDTH 3u
#define SW_ALPRD_ROW_UNITS (SW_VECTOR_LANES * 4u / SW_UNIT_BYTES)

SW_HOST_DEVICE static inline unsigned sw_alprd_tag(unsigned code_width, unsigned n_exceptions) {
    return code_width << SW_ALP_CHOICE_SHIFT | n_exceptions;
}

SW_HOST_DEVICE static inline unsigned sw_alprd_code_width(unsigned tag) {
    return tag >> SW_ALP_CHOICE_SHIFT;
}

/* What a packed vector takes; more than any content if there is none such. width: of the right part. */
SW_HOST_DEVICE static inline unsigned sw_alprd_units(unsigned bits, unsigned width, unsigned tag) {
    const unsigned n = sw_alp_exceptions(tag), codes = sw_alprd_code_width(tag);
    if (width + SW_ALPRD_MAX_LEFT < bits || codes > SW_ALPRD_MAX_CODE_WIDTH || n > SW_VECTOR_VALUES)
        return ~0u;
    return SW_ALPRD_ROW_UNITS * (width + codes) + 1 + (4 * n + SW_UNIT_BYTES - 1) / SW_UNIT_BYTES;
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

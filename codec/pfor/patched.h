/* patched.h - chooses which numbers of a vector are packed, and which are exceptions, on the host. See patched_core.h.
 * thread: any. */
#ifndef SW_PFOR_PATCHED_H
#define SW_PFOR_PATCHED_H

#include "codec/pfor/patched_core.h"

/* A vector's numbers. Those that are not there cannot be packed. A missing value counts as the first value. */
struct sw_patched_numbers {
    uint64_t number[SW_VECTOR_VALUES];
    bool is_there[SW_VECTOR_VALUES];
    unsigned bits;    /* of a number: 32 or 64 */
    unsigned n;       /* numbers that are packed or become exceptions */
    bool is_in_order; /* a lane has 32 numbers in a row, instead of units by turns */
    uint64_t best;    /* the best beginning of a window, where there is a choice */
};

/* The numbers of a vector that are packed: those that are there and in the window. */
struct sw_patched {
    struct sw_patched_window window;
    unsigned width, n_packed;
};

/* Chooses what makes the vector shortest. */
struct sw_patched sw_patched_choose(const struct sw_patched_numbers *numbers);

/* Whether number i is packed. */
static inline bool sw_patched_is_packed(const struct sw_patched_numbers *numbers, unsigned i,
                                        struct sw_patched_window window) {
    return numbers->is_there[i] && numbers->number[i] - window.from <= window.last;
}

#endif

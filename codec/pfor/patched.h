/* patched.h - the common part of pfor and pdfor on the host: chooses which numbers of a vector are packed and which are
 * exceptions (patched_core.h), and reads and writes what follows a vector's packed rows. thread: any. */
#ifndef SW_PFOR_PATCHED_H
#define SW_PFOR_PATCHED_H

#include "codec/alp/exceptions.h"
#include "codec/bitpack/numbers.h"
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

/* The packed numbers of a vector: all that exist and lie in the window. */
struct sw_patched {
    struct sw_patched_window window;
    unsigned width, n_packed;
};

/* Chooses what makes the vector shortest. */
struct sw_patched sw_patched_choose(const struct sw_patched_numbers *numbers);

/* Returns whether number i is packed. */
static inline bool sw_patched_is_packed(const struct sw_patched_numbers *numbers, unsigned i,
                                        struct sw_patched_window window) {
    return numbers->is_there[i] && numbers->number[i] - window.from <= window.last;
}

static inline unsigned sw_patched_head_units(const struct sw_vector_head *head, unsigned bits) {
    return sw_patched_units(bits, head->width, head->tag);
}

/* Writes the step, head->base[1], if the head says so, and begins the exceptions. out: the vector's. */
static inline struct sw_exceptions_writer sw_patched_begin(const struct sw_vector_head *head, unsigned bits,
                                                           uint8_t *out) {
    uint8_t *at = out + (size_t)sw_packed_units(bits, head->width, 0) * SW_UNIT_BYTES;
    const size_t step_bytes = sw_patched_step_bytes(bits, head->tag);
    memcpy(at, &head->base[1], step_bytes);
    return sw_exceptions_begin(at + step_bytes, sw_alp_exceptions(head->tag), bits / 8);
}

/* The parts of a stored vector that follow its packed rows. */
struct sw_patched_rest {
    uint64_t step;
    const uint8_t *exceptions;
    unsigned n, bits;
};

/* Finds the parts of a vector that follow its packed rows. plain: the step of vectors that store none. */
static inline struct sw_patched_rest sw_patched_rest_of(const struct sw_vector_head *head, unsigned bits,
                                                        const uint8_t *from, uint64_t plain) {
    const uint8_t *at = from + (size_t)sw_packed_units(bits, head->width, 0) * SW_UNIT_BYTES;
    const size_t step_bytes = sw_patched_step_bytes(bits, head->tag);
    struct sw_patched_rest rest = {step_bytes ? 0 : plain, at + step_bytes, sw_alp_exceptions(head->tag), bits};
    memcpy(&rest.step, at, step_bytes);
    return rest;
}

/* Reads exception i. Returns its place; SW_VECTOR_VALUES or more: the vector is malformed. */
static inline unsigned sw_patched_exception(const struct sw_patched_rest *rest, unsigned i, uint64_t *ret) {
    const size_t value_bytes = rest->bits / 8;
    *ret = 0;
    memcpy(ret, rest->exceptions + i * value_bytes, value_bytes);
    return sw_exceptions_place(rest->exceptions, rest->n, value_bytes, i);
}

#endif

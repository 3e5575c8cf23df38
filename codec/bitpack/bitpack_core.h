/* bitpack_core.h - the positions of the bits of packed numbers (bitpack/FORMAT.md), for host and device.
 *
 * A vector is 1024 values of 8, 16, 32 or 64 bits, distributed over 32 lanes in units of 16 bytes. A lane has a list of
 * 32-bit words; a word's fields are its values of 8, 16 or 32 bits. `bits` is the length of a field; `width` is the
 * number of bits of it that are stored. One step processes all fields of a word, without carries between fields.
 * thread: any. */
#ifndef SW_BITPACK_CORE_H
#define SW_BITPACK_CORE_H

#include "codec/checksum.h"
#include "codec/frame.h"
#include "codec/public/spillway_device/bits.h"

/* Returns whether a type's values are ordered as signed numbers. Floats are ordered by their bit patterns, as unsigned
 * numbers. */
SW_HOST_DEVICE static inline unsigned sw_value_is_signed(unsigned type) {
    return type >= SW_VALUE_I8 && type <= SW_VALUE_I64;
}

/* Returns the bits that row i, whose fields are below 2^width, adds to its packed word. */
SW_HOST_DEVICE static inline uint32_t sw_pack_row(unsigned bits, unsigned width, unsigned i, uint32_t row) {
    const unsigned shift = sw_row_shift(bits, width, i);
    return row << shift & sw_spread(bits, sw_low_bits(bits) & ~sw_low_bits(shift));
}

/* Returns the bits that row i adds to the word after its packed word. */
SW_HOST_DEVICE static inline uint32_t sw_pack_row_rest(unsigned bits, unsigned width, unsigned i, uint32_t row) {
    const unsigned kept = bits - sw_row_shift(bits, width, i);
    return row >> kept & sw_spread(bits, sw_low_bits(width - kept));
}

/* Subtracts field by field. */
SW_HOST_DEVICE static inline uint32_t sw_subtract_fields(unsigned bits, uint32_t a, uint32_t b) {
    if (bits == 32)
        return a - b;
    const uint32_t top = sw_spread(bits, 1u << (bits - 1));
    return ((a | top) - (b & ~top)) ^ ((a ^ ~b) & top);
}

/* Returns the number of bits that can hold every number up to `range`. */
SW_HOST_DEVICE static inline unsigned sw_width_of(uint64_t range) {
#ifdef __CUDA_ARCH__
    return 64 - (unsigned)__clzll((long long)range);
#else
    return range ? 64 - (unsigned)__builtin_clzll(range) : 0;
#endif
}

#endif

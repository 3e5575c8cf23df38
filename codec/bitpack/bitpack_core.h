/* bitpack_core.h - where the bits of packed numbers lie (bitpack/FORMAT.md), for host and device alike.
 *
 * A vector is 1024 values of 8, 16, 32 or 64 bits, dealt to 32 lanes in units of 16 bytes. A lane's part is a list of
 * 32-bit words; the fields of a word are its values of 8, 16 or 32 bits, side by side. `bits` is the length of a field,
 * `width` what is kept of it. All fields of a word are treated in one step, and nothing carries from one into the next.
 * thread: any. */
#ifndef SW_BITPACK_CORE_H
#define SW_BITPACK_CORE_H

#include "codec/checksum.h"
#include "codec/frame.h"
#include "codec/public/spillway_device/bits.h"

/* Bit patterns of floats are taken as unsigned numbers. */
SW_HOST_DEVICE static inline unsigned sw_value_is_signed(unsigned type) {
    return type >= SW_VALUE_I8 && type <= SW_VALUE_I64;
}

/* What row i, whose fields are below 2^width, adds to its packed word and to the one after it. */
SW_HOST_DEVICE static inline uint32_t sw_pack_row(unsigned bits, unsigned width, unsigned i, uint32_t row) {
    const unsigned shift = sw_row_shift(bits, width, i);
    return row << shift & sw_spread(bits, sw_low_bits(bits) & ~sw_low_bits(shift));
}

SW_HOST_DEVICE static inline uint32_t sw_pack_row_rest(unsigned bits, unsigned width, unsigned i, uint32_t row) {
    const unsigned kept = bits - sw_row_shift(bits, width, i);
    return row >> kept & sw_spread(bits, sw_low_bits(width - kept));
}

SW_HOST_DEVICE static inline uint32_t sw_subtract_fields(unsigned bits, uint32_t a, uint32_t b) {
    if (bits == 32)
        return a - b;
    const uint32_t top = sw_spread(bits, 1u << (bits - 1));
    return ((a | top) - (b & ~top)) ^ ((a ^ ~b) & top);
}

/* Bits that hold every number up to `range`. */
SW_HOST_DEVICE static inline unsigned sw_width_of(uint64_t range) {
#ifdef __CUDA_ARCH__
    return 64 - (unsigned)__clzll((long long)range);
#else
    return range ? 64 - (unsigned)__builtin_clzll(range) : 0;
#endif
}

#endif

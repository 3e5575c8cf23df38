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

#define SW_VECTOR_VALUES 1024
#define SW_VECTOR_LANES 32
#define SW_UNIT_BYTES 16
#define SW_UNIT_WORDS 4
/* Of a numeric codec's frame. */
#define SW_NUMBERS_SEGMENT_LOG2 10
#define SW_NUMBERS_TILE_BYTES (SW_TILE_SEGMENTS << SW_NUMBERS_SEGMENT_LOG2)
/* A tile's vectors: of 8-bit values the most. Each kind of base, one per vector, takes 32 bytes of any value type. */
#define SW_TILE_MAX_VECTORS 32u
#define SW_TILE_BASES_BYTES 32u
/* The same of values of at least 32 bits. */
#define SW_TILE_MAX_FLOAT_VECTORS 8u
/* A tile's entry of the counts section: bases, of up to two kinds, then a byte of width for each of `vectors`, then 16
 * bits for each, where sizes do not follow from widths. */
#define SW_VECTORS_COUNT_BYTES(kinds, vectors, has_more)                                                               \
    ((kinds)*SW_TILE_BASES_BYTES + (vectors) * ((has_more) ? 3u : 1u))
#define SW_NUMBERS_COUNT_BYTES(kinds, has_sizes) SW_VECTORS_COUNT_BYTES(kinds, SW_TILE_MAX_VECTORS, has_sizes)
#define SW_FLOATS_COUNT_BYTES(kinds) SW_VECTORS_COUNT_BYTES(kinds, SW_TILE_MAX_FLOAT_VECTORS, true)

SW_HOST_DEVICE static inline unsigned sw_value_bits(unsigned type) {
    return type >= SW_VALUE_F32 ? 32u << (type - SW_VALUE_F32) : 8u << (type - SW_VALUE_U8) % 4;
}

/* Bit patterns of floats are taken as unsigned numbers. */
SW_HOST_DEVICE static inline unsigned sw_value_is_signed(unsigned type) {
    return type >= SW_VALUE_I8 && type <= SW_VALUE_I64;
}

SW_HOST_DEVICE static inline unsigned sw_vector_bytes(unsigned value_bits) {
    return SW_VECTOR_VALUES / 8 * value_bits;
}

/* What a vector takes whose values keep `width` bits: a word per lane and bit. One that keeps all of them is stored as
 * it is, as long as it is; of the others a vector that is not full takes as much as a full one. */
SW_HOST_DEVICE static inline unsigned sw_packed_units(unsigned value_bits, unsigned width, unsigned content_bytes) {
    return width < value_bits ? width * (SW_VECTOR_LANES * 4 / SW_UNIT_BYTES)
                              : (content_bytes + SW_UNIT_BYTES - 1) / SW_UNIT_BYTES;
}

SW_HOST_DEVICE static inline uint32_t sw_low_bits(unsigned n) {
    return n >= 32 ? ~0u : (1u << n) - 1;
}

/* The same in every field of a word. */
SW_HOST_DEVICE static inline uint32_t sw_spread(unsigned bits, uint32_t v) {
    return bits == 8 ? v * 0x01010101u : bits == 16 ? v * 0x00010001u : v;
}

/* Row i of a lane's words begins in its packed word i * width / bits and may end in the next one. */
SW_HOST_DEVICE static inline unsigned sw_row_word(unsigned bits, unsigned width, unsigned i) {
    return i * width / bits;
}

SW_HOST_DEVICE static inline unsigned sw_row_shift(unsigned bits, unsigned width, unsigned i) {
    return i * width % bits;
}

SW_HOST_DEVICE static inline unsigned sw_row_is_split(unsigned bits, unsigned width, unsigned i) {
    return sw_row_shift(bits, width, i) + width > bits;
}

/* Row i out of its packed word and the one after it (any value if the row is not split). */
SW_HOST_DEVICE static inline uint32_t sw_unpack_row(unsigned bits, unsigned width, unsigned i, uint32_t word,
                                                    uint32_t next) {
    const unsigned shift = sw_row_shift(bits, width, i);
    if (!sw_row_is_split(bits, width, i))
        return word >> shift & sw_spread(bits, sw_low_bits(width));
    if (bits == 32)
        return (word >> shift | next << (32 - shift)) & sw_low_bits(width);
    const uint32_t low = sw_low_bits(bits - shift);
    return (word >> shift & sw_spread(bits, low)) |
           (next << (bits - shift) & sw_spread(bits, sw_low_bits(width) & ~low));
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

/* Field by field, modulo 2^bits. */
SW_HOST_DEVICE static inline uint32_t sw_add_fields(unsigned bits, uint32_t a, uint32_t b) {
    if (bits == 32)
        return a + b;
    const uint32_t top = sw_spread(bits, 1u << (bits - 1));
    return ((a & ~top) + (b & ~top)) ^ ((a ^ b) & top);
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

/* spillway_device/bits.h - the layout of packed chunks, as far as readers need it, for host and device (codec/FORMAT.md
 * and FORMAT.md in codec/bitpack, codec/alp, codec/alprd, codec/dict, codec/radix).
 *
 * The codecs and spillway_device.cuh share it. It is no part of the API. */
#ifndef SPILLWAY_DEVICE_BITS_H
#define SPILLWAY_DEVICE_BITS_H

#include "../spillway_packed.h"

#ifdef __CUDACC__
#define SW_HOST_DEVICE __host__ __device__
#else
#define SW_HOST_DEVICE
#endif

/* ---- frames ---- */

#define SW_FRAME_ALIGN 16
#define SW_FRAME_DATA_ALIGN 128 /* a line of GPU memory, for the data section */
#define SW_FRAME_HEADER_BYTES 64
#define SW_TILE_SEGMENTS 32

struct sw_tile_record {
    uint32_t offset16, hash;
};

/* Returns the length of the symbol table section: values of 8 bytes, then as many lengths. */
SW_HOST_DEVICE static inline uint64_t sw_frame_table_bytes(uint32_t n_symbols) {
    return (9 * (uint64_t)n_symbols + SW_FRAME_ALIGN - 1) / SW_FRAME_ALIGN * SW_FRAME_ALIGN;
}

SW_HOST_DEVICE static inline uint64_t sw_frame_records_offset(uint32_t n_symbols) {
    return SW_FRAME_HEADER_BYTES + sw_frame_table_bytes(n_symbols);
}

/* Returns the offset of the counts section, which follows the tile records. */
SW_HOST_DEVICE static inline uint64_t sw_frame_counts_offset(uint64_t records_offset, uint64_t n_tiles) {
    return records_offset +
           (n_tiles * sizeof(struct sw_tile_record) + SW_FRAME_ALIGN - 1) / SW_FRAME_ALIGN * SW_FRAME_ALIGN;
}

SW_HOST_DEVICE static inline uint64_t sw_frame_data_offset(uint64_t counts_offset, uint32_t count_bytes,
                                                           uint64_t n_tiles) {
    return (counts_offset + count_bytes * n_tiles + SW_FRAME_DATA_ALIGN - 1) / SW_FRAME_DATA_ALIGN *
           SW_FRAME_DATA_ALIGN;
}

/* ---- the hash ---- */

/* Returns the seed of segment `segment` (0 … 31) of tile `tile`; for the hash by rows, of lane `segment` of block
 * `tile`.
 */
SW_HOST_DEVICE static inline uint32_t sw_hash_segment_seed(uint32_t tile, uint32_t segment) {
    return (32u * tile + segment + 1u) * 0x27D4EB2Fu;
}

/* Adds one word to a hash. */
SW_HOST_DEVICE static inline uint32_t sw_hash_word(uint32_t h, uint32_t word) {
    return (h << 13 | h >> 19) * 0x9E3779B1u + word;
}

/* The final mix, which is XXH32's avalanche (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md). */
SW_HOST_DEVICE static inline uint32_t sw_hash_finish(uint32_t h) {
    h ^= h >> 15;
    h *= 0x85EBCA77u;
    h ^= h >> 13;
    h *= 0xC2B2AE3Du;
    return h ^ h >> 16;
}

/* The hash by rows, for codecs of numbers: lane l hashes the 16 bytes of unit l of each row; 8 rows are a block. */
#define SW_HASH_ROW_BYTES 512
#define SW_HASH_BLOCK_BYTES 4096
#define SW_HASH_TILE_BLOCKS 8
#define SW_HASH_BLOCK_ROWS (SW_HASH_BLOCK_BYTES / SW_HASH_ROW_BYTES)

/* ---- vectors of numbers ---- */

#define SW_VECTOR_VALUES 1024
#define SW_VECTOR_LANES 32
#define SW_UNIT_BYTES 16
#define SW_UNIT_WORDS 4
/* The segments and tiles of codecs of numbers. */
#define SW_NUMBERS_SEGMENT_LOG2 10
#define SW_NUMBERS_TILE_BYTES (SW_TILE_SEGMENTS << SW_NUMBERS_SEGMENT_LOG2)
/* The largest number of vectors in a tile: 8-bit values have the most. A tile's bases of one kind, one for each vector,
 * take 32 bytes, whatever the type. */
#define SW_TILE_MAX_VECTORS 32u
#define SW_TILE_BASES_BYTES 32u
/* The largest number of vectors in a tile of values of at least 32 bits. */
#define SW_TILE_MAX_FLOAT_VECTORS 8u
/* The length of a tile's entry in the counts section: bases of up to two kinds, then a byte of width for each of
 * `vectors` vectors, then 16 bits for each, if sizes do not follow from widths. */
#define SW_VECTORS_COUNT_BYTES(kinds, vectors, has_more)                                                               \
    ((kinds)*SW_TILE_BASES_BYTES + (vectors) * ((has_more) ? 3u : 1u))
#define SW_NUMBERS_COUNT_BYTES(kinds, has_sizes) SW_VECTORS_COUNT_BYTES(kinds, SW_TILE_MAX_VECTORS, has_sizes)
#define SW_FLOATS_COUNT_BYTES(kinds) SW_VECTORS_COUNT_BYTES(kinds, SW_TILE_MAX_FLOAT_VECTORS, true)
/* The same, with only the 16 bits for each vector, the tag. */
#define SW_TAGS_COUNT_BYTES(kinds, vectors) ((kinds)*SW_TILE_BASES_BYTES + (vectors)*2u)

SW_HOST_DEVICE static inline unsigned sw_value_bits(unsigned type) {
    if (type >= SPILLWAY_BF16)
        return type == SPILLWAY_DEC128 ? 128 : type == SPILLWAY_F8 ? 8 : 16;
    return type >= SPILLWAY_F32 ? 32u << (type - SPILLWAY_F32) : 8u << (type - SPILLWAY_U8) % 4;
}

/* Returns the place in its vector of a lane's value i. */
SW_HOST_DEVICE static inline unsigned sw_value_place(unsigned bits, unsigned i, unsigned lane) {
    const unsigned in_unit = SW_UNIT_BYTES * 8 / bits;
    return (i / in_unit * SW_VECTOR_LANES + lane) * in_unit + i % in_unit;
}

SW_HOST_DEVICE static inline unsigned sw_vector_bytes(unsigned value_bits) {
    return SW_VECTOR_VALUES / 8 * value_bits;
}

/* Returns the length of a stored vector whose values keep `width` bits: a word for each lane and bit, even if the
 * vector is not full. If values keep all bits, it is the content's length. */
SW_HOST_DEVICE static inline unsigned sw_packed_units(unsigned value_bits, unsigned width, unsigned content_bytes) {
    return width < value_bits ? width * (SW_VECTOR_LANES * 4 / SW_UNIT_BYTES)
                              : (content_bytes + SW_UNIT_BYTES - 1) / SW_UNIT_BYTES;
}

SW_HOST_DEVICE static inline uint32_t sw_low_bits(unsigned n) {
    return n >= 32 ? ~0u : (1u << n) - 1;
}

/* Returns a word with `v` in every field. */
SW_HOST_DEVICE static inline uint32_t sw_spread(unsigned bits, uint32_t v) {
    return bits == 8 ? v * 0x01010101u : bits == 16 ? v * 0x00010001u : v;
}

/* Returns the packed word in which row i of a lane's words begins. It may end in the next one. */
SW_HOST_DEVICE static inline unsigned sw_row_word(unsigned bits, unsigned width, unsigned i) {
    return i * width / bits;
}

SW_HOST_DEVICE static inline unsigned sw_row_shift(unsigned bits, unsigned width, unsigned i) {
    return i * width % bits;
}

SW_HOST_DEVICE static inline unsigned sw_row_is_split(unsigned bits, unsigned width, unsigned i) {
    return sw_row_shift(bits, width, i) + width > bits;
}

/* Unpacks row i from its packed word and the next one, which is ignored if the row is not split. */
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

/* Adds field by field, modulo 2^bits. */
SW_HOST_DEVICE static inline uint32_t sw_add_fields(unsigned bits, uint32_t a, uint32_t b) {
    if (bits == 32)
        return a + b;
    const uint32_t top = sw_spread(bits, 1u << (bits - 1));
    return ((a & ~top) + (b & ~top)) ^ ((a ^ b) & top);
}

/* ---- floats as decimals ---- */

/* Choice c means SW_ALP_LEAST_PLACES + c decimal places. */
#define SW_ALP_LEAST_PLACES (-6)
#define SW_ALP_F64_CHOICES 25u
#define SW_ALP_F32_CHOICES 16u

/* Adding this to a float64 below 2^51 puts the nearest whole number into the lowest bits. */
#define SW_ALP_ROUND 6755399441055744.0 /* 1.5 * 2^52 */
#define SW_ALP_ROUND_BITS 0x4338000000000000u

#define SW_ALP_CHOICE_SHIFT 11

SW_HOST_DEVICE static inline unsigned sw_alp_choices(unsigned bits) {
    return bits == 64 ? SW_ALP_F64_CHOICES : SW_ALP_F32_CHOICES;
}

SW_HOST_DEVICE static inline unsigned sw_alp_choice(unsigned tag) {
    return tag >> SW_ALP_CHOICE_SHIFT;
}

SW_HOST_DEVICE static inline unsigned sw_alp_exceptions(unsigned tag) {
    return tag & sw_low_bits(SW_ALP_CHOICE_SHIFT);
}

/* Returns the largest width of a packed vector's numbers. */
SW_HOST_DEVICE static inline unsigned sw_alp_max_width(unsigned bits) {
    return bits == 64 ? 52 : 31;
}

/* Returns the length of a packed vector; more than any content if no such vector can exist. */
SW_HOST_DEVICE static inline unsigned sw_alp_units(unsigned bits, unsigned width, unsigned tag) {
    const unsigned n = sw_alp_exceptions(tag), bytes = n * (bits / 8 + 2);
    if (width > sw_alp_max_width(bits) || sw_alp_choice(tag) >= sw_alp_choices(bits) || n > SW_VECTOR_VALUES)
        return ~0u;
    return sw_packed_units(bits, width, 0) + (bytes + SW_UNIT_BYTES - 1) / SW_UNIT_BYTES;
}

/* ---- floats in two parts ---- */

#define SW_ALPRD_MAX_LEFT 16u /* bits */
#define SW_ALPRD_ENTRIES 8u   /* of the dictionary of left parts, 16 bits each */
#define SW_ALPRD_MAX_CODE_WIDTH 3u
#define SW_ALPRD_ROW_UNITS (SW_VECTOR_LANES * 4u / SW_UNIT_BYTES)

SW_HOST_DEVICE static inline unsigned sw_alprd_code_width(unsigned tag) {
    return tag >> SW_ALP_CHOICE_SHIFT;
}

/* Returns the length of a packed vector; more than any content if no such vector can exist. width: the right parts'. */
SW_HOST_DEVICE static inline unsigned sw_alprd_units(unsigned bits, unsigned width, unsigned tag) {
    const unsigned n = sw_alp_exceptions(tag), codes = sw_alprd_code_width(tag);
    if (width + SW_ALPRD_MAX_LEFT < bits || codes > SW_ALPRD_MAX_CODE_WIDTH || n > SW_VECTOR_VALUES)
        return ~0u;
    return SW_ALPRD_ROW_UNITS * (width + codes) + 1 + (4 * n + SW_UNIT_BYTES - 1) / SW_UNIT_BYTES;
}

/* ---- numbers with exceptions ---- */

/* A tag has the number of exceptions, as of floats as decimals, and this bit if the vector's step is stored. */
#define SW_PATCHED_HAS_STEP (1u << SW_ALP_CHOICE_SHIFT)

/* Returns the bytes of the stored step. */
SW_HOST_DEVICE static inline unsigned sw_patched_step_bytes(unsigned bits, unsigned tag) {
    return tag & SW_PATCHED_HAS_STEP ? bits / 8 : 0;
}

/* Returns the length of a packed vector; more than any content if no such vector can exist. */
SW_HOST_DEVICE static inline unsigned sw_patched_units(unsigned bits, unsigned width, unsigned tag) {
    const unsigned n = sw_alp_exceptions(tag), bytes = sw_patched_step_bytes(bits, tag) + n * (bits / 8 + 2);
    if (width >= bits || n > SW_VECTOR_VALUES || tag >= 2 * SW_PATCHED_HAS_STEP)
        return ~0u;
    return sw_packed_units(bits, width, 0) + (bytes + SW_UNIT_BYTES - 1) / SW_UNIT_BYTES;
}

/* ---- dictionaries ---- */

/* Returns the largest width of a packed vector's codes. Of 8-bit values only the first 128 have codes. */
SW_HOST_DEVICE static inline unsigned sw_dict_max_width(unsigned bits) {
    return bits == 8 ? 7 : 8;
}

/* Returns the bits in which an exception is stored: at least 16, so that the places behind it are aligned. */
SW_HOST_DEVICE static inline unsigned sw_dict_stored_bits(unsigned bits) {
    return bits == 8 ? 16 : bits;
}

/* Returns the length of a packed vector; more than any content if no such vector can exist. */
SW_HOST_DEVICE static inline unsigned sw_dict_units(unsigned bits, unsigned width, unsigned n_exceptions) {
    const unsigned bytes = n_exceptions * (sw_dict_stored_bits(bits) / 8 + 2);
    if (width > sw_dict_max_width(bits) || n_exceptions > SW_VECTOR_VALUES)
        return ~0u;
    return sw_packed_units(bits, width, 0) + (bytes + SW_UNIT_BYTES - 1) / SW_UNIT_BYTES;
}

/* ---- digits ---- */

/* A tag has the base of a vector's digits in the lower byte, and the number of exceptions in the upper one. */
#define SW_RADIX_MAX_EXCEPTIONS 255u

SW_HOST_DEVICE static inline unsigned sw_radix_base(unsigned tag) {
    return tag & 0xFF;
}

SW_HOST_DEVICE static inline unsigned sw_radix_exceptions(unsigned tag) {
    return tag >> 8;
}

/* Returns how many digits to a base a packed number has. */
SW_HOST_DEVICE static inline unsigned sw_radix_digits(unsigned base) {
    return base < 16 ? 8 : 4;
}

/* Returns the largest packed number. */
SW_HOST_DEVICE static inline uint32_t sw_radix_most(unsigned base) {
    const uint32_t square = base * base, fourth = square * square;
    return (base < 16 ? fourth * fourth : fourth) - 1;
}

/* Returns the number of bits of a packed number: 32 at most. */
SW_HOST_DEVICE static inline unsigned sw_radix_width(unsigned base) {
    const uint32_t most = sw_radix_most(base);
    unsigned width = 0;
    for (unsigned step = 16; step; step /= 2)
        width += most >> width >> (step - 1) ? step : 0;
    return width + (most >> width);
}

/* Returns the length of a vector's packed numbers: a lane has 32 digits. */
SW_HOST_DEVICE static inline unsigned sw_radix_packed_units(unsigned base) {
    return 32 / sw_radix_digits(base) * sw_radix_width(base) * SW_VECTOR_LANES / 8 / SW_UNIT_BYTES;
}

/* Returns the length of a packed vector; more than any content if no such vector can exist. */
SW_HOST_DEVICE static inline unsigned sw_radix_units(unsigned bits, unsigned tag) {
    const unsigned bytes = sw_radix_exceptions(tag) * (bits / 8 + 2);
    if (!sw_radix_base(tag))
        return ~0u;
    return sw_radix_packed_units(sw_radix_base(tag)) + (bytes + SW_UNIT_BYTES - 1) / SW_UNIT_BYTES;
}

#endif

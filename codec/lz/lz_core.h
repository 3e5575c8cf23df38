/* lz_core.h - the layout of blocks of codec lz (FORMAT.md), for host and device. thread: any. */
#ifndef SW_LZ_CORE_H
#define SW_LZ_CORE_H

#include "codec/bitpack/bitpack_core.h"

#define SW_LZ_BLOCK_BYTES SW_HASH_BLOCK_BYTES /* of content */
#define SW_LZ_TILE_BLOCKS SW_HASH_TILE_BLOCKS
#define SW_LZ_COUNT_BYTES (2 * SW_LZ_TILE_BLOCKS) /* of a tile: 16 bits a block */
#define SW_LZ_MAX_SYMBOLS SW_LZ_BLOCK_BYTES
#define SW_LZ_MAX_MASKS (SW_LZ_MAX_SYMBOLS / 32)
#define SW_LZ_MAX_DISTANCE 255u
#define SW_LZ_MIN_WINDOW 32u
/* Matches are compared by at most this many symbols. The chosen match then goes on for as long as it holds. */
#define SW_LZ_SEARCH 32u

/* Index of a plan's params.own: the plan's window. */
enum { SW_LZ_WINDOW = 4 };

/* Returns a symbol's length. A symbol is a value; a value of 64 bits is two symbols. */
SW_HOST_DEVICE static inline unsigned sw_lz_symbol_bytes(unsigned value_type) {
    const unsigned bytes = sw_value_bits(value_type) / 8;
    return bytes < 4 ? bytes : 4;
}

/* Returns the shortest match. A match of one byte would take as many bits as the byte. */
SW_HOST_DEVICE static inline unsigned sw_lz_least_match(unsigned symbol_bytes) {
    return symbol_bytes == 1 ? 2 : 1;
}

/* Returns the longest distance of matches: the plan's window, rounded down to a level, or the default for the symbol's
 * length. */
SW_HOST_DEVICE static inline unsigned sw_lz_window(unsigned plan_window, unsigned symbol_bytes) {
    const unsigned window = plan_window ? plan_window : symbol_bytes == 1 ? SW_LZ_MAX_DISTANCE : SW_LZ_MIN_WINDOW;
    return window >= SW_LZ_MAX_DISTANCE ? SW_LZ_MAX_DISTANCE
           : window >= 128              ? 128
           : window >= 64               ? 64
                                        : SW_LZ_MIN_WINDOW;
}

/* Returns the number of words before a block's masks. They say which masks are stored. */
SW_HOST_DEVICE static inline unsigned sw_lz_groups(unsigned symbol_bytes) {
    return SW_LZ_BLOCK_BYTES / symbol_bytes / 1024;
}

/* The beginnings of a stored block's parts, and its end. units: bytes. */
struct sw_lz_parts {
    unsigned kinds, distances, literals, end;
};

SW_HOST_DEVICE static inline struct sw_lz_parts sw_lz_parts_of(unsigned symbol_bytes, unsigned n_masks,
                                                               unsigned n_tokens, unsigned n_matches) {
    struct sw_lz_parts p;
    p.kinds = 4 * (sw_lz_groups(symbol_bytes) + n_masks);
    p.distances = p.kinds + 4 * ((n_tokens + 31) / 32);
    p.literals = p.distances + (n_matches + 3) / 4 * 4;
    p.end = p.literals + (n_tokens - n_matches) * symbol_bytes;
    return p;
}

SW_HOST_DEVICE static inline unsigned sw_lz_units(unsigned bytes) {
    return (bytes + SW_UNIT_BYTES - 1) / SW_UNIT_BYTES;
}

#endif

/* lz_core.h - blocks of codec lz (FORMAT.md): their parts and where these lie, for host and device alike. thread: any.
 */
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
/* Matches are chosen by as many symbols as this, and then go on as long as they hold. */
#define SW_LZ_SEARCH 32u

/* Of a plan's params.own: the window that was asked for. */
enum { SW_LZ_WINDOW };

/* Symbols are values; those of 64 bits are two. */
SW_HOST_DEVICE static inline unsigned sw_lz_symbol_bytes(unsigned value_type) {
    const unsigned bytes = sw_value_bits(value_type) / 8;
    return bytes < 4 ? bytes : 4;
}

/* A match of one byte takes as much as the byte. */
SW_HOST_DEVICE static inline unsigned sw_lz_least_match(unsigned symbol_bytes) {
    return symbol_bytes == 1 ? 2 : 1;
}

/* How far back matches may reach, by what a plan says: the level at or below it, or the symbol's own. */
SW_HOST_DEVICE static inline unsigned sw_lz_window(unsigned plan_window, unsigned symbol_bytes) {
    const unsigned window = plan_window ? plan_window : symbol_bytes == 1 ? SW_LZ_MAX_DISTANCE : SW_LZ_MIN_WINDOW;
    return window >= SW_LZ_MAX_DISTANCE ? SW_LZ_MAX_DISTANCE
           : window >= 128              ? 128
           : window >= 64               ? 64
                                        : SW_LZ_MIN_WINDOW;
}

/* Words in front of a block's masks, which say which of them are there. */
SW_HOST_DEVICE static inline unsigned sw_lz_groups(unsigned symbol_bytes) {
    return SW_LZ_BLOCK_BYTES / symbol_bytes / 1024;
}

/* Where the parts of a stored block begin, and its end. units: bytes. */
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

/* checksum.h - the 32-bit hash of codec/FORMAT.md, the same code for host and device.
 *
 * Detects damage; it is no protection against an adversary who can write frames. thread: any. */
#ifndef SW_CODEC_CHECKSUM_H
#define SW_CODEC_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define SW_HOST_DEVICE __host__ __device__
#else
#define SW_HOST_DEVICE
#endif

/* Seed of segment `segment` (0 … 31) of tile `tile`; by rows: of lane `segment` of block `tile`. */
SW_HOST_DEVICE static inline uint32_t sw_hash_segment_seed(uint32_t tile, uint32_t segment) {
    return (32u * tile + segment + 1u) * 0x27D4EB2Fu;
}

/* One 32-bit word. */
SW_HOST_DEVICE static inline uint32_t sw_hash_word(uint32_t h, uint32_t word) {
    return (h << 13 | h >> 19) * 0x9E3779B1u + word;
}

/* The closing mix: XXH32's avalanche (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md). */
SW_HOST_DEVICE static inline uint32_t sw_hash_finish(uint32_t h) {
    h ^= h >> 15;
    h *= 0x85EBCA77u;
    h ^= h >> 13;
    h *= 0xC2B2AE3Du;
    return h ^ h >> 16;
}

/* Hash by rows, for codecs of numbers: lane l reads unit l of 16 bytes of each row, 8 rows are a block. */
#define SW_HASH_ROW_BYTES 512
#define SW_HASH_BLOCK_BYTES 4096
#define SW_HASH_TILE_BLOCKS 8
#define SW_HASH_BLOCK_ROWS (SW_HASH_BLOCK_BYTES / SW_HASH_ROW_BYTES)

#ifdef __cplusplus
extern "C" {
#endif

/* Hash state after `bytes` more bytes; only the last call of a series may pass a length that is no multiple of 4. */
uint32_t sw_hash_update(uint32_t h, const void *data, size_t bytes);

/* Tile hash of `bytes` (at most 32 << segment_log2) of content that starts at `data` and is tile number `tile`. */
uint32_t sw_hash_tile(const void *data, size_t bytes, unsigned segment_log2, uint32_t tile);

/* The same by rows; of at most 32 KiB. segment_log2 is not looked at. */
uint32_t sw_hash_tile_rows(const void *data, size_t bytes, unsigned segment_log2, uint32_t tile);

#ifdef __cplusplus
}
#endif
#endif

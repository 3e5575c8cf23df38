/* checksum.h - the 32-bit hash of codec/FORMAT.md, the same code for host and device.
 *
 * Detects damage; it is no protection against an adversary who can write frames. thread: any. */
#ifndef SW_CODEC_CHECKSUM_H
#define SW_CODEC_CHECKSUM_H

#include "codec/public/spillway_device/bits.h"
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Hash state after `bytes` more bytes; only the last call of a series may pass a length that is no multiple of 4. */
uint32_t sw_hash_update(uint32_t h, const void *data, size_t bytes);

/* Tile hash of `bytes` (at most 32 << segment_log2) of content that starts at `data` and is tile number `tile`. */
uint32_t sw_hash_tile(const void *data, size_t bytes, unsigned segment_log2, uint32_t tile);

/* The same without a prefetch of what lies behind the tile: for who does not go on with that. */
uint32_t sw_hash_last_tile(const void *data, size_t bytes, unsigned segment_log2, uint32_t tile);

/* The same by rows; of at most 32 KiB. segment_log2 is not looked at. */
uint32_t sw_hash_tile_rows(const void *data, size_t bytes, unsigned segment_log2, uint32_t tile);

#ifdef __cplusplus
}
#endif
#endif

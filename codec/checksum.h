/* checksum.h - the 32-bit hash of codec/FORMAT.md.
 *
 * It detects damage. It does not protect against an attacker who can write frames. thread: any. */
#ifndef SW_CODEC_CHECKSUM_H
#define SW_CODEC_CHECKSUM_H

#include "codec/public/spillway_device/bits.h"
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the hash state after `bytes` more bytes. Only the last call of a series may pass a length that is no multiple
 * of 4. */
uint32_t sw_hash_update(uint32_t h, const void *data, size_t bytes);

/* Hashes tile number `tile`, whose content are `bytes` at `data`, at most 32 << segment_log2. */
uint32_t sw_hash_tile(const void *data, size_t bytes, unsigned segment_log2, uint32_t tile);

/* Hashes a tile like sw_hash_tile(), but does not prefetch the memory behind it. For callers that will not hash that
 * memory next. */
uint32_t sw_hash_last_tile(const void *data, size_t bytes, unsigned segment_log2, uint32_t tile);

/* Hashes a tile of at most 32 KiB by rows, as codecs of numbers do. segment_log2 is ignored. */
uint32_t sw_hash_tile_rows(const void *data, size_t bytes, unsigned segment_log2, uint32_t tile);

#ifdef __cplusplus
}
#endif
#endif

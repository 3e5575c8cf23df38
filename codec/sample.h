/* sample.h - where in a region the pieces of a sample lie; host and device samplers share this.
 *
 * Short pieces come from many places, for symbol tables: text that is sorted is alike within a piece (v5t/TUNING.md).
 * Long ones are for numbers, whose neighbours matter, and phrases. thread: any. */
#ifndef SW_CODEC_SAMPLE_H
#define SW_CODEC_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SW_SAMPLE_MAX_BYTES ((size_t)64 << 10)
#define SW_SAMPLE_SHORT_PIECE_BYTES 128
#define SW_SAMPLE_LONG_PIECE_BYTES 512
#define SW_SAMPLE_MAX_PIECES (SW_SAMPLE_MAX_BYTES / SW_SAMPLE_SHORT_PIECE_BYTES)

/* Bytes of the sample of a region. */
static inline size_t sw_sample_bytes(uint64_t raw_bytes) {
    return raw_bytes < SW_SAMPLE_MAX_BYTES ? (size_t)raw_bytes : SW_SAMPLE_MAX_BYTES;
}

/* Number of pieces and the byte offset of piece i in a region of raw_bytes; regions up to SW_SAMPLE_MAX_BYTES are one
 * run of adjacent pieces (the last may be short). */
unsigned sw_sample_pieces(uint64_t raw_bytes, unsigned piece_bytes);
uint64_t sw_sample_offset(uint64_t raw_bytes, unsigned piece_bytes, unsigned piece);
/* Copies the sample of a host region; returns its bytes. ret: SW_SAMPLE_MAX_BYTES. */
size_t sw_sample_gather(void *ret, const void *region, uint64_t raw_bytes, unsigned piece_bytes);

#ifdef __cplusplus
}
#endif
#endif

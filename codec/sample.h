/* sample.h - the positions of a sample's pieces in a region, for samplers on host and device.
 *
 * Short pieces come from many places. They are for symbol tables, because sorted text is alike within a piece
 * (v5t/TUNING.md). Long pieces are for numbers, whose neighbors matter, and for phrases. thread: any. */
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

/* Returns the length of a region's sample. */
static inline size_t sw_sample_bytes(uint64_t raw_bytes) {
    return raw_bytes < SW_SAMPLE_MAX_BYTES ? (size_t)raw_bytes : SW_SAMPLE_MAX_BYTES;
}

/* Returns the number of pieces. The last piece may be shorter if the region has at most SW_SAMPLE_MAX_BYTES. */
unsigned sw_sample_pieces(uint64_t raw_bytes, unsigned piece_bytes);
/* Returns a piece's offset in the region. Regions of at most SW_SAMPLE_MAX_BYTES are sampled whole, in adjacent pieces.
 */
uint64_t sw_sample_offset(uint64_t raw_bytes, unsigned piece_bytes, unsigned piece);
/* A dictionary is learned from several samples, one for each part of a long region: by a host from fewer. */
#define SW_SAMPLE_MOST_PARTS 4
#define SW_SAMPLE_MOST_GPU_PARTS 16
struct sw_sample_part {
    uint64_t offset, bytes;
};
/* Returns how many parts there are, at most `most`. The frames of a short region are short, and a dictionary takes room
 * in each of them: so it has one. */
unsigned sw_sample_parts(uint64_t raw_bytes, unsigned most);
struct sw_sample_part sw_sample_part(uint64_t raw_bytes, unsigned n_parts, unsigned part);
/* Copies the sample of a region in host memory; returns its length. ret: room for SW_SAMPLE_MAX_BYTES. */
size_t sw_sample_gather(void *ret, const void *region, uint64_t raw_bytes, unsigned piece_bytes);

#ifdef __cplusplus
}
#endif
#endif

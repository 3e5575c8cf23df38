/* streams.h - a tile of code streams, one for each segment: how they are stored, and found again (v5t/FORMAT.md).
 *
 * What the codecs of bytes share on the host, whose codes differ in what they stand for. Decoders take bytes that
 * nobody vouches for: they stay inside the buffers they are given and return -SW_EFRAME for anything that is not a
 * valid tile. thread: any. */
#ifndef SW_STREAMS_H
#define SW_STREAMS_H

#include "codec/frame.h"
#include <stdbool.h>

#define SW_STREAMS_MAX_SEGMENT_LOG2 10
#define SW_STREAMS_ESCAPE 255 /* the code of a literal, which follows */
/* On the GPU: tiles of a block that decodes a short input, or a part of a batch. */
#define SW_STREAMS_UNIT_TILES 4
/* A code stream of nothing but escapes, its padding, and two bytes that a step may write too many. */
#define SW_STREAM_BYTES ((2u << SW_STREAMS_MAX_SEGMENT_LOG2) + 16)

/* A tile's content and the code streams of its segments. */
struct sw_streams {
    const uint8_t *in;
    size_t in_bytes; /* 1 … 32 << segment_log2 */
    unsigned segment_log2;
    uint32_t words[SW_TILE_SEGMENTS]; /* of each segment as it will be stored */
    uint8_t *counts;
    uint8_t stream[SW_TILE_SEGMENTS + 1][SW_STREAM_BYTES]; /* the last one is for codes that nobody wants */
};

/* Sets all but the streams. */
void sw_streams_init(struct sw_streams *ret, const uint8_t *in, size_t in_bytes, unsigned segment_log2,
                     uint8_t counts[SW_TILE_SEGMENTS]);
/* Bytes of a segment, the last of which may be shorter; 0 behind it. */
size_t sw_streams_segment_bytes(size_t tile_bytes, unsigned segment_log2, unsigned segment);
/* Ends a segment's stream of coded_bytes, replacing it by the content if it is not shorter. */
void sw_streams_close(struct sw_streams *s, unsigned segment, size_t coded_bytes);
/* Writes all streams, which are closed, as rows and tails. Returns the tile's bytes, a multiple of 16 that is at most
 * align16(in_bytes). */
size_t sw_streams_put(const struct sw_streams *s, uint8_t *out);

/* A segment that is being decoded: the room that is left of its length. From its end to the limit may be written what
 * is decoded later. */
struct sw_sink {
    uint8_t *to, *end;
    const uint8_t *limit;
    bool in_escape; /* the next code byte is a literal */
    bool is_bad;
};

/* Is one of eight code bytes, or of fewer, 255, the escape of all codecs that have one? */
static inline bool sw_streams_has_escape(uint64_t codes) {
    const uint64_t each_byte = UINT64_MAX / 255;
    return (~codes - each_byte) & codes & each_byte << 7;
}

/* Decodes a segment's code stream of n words to the sink until that is full or bad. */
typedef void sw_put_stream(const void *decoder, struct sw_sink *sink, const uint8_t *words, uint32_t n);

/* Decodes a tile of out_bytes from data[0..data_bytes), data_bytes being what is left of the frame.
 * errors: -SW_EFRAME. */
int sw_streams_decode_tile(sw_put_stream *put, const void *decoder, const uint8_t *data, size_t data_bytes,
                           const uint8_t counts[SW_TILE_SEGMENTS], unsigned segment_log2, uint8_t *out,
                           size_t out_bytes);

/* Decodes segment `segment` (0 … 31) of a tile of tile_bytes alone; writes its min(1 << segment_log2, rest) bytes.
 * errors: -SW_EFRAME, -SW_ERANGE. */
int sw_streams_decode_segment(sw_put_stream *put, const void *decoder, const uint8_t *data, size_t data_bytes,
                              const uint8_t counts[SW_TILE_SEGMENTS], unsigned segment_log2, size_t tile_bytes,
                              unsigned segment, uint8_t *out, size_t *ret_bytes);

#endif

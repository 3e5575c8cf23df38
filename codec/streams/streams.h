/* streams.h - stores and reads tiles of code streams, one stream for each segment (v5t/FORMAT.md), on the host.
 *
 * The codecs of bytes share it; only the meaning of their codes differs. Decoders accept untrusted bytes: they stay
 * inside their buffers, and return -SW_EFRAME for an invalid tile. thread: any. */
#ifndef SW_STREAMS_H
#define SW_STREAMS_H

#include "codec/frame.h"
#include <stdbool.h>

#define SW_STREAMS_MAX_SEGMENT_LOG2 10
#define SW_STREAMS_ESCAPE 255 /* the code that precedes a literal byte */
/* Tiles of a GPU's block that decodes a short input, or a part of a batch. */
#define SW_STREAMS_UNIT_TILES 4
/* Room for a code stream of only escapes, its padding, and two bytes that a step may write beyond its end. */
#define SW_STREAM_BYTES ((2u << SW_STREAMS_MAX_SEGMENT_LOG2) + 16)

/* A tile's content and the code streams of its segments. */
struct sw_streams {
    const uint8_t *in;
    size_t in_bytes; /* 1 … 32 << segment_log2 */
    unsigned segment_log2;
    uint32_t words[SW_TILE_SEGMENTS]; /* each segment's stored length */
    uint8_t *counts;
    uint8_t stream[SW_TILE_SEGMENTS + 1][SW_STREAM_BYTES]; /* the last stream is for codes to be discarded */
};

/* Initializes everything except the streams. */
void sw_streams_init(struct sw_streams *ret, const uint8_t *in, size_t in_bytes, unsigned segment_log2,
                     uint8_t counts[SW_TILE_SEGMENTS]);
/* Returns a segment's length. The last segment may be shorter; segments after it have length 0. */
size_t sw_streams_segment_bytes(size_t tile_bytes, unsigned segment_log2, unsigned segment);
/* Closes a segment's stream of coded_bytes. If it is not shorter than the content, the content replaces it. */
void sw_streams_close(struct sw_streams *s, unsigned segment, size_t coded_bytes);
/* Writes all streams, which must be closed, as rows and tails. Returns the tile's length, a multiple of 16 and at most
 * align16(in_bytes). */
size_t sw_streams_put(const struct sw_streams *s, uint8_t *out);

/* The rest of a segment being decoded. A decoder may also write from `end` to `limit`: those bytes are decoded later.
 */
struct sw_sink {
    uint8_t *to, *end;
    const uint8_t *limit;
    bool in_escape; /* the next code byte is a literal */
    bool is_bad;
};

/* Returns whether one of up to eight code bytes is SW_STREAMS_ESCAPE. */
static inline bool sw_streams_has_escape(uint64_t codes) {
    const uint64_t each_byte = UINT64_MAX / 255;
    return (~codes - each_byte) & codes & each_byte << 7;
}

/* Decodes a segment's code stream of n words to the sink, until the sink is full or bad. */
typedef void sw_put_stream(const void *decoder, struct sw_sink *sink, const uint8_t *words, uint32_t n);

/* Decodes a tile of out_bytes from data[0..data_bytes). data_bytes: the rest of the frame. errors: -SW_EFRAME. */
int sw_streams_decode_tile(sw_put_stream *put, const void *decoder, const uint8_t *data, size_t data_bytes,
                           const uint8_t counts[SW_TILE_SEGMENTS], unsigned segment_log2, uint8_t *out,
                           size_t out_bytes);

/* Decodes only segment `segment` (0 … 31) of a tile of tile_bytes. errors: -SW_EFRAME, -SW_ERANGE. */
int sw_streams_decode_segment(sw_put_stream *put, const void *decoder, const uint8_t *data, size_t data_bytes,
                              const uint8_t counts[SW_TILE_SEGMENTS], unsigned segment_log2, size_t tile_bytes,
                              unsigned segment, uint8_t *out, size_t *ret_bytes);

#endif

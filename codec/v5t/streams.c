/* streams.c - tiles of code streams. Everything that addresses is checked before it is used: a tile's word counts
 * against the data that are there, and by the codec's own part every code against its table and the room. */
#include "codec/v5t/streams.h"

#include <string.h>

size_t sw_streams_segment_bytes(size_t tile_bytes, unsigned segment_log2, unsigned segment) {
    size_t full = (size_t)1 << segment_log2, start = (size_t)segment << segment_log2;
    if (start >= tile_bytes)
        return 0;
    return tile_bytes - start < full ? tile_bytes - start : full;
}

void sw_streams_init(struct sw_streams *ret, const uint8_t *in, size_t in_bytes, unsigned segment_log2,
                     uint8_t counts[SW_TILE_SEGMENTS]) {
    ret->in = in;
    ret->in_bytes = in_bytes;
    ret->segment_log2 = segment_log2;
    ret->counts = counts;
    memset(counts, 0, SW_TILE_SEGMENTS);
}

void sw_streams_close(struct sw_streams *s, unsigned segment, size_t coded_bytes) {
    uint8_t *stream = s->stream[segment];
    size_t raw_bytes = sw_streams_segment_bytes(s->in_bytes, s->segment_log2, segment);
    uint32_t raw_words = (uint32_t)((raw_bytes + 3) / 4), coded_words = (uint32_t)((coded_bytes + 3) / 4);
    bool is_raw = coded_words >= raw_words;
    if (is_raw)
        memcpy(stream, s->in + ((size_t)segment << s->segment_log2), raw_bytes);
    memset(stream + (is_raw ? raw_bytes : coded_bytes), 0, 3);
    s->words[segment] = is_raw ? raw_words : coded_words;
    s->counts[segment] = (uint8_t)(is_raw ? 0 : coded_words);
}

size_t sw_streams_put(const struct sw_streams *s, uint8_t *out) {
    const unsigned segments = (unsigned)((s->in_bytes - 1) >> s->segment_log2) + 1;
    uint8_t *to = out;
    uint32_t rows = s->words[0];
    for (unsigned i = 1; i < segments; i++)
        rows = s->words[i] < rows ? s->words[i] : rows;
    for (uint32_t r = 0; r < rows; r++)
        for (unsigned i = 0; i < segments; i++, to += 4)
            memcpy(to, s->stream[i] + (size_t)4 * r, 4);
    for (unsigned i = 0; i < segments; i++) {
        size_t tail_bytes = (size_t)4 * (s->words[i] - rows);
        memcpy(to, s->stream[i] + (size_t)4 * rows, tail_bytes);
        to += tail_bytes;
    }
    size_t used = (size_t)(to - out), padding = -used % SW_FRAME_ALIGN;
    memset(to, 0, padding);
    return used + padding;
}

static void copy_run(struct sw_sink *s, struct sw_run run) {
    for (; run.n; run.n--, run.words += run.stride) {
        size_t left = (size_t)(s->end - s->to), bytes = left < 4 ? left : 4;
        memcpy(s->to, run.words, bytes);
        s->to += bytes;
    }
}

/* Where a tile's words are; made from counts that nobody vouches for. */
struct shape {
    uint32_t words[SW_TILE_SEGMENTS];
    uint32_t segments, rows, total_words;
};

static int shape_init(struct shape *ret, const uint8_t *counts, unsigned segment_log2, size_t tile_bytes) {
    *ret = (struct shape){.rows = UINT32_MAX};
    for (unsigned s = 0; s < SW_TILE_SEGMENTS; s++) {
        uint32_t raw_words = (uint32_t)((sw_streams_segment_bytes(tile_bytes, segment_log2, s) + 3) / 4);
        if (counts[s] && counts[s] >= raw_words) /* also: a count for a segment that is not there */
            return -SW_EFRAME;
        if (raw_words == 0)
            continue;
        ret->words[s] = counts[s] ? counts[s] : raw_words;
        ret->total_words += ret->words[s];
        ret->rows = ret->words[s] < ret->rows ? ret->words[s] : ret->rows;
        ret->segments++;
    }
    return 0;
}

/* How a codec's streams are decoded. */
struct reader {
    sw_put_run *put;
    const void *decoder;
};

/* tail: the segment's words after the rows. */
static int decode_one(struct reader reader, const struct shape *shape, const uint8_t *data, const uint8_t *tail,
                      unsigned segment, bool is_raw, uint8_t *out, size_t out_bytes) {
    struct sw_sink sink = {.to = out, .end = out + out_bytes};
    struct sw_run row_run = {data + (size_t)4 * segment, (size_t)4 * shape->segments, shape->rows};
    struct sw_run tail_run = {tail, 4, shape->words[segment] - shape->rows};
    if (is_raw) {
        copy_run(&sink, row_run);
        copy_run(&sink, tail_run);
    } else {
        reader.put(reader.decoder, &sink, row_run);
        reader.put(reader.decoder, &sink, tail_run);
    }
    return sink.is_bad || sink.in_escape || sink.to != sink.end ? -SW_EFRAME : 0;
}

int sw_streams_decode_tile(sw_put_run *put, const void *decoder, const uint8_t *data, size_t data_bytes,
                           const uint8_t counts[SW_TILE_SEGMENTS], unsigned segment_log2, uint8_t *out,
                           size_t out_bytes) {
    struct shape shape;
    int r = shape_init(&shape, counts, segment_log2, out_bytes);
    if (r < 0 || (size_t)4 * shape.total_words > data_bytes)
        return -SW_EFRAME;
    const uint8_t *tail = data + (size_t)4 * shape.rows * shape.segments;
    for (unsigned s = 0; s < shape.segments; s++) {
        r = decode_one((struct reader){put, decoder}, &shape, data, tail, s, counts[s] == 0,
                       out + ((size_t)s << segment_log2), sw_streams_segment_bytes(out_bytes, segment_log2, s));
        if (r < 0)
            return r;
        tail += (size_t)4 * (shape.words[s] - shape.rows);
    }
    return 0;
}

int sw_streams_decode_segment(sw_put_run *put, const void *decoder, const uint8_t *data, size_t data_bytes,
                              const uint8_t counts[SW_TILE_SEGMENTS], unsigned segment_log2, size_t tile_bytes,
                              unsigned segment, uint8_t *out, size_t *ret_bytes) {
    struct shape shape;
    size_t bytes = segment < SW_TILE_SEGMENTS ? sw_streams_segment_bytes(tile_bytes, segment_log2, segment) : 0;
    if (bytes == 0)
        return -SW_ERANGE;
    int r = shape_init(&shape, counts, segment_log2, tile_bytes);
    if (r < 0 || (size_t)4 * shape.total_words > data_bytes)
        return -SW_EFRAME;
    const uint8_t *tail = data + (size_t)4 * shape.rows * shape.segments;
    for (unsigned s = 0; s < segment; s++)
        tail += (size_t)4 * (shape.words[s] - shape.rows);
    r = decode_one((struct reader){put, decoder}, &shape, data, tail, segment, counts[segment] == 0, out, bytes);
    if (r == 0)
        *ret_bytes = bytes;
    return r;
}

/* streams.c - tiles of code streams. Everything is checked before it is used as an address: this file checks a tile's
 * word counts against the available data, and the codec checks every code against its table and the room. */
#include "codec/streams/streams.h"

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

/* Rows and streams are transposed in squares: four words of four streams. */
enum { SQUARE = 4 };
typedef uint32_t vector __attribute__((vector_size(4 * SQUARE)));

/* Transposes a square. The rows are from_bytes apart, and the columns to_bytes apart. */
static inline void transpose(uint8_t *to, size_t to_bytes, const uint8_t *from, size_t from_bytes) {
    vector row[SQUARE], column[SQUARE];
    for (size_t i = 0; i < SQUARE; i++)
        memcpy(&row[i], from + i * from_bytes, sizeof row[i]);
    const vector low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5),
                 low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5),
                 high01 = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7),
                 high23 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
    column[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
    column[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
    column[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
    column[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
    for (size_t i = 0; i < SQUARE; i++)
        memcpy(to + i * to_bytes, &column[i], sizeof column[i]);
}

/* Writes rows first … first + n - 1 of all segments. */
static void put_rows(const struct sw_streams *s, unsigned segments, uint8_t *to, uint32_t first, uint32_t n) {
    for (unsigned i = 0; i < segments; i++)
        for (uint32_t r = 0; r < n; r++)
            memcpy(to + (size_t)4 * (r * segments + i), s->stream[i] + (size_t)4 * (first + r), 4);
}

size_t sw_streams_put(const struct sw_streams *s, uint8_t *out) {
    const unsigned segments = (unsigned)((s->in_bytes - 1) >> s->segment_log2) + 1;
    const size_t row_bytes = (size_t)4 * segments;
    uint8_t *to = out;
    uint32_t rows = s->words[0], r = 0;
    for (unsigned i = 1; i < segments; i++)
        rows = s->words[i] < rows ? s->words[i] : rows;
    for (; segments == SW_TILE_SEGMENTS && rows - r >= SQUARE; r += SQUARE, to += SQUARE * row_bytes)
        for (unsigned i = 0; i < segments; i += SQUARE)
            transpose(to + (size_t)4 * i, row_bytes, s->stream[i] + (size_t)4 * r, sizeof s->stream[0]);
    put_rows(s, segments, to, r, rows - r);
    to += (rows - r) * row_bytes;
    for (unsigned i = 0; i < segments; i++) {
        size_t tail_bytes = (size_t)4 * (s->words[i] - rows);
        memcpy(to, s->stream[i] + (size_t)4 * rows, tail_bytes);
        to += tail_bytes;
    }
    size_t used = (size_t)(to - out), padding = -used % SW_FRAME_ALIGN;
    memset(to, 0, padding);
    return used + padding;
}

/* The lengths of a tile's streams, from untrusted counts. */
struct shape {
    uint32_t words[SW_TILE_SEGMENTS];
    bool is_raw[SW_TILE_SEGMENTS];
    uint32_t segments, rows, total_words;
};

static int shape_init(struct shape *ret, const uint8_t *counts, unsigned segment_log2, size_t tile_bytes) {
    *ret = (struct shape){.rows = UINT32_MAX};
    if (segment_log2 > SW_STREAMS_MAX_SEGMENT_LOG2)
        return -SW_EFRAME;
    for (unsigned s = 0; s < SW_TILE_SEGMENTS; s++) {
        uint32_t raw_words = (uint32_t)((sw_streams_segment_bytes(tile_bytes, segment_log2, s) + 3) / 4);
        if (counts[s] && counts[s] >= raw_words) /* also if a segment that does not exist has a count */
            return -SW_EFRAME;
        if (raw_words == 0)
            continue;
        ret->is_raw[s] = counts[s] == 0;
        ret->words[s] = ret->is_raw[s] ? raw_words : counts[s];
        ret->total_words += ret->words[s];
        ret->rows = ret->words[s] < ret->rows ? ret->words[s] : ret->rows;
        ret->segments++;
    }
    return 0;
}

/* A tile being decoded. */
struct reader {
    struct shape shape;
    const uint8_t *rows, *tail; /* tail: the next segment's */
};

/* Opens a tile. errors: -SW_EFRAME: the counts are invalid, or words are missing. */
static int reader_init(struct reader *ret, const uint8_t *data, size_t data_bytes, const uint8_t *counts,
                       unsigned segment_log2, size_t tile_bytes) {
    const int r = shape_init(&ret->shape, counts, segment_log2, tile_bytes);
    if (r < 0 || (size_t)4 * ret->shape.total_words > data_bytes)
        return -SW_EFRAME;
    ret->rows = data;
    ret->tail = data + (size_t)4 * ret->shape.rows * ret->shape.segments;
    return 0;
}

/* The streams of up to SQUARE segments, each contiguous. */
typedef uint8_t square_streams[SQUARE][(1u << SW_STREAMS_MAX_SEGMENT_LOG2) + 16];

/* Gathers the streams of `n` segments, at most SQUARE, from rows and tails. */
static void gather(struct reader *r, unsigned first, unsigned n, square_streams ret) {
    const size_t row_bytes = (size_t)4 * r->shape.segments;
    const uint8_t *from = r->rows + (size_t)4 * first;
    uint32_t row = 0;
    for (; n == SQUARE && r->shape.rows - row >= SQUARE; row += SQUARE)
        transpose(ret[0] + (size_t)4 * row, sizeof ret[0], from + row * row_bytes, row_bytes);
    for (unsigned i = 0; i < n; i++) {
        for (uint32_t k = row; k < r->shape.rows; k++)
            memcpy(ret[i] + (size_t)4 * k, from + k * row_bytes + (size_t)4 * i, 4);
        const size_t tail_bytes = (size_t)4 * (r->shape.words[first + i] - r->shape.rows);
        memcpy(ret[i] + (size_t)4 * r->shape.rows, r->tail, tail_bytes);
        r->tail += tail_bytes;
    }
}

static int decode_one(sw_put_stream *put, const void *decoder, const struct reader *r, unsigned segment,
                      const uint8_t *stream, struct sw_sink sink) {
    if (r->shape.is_raw[segment]) {
        memcpy(sink.to, stream, (size_t)(sink.end - sink.to));
        return 0;
    }
    put(decoder, &sink, stream, r->shape.words[segment]);
    return sink.is_bad || sink.to != sink.end ? -SW_EFRAME : 0; /* an escape that lacks its byte leaves room */
}

int sw_streams_decode_tile(sw_put_stream *put, const void *decoder, const uint8_t *data, size_t data_bytes,
                           const uint8_t counts[SW_TILE_SEGMENTS], unsigned segment_log2, uint8_t *out,
                           size_t out_bytes) {
    struct reader reader;
    square_streams words;
    int r = reader_init(&reader, data, data_bytes, counts, segment_log2, out_bytes);
    for (unsigned s = 0; r == 0 && s < reader.shape.segments; s++) {
        const unsigned left = reader.shape.segments - s;
        if (s % SQUARE == 0)
            gather(&reader, s, left < SQUARE ? left : SQUARE, words);
        uint8_t *to = out + ((size_t)s << segment_log2);
        r = decode_one(put, decoder, &reader, s, words[s % SQUARE],
                       (struct sw_sink){.to = to,
                                        .end = to + sw_streams_segment_bytes(out_bytes, segment_log2, s),
                                        .limit = out + out_bytes});
    }
    return r;
}

int sw_streams_decode_segment(sw_put_stream *put, const void *decoder, const uint8_t *data, size_t data_bytes,
                              const uint8_t counts[SW_TILE_SEGMENTS], unsigned segment_log2, size_t tile_bytes,
                              unsigned segment, uint8_t *out, size_t *ret_bytes) {
    struct reader reader;
    square_streams words;
    const size_t bytes = segment < SW_TILE_SEGMENTS ? sw_streams_segment_bytes(tile_bytes, segment_log2, segment) : 0;
    if (bytes == 0)
        return -SW_ERANGE;
    int r = reader_init(&reader, data, data_bytes, counts, segment_log2, tile_bytes);
    if (r < 0)
        return r;
    for (unsigned s = 0; s < segment; s++)
        reader.tail += (size_t)4 * (reader.shape.words[s] - reader.shape.rows);
    gather(&reader, segment, 1, words);
    r = decode_one(put, decoder, &reader, segment, words[0],
                   (struct sw_sink){.to = out, .end = out + bytes, .limit = out + bytes});
    if (r == 0)
        *ret_bytes = bytes;
    return r;
}

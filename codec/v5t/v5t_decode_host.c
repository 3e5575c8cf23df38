/* v5t_decode_host.c - one tile, or one segment of it, back to bytes.
 *
 * Everything that addresses is checked before it is used: a tile's word counts against the data that are there, the
 * room before a run of unchecked stores, every code against the table. */
#include "codec/v5t/v5t_host.h"

#include <stdbool.h>
#include <string.h>

void sw_v5t_decoder_init(struct sw_v5t_decoder *ret, const struct sw_v5t_table *table) {
    memcpy(ret->value, table->value, sizeof ret->value);
    memcpy(ret->length, table->length, sizeof ret->length);
    ret->has_all_codes = table->n_symbols == SW_V5T_MAX_SYMBOLS;
}

/* A segment that is being decoded: the room that is left of its length. */
struct sink {
    uint8_t *to, *end;
    bool in_escape; /* the next code byte is a literal */
    bool is_bad;
};

/* A run of words that are `stride` bytes apart. */
struct run {
    const uint8_t *words;
    size_t stride;
    uint32_t n;
};

static inline uint32_t load32(const uint8_t *p) {
    uint32_t word;
    memcpy(&word, p, 4);
    return word;
}

static inline bool has_escape(uint32_t word) {
    return (~word - 0x01010101u) & word & 0x80808080u;
}

/* One code byte, with all checks. */
static inline void put_code(const struct sw_v5t_decoder *d, struct sink *s, uint8_t code) {
    size_t left = (size_t)(s->end - s->to), length = d->length[code];
    if (s->in_escape) {
        s->in_escape = false;
        *s->to++ = code;
    } else if (code == SW_V5T_ESCAPE) {
        s->in_escape = true;
    } else if (length == 0 || length > left) {
        s->is_bad = true;
    } else {
        memcpy(s->to, &d->value[code], left >= 8 ? 8 : length);
        s->to += length;
    }
}

/* Four codes, none an escape, with room for four times 8 bytes; returns false for a code that is not in the table. */
static inline bool put_word(const struct sw_v5t_decoder *d, uint8_t **to, uint32_t word, bool has_all_codes) {
    bool are_known = true;
#pragma GCC unroll 4
    for (unsigned i = 0; i < 4; i++) {
        uint8_t code = (uint8_t)(word >> 8 * i);
        memcpy(*to, &d->value[code], 8);
        *to += d->length[code];
        are_known &= has_all_codes || d->length[code] != 0;
    }
    return are_known;
}

/* Words as long as they can be decoded by put_word(); moves `run` on. */
static inline __attribute__((always_inline)) void put_plain_words(const struct sw_v5t_decoder *d, struct sink *s,
                                                                  struct run *run, bool has_all_codes) {
    const uint8_t *words = run->words;
    uint8_t *to = s->to;
    uint32_t n = run->n;
    for (; n && s->end - to >= 32; n--, words += run->stride) {
        uint32_t word = load32(words);
        if (has_escape(word))
            break;
        if (!put_word(d, &to, word, has_all_codes)) {
            s->is_bad = true;
            break;
        }
    }
    s->to = to;
    run->words = words;
    run->n = n;
}

static void put_run(const struct sw_v5t_decoder *d, struct sink *s, struct run run) {
    while (run.n && s->to < s->end && !s->is_bad) {
        if (!s->in_escape) {
            if (d->has_all_codes)
                put_plain_words(d, s, &run, true);
            else
                put_plain_words(d, s, &run, false);
            if (!run.n)
                return;
        }
        uint32_t word = load32(run.words);
        for (unsigned i = 0; i < 4 && s->to < s->end && !s->is_bad; i++)
            put_code(d, s, (uint8_t)(word >> 8 * i));
        run.words += run.stride;
        run.n--;
    }
}

static void copy_run(struct sink *s, struct run run) {
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

static size_t segment_bytes(size_t tile_bytes, unsigned segment_log2, unsigned segment) {
    size_t full = (size_t)1 << segment_log2, start = (size_t)segment << segment_log2;
    if (start >= tile_bytes)
        return 0;
    return tile_bytes - start < full ? tile_bytes - start : full;
}

static int shape_init(struct shape *ret, const uint8_t *counts, unsigned segment_log2, size_t tile_bytes) {
    *ret = (struct shape){.rows = UINT32_MAX};
    for (unsigned s = 0; s < SW_TILE_SEGMENTS; s++) {
        uint32_t raw_words = (uint32_t)((segment_bytes(tile_bytes, segment_log2, s) + 3) / 4);
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

/* tail: the segment's words after the rows. */
static int decode_one(const struct sw_v5t_decoder *d, const struct shape *shape, const uint8_t *data,
                      const uint8_t *tail, unsigned segment, bool is_raw, uint8_t *out, size_t out_bytes) {
    struct sink sink = {.to = out, .end = out + out_bytes};
    struct run row_run = {data + (size_t)4 * segment, (size_t)4 * shape->segments, shape->rows};
    struct run tail_run = {tail, 4, shape->words[segment] - shape->rows};
    if (is_raw) {
        copy_run(&sink, row_run);
        copy_run(&sink, tail_run);
    } else {
        put_run(d, &sink, row_run);
        put_run(d, &sink, tail_run);
    }
    return sink.is_bad || sink.in_escape || sink.to != sink.end ? -SW_EFRAME : 0;
}

int sw_v5t_decode_tile(const struct sw_v5t_decoder *decoder, const uint8_t *data, size_t data_bytes,
                       const uint8_t counts[SW_TILE_SEGMENTS], unsigned segment_log2, uint8_t *out, size_t out_bytes) {
    struct shape shape;
    int r = shape_init(&shape, counts, segment_log2, out_bytes);
    if (r < 0 || (size_t)4 * shape.total_words > data_bytes)
        return -SW_EFRAME;
    const uint8_t *tail = data + (size_t)4 * shape.rows * shape.segments;
    for (unsigned s = 0; s < shape.segments; s++) {
        r = decode_one(decoder, &shape, data, tail, s, counts[s] == 0, out + ((size_t)s << segment_log2),
                       segment_bytes(out_bytes, segment_log2, s));
        if (r < 0)
            return r;
        tail += (size_t)4 * (shape.words[s] - shape.rows);
    }
    return 0;
}

int sw_v5t_decode_segment(const struct sw_v5t_decoder *decoder, const uint8_t *data, size_t data_bytes,
                          const uint8_t counts[SW_TILE_SEGMENTS], unsigned segment_log2, size_t tile_bytes,
                          unsigned segment, uint8_t *out, size_t *ret_bytes) {
    struct shape shape;
    size_t bytes = segment < SW_TILE_SEGMENTS ? segment_bytes(tile_bytes, segment_log2, segment) : 0;
    if (bytes == 0)
        return -SW_ERANGE;
    int r = shape_init(&shape, counts, segment_log2, tile_bytes);
    if (r < 0 || (size_t)4 * shape.total_words > data_bytes)
        return -SW_EFRAME;
    const uint8_t *tail = data + (size_t)4 * shape.rows * shape.segments;
    for (unsigned s = 0; s < segment; s++)
        tail += (size_t)4 * (shape.words[s] - shape.rows);
    r = decode_one(decoder, &shape, data, tail, segment, counts[segment] == 0, out, bytes);
    if (r == 0)
        *ret_bytes = bytes;
    return r;
}

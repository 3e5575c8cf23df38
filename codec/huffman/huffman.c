/* huffman.c - codes of a value's parts: the row, and encoder and decoder on the host. */
#include "codec/huffman/huffman.h"

#include "base/alloc.h"
#include "codec/checksum.h"
#include "codec/codec_ops.h"
#include "codec/streams/streams.h"

#include <string.h>

/* ---- encoding ---- */

struct encoder {
    struct sw_huffman_shape shape;
    uint16_t code[SW_HUFFMAN_MAX_TABLES][SW_HUFFMAN_SYMBOLS];
};

static void *encoder_new(const struct sw_plan *plan) {
    struct encoder *e = sw_alloc(sizeof *e);
    const struct sw_params *params = &plan->params;
    sw_huffman_lengths length;
    uint16_t start[SW_HUFFMAN_SYMBOLS] = {0};
    if (!e)
        return NULL;
    memset(e, 0, sizeof *e); /* without a shape, every segment is stored raw */
    if (!sw_huffman_shape_read(&e->shape, params->value, params->n_symbols))
        return e;
    for (unsigned table = 0; table < e->shape.n_tables; table++) {
        if (!sw_huffman_read_table(length, start, params->value, table, e->shape.escape_bits))
            continue;
        for (unsigned s = 0; s < SW_HUFFMAN_SYMBOLS; s++)
            e->code[table][s] = length[s] ? sw_huffman_code(start[s], length[s]) : 0;
    }
    return e;
}

/* A stream being written. It may pass `end` by the bits of a value. */
struct writer {
    uint64_t acc;
    unsigned bits; /* in acc, below 32 */
    uint8_t *to;
    const uint8_t *end;
};

static inline void put(struct writer *w, uint32_t bits, unsigned n) {
    w->acc |= (uint64_t)bits << w->bits;
    w->bits += n;
    if (w->bits >= 32) {
        memcpy(w->to, &w->acc, 4);
        w->to += 4;
        w->acc >>= 32;
        w->bits -= 32;
    }
}

static void put_escape(const struct encoder *e, struct writer *w, struct sw_huffman_value v) {
    const unsigned parts = e->shape.parts;
    put(w, e->code[0][SW_HUFFMAN_ESCAPE] & 0xFFF, e->shape.escape_bits);
    for (unsigned part = 0; part < parts; part += 4) {
        const struct sw_huffman_run run = {(uint8_t)part, (uint8_t)(parts < 4 ? parts : 4)};
        put(w, sw_huffman_run_bits(v, run), 8u * run.parts);
    }
}

static inline void put_value(const struct encoder *e, struct writer *w, struct sw_huffman_value v) {
    const struct sw_huffman_shape *s = &e->shape;
    uint32_t code[SW_HUFFMAN_MAX_TABLES];
    bool has_code =
        (v.low & s->is_constant.low) == s->constant.low && (v.high & s->is_constant.high) == s->constant.high;
    for (unsigned table = 0; table < s->n_tables; table++) {
        code[table] = e->code[table][sw_huffman_part(v, sw_huffman_coded_part(s, table))];
        has_code &= code[table] > 0;
    }
    if (!has_code) {
        put_escape(e, w, v);
        return;
    }
    for (unsigned table = 0; table < s->n_tables; table++)
        put(w, code[table] & 0xFFF, code[table] >> 12);
    for (unsigned i = 0; i < s->n_runs; i++) {
        const struct sw_huffman_run run = sw_huffman_run_of(s, i);
        put(w, sw_huffman_run_bits(v, run), 8u * run.parts);
    }
}

/* Encodes a segment to the stream; returns its bytes, or the content's if they are not fewer. */
static size_t encode_segment(const struct encoder *e, const uint8_t *in, size_t bytes, uint8_t *stream) {
    struct writer w = {.to = stream, .end = stream + bytes};
    const unsigned parts = e->shape.parts;
    size_t at = 0;
    for (; parts && at < bytes && w.to < w.end; at += parts)
        put_value(e, &w, sw_huffman_forward(&e->shape, sw_huffman_load(in + at, bytes - at, parts)));
    const size_t coded_bytes = (size_t)(w.to - stream) + (w.bits + 7) / 8;
    memcpy(w.to, &w.acc, sizeof w.acc);
    return at >= bytes && coded_bytes < bytes ? coded_bytes : bytes;
}

static size_t encode_tile(const void *encoder, const uint8_t *in, size_t in_bytes, unsigned segment_log2, uint8_t *out,
                          uint8_t *counts) {
    struct sw_streams streams;
    sw_streams_init(&streams, in, in_bytes, segment_log2, counts);
    for (unsigned s = 0; s < SW_TILE_SEGMENTS; s++) {
        const size_t bytes = sw_streams_segment_bytes(in_bytes, segment_log2, s);
        if (bytes)
            sw_streams_close(&streams, s,
                             encode_segment(encoder, in + ((size_t)s << segment_log2), bytes, streams.stream[s]));
    }
    return sw_streams_put(&streams, out);
}

/* ---- decoding ---- */

struct decoder {
    struct sw_huffman_shape shape;
    uint16_t entry[SW_HUFFMAN_MAX_TABLES][SW_HUFFMAN_ENTRIES];
};
SW_CHECK_DECODER(struct decoder);

static int decoder_init(void *ret, const struct sw_frame_layout *layout, const uint8_t *frame) {
    uint64_t words[SW_HUFFMAN_TABLES + SW_HUFFMAN_MAX_TABLES * SW_HUFFMAN_TABLE_WORDS];
    struct decoder *d = ret;
    sw_huffman_lengths length;
    uint16_t start[SW_HUFFMAN_SYMBOLS];
    memset(d, 0, sizeof *d);
    if (!layout->n_symbols)
        return 0; /* all segments are raw */
    if (layout->n_symbols < SW_HUFFMAN_TABLES || layout->n_symbols > sizeof words / sizeof words[0])
        return -SW_EFRAME;
    memcpy(words, frame + SW_FRAME_HEADER_BYTES, layout->n_symbols * sizeof words[0]);
    if (!sw_huffman_shape_read(&d->shape, words, layout->n_symbols))
        return -SW_EFRAME;
    for (unsigned table = 0; table < d->shape.n_tables; table++) {
        if (!sw_huffman_read_table(length, start, words, table, d->shape.escape_bits))
            return -SW_EFRAME;
        for (unsigned s = 0; s < SW_HUFFMAN_SYMBOLS; s++) {
            const uint32_t first = length[s] ? sw_huffman_bits(start[s], length[s]) : SW_HUFFMAN_ENTRIES;
            for (uint32_t i = first; i < SW_HUFFMAN_ENTRIES; i += 1u << length[s])
                d->entry[table][i] = sw_huffman_entry(s, length[s]);
        }
    }
    return 0;
}

/* A stream being read. Bits after its end are zero. */
struct reader {
    uint64_t acc;
    unsigned bits;
    const uint8_t *words;
    uint32_t left; /* words */
    uint32_t missing;
};

/* Makes sure that acc has 32 bits. */
static inline void fill(struct reader *r) {
    uint32_t word = 0;
    if (r->bits >= 32)
        return;
    if (r->left) {
        memcpy(&word, r->words, sizeof word);
        r->words += sizeof word;
        r->left--;
    } else {
        r->missing++;
    }
    r->acc |= (uint64_t)word << r->bits;
    r->bits += 32;
}

static inline uint32_t take(struct reader *r, unsigned n) {
    fill(r);
    const uint32_t bits = (uint32_t)(r->acc & ~(uint64_t)0 >> (64 - n));
    r->acc >>= n;
    r->bits -= n;
    return bits;
}

/* Gets a table's next entry; 0: there is no such code. */
static inline uint32_t take_entry(const struct decoder *d, struct reader *r, unsigned table) {
    fill(r);
    const uint32_t entry = d->entry[table][r->acc % SW_HUFFMAN_ENTRIES], length = entry >> 8 & 15;
    r->acc >>= length;
    r->bits -= length;
    return entry;
}

static bool take_value(const struct decoder *d, struct reader *r, struct sw_huffman_value *ret) {
    const struct sw_huffman_shape *s = &d->shape;
    struct sw_huffman_value v = s->constant;
    bool is_good = true;
    for (unsigned table = 0; table < s->n_tables; table++) {
        const uint32_t entry = take_entry(d, r, table);
        if (entry & SW_HUFFMAN_IS_ESCAPE) {
            *ret = (struct sw_huffman_value){0, 0};
            for (unsigned part = 0; part < s->parts; part += 4)
                sw_huffman_add_part(ret, part, take(r, s->parts < 4 ? 8u * s->parts : 32));
            return true;
        }
        sw_huffman_add_part(&v, sw_huffman_coded_part(s, table), entry & 0xFF);
        is_good &= entry > 0;
    }
    for (unsigned i = 0; i < s->n_runs; i++) {
        const struct sw_huffman_run run = sw_huffman_run_of(s, i);
        sw_huffman_add_part(&v, run.first, take(r, 8u * run.parts));
    }
    *ret = v;
    return is_good;
}

static void put_stream(const void *decoder, struct sw_sink *sink, const uint8_t *words, uint32_t n) {
    const struct decoder *d = decoder;
    const size_t parts = d->shape.parts;
    struct reader r = {.words = words, .left = n};
    sink->is_bad = parts == 0;
    while (sink->to < sink->end && !sink->is_bad) {
        struct sw_huffman_value v;
        sink->is_bad = !take_value(d, &r, &v);
        v = sw_huffman_backward(&d->shape, v);
        const size_t room = (size_t)(sink->end - sink->to), bytes = room < parts ? room : parts;
        memcpy(sink->to, &v, bytes);
        sink->to += bytes;
    }
    sink->is_bad |= 32 * r.missing > r.bits;
}

static int decode_tile(const void *decoder, const struct sw_tile_view *tile, uint8_t *out) {
    return sw_streams_decode_tile(put_stream, decoder, tile->data, tile->data_bytes, tile->counts, tile->segment_log2,
                                  out, tile->tile_bytes);
}

static int decode_segment(const void *decoder, const struct sw_tile_view *tile, unsigned segment, uint8_t *out,
                          size_t *ret_bytes) {
    return sw_streams_decode_segment(put_stream, decoder, tile->data, tile->data_bytes, tile->counts,
                                     tile->segment_log2, tile->tile_bytes, segment, out, ret_bytes);
}

/* ---- plans ---- */

static void learn(struct sw_plan *plan, const void *sample, size_t sample_bytes) {
    plan->segment_log2 = SW_STREAMS_MAX_SEGMENT_LOG2;
    sw_huffman_learn(&plan->params, plan->value_type, sample, sample_bytes);
}

static double estimate(const struct sw_plan *plan, const uint8_t *sample, size_t sample_bytes, uint64_t raw_bytes) {
    const size_t tile_bytes = (size_t)SW_TILE_SEGMENTS << plan->segment_log2;
    struct encoder *e = encoder_new(plan);
    uint8_t *out = sw_alloc(tile_bytes), counts[SW_TILE_SEGMENTS];
    size_t coded_bytes = 0;
    (void)raw_bytes;
    for (size_t at = 0; e && out && at < sample_bytes; at += tile_bytes)
        coded_bytes += encode_tile(e, sample + at, sample_bytes - at < tile_bytes ? sample_bytes - at : tile_bytes,
                                   plan->segment_log2, out, counts);
    sw_free(out);
    sw_free(e);
    return coded_bytes ? (double)coded_bytes / (double)sample_bytes : 1; /* 0: out of memory */
}

/* Codes of single bytes are tried if v5t's symbols, which have codes of whole bytes, gain little. */
#define REFINE_RATIO 2.2
#define REFINE_GAIN 1.05

static bool may_refine(const struct sw_plan *plan) {
    return plan->codec == SW_CODEC_RAW || (plan->codec == SW_CODEC_V5T && sw_plan_data_ratio(plan) < REFINE_RATIO);
}

static void refine(struct sw_plan *ret, const struct sw_plan *plan, const void *sample, size_t sample_bytes) {
    (void)plan;
    learn(ret, sample, sample_bytes);
}

const struct sw_codec_ops sw_huffman_ops = {
    .hash_tile = sw_hash_tile,
    .learn = learn,
    .estimate = estimate,
    .least_gain = 1.03,
    .may_refine = may_refine,
    .refine = refine,
    .refine_gain = REFINE_GAIN,
    .encoder_new = encoder_new,
    .encoder_free = sw_free,
    .encode_tile = encode_tile,
    .decoder_init = decoder_init,
    .decode_tile = decode_tile,
    .decode_segment = decode_segment,
};

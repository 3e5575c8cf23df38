/* phrase_ops.c - phrase's row in the codec table. */
#include "base/alloc.h"
#include "base/err.h"
#include "codec/checksum.h"
#include "codec/codec_ops.h"
#include "codec/phrase/phrase_core.h"
#include "codec/sample.h"
#include "codec/streams/streams.h"

#include <string.h>

static void *encoder_new(const struct sw_plan *plan) {
    struct sw_phrase_index *index = sw_alloc(sizeof *index);
    struct sw_phrase_book book;
    if (index) {
        if (sw_phrase_book_read(&book, &plan->params) < 0)
            memset(&book, 0, sizeof book); /* the table was not learned: escape all bytes */
        sw_phrase_index_init(index, &book);
    }
    return index;
}

static void encoder_free(void *encoder) {
    sw_free(encoder);
}

/* A segment being encoded: the next byte to read, the segment's end, the next byte to write. */
struct lane {
    const uint8_t *in, *end;
    uint8_t *to;
};

static inline void put_code(const struct sw_phrase_index *index, struct lane *lane, uint32_t code) {
    *lane->to++ = (uint8_t)code;
    if (code == SW_PHRASE_MAX) /* no phrase; this is also the escape's code */
        *lane->to++ = *lane->in++;
    else
        lane->in += index->length[code];
}

static inline bool is_far(const struct lane *lane) {
    return lane->end - lane->in >= SW_PHRASE_MAX_BYTES;
}

/* Encodes four segments, as long as no lane is near its segment's end. */
static void encode_four(const struct sw_phrase_index *index, struct lane lanes[4]) {
    static const size_t left[4] = {SW_PHRASE_MAX_BYTES, SW_PHRASE_MAX_BYTES, SW_PHRASE_MAX_BYTES, SW_PHRASE_MAX_BYTES};
    while (is_far(&lanes[0]) && is_far(&lanes[1]) && is_far(&lanes[2]) && is_far(&lanes[3])) {
        const uint8_t *const in[4] = {lanes[0].in, lanes[1].in, lanes[2].in, lanes[3].in};
        uint32_t codes[4];
        sw_phrase_find_four(index, in, left, codes);
        for (unsigned i = 0; i < 4; i++)
            put_code(index, &lanes[i], codes[i]);
    }
}

/* Encodes the rest of a segment; returns the end of its codes. */
static const uint8_t *encode_rest(const struct sw_phrase_index *index, struct lane lane) {
    uint8_t tail[2 * SW_PHRASE_MAX_BYTES] = {0};
    while (is_far(&lane))
        put_code(index, &lane, sw_phrase_find_at(index, lane.in, SW_PHRASE_MAX_BYTES));
    const size_t left = (size_t)(lane.end - lane.in);
    memcpy(tail, lane.in, left);
    lane.in = tail;
    lane.end = tail + left;
    while (lane.in < lane.end)
        put_code(index, &lane, sw_phrase_find_at(index, lane.in, (size_t)(lane.end - lane.in)));
    return lane.to;
}

static size_t encode_tile(const void *encoder, const uint8_t *in, size_t in_bytes, unsigned segment_log2, uint8_t *out,
                          uint8_t *counts) {
    const unsigned n = (unsigned)((in_bytes - 1) >> segment_log2) + 1;
    struct sw_streams streams;
    struct lane lanes[SW_TILE_SEGMENTS];
    sw_streams_init(&streams, in, in_bytes, segment_log2, counts);
    for (unsigned s = 0; s < n; s++) {
        const uint8_t *from = in + ((size_t)s << segment_log2);
        lanes[s] = (struct lane){from, from + sw_streams_segment_bytes(in_bytes, segment_log2, s), streams.stream[s]};
    }
    for (unsigned s = 0; s + 4 <= n; s += 4)
        encode_four(encoder, lanes + s);
    for (unsigned s = 0; s < n; s++)
        sw_streams_close(&streams, s, (size_t)(encode_rest(encoder, lanes[s]) - streams.stream[s]));
    return sw_streams_put(&streams, out);
}

static int decoder_init(void *ret, const struct sw_frame_layout *layout, const uint8_t *frame) {
    struct sw_params table;
    const int r = sw_params_read(&table, frame + SW_FRAME_HEADER_BYTES, layout->n_symbols, SW_PHRASE_MAX_BYTES);
    return r < 0 ? r : sw_phrase_book_read(ret, &table);
}

/* Decodes four codes without escapes; there is room for four of the longest phrases. False: a code is not in the table.
 */
static inline bool put_word(const struct sw_phrase_book *book, uint8_t **to, uint32_t word) {
    bool are_known = true;
    for (unsigned i = 0; i < 4; i++) {
        const uint8_t code = (uint8_t)(word >> 8 * i), length = book->length[code];
        const uint8_t *text = book->text[code];
        memcpy(*to, text, 16);
        if (length > 16)
            memcpy(*to + 16, text + 16, SW_PHRASE_MAX_BYTES - 16);
        *to += length;
        are_known &= length > 0;
    }
    return are_known;
}

/* Decodes one code byte, with all checks. */
static void put_byte(const struct sw_phrase_book *book, struct sw_sink *sink, uint8_t code) {
    if (sink->in_escape) {
        *sink->to++ = code;
        sink->in_escape = false;
    } else if (code == SW_STREAMS_ESCAPE) {
        sink->in_escape = true;
    } else if (book->length[code] == 0 || book->length[code] > sink->end - sink->to) {
        sink->is_bad = true;
    } else {
        memcpy(sink->to, book->text[code], book->length[code]);
        sink->to += book->length[code];
    }
}

static void put_stream(const void *decoder, struct sw_sink *sink, const uint8_t *words, uint32_t n) {
    const struct sw_phrase_book *book = decoder;
    for (; n && !sink->is_bad; n--, words += 4) {
        uint32_t word;
        memcpy(&word, words, 4);
        if (!sink->in_escape && sink->end - sink->to >= (ptrdiff_t)4 * SW_PHRASE_MAX_BYTES &&
            !sw_streams_has_escape(word))
            sink->is_bad = !put_word(book, &sink->to, word);
        else
            for (unsigned i = 0; i < 4 && sink->to < sink->end && !sink->is_bad; i++)
                put_byte(book, sink, words[i]);
    }
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

/* ---- plans: refine v5t's ---- */

/* Phrases are tried in two cases: v5t's symbols are nearly as long as they can be, or v5t has found no use for all
 * codes, because it allows few symbols that begin alike. Phrases are taken if they save a fifth, because looking them
 * up is slower. */
#define REFINE_RATIO 4.3
#define REFINE_SYMBOLS 240
#define REFINE_GAIN 1.25

static bool may_refine(const struct sw_plan *plan) {
    return plan->codec == SW_CODEC_V5T &&
           (sw_plan_data_ratio(plan) >= REFINE_RATIO || plan->params.n_symbols <= REFINE_SYMBOLS);
}

static void refine(struct sw_plan *ret, const struct sw_plan *plan, const void *sample, size_t sample_bytes) {
    ret->segment_log2 = plan->segment_log2;
    sw_phrase_learn(&ret->params, &plan->params, sample, sample_bytes, SW_SAMPLE_LONG_PIECE_BYTES, plan->raw_bytes);
}

SW_CHECK_DECODER(struct sw_phrase_book);

const struct sw_codec_ops sw_phrase_ops = {
    .hash_tile = sw_hash_tile,
    .may_refine = may_refine,
    .refine = refine,
    .refine_gain = REFINE_GAIN,
    .encoder_new = encoder_new,
    .encoder_free = encoder_free,
    .encode_tile = encode_tile,
    .decoder_init = decoder_init,
    .decode_tile = decode_tile,
    .decode_segment = decode_segment,
};

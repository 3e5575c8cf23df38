/* onpair_ops.c - onpair's row in the codec table. */
#include "base/alloc.h"
#include "base/err.h"
#include "codec/checksum.h"
#include "codec/codec_ops.h"
#include "codec/onpair/onpair.h"
#include "codec/sample.h"
#include "codec/streams/streams.h"

#include <string.h>

/* Measured on the nine columns of TUNING.md: the estimate is 1 to 5 % too low, so a smaller gain is one, too. */
#define REFINE_GAIN 1.02

_Static_assert(SW_SAMPLE_LONG_PIECE_BYTES == SW_ONPAIR_PIECE_BYTES, "pieces of a sample");

static int add_index(struct sw_frame_dictionary *ret) {
    struct sw_onpair_index index;
    const int r = sw_onpair_index_new(&index, ret);
    if (r < 0)
        return r;
    ret->index_log2 = index.log2;
    ret->index_bytes = sw_onpair_index_bytes(index.log2);
    memcpy(ret->index, index.text, ret->index_bytes);
    sw_onpair_index_free(&index);
    return 0;
}

static int learn_dictionary(struct sw_frame_dictionary *ret, const void *sample, size_t sample_bytes) {
    const int r = sw_onpair_learn(ret, sample, sample_bytes, SW_ONPAIR_PIECE_BYTES, SW_ONPAIR_MAX_SYMBOLS);
    return r < 0 ? r : add_index(ret);
}

static int write_dictionary(struct sw_frame_dictionary *ret, void *learned) {
    struct sw_onpair_learned *l = learned;
    bool is_sound = l->n > 0 && l->n <= SW_ONPAIR_MOST_NUMBERS;
    for (uint32_t i = 0; is_sound && i < l->n; i++)
        is_sound = l->symbol[i].bytes >= 1 && l->symbol[i].bytes <= SW_ONPAIR_MAX_BYTES;
    const int r = is_sound ? sw_onpair_write(ret, l, SW_ONPAIR_MAX_SYMBOLS) : -SW_EFRAME;
    return r < 0 ? r : add_index(ret);
}

struct encoder {
    struct sw_onpair_index index;
    bool owns_index; /* else it is the dictionary's */
};

static void *encoder_new(const struct sw_plan *plan) {
    const struct sw_frame_dictionary *dictionary = plan->dictionary;
    struct encoder *e = sw_alloc(sizeof *e);
    if (!e)
        return NULL;
    e->owns_index = dictionary->index_bytes == 0;
    if (!e->owns_index) {
        e->index = sw_onpair_index_at((void *)dictionary->index, dictionary->index_log2);
    } else if (sw_onpair_index_new(&e->index, dictionary) < 0) {
        sw_free(e);
        return NULL;
    }
    return e;
}

static void encoder_free(void *encoder) {
    struct encoder *e = encoder;
    if (e && e->owns_index)
        sw_onpair_index_free(&e->index);
    sw_free(e);
}

/* A segment being encoded. */
struct lane {
    const uint8_t *in, *end;
    uint8_t *to, *limit; /* limit: from here on the codes are longer than the content */
    uint64_t bits;       /* not yet written; less than 32 between codes */
    unsigned n_bits;
};

static inline void put_code(struct lane *lane, uint32_t code) {
    const uint32_t code_bits = sw_onpair_code_bits(code);
    uint32_t bytes = sw_onpair_symbol_bytes(code);
    lane->bits |= (uint64_t)(code & 0xFFFF) << lane->n_bits;
    lane->n_bits += code_bits;
    if (bytes == 0) { /* the escape */
        lane->bits |= (uint64_t)*lane->in << lane->n_bits;
        lane->n_bits += 8;
        bytes = 1;
    }
    lane->in += bytes;
    memcpy(lane->to, &lane->bits, 8);
    const unsigned full = lane->n_bits / 32 * 32;
    lane->to += full / 8;
    lane->bits >>= full;
    lane->n_bits -= full;
}

static inline bool is_far(const struct lane *lane) {
    return lane->end - lane->in >= SW_ONPAIR_MAX_BYTES && lane->to < lane->limit;
}

/* Encodes the next symbol; the content's next 16 bytes can be read. */
static inline void encode_one(const struct sw_onpair_index *index, struct lane *lane, uint32_t left) {
    uint32_t text[4];
    memcpy(text, lane->in, sizeof text);
    put_code(lane, sw_onpair_find(index, text, left));
}

/* Encodes four segments, as long as no lane is near its segment's end. The steps of one search depend on each other, so
 * four of them keep the processor busy. */
static void encode_four(const struct sw_onpair_index *index, struct lane lanes[4]) {
    while (is_far(&lanes[0]) && is_far(&lanes[1]) && is_far(&lanes[2]) && is_far(&lanes[3]))
        for (unsigned i = 0; i < 4; i++)
            encode_one(index, &lanes[i], SW_ONPAIR_MAX_BYTES);
}

/* Encodes the rest of a segment. Returns the length of its codes; of codes that are too long, the content's. */
static size_t encode_rest(const struct sw_onpair_index *index, struct lane lane, const uint8_t *stream,
                          size_t in_bytes) {
    uint8_t tail[2 * SW_ONPAIR_MAX_BYTES] = {0};
    while (is_far(&lane))
        encode_one(index, &lane, SW_ONPAIR_MAX_BYTES);
    if (lane.to >= lane.limit)
        return in_bytes;
    const size_t left = (size_t)(lane.end - lane.in);
    memcpy(tail, lane.in, left);
    lane.in = tail;
    lane.end = tail + left;
    while (lane.in < lane.end)
        encode_one(index, &lane, (uint32_t)(lane.end - lane.in));
    return (size_t)(lane.to - stream) + (lane.n_bits + 7) / 8;
}

static size_t encode_tile(const void *encoder, const uint8_t *in, size_t in_bytes, unsigned segment_log2, uint8_t *out,
                          uint8_t *counts) {
    const struct sw_onpair_index *index = &((const struct encoder *)encoder)->index;
    const unsigned n = (unsigned)((in_bytes - 1) >> segment_log2) + 1;
    struct sw_streams streams;
    struct lane lanes[SW_TILE_SEGMENTS];
    sw_streams_init(&streams, in, in_bytes, segment_log2, counts);
    for (unsigned s = 0; s < n; s++) {
        const uint8_t *from = in + ((size_t)s << segment_log2);
        const size_t bytes = sw_streams_segment_bytes(in_bytes, segment_log2, s);
        uint8_t *to = streams.stream[s];
        lanes[s] = (struct lane){.in = from, .end = from + bytes, .to = to, .limit = to + bytes};
    }
    for (unsigned s = 0; s + 4 <= n; s += 4)
        encode_four(index, lanes + s);
    for (unsigned s = 0; s < n; s++)
        sw_streams_close(
            &streams, s,
            encode_rest(index, lanes[s], streams.stream[s], sw_streams_segment_bytes(in_bytes, segment_log2, s)));
    return sw_streams_put(&streams, out);
}

static int decoder_init(void *ret, const struct sw_frame_layout *layout, const uint8_t *frame) {
    return sw_onpair_table_read(ret, frame + layout->dictionary_offset, layout->dictionary_bytes);
}

/* Decodes a stream. A code takes 4 bits or more, and at most 24. */
static void put_stream(const void *decoder, struct sw_sink *sink, const uint8_t *words, uint32_t n) {
    const struct sw_onpair_table *table = decoder;
    const size_t end = (size_t)32 * n;
    size_t at = 0; /* in bits */
    while (sink->to < sink->end && at < end && !sink->is_bad) {
        uint64_t bits;
        memcpy(&bits, words + at / 8, 8); /* a stream is followed by 8 bytes and more */
        bits >>= at % 8;
        const uint32_t class = bits % SW_ONPAIR_CLASSES, raw_bits = table->raw_bits[class];
        const uint32_t raw = (uint32_t)(bits >> SW_ONPAIR_CLASS_BITS) & ((1u << raw_bits) - 1);
        const uint32_t number = table->first[class] + raw;
        at += SW_ONPAIR_CLASS_BITS + raw_bits;
        if (number < table->n) {
            const uint8_t *text = table->text + table->at[number], length = table->length[number];
            sink->is_bad = length > sink->end - sink->to;
            if (sink->limit - sink->to >= SW_ONPAIR_MAX_BYTES)
                memcpy(sink->to, text, SW_ONPAIR_MAX_BYTES); /* what is too much is decoded later */
            else if (!sink->is_bad)
                memcpy(sink->to, text, length);
            sink->to += sink->is_bad ? 0 : length;
        } else {
            sink->is_bad = number > table->n;
            *sink->to++ = (uint8_t)(bits >> (SW_ONPAIR_CLASS_BITS + raw_bits));
            at += 8;
        }
    }
    sink->is_bad |= at > end;
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

SW_CHECK_DECODER(struct sw_onpair_table);

const struct sw_codec_ops sw_onpair_ops = {
    .hash_tile = sw_hash_tile,
    .refine_gain = REFINE_GAIN,
    .learn_dictionary = learn_dictionary,
    .write_dictionary = write_dictionary,
    .encoder_new = encoder_new,
    .encoder_free = encoder_free,
    .encode_tile = encode_tile,
    .decoder_init = decoder_init,
    .decode_tile = decode_tile,
    .decode_segment = decode_segment,
};

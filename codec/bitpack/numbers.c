#include "codec/bitpack/numbers.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "codec/dict/dictionary.h"
#include "codec/sample.h"

#include <string.h>

struct encoder {
    const struct sw_numbers_codec *codec;
    enum sw_value_type type;
    struct sw_dictionary dictionary;
    struct sw_grid grid;
};

static void encoder_init(struct encoder *ret, const struct sw_numbers_codec *codec, const struct sw_plan *plan) {
    ret->codec = codec;
    ret->type = plan->value_type;
    sw_dictionary_init(&ret->dictionary, &plan->params, sw_value_bits(plan->value_type));
    sw_grid_init(&ret->grid, plan->params.own, sw_value_bits(plan->value_type));
}

void *sw_numbers_encoder_new(const struct sw_numbers_codec *codec, const struct sw_plan *plan) {
    struct encoder *e = sw_alloc(sizeof *e);
    if (e)
        encoder_init(e, codec, plan);
    return e;
}

struct decoder {
    const struct sw_numbers_codec *codec;
    enum sw_value_type type;
    struct sw_dictionary dictionary; /* empty for codecs without symbols */
};
SW_CHECK_DECODER(struct decoder);

int sw_numbers_decoder_init(const struct sw_numbers_codec *codec, void *ret, const struct sw_frame_layout *layout,
                            const void *section) {
    struct decoder *d = ret;
    d->codec = codec;
    d->type = layout->value_type;
    return sw_dictionary_read(&d->dictionary, section, layout->n_symbols, sw_value_bits(layout->value_type));
}

#define DEFINE_COPIES(type)                                                                                            \
    static void load_##type(uint64_t *ret, const uint8_t *content, unsigned n) {                                       \
        type value[SW_VECTOR_VALUES];                                                                                  \
        memcpy(value, content, n * sizeof value[0]);                                                                   \
        for (unsigned i = 0; i < n; i++)                                                                               \
            ret[i] = value[i];                                                                                         \
    }                                                                                                                  \
    static void store_##type(const uint64_t *values, uint8_t *content) {                                               \
        type value[SW_VECTOR_VALUES];                                                                                  \
        for (unsigned i = 0; i < SW_VECTOR_VALUES; i++)                                                                \
            value[i] = (type)values[i];                                                                                \
        memcpy(content, value, sizeof value);                                                                          \
    }
DEFINE_COPIES(uint8_t)
DEFINE_COPIES(uint16_t)
DEFINE_COPIES(uint32_t)
DEFINE_COPIES(uint64_t)

void sw_values_load(uint64_t ret[SW_VECTOR_VALUES], const uint8_t *content, unsigned bits, unsigned n) {
    (bits == 8    ? load_uint8_t
     : bits == 16 ? load_uint16_t
     : bits == 32 ? load_uint32_t
                  : load_uint64_t)(ret, content, n);
}

void sw_values_store(const uint64_t values[SW_VECTOR_VALUES], uint8_t *content, unsigned bits) {
    (bits == 8    ? store_uint8_t
     : bits == 16 ? store_uint16_t
     : bits == 32 ? store_uint32_t
                  : store_uint64_t)(values, content);
}

/* Makes the vector to be packed. `room` holds it if it is not full. */
static struct sw_vector vector_of(const struct encoder *e, const uint8_t *in, size_t bytes,
                                  uint8_t room[SW_VECTOR_MAX_BYTES]) {
    const unsigned bits = sw_value_bits(e->type), value_bytes = bits / 8, full = sw_vector_bytes(bits);
    const unsigned n = (unsigned)((bytes + value_bytes - 1) / value_bytes);
    if (bytes < full) {
        memset(room, 0, (size_t)n * value_bytes);
        memcpy(room, in, bytes);
        for (unsigned i = n; i < SW_VECTOR_VALUES; i++)
            memcpy(room + (size_t)i * value_bytes, room, value_bytes);
    }
    return (struct sw_vector){bytes < full ? room : in, bytes, n, bits, e->type, &e->dictionary, &e->grid};
}

static unsigned whole_units(unsigned bits, size_t bytes) {
    return sw_packed_units(bits, bits, (unsigned)bytes);
}

/* Returns whether the counts section has 16 bits for each vector: a size or a tag. */
static bool has_more(const struct sw_numbers_codec *codec) {
    return codec->has_sizes || codec->units;
}

static size_t count_bytes(const struct sw_numbers_codec *codec) {
    return codec->tags_alone ? SW_TAGS_COUNT_BYTES(codec->n_bases, codec->max_vectors)
                             : SW_VECTORS_COUNT_BYTES(codec->n_bases, codec->max_vectors, has_more(codec));
}

static void write_head(const struct sw_numbers_codec *codec, const struct sw_vector_head *head, unsigned bits,
                       unsigned vector, uint8_t *counts) {
    const size_t value_bytes = bits / 8;
    for (unsigned i = 0; i < codec->n_bases; i++, counts += SW_TILE_BASES_BYTES)
        memcpy(counts + vector * value_bytes, &head->base[i], value_bytes);
    if (!codec->tags_alone) {
        counts[vector] = (uint8_t)head->width;
        counts += codec->max_vectors;
    }
    const uint16_t more = (uint16_t)(codec->units ? head->tag : head->units);
    if (has_more(codec))
        memcpy(counts + sizeof more * vector, &more, sizeof more);
}

/* Reads a vector's head. bytes: the length of its content. errors: -SW_EFRAME. */
static int read_head(const struct sw_numbers_codec *codec, struct sw_vector_head *ret, unsigned bits, unsigned vector,
                     const uint8_t *counts, size_t bytes) {
    const size_t value_bytes = bits / 8;
    uint16_t more = 0;
    *ret = (struct sw_vector_head){.units = 0};
    for (unsigned i = 0; i < codec->n_bases; i++, counts += SW_TILE_BASES_BYTES)
        memcpy(&ret->base[i], counts + vector * value_bytes, value_bytes);
    if (has_more(codec))
        memcpy(&more, counts + (codec->tags_alone ? 0 : codec->max_vectors) + sizeof more * vector, sizeof more);
    ret->width = !codec->tags_alone ? counts[vector] : more ? 0 : bits;
    if (ret->width > bits)
        return -SW_EFRAME;
    ret->units = sw_packed_units(bits, ret->width, (unsigned)bytes);
    if (!has_more(codec))
        return 0;
    if (!codec->units) {
        if (more > ret->units)
            return -SW_EFRAME;
        ret->units = more;
    } else if (ret->width < bits) {
        ret->tag = more;
        ret->units = codec->units(ret, bits);
        return ret->units < whole_units(bits, bytes) ? 0 : -SW_EFRAME;
    }
    return 0;
}

static bool is_as_it_is(const struct sw_vector_head *head, unsigned bits, size_t bytes) {
    return head->width == bits && head->units == whole_units(bits, bytes);
}

size_t sw_numbers_encode_tile(const void *encoder, const uint8_t *in, size_t in_bytes, unsigned segment_log2,
                              uint8_t *out, uint8_t *counts) {
    const struct encoder *e = encoder;
    const unsigned bits = sw_value_bits(e->type), n = sw_tile_vectors(bits, in_bytes);
    size_t at = 0;
    (void)segment_log2;
    memset(counts, 0, count_bytes(e->codec));
    for (unsigned i = 0; i < n; i++) {
        const uint8_t *from = in + (size_t)i * sw_vector_bytes(bits);
        const size_t bytes = sw_tile_vector_bytes(bits, in_bytes, i);
        uint8_t room[SW_VECTOR_MAX_BYTES];
        struct sw_vector_head head;
        const struct sw_vector v = vector_of(e, from, bytes, room);
        e->codec->measure(&v, &head);
        if (head.units < whole_units(bits, bytes)) {
            e->codec->store(&v, &head, out + at);
        } else {
            head = (struct sw_vector_head){.width = bits, .units = whole_units(bits, bytes)};
            memcpy(out + at, from, bytes);
            memset(out + at + bytes, 0, (size_t)head.units * SW_UNIT_BYTES - bytes);
        }
        write_head(e->codec, &head, bits, i, counts);
        at += (size_t)head.units * SW_UNIT_BYTES;
    }
    return at;
}

/* Finds a vector of a tile at *at, the end of the vector before it, and moves *at to its end. */
static int next_vector(const struct decoder *d, const struct sw_tile_view *tile, unsigned vector, size_t *at,
                       struct sw_vector_head *ret, const uint8_t **ret_from) {
    const unsigned bits = sw_value_bits(d->type);
    int r = read_head(d->codec, ret, bits, vector, tile->counts, sw_tile_vector_bytes(bits, tile->tile_bytes, vector));
    if (r < 0 || (size_t)ret->units * SW_UNIT_BYTES > tile->data_bytes - *at)
        return -SW_EFRAME;
    ret->dictionary = &d->dictionary;
    *ret_from = tile->data + *at;
    *at += (size_t)ret->units * SW_UNIT_BYTES;
    return 0;
}

/* Decodes a vector into `out`, which has room for `bytes`, the length of its content. */
static int decode_vector(const struct decoder *d, const struct sw_vector_head *head, const uint8_t *from, uint8_t *out,
                         size_t bytes) {
    const unsigned bits = sw_value_bits(d->type);
    uint8_t room[SW_VECTOR_MAX_BYTES];
    if (is_as_it_is(head, bits, bytes)) {
        memcpy(out, from, bytes);
        return 0;
    }
    if (bytes == sw_vector_bytes(bits))
        return d->codec->decode(head, bits, from, out);
    int r = d->codec->decode(head, bits, from, room);
    if (r == 0)
        memcpy(out, room, bytes);
    return r;
}

int sw_numbers_decode_tile(const void *decoder, const struct sw_tile_view *tile, uint8_t *out) {
    const unsigned bits = sw_value_bits(((const struct decoder *)decoder)->type),
                   n = sw_tile_vectors(bits, tile->tile_bytes);
    struct sw_vector_head head;
    const uint8_t *from;
    size_t at = 0;
    int r = 0;
    for (unsigned i = 0; r == 0 && i < n; i++) {
        r = next_vector(decoder, tile, i, &at, &head, &from);
        if (r == 0)
            r = decode_vector(decoder, &head, from, out + (size_t)i * sw_vector_bytes(bits),
                              sw_tile_vector_bytes(bits, tile->tile_bytes, i));
    }
    return r;
}

int sw_numbers_decode_segment(const void *decoder, const struct sw_tile_view *tile, unsigned segment, uint8_t *out,
                              size_t *ret_bytes) {
    const unsigned bits = sw_value_bits(((const struct decoder *)decoder)->type);
    const size_t segment_bytes = (size_t)1 << tile->segment_log2, start = segment * segment_bytes;
    const size_t in_vector = start % sw_vector_bytes(bits), left = tile->tile_bytes - start;
    const unsigned vector = (unsigned)(start / sw_vector_bytes(bits));
    uint8_t room[SW_VECTOR_MAX_BYTES];
    struct sw_vector_head head = {.units = 0};
    const uint8_t *from = tile->data;
    size_t at = 0;
    int r = 0;
    for (unsigned i = 0; r == 0 && i <= vector; i++)
        r = next_vector(decoder, tile, i, &at, &head, &from);
    if (r == 0)
        r = decode_vector(decoder, &head, from, room, sw_tile_vector_bytes(bits, tile->tile_bytes, vector));
    if (r < 0)
        return r;
    *ret_bytes = left < segment_bytes ? left : segment_bytes;
    memcpy(out, room + in_vector, *ret_bytes);
    return 0;
}

/* ---- choice ---- */

/* A piece stored as runs takes more bytes than as many values of a vector: a mask, and padding, on average. */
#define RUNS_PIECE_EXTRA_BYTES 10

/* Sums over a sample's pieces: bytes of pieces stored as runs and of exceptions; the widths of the other pieces, and of
 * their halves. */
struct pieces {
    double other_bytes, width, half_width;
    unsigned n_packed, widest;
};

static bool has_exceptions(const struct encoder *e) {
    return e->codec->units && !e->codec->has_runs;
}

/* Makes a vector that repeats a piece. Lanes get values of the whole piece if each repetition is turned by some units
 * more. */
#define TURN_BYTES ((size_t)5 * SW_UNIT_BYTES)
static void repeat_piece(uint8_t *to, size_t full, const uint8_t *piece, size_t bytes, bool turn) {
    for (size_t at = 0, first = 0; at < full; at += bytes, first = turn ? (first + TURN_BYTES) % bytes : 0) {
        memcpy(to + at, piece + first, bytes - first);
        memcpy(to + at + bytes - first, piece, first);
    }
}

/* Returns the tag of a vector that has `times` as many exceptions. */
static unsigned tag_of_more(const struct encoder *e, unsigned tag, unsigned times) {
    const unsigned n = sw_radix_exceptions(tag) * times;
    if (!e->codec->tags_alone)
        return tag * times;
    return n <= SW_RADIX_MAX_EXCEPTIONS ? n << 8 | sw_radix_base(tag) : 0;
}

/* Measures a piece. Codecs with exceptions that choose by vector measure a vector that repeats the piece. */
static unsigned measure_piece(const struct encoder *e, const uint8_t *from, size_t bytes, struct sw_vector_head *ret) {
    uint8_t room[SW_VECTOR_MAX_BYTES];
    const unsigned bits = sw_value_bits(e->type), n = (unsigned)bytes * 8 / bits, full = sw_vector_bytes(bits);
    struct sw_vector v = {from, bytes, n, bits, e->type, &e->dictionary, &e->grid};
    if (e->codec->chooses_by_vector) {
        repeat_piece(room, full, from, bytes, e->codec->compares_lanes);
        v = (struct sw_vector){room, full, SW_VECTOR_VALUES, bits, e->type, &e->dictionary, &e->grid};
    }
    e->codec->measure(&v, ret);
    if (has_exceptions(e) && !e->codec->chooses_by_vector) {
        ret->tag = tag_of_more(e, ret->tag, SW_VECTOR_VALUES / n);
        ret->units = e->codec->units(ret, bits);
    }
    const unsigned whole = whole_units(bits, has_exceptions(e) ? full : bytes);
    if (e->codec->units && ret->units >= whole)
        *ret = (struct sw_vector_head){.width = bits, .units = whole};
    return ret->width;
}

static void add_piece(struct pieces *sum, const struct encoder *e, const uint8_t *from, size_t bytes) {
    const size_t half = bytes / 2;
    const unsigned bits = sw_value_bits(e->type), full = sw_vector_bytes(bits);
    struct sw_vector_head head, rest;
    const unsigned width = measure_piece(e, from, bytes, &head);
    const unsigned otherwise = sw_packed_units(bits, e->codec->units ? bits : width, (unsigned)bytes);
    if (e->codec->has_runs && head.units < otherwise) {
        sum->other_bytes += head.units * SW_UNIT_BYTES - RUNS_PIECE_EXTRA_BYTES;
        return;
    }
    if (has_exceptions(e)) /* bytes beyond the packed values are exceptions */
        sum->other_bytes +=
            (double)(head.units - sw_packed_units(bits, width, full)) * SW_UNIT_BYTES * (double)bytes / full;
    sum->width += width;
    sum->half_width += 0.5 * measure_piece(e, from, half, &rest);
    sum->half_width += 0.5 * measure_piece(e, from + half, half, &rest);
    sum->widest = width > sum->widest ? width : sum->widest;
    sum->n_packed++;
}

/* Only every fourth piece is measured; every eighth if a piece is measured as a whole vector. This compares codecs as
 * well as measuring all pieces, which would take milliseconds of the device's worker. Codecs that widen a vector for
 * one outlier are quick to measure, and need all pieces, because outliers are rare. */
static bool is_quick(const struct encoder *e) {
    return !e->codec->has_runs && !has_more(e->codec);
}

static size_t pieces_apart(const struct encoder *e) {
    return e->codec->chooses_by_vector ? 8 : is_quick(e) ? 1 : 4;
}

/* Returns the width of a vector with values of all parts of the sample. If neighbors are alike, real vectors have a
 * smaller one; only outliers may make it larger, but then pieces have it, too. */
static unsigned mixed_width(const struct encoder *e, const uint8_t *sample, size_t sample_bytes) {
    uint8_t room[SW_VECTOR_MAX_BYTES];
    const unsigned bits = sw_value_bits(e->type), full = sw_vector_bytes(bits);
    const size_t n_pieces = sample_bytes / SW_SAMPLE_LONG_PIECE_BYTES, each = full / n_pieces;
    struct sw_vector_head head;
    for (size_t i = 0; i < n_pieces; i++)
        memcpy(room + i * each, sample + i * SW_SAMPLE_LONG_PIECE_BYTES, each);
    const struct sw_vector v = {room, full, SW_VECTOR_VALUES, bits, e->type, &e->dictionary, &e->grid};
    e->codec->measure(&v, &head);
    return head.width;
}

/* Estimates the data's length from pieces. A vector is longer than a piece, and its range is larger if values drift.
 * For each doubling of the length the width grows as much as from half a piece to a piece: by a bit if values are
 * sorted, by next to nothing if they are not. In the latter case the widest piece already has about the whole range. */
#define DRIFT_BITS 0.25
static double estimate_by_pieces(const struct encoder *e, const uint8_t *sample, size_t sample_bytes) {
    const unsigned bits = sw_value_bits(e->type), values = SW_SAMPLE_LONG_PIECE_BYTES * 8 / bits;
    struct pieces sum = {.n_packed = 0};
    size_t seen_bytes = 0;
    for (size_t at = 0; at + SW_SAMPLE_LONG_PIECE_BYTES <= sample_bytes;
         at += pieces_apart(e) * SW_SAMPLE_LONG_PIECE_BYTES) {
        add_piece(&sum, e, sample + at, SW_SAMPLE_LONG_PIECE_BYTES);
        seen_bytes += SW_SAMPLE_LONG_PIECE_BYTES;
    }
    double width = 0;
    if (sum.n_packed) {
        /* Halves that packing would not shorten count as content, so they may be wider than their pieces. */
        const double growth = sum.width > sum.half_width ? (sum.width - sum.half_width) / sum.n_packed : 0;
        width = sum.width / sum.n_packed;
        for (unsigned n = values; n < SW_VECTOR_VALUES; n *= 2)
            width += growth;
        width = growth < DRIFT_BITS && width > sum.widest ? sum.widest : width;
        if (is_quick(e)) {
            const unsigned most = mixed_width(e, sample, sample_bytes);
            width = width > most && width > sum.widest ? (most > sum.widest ? most : sum.widest) : width;
        }
    }
    const double packed_bytes = sum.n_packed * (double)values * (width < bits ? width : bits) / 8;
    return (sum.other_bytes + packed_bytes) / (double)seen_bytes;
}

double sw_numbers_estimate(const struct sw_numbers_codec *codec, const struct sw_plan *plan, const uint8_t *sample,
                           size_t sample_bytes, uint64_t raw_bytes) {
    const unsigned bits = sw_value_bits(plan->value_type);
    const size_t step = sw_vector_bytes(bits);
    struct encoder e;
    uint8_t room[SW_VECTOR_MAX_BYTES];
    struct sw_vector_head head;
    double units = 0;
    encoder_init(&e, codec, plan);
    if (raw_bytes > SW_SAMPLE_MAX_BYTES)
        return estimate_by_pieces(&e, sample, sample_bytes);
    for (size_t at = 0; at < sample_bytes; at += step) { /* the sample is the whole region */
        const size_t bytes = sample_bytes - at < step ? sample_bytes - at : step;
        const unsigned whole = whole_units(bits, bytes);
        const struct sw_vector v = vector_of(&e, sample + at, bytes, room);
        codec->measure(&v, &head);
        units += head.units < whole ? head.units : whole;
    }
    return units * SW_UNIT_BYTES / (double)sample_bytes;
}

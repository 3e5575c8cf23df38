/* numbers.h - the common part of the codecs of numbers on the host.
 *
 * A tile consists of vectors. A codec measures, stores and decodes each vector by itself; the functions below handle
 * tiles. Codec <name> defines a struct sw_numbers_codec named sw_numbers_<name>, and SW_NUMBERS_OPS(<name>) makes its
 * row from it. thread: any. */
#ifndef SW_NUMBERS_H
#define SW_NUMBERS_H

#include "base/alloc.h"
#include "codec/bitpack/bitpack.h"
#include "codec/checksum.h"
#include "codec/codec_ops.h"
#include "codec/pfor/grid.h"

struct sw_dictionary; /* codec/dict/dictionary.h; empty for codecs without symbols */

/* A vector's entry in the counts section. */
struct sw_vector_head {
    uint64_t base[2];                       /* stored in the length of a value: higher bits are lost */
    unsigned width, units;                  /* units: length of the stored vector, in units of 16 bytes */
    unsigned tag;                           /* 16 bits, private to the codec */
    const struct sw_dictionary *dictionary; /* the frame's */
};

/* A vector's content. Missing values are replaced by the first value. */
struct sw_vector {
    const uint8_t *content;
    size_t bytes;      /* without missing values; the last value may be cut */
    unsigned n_values; /* without missing values; a cut value counts */
    unsigned bits;
    enum sw_value_type type;
    const struct sw_dictionary *dictionary; /* the plan's */
    const struct sw_grid *grid;             /* the plan's; values of 32 and 64 bits only */
};

struct sw_numbers_codec {
    unsigned n_bases, max_vectors; /* of a tile */
    bool has_sizes;                /* the counts section has vectors' sizes; else the size follows from the width */
    bool has_runs;                 /* vectors may be stored as runs: half of the values take about half of the bytes */
    /* Not NULL: the counts section has tags instead of sizes. Returns a vector's length from its tag and its width,
     * which is below `bits`. If no such vector can exist, it returns more than the content's length. */
    unsigned (*units)(const struct sw_vector_head *head, unsigned bits);
    /* The counts section has tags, but no widths. The tag has a base and exceptions (sw_radix_base()), and the width is
     * 0; tag 0: the width is `bits`. */
    bool tags_alone;
    /* True: measure() searches the best parameters for all 1024 values. False: the tag has the number of exceptions, or
     * belongs to a codec with runs. */
    bool chooses_by_vector;
    /* measure() compares lanes with each other. So they must not all have the same values. */
    bool compares_lanes;

    /* Computes the length of the stored vector. If it is not less than the content's, the content is stored instead. */
    void (*measure)(const struct sw_vector *v, struct sw_vector_head *ret);
    /* Stores a vector: writes all head->units of a head from measure(). The GPU's store() writes the same bytes. A
     * vector of fewer than 1024 values is packed like a full one, so the number packed for a missing value must fit
     * into the width. The first value, which replaces missing values, does. A number that measure() did not see may not
     * fit: so dfor packs 0 for the difference between the last value and the missing value behind it. */
    void (*store)(const struct sw_vector *v, const struct sw_vector_head *head, uint8_t *out);
    /* Decodes a full vector from head->units. Head and units come from a frame and are untrusted: a base may be any
     * number below 2^bits, and the width any number up to `bits`. The caller has checked that the frame has the units.
     * Without tags, it has checked that a vector of this width takes no fewer units; with tags, that units() returns
     * this number, and that it is less than the content's. errors: -SW_EFRAME: decode() has found out that store()
     * cannot have written the vector. */
    int (*decode)(const struct sw_vector_head *head, unsigned bits, const uint8_t *from, uint8_t *out);
};

/* Loads the first n values of a vector's content. */
void sw_values_load(uint64_t ret[SW_VECTOR_VALUES], const uint8_t *content, unsigned bits, unsigned n);
/* Stores all values of a vector. */
void sw_values_store(const uint64_t values[SW_VECTOR_VALUES], uint8_t *content, unsigned bits);

/* The functions of a codec's row (codec_ops.h). SW_NUMBERS_OPS() defines those of them that need to know the codec. */
double sw_numbers_estimate(const struct sw_numbers_codec *codec, const struct sw_plan *plan, const uint8_t *sample,
                           size_t sample_bytes, uint64_t raw_bytes);
void *sw_numbers_encoder_new(const struct sw_numbers_codec *codec, const struct sw_plan *plan);
size_t sw_numbers_encode_tile(const void *encoder, const uint8_t *in, size_t in_bytes, unsigned segment_log2,
                              uint8_t *out, uint8_t *counts);
int sw_numbers_decoder_init(const struct sw_numbers_codec *codec, void *ret, const struct sw_frame_layout *layout,
                            const void *section);
int sw_numbers_decode_tile(const void *decoder, const struct sw_tile_view *tile, uint8_t *out);
int sw_numbers_decode_segment(const void *decoder, const struct sw_tile_view *tile, unsigned segment, uint8_t *out,
                              size_t *ret_bytes);

/* Defines a codec's row. The further arguments are members of the row that only some codecs of numbers have. */
#define SW_NUMBERS_OPS(id, ...)                                                                                        \
    static double estimate(const struct sw_plan *plan, const uint8_t *sample, size_t sample_bytes,                     \
                           uint64_t raw_bytes) {                                                                       \
        return sw_numbers_estimate(&sw_numbers_##id, plan, sample, sample_bytes, raw_bytes);                           \
    }                                                                                                                  \
    static void *encoder_new(const struct sw_plan *plan) {                                                             \
        return sw_numbers_encoder_new(&sw_numbers_##id, plan);                                                         \
    }                                                                                                                  \
    static int decoder_init(void *ret, const struct sw_frame_layout *layout, const uint8_t *frame) {                   \
        return sw_numbers_decoder_init(&sw_numbers_##id, ret, layout, frame + SW_FRAME_HEADER_BYTES);                  \
    }                                                                                                                  \
    const struct sw_codec_ops sw_##id##_ops = {.hash_tile = sw_hash_tile_rows,                                         \
                                               .estimate = estimate,                                                   \
                                               .encoder_new = encoder_new,                                             \
                                               .encoder_free = sw_free,                                                \
                                               .encode_tile = sw_numbers_encode_tile,                                  \
                                               .decoder_init = decoder_init,                                           \
                                               .decode_tile = sw_numbers_decode_tile,                                  \
                                               .decode_segment = sw_numbers_decode_segment,                            \
                                               __VA_ARGS__}

#endif

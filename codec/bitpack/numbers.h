/* numbers.h - what the codecs of numbers share on the host: tiles as vectors, each of which a codec measures, stores
 * and decodes alone.
 *
 * Codec <name> is a struct sw_numbers_codec of the name sw_numbers_<name>, from which SW_NUMBERS_OPS(<name>) makes its
 * row: the functions below work on tiles.
 * thread: any. */
#ifndef SW_NUMBERS_H
#define SW_NUMBERS_H

#include "base/alloc.h"
#include "codec/bitpack/bitpack.h"
#include "codec/checksum.h"
#include "codec/codec_ops.h"

struct sw_dictionary; /* codec/dict/dictionary.h; of codecs without symbols an empty one */

/* What the counts section says of a vector. */
struct sw_vector_head {
    uint64_t base[2];                       /* each is stored in the length of a value: its higher bits are lost */
    unsigned width, units;                  /* units: of 16 bytes, of the stored vector */
    unsigned tag;                           /* 16 bits of the codec's own */
    const struct sw_dictionary *dictionary; /* of the frame */
};

/* A vector's content, with its first value in place of missing ones. */
struct sw_vector {
    const uint8_t *content;
    size_t bytes;      /* that are there; a part of a value may be the last of them */
    unsigned n_values; /* whole or in part */
    unsigned bits;
    enum sw_value_type type;
    const struct sw_dictionary *dictionary; /* of the plan */
};

struct sw_numbers_codec {
    unsigned n_bases, max_vectors; /* of a tile */
    bool has_sizes;                /* vectors have sizes of their own; otherwise the size follows from the width */
    bool has_runs; /* vectors may be runs, of which a part is about as much shorter as it has fewer values */
    /* Not NULL: vectors have tags instead, and this says what one takes by its width, below `bits`, and its tag; more
     * than its content if there is no such vector. */
    unsigned (*units)(const struct sw_vector_head *head, unsigned bits);
    bool chooses_by_vector; /* measure() looks for what suits all 1024 values best; otherwise the tag is how many of the
                             * values are exceptions, or of a codec with runs */

    /* What the vector would take; it is stored as it is if that is not less. */
    void (*measure)(const struct sw_vector *v, struct sw_vector_head *ret);
    /* Writes all of head->units, of a head that measure() returned. The GPU's store() writes the same bytes. A vector
     * of fewer than 1024 values is packed like a full one. What is packed for a missing value must fit the width: the
     * first value, which is in its place, does. A number that measure() did not see may not fit: dfor packs 0 for the
     * difference between the last value and the missing one behind it. */
    void (*store)(const struct sw_vector *v, const struct sw_vector_head *head, uint8_t *out);
    /* Writes a full vector; from: head->units. The head and the units come from a frame and are untrusted: a base is
     * any number below 2^bits, the width any up to `bits`. The caller has checked that the frame has the units, and
     * that they are not more than a vector of the width takes, or, with tags, as many as units() says and fewer than
     * the content takes. errors: -SW_EFRAME, for a vector that store() cannot have written, if that is seen. */
    int (*decode)(const struct sw_vector_head *head, unsigned bits, const uint8_t *from, uint8_t *out);
};

/* The first n of a vector's values, and all of them back. */
void sw_values_load(uint64_t ret[SW_VECTOR_VALUES], const uint8_t *content, unsigned bits, unsigned n);
void sw_values_store(const uint64_t values[SW_VECTOR_VALUES], uint8_t *content, unsigned bits);

/* Functions for a codec's row; encoder_new needs one that names the codec. */
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

/* A codec's row: all but its name differs in what follows from the struct above, and in what comes last: members of the
 * row that other codecs of numbers do not have. */
#define SW_NUMBERS_OPS(id, ...)                                                                                        \
    static double estimate(const struct sw_plan *plan, const uint8_t *sample, size_t sample_bytes,                     \
                           uint64_t raw_bytes) {                                                                       \
        return sw_numbers_estimate(&sw_numbers_##id, plan, sample, sample_bytes, raw_bytes);                           \
    }                                                                                                                  \
    static void *encoder_new(const struct sw_plan *plan) {                                                             \
        return sw_numbers_encoder_new(&sw_numbers_##id, plan);                                                         \
    }                                                                                                                  \
    static int decoder_init(void *ret, const struct sw_frame_layout *layout, const void *section) {                    \
        return sw_numbers_decoder_init(&sw_numbers_##id, ret, layout, section);                                        \
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

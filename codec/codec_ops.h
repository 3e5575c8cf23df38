/* codec_ops.h - what a codec is to the frame: one row of properties and functions on tiles.
 *
 * codec.c does all that frames have in common (header, table section, records, hashes) and calls the row of the plan's
 * or the frame's codec for the rest. A new codec brings its folder, its enum value in frame.h and its row in codec.c.
 * Private to the room. thread: any. */
#ifndef SW_CODEC_OPS_H
#define SW_CODEC_OPS_H

#include "codec/codec.h"
#include "codec/dict/dictionary.h"
#include "codec/phrase/phrase.h"
#include "codec/v5t/v5t_host.h"
#include <stdbool.h>

/* Where the stored bytes of one tile are; nothing but the bounds has been checked. */
struct sw_tile_view {
    const uint8_t *data; /* the tile's first byte */
    size_t data_bytes;   /* what is left of the frame from there on */
    const uint8_t *counts;
    unsigned segment_log2;
    size_t tile_bytes; /* of content */
    uint32_t hash;     /* from the tile's record */
};

/* What a frame's symbol table and its type turn into for decoding. */
union sw_codec_decoder {
    struct sw_v5t_decoder v5t;
    struct sw_phrase_book phrase;
    struct {
        const struct sw_numbers_codec *codec;
        enum sw_value_type type;
        struct sw_dictionary dictionary; /* empty but for dict */
    } numbers;
    struct {
        unsigned symbol_bytes;
    } lz;
};

struct sw_codec_ops {
    const char *name;
    unsigned min_segment_log2, max_segment_log2;
    uint32_t max_symbols;
    unsigned count_bytes; /* per tile, in the frame's counts section */
    bool is_fixed_size;   /* a frame's length follows from raw_bytes */
    bool is_typed;        /* stores numbers: its plans and frames have a value type */
    bool is_of_floats;    /* only of 32 and 64 bits */
    unsigned saved_bits;  /* of a value that it saves at most; 0: all. It is not tried where another saves as much */

    /* The hash of a tile's content: sw_hash_tile(), or sw_hash_tile_rows() whatever segment_log2 is. */
    uint32_t (*hash_tile)(const void *data, size_t bytes, unsigned segment_log2, uint32_t tile);

    /* Fills what the codec learns from a sample: segment_log2, if it has a choice, and its own part of the plan, whose
     * codec and value type are there. NULL: codecs of numbers learn nothing, others are never chosen. */
    void (*plan_init)(struct sw_plan *ret, const void *sample, size_t sample_bytes);

    /* Codecs of numbers: bytes of data per byte of content by a plan, estimated from the sample of a region of
     * raw_bytes. NULL: it is never chosen. */
    double (*estimate)(const struct sw_plan *plan, const uint8_t *sample, size_t sample_bytes, uint64_t raw_bytes);

    /* Encoder of a plan, or NULL without memory; encoder_free takes NULL. */
    void *(*encoder_new)(const struct sw_plan *plan);
    void (*encoder_free)(void *encoder);
    /* Stores a tile of in_bytes (1 ... 32 << segment_log2); returns its bytes, a multiple of 16 that is at most
     * align16(in_bytes). */
    size_t (*encode_tile)(const void *encoder, const uint8_t *in, size_t in_bytes, unsigned segment_log2, uint8_t *out,
                          uint8_t *counts);

    /* layout: of the frame; section: its symbols. errors: -SW_EFRAME. */
    int (*decoder_init)(union sw_codec_decoder *ret, const struct sw_frame_layout *layout, const void *section);
    /* Writes exactly tile_bytes. errors: -SW_EFRAME. */
    int (*decode_tile)(const union sw_codec_decoder *decoder, const struct sw_tile_view *tile, uint8_t *out);
    /* Writes the bytes of one segment that is in the tile. errors: -SW_EFRAME. */
    int (*decode_segment)(const union sw_codec_decoder *decoder, const struct sw_tile_view *tile, unsigned segment,
                          uint8_t *out, size_t *ret_bytes);
};

/* NULL for a number that is no codec. */
const struct sw_codec_ops *sw_codec_ops_find(unsigned codec);

extern const struct sw_codec_ops sw_raw_ops, sw_v5t_ops, sw_for_ops, sw_dfor_ops, sw_rfor_ops, sw_alp_ops, sw_alprd_ops,
    sw_lz_ops, sw_dict_ops, sw_sfor_ops, sw_phrase_ops;

#endif

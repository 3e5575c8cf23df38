/* codec_ops.h - what a codec does for frames and plans: its row of functions on the host.
 *
 * codec.c does all that frames have in common (header, table section, records, hashes) and calls the row of the plan's
 * or the frame's codec for the rest; plan/ learns and chooses by it. Each codec defines its row, `sw_<name>_ops`, in
 * its folder; codecs.def lists them. Private to the room. thread: any. */
#ifndef SW_CODEC_OPS_H
#define SW_CODEC_OPS_H

#include "codec/params.h"

/* Where the stored bytes of one tile are; nothing but the bounds has been checked. */
struct sw_tile_view {
    const uint8_t *data; /* the tile's first byte */
    size_t data_bytes;   /* what is left of the frame from there on */
    const uint8_t *counts;
    unsigned segment_log2;
    size_t tile_bytes; /* of content */
    uint32_t hash;     /* from the tile's record */
};

/* Room for what a codec makes of a frame's symbols and type before it decodes; aligned for any object. A row that needs
 * more does not compile: SW_CHECK_DECODER() beside the row. */
enum { SW_DECODER_BYTES = 17 << 10 };
#define SW_CHECK_DECODER(type) _Static_assert(sizeof(type) <= SW_DECODER_BYTES, "SW_DECODER_BYTES is too little")

struct sw_codec_ops {
    /* The hash of a tile's content: sw_hash_tile(), or sw_hash_tile_rows() whatever segment_log2 is. */
    uint32_t (*hash_tile)(const void *data, size_t bytes, unsigned segment_log2, uint32_t tile);

    /* ---- plans: a codec without `learn`, `estimate` or `refine` is never chosen ---- */

    /* Learns from a sample: fills the plan's params, and segment_log2 if the codec has a choice. The plan's codec and
     * value type are there. Codecs of bytes: the sample is of short pieces, and the best expected ratio wins. Codecs of
     * numbers: the sample is of long pieces; NULL: there is nothing to learn. */
    void (*learn)(struct sw_plan *plan, const void *sample, size_t sample_bytes);
    /* Codecs of numbers: bytes of data per byte of content by a plan, estimated from the sample of a region of
     * raw_bytes. */
    double (*estimate)(const struct sw_plan *plan, const uint8_t *sample, size_t sample_bytes, uint64_t raw_bytes);
    unsigned saved_bits; /* of a value that it saves at most; 0: all. It is not tried where another saves as much */

    /* Codecs of bytes that are learnt from a sample of long pieces once there is a plan of another codec, which may
     * have been trained by a GPU. They take its place if they reach refine_gain times its ratio. */
    bool (*may_refine)(const struct sw_plan *plan);
    void (*refine)(struct sw_plan *ret, const struct sw_plan *plan, const void *sample, size_t sample_bytes);
    double refine_gain;

    /* ---- encoding ---- */

    /* Encoder of a plan, or NULL without memory; encoder_free takes NULL. */
    void *(*encoder_new)(const struct sw_plan *plan);
    void (*encoder_free)(void *encoder);
    /* Stores a tile of in_bytes (1 ... 32 << segment_log2); returns its bytes, a multiple of 16 that is at most
     * align16(in_bytes). */
    size_t (*encode_tile)(const void *encoder, const uint8_t *in, size_t in_bytes, unsigned segment_log2, uint8_t *out,
                          uint8_t *counts);

    /* ---- decoding ---- */

    /* Makes the decoder in SW_DECODER_BYTES of room. layout: of the frame; section: its symbols. errors: -SW_EFRAME. */
    int (*decoder_init)(void *ret, const struct sw_frame_layout *layout, const void *section);
    /* Writes exactly tile_bytes. errors: -SW_EFRAME. */
    int (*decode_tile)(const void *decoder, const struct sw_tile_view *tile, uint8_t *out);
    /* Writes the bytes of one segment that is in the tile. errors: -SW_EFRAME. */
    int (*decode_segment)(const void *decoder, const struct sw_tile_view *tile, unsigned segment, uint8_t *out,
                          size_t *ret_bytes);
};

#define SW_CODEC(id, NAME, name, ...) extern const struct sw_codec_ops sw_##name##_ops;
#include "codec/codecs.def"

/* Of a codec that there is. */
const struct sw_codec_ops *sw_codec_ops(enum sw_codec_id codec);

#endif

/* codec_ops.h - a codec's row: its functions on the host.
 *
 * codec.c handles the parts that all frames have: header, table section, records, hashes. For tiles it calls the row of
 * the plan's or the frame's codec. plan/ uses the row to learn and to choose. Each codec defines its row,
 * `sw_<name>_ops`, in its folder; codecs.def lists the codecs. Private to the room. thread: any. */
#ifndef SW_CODEC_OPS_H
#define SW_CODEC_OPS_H

#include "codec/params.h"

/* The stored bytes of one tile. Only their bounds have been checked. */
struct sw_tile_view {
    const uint8_t *data; /* the tile's first byte */
    size_t data_bytes;   /* from there to the end of the frame */
    const uint8_t *counts;
    unsigned segment_log2;
    size_t tile_bytes; /* of content */
    uint32_t hash;     /* from the tile's record */
};

/* Room for a codec's decoder, aligned for any object. decoder_init() makes it from a frame. Check by
 * SW_CHECK_DECODER() beside the row that a decoder fits. */
enum { SW_DECODER_BYTES = 17 << 10 };
#define SW_CHECK_DECODER(type) _Static_assert(sizeof(type) <= SW_DECODER_BYTES, "SW_DECODER_BYTES is too small")

struct sw_codec_ops {
    /* Hashes a tile's content: sw_hash_tile(), or sw_hash_tile_rows(), which ignores segment_log2. */
    uint32_t (*hash_tile)(const void *data, size_t bytes, unsigned segment_log2, uint32_t tile);

    /* ---- plans: a codec with none of `learn`, `estimate`, `refine` and `learn_dictionary` is never chosen ---- */

    /* Learns from a sample: fills the plan's params, and segment_log2 if the codec allows several. The plan's codec and
     * value type are set already. Codecs of bytes: the sample has short pieces, and the best expected ratio wins.
     * Codecs of numbers: the sample has long pieces; NULL: there is nothing to learn. */
    void (*learn)(struct sw_plan *plan, const void *sample, size_t sample_bytes);
    /* Codecs of numbers: estimates from a sample the bytes of data per byte of content that a plan needs. raw_bytes:
     * the region's length. */
    double (*estimate)(const struct sw_plan *plan, const uint8_t *sample, size_t sample_bytes, uint64_t raw_bytes);
    /* The codec saves at most this many bits of a value; 0: all. It is not tried if another codec saves as many. */
    unsigned saved_bits;
    /* Codecs of numbers that decode more slowly than others, or that fewer kernels can read: the ratio must be this
     * many times that of another codec; 0: no such codec. */
    double least_gain;

    /* Codecs of numbers without `estimate`, which decode and encode several times more slowly than the others: they are
     * tried only where the caller has room for a dictionary, as codecs with one are. */
    bool is_slow;

    /* Codecs of bytes that refine a plan of another codec, which a GPU may have trained. They learn from a sample of
     * long pieces. They replace the plan if their ratio is at least refine_gain times its ratio. */
    bool (*may_refine)(const struct sw_plan *plan);
    void (*refine)(struct sw_plan *ret, const struct sw_plan *plan, const void *sample, size_t sample_bytes);
    double refine_gain;
    /* Codecs of bytes with a dictionary, instead of may_refine and refine: learns it from a sample of long pieces, with
     * the index that encoders need. Tried only where the caller has room for a dictionary. errors: -SW_ENOMEM. */
    int (*learn_dictionary)(struct sw_frame_dictionary *ret, const void *sample, size_t sample_bytes);
    /* The same from what a GPU has learned (sw_gpu_learn_async()); changes its order. errors: -SW_ENOMEM, -SW_EFRAME:
     * the GPU's result makes no sense. */
    int (*write_dictionary)(struct sw_frame_dictionary *ret, void *learned);

    /* ---- encoding ---- */

    /* Makes an encoder for a plan; NULL: out of memory. encoder_free accepts NULL. */
    void *(*encoder_new)(const struct sw_plan *plan);
    void (*encoder_free)(void *encoder);
    /* Stores a tile of in_bytes (1 ... 32 << segment_log2). Returns its stored bytes, a multiple of 16 and at most
     * align16(in_bytes). */
    size_t (*encode_tile)(const void *encoder, const uint8_t *in, size_t in_bytes, unsigned segment_log2, uint8_t *out,
                          uint8_t *counts);

    /* ---- decoding ---- */

    /* Makes a decoder in SW_DECODER_BYTES of room. layout: the frame's, whose sections lie in the frame. The decoder
     * may borrow the frame. errors: -SW_EFRAME. */
    int (*decoder_init)(void *ret, const struct sw_frame_layout *layout, const uint8_t *frame);
    /* Decodes a tile: writes exactly tile_bytes. errors: -SW_EFRAME. */
    int (*decode_tile)(const void *decoder, const struct sw_tile_view *tile, uint8_t *out);
    /* Decodes one existing segment of a tile. errors: -SW_EFRAME. */
    int (*decode_segment)(const void *decoder, const struct sw_tile_view *tile, unsigned segment, uint8_t *out,
                          size_t *ret_bytes);
};

#define SW_CODEC(id, NAME, name, ...) extern const struct sw_codec_ops sw_##name##_ops;
#include "codec/codecs.def"

/* Returns the row of an existing codec. */
const struct sw_codec_ops *sw_codec_ops(enum sw_codec_id codec);

#endif

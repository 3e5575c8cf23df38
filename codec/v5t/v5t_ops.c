/* v5t_ops.c - v5t's row in the codec table. */
#include "codec/checksum.h"
#include "codec/codec_ops.h"

/* Longer segments have fewer metadata and cut fewer symbols. */
#define PLAN_SEGMENT_LOG2 10

static void plan_init(struct sw_plan *ret, const void *sample, size_t sample_bytes) {
    ret->segment_log2 = PLAN_SEGMENT_LOG2;
    sw_v5t_table_train(&ret->table, sample, sample_bytes, SW_SAMPLE_SHORT_PIECE_BYTES);
}

static void *encoder_new(const struct sw_plan *plan) {
    return sw_v5t_encoder_new(&plan->table);
}

static void encoder_free(void *encoder) {
    sw_v5t_encoder_free(encoder);
}

static size_t encode_tile(const void *encoder, const uint8_t *in, size_t in_bytes, unsigned segment_log2, uint8_t *out,
                          uint8_t *counts) {
    return sw_v5t_encode_tile(encoder, in, in_bytes, segment_log2, out, counts);
}

static int decoder_init(union sw_codec_decoder *ret, const struct sw_frame_layout *layout, const void *section) {
    struct sw_v5t_table table;
    int r = sw_v5t_table_read(&table, section, layout->n_symbols, SW_V5T_MAX_SYMBOL_BYTES);
    if (r == 0)
        sw_v5t_decoder_init(&ret->v5t, &table);
    return r;
}

static int decode_tile(const union sw_codec_decoder *decoder, const struct sw_tile_view *tile, uint8_t *out) {
    return sw_v5t_decode_tile(&decoder->v5t, tile->data, tile->data_bytes, tile->counts, tile->segment_log2, out,
                              tile->tile_bytes);
}

static int decode_segment(const union sw_codec_decoder *decoder, const struct sw_tile_view *tile, unsigned segment,
                          uint8_t *out, size_t *ret_bytes) {
    return sw_v5t_decode_segment(&decoder->v5t, tile->data, tile->data_bytes, tile->counts, tile->segment_log2,
                                 tile->tile_bytes, segment, out, ret_bytes);
}

const struct sw_codec_ops sw_v5t_ops = {
    .name = "v5t",
    .min_segment_log2 = SW_V5T_MIN_SEGMENT_LOG2,
    .max_segment_log2 = SW_V5T_MAX_SEGMENT_LOG2,
    .max_symbols = SW_V5T_MAX_SYMBOLS,
    .count_bytes = SW_TILE_SEGMENTS,
    .hash_tile = sw_hash_tile,
    .plan_init = plan_init,
    .encoder_new = encoder_new,
    .encoder_free = encoder_free,
    .encode_tile = encode_tile,
    .decoder_init = decoder_init,
    .decode_tile = decode_tile,
    .decode_segment = decode_segment,
};

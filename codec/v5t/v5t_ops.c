/* v5t_ops.c - v5t's row in the codec table. */
#include "codec/checksum.h"
#include "codec/codec_ops.h"
#include "codec/sample.h"
#include "codec/v5t/v5t_host.h"

/* Longer segments have less metadata and cut fewer symbols. */
#define PLAN_SEGMENT_LOG2 10

static void learn(struct sw_plan *plan, const void *sample, size_t sample_bytes) {
    plan->segment_log2 = PLAN_SEGMENT_LOG2;
    sw_v5t_table_train(&plan->params, sample, sample_bytes, SW_SAMPLE_SHORT_PIECE_BYTES);
}

static void *encoder_new(const struct sw_plan *plan) {
    return sw_v5t_encoder_new(&plan->params);
}

static void encoder_free(void *encoder) {
    sw_v5t_encoder_free(encoder);
}

static size_t encode_tile(const void *encoder, const uint8_t *in, size_t in_bytes, unsigned segment_log2, uint8_t *out,
                          uint8_t *counts) {
    return sw_v5t_encode_tile(encoder, in, in_bytes, segment_log2, out, counts);
}

static int decoder_init(void *ret, const struct sw_frame_layout *layout, const uint8_t *frame) {
    struct sw_params table;
    int r = sw_params_read(&table, frame + SW_FRAME_HEADER_BYTES, layout->n_symbols, SW_V5T_MAX_SYMBOL_BYTES);
    if (r == 0)
        sw_v5t_decoder_init(ret, &table);
    return r;
}

static int decode_tile(const void *decoder, const struct sw_tile_view *tile, uint8_t *out) {
    return sw_v5t_decode_tile(decoder, tile->data, tile->data_bytes, tile->counts, tile->segment_log2, out,
                              tile->tile_bytes);
}

static int decode_segment(const void *decoder, const struct sw_tile_view *tile, unsigned segment, uint8_t *out,
                          size_t *ret_bytes) {
    return sw_v5t_decode_segment(decoder, tile->data, tile->data_bytes, tile->counts, tile->segment_log2,
                                 tile->tile_bytes, segment, out, ret_bytes);
}

SW_CHECK_DECODER(struct sw_v5t_decoder);

const struct sw_codec_ops sw_v5t_ops = {
    .hash_tile = sw_hash_tile,
    .learn = learn,
    .encoder_new = encoder_new,
    .encoder_free = encoder_free,
    .encode_tile = encode_tile,
    .decoder_init = decoder_init,
    .decode_tile = decode_tile,
    .decode_segment = decode_segment,
};

/* raw.c - the codec that stores bytes unchanged. */
#include "codec/checksum.h"
#include "codec/codec_ops.h"

#include <string.h>

/* The codec needs no encoder, but NULL would mean that memory is out. */
static void *encoder_new(const struct sw_plan *plan) {
    static char nothing;
    (void)plan;
    return &nothing;
}

static void encoder_free(void *encoder) {
    (void)encoder;
}

static size_t encode_tile(const void *encoder, const uint8_t *in, size_t in_bytes, unsigned segment_log2, uint8_t *out,
                          uint8_t *counts) {
    (void)encoder, (void)segment_log2, (void)counts;
    size_t padding = -in_bytes % SW_FRAME_ALIGN;
    memcpy(out, in, in_bytes);
    memset(out + in_bytes, 0, padding);
    return in_bytes + padding;
}

static int decoder_init(void *ret, const struct sw_frame_layout *layout, const uint8_t *frame) {
    (void)ret, (void)layout, (void)frame;
    return 0;
}

static int decode_tile(const void *decoder, const struct sw_tile_view *tile, uint8_t *out) {
    (void)decoder;
    if (tile->data_bytes < tile->tile_bytes)
        return -SW_EFRAME;
    memcpy(out, tile->data, tile->tile_bytes);
    return 0;
}

static int decode_segment(const void *decoder, const struct sw_tile_view *tile, unsigned segment, uint8_t *out,
                          size_t *ret_bytes) {
    (void)decoder;
    size_t start = (size_t)segment << tile->segment_log2, bytes = tile->tile_bytes - start;
    if (bytes > (size_t)1 << tile->segment_log2)
        bytes = (size_t)1 << tile->segment_log2;
    if (tile->data_bytes < start + bytes)
        return -SW_EFRAME;
    memcpy(out, tile->data + start, bytes);
    *ret_bytes = bytes;
    return 0;
}

const struct sw_codec_ops sw_raw_ops = {
    .hash_tile = sw_hash_tile,
    .encoder_new = encoder_new,
    .encoder_free = encoder_free,
    .encode_tile = encode_tile,
    .decoder_init = decoder_init,
    .decode_tile = decode_tile,
    .decode_segment = decode_segment,
};

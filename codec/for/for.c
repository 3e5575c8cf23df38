/* for.c - frame of reference on the host: a vector's values less their least, packed (FORMAT.md). */
#include "base/alloc.h"
#include "codec/bitpack/bitpack.h"
#include "codec/codec_ops.h"

#include <string.h>

static void *encoder_new(const struct sw_plan *plan) {
    enum sw_value_type *type = sw_alloc(sizeof *type);
    if (type)
        *type = plan->value_type;
    return type;
}

/* The vector as it is packed: full, with its first value where there is none. */
static const uint8_t *fill_vector(uint8_t room[SW_VECTOR_MAX_BYTES], const uint8_t *in, size_t bytes,
                                  unsigned value_bits) {
    const size_t value_bytes = value_bits / 8, full = sw_vector_bytes(value_bits);
    if (bytes == full)
        return in;
    const size_t whole = (bytes + value_bytes - 1) / value_bytes * value_bytes;
    memset(room, 0, whole);
    memcpy(room, in, bytes);
    for (size_t at = whole; at < full; at += value_bytes)
        memcpy(room + at, room, value_bytes);
    return room;
}

/* Stores a vector; returns its units. */
static unsigned encode_vector(enum sw_value_type type, const uint8_t *in, size_t bytes, uint8_t *out,
                              uint64_t *ret_base, uint8_t *ret_width) {
    const unsigned bits = sw_value_bits(type), most_units = sw_packed_units(bits, bits, (unsigned)bytes);
    uint8_t room[SW_VECTOR_MAX_BYTES];
    struct sw_rows rows;
    const uint8_t *content = fill_vector(room, in, bytes, bits);
    const struct sw_range range = sw_vector_range(content, type);
    const unsigned width = sw_width_of(range.range);
    const unsigned units = sw_packed_units(bits, width, (unsigned)bytes);
    if (width == bits || units >= most_units) {
        memcpy(out, in, bytes);
        memset(out + bytes, 0, most_units * SW_UNIT_BYTES - bytes);
        *ret_base = 0;
        *ret_width = (uint8_t)bits;
        return most_units;
    }
    sw_rows_load(&rows, content, bits);
    sw_rows_subtract(&rows, bits, range.base);
    sw_rows_pack(&rows, bits, width, out);
    *ret_base = range.base;
    *ret_width = (uint8_t)width;
    return units;
}

static size_t encode_tile(const void *encoder, const uint8_t *in, size_t in_bytes, unsigned segment_log2, uint8_t *out,
                          uint8_t *counts) {
    const enum sw_value_type type = *(const enum sw_value_type *)encoder;
    const unsigned bits = sw_value_bits(type), n = sw_tile_vectors(bits, in_bytes);
    unsigned units = 0;
    (void)segment_log2;
    memset(counts, 0, SW_FOR_COUNT_BYTES);
    for (unsigned v = 0; v < n; v++) {
        uint64_t base;
        units += encode_vector(type, in + (size_t)v * sw_vector_bytes(bits), sw_tile_vector_bytes(bits, in_bytes, v),
                               out + (size_t)units * SW_UNIT_BYTES, &base, counts + SW_TILE_BASES_BYTES + v);
        memcpy(counts + (size_t)v * bits / 8, &base, bits / 8);
    }
    return (size_t)units * SW_UNIT_BYTES;
}

static int decoder_init(union sw_codec_decoder *ret, const struct sw_frame_layout *layout, const void *section) {
    (void)section;
    ret->value_type = layout->value_type;
    return 0;
}

/* Where a vector's units begin in its tile; more than any tile has if a width before it or its own is impossible, or
 * if it does not lie in the frame. */
static int find_vector(const struct sw_tile_view *tile, unsigned bits, unsigned vector, size_t *ret_at) {
    size_t units = 0;
    for (unsigned v = 0; v <= vector; v++) {
        const unsigned width = tile->counts[SW_TILE_BASES_BYTES + v];
        if (width > bits)
            return -SW_EFRAME;
        *ret_at = units * SW_UNIT_BYTES;
        units += sw_packed_units(bits, width, (unsigned)sw_tile_vector_bytes(bits, tile->tile_bytes, v));
    }
    return units * SW_UNIT_BYTES <= tile->data_bytes ? 0 : -SW_EFRAME;
}

static void decode_vector(const struct sw_tile_view *tile, unsigned bits, unsigned vector, const uint8_t *from,
                          uint8_t *out) {
    const size_t bytes = sw_tile_vector_bytes(bits, tile->tile_bytes, vector);
    const unsigned width = tile->counts[SW_TILE_BASES_BYTES + vector];
    uint8_t room[SW_VECTOR_MAX_BYTES];
    struct sw_rows rows;
    uint64_t base = 0;
    if (width == bits) {
        memcpy(out, from, bytes);
        return;
    }
    memcpy(&base, tile->counts + (size_t)vector * bits / 8, bits / 8);
    sw_rows_unpack(&rows, bits, width, from);
    sw_rows_add(&rows, bits, base);
    if (bytes == sw_vector_bytes(bits)) {
        sw_rows_store(&rows, out, bits);
        return;
    }
    sw_rows_store(&rows, room, bits);
    memcpy(out, room, bytes);
}

static int decode_tile(const union sw_codec_decoder *decoder, const struct sw_tile_view *tile, uint8_t *out) {
    const unsigned bits = sw_value_bits(decoder->value_type), n = sw_tile_vectors(bits, tile->tile_bytes);
    size_t at;
    int r = find_vector(tile, bits, n - 1, &at); /* all lie in the frame if the last one does */
    for (unsigned v = 0; r == 0 && v < n; v++) {
        r = find_vector(tile, bits, v, &at);
        if (r == 0)
            decode_vector(tile, bits, v, tile->data + at, out + (size_t)v * sw_vector_bytes(bits));
    }
    return r;
}

static int decode_segment(const union sw_codec_decoder *decoder, const struct sw_tile_view *tile, unsigned segment,
                          uint8_t *out, size_t *ret_bytes) {
    const unsigned bits = sw_value_bits(decoder->value_type);
    const size_t start = (size_t)segment << tile->segment_log2, left = tile->tile_bytes - start;
    const unsigned vector = (unsigned)(start / sw_vector_bytes(bits));
    uint8_t room[SW_VECTOR_MAX_BYTES];
    size_t at;
    int r = find_vector(tile, bits, vector, &at);
    if (r < 0)
        return r;
    decode_vector(tile, bits, vector, tile->data + at, room);
    *ret_bytes = left < (size_t)1 << tile->segment_log2 ? left : (size_t)1 << tile->segment_log2;
    memcpy(out, room + start % sw_vector_bytes(bits), *ret_bytes);
    return 0;
}

const struct sw_codec_ops sw_for_ops = {
    .name = "for",
    .min_segment_log2 = SW_NUMBERS_SEGMENT_LOG2,
    .max_segment_log2 = SW_NUMBERS_SEGMENT_LOG2,
    .count_bytes = SW_FOR_COUNT_BYTES,
    .is_typed = true,
    .hash_tile = sw_hash_tile_rows,
    .encoder_new = encoder_new,
    .encoder_free = sw_free,
    .encode_tile = encode_tile,
    .decoder_init = decoder_init,
    .decode_tile = decode_tile,
    .decode_segment = decode_segment,
};

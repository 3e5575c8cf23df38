/* v5t_host.h - the host implementation of v5t (v5t/FORMAT.md) for whole tiles.
 *
 * Decoders accept untrusted bytes: they stay inside their buffers, and return -SW_EFRAME for an invalid tile. thread:
 * any.
 */
#ifndef SW_V5T_HOST_H
#define SW_V5T_HOST_H

#include "codec/frame.h"
#include "codec/v5t/table.h"
#include <stdbool.h>

/* Lookup tables for encoding, derived from a trained table. owns: caller, from sw_v5t_encoder_new() to _free(). */
struct sw_v5t_encoder;
struct sw_v5t_encoder *sw_v5t_encoder_new(const struct sw_params *table); /* NULL: out of memory */
void sw_v5t_encoder_free(struct sw_v5t_encoder *encoder);                 /* NULL is a no-op */

/* Encodes one tile of in_bytes (1 … 32 << segment_log2), and sets its 32 counts. out: room for in_bytes, padded to 16.
 * Returns the tile's length, a multiple of 16. */
size_t sw_v5t_encode_tile(const struct sw_v5t_encoder *encoder, const uint8_t *in, size_t in_bytes,
                          unsigned segment_log2, uint8_t *out, uint8_t counts[SW_TILE_SEGMENTS]);

/* Lookup table for decoding: a row for each code, and one for each byte after an escape. Codes that are not in the
 * table are errors. */
#define SW_V5T_LITERALS 256u
struct sw_v5t_decoder {
    uint64_t value[SW_V5T_LITERALS + 256];
    uint8_t length[SW_V5T_LITERALS + 256]; /* 0: not a symbol */
    bool has_all_codes;                    /* no code byte is invalid, so codes need not be checked */
};
void sw_v5t_decoder_init(struct sw_v5t_decoder *ret, const struct sw_params *table);

/* Decodes a tile of out_bytes from data[0..data_bytes). data_bytes: the rest of the frame. errors: -SW_EFRAME. */
int sw_v5t_decode_tile(const struct sw_v5t_decoder *decoder, const uint8_t *data, size_t data_bytes,
                       const uint8_t counts[SW_TILE_SEGMENTS], unsigned segment_log2, uint8_t *out, size_t out_bytes);

/* Decodes only segment `segment` (0 … 31) of a tile of tile_bytes. errors: -SW_EFRAME, -SW_ERANGE. */
int sw_v5t_decode_segment(const struct sw_v5t_decoder *decoder, const uint8_t *data, size_t data_bytes,
                          const uint8_t counts[SW_TILE_SEGMENTS], unsigned segment_log2, size_t tile_bytes,
                          unsigned segment, uint8_t *out, size_t *ret_bytes);

#endif

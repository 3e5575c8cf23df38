/* Any bytes as a frame: decoded whole, by tiles and by segments, first as they are and then with the header's hash
 * made right, so that what lies behind it is reached. Buffers are exact, so that a sanitizer sees any access outside.
 */
#include "base/assert.h"
#include "codec/checksum.h"
#include "codec/codec.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OUT_BYTES ((uint64_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void rehash(uint8_t *frame, size_t bytes) {
    struct sw_frame_header h;
    if (bytes < sizeof h)
        return;
    memcpy(&h, frame, sizeof h);
    size_t table_bytes = (9 * (size_t)h.n_symbols + 15) / 16 * 16;
    if (h.n_symbols > SW_FRAME_MAX_SYMBOLS || sizeof h + table_bytes > bytes)
        return;
    h.frame_bytes = bytes;
    uint32_t state = sw_hash_update(0, &h, offsetof(struct sw_frame_header, header_hash));
    h.header_hash = sw_hash_finish(sw_hash_update(state, frame + sizeof h, table_bytes));
    memcpy(frame, &h, sizeof h);
}

/* A frame that decodes as a whole also decodes in parts, to the same bytes. */
static void decode_parts(const uint8_t *frame, size_t bytes, const struct sw_frame_layout *layout,
                         const uint8_t *whole) {
    const size_t segment_bytes = (size_t)1 << layout->segment_log2, tile_bytes = SW_TILE_SEGMENTS * segment_bytes;
    uint8_t *out = malloc(tile_bytes);
    size_t got;
    SW_ASSERT(out);
    for (uint32_t tile = 0; tile < layout->n_tiles; tile++) {
        int r = sw_codec_decode_tile(frame, bytes, tile, out, tile_bytes, &got, NULL);
        SW_ASSERT(!whole || (r == 0 && memcmp(out, whole + tile * tile_bytes, got) == 0));
    }
    uint64_t segments = (layout->raw_bytes + segment_bytes - 1) / segment_bytes;
    for (uint64_t segment = 0; segment < segments; segment += 1 + segments / 40) {
        int r = sw_codec_decode_segment(frame, bytes, segment, out, tile_bytes, &got, NULL);
        SW_ASSERT(!whole || (r == 0 && memcmp(out, whole + segment * segment_bytes, got) == 0));
    }
    free(out);
}

static void decode(const uint8_t *frame, size_t bytes) {
    struct sw_frame_layout layout;
    struct sw_err err;
    uint64_t raw_bytes;
    if (sw_frame_parse(&layout, frame, bytes, bytes, &err) < 0 || layout.raw_bytes > MAX_OUT_BYTES)
        return;
    uint8_t *out = malloc(layout.raw_bytes + 1);
    SW_ASSERT(out);
    int r = sw_codec_decode(frame, bytes, out, layout.raw_bytes, &raw_bytes, &err);
    SW_ASSERT(r == 0 ? raw_bytes == layout.raw_bytes : r == -SW_EFRAME || r == -SW_ECHECKSUM);
    decode_parts(frame, bytes, &layout, r == 0 ? out : NULL);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    uint8_t *frame = calloc(1, bytes ? bytes : 1);
    SW_ASSERT(frame);
    if (bytes)
        memcpy(frame, data, bytes);
    decode(frame, bytes);
    rehash(frame, bytes);
    decode(frame, bytes);
    free(frame);
    return 0;
}

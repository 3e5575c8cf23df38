#include "codec/codec.h"

#include "base/alloc.h"
#include "codec/codec_ops.h"

#include <stddef.h>
#include <string.h>

static size_t min_size(uint64_t a, size_t b) {
    return a < b ? (size_t)a : b;
}

/* A frame being written. */
struct writer {
    const struct sw_codec_ops *ops;
    struct sw_frame_layout layout;
    uint8_t *frame;
    uint64_t data_bytes; /* of the tiles so far */
};

static void put_record(struct writer *w, uint32_t tile, uint64_t data_at, uint32_t hash) {
    struct sw_tile_record record = {(uint32_t)(data_at / SW_FRAME_ALIGN), hash};
    memcpy(w->frame + w->layout.records_offset + sizeof record * tile, &record, sizeof record);
}

static void put_head(struct writer *w, const struct sw_plan *plan) {
    struct sw_frame_header header;
    uint64_t records_end = w->layout.records_offset + sizeof(struct sw_tile_record) * w->layout.n_tiles;
    memset(w->frame + records_end, 0, w->layout.counts_offset - records_end);
    uint64_t counts_end = w->layout.counts_offset + (uint64_t)w->layout.count_bytes * w->layout.n_tiles;
    memset(w->frame + counts_end, 0, w->layout.data_offset - counts_end);
    if (sw_codec_has_symbols(w->layout.codec))
        sw_params_write(&plan->params, w->frame + SW_FRAME_HEADER_BYTES);
    if (sw_codec_has_dictionary(w->layout.codec))
        memcpy(w->frame + w->layout.dictionary_offset, plan->dictionary->data, w->layout.dictionary_bytes);
    sw_frame_header_init(&header, &w->layout, w->frame + SW_FRAME_HEADER_BYTES);
    memcpy(w->frame, &header, sizeof header);
}

static size_t tile_bytes_of(const struct sw_frame_layout *layout, uint32_t tile) {
    const size_t tile_bytes = (size_t)SW_TILE_SEGMENTS << layout->segment_log2;
    return min_size(layout->raw_bytes - (uint64_t)tile_bytes * tile, tile_bytes);
}

/* Returns whether a frame of most_bytes has room for tile `tile`, or for nothing more after the last tile. */
static bool has_room(const struct writer *w, uint32_t tile, uint64_t most_bytes) {
    const uint64_t next = tile < w->layout.n_tiles ? tile_bytes_of(&w->layout, tile) : 0;
    return w->layout.data_offset + w->data_bytes + next <= most_bytes;
}

static void put_tile(struct writer *w, const void *encoder, const uint8_t *in, uint32_t tile) {
    const unsigned log2 = w->layout.segment_log2;
    const uint8_t *from = in + (((uint64_t)SW_TILE_SEGMENTS << log2) * tile);
    const size_t bytes = tile_bytes_of(&w->layout, tile);
    put_record(w, tile, w->data_bytes, w->ops->hash_tile(from, bytes, log2, tile));
    w->data_bytes += w->ops->encode_tile(encoder, from, bytes, log2, w->frame + w->layout.data_offset + w->data_bytes,
                                         w->frame + w->layout.counts_offset + (uint64_t)w->layout.count_bytes * tile);
}

/* Encodes into a frame. Codecs with a dictionary may need more than sw_frame_bound_bytes(): then no frame is written,
 * and *ret_frame_bytes is that bound. */
static int encode_with(const struct sw_plan *plan, const uint8_t *in, uint64_t in_bytes, uint8_t *out,
                       uint64_t *ret_frame_bytes, struct sw_err *err) {
    const uint64_t most_bytes = sw_frame_bound_bytes(in_bytes);
    struct writer w = {.ops = sw_codec_ops(plan->codec), .frame = out};
    void *encoder = w.ops->encoder_new(plan);
    if (!encoder)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for the encoder's tables");
    sw_frame_layout_init(&w.layout, plan->codec, plan->segment_log2, in_bytes, sw_plan_symbols(plan));
    w.layout.value_type = plan->value_type;
    if (sw_codec_has_dictionary(plan->codec))
        sw_frame_layout_add_dictionary(&w.layout, plan->dictionary->bytes);

    uint32_t tile = 0;
    while (has_room(&w, tile, most_bytes) && tile < w.layout.n_tiles)
        put_tile(&w, encoder, in, tile), tile++;
    w.ops->encoder_free(encoder);
    *ret_frame_bytes = most_bytes;
    if (!has_room(&w, tile, most_bytes))
        return 0;
    w.layout.frame_bytes = w.layout.data_offset + w.data_bytes;
    put_head(&w, plan);
    *ret_frame_bytes = w.layout.frame_bytes;
    return 0;
}

int sw_codec_encode(const struct sw_plan *plan, const void *in, uint64_t in_bytes, void *out, uint64_t out_cap_bytes,
                    uint64_t *ret_frame_bytes, struct sw_err *err) {
    struct sw_frame_layout raw_layout;
    struct sw_plan raw_plan;
    uint64_t frame_bytes = 0;
    if (!sw_codec_format_of((unsigned)plan->codec))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "the plan's codec %d is unknown", (int)plan->codec);
    if (!sw_codec_takes(plan->codec, plan->value_type))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "codec %s cannot store values of type %d",
                          sw_codec_name(plan->codec), (int)plan->value_type);
    if (in_bytes > SW_FRAME_MAX_RAW_BYTES)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "chunk of %llu bytes exceeds the format's limit",
                          (unsigned long long)in_bytes);
    if (out_cap_bytes < sw_frame_bound_bytes(in_bytes))
        return sw_err_set(err, -SW_ETOOSMALL, SW_SCOPE_REQUEST,
                          "frame for %llu bytes may need %llu bytes, but the buffer has %llu",
                          (unsigned long long)in_bytes, (unsigned long long)sw_frame_bound_bytes(in_bytes),
                          (unsigned long long)out_cap_bytes);
    if (sw_codec_has_dictionary(plan->codec) && !plan->dictionary)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a plan by codec %s needs a dictionary",
                          sw_codec_name(plan->codec));
    int r = encode_with(plan, in, in_bytes, out, &frame_bytes, err);
    if (r < 0)
        return r;
    sw_frame_layout_init(&raw_layout, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, in_bytes, 0);
    if (plan->codec != SW_CODEC_RAW && frame_bytes >= raw_layout.frame_bytes) {
        sw_plan_init_raw(&raw_plan);
        r = encode_with(&raw_plan, in, in_bytes, out, &frame_bytes, err);
        if (r < 0)
            return r;
    }
    *ret_frame_bytes = frame_bytes;
    return 0;
}

/* A frame being read. Its header and symbol table have been checked. */
struct reader {
    const struct sw_codec_ops *ops;
    struct sw_frame_layout layout;
    const uint8_t *frame;
    _Alignas(max_align_t) uint8_t decoder[SW_DECODER_BYTES];
};

static int reader_open(struct reader *ret, const void *frame, uint64_t frame_bytes, struct sw_err *err) {
    int r = sw_frame_parse(&ret->layout, frame, frame_bytes, frame_bytes, err);
    if (r < 0)
        return r;
    ret->frame = frame;
    ret->ops = sw_codec_ops(ret->layout.codec);
    r = ret->ops->decoder_init(ret->decoder, &ret->layout, ret->frame);
    return r < 0 ? sw_err_set(err, r, SW_SCOPE_REQUEST, "frame's symbol table is invalid") : 0;
}

/* Finds the stored bytes of an existing tile. */
static int reader_tile(const struct reader *r, uint32_t tile, struct sw_tile_view *ret, struct sw_err *err) {
    struct sw_tile_record record;
    memcpy(&record, r->frame + r->layout.records_offset + sizeof record * tile, sizeof record);
    uint64_t data_bytes = r->layout.frame_bytes - r->layout.data_offset;
    uint64_t offset = (uint64_t)record.offset16 * SW_FRAME_ALIGN;
    if (offset > data_bytes)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "tile %u lies outside its frame", tile);
    *ret = (struct sw_tile_view){
        .data = r->frame + r->layout.data_offset + offset,
        .data_bytes = (size_t)(data_bytes - offset),
        .counts = r->frame + r->layout.counts_offset + (uint64_t)r->layout.count_bytes * tile,
        .segment_log2 = r->layout.segment_log2,
        .tile_bytes = tile_bytes_of(&r->layout, tile),
        .hash = record.hash,
    };
    return 0;
}

static int reader_decode_tile(const struct reader *reader, uint32_t tile, uint8_t *out, struct sw_err *err) {
    struct sw_tile_view view = {0};
    int r = reader_tile(reader, tile, &view, err);
    if (r < 0)
        return r;
    r = reader->ops->decode_tile(reader->decoder, &view, out);
    if (r < 0)
        return sw_err_set(err, r, SW_SCOPE_REQUEST, "tile %u is invalid for codec %s", tile,
                          sw_codec_name(reader->layout.codec));
    if (reader->ops->hash_tile(out, view.tile_bytes, view.segment_log2, tile) != view.hash)
        return sw_err_set(err, -SW_ECHECKSUM, SW_SCOPE_REQUEST, "tile %u does not match its hash", tile);
    return 0;
}

static int check_room(uint64_t needed_bytes, uint64_t out_cap_bytes, struct sw_err *err) {
    if (needed_bytes <= out_cap_bytes)
        return 0;
    return sw_err_set(err, -SW_ETOOSMALL, SW_SCOPE_REQUEST, "%llu bytes do not fit into a buffer of %llu",
                      (unsigned long long)needed_bytes, (unsigned long long)out_cap_bytes);
}

int sw_codec_decode(const void *frame, uint64_t frame_bytes, void *out, uint64_t out_cap_bytes, uint64_t *ret_raw_bytes,
                    struct sw_err *err) {
    struct reader reader;
    int r = reader_open(&reader, frame, frame_bytes, err);
    if (r == 0)
        r = check_room(reader.layout.raw_bytes, out_cap_bytes, err);
    if (r < 0)
        return r;
    const uint64_t tile_bytes = (uint64_t)SW_TILE_SEGMENTS << reader.layout.segment_log2;
    for (uint32_t tile = 0; tile < reader.layout.n_tiles; tile++) {
        r = reader_decode_tile(&reader, tile, (uint8_t *)out + tile_bytes * tile, err);
        if (r < 0)
            return r;
    }
    *ret_raw_bytes = reader.layout.raw_bytes;
    return 0;
}

int sw_codec_verify(const void *frame, uint64_t frame_bytes, struct sw_err *err) {
    struct reader reader;
    int r = reader_open(&reader, frame, frame_bytes, err);
    if (r < 0)
        return r;
    uint8_t *out = sw_alloc((size_t)SW_TILE_SEGMENTS << reader.layout.segment_log2);
    if (!out)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a tile");
    for (uint32_t tile = 0; r == 0 && tile < reader.layout.n_tiles; tile++)
        r = reader_decode_tile(&reader, tile, out, err);
    sw_free(out);
    return r;
}

int sw_codec_decode_segment(const void *frame, uint64_t frame_bytes, uint64_t segment, void *out,
                            uint64_t out_cap_bytes, size_t *ret_bytes, struct sw_err *err) {
    struct reader reader;
    struct sw_tile_view view = {0};
    int r = reader_open(&reader, frame, frame_bytes, err);
    if (r < 0)
        return r;
    const size_t segment_bytes = (size_t)1 << reader.layout.segment_log2;
    const uint64_t raw_bytes = reader.layout.raw_bytes;
    if (segment >= raw_bytes / segment_bytes + (raw_bytes % segment_bytes != 0))
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST, "frame has no segment %llu", (unsigned long long)segment);
    r = check_room(min_size(raw_bytes - segment * segment_bytes, segment_bytes), out_cap_bytes, err);
    if (r == 0)
        r = reader_tile(&reader, (uint32_t)(segment / SW_TILE_SEGMENTS), &view, err);
    if (r < 0)
        return r;
    r = reader.ops->decode_segment(reader.decoder, &view, (unsigned)(segment % SW_TILE_SEGMENTS), out, ret_bytes);
    return r < 0 ? sw_err_set(err, r, SW_SCOPE_REQUEST, "segment %llu is invalid for codec %s",
                              (unsigned long long)segment, sw_codec_name(reader.layout.codec))
                 : 0;
}

int sw_codec_decode_tile(const void *frame, uint64_t frame_bytes, uint32_t tile, void *out, uint64_t out_cap_bytes,
                         size_t *ret_bytes, struct sw_err *err) {
    struct reader reader;
    int r = reader_open(&reader, frame, frame_bytes, err);
    if (r < 0)
        return r;
    if (tile >= reader.layout.n_tiles)
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST, "frame has no tile %u", tile);
    r = check_room(tile_bytes_of(&reader.layout, tile), out_cap_bytes, err);
    if (r == 0)
        r = reader_decode_tile(&reader, tile, out, err);
    if (r < 0)
        return r;
    *ret_bytes = tile_bytes_of(&reader.layout, tile);
    return 0;
}

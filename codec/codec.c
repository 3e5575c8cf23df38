#include "codec/codec.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "codec/codec_ops.h"

#include <string.h>

/* A codec that gains less is not worth its time. */
#define MIN_RATIO 1.05

/* Where longer phrases are looked for: v5t's symbols are nearly as long as they can be, or it has found no use for all
 * codes, since of symbols that begin alike it has few. They are taken if they save a fifth: looking them up is slower.
 */
#define LENGTHEN_RATIO 4.3
#define LENGTHEN_SYMBOLS 240
#define LENGTHEN_GAIN 1.25

static const struct sw_codec_ops *const codecs[SW_CODEC_NR] = {
    [SW_CODEC_RAW] = &sw_raw_ops,     [SW_CODEC_V5T] = &sw_v5t_ops,       [SW_CODEC_FOR] = &sw_for_ops,
    [SW_CODEC_DFOR] = &sw_dfor_ops,   [SW_CODEC_RFOR] = &sw_rfor_ops,     [SW_CODEC_ALP] = &sw_alp_ops,
    [SW_CODEC_ALPRD] = &sw_alprd_ops, [SW_CODEC_LZ] = &sw_lz_ops,         [SW_CODEC_DICT] = &sw_dict_ops,
    [SW_CODEC_SFOR] = &sw_sfor_ops,   [SW_CODEC_PHRASE] = &sw_phrase_ops,
};

const struct sw_codec_ops *sw_codec_ops_find(unsigned codec) {
    return codec < SW_CODEC_NR ? codecs[codec] : NULL;
}

const char *sw_codec_name(enum sw_codec_id codec) {
    const struct sw_codec_ops *ops = sw_codec_ops_find((unsigned)codec);
    return ops ? ops->name : "unknown";
}

static size_t min_size(uint64_t a, size_t b) {
    return a < b ? (size_t)a : b;
}

void sw_plan_init_raw(struct sw_plan *ret) {
    memset(ret, 0, sizeof *ret);
    ret->codec = SW_CODEC_RAW;
    ret->segment_log2 = SW_RAW_SEGMENT_LOG2;
    ret->expected_ratio = 1;
}

static uint32_t plan_symbols(const struct sw_plan *plan) {
    return sw_codec_has_symbols(plan->codec) ? plan->table.n_symbols : 0;
}

/* Ratio of a frame of raw_bytes that shrinks as the sample does; 0 without memory. */
static double estimate_ratio(const struct sw_plan *plan, const uint8_t *sample, size_t sample_bytes,
                             uint64_t raw_bytes) {
    const struct sw_codec_ops *ops = sw_codec_ops_find((unsigned)plan->codec);
    const size_t tile_bytes = (size_t)SW_TILE_SEGMENTS << plan->segment_log2;
    struct sw_frame_layout layout;
    sw_frame_layout_init(&layout, plan->codec, plan->segment_log2, raw_bytes, plan_symbols(plan));
    void *encoder = ops->encoder_new(plan);
    uint8_t *scratch = sw_alloc(tile_bytes + ops->count_bytes);
    size_t data_bytes = 0;
    for (size_t at = 0; encoder && scratch && at < sample_bytes; at += tile_bytes)
        data_bytes += ops->encode_tile(encoder, sample + at, min_size(sample_bytes - at, tile_bytes),
                                       plan->segment_log2, scratch, scratch + tile_bytes);
    sw_free(scratch);
    ops->encoder_free(encoder);
    double data_per_byte = (double)data_bytes / (double)sample_bytes;
    return data_bytes ? (double)raw_bytes / ((double)layout.data_offset + (double)raw_bytes * data_per_byte) : 0;
}

void sw_plan_init(struct sw_plan *ret, const void *sample, size_t sample_bytes, uint64_t raw_bytes) {
    sw_plan_init_raw(ret);
    for (unsigned codec = 0; sample_bytes && codec < SW_CODEC_NR; codec++) {
        struct sw_plan plan = {.codec = (enum sw_codec_id)codec};
        if (!sw_codec_takes(plan.codec, SW_VALUE_NONE) || !codecs[codec]->plan_init)
            continue;
        sw_plan_learn(&plan, sample, sample_bytes);
        plan.raw_bytes = raw_bytes;
        plan.expected_ratio = estimate_ratio(&plan, sample, sample_bytes, raw_bytes);
        if (plan.expected_ratio >= MIN_RATIO && plan.expected_ratio > ret->expected_ratio)
            *ret = plan;
    }
}

double sw_plan_data_ratio(const struct sw_plan *plan) {
    struct sw_frame_layout layout;
    if (plan->codec == SW_CODEC_RAW)
        return 1;
    sw_frame_layout_init(&layout, plan->codec, plan->segment_log2, plan->raw_bytes, plan_symbols(plan));
    const double data_per_byte = 1 / plan->expected_ratio - (double)layout.data_offset / (double)plan->raw_bytes;
    return data_per_byte > 0 ? 1 / data_per_byte : (double)plan->raw_bytes; /* numbers that are all equal: rounding */
}

bool sw_plan_may_lengthen(const struct sw_plan *plan) {
    return plan->codec == SW_CODEC_V5T &&
           (sw_plan_data_ratio(plan) >= LENGTHEN_RATIO || plan->table.n_symbols <= LENGTHEN_SYMBOLS);
}

void sw_plan_lengthen(struct sw_plan *plan, const void *sample, size_t sample_bytes) {
    struct sw_plan longer = {
        .codec = SW_CODEC_PHRASE, .segment_log2 = plan->segment_log2, .raw_bytes = plan->raw_bytes};
    sw_phrase_learn(&longer.table, &plan->table, sample, sample_bytes, SW_SAMPLE_LONG_PIECE_BYTES, plan->raw_bytes);
    longer.expected_ratio = estimate_ratio(&longer, sample, sample_bytes, plan->raw_bytes);
    if (longer.expected_ratio >= LENGTHEN_GAIN * plan->expected_ratio) {
        *plan = longer;
        return;
    }
    const double ratio = estimate_ratio(plan, sample, sample_bytes, plan->raw_bytes);
    if (ratio > 0) /* else there was no memory */
        plan->expected_ratio = ratio;
}

/* False: a plan saves as much of the bits already as the codec could. */
static bool may_win(const struct sw_codec_ops *ops, enum sw_value_type type, const struct sw_plan *plan) {
    const unsigned bits = sw_value_bits(type);
    return !ops->saved_bits || plan->expected_ratio * (bits - ops->saved_bits) < bits;
}

void sw_plan_init_typed(struct sw_plan *ret, enum sw_value_type type, const void *sample, size_t sample_bytes,
                        uint64_t raw_bytes) {
    struct sw_frame_layout layout;
    sw_plan_init_raw(ret);
    for (unsigned codec = 0; sample_bytes && codec < SW_CODEC_NR; codec++) {
        struct sw_plan plan;
        if (!sw_plan_init_numbers(&plan, (enum sw_codec_id)codec, type) || !may_win(codecs[codec], type, ret))
            continue;
        sw_plan_learn(&plan, sample, sample_bytes);
        const bool has_symbols = sw_codec_has_symbols(plan.codec);
        if (has_symbols && !plan.table.n_symbols)
            continue; /* there was nothing to learn */
        sw_frame_layout_init(&layout, plan.codec, plan.segment_log2, raw_bytes, plan.table.n_symbols);
        const double data_per_byte = codecs[codec]->estimate(&plan, sample, sample_bytes, raw_bytes);
        const double ratio = (double)raw_bytes / ((double)layout.data_offset + (double)raw_bytes * data_per_byte);
        if (ratio < MIN_RATIO)
            continue;
        ret->value_type = type;
        ret->raw_bytes = raw_bytes;
        ret->ratios[codec] = ratio;
        if (has_symbols)
            ret->table = plan.table;
        /* Looking values up takes longer than what other codecs of numbers do: it must gain something over them. */
        const bool is_slow = has_symbols && ret->codec != SW_CODEC_RAW;
        if (ratio > (is_slow ? MIN_RATIO : 1) * ret->expected_ratio)
            sw_plan_switch(ret, plan.codec);
    }
}

void sw_plan_make(struct sw_plan *ret, enum sw_value_type type, const void *region, uint64_t raw_bytes, void *sample) {
    if (type != SW_VALUE_NONE) {
        const size_t bytes = sw_sample_gather(sample, region, raw_bytes, SW_SAMPLE_LONG_PIECE_BYTES);
        sw_plan_init_typed(ret, type, sample, bytes, raw_bytes);
        return;
    }
    sw_plan_init(ret, sample, sw_sample_gather(sample, region, raw_bytes, SW_SAMPLE_SHORT_PIECE_BYTES), raw_bytes);
    if (sw_plan_may_lengthen(ret))
        sw_plan_lengthen(ret, sample, sw_sample_gather(sample, region, raw_bytes, SW_SAMPLE_LONG_PIECE_BYTES));
}

void sw_plan_switch(struct sw_plan *plan, enum sw_codec_id codec) {
    plan->codec = codec;
    plan->segment_log2 = codecs[codec]->min_segment_log2;
    plan->expected_ratio = plan->ratios[codec];
}

void sw_plan_learn(struct sw_plan *plan, const void *sample, size_t sample_bytes) {
    const struct sw_codec_ops *ops = sw_codec_ops_find((unsigned)plan->codec);
    if (ops && ops->plan_init)
        ops->plan_init(plan, sample, sample_bytes);
}

bool sw_plan_init_numbers(struct sw_plan *ret, enum sw_codec_id codec, enum sw_value_type type) {
    const struct sw_codec_ops *ops = sw_codec_ops_find((unsigned)codec);
    if (!ops || !ops->estimate || type == SW_VALUE_NONE || !sw_codec_takes(codec, type))
        return false;
    *ret = (struct sw_plan){
        .codec = codec, .segment_log2 = ops->min_segment_log2, .value_type = type, .expected_ratio = 1};
    return true;
}

void sw_plan_init_lz(struct sw_plan *ret, enum sw_value_type type, unsigned window) {
    *ret = (struct sw_plan){.codec = SW_CODEC_LZ,
                            .segment_log2 = sw_lz_ops.min_segment_log2,
                            .value_type = type,
                            .lz_window = window,
                            .expected_ratio = 1};
}

void sw_plan_init_trained(struct sw_plan *ret, const struct sw_v5t_table *table, size_t coded_bytes,
                          size_t sample_bytes, uint64_t raw_bytes) {
    struct sw_plan plan = {
        .codec = SW_CODEC_V5T, .segment_log2 = SW_RAW_SEGMENT_LOG2, .raw_bytes = raw_bytes, .table = *table};
    struct sw_frame_layout layout;
    sw_plan_init_raw(ret);
    if (!coded_bytes)
        return;
    sw_frame_layout_init(&layout, plan.codec, plan.segment_log2, raw_bytes, table->n_symbols);
    /* A segment's codes end in a word that is half used on average. */
    const double padding = 2.0 / (double)(1u << plan.segment_log2);
    const double data_per_byte = (double)coded_bytes / (double)sample_bytes + padding;
    plan.expected_ratio = (double)raw_bytes / ((double)layout.data_offset + (double)raw_bytes * data_per_byte);
    if (plan.expected_ratio >= MIN_RATIO)
        *ret = plan;
}

/* A frame that is being written. */
struct writer {
    const struct sw_codec_ops *ops;
    struct sw_frame_layout layout;
    uint8_t *frame;
};

static void put_record(struct writer *w, uint32_t tile, uint64_t data_at, uint32_t hash) {
    struct sw_tile_record record = {(uint32_t)(data_at / SW_FRAME_ALIGN), hash};
    memcpy(w->frame + w->layout.records_offset + sizeof record * tile, &record, sizeof record);
}

static void put_head(struct writer *w, const struct sw_v5t_table *table) {
    struct sw_frame_header header;
    uint64_t records_end = w->layout.records_offset + sizeof(struct sw_tile_record) * w->layout.n_tiles;
    memset(w->frame + records_end, 0, w->layout.counts_offset - records_end);
    uint64_t counts_end = w->layout.counts_offset + (uint64_t)w->ops->count_bytes * w->layout.n_tiles;
    memset(w->frame + counts_end, 0, w->layout.data_offset - counts_end);
    if (w->ops->max_symbols)
        sw_v5t_table_write(table, w->frame + SW_FRAME_HEADER_BYTES);
    sw_frame_header_init(&header, &w->layout, w->frame + SW_FRAME_HEADER_BYTES);
    memcpy(w->frame, &header, sizeof header);
}

static int encode_with(const struct sw_plan *plan, const uint8_t *in, uint64_t in_bytes, uint8_t *out,
                       uint64_t *ret_frame_bytes, struct sw_err *err) {
    struct writer w = {.ops = sw_codec_ops_find((unsigned)plan->codec), .frame = out};
    SW_ASSERT(w.ops); /* sw_codec_encode() has refused an unknown codec */
    void *encoder = w.ops->encoder_new(plan);
    if (!encoder)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for the encoder's tables");
    sw_frame_layout_init(&w.layout, plan->codec, plan->segment_log2, in_bytes, plan_symbols(plan));
    w.layout.value_type = plan->value_type;

    const size_t tile_bytes = (size_t)SW_TILE_SEGMENTS << plan->segment_log2;
    uint64_t data_at = 0;
    for (uint32_t tile = 0; tile < w.layout.n_tiles; tile++) {
        const uint8_t *from = in + (uint64_t)tile_bytes * tile;
        size_t bytes = min_size(in_bytes - (uint64_t)tile_bytes * tile, tile_bytes);
        put_record(&w, tile, data_at, w.ops->hash_tile(from, bytes, plan->segment_log2, tile));
        data_at += w.ops->encode_tile(encoder, from, bytes, plan->segment_log2, out + w.layout.data_offset + data_at,
                                      out + w.layout.counts_offset + (uint64_t)w.ops->count_bytes * tile);
    }
    w.ops->encoder_free(encoder);
    w.layout.frame_bytes = w.layout.data_offset + data_at;
    put_head(&w, &plan->table);
    *ret_frame_bytes = w.layout.frame_bytes;
    return 0;
}

int sw_codec_encode(const struct sw_plan *plan, const void *in, uint64_t in_bytes, void *out, uint64_t out_cap_bytes,
                    uint64_t *ret_frame_bytes, struct sw_err *err) {
    struct sw_frame_layout raw_layout;
    struct sw_plan raw_plan;
    uint64_t frame_bytes = 0;
    if (!sw_codec_ops_find((unsigned)plan->codec))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "plan names codec %d, which is unknown", (int)plan->codec);
    if (!sw_codec_takes(plan->codec, plan->value_type))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "plan of codec %s has values of type %d",
                          sw_codec_name(plan->codec), (int)plan->value_type);
    if (in_bytes > SW_FRAME_MAX_RAW_BYTES)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "chunk of %llu bytes is above the format's limit",
                          (unsigned long long)in_bytes);
    if (out_cap_bytes < sw_frame_bound_bytes(in_bytes))
        return sw_err_set(err, -SW_ETOOSMALL, SW_SCOPE_REQUEST, "frame of %llu bytes may need %llu, given %llu",
                          (unsigned long long)in_bytes, (unsigned long long)sw_frame_bound_bytes(in_bytes),
                          (unsigned long long)out_cap_bytes);
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

/* A frame that is being read: its head has been checked. */
struct reader {
    const struct sw_codec_ops *ops;
    struct sw_frame_layout layout;
    const uint8_t *frame;
    union sw_codec_decoder decoder;
};

static int reader_open(struct reader *ret, const void *frame, uint64_t frame_bytes, struct sw_err *err) {
    int r = sw_frame_parse(&ret->layout, frame, frame_bytes, frame_bytes, err);
    if (r < 0)
        return r;
    ret->frame = frame;
    ret->ops = sw_codec_ops_find((unsigned)ret->layout.codec);
    r = ret->ops->decoder_init(&ret->decoder, &ret->layout, ret->frame + SW_FRAME_HEADER_BYTES);
    return r < 0 ? sw_err_set(err, r, SW_SCOPE_REQUEST, "frame's symbol table is invalid") : 0;
}

static size_t reader_tile_bytes(const struct reader *r, uint32_t tile) {
    const size_t tile_bytes = (size_t)SW_TILE_SEGMENTS << r->layout.segment_log2;
    return min_size(r->layout.raw_bytes - (uint64_t)tile_bytes * tile, tile_bytes);
}

/* Finds the stored bytes of a tile that exists. */
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
        .counts = r->frame + r->layout.counts_offset + (uint64_t)r->ops->count_bytes * tile,
        .segment_log2 = r->layout.segment_log2,
        .tile_bytes = reader_tile_bytes(r, tile),
        .hash = record.hash,
    };
    return 0;
}

static int reader_decode_tile(const struct reader *reader, uint32_t tile, uint8_t *out, struct sw_err *err) {
    struct sw_tile_view view = {0};
    int r = reader_tile(reader, tile, &view, err);
    if (r < 0)
        return r;
    r = reader->ops->decode_tile(&reader->decoder, &view, out);
    if (r < 0)
        return sw_err_set(err, r, SW_SCOPE_REQUEST, "tile %u is not valid %s", tile, reader->ops->name);
    if (reader->ops->hash_tile(out, view.tile_bytes, view.segment_log2, tile) != view.hash)
        return sw_err_set(err, -SW_ECHECKSUM, SW_SCOPE_REQUEST, "tile %u does not match its hash", tile);
    return 0;
}

static int check_room(uint64_t needed_bytes, uint64_t out_cap_bytes, struct sw_err *err) {
    if (needed_bytes <= out_cap_bytes)
        return 0;
    return sw_err_set(err, -SW_ETOOSMALL, SW_SCOPE_REQUEST, "%llu bytes do not fit into %llu",
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
    r = reader.ops->decode_segment(&reader.decoder, &view, (unsigned)(segment % SW_TILE_SEGMENTS), out, ret_bytes);
    return r < 0 ? sw_err_set(err, r, SW_SCOPE_REQUEST, "segment %llu is not valid %s", (unsigned long long)segment,
                              reader.ops->name)
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
    r = check_room(reader_tile_bytes(&reader, tile), out_cap_bytes, err);
    if (r == 0)
        r = reader_decode_tile(&reader, tile, out, err);
    if (r < 0)
        return r;
    *ret_bytes = reader_tile_bytes(&reader, tile);
    return 0;
}

/* Frames that no encoder writes but that have valid hashes: places behind a vector's end, and parts longer than the
 * stored bytes. A check refuses each before foreign memory is read or written; the tile's hash would find it too late.
 */
#include "codec/alprd/alprd_core.h"
#include "codec/checksum.h"
#include "codec/codec.h"
#include "codec/lz/lz.h"
#include "codec/lz/lz_core.h"
#include "codec/phrase/phrase.h"
#include "codec/plan/plan.h"
#include "codec/streams/streams.h"
#include "tests/lib/content.h"
#include "tests/lib/guard.h"
#include "tests/lib/run.h"

#include <check.h>
#include <math.h>
#include <string.h>

enum { VECTORS = 2, VALUES = VECTORS * SW_VECTOR_VALUES };

/* A tile of a few vectors of one type, and where the first one's parts are. */
static struct {
    struct sw_guard raw, frame, out;
    struct sw_frame_layout layout;
    uint8_t *counts, *data;
} victim;

static void encode(struct sw_plan plan, const void *values, size_t bytes) {
    const uint64_t bound = sw_frame_bound_bytes(bytes);
    uint64_t frame_bytes = 0;
    struct sw_guard room = sw_guard_new(bound, SW_GUARD_AT_END);
    victim.raw = sw_guard_new(bytes, SW_GUARD_AT_END);
    victim.out = sw_guard_new(bytes, SW_GUARD_AT_END);
    memcpy(victim.raw.data, values, bytes);
    memset(room.data, 0xEE, bound);
    ck_assert_int_eq(sw_codec_encode(&plan, values, bytes, room.data, bound, &frame_bytes, NULL), 0);
    victim.frame = sw_guard_new(frame_bytes, SW_GUARD_AT_END);
    memcpy(victim.frame.data, room.data, frame_bytes);
    memset(room.data, 0x11, bound); /* no byte of what was there before is in a frame */
    ck_assert_int_eq(sw_codec_encode(&plan, values, bytes, room.data, bound, &frame_bytes, NULL), 0);
    ck_assert_uint_eq(frame_bytes, victim.frame.bytes);
    ck_assert_mem_eq(room.data, victim.frame.data, frame_bytes);
    ck_assert_int_eq(sw_frame_parse(&victim.layout, victim.frame.data, frame_bytes, frame_bytes, NULL), 0);
    ck_assert_int_eq(victim.layout.codec, plan.codec);
    victim.counts = victim.frame.data + victim.layout.counts_offset;
    victim.data = victim.frame.data + victim.layout.data_offset;
    sw_guard_free(&room);
}

static void encode_numbers(enum sw_codec_id codec, enum sw_value_type type, const void *values, size_t n) {
    const size_t bytes = n * sw_value_bits(type) / 8;
    struct sw_plan plan;
    ck_assert(sw_plan_init_numbers(&plan, codec, type));
    sw_plan_learn(&plan, values, bytes);
    encode(plan, values, bytes);
}

static int decode(void) {
    uint64_t raw_bytes = 0;
    const int rc =
        sw_codec_decode(victim.frame.data, victim.frame.bytes, victim.out.data, victim.out.bytes, &raw_bytes, NULL);
    if (rc == 0)
        ck_assert_mem_eq(victim.out.data, victim.raw.data, victim.raw.bytes);
    return rc;
}

/* Each of these values, in place of the right one, makes the decoder refuse the frame. */
static void ck_refused(uint8_t *at, size_t bytes, const uint16_t *values, size_t n) {
    uint8_t old[2];
    memcpy(old, at, bytes);
    ck_assert_int_eq(decode(), 0);
    for (size_t i = 0; i < n; i++) {
        memcpy(at, &values[i], bytes);
        const int rc = decode();
        ck_assert_msg(rc == -SW_EFRAME, "%u: %s", values[i], sw_err_name(rc));
    }
    memcpy(at, old, bytes);
    ck_assert_int_eq(decode(), 0);
}

static void teardown(void) {
    sw_guard_free(&victim.raw);
    sw_guard_free(&victim.frame);
    sw_guard_free(&victim.out);
}

static const uint16_t places[] = {SW_VECTOR_VALUES, SW_VECTOR_VALUES + 1, 0xFFFF};

/* Floats in two parts, some of which have a left part that is in no dictionary. */
START_TEST(reals_have_exceptions_within_their_vector) {
    double values[VALUES];
    float narrow[VALUES];
    uint64_t state = 1;
    const enum sw_value_type type = _i ? SW_VALUE_F64 : SW_VALUE_F32;
    for (int i = 0; i < VALUES; i++) {
        values[i] = 1 + (double)(sw_random(&state) >> 12) / 0x1p52;
        if (i % 100 == 50)
            values[i] = ldexp(-values[i], -100 + i / 10);
        narrow[i] = (float)values[i];
    }
    encode_numbers(SW_CODEC_ALPRD, type, _i ? (void *)values : (void *)narrow, VALUES);
    uint16_t tag;
    memcpy(&tag, victim.counts + SW_TILE_MAX_FLOAT_VECTORS, sizeof tag);
    const unsigned n = sw_alp_exceptions(tag), rows = victim.counts[0] + sw_alprd_code_width(tag);
    ck_assert_uint_gt(n, 5);
    ck_refused(victim.counts + SW_TILE_MAX_FLOAT_VECTORS, 2, /* more exceptions than the vector has room for */
               (const uint16_t[]){(uint16_t)(tag | 0x3FF), (uint16_t)(tag | 0x7FF)}, 2);
    uint8_t *rest = victim.data + (size_t)SW_ALPRD_ROW_UNITS * SW_UNIT_BYTES * rows + 2 * SW_ALPRD_ENTRIES;
    ck_refused(rest + 2 * (size_t)n, 2, places, 3);
}
END_TEST

/* Values of a dictionary, some of which are not in it. */
START_TEST(dictionaries_have_exceptions_within_their_vector) {
    uint32_t values[VALUES];
    for (uint32_t i = 0; i < VALUES; i++)
        values[i] = i % 100 == 50 ? i * 0x9E3779B1u : i % 2 * 1000000000u;
    encode_numbers(SW_CODEC_DICT, SW_VALUE_U32, values, VALUES);
    uint16_t n;
    memcpy(&n, victim.counts + SW_TILE_MAX_VECTORS, sizeof n);
    ck_assert_uint_gt(n, 5);
    uint8_t *rest = victim.data + (size_t)sw_packed_units(32, victim.counts[0], 0) * SW_UNIT_BYTES;
    ck_refused(rest + 4 * (size_t)n, 2, places, 3);
}
END_TEST

/* ---- every codec with exceptions ---- */

enum { FIRST_PLACE = 50, EACH_PLACE = 100, N_PLACES = (SW_VECTOR_VALUES - FIRST_PLACE + EACH_PLACE - 1) / EACH_PLACE };

static const struct {
    enum sw_codec_id codec;
    enum sw_value_type type;
} with_exceptions[] = {{SW_CODEC_PFOR, SW_VALUE_U32},   {SW_CODEC_PFOR, SW_VALUE_U64},   {SW_CODEC_PDFOR, SW_VALUE_U32},
                       {SW_CODEC_PDFOR, SW_VALUE_U64},  {SW_CODEC_RADIX, SW_VALUE_U32},  {SW_CODEC_RADIX, SW_VALUE_U64},
                       {SW_CODEC_DRADIX, SW_VALUE_U32}, {SW_CODEC_DRADIX, SW_VALUE_U64}, {SW_CODEC_ALP, SW_VALUE_F32},
                       {SW_CODEC_ALP, SW_VALUE_F64}};
enum { N_WITH_EXCEPTIONS = sizeof with_exceptions / sizeof with_exceptions[0] };

/* Values of which every hundredth is far from the others, or far from the one before. */
static void encode_exceptions(enum sw_codec_id codec, enum sw_value_type type) {
    static uint64_t values[VALUES];
    const unsigned bytes = sw_value_bits(type) / 8;
    const bool differs = codec == SW_CODEC_PDFOR || codec == SW_CODEC_DRADIX, is_float = codec == SW_CODEC_ALP;
    uint64_t state = 1, v = 0;
    for (unsigned i = 0; i < VALUES; i++) {
        const bool is_far = i % EACH_PLACE == FIRST_PLACE;
        const uint64_t near = sw_random(&state) % 3, far = sw_random(&state) | (uint64_t)1 << (8 * bytes - 2);
        const double wide = is_far ? sqrt((double)i + 2) : (double)near / 10;
        const float narrow = (float)wide;
        v = (differs ? v : 0) + (is_far ? far : near);
        memcpy((uint8_t *)values + (size_t)i * bytes,
               !is_float    ? (void *)&v
               : bytes == 8 ? (void *)&wide
                            : (void *)&narrow,
               bytes);
    }
    encode_numbers(codec, type, values, VALUES);
}

/* The first and the last place of the first vector. They follow each other. */
START_TEST(exceptions_lie_within_their_vector) {
    uint16_t expected[N_PLACES];
    for (unsigned i = 0; i < N_PLACES; i++)
        expected[i] = (uint16_t)(FIRST_PLACE + EACH_PLACE * i);
    encode_exceptions(with_exceptions[_i].codec, with_exceptions[_i].type);
    const size_t left = (size_t)(victim.frame.data + victim.frame.bytes - victim.data);
    uint8_t *found = memmem(victim.data, left, expected, sizeof expected);
    ck_assert_ptr_nonnull(found);
    ck_refused(found, 2, places, 3);
    ck_refused(found + sizeof expected - 2, 2, places, 3);
}
END_TEST

static const enum sw_codec_id digit_codecs[] = {SW_CODEC_RADIX, SW_CODEC_DRADIX};

/* A number of digits that is larger than its digits can make it. */
START_TEST(no_number_has_more_than_its_digits) {
    uint8_t old[8];
    encode_exceptions(digit_codecs[_i], SW_VALUE_U32);
    memcpy(old, victim.data, sizeof old);
    memset(victim.data, 0xFF, sizeof old);
    ck_assert_int_eq(decode(), -SW_EFRAME);
    memcpy(victim.data, old, sizeof old);
    ck_assert_int_eq(decode(), 0);
}
END_TEST

/* ---- runs ---- */

static const enum sw_codec_id run_codecs[] = {SW_CODEC_RFOR, SW_CODEC_SFOR};

/* Runs, and sequences: were their values as wide as is claimed, more of them would be read than a vector takes. */
START_TEST(runs_are_not_longer_than_their_vector) {
    uint32_t values[VALUES];
    uint64_t state = 1;
    for (uint32_t i = 0; i < VALUES; i++)
        values[i] = i % 16 ? values[i - 1] + (uint32_t)_i : (uint32_t)(sw_random(&state) % 1000000);
    encode_numbers(run_codecs[_i], SW_VALUE_U32, values, VALUES);
    ck_assert_uint_lt(victim.counts[SW_TILE_BASES_BYTES], 21);
    ck_refused(victim.counts + SW_TILE_BASES_BYTES, 1, (const uint16_t[]){29, 31}, 2);
}
END_TEST

static const enum sw_codec_id width_codecs[] = {SW_CODEC_FOR, SW_CODEC_DFOR, SW_CODEC_RFOR, SW_CODEC_SFOR};
static const unsigned n_bases[] = {1, 2, 1, 1};
static const enum sw_value_type width_types[] = {SW_VALUE_U8, SW_VALUE_U16, SW_VALUE_U32, SW_VALUE_U64};

/* _i: codec and type. */
START_TEST(no_width_is_more_than_the_types) {
    static uint64_t values[VALUES];
    const enum sw_value_type type = width_types[_i % 4];
    const unsigned bits = sw_value_bits(type), bytes = bits / 8;
    uint8_t *to = (uint8_t *)values;
    uint64_t state = 1, sum = 0;
    for (unsigned i = 0; i < VALUES; i++) { /* little endian */
        const uint64_t random = sw_random(&state) % (_i / 4 == 1 ? 4 : 100);
        sum = _i / 4 == 1 ? sum + random : i % 16 && _i / 4 > 1 ? sum + (_i / 4 > 2) : random;
        memcpy(to + (size_t)i * bytes, &sum, bytes);
    }
    encode_numbers(width_codecs[_i / 4], type, values, VALUES);
    ck_refused(victim.counts + (size_t)n_bases[_i / 4] * SW_TILE_BASES_BYTES, 1,
               (const uint16_t[]){(uint16_t)(bits + 1), UINT8_MAX}, 2);
}
END_TEST

/* A vector takes no more than packed. */
START_TEST(runs_take_no_more_than_packed) {
    static uint32_t values[12 * SW_VECTOR_VALUES]; /* two tiles: bytes behind the first could be taken for its own */
    uint64_t state = 1;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        values[i] = (uint32_t)(sw_random(&state) % 1000);
    encode_numbers(SW_CODEC_RFOR, SW_VALUE_U32, values, sizeof values / sizeof values[0]);
    const unsigned width = victim.counts[SW_TILE_BASES_BYTES];
    ck_assert_uint_eq(width, 10);
    const uint16_t units = (uint16_t)sw_packed_units(32, width, 0);
    ck_refused(victim.counts + SW_TILE_BASES_BYTES + SW_TILE_MAX_VECTORS, 2,
               (const uint16_t[]){(uint16_t)(units + 1), (uint16_t)(units + 100)}, 2);
}
END_TEST

/* ---- streams ---- */

static void fill_sink(const void *decoder, struct sw_sink *sink, const uint8_t *words, uint32_t n) {
    (void)decoder, (void)words, (void)n;
    memset(sink->to, 0, (size_t)(sink->end - sink->to));
    sink->to = sink->end;
}

/* Decodes one segment, and then the tile: both refuse it, or none. */
static int decode_streams(const uint8_t counts[SW_TILE_SEGMENTS], const uint8_t *data, size_t data_bytes,
                          size_t tile_bytes) {
    static uint8_t out[SW_TILE_SEGMENTS << 8];
    size_t bytes;
    const int of_segment =
        sw_streams_decode_segment(fill_sink, NULL, data, data_bytes, counts, 8, tile_bytes, 0, out, &bytes);
    const int of_tile = sw_streams_decode_tile(fill_sink, NULL, data, data_bytes, counts, 8, out, tile_bytes);
    ck_assert_int_eq(of_segment, of_tile);
    return of_tile;
}

/* A stream is shorter than what it decodes to, which would otherwise be stored as it is; no segment behind the end has
 * one; and all of their words are there. */
START_TEST(streams_are_shorter_than_their_segments) {
    enum { WORDS = 64, LAST = 5, SEGMENTS = 3 };
    const size_t tile_bytes = (SEGMENTS - 1) * 256 + 4 * LAST - 3;
    static uint8_t data[SW_TILE_SEGMENTS << 8];
    uint8_t counts[SW_TILE_SEGMENTS] = {0};
    for (unsigned segment = 0; segment < SEGMENTS + 1; segment++)
        for (unsigned count = 0; count <= UINT8_MAX; count++) {
            const unsigned words = segment < SEGMENTS - 1 ? WORDS : segment < SEGMENTS ? LAST : 0;
            counts[segment] = (uint8_t)count;
            const int rc = decode_streams(counts, data, sizeof data, tile_bytes);
            ck_assert_msg(rc == (count == 0 || count < words ? 0 : -SW_EFRAME), "segment %u has %u words", segment,
                          count);
            counts[segment] = 0;
        }
    size_t bytes = 0;
    static uint8_t out[2 << SW_STREAMS_MAX_SEGMENT_LOG2];
    ck_assert_int_eq(sw_streams_decode_segment(fill_sink, NULL, data, sizeof data, counts,
                                               SW_STREAMS_MAX_SEGMENT_LOG2 + 1, tile_bytes, 0, out, &bytes),
                     -SW_EFRAME);
    memset(counts, 4, SEGMENTS);
    ck_assert_int_eq(decode_streams(counts, data, 4 * 4 * SEGMENTS, tile_bytes), 0);
    ck_assert_int_eq(decode_streams(counts, data, 4 * 4 * SEGMENTS - 1, tile_bytes), -SW_EFRAME);
}
END_TEST

static const enum sw_codec_id stream_codecs[] = {SW_CODEC_V5T, SW_CODEC_HUFFMAN};

/* A codec's tables have room for so many. */
START_TEST(no_codec_has_more_symbols_than_its_most) {
    static uint8_t head[SW_FRAME_HEADER_BYTES + (SW_FRAME_MAX_SYMBOLS + 1) * 64];
    const enum sw_codec_id codec = (enum sw_codec_id)_i;
    const struct sw_codec_format *format = sw_codec_format_of(codec);
    struct sw_frame_layout layout, found;
    struct sw_frame_header header;
    enum sw_value_type type = SW_VALUE_NONE;
    while (!sw_codec_takes(codec, type))
        type = (enum sw_value_type)(type + 1);
    for (uint32_t more = 0; more < 2; more++) {
        sw_frame_layout_init(&layout, codec, format->min_segment_log2, 4096, format->max_symbols + more);
        layout.value_type = type;
        layout.frame_bytes = layout.frame_bytes ? layout.frame_bytes : layout.data_offset;
        sw_frame_header_init(&header, &layout, head + SW_FRAME_HEADER_BYTES);
        memcpy(head, &header, sizeof header);
        ck_assert_int_eq(sw_frame_parse(&found, head, layout.records_offset, layout.frame_bytes, NULL),
                         more ? -SW_EFRAME : 0);
    }
}
END_TEST

/* Parses a head with these fields, and with the right hash; table: its symbols, which do not matter. */
static int parse(const struct sw_frame_header *fields, uint64_t frame_bytes) {
    static uint8_t head[SW_FRAME_HEAD_MAX_BYTES];
    struct sw_frame_header header = *fields;
    struct sw_frame_layout found;
    const uint32_t hash = sw_hash_update(0, &header, offsetof(struct sw_frame_header, header_hash));
    header.header_hash = sw_hash_finish(
        sw_hash_update(hash, head + sizeof header, sw_frame_records_offset(header.n_symbols) - sizeof header));
    memcpy(head, &header, sizeof header);
    return sw_frame_parse(&found, head, sizeof head, frame_bytes, NULL);
}

static struct sw_frame_header header_of(enum sw_codec_id codec, uint64_t raw_bytes, uint32_t dictionary_bytes) {
    struct sw_frame_header ret;
    struct sw_frame_layout layout;
    const struct sw_codec_format *format = sw_codec_format_of(codec);
    static const uint8_t table[SW_FRAME_HEAD_MAX_BYTES];
    sw_frame_layout_init(&layout, codec, format->max_segment_log2, raw_bytes, format->max_symbols);
    sw_frame_layout_add_dictionary(&layout, dictionary_bytes);
    while (!sw_codec_takes(codec, layout.value_type))
        layout.value_type = (enum sw_value_type)(layout.value_type + 1);
    layout.frame_bytes = layout.frame_bytes ? layout.frame_bytes : layout.data_offset;
    sw_frame_header_init(&ret, &layout, table);
    return ret;
}

static void ck_parse(const struct sw_frame_header *fields, int rc, const char *what) {
    const int found = parse(fields, fields->frame_bytes);
    ck_assert_msg(found == rc, "codec %u, %s: %s", fields->codec, what, sw_err_name(found));
}

/* Each field at its bounds, and one behind them. */
START_TEST(no_header_leaves_its_bounds) {
    const enum sw_codec_id codec = (enum sw_codec_id)_i;
    const struct sw_codec_format *format = sw_codec_format_of(codec);
    const uint32_t most = format->max_dictionary_bytes;
    const struct sw_frame_header good = header_of(codec, 4096, most);
    struct sw_frame_header h = good;
    ck_parse(&h, 0, "as it is");
    for (unsigned log2 = 0; log2 <= 12; log2++) {
        h.segment_log2 = (uint8_t)log2;
        ck_parse(&h, log2 < format->min_segment_log2 || log2 > format->max_segment_log2 ? -SW_EFRAME : 0, "segments");
    }
    for (uint32_t n = 0; n < 3; n++) {
        h = good;
        h.n_tiles = n;
        ck_parse(&h, n == 1 ? 0 : -SW_EFRAME, "tiles");
    }
    for (unsigned type = 0; type <= SW_VALUE_NR; type++) {
        h = good;
        h.value_type = (uint8_t)type;
        ck_parse(&h, sw_codec_takes(codec, (enum sw_value_type)type) ? 0 : -SW_EFRAME, "type");
    }
    for (size_t i = 0; i <= sizeof h.more_reserved; i++) {
        h = good;
        *(i ? &h.more_reserved[i - 1] : &h.reserved) = 1;
        ck_parse(&h, -SW_EFRAME, "reserved bytes");
    }
    h = header_of(codec, 4096, most + SW_FRAME_ALIGN);
    ck_parse(&h, -SW_EFRAME, "dictionary");
    h = header_of(codec, SW_FRAME_MAX_RAW_BYTES, 0);
    ck_parse(&h, 0, "longest content");
    h = header_of(codec, SW_FRAME_MAX_RAW_BYTES + 1, 0);
    ck_parse(&h, -SW_EFRAME, "longer content");
    for (int more = -SW_FRAME_ALIGN; more <= SW_FRAME_ALIGN; more += SW_FRAME_ALIGN / 2) {
        h = good;
        h.frame_bytes += (uint64_t)(int64_t)more;
        ck_parse(&h, more == 0 || (more == SW_FRAME_ALIGN && format->count_bytes) ? 0 : -SW_EFRAME, "length");
    }
    ck_assert_int_eq(parse(&good, good.frame_bytes + SW_FRAME_ALIGN), -SW_EFRAME);
    ck_assert_int_eq(parse(&good, good.frame_bytes - SW_FRAME_ALIGN), -SW_EFRAME);
}
END_TEST

static void encode_stream_codec(enum sw_codec_id codec) {
    uint16_t values[512];
    for (unsigned i = 0; i < 512; i++)
        values[i] = (uint16_t)(0x3F80 + i * i % 5);
    if (codec == SW_CODEC_HUFFMAN) {
        encode_numbers(SW_CODEC_HUFFMAN, SW_VALUE_BF16, values, 512);
        return;
    }
    struct sw_plan plan = {.codec = SW_CODEC_V5T, .segment_log2 = 10};
    sw_v5t_table_train(&plan.params, (const uint8_t *)values, sizeof values, SW_SAMPLE_SHORT_PIECE_BYTES);
    encode(plan, values, sizeof values);
}

/* Without tables every segment is stored as it is. One that claims codes would never end. */
START_TEST(no_segment_has_codes_without_a_table) {
    static const uint8_t content[1024];
    static uint8_t frame[2048];
    struct sw_frame_layout layout;
    struct sw_frame_header header;
    uint64_t raw_bytes;
    uint8_t out[sizeof content];
    sw_frame_layout_init(&layout, SW_CODEC_HUFFMAN, 10, sizeof content, 0);
    layout.frame_bytes = layout.data_offset + sizeof content;
    ck_assert_uint_le(layout.frame_bytes, sizeof frame);
    sw_frame_header_init(&header, &layout, NULL);
    memcpy(frame, &header, sizeof header);
    const struct sw_tile_record record = {0, sw_hash_tile(content, sizeof content, 10, 0)};
    memcpy(frame + layout.records_offset, &record, sizeof record);
    for (uint8_t words = 0; words < 3; words++) {
        frame[layout.counts_offset] = words;
        ck_assert_int_eq(sw_codec_decode(frame, layout.frame_bytes, out, sizeof out, &raw_bytes, NULL),
                         words ? -SW_EFRAME : 0);
    }
}
END_TEST

static const enum sw_codec_id symbol_codecs[] = {SW_CODEC_V5T, SW_CODEC_PHRASE, SW_CODEC_ONPAIR, SW_CODEC_HUFFMAN};

/* Text that each codec of bytes makes shorter. */
static void encode_text(enum sw_codec_id codec) {
    static uint8_t text[3000];
    static struct sw_frame_dictionary dictionary;
    struct sw_plan plan;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (uint8_t) "the quick brown fox jumps over the lazy dog, "[i % 45];
    dictionary.index_bytes = 0;
    ck_assert(sw_plan_init_by_codec(&plan, codec, SW_VALUE_NONE, text, sizeof text, &dictionary));
    encode(plan, text, sizeof text);
}

/* Gives the frame another header, with the hash of this and of the symbols. */
static void put_header(struct sw_frame_header *h) {
    const uint32_t hash = sw_hash_update(0, h, offsetof(struct sw_frame_header, header_hash));
    h->header_hash = sw_hash_finish(
        sw_hash_update(hash, victim.frame.data + sizeof *h, sw_frame_records_offset(h->n_symbols) - sizeof *h));
    memcpy(victim.frame.data, h, sizeof *h);
}

/* The last symbol is longer than what is left of the content: no byte is written behind it. */
START_TEST(no_symbol_passes_the_end) {
    encode_text(symbol_codecs[_i]);
    for (uint64_t fewer = 1; fewer < SW_PHRASE_MAX_BYTES; fewer++) {
        struct sw_frame_header h;
        struct sw_guard out = sw_guard_new(victim.raw.bytes - fewer, SW_GUARD_AT_END);
        uint64_t raw_bytes;
        memcpy(&h, victim.frame.data, sizeof h);
        h.raw_bytes = out.bytes;
        put_header(&h);
        ck_assert_int_lt(sw_codec_decode(victim.frame.data, victim.frame.bytes, out.data, out.bytes, &raw_bytes, NULL),
                         0);
        sw_guard_free(&out);
    }
}
END_TEST

static int decode_part(bool is_tile, struct sw_err *err) {
    size_t bytes = 0;
    return is_tile ? sw_codec_decode_tile(victim.frame.data, victim.frame.bytes, 0, victim.out.data, victim.out.bytes,
                                          &bytes, err)
                   : sw_codec_decode_segment(victim.frame.data, victim.frame.bytes, 0, victim.out.data,
                                             victim.out.bytes, &bytes, err);
}

/* Where a tile lies is in no hash: its decoder is never given a place behind the frame. _i counts codecs, raw first. */
START_TEST(no_tile_lies_behind_the_frame) {
    static const uint8_t text[3000];
    struct sw_tile_record record;
    uint8_t *place;
    struct sw_plan plan;
    struct sw_err err;
    sw_plan_init_raw(&plan);
    if (_i)
        encode_text(symbol_codecs[_i - 1]);
    else
        encode(plan, text, sizeof text);
    place = victim.frame.data + victim.layout.records_offset;
    memcpy(&record, place, sizeof record);
    const uint32_t end = (uint32_t)((victim.frame.bytes - victim.layout.data_offset) / SW_FRAME_ALIGN);
    const uint32_t behind[] = {end + 1, end + 2, end + 4096, 1u << 27, UINT32_MAX};
    ck_assert_int_eq(decode(), 0);
    for (size_t i = 0; i < sizeof behind / sizeof behind[0]; i++) {
        record.offset16 = behind[i];
        memcpy(place, &record, sizeof record);
        ck_assert_int_eq(decode(), -SW_EFRAME);
        ck_assert_int_eq(sw_codec_verify(victim.frame.data, victim.frame.bytes, NULL), -SW_EFRAME);
        for (int is_tile = 0; is_tile < 2; is_tile++) {
            ck_assert_int_eq(decode_part(is_tile, &err), -SW_EFRAME);
            ck_assert_str_eq(err.msg, "tile 0 lies outside its frame");
        }
    }
    record.offset16 = end; /* there is a place, and nothing in it */
    memcpy(place, &record, sizeof record);
    ck_assert_int_eq(decode(), -SW_EFRAME);
}
END_TEST

/* A frame of a codec with a dictionary that has none, and nothing behind its head. */
START_TEST(no_dictionary_is_read_behind_the_frame) {
    const struct sw_frame_header header = header_of(SW_CODEC_ONPAIR, 0, 0);
    struct sw_guard frame = sw_guard_new(header.frame_bytes, SW_GUARD_AT_END);
    uint64_t raw_bytes;
    memcpy(frame.data, &header, sizeof header);
    ck_assert_int_eq(sw_codec_decode(frame.data, frame.bytes, NULL, 0, &raw_bytes, NULL), -SW_EFRAME);
    sw_guard_free(&frame);
}
END_TEST

/* Symbols that are longer than those for which a decoder has room. */
START_TEST(no_symbol_is_longer_than_the_longest) {
    const uint8_t longest[] = {8, SW_PHRASE_MAX_BYTES};
    struct sw_frame_header h;
    encode_text(symbol_codecs[_i]);
    memcpy(&h, victim.frame.data, sizeof h);
    victim.frame.data[sizeof h + 8 * h.n_symbols] = (uint8_t)(longest[_i] + 1);
    put_header(&h);
    ck_assert_int_eq(decode(), -SW_EFRAME);
}
END_TEST

/* A reader may have only the beginning of a frame, as from a tier: what is behind it is not read. */
START_TEST(a_head_that_is_cut_is_refused) {
    struct sw_frame_layout layout;
    encode_stream_codec(stream_codecs[_i]);
    ck_assert_uint_gt(victim.layout.records_offset, SW_FRAME_HEADER_BYTES);
    for (size_t bytes = 0; bytes <= victim.layout.records_offset; bytes++) {
        struct sw_guard head = sw_guard_new(bytes, SW_GUARD_AT_END);
        memcpy(head.data, victim.frame.data, bytes);
        ck_assert_int_eq(sw_frame_parse(&layout, head.data, bytes, victim.frame.bytes, NULL),
                         bytes < victim.layout.records_offset ? -SW_EFRAME : 0);
        sw_guard_free(&head);
    }
}
END_TEST

/* A segment whose stream ends too early is refused by what reads it: its hash is of what is decoded, and bits that are
 * not there could be taken for zeros. */
START_TEST(streams_have_all_words_that_are_read) {
    encode_stream_codec(stream_codecs[_i]);
    const uint8_t words = victim.counts[0];
    ck_assert_uint_gt(words, 2);
    for (uint16_t fewer = 1; fewer < words; fewer++)
        ck_refused(victim.counts, 1, &fewer, 1);
}
END_TEST

/* Whatever is missing at a block's end, its literals too. */
START_TEST(blocks_have_all_parts_that_are_read) {
    static uint8_t values[SW_VECTOR_VALUES * VECTORS];
    uint64_t state = 1;
    for (size_t i = 0; i < sizeof values; i++)
        values[i] = i % 32 < 16 && i >= 32 ? values[i - 32] : (uint8_t)sw_random(&state);
    struct sw_plan plan;
    sw_plan_init_lz(&plan, SW_VALUE_U8, 255);
    encode(plan, values, sizeof values);
    const uint8_t units = victim.counts[0];
    ck_assert_uint_gt(units, 2);
    for (uint16_t fewer = 1; fewer < units; fewer++)
        ck_refused(victim.counts, 1, &fewer, 1);
}
END_TEST

/* No block has more bytes than its content, although those of the blocks behind it are there; each begins with a token;
 * and one that claims to have all masks has no room for what they begin. */
START_TEST(blocks_are_as_long_as_their_content) {
    enum { MOST_UNITS = SW_LZ_BLOCK_BYTES / SW_UNIT_BYTES };
    static uint8_t values[4 * SW_LZ_BLOCK_BYTES], old[SW_LZ_BLOCK_BYTES];
    uint64_t state = 1;
    for (size_t i = 0; i < sizeof values; i++)
        values[i] = i % 32 < 16 && i >= 32 ? values[i - 32] : (uint8_t)sw_random(&state);
    struct sw_plan plan;
    sw_plan_init_lz(&plan, SW_VALUE_U8, 255);
    encode(plan, values, sizeof values);
    ck_assert_uint_gt(victim.frame.bytes - victim.layout.data_offset, (MOST_UNITS + 100) * SW_UNIT_BYTES);
    uint16_t units;
    memcpy(&units, victim.counts, sizeof units);
    ck_assert_uint_lt(units, MOST_UNITS);
    ck_refused(victim.counts, 2, (const uint16_t[]){MOST_UNITS + 1, MOST_UNITS + 100}, 2);
    const unsigned groups = sw_lz_groups(1);
    ck_assert(victim.data[0] & 1);
    uint8_t *first = victim.data + (size_t)4 * groups; /* its first mask */
    ck_assert(*first & 1);
    ck_refused(first, 1, (const uint16_t[]){(uint16_t)(*first & 0xFE)}, 1);
    memcpy(old, victim.data, (size_t)units * SW_UNIT_BYTES);
    memset(victim.data, 0xFF, (size_t)units * SW_UNIT_BYTES);
    ck_assert_int_eq(decode(), -SW_EFRAME);
    memcpy(victim.data, old, (size_t)units * SW_UNIT_BYTES);
    ck_assert_int_eq(decode(), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codec_malformed");
    TCase *tests = tcase_create("all");
    tcase_add_checked_fixture(tests, NULL, teardown);
    tcase_add_loop_test(tests, reals_have_exceptions_within_their_vector, 0, 2);
    tcase_add_test(tests, dictionaries_have_exceptions_within_their_vector);
    tcase_add_loop_test(tests, exceptions_lie_within_their_vector, 0, N_WITH_EXCEPTIONS);
    tcase_add_loop_test(tests, no_number_has_more_than_its_digits, 0, 2);
    tcase_add_loop_test(tests, runs_are_not_longer_than_their_vector, 0, 2);
    tcase_add_test(tests, runs_take_no_more_than_packed);
    tcase_add_loop_test(tests, no_width_is_more_than_the_types, 0, 16);
    suite_add_tcase(suite, tests);
    tests = tcase_create("streams");
    tcase_add_test(tests, streams_are_shorter_than_their_segments);
    tcase_add_test(tests, blocks_have_all_parts_that_are_read);
    tcase_add_test(tests, blocks_are_as_long_as_their_content);
    tcase_add_loop_test(tests, streams_have_all_words_that_are_read, 0, 2);
    tcase_add_test(tests, no_segment_has_codes_without_a_table);
    tcase_add_loop_test(tests, no_symbol_passes_the_end, 0, 4);
    tcase_add_loop_test(tests, no_symbol_is_longer_than_the_longest, 0, 2);
    tcase_add_loop_test(tests, no_tile_lies_behind_the_frame, 0, 5);
    tcase_add_test(tests, no_dictionary_is_read_behind_the_frame);
    tcase_add_loop_test(tests, a_head_that_is_cut_is_refused, 0, 2);
    suite_add_tcase(suite, tests);
    tests = tcase_create("headers");
    tcase_add_loop_test(tests, no_codec_has_more_symbols_than_its_most, 0, SW_CODEC_NR);
    tcase_add_loop_test(tests, no_header_leaves_its_bounds, 0, SW_CODEC_NR);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

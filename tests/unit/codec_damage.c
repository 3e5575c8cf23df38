/* Frames that were cut, changed or made up give an error or the right bytes. No access leaves the buffers, which touch
 * inaccessible pages. Changed headers get a new hash, so that the checks behind the hash are reached. */
#include "base/alloc.h"
#include "codec/bitpack/bitpack_core.h"
#include "codec/checksum.h"
#include "codec/codec.h"
#include "codec/onpair/onpair.h"
#include "codec/phrase/phrase.h"
#include "codec/plan/plan.h"
#include "tests/lib/content.h"
#include "tests/lib/guard.h"
#include "tests/lib/numbers.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A good frame, its content, and buffers to spoil and decode copies of it. */
struct victim {
    uint8_t *data, *good;
    size_t bytes, frame_bytes;
    struct sw_guard frame, out;
};

/* Numbers that the codec makes smaller. */
static enum sw_numbers numbers_of(enum sw_codec_id codec) {
    switch (codec) {
    case SW_CODEC_DICT:
        return SW_NUMBERS_FEW;
    case SW_CODEC_RADIX:
        return SW_NUMBERS_ODD;
    case SW_CODEC_DRADIX:
        return SW_NUMBERS_ORDERS;
    case SW_CODEC_SFOR:
        return SW_NUMBERS_STEPS;
    case SW_CODEC_PFOR: /* it takes integers and floats, but few floats make it shorter */
        return SW_NUMBERS_OUTLIER;
    case SW_CODEC_PDFOR:
        return SW_NUMBERS_SENTINEL;
    case SW_CODEC_HUFFMAN:
        return SW_NUMBERS_WEIGHTS;
    default:
        return SW_NUMBERS_MIXED;
    }
}

/* Content of one kind, or numbers for a plan of that kind. */
static void victim_new(struct victim *v, struct sw_plan *plan, size_t bytes, enum sw_content kind) {
    uint64_t bound = sw_frame_bound_bytes(bytes), frame_bytes;
    v->data = malloc(bytes + 1);
    v->good = malloc(bound);
    ck_assert(v->data && v->good);
    if (plan->value_type) {
        const enum sw_numbers numbers = numbers_of(plan->codec);
        sw_numbers_fill(v->data, 0, bytes, plan->value_type, numbers,
                        numbers == SW_NUMBERS_FEW || numbers == SW_NUMBERS_ODD ? 4 : 7, 21);
        sw_plan_learn(plan, v->data, (size_t)5 * sw_value_bits(plan->value_type)); /* 40 values: it leaves exceptions */
    } else
        sw_content_fill(v->data, bytes, kind, 21);
    ck_assert_int_eq(sw_codec_encode(plan, v->data, bytes, v->good, bound, &frame_bytes, NULL), 0);
    struct sw_frame_header h;
    memcpy(&h, v->good, sizeof h);
    ck_assert_msg(h.codec == plan->codec, "codec %s does not make content of type %d smaller; numbers_of() chooses it",
                  sw_codec_name(plan->codec), (int)plan->value_type);
    v->bytes = bytes;
    v->frame_bytes = frame_bytes;
    v->frame = sw_guard_new(frame_bytes, SW_GUARD_AT_END);
    v->out = sw_guard_new(bytes, SW_GUARD_AT_END);
    memcpy(v->frame.data, v->good, frame_bytes);
}

static void victim_free(struct victim *v) {
    sw_guard_free(&v->frame);
    sw_guard_free(&v->out);
    free(v->good);
    free(v->data);
}

/* Kinds of bytes; the kinds from NUMBERS on are those of numbers_kinds[]. */
enum {
    V5T_256,
    V5T_1024,
    V5T_FEW_SYMBOLS,
    V5T_FOREIGN,
    PHRASE,
    PHRASE_FOREIGN,
    HUFFMAN,
    ONPAIR,
    ONPAIR_FOREIGN,
    RAW,
    NUMBERS
};

/* Values of every length. Floats are tried only with codecs that take nothing else. */
static const enum sw_value_type numbers_types[] = {SW_VALUE_U8,  SW_VALUE_I16, SW_VALUE_I32,  SW_VALUE_U64,
                                                   SW_VALUE_F32, SW_VALUE_F64, SW_VALUE_BF16, SW_VALUE_DEC128};
enum { N_NUMBERS_TYPES = sizeof numbers_types / sizeof numbers_types[0] };

static struct {
    enum sw_codec_id codec;
    enum sw_value_type type;
} numbers_kinds[SW_CODEC_NR * N_NUMBERS_TYPES];
static int n_kinds = NUMBERS;

/* Fills numbers_kinds[]: every codec of codecs.def that takes numbers, with each of the types. */
static void list_numbers(void) {
    for (unsigned i = 0; i < SW_CODEC_NR * N_NUMBERS_TYPES; i++) {
        const enum sw_codec_id codec = (enum sw_codec_id)(i / N_NUMBERS_TYPES);
        const enum sw_value_type type = numbers_types[i % N_NUMBERS_TYPES];
        if (!sw_codec_takes(codec, type) || (type >= SW_VALUE_F32 && sw_codec_takes(codec, SW_VALUE_U8)))
            continue;
        numbers_kinds[n_kinds - NUMBERS].codec = codec;
        numbers_kinds[n_kinds - NUMBERS].type = type;
        n_kinds++;
    }
}

/* Frames of two tiles, the second one not full. */
static void victim_of_kind(struct victim *v, int kind) {
    struct sw_plan plan = {.codec = SW_CODEC_V5T, .segment_log2 = kind == V5T_1024 ? 10 : 8};
    static struct sw_frame_dictionary dictionary;
    uint8_t sample[20000];
    const bool is_foreign = kind == V5T_FOREIGN || kind == PHRASE_FOREIGN || kind == ONPAIR_FOREIGN;
    sw_content_fill(sample, sizeof sample, SW_CONTENT_TEXT, 21);
    if (kind >= NUMBERS)
        plan = (struct sw_plan){.codec = numbers_kinds[kind - NUMBERS].codec,
                                .segment_log2 = SW_RAW_SEGMENT_LOG2,
                                .value_type = numbers_kinds[kind - NUMBERS].type};
    else if (kind == RAW)
        sw_plan_init_raw(&plan);
    else if (is_foreign) /* mixed: stored and coded segments side by side */
        sw_content_fill(sample, sizeof sample, SW_CONTENT_MIXED, 21);
    if (plan.codec == SW_CODEC_V5T)
        sw_v5t_table_train(&plan.params, sample, kind == V5T_FEW_SYMBOLS ? 300 : sizeof sample,
                           SW_SAMPLE_SHORT_PIECE_BYTES);
    if (kind == PHRASE || kind == PHRASE_FOREIGN) {
        const struct sw_params symbols = plan.params;
        plan.codec = SW_CODEC_PHRASE;
        sw_phrase_learn(&plan.params, &symbols, sample, sizeof sample, SW_SAMPLE_LONG_PIECE_BYTES, 1 << 20);
    }
    if (kind == HUFFMAN)
        (void)sw_plan_init_by_codec(&plan, SW_CODEC_HUFFMAN, SW_VALUE_NONE, sample, sizeof sample, NULL);
    if (kind == ONPAIR || kind == ONPAIR_FOREIGN) {
        plan = (struct sw_plan){.codec = SW_CODEC_ONPAIR, .segment_log2 = 10, .dictionary = &dictionary};
        ck_assert_int_eq(sw_onpair_learn(&dictionary, sample, sizeof sample, SW_ONPAIR_PIECE_BYTES, 50), 0);
    }
    size_t tile = (size_t)SW_TILE_SEGMENTS << plan.segment_log2;
    /* Mixed content takes more until it shrinks. Most tests decode each frame thousands of times, so others are short.
     */
    victim_new(v, &plan, tile + tile / (is_foreign ? 2 : 8) + 333, is_foreign ? SW_CONTENT_MIXED : SW_CONTENT_TEXT);
}

static void rehash(uint8_t *frame, size_t frame_bytes) {
    struct sw_frame_header h;
    memcpy(&h, frame, sizeof h);
    size_t table_bytes = (9 * (size_t)h.n_symbols + 15) / 16 * 16;
    if (h.n_symbols > SW_FRAME_MAX_SYMBOLS || sizeof h + table_bytes > frame_bytes)
        return;
    h.header_hash = sw_hash_finish(sw_hash_update(
        sw_hash_update(0, frame, offsetof(struct sw_frame_header, header_hash)), frame + sizeof h, table_bytes));
    memcpy(frame, &h, sizeof h);
}

static void check_error(int r, const struct sw_err *err) {
    ck_assert_msg(r == -SW_EFRAME || r == -SW_ECHECKSUM || r == -SW_EVERSION || r == -SW_ETOOSMALL || r == -SW_ERANGE,
                  "code %d", r);
    ck_assert_int_eq(err->code, r);
    ck_assert(err->msg[0] != '\0');
}

/* Decodes the damaged frame in every way. A decode that succeeds must have made the right bytes. */
static void decode_all_ways(struct victim *v) {
    struct sw_err err = {0};
    uint64_t raw_bytes;
    size_t bytes;
    int r = sw_codec_decode(v->frame.data, v->frame_bytes, v->out.data, v->bytes, &raw_bytes, &err);
    if (r == 0)
        ck_assert(raw_bytes == v->bytes && memcmp(v->out.data, v->data, v->bytes) == 0);
    else
        check_error(r, &err);
    for (uint32_t tile = 0; tile < 3; tile++) {
        r = sw_codec_decode_tile(v->frame.data, v->frame_bytes, tile, v->out.data, v->bytes, &bytes, &err);
        if (r < 0)
            check_error(r, &err);
    }
    for (uint64_t segment = 0; segment < 70; segment += 7) { /* shape is checked, content is not */
        r = sw_codec_decode_segment(v->frame.data, v->frame_bytes, segment, v->out.data, v->bytes, &bytes, &err);
        if (r < 0)
            check_error(r, &err);
    }
}

START_TEST(test_header_bytes) {
    struct victim v;
    victim_of_kind(&v, _i);
    for (size_t at = 0; at < SW_FRAME_HEADER_BYTES; at++)
        for (unsigned flip = 1; flip < 256; flip += 1 + flip / 2) {
            struct sw_err err = {0};
            uint64_t raw_bytes;
            v.frame.data[at] ^= (uint8_t)flip;
            int r = sw_codec_decode(v.frame.data, v.frame_bytes, v.out.data, v.bytes, &raw_bytes, &err);
            ck_assert_msg(r < 0, "byte %zu", at);
            check_error(r, &err);
            rehash(v.frame.data, v.frame_bytes);
            decode_all_ways(&v);
            memcpy(v.frame.data, v.good, SW_FRAME_HEADER_BYTES);
        }
    victim_free(&v);
}
END_TEST

START_TEST(test_random_bytes) {
    struct victim v;
    uint64_t state = (uint64_t)_i + 100;
    victim_of_kind(&v, _i);
    for (unsigned trial = 0; trial < 2000 / SW_TEST_EVERY; trial++) {
        unsigned changes = 1 + (unsigned)(sw_random(&state) % 4);
        /* Metadata are a small part of the frame and deserve half of the hits. */
        size_t span = trial % 2 ? v.frame_bytes : v.frame_bytes / 4;
        for (unsigned i = 0; i < changes; i++)
            v.frame.data[sw_random(&state) % span] = (uint8_t)sw_random(&state);
        rehash(v.frame.data, v.frame_bytes);
        decode_all_ways(&v);
        memcpy(v.frame.data, v.good, v.frame_bytes);
    }
    victim_free(&v);
}
END_TEST

/* The changes below that may leave the content unchanged. */
static unsigned most_silent(enum sw_codec_id codec) {
    switch (codec) {
    case SW_CODEC_ALP:
    case SW_CODEC_ALPRD:
    case SW_CODEC_PDFOR: /* the packed value in the place of an exception is ignored */
    case SW_CODEC_SFOR:  /* up to 15 padding bytes in each vector */
        return 400;
    case SW_CODEC_LZ: /* another distance may lead to the same symbols */
        return 800;
    case SW_CODEC_PFOR: /* the same as in alp; of floats nearly all values are exceptions */
    case SW_CODEC_DICT: /* the same, and one value in 16 is an exception here; of 8 bits it has a byte to spare, too */
        return 2000;
    default: /* up to three padding bytes in each of up to 64 segments, a third of them tried */
        return 90;
    }
}

/* A change of content, not of padding, must be seen by the hash at the latest. */
START_TEST(test_every_data_bit) {
    struct victim v;
    struct sw_frame_layout layout;
    uint64_t raw_bytes;
    victim_of_kind(&v, _i);
    ck_assert_int_eq(sw_frame_parse(&layout, v.good, v.frame_bytes, v.frame_bytes, NULL), 0);
    unsigned silent = 0;
    for (size_t at = layout.data_offset; at < v.frame_bytes; at += 3 * SW_TEST_EVERY) {
        v.frame.data[at] ^= (uint8_t)(1u << at % 8);
        int r = sw_codec_decode(v.frame.data, v.frame_bytes, v.out.data, v.bytes, &raw_bytes, NULL);
        silent += r == 0;
        ck_assert(r < 0 || memcmp(v.out.data, v.data, v.bytes) == 0);
        v.frame.data[at] = v.good[at];
    }
    ck_assert_msg(silent <= most_silent(layout.codec), "codec %s: %u", sw_codec_name(layout.codec), silent);
    victim_free(&v);
}
END_TEST

START_TEST(test_cut) {
    struct victim v;
    uint64_t raw_bytes;
    victim_of_kind(&v, _i);
    for (size_t bytes = 0; bytes < v.frame_bytes; bytes += bytes < 3000 ? SW_TEST_EVERY : 61) {
        struct sw_guard cut = sw_guard_new(bytes, SW_GUARD_AT_END);
        struct sw_err err = {0};
        struct sw_frame_header h;
        memcpy(cut.data, v.good, bytes);
        ck_assert_int_eq(sw_codec_decode(cut.data, bytes, v.out.data, v.bytes, &raw_bytes, &err), -SW_EFRAME);
        if (bytes >= sizeof h && bytes % SW_FRAME_ALIGN == 0) { /* the header claims that this is all */
            memcpy(&h, cut.data, sizeof h);
            h.frame_bytes = bytes;
            memcpy(cut.data, &h, sizeof h);
            rehash(cut.data, bytes);
            int r = sw_codec_decode(cut.data, bytes, v.out.data, v.bytes, &raw_bytes, &err);
            ck_assert_int_lt(r, 0);
            check_error(r, &err);
        }
        sw_guard_free(&cut);
    }
    victim_free(&v);
}
END_TEST

/* Nothing but noise behind a valid header. */
START_TEST(test_noise) {
    struct victim v;
    struct sw_frame_layout layout;
    uint64_t state = 5, raw_bytes;
    victim_of_kind(&v, _i);
    ck_assert_int_eq(sw_frame_parse(&layout, v.good, v.frame_bytes, v.frame_bytes, NULL), 0);
    for (unsigned trial = 0; trial < 500 / SW_TEST_EVERY; trial++) {
        /* Every other time the records stay valid, so that the counts and the data are checked. */
        size_t from = trial % 2 ? layout.counts_offset : layout.records_offset;
        for (size_t i = from; i < v.frame_bytes; i++)
            v.frame.data[i] = (uint8_t)(sw_random(&state) >> 32);
        ck_assert_int_lt(sw_codec_decode(v.frame.data, v.frame_bytes, v.out.data, v.bytes, &raw_bytes, NULL), 0);
        decode_all_ways(&v);
    }
    victim_free(&v);
}
END_TEST

START_TEST(test_named_errors) {
    struct victim v;
    struct sw_err err = {0};
    uint64_t raw_bytes;
    victim_of_kind(&v, V5T_256);
    struct sw_frame_header h, good;
    memcpy(&good, v.good, sizeof good);

    h = good, h.magic++;
    memcpy(v.frame.data, &h, sizeof h);
    ck_assert_int_eq(sw_codec_decode(v.frame.data, v.frame_bytes, v.out.data, v.bytes, &raw_bytes, &err), -SW_EFRAME);
    h = good, h.version = 2;
    memcpy(v.frame.data, &h, sizeof h);
    rehash(v.frame.data, v.frame_bytes);
    ck_assert_int_eq(sw_codec_decode(v.frame.data, v.frame_bytes, v.out.data, v.bytes, &raw_bytes, &err), -SW_EVERSION);
    h = good, h.header_hash++;
    memcpy(v.frame.data, &h, sizeof h);
    ck_assert_int_eq(sw_codec_decode(v.frame.data, v.frame_bytes, v.out.data, v.bytes, &raw_bytes, &err),
                     -SW_ECHECKSUM);
    for (unsigned i = 0; i < 3; i++) {
        h = good;
        h.reserved = i == 0;
        h.more_reserved[23] = i == 1;
        h.dictionary16 = i == 2; /* v5t has no dictionary */
        memcpy(v.frame.data, &h, sizeof h);
        rehash(v.frame.data, v.frame_bytes);
        ck_assert_int_eq(sw_codec_decode(v.frame.data, v.frame_bytes, v.out.data, v.bytes, &raw_bytes, &err),
                         -SW_EFRAME);
    }
    h = good, h.codec = SW_CODEC_NR;
    memcpy(v.frame.data, &h, sizeof h);
    rehash(v.frame.data, v.frame_bytes);
    ck_assert_int_eq(sw_codec_decode(v.frame.data, v.frame_bytes, v.out.data, v.bytes, &raw_bytes, &err), -SW_EFRAME);

    memcpy(v.frame.data, v.good, v.frame_bytes);
    v.frame.data[SW_FRAME_HEADER_BYTES + 8 * good.n_symbols] = 9; /* a symbol of nine bytes */
    rehash(v.frame.data, v.frame_bytes);
    ck_assert_int_eq(sw_codec_decode(v.frame.data, v.frame_bytes, v.out.data, v.bytes, &raw_bytes, &err), -SW_EFRAME);
    victim_free(&v);
}
END_TEST

/* A frame is whole units long, whatever its header says and however many bytes are there. If a codec's frames have a
 * length that follows from their content's, they have this length. */
START_TEST(test_frames_are_whole_units) {
    for (unsigned plain = 0; plain < 2; plain++) {
        struct victim v;
        struct sw_frame_layout layout;
        struct sw_frame_header h;
        struct sw_plan raw = {.codec = SW_CODEC_RAW, .segment_log2 = 10};
        if (plain)
            victim_new(&v, &raw, 5000, SW_CONTENT_TEXT);
        else
            victim_of_kind(&v, V5T_256);
        memcpy(&h, v.good, sizeof h);
        for (uint64_t more = 0; more <= 2 * SW_FRAME_ALIGN; more++) {
            h.frame_bytes = v.frame_bytes + more;
            memcpy(v.frame.data, &h, sizeof h);
            rehash(v.frame.data, v.frame_bytes);
            const bool fits = more == 0 || (!plain && more % SW_FRAME_ALIGN == 0);
            ck_assert_int_eq(sw_frame_parse(&layout, v.frame.data, v.frame_bytes, h.frame_bytes, NULL),
                             fits ? 0 : -SW_EFRAME);
            ck_assert_int_eq(sw_frame_parse(&layout, v.frame.data, v.frame_bytes, h.frame_bytes + 1, NULL), -SW_EFRAME);
        }
        victim_free(&v);
    }
}
END_TEST

/* Tiles may lie in any order. */
START_TEST(test_tile_order) {
    struct victim v;
    struct sw_frame_layout layout;
    struct sw_tile_record record[2];
    uint64_t raw_bytes;
    victim_of_kind(&v, V5T_256);
    ck_assert_int_eq(sw_frame_parse(&layout, v.good, v.frame_bytes, v.frame_bytes, NULL), 0);
    ck_assert_uint_eq(layout.n_tiles, 2);
    memcpy(record, v.good + layout.records_offset, sizeof record);
    size_t first = (size_t)record[1].offset16 * 16, second = v.frame_bytes - layout.data_offset - first;
    record[0].offset16 = (uint32_t)(second / 16);
    record[1].offset16 = 0;
    memcpy(v.frame.data + layout.records_offset, record, sizeof record);
    memcpy(v.frame.data + layout.data_offset, v.good + layout.data_offset + first, second);
    memcpy(v.frame.data + layout.data_offset + second, v.good + layout.data_offset, first);
    ck_assert_int_eq(sw_codec_decode(v.frame.data, v.frame_bytes, v.out.data, v.bytes, &raw_bytes, NULL), 0);
    ck_assert_mem_eq(v.out.data, v.data, v.bytes);
    /* Content in another tile's place is refused, though every byte of it is good. */
    record[0].offset16 = 0;
    memcpy(v.frame.data + layout.records_offset, record, sizeof record);
    ck_assert_int_lt(sw_codec_decode(v.frame.data, v.frame_bytes, v.out.data, v.bytes, &raw_bytes, NULL), 0);
    victim_free(&v);
}
END_TEST

static void set_offset(struct victim *v, const struct sw_frame_layout *layout, uint32_t tile, uint64_t offset16) {
    struct sw_tile_record record;
    uint8_t *at = v->frame.data + layout->records_offset + tile * sizeof record;
    memcpy(v->frame.data, v->good, v->frame_bytes);
    memcpy(&record, at, sizeof record);
    record.offset16 = (uint32_t)offset16;
    memcpy(at, &record, sizeof record);
}

/* Moves each tile one unit on, to the frame's last unit, to its end, one unit past it, and as far as possible. No hash
 * of the frame's head covers the places of tiles. Only decoders that read this tile fail. */
START_TEST(test_tiles_moved_to_other_places_are_found) {
    struct victim v;
    struct sw_frame_layout layout;
    victim_of_kind(&v, _i);
    ck_assert_int_eq(sw_frame_parse(&layout, v.good, v.frame_bytes, v.frame_bytes, NULL), 0);
    const uint64_t end16 = (v.frame_bytes - layout.data_offset) / SW_FRAME_ALIGN;
    for (uint32_t tile = 0; tile < layout.n_tiles; tile++) {
        struct sw_tile_record record;
        memcpy(&record, v.good + layout.records_offset + tile * sizeof record, sizeof record);
        const uint64_t places[] = {record.offset16 + 1, end16 - 1, end16, end16 + 1, UINT32_MAX};
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            struct sw_err err = {0};
            uint64_t raw_bytes;
            size_t bytes;
            if (places[i] == record.offset16)
                continue;
            set_offset(&v, &layout, tile, places[i]);
            decode_all_ways(&v);
            check_error(sw_codec_decode(v.frame.data, v.frame_bytes, v.out.data, v.bytes, &raw_bytes, &err), &err);
            check_error(sw_codec_verify(v.frame.data, v.frame_bytes, &err), &err);
            const int rc = sw_codec_decode_tile(v.frame.data, v.frame_bytes, tile, v.out.data, v.bytes, &bytes, &err);
            check_error(rc, &err);
            ck_assert(places[i] < end16 || rc == -SW_EFRAME);
        }
    }
    victim_free(&v);
}
END_TEST

/* The parts that the header's hash does not cover: records of tiles, and the counts of all vectors, including those
 * that a short last tile does not use. */
START_TEST(test_records_and_counts) {
    struct victim v;
    struct sw_frame_layout layout;
    victim_of_kind(&v, _i);
    ck_assert_int_eq(sw_frame_parse(&layout, v.good, v.frame_bytes, v.frame_bytes, NULL), 0);
    for (uint64_t at = layout.records_offset; at < layout.data_offset; at++) {
        memcpy(v.frame.data, v.good, v.frame_bytes);
        v.frame.data[at] = (uint8_t)(v.frame.data[at] ^ (at % 3 == 0 ? 0xFFu : 1u << at % 8));
        decode_all_ways(&v);
    }
    victim_free(&v);
}
END_TEST

static void make_plan(struct sw_plan *ret, const uint8_t *sample, size_t bytes) {
    sw_plan_init(ret, sample, bytes, 1 << 20);
    if (sw_plan_may_refine(ret, false))
        sw_plan_refine(ret, sample, bytes, NULL, NULL);
}

START_TEST(test_no_memory) {
    uint8_t data[5000], frame[8192];
    uint64_t frame_bytes = 1;
    struct sw_err err = {0};
    struct sw_plan plan;
    long live = sw_alloc_live();
    ck_assert_uint_le(sw_frame_bound_bytes(sizeof data), sizeof frame);
    sw_content_fill(data, sizeof data, SW_CONTENT_TEXT, 1);
    for (unsigned long nth = 1; nth <= 3; nth++) { /* trainer, encoder, scratch: the plan falls back to raw */
        sw_alloc_fail_nth(nth);
        make_plan(&plan, data, sizeof data);
        sw_alloc_fail_nth(0);
        ck_assert_int_eq(plan.codec, SW_CODEC_RAW);
        ck_assert_int_eq(sw_alloc_live(), live);
    }
    for (unsigned long nth = 4; nth <= 7; nth++) { /* learner, sample, encoder, scratch: it falls back to v5t */
        sw_alloc_fail_nth(nth);
        make_plan(&plan, data, sizeof data);
        sw_alloc_fail_nth(0);
        ck_assert_int_eq(plan.codec, SW_CODEC_V5T);
        ck_assert_int_eq(sw_alloc_live(), live);
    }
    make_plan(&plan, data, sizeof data);
    ck_assert_int_eq(plan.codec, SW_CODEC_PHRASE);
    sw_alloc_fail_nth(1);
    ck_assert_int_eq(sw_codec_encode(&plan, data, sizeof data, frame, sizeof frame, &frame_bytes, &err), -SW_ENOMEM);
    ck_assert_int_eq(err.code, -SW_ENOMEM);
    ck_assert_uint_eq(frame_bytes, 1);
    ck_assert_int_eq(sw_codec_encode(&plan, data, sizeof data, frame, sizeof frame, &frame_bytes, &err), 0);
    sw_alloc_fail_nth(1);
    ck_assert_int_eq(sw_codec_verify(frame, frame_bytes, &err), -SW_ENOMEM);
    ck_assert_int_eq(sw_codec_verify(frame, frame_bytes, &err), 0);
    ck_assert_int_eq(sw_alloc_live(), live);
}
END_TEST

int main(void) {
    list_numbers();
    Suite *suite = suite_create("codec_damage");
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, test_header_bytes, 0, n_kinds);
    tcase_add_loop_test(tests, test_random_bytes, 0, n_kinds);
    tcase_add_loop_test(tests, test_every_data_bit, 0, n_kinds);
    tcase_add_loop_test(tests, test_cut, 0, n_kinds);
    tcase_add_loop_test(tests, test_noise, 0, n_kinds);
    tcase_add_test(tests, test_named_errors);
    tcase_add_test(tests, test_frames_are_whole_units);
    tcase_add_test(tests, test_tile_order);
    tcase_add_loop_test(tests, test_tiles_moved_to_other_places_are_found, 0, n_kinds);
    tcase_add_loop_test(tests, test_records_and_counts, 0, n_kinds);
    tcase_add_test(tests, test_no_memory);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

/* Frames that earlier versions wrote decode for ever. The files in tests/golden/ are never rewritten; a new format
 * version or codec adds files. `unit_codec_golden --write DIR` makes the files that DIR lacks. */
#include "codec/codec.h"
#include "codec/onpair/onpair.h"
#include "codec/phrase/phrase.h"
#include "codec/plan/plan.h"
#include "tests/lib/content.h"
#include "tests/lib/numbers.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"

#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct golden {
    const char *file;
    enum sw_codec_id codec;
    unsigned segment_log2;
    enum sw_content content;
    size_t bytes;
    enum sw_value_type type; /* of numbers, in place of content */
    enum sw_numbers numbers;
} goldens[] = {
    {"v1-raw.spwf", SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, SW_CONTENT_RANDOM, 1001, SW_VALUE_NONE, 0},
    {"v1-raw-empty.spwf", SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, SW_CONTENT_ZEROS, 0, SW_VALUE_NONE, 0},
    {"v1-v5t-256.spwf", SW_CODEC_V5T, 8, SW_CONTENT_TEXT, 10007, SW_VALUE_NONE, 0},
    {"v1-v5t-512.spwf", SW_CODEC_V5T, 9, SW_CONTENT_TEXT, 16384, SW_VALUE_NONE, 0},
    {"v1-v5t-1024.spwf", SW_CODEC_V5T, 10, SW_CONTENT_MIXED, 35003, SW_VALUE_NONE, 0},
    {"v1-phrase-256.spwf", SW_CODEC_PHRASE, 8, SW_CONTENT_MIXED, 10007, SW_VALUE_NONE, 0},
    {"v1-phrase-1024.spwf", SW_CODEC_PHRASE, 10, SW_CONTENT_TEXT, 70003, SW_VALUE_NONE, 0},
    {"v1-for-u8.spwf", SW_CODEC_FOR, 10, 0, 5001, SW_VALUE_U8, SW_NUMBERS_MIXED},
    {"v1-for-i16.spwf", SW_CODEC_FOR, 10, 0, 6002, SW_VALUE_I16, SW_NUMBERS_OUTLIER},
    {"v1-for-i32.spwf", SW_CODEC_FOR, 10, 0, 41003, SW_VALUE_I32, SW_NUMBERS_UNIFORM},
    {"v1-for-u64.spwf", SW_CODEC_FOR, 10, 0, 20000, SW_VALUE_U64, SW_NUMBERS_SORTED},
    {"v1-dfor-i8.spwf", SW_CODEC_DFOR, 10, 0, 5001, SW_VALUE_I8, SW_NUMBERS_NEARLY},
    {"v1-dfor-u32.spwf", SW_CODEC_DFOR, 10, 0, 41002, SW_VALUE_U32, SW_NUMBERS_SORTED},
    {"v1-dfor-i64.spwf", SW_CODEC_DFOR, 10, 0, 30000, SW_VALUE_I64, SW_NUMBERS_MIXED},
    {"v1-rfor-u16.spwf", SW_CODEC_RFOR, 10, 0, 7001, SW_VALUE_U16, SW_NUMBERS_RUNS},
    {"v1-rfor-i32.spwf", SW_CODEC_RFOR, 10, 0, 42003, SW_VALUE_I32, SW_NUMBERS_MIXED},
    {"v1-rfor-i64.spwf", SW_CODEC_RFOR, 10, 0, 30000, SW_VALUE_I64, SW_NUMBERS_RUNS},
    {"v1-alp-f32.spwf", SW_CODEC_ALP, 10, 0, 42003, SW_VALUE_F32, SW_NUMBERS_OFTEN},
    {"v1-alp-f64.spwf", SW_CODEC_ALP, 10, 0, 90000, SW_VALUE_F64, SW_NUMBERS_MIXED},
    {"v1-alprd-f32.spwf", SW_CODEC_ALPRD, 10, 0, 10003, SW_VALUE_F32, SW_NUMBERS_REALS},
    {"v1-alprd-f64.spwf", SW_CODEC_ALPRD, 10, 0, 20000, SW_VALUE_F64, SW_NUMBERS_REALS},
    {"v1-lz-u8.spwf", SW_CODEC_LZ, 10, 0, 9001, SW_VALUE_U8, SW_NUMBERS_MIXED},
    {"v1-lz-i16.spwf", SW_CODEC_LZ, 10, 0, 14003, SW_VALUE_I16, SW_NUMBERS_RUNS},
    {"v1-lz-u32.spwf", SW_CODEC_LZ, 10, 0, 42003, SW_VALUE_U32, SW_NUMBERS_MIXED},
    {"v1-lz-f64.spwf", SW_CODEC_LZ, 10, 0, 30001, SW_VALUE_F64, SW_NUMBERS_RUNS},
    {"v1-dict-u8.spwf", SW_CODEC_DICT, 10, 0, 5001, SW_VALUE_U8, SW_NUMBERS_FEW},
    {"v1-dict-i32.spwf", SW_CODEC_DICT, 10, 0, 42003, SW_VALUE_I32, SW_NUMBERS_FEW},
    {"v1-dict-f64.spwf", SW_CODEC_DICT, 10, 0, 90000, SW_VALUE_F64, SW_NUMBERS_FEW},
    {"v1-sfor-u8.spwf", SW_CODEC_SFOR, 10, 0, 5001, SW_VALUE_U8, SW_NUMBERS_STEPS},
    {"v1-sfor-i32.spwf", SW_CODEC_SFOR, 10, 0, 42003, SW_VALUE_I32, SW_NUMBERS_STEPS},
    {"v1-pfor-i32.spwf", SW_CODEC_PFOR, 10, 0, 42003, SW_VALUE_I32, SW_NUMBERS_RARE},
    {"v1-pfor-u64.spwf", SW_CODEC_PFOR, 10, 0, 30000, SW_VALUE_U64, SW_NUMBERS_MULTIPLES},
    {"v1-pdfor-u32.spwf", SW_CODEC_PDFOR, 10, 0, 42003, SW_VALUE_U32, SW_NUMBERS_SENTINEL},
    {"v1-pdfor-i64.spwf", SW_CODEC_PDFOR, 10, 0, 30000, SW_VALUE_I64, SW_NUMBERS_MIXED},
    {"v1-huffman-bytes.spwf", SW_CODEC_HUFFMAN, 10, SW_CONTENT_HEX, 35003, SW_VALUE_NONE, 0},
    {"v1-huffman-f8.spwf", SW_CODEC_HUFFMAN, 10, 0, 5003, SW_VALUE_F8, SW_NUMBERS_WEIGHTS},
    {"v1-huffman-bf16.spwf", SW_CODEC_HUFFMAN, 10, 0, 9003, SW_VALUE_BF16, SW_NUMBERS_WEIGHTS},
    {"v1-huffman-f32.spwf", SW_CODEC_HUFFMAN, 10, 0, 9002, SW_VALUE_F32, SW_NUMBERS_WEIGHTS},
    {"v1-huffman-f64.spwf", SW_CODEC_HUFFMAN, 10, 0, 35003, SW_VALUE_F64, SW_NUMBERS_UNIFORM},
    {"v1-huffman-dec128.spwf", SW_CODEC_HUFFMAN, 10, 0, 35003, SW_VALUE_DEC128, SW_NUMBERS_OUTLIER},
    {"v1-onpair-text.spwf", SW_CODEC_ONPAIR, 10, SW_CONTENT_TEXT, 40007, SW_VALUE_NONE, 0},
    {"v1-onpair-hex.spwf", SW_CODEC_ONPAIR, 10, SW_CONTENT_HEX, 20003, SW_VALUE_NONE, 0},
    {"v1-dradix-u32.spwf", SW_CODEC_DRADIX, 10, 0, 42003, SW_VALUE_U32, SW_NUMBERS_SORTED},
    {"v1-dradix-i64.spwf", SW_CODEC_DRADIX, 10, 0, 90000, SW_VALUE_I64, SW_NUMBERS_ORDERS},
    {"v1-radix-i32.spwf", SW_CODEC_RADIX, 10, 0, 42003, SW_VALUE_I32, SW_NUMBERS_ODD},
    {"v1-radix-u64.spwf", SW_CODEC_RADIX, 10, 0, 90000, SW_VALUE_U64, SW_NUMBERS_EXTREMES},
    {"v1-radix-f64.spwf", SW_CODEC_RADIX, 10, 0, 90000, SW_VALUE_F64, SW_NUMBERS_EQUAL},
    {"v1-sfor-u64.spwf", SW_CODEC_SFOR, 10, 0, 30000, SW_VALUE_U64, SW_NUMBERS_NEARLY},
};
#define N_GOLDENS ((int)(sizeof goldens / sizeof goldens[0]))

static uint8_t *content_of(const struct golden *g) {
    uint8_t *data = malloc(g->bytes + 1);
    if (data && g->type)
        sw_numbers_fill(data, 0, g->bytes, g->type, g->numbers, 6, 2026);
    else if (data)
        sw_content_fill(data, g->bytes, g->content, 2026);
    return data;
}

static FILE *open_golden(const char *dir, const struct golden *g, const char *mode) {
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", dir, g->file);
    return n > 0 && (size_t)n < sizeof path ? fopen(path, mode) : NULL;
}

START_TEST(test_decodes) {
    const struct golden *g = &goldens[_i];
    struct sw_frame_layout layout;
    struct sw_err err = {0};
    uint64_t bound = sw_frame_bound_bytes(g->bytes), raw_bytes = 0;
    uint8_t *frame = malloc(bound), *out = malloc(g->bytes + 1), *want = content_of(g);
    FILE *file = open_golden(SW_GOLDEN_DIR, g, "rb");
    ck_assert_msg(file != NULL, "%s is missing", g->file);
    ck_assert(frame && out && want);
    size_t frame_bytes = fread(frame, 1, bound, file);
    fclose(file);
    ck_assert_msg(sw_frame_parse(&layout, frame, frame_bytes, frame_bytes, &err) == 0, "%s: %s", g->file, err.msg);
    ck_assert_int_eq(layout.codec, g->codec);
    ck_assert_uint_eq(layout.segment_log2, g->segment_log2);
    ck_assert_int_eq(layout.value_type, g->type);
    ck_assert_msg(sw_codec_decode(frame, frame_bytes, out, g->bytes, &raw_bytes, &err) == 0, "%s: %s", g->file,
                  err.msg);
    ck_assert_uint_eq(raw_bytes, g->bytes);
    ck_assert(memcmp(out, want, g->bytes) == 0);
    free(frame);
    free(out);
    free(want);
}
END_TEST

/* Every codec has a row. */
START_TEST(test_codec_has_golden) {
    int n = 0;
    for (int i = 0; i < N_GOLDENS; i++)
        n += (int)goldens[i].codec == _i;
    ck_assert_msg(n > 0, "codec %s has no golden frame", sw_codec_name((enum sw_codec_id)_i));
}
END_TEST

static void plan_of(struct sw_plan *ret, const struct golden *g, const uint8_t *data) {
    sw_plan_init_raw(ret);
    ret->codec = g->codec;
    ret->value_type = g->type;
    if (g->codec == SW_CODEC_PHRASE) {
        struct sw_params symbols;
        sw_v5t_table_train(&symbols, data, g->bytes, SW_SAMPLE_SHORT_PIECE_BYTES);
        sw_phrase_learn(&ret->params, &symbols, data, g->bytes, SW_SAMPLE_LONG_PIECE_BYTES, g->bytes);
    } else if (g->codec == SW_CODEC_ONPAIR) {
        static struct sw_frame_dictionary dictionary;
        (void)sw_onpair_learn(&dictionary, data, g->bytes, SW_ONPAIR_PIECE_BYTES, 200);
        ret->dictionary = &dictionary;
    } else { /* of numbers a small part, which leaves exceptions */
        sw_plan_learn(ret, data, g->type ? 400 : g->bytes);
    }
    ret->segment_log2 = g->segment_log2;
}

/* Encodes a row's content; says why there is no frame of the row's codec. Returns the frame's bytes, or 0. */
static uint64_t encode_golden(const struct golden *g, const uint8_t *data, uint8_t *frame) {
    const uint64_t bound = sw_frame_bound_bytes(g->bytes);
    struct sw_plan plan;
    struct sw_frame_header h;
    struct sw_err err = {0};
    uint64_t frame_bytes;
    plan_of(&plan, g, data);
    if (sw_codec_encode(&plan, data, g->bytes, frame, bound, &frame_bytes, &err) < 0) {
        fprintf(stderr, "%s: not written: %s\n", g->file, err.msg);
        return 0;
    }
    memcpy(&h, frame, sizeof h);
    if (h.codec != g->codec) {
        fprintf(stderr, "%s: not written: codec %s does not make this content smaller; choose other content\n", g->file,
                sw_codec_name(g->codec));
        return 0;
    }
    return frame_bytes;
}

/* Writes a row's frame, unless there is one already. Returns 0, or 1 for failure. */
static int write_golden(const char *dir, const struct golden *g) {
    FILE *file = open_golden(dir, g, "rb");
    if (file) {
        fclose(file);
        return 0;
    }
    uint8_t *frame = malloc(sw_frame_bound_bytes(g->bytes)), *data = content_of(g);
    const uint64_t frame_bytes = frame && data ? encode_golden(g, data, frame) : 0;
    bool done = false;
    if (frame_bytes && (file = open_golden(dir, g, "wbx"))) {
        done = fwrite(frame, 1, frame_bytes, file) == frame_bytes;
        done &= fclose(file) == 0;
    }
    if (frame_bytes && !done)
        fprintf(stderr, "%s: not written: %s\n", g->file, strerror(errno));
    free(frame);
    free(data);
    return done ? 0 : 1;
}

/* Every row can be written anew, in a folder that has none, and then is left alone. */
START_TEST(test_writes) {
    const struct golden *g = &goldens[_i];
    char dir[SW_TEST_PATH_BYTES];
    sw_test_folder(dir);
    ck_assert_int_eq(write_golden(dir, g), 0);
    FILE *file = open_golden(dir, g, "r+b");
    ck_assert_ptr_nonnull(file);
    ck_assert(fputc('!', file) == '!' && fclose(file) == 0);
    ck_assert_int_eq(write_golden(dir, g), 0);
    ck_assert_ptr_nonnull(file = open_golden(dir, g, "rb"));
    ck_assert_int_eq(fgetc(file), '!');
    fclose(file);
    sw_test_remove(dir);
}
END_TEST

/* Noise becomes a raw frame, and so no golden one of another codec. */
START_TEST(test_writes_no_other_codec) {
    static const struct golden noise[] = {
        {"v1-for-u8.spwf", SW_CODEC_FOR, 10, 0, 5001, SW_VALUE_U8, SW_NUMBERS_REALS},
        {"v1-v5t-256.spwf", SW_CODEC_V5T, 8, SW_CONTENT_RANDOM, 10007, SW_VALUE_NONE, 0},
    };
    char dir[SW_TEST_PATH_BYTES];
    sw_test_folder(dir);
    for (size_t i = 0; i < sizeof noise / sizeof noise[0]; i++) {
        ck_assert_int_eq(write_golden(dir, &noise[i]), 1);
        ck_assert_ptr_null(open_golden(dir, &noise[i], "rb"));
    }
    sw_test_remove(dir);
}
END_TEST

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--write") == 0) {
        int failed = 0;
        for (int i = 0; i < N_GOLDENS; i++)
            failed |= write_golden(argv[2], &goldens[i]);
        return failed;
    }
    Suite *suite = suite_create("codec_golden");
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, test_decodes, 0, N_GOLDENS);
    tcase_add_loop_test(tests, test_codec_has_golden, 0, SW_CODEC_NR);
    tcase_add_loop_test(tests, test_writes, 0, N_GOLDENS);
    tcase_add_test(tests, test_writes_no_other_codec);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

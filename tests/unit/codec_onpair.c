/* onpair: the longest symbol is found, any input comes back, and made-up dictionaries are refused. */
#include "base/alloc.h"
#include "codec/codec.h"
#include "codec/onpair/onpair.h"
#include "tests/lib/content.h"
#include "tests/lib/frames.h"
#include "tests/lib/run.h"
#include "tests/lib/tpch_tables.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE_BYTES = 60000 };

static struct sw_frame_dictionary dictionary;

static struct sw_plan plan_of_dictionary(void) {
    return (struct sw_plan){.codec = SW_CODEC_ONPAIR, .segment_log2 = 10, .dictionary = &dictionary};
}

static void learn(const uint8_t *sample, size_t bytes, uint32_t most_symbols) {
    ck_assert_int_eq(sw_onpair_learn(&dictionary, sample, bytes, SW_ONPAIR_PIECE_BYTES, most_symbols), 0);
}

/* Makes a dictionary of given texts, all in codes of 16 bits. */
static void make(const uint8_t (*texts)[SW_ONPAIR_MAX_BYTES], const uint8_t *lengths, uint16_t n) {
    size_t at = SW_ONPAIR_HEAD_BYTES + (n + 15u) / 16 * 16;
    memset(&dictionary, 0, sizeof dictionary);
    memcpy(dictionary.data, &n, sizeof n);
    dictionary.data[2] = SW_ONPAIR_MAX_BYTES;
    memset(dictionary.data + 8, SW_ONPAIR_MAX_RAW_BITS * 0x11, 8);
    memcpy(dictionary.data + SW_ONPAIR_HEAD_BYTES, lengths, n);
    for (uint16_t i = 0; i < n; i++, at += lengths[i - 1])
        memcpy(dictionary.data + at, texts[i], lengths[i]);
    dictionary.bytes = (uint32_t)(at + SW_ONPAIR_MAX_BYTES + 15) / 16 * 16;
}

/* Makes a dictionary of n random texts of some letters; with 256 letters nearly each has its own markers. */
static void make_random(uint16_t n, unsigned letters, uint64_t seed) {
    static uint8_t texts[SW_ONPAIR_MAX_SYMBOLS][SW_ONPAIR_MAX_BYTES], lengths[SW_ONPAIR_MAX_SYMBOLS];
    for (uint16_t i = 0; i < n; i++) {
        lengths[i] = (uint8_t)(1 + sw_random(&seed) % SW_ONPAIR_MAX_BYTES);
        for (unsigned k = 0; k < SW_ONPAIR_MAX_BYTES; k++)
            texts[i][k] = (uint8_t)(sw_random(&seed) % letters);
        if (i % 3 == 0 && i > 0) /* many begin alike */
            memcpy(texts[i], texts[i - 1], lengths[i] / 2);
    }
    make(texts, lengths, n);
}

/* Random texts of the dictionary, with a stray byte now and then. */
static void fill(uint8_t *ret, size_t bytes, uint64_t seed) {
    struct sw_onpair_table table;
    ck_assert_int_eq(sw_onpair_table_read(&table, dictionary.data, dictionary.bytes), 0);
    for (size_t at = 0; at < bytes;) {
        const uint32_t i = (uint32_t)(sw_random(&seed) % (table.n + 1));
        const size_t n = i < table.n ? table.length[i] : 1, left = bytes - at;
        if (i < table.n)
            memcpy(ret + at, table.text + table.at[i], n < left ? n : left);
        else
            ret[at] = (uint8_t)sw_random(&seed);
        at += n;
    }
}

/* Joined symbols are their texts one after the other, cut to 16 bytes and padded with zero bytes. */
START_TEST(symbols_are_joined) {
    uint64_t seed = 1;
    for (uint32_t first = 1; first < SW_ONPAIR_MAX_BYTES; first++)
        for (uint32_t second = 1; second <= SW_ONPAIR_MAX_BYTES; second++) {
            const uint32_t bytes = first + second < SW_ONPAIR_MAX_BYTES ? first + second : SW_ONPAIR_MAX_BYTES;
            struct sw_onpair_symbol a = {.bytes = first}, b = {.bytes = second};
            uint8_t expected[2 * SW_ONPAIR_MAX_BYTES] = {0};
            for (uint32_t i = 0; i < first; i++)
                expected[i] = ((uint8_t *)a.text)[i] = (uint8_t)sw_random(&seed);
            for (uint32_t i = 0; i < second; i++)
                expected[first + i] = ((uint8_t *)b.text)[i] = (uint8_t)sw_random(&seed);
            const struct sw_onpair_symbol both = sw_onpair_join(&a, &b);
            ck_assert_uint_eq(both.bytes, bytes);
            ck_assert_int_eq(memcmp(both.text, expected, sizeof both.text), 0);
            ck_assert(sw_onpair_print(&both) != sw_onpair_print(&a));
        }
}
END_TEST

/* As many symbols as asked for, and the ones that cover most: more of them cover more. */
START_TEST(the_best_symbols_are_kept) {
    static uint8_t sample[SAMPLE_BYTES];
    static struct sw_onpair_learned learned;
    static const uint32_t most[] = {300, 1000, 3000};
    uint64_t before = UINT64_MAX;
    sw_content_fill(sample, sizeof sample, SW_CONTENT_HEX, 1);
    for (int i = 0; i < 3; i++) {
        uint64_t codes = 0, bytes = 0;
        ck_assert_int_eq(sw_onpair_learn_symbols(&learned, sample, sizeof sample, SW_ONPAIR_PIECE_BYTES, most[i]), 0);
        ck_assert_uint_eq(learned.n, most[i]);
        for (uint32_t k = 0; k < learned.n; k++) {
            codes += learned.symbol[k].count;
            bytes += (uint64_t)learned.symbol[k].count * learned.symbol[k].bytes;
        }
        ck_assert_uint_eq(bytes, sizeof sample); /* all bytes of the sample are covered */
        ck_assert_uint_lt(codes, before);
        before = codes;
    }
}
END_TEST

static uint32_t find_slowly(const struct sw_onpair_table *table, const uint8_t *in, size_t left) {
    uint32_t best = 0;
    for (uint32_t i = 0; i < table->n; i++)
        if (table->length[i] <= left && table->length[i] > best &&
            memcmp(table->text + table->at[i], in, table->length[i]) == 0)
            best = table->length[i];
    return best;
}

static const struct {
    uint16_t n;
    unsigned letters;
} dictionaries[] = {{0, 2}, {1, 2}, {3, 1}, {200, 2}, {1000, 3}, {2047, 26}, {2048, 5}, {3000, 4}, {4095, 2}};

START_TEST(the_longest_symbol_is_found) {
    enum { BYTES = 4000 };
    static uint8_t data[BYTES + SW_ONPAIR_MAX_BYTES];
    struct sw_onpair_table table;
    struct sw_onpair_index index;
    make_random(dictionaries[_i].n, dictionaries[_i].letters, (uint64_t)_i);
    fill(data, BYTES, 7);
    ck_assert_int_eq(sw_onpair_table_read(&table, dictionary.data, dictionary.bytes), 0);
    ck_assert_int_eq(sw_onpair_index_new(&index, &dictionary), 0);
    ck_assert_uint_eq(index.log2, table.n < 2048 ? 11 : 12);
    for (size_t at = 0; at < BYTES; at++) {
        const uint32_t left = at % 3 ? SW_ONPAIR_MAX_BYTES : 1 + at % SW_ONPAIR_MAX_BYTES;
        uint32_t text[4];
        memcpy(text, data + at, sizeof text);
        ck_assert_uint_eq(sw_onpair_symbol_bytes(sw_onpair_find(&index, text, left)),
                          find_slowly(&table, data + at, left));
    }
    sw_onpair_index_free(&index);
}
END_TEST

/* The hash table has no room for all texts of such a dictionary. Symbols that are left out are not found, but what is
 * found is right. */
START_TEST(a_full_index_loses_symbols_and_no_bytes) {
    enum { BYTES = 200003 };
    uint8_t *data = malloc(BYTES);
    static uint8_t texts[SW_ONPAIR_MAX_SYMBOLS][SW_ONPAIR_MAX_BYTES], lengths[SW_ONPAIR_MAX_SYMBOLS];
    uint64_t state = 9;
    ck_assert_ptr_nonnull(data);
    for (unsigned i = 0; i < SW_ONPAIR_MAX_SYMBOLS; i++) {
        lengths[i] = SW_ONPAIR_MAX_BYTES;
        for (unsigned k = 0; k < SW_ONPAIR_MAX_BYTES; k++)
            texts[i][k] = (uint8_t)sw_random(&state);
    }
    make(texts, lengths, SW_ONPAIR_MAX_SYMBOLS);
    fill(data, BYTES, 3);
    const struct sw_plan plan = plan_of_dictionary();
    const uint64_t frame_bytes = sw_frame_round_trip(&plan, data, BYTES);
    ck_assert_uint_lt(frame_bytes - dictionary.bytes, BYTES / 10 * 6); /* one in eight takes three times its bytes */
    free(data);
}
END_TEST

START_TEST(contents_come_back) {
    static const size_t lengths[] = {0, 1, 100, 8193, 32768, 32769, 65536 + 1024, 100003, 300001};
    uint8_t *data = malloc(300001);
    ck_assert_ptr_nonnull(data);
    sw_content_fill(data, 300001, (enum sw_content)_i, 7);
    learn(data, SAMPLE_BYTES, 1500);
    const struct sw_plan plan = plan_of_dictionary();
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const uint64_t frame_bytes = sw_frame_round_trip(&plan, data, lengths[i]);
        ck_assert_uint_le(frame_bytes, sw_frame_bound_bytes(lengths[i]));
    }
    sw_content_fill(data, 300001, SW_CONTENT_MIXED, 8); /* not what was learned: escapes, raw segments */
    (void)sw_frame_round_trip(&plan, data, 300001);
    free(data);
}
END_TEST

START_TEST(symbols_of_all_lengths_come_back) {
    enum { BYTES = 3 * 32768 + 77 };
    uint8_t *data = malloc(BYTES);
    const struct sw_plan plan = plan_of_dictionary();
    ck_assert_ptr_nonnull(data);
    make_random(dictionaries[_i].n, dictionaries[_i].letters, (uint64_t)_i);
    fill(data, BYTES, 7);
    (void)sw_frame_round_trip(&plan, data, BYTES);
    free(data);
}
END_TEST

/* The same sample makes the same dictionary, of no more symbols than asked. */
START_TEST(learning_keeps_to_its_bounds) {
    static const size_t sizes[] = {0, 1, 2, 3, 100, 511, 513, 5000, SAMPLE_BYTES};
    static struct sw_frame_dictionary again;
    uint8_t *data = malloc(SAMPLE_BYTES);
    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (uint32_t most = 1; most <= SW_ONPAIR_MAX_SYMBOLS; most = 8 * most + 7) {
            struct sw_onpair_table table;
            sw_content_fill(data, sizes[i], (enum sw_content)_i, i);
            learn(data, sizes[i], most);
            ck_assert_int_eq(sw_onpair_table_read(&table, dictionary.data, dictionary.bytes), 0);
            ck_assert_uint_le(table.n, most);
            ck_assert_int_eq(sw_onpair_learn(&again, data, sizes[i], SW_ONPAIR_PIECE_BYTES, most), 0);
            ck_assert_mem_eq(&dictionary, &again, sizeof again);
        }
    free(data);
}
END_TEST

/* More than v5t's 3.0, with a sample of a tenth of the column. */
START_TEST(comments_shrink_further) {
    enum { ORDERS = 20000 };
    struct sw_tpch *tpch = sw_tpch_new(0.1, 1);
    const uint64_t rows = sw_tpch_rows(tpch, SW_L_COMMENT, 0, ORDERS);
    uint8_t *data = malloc(sw_tpch_bound_bytes(SW_L_COMMENT, rows));
    int32_t *offsets = malloc((rows + 1) * sizeof *offsets);
    struct sw_plan plan;
    ck_assert(tpch && data && offsets);
    const uint64_t bytes = sw_tpch_fill(tpch, SW_L_COMMENT, 0, ORDERS, data, offsets);
    ck_assert_int_eq(sw_onpair_plan(&plan, &dictionary, data, bytes), 0);
    const double ratio = (double)bytes / (double)(sw_frame_round_trip(&plan, data, bytes) - dictionary.bytes);
    ck_assert_double_gt(ratio, 4.4);
    free(offsets);
    free(data);
    sw_tpch_free(tpch);
}
END_TEST

/* A sample's pieces lie in the region, the first and the last one, too. */
START_TEST(a_plan_reads_nothing_but_its_region) {
    const size_t pieces = SW_ONPAIR_SAMPLE_BYTES / SW_ONPAIR_PIECE_BYTES, bytes = 1600 * (pieces - 1);
    for (int side = SW_GUARD_AT_END; side <= SW_GUARD_AT_START; side++) {
        struct sw_guard region = sw_guard_new(bytes, (enum sw_guard_side)side);
        struct sw_plan plan;
        sw_content_fill(region.data, bytes, SW_CONTENT_TEXT, 1);
        ck_assert_int_eq(sw_onpair_plan(&plan, &dictionary, region.data, bytes), 0);
        sw_guard_free(&region);
    }
}
END_TEST

/* A frame that is longer than the content becomes a raw frame; a head that is longer does not leave the buffer. */
START_TEST(too_long_frames_become_raw) {
    enum { BYTES = 200000 };
    uint8_t *data = malloc(BYTES);
    ck_assert_ptr_nonnull(data);
    sw_content_fill(data, BYTES, SW_CONTENT_TEXT, 1);
    learn(data, SAMPLE_BYTES, SW_ONPAIR_MAX_SYMBOLS);
    const struct sw_plan plan = plan_of_dictionary();
    sw_content_fill(data, BYTES, SW_CONTENT_RANDOM, 1);
    for (size_t bytes = 0; bytes <= BYTES; bytes += bytes < 20000 ? 1999 : 59999) {
        struct sw_frame_layout layout;
        struct sw_guard frame = sw_frame_encode_decode(&plan, data, bytes);
        ck_assert_int_eq(sw_frame_parse(&layout, frame.data, frame.bytes, frame.bytes, NULL), 0);
        ck_assert_int_eq(layout.codec, SW_CODEC_RAW);
        sw_guard_free(&frame);
    }
    free(data);
}
END_TEST

static int read_changed(size_t at, uint8_t value) {
    struct sw_onpair_table table;
    const uint8_t old = dictionary.data[at];
    dictionary.data[at] = value;
    const int rc = sw_onpair_table_read(&table, dictionary.data, dictionary.bytes);
    dictionary.data[at] = old;
    return rc;
}

START_TEST(made_up_dictionaries_are_refused) {
    struct sw_onpair_table table;
    make_random(200, 26, 1);
    ck_assert_int_eq(sw_onpair_table_read(&table, dictionary.data, dictionary.bytes), 0);
    ck_assert_int_eq(read_changed(1, 16), -SW_EFRAME);   /* 4096 symbols and more */
    ck_assert_int_eq(read_changed(2, 8), -SW_EFRAME);    /* another shape */
    ck_assert_int_eq(read_changed(8, 0xCD), -SW_EFRAME); /* 13 raw bits */
    ck_assert_int_eq(read_changed(16, 0), -SW_EFRAME);   /* a symbol without bytes */
    ck_assert_int_eq(read_changed(16, 17), -SW_EFRAME);
    for (uint32_t bytes = 0; bytes < dictionary.bytes; bytes += 16) /* its last symbol's 16 bytes must be there */
        ck_assert_int_eq(sw_onpair_table_read(&table, dictionary.data, bytes), -SW_EFRAME);
    memset(dictionary.data + 8, 0x33, 8); /* 128 codes for 201 */
    ck_assert_int_eq(sw_onpair_table_read(&table, dictionary.data, dictionary.bytes), -SW_EFRAME);
    memset(dictionary.data + 8, 0x44, 8);
    ck_assert_int_eq(sw_onpair_table_read(&table, dictionary.data, dictionary.bytes), 0);
    uint8_t *const longest = memchr(dictionary.data + SW_ONPAIR_HEAD_BYTES, SW_ONPAIR_MAX_BYTES, 200);
    uint8_t *const other = memchr(dictionary.data + SW_ONPAIR_HEAD_BYTES, 2, 200);
    ck_assert(longest && other);
    ++*longest, --*other; /* all texts are as long as before */
    ck_assert_int_eq(sw_onpair_table_read(&table, dictionary.data, dictionary.bytes), -SW_EFRAME);
    make_random(128, 26, 1);
    memset(dictionary.data + 8, 0x33, 8); /* 128 codes, and none for the escape */
    ck_assert_int_eq(sw_onpair_table_read(&table, dictionary.data, dictionary.bytes), -SW_EFRAME);
}
END_TEST

/* One more would be written behind the table. */
START_TEST(a_dictionary_has_no_more_than_its_most_symbols) {
    for (uint16_t n = SW_ONPAIR_MAX_SYMBOLS; n <= SW_ONPAIR_MAX_SYMBOLS + 1; n++) {
        struct sw_onpair_table table;
        memset(&dictionary, 0, sizeof dictionary);
        memcpy(dictionary.data, &n, sizeof n);
        dictionary.data[2] = SW_ONPAIR_MAX_BYTES;
        memset(dictionary.data + 8, 0xCC, 8);
        memset(dictionary.data + SW_ONPAIR_HEAD_BYTES, 1, n);
        ck_assert_int_eq(sw_onpair_table_read(&table, dictionary.data, sizeof dictionary.data),
                         n > SW_ONPAIR_MAX_SYMBOLS ? -SW_EFRAME : 0);
    }
}
END_TEST

/* All but the last 8 bits of the last segment's codes are in two words: three symbols and the escape, which its byte
 * follows in a third one. Without this word the byte would be read from what happens to lie there, and of a segment
 * read alone nobody compares a hash. */
START_TEST(a_stream_that_ends_within_its_last_code_is_refused) {
    enum { FULL = 1024, BYTES = FULL + 3 * SW_ONPAIR_MAX_BYTES + 1 };
    static const uint8_t text[1][SW_ONPAIR_MAX_BYTES] = {"abcdefghijklmno"}, length[1] = {SW_ONPAIR_MAX_BYTES};
    uint8_t data[BYTES], out[FULL];
    struct sw_frame_layout layout;
    size_t n = 0;
    for (size_t at = 0; at + 1 < BYTES; at += SW_ONPAIR_MAX_BYTES)
        memcpy(data + at, text[0], SW_ONPAIR_MAX_BYTES);
    data[BYTES - 1] = '~';
    make(text, length, 1);
    const struct sw_plan plan = plan_of_dictionary();
    struct sw_guard frame = sw_frame_encode_decode(&plan, data, BYTES);
    ck_assert_int_eq(sw_frame_parse(&layout, frame.data, frame.bytes, frame.bytes, NULL), 0);
    ck_assert_int_eq(layout.codec, SW_CODEC_ONPAIR);
    uint8_t *words = frame.data + layout.counts_offset + 1;
    ck_assert_uint_eq(*words, 3);
    ck_assert_int_eq(sw_codec_decode_segment(frame.data, frame.bytes, 1, out, sizeof out, &n, NULL), 0);
    ck_assert_uint_eq(n, BYTES - FULL);
    ck_assert_mem_eq(out, data + FULL, n);
    for (*words = 2; *words > 0; --*words)
        ck_assert_int_eq(sw_codec_decode_segment(frame.data, frame.bytes, 1, out, sizeof out, &n, NULL), -SW_EFRAME);
    sw_guard_free(&frame);
}
END_TEST

/* The number behind the last symbol's is the escape; those behind it are nothing. */
START_TEST(numbers_behind_the_escape_are_refused) {
    enum { BYTES = 40 * SW_ONPAIR_MAX_BYTES + 1, RAW_BITS = 4 };
    static const uint8_t text[1][SW_ONPAIR_MAX_BYTES] = {"abcdefghijklmno"}, length[1] = {SW_ONPAIR_MAX_BYTES};
    uint8_t data[BYTES], out[BYTES];
    struct sw_frame_layout layout;
    uint64_t raw_bytes = 0;
    data[0] = '~';
    for (size_t at = 1; at < BYTES; at += SW_ONPAIR_MAX_BYTES)
        memcpy(data + at, text[0], SW_ONPAIR_MAX_BYTES);
    make(text, length, 1);
    memset(dictionary.data + 8, RAW_BITS | RAW_BITS << 4, 8);
    const struct sw_plan plan = plan_of_dictionary();
    struct sw_guard frame = sw_frame_encode_decode(&plan, data, BYTES);
    ck_assert_int_eq(sw_frame_parse(&layout, frame.data, frame.bytes, frame.bytes, NULL), 0);
    ck_assert_int_eq(layout.codec, SW_CODEC_ONPAIR);
    uint8_t *code = frame.data + layout.data_offset; /* 4 bits of its class, and its number there */
    ck_assert_uint_eq(*code, 1 << SW_ONPAIR_CLASS_BITS);
    for (unsigned number = 1; number < SW_ONPAIR_CLASSES << RAW_BITS; number++) {
        *code = (uint8_t)(number % (1 << RAW_BITS) << SW_ONPAIR_CLASS_BITS | number >> RAW_BITS);
        ck_assert_int_eq(sw_codec_decode(frame.data, frame.bytes, out, sizeof out, &raw_bytes, NULL),
                         number == 1 ? 0 : -SW_EFRAME);
    }
    sw_guard_free(&frame);
}
END_TEST

START_TEST(errors_are_named) {
    static uint8_t data[5000];
    const uint64_t bound = sw_frame_bound_bytes(sizeof data);
    uint8_t *frame = aligned_alloc(16, (bound + 15) / 16 * 16);
    uint64_t frame_bytes;
    struct sw_err err = {0};
    struct sw_plan plan = {.codec = SW_CODEC_ONPAIR, .segment_log2 = 10};
    const long live = sw_alloc_live();
    ck_assert_ptr_nonnull(frame);
    ck_assert_int_eq(sw_codec_encode(&plan, data, sizeof data, frame, bound, &frame_bytes, &err), -SW_EINVAL);
    learn(data, sizeof data, 100);
    plan.dictionary = &dictionary;
    for (unsigned long nth = 1; nth <= 4; nth++) { /* encoder, builder, index, hashes */
        sw_alloc_fail_nth(nth);
        ck_assert_int_eq(sw_codec_encode(&plan, data, sizeof data, frame, bound, &frame_bytes, &err), -SW_ENOMEM);
        sw_alloc_fail_nth(0);
        ck_assert_int_eq(sw_alloc_live(), live);
    }
    ck_assert_int_eq(sw_codec_encode(&plan, data, sizeof data, frame, bound, &frame_bytes, &err), 0);
    ck_assert_int_eq(sw_alloc_live(), live);       /* its index is gone, too */
    for (unsigned long nth = 1; nth <= 9; nth++) { /* sample, symbols, the learner's blocks, classes */
        sw_alloc_fail_nth(nth);
        ck_assert_int_eq(sw_onpair_plan(&plan, &dictionary, data, sizeof data), -SW_ENOMEM);
        sw_alloc_fail_nth(0);
        ck_assert_int_eq(sw_alloc_live(), live);
    }
    ck_assert_int_eq(sw_onpair_plan(&plan, &dictionary, data, sizeof data), 0);
    free(frame);
}
END_TEST

int main(void) {
    enum { N_DICTIONARIES = sizeof dictionaries / sizeof dictionaries[0] };
    Suite *suite = suite_create("codec_onpair");
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, symbols_are_joined);
    tcase_add_test(tests, the_best_symbols_are_kept);
    tcase_add_loop_test(tests, the_longest_symbol_is_found, 0, N_DICTIONARIES);
    tcase_add_test(tests, a_full_index_loses_symbols_and_no_bytes);
    tcase_add_loop_test(tests, contents_come_back, 0, SW_CONTENT_NR);
    tcase_add_loop_test(tests, symbols_of_all_lengths_come_back, 0, N_DICTIONARIES);
    tcase_add_loop_test(tests, learning_keeps_to_its_bounds, 0, SW_CONTENT_NR);
    tcase_add_test(tests, comments_shrink_further);
    tcase_add_test(tests, a_plan_reads_nothing_but_its_region);
    tcase_add_test(tests, too_long_frames_become_raw);
    tcase_add_test(tests, made_up_dictionaries_are_refused);
    tcase_add_test(tests, a_dictionary_has_no_more_than_its_most_symbols);
    tcase_add_test(tests, a_stream_that_ends_within_its_last_code_is_refused);
    tcase_add_test(tests, numbers_behind_the_escape_are_refused);
    tcase_add_test(tests, errors_are_named);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

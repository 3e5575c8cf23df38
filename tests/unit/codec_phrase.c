/* Phrases: learnt tables obey the rules of phrase.h, the longest phrase is found, and any input comes back. */
#include "codec/codec_ops.h"
#include "codec/phrase/phrase_core.h"
#include "codec/plan/planning.h"
#include "codec/streams/streams.h"
#include "tests/lib/content.h"
#include "tests/lib/frames.h"
#include "tests/lib/phrases.h"
#include "tests/lib/run.h"
#include "tests/lib/tpch_tables.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct sw_plan phrase_plan(const struct sw_params *table, unsigned segment_log2) {
    return (struct sw_plan){.codec = SW_CODEC_PHRASE, .segment_log2 = segment_log2, .params = *table};
}

static void check_rules(const struct sw_params *table) {
    struct sw_phrase_book book;
    ck_assert_uint_le(table->n_symbols, SW_PHRASE_MAX);
    ck_assert_int_eq(sw_phrase_book_read(&book, table), 0);
    for (uint32_t c = 1; c < book.n; c++) {
        const int order = memcmp(book.text[c - 1], book.text[c], SW_PHRASE_MAX_BYTES);
        ck_assert(order < 0 || (order == 0 && book.length[c - 1] < book.length[c]));
    }
}

START_TEST(learnt_tables_obey_the_rules) {
    static const size_t sizes[] = {0, 1, 2, 3, 100, 511, 513, 5000, 32768, SW_SAMPLE_MAX_BYTES};
    uint8_t *data = malloc(SW_SAMPLE_MAX_BYTES);
    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct sw_params table, again;
        sw_content_fill(data, sizes[i], (enum sw_content)_i, i);
        sw_phrases_learn(&table, data, sizes[i]);
        check_rules(&table);
        sw_phrases_learn(&again, data, sizes[i]);
        ck_assert_mem_eq(&table, &again, sizeof table);
    }
    free(data);
}
END_TEST

static uint32_t find_slowly(const struct sw_phrase_book *book, const uint8_t *in, size_t left) {
    uint32_t best = SW_PHRASE_MAX;
    for (uint32_t c = 0; c < book->n; c++)
        if (book->length[c] <= left && memcmp(book->text[c], in, book->length[c]) == 0 &&
            (best == SW_PHRASE_MAX || book->length[c] > book->length[best]))
            best = c;
    return best;
}

static const unsigned letters[] = {1, 2, 3, 26, 256};

START_TEST(the_longest_phrase_is_found) {
    enum { BYTES = 5000 };
    uint8_t data[BYTES + SW_PHRASE_MAX_BYTES] = {0};
    for (unsigned n = 0; n <= SW_PHRASE_MAX; n += n < 4 ? 1 : 83) {
        struct sw_params table;
        struct sw_phrase_book book;
        struct sw_phrase_index index;
        sw_phrases_table(&table, n, letters[_i], n);
        check_rules(&table);
        ck_assert_int_eq(sw_phrase_book_read(&book, &table), 0);
        sw_phrase_index_init(&index, &book);
        if (book.n)
            sw_phrases_fill(data, BYTES, &table, n);
        for (size_t at = 0; at < BYTES; at++) {
            const size_t left = at % 3 ? BYTES - at : at % 70;
            ck_assert_uint_eq(sw_phrase_find_at(&index, data + at, left), find_slowly(&book, data + at, left));
        }
        memset(data, 0xFF, BYTES);
        ck_assert_uint_eq(sw_phrase_find_at(&index, data, BYTES), find_slowly(&book, data, BYTES));
    }
}
END_TEST

START_TEST(contents_come_back) {
    static const size_t lengths[] = {0, 1, 7, 8, 63, 64, 65, 255, 257, 1023, 1025, 8193, 32768, 32769, 100003};
    const enum sw_content kind = (enum sw_content)_i;
    uint8_t *data = malloc(100003);
    struct sw_params table;
    ck_assert_ptr_nonnull(data);
    sw_content_fill(data, 100003, kind, 7);
    sw_phrases_learn(&table, data, 100003);
    for (unsigned segment_log2 = 8; segment_log2 <= 10; segment_log2++)
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            const struct sw_plan plan = phrase_plan(&table, segment_log2);
            (void)sw_frame_round_trip(&plan, data, lengths[i]);
        }
    free(data);
}
END_TEST

START_TEST(phrases_of_all_lengths_come_back) {
    enum { BYTES = 3 * 32768 + 77 };
    uint8_t *data = malloc(BYTES);
    ck_assert_ptr_nonnull(data);
    for (unsigned n = 1; n <= SW_PHRASE_MAX; n += 127) {
        struct sw_params table;
        sw_phrases_table(&table, n, letters[_i], n);
        const struct sw_plan plan = phrase_plan(&table, 8 + n % 3);
        sw_phrases_fill(data, BYTES, &table, n);
        (void)sw_frame_round_trip(&plan, data, BYTES);
        sw_content_fill(data, BYTES, SW_CONTENT_MIXED, n);
        (void)sw_frame_round_trip(&plan, data, BYTES);
    }
    free(data);
}
END_TEST

/* Columns of few values shrink far more than symbols of eight bytes allow; other columns keep their symbols. */
START_TEST(columns_of_few_values) {
    static const struct {
        enum sw_tpch_column column;
        enum sw_codec_id codec;
        double ratio;
    } columns[] = {{SW_L_SHIPINSTRUCT, SW_CODEC_PHRASE, 18},  {SW_L_SHIPMODE, SW_CODEC_PHRASE, 9},
                   {SW_O_ORDERPRIORITY, SW_CODEC_PHRASE, 17}, {SW_O_ORDERSTATUS, SW_CODEC_PHRASE, 4.5},
                   {SW_O_CLERK, SW_CODEC_PHRASE, 7.5},        {SW_L_RETURNFLAG, SW_CODEC_PHRASE, 5.5},
                   {SW_L_LINESTATUS, SW_CODEC_PHRASE, 9},     {SW_L_COMMENT, SW_CODEC_V5T, 2.9},
                   {SW_O_COMMENT, SW_CODEC_V5T, 3.3}};
    enum { ORDERS = 60000 };
    struct sw_tpch *tpch = sw_tpch_new(0.1, 1);
    const enum sw_tpch_column column = columns[_i].column;
    const uint64_t rows = sw_tpch_rows(tpch, column, 0, ORDERS);
    uint8_t *data = malloc(sw_tpch_bound_bytes(column, rows)), *sample = malloc(SW_SAMPLE_MAX_BYTES);
    int32_t *offsets = malloc((rows + 1) * sizeof *offsets);
    struct sw_plan plan;
    ck_assert(tpch && data && sample && offsets);
    const uint64_t bytes = sw_tpch_fill(tpch, column, 0, ORDERS, data, offsets);
    sw_plan_make(&plan, SW_VALUE_NONE, data, bytes, sample);
    ck_assert_int_eq(plan.codec, columns[_i].codec);
    const double ratio = (double)bytes / (double)sw_frame_round_trip(&plan, data, bytes);
    ck_assert_double_gt(ratio, columns[_i].ratio);
    ck_assert_double_eq_tol(plan.expected_ratio / ratio, 1, 0.06);
    free(offsets);
    free(sample);
    free(data);
    sw_tpch_free(tpch);
}
END_TEST

/* Codes of three letters, as of currencies, a few of them most of the time. v5t cannot use all of its codes here,
 * because none of its symbols spans three. */
START_TEST(columns_with_few_common_short_codes) {
    enum { N_CODES = 180, N = 400000, CODE_BYTES = 3 };
    uint8_t codes[N_CODES][CODE_BYTES], *data = malloc((size_t)N * CODE_BYTES), *sample = malloc(SW_SAMPLE_MAX_BYTES);
    struct sw_plan plan;
    uint64_t state = 5;
    double weight[N_CODES], sum = 0;
    ck_assert(data && sample);
    for (int i = 0; i < N_CODES; i++) {
        for (int k = 0; k < CODE_BYTES; k++)
            codes[i][k] = (uint8_t)('A' + sw_random(&state) % 26);
        sum += weight[i] = pow(i + 1, -1.2);
    }
    for (int i = 0; i < N; i++) {
        double left = sum * (double)(sw_random(&state) % 100000) / 1e5;
        int code = 0;
        while (code < N_CODES - 1 && (left -= weight[code]) >= 0)
            code++;
        memcpy(data + (size_t)i * CODE_BYTES, codes[code], CODE_BYTES);
    }
    sw_plan_make(&plan, SW_VALUE_NONE, data, (uint64_t)N * CODE_BYTES, sample);
    ck_assert_int_eq(plan.codec, SW_CODEC_PHRASE);
    const double ratio = (double)N * CODE_BYTES / (double)sw_frame_round_trip(&plan, data, (size_t)N * CODE_BYTES);
    ck_assert_double_gt(ratio, 3.2);
    free(sample);
    free(data);
}
END_TEST

/* The parts of a phrase must be existing shorter phrases that together have its length. */
START_TEST(made_up_tables_are_refused) {
    static const struct {
        uint64_t value;
        uint8_t length;
        int rc;
    } phrases[] = {{0, 16, 0},
                   {1, 9, 0},
                   {0x010101, 10, -SW_EFRAME},
                   {2, 9, -SW_EFRAME},
                   {3, 9, -SW_EFRAME},
                   {0, 17, -SW_EFRAME},
                   {0, 64, 0},
                   {0, 65, -SW_EFRAME},
                   {0, 255, -SW_EFRAME},
                   {0, 0, -SW_EFRAME},
                   {0xFF, 9, -SW_EFRAME},
                   {0x0101010101010101, 9, -SW_EFRAME}};
    const struct sw_params table = {
        .value = {0x3132333435363738, 'a', phrases[_i].value}, .length = {8, 1, phrases[_i].length}, .n_symbols = 3};
    struct sw_params copy;
    struct sw_phrase_book book;
    uint8_t section[32];
    sw_params_write(&table, section);
    int rc = sw_params_read(&copy, section, 3, SW_PHRASE_MAX_BYTES);
    if (rc == 0)
        rc = sw_phrase_book_read(&book, &copy);
    ck_assert_int_eq(rc, phrases[_i].rc);
    if (rc == 0)
        ck_assert_uint_eq(book.text[2][phrases[_i].length - 1], '1');
}
END_TEST

/* Each code must have a phrase, also if the others make up the content. Loop: the place of one that has none. */
START_TEST(codes_without_a_phrase_are_refused) {
    enum { CODES = 1024 / 8 };
    const struct sw_params table = {.value = {0x3132333435363738}, .length = {8}, .n_symbols = 1};
    uint8_t in[1024], out[sizeof in], stored[sizeof in], counts[SW_TILE_SEGMENTS] = {0};
    static struct sw_streams streams;
    struct sw_phrase_book book;
    ck_assert_int_eq(sw_phrase_book_read(&book, &table), 0);
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = book.text[0][i % 8];
    for (unsigned is_there = 0; is_there < 2; is_there++) {
        sw_streams_init(&streams, in, sizeof in, SW_STREAMS_MAX_SEGMENT_LOG2, counts);
        memset(streams.stream[0], 0, CODES + 1);
        streams.stream[0][_i] = (uint8_t)is_there;
        sw_streams_close(&streams, 0, CODES + is_there);
        const struct sw_tile_view tile = {.data = stored,
                                          .data_bytes = sw_streams_put(&streams, stored),
                                          .counts = counts,
                                          .segment_log2 = SW_STREAMS_MAX_SEGMENT_LOG2,
                                          .tile_bytes = sizeof in};
        const int rc = sw_codec_ops(SW_CODEC_PHRASE)->decode_tile(&book, &tile, out);
        ck_assert_int_eq(rc, is_there ? -SW_EFRAME : 0);
        ck_assert(rc || memcmp(out, in, sizeof in) == 0);
    }
}
END_TEST

/* A plan that has learned nothing stores any content, as it is. */
START_TEST(without_a_table_contents_come_back) {
    enum { BYTES = 5000 };
    uint8_t data[BYTES];
    const struct sw_params tables[] = {{.n_symbols = 0}, {.n_symbols = 1, .length = {9}, .value = {~0ull}}};
    sw_content_fill(data, sizeof data, (enum sw_content)_i, 1);
    for (size_t i = 0; i < 2; i++) { /* no table, or one that is none */
        const struct sw_plan plan = {.codec = SW_CODEC_PHRASE, .segment_log2 = 10, .params = tables[i]};
        ck_assert_uint_ge(sw_frame_round_trip(&plan, data, sizeof data), sizeof data);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codec_phrase");
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, learnt_tables_obey_the_rules, 0, SW_CONTENT_NR);
    tcase_add_loop_test(tests, the_longest_phrase_is_found, 0, 5);
    tcase_add_loop_test(tests, contents_come_back, 0, SW_CONTENT_NR);
    tcase_add_loop_test(tests, without_a_table_contents_come_back, 0, SW_CONTENT_NR);
    tcase_add_loop_test(tests, phrases_of_all_lengths_come_back, 0, 5);
    tcase_add_loop_test(tests, columns_of_few_values, 0, 9);
    tcase_add_test(tests, columns_with_few_common_short_codes);
    tcase_add_loop_test(tests, made_up_tables_are_refused, 0, 12);
    tcase_add_loop_test(tests, codes_without_a_phrase_are_refused, 0, 8);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

/* Training obeys the rules of table.h, whatever the sample, and pays off; tables survive their section; sampling and
 * planning stay inside the region. */
#include "codec/codec.h"
#include "codec/plan/planning.h"
#include "tests/lib/content.h"
#include "tests/lib/guard.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void check_rules(const struct sw_params *table) {
    bool taken[1 << SW_V5T_HASH_LOG2] = {false};
    ck_assert_uint_le(table->n_symbols, SW_FRAME_MAX_SYMBOLS);
    ck_assert_uint_le(table->own[SW_V5T_N2] + table->own[SW_V5T_N1], table->n_symbols);
    for (uint32_t c = 0; c < 256; c++) {
        unsigned length = table->length[c];
        if (c >= table->n_symbols)
            ck_assert(length == 0 && table->value[c] == 0);
        else if (c < table->own[SW_V5T_N2])
            ck_assert_uint_eq(length, 2);
        else if (c < table->own[SW_V5T_N2] + table->own[SW_V5T_N1])
            ck_assert_uint_eq(length, 1);
        else
            ck_assert(length >= 3 && length <= 8);
        ck_assert(length == 8 || table->value[c] >> 8 * length == 0);
        for (uint32_t other = 0; other < c && c < table->n_symbols; other++)
            ck_assert(table->length[other] != length || table->value[other] != table->value[c]);
        if (length < 3)
            continue;
        uint32_t slot = sw_v5t_hash3((uint32_t)table->value[c]);
        ck_assert(!taken[slot]);
        taken[slot] = true;
    }
}

START_TEST(test_rules) {
    static const size_t sizes[] = {0, 1, 2, 3, 7, 8, 9, 511, 512, 513, 5000, SW_SAMPLE_MAX_BYTES, 300000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct sw_guard sample = sw_guard_new(sizes[i], SW_GUARD_AT_END);
        struct sw_params table, again;
        sw_content_fill(sample.data, sizes[i], (enum sw_content)_i, i);
        sw_v5t_table_train(&table, sample.data, sizes[i], SW_SAMPLE_SHORT_PIECE_BYTES);
        check_rules(&table);
        sw_v5t_table_train(&again, sample.data, sizes[i], SW_SAMPLE_SHORT_PIECE_BYTES);
        ck_assert_mem_eq(&table, &again, sizeof table);
        sw_guard_free(&sample);
    }
}
END_TEST

START_TEST(test_section) {
    for (uint32_t n = 0; n <= SW_FRAME_MAX_SYMBOLS; n++) {
        struct sw_params table, copy;
        size_t bytes = (9 * (size_t)n + 15) / 16 * 16;
        struct sw_guard section = sw_guard_new(bytes, SW_GUARD_AT_END);
        sw_content_table(&table, 256, n);
        table.n_symbols = n;
        memset(section.data, 0xAA, bytes);
        sw_params_write(&table, section.data);
        ck_assert_int_eq(sw_params_read(&copy, section.data, n, SW_FRAME_SYMBOL_BYTES), 0);
        ck_assert_uint_eq(copy.n_symbols, n);
        for (uint32_t c = 0; c < 256; c++) {
            ck_assert_uint_eq(copy.value[c], c < n ? table.value[c] : 0);
            ck_assert_uint_eq(copy.length[c], c < n ? table.length[c] : 0);
        }
        for (size_t i = 9 * (size_t)n; i < bytes; i++)
            ck_assert_uint_eq(section.data[i], 0);
        for (uint32_t c = 0; c < n; c++) {
            uint8_t *length = &section.data[8 * (size_t)n + c], good = *length;
            *length = c % 2 ? 0 : 9;
            ck_assert_int_eq(sw_params_read(&copy, section.data, n, SW_FRAME_SYMBOL_BYTES), -SW_EFRAME);
            *length = good;
        }
        sw_guard_free(&section);
    }
}
END_TEST

/* No symbol spans a seam: with pieces of two bytes, nothing longer can be learnt. */
START_TEST(test_seams) {
    uint8_t sample[4000];
    struct sw_params table;
    sw_content_fill(sample, sizeof sample, SW_CONTENT_TEXT, 2);
    sw_v5t_table_train(&table, sample, sizeof sample, 2);
    check_rules(&table);
    ck_assert_uint_gt(table.n_symbols, 0);
    ck_assert_uint_eq(table.own[SW_V5T_N1] + table.own[SW_V5T_N2], table.n_symbols);
}
END_TEST

static const unsigned piece_lengths[] = {SW_SAMPLE_SHORT_PIECE_BYTES, SW_SAMPLE_LONG_PIECE_BYTES};

START_TEST(test_sample_pieces_lie_in_the_region_without_overlap) {
    static const uint64_t sizes[] = {0, 1, 511, 512, 513, 65535, 65536, 65537, 70000, 1 << 20, (uint64_t)5 << 32};
    const unsigned piece_bytes = piece_lengths[_i];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const unsigned pieces = sw_sample_pieces(sizes[i], piece_bytes);
        ck_assert_uint_le(pieces, SW_SAMPLE_MAX_PIECES);
        ck_assert_uint_le(pieces * (size_t)piece_bytes, SW_SAMPLE_MAX_BYTES);
        for (unsigned p = 0; p < pieces; p++) {
            const uint64_t at = sw_sample_offset(sizes[i], piece_bytes, p);
            ck_assert_uint_lt(at, sizes[i]);
            if (sizes[i] >= SW_SAMPLE_MAX_BYTES)
                ck_assert_uint_le(at + piece_bytes, sizes[i]);
            if (p)
                ck_assert_uint_ge(at, sw_sample_offset(sizes[i], piece_bytes, p - 1) + piece_bytes);
        }
    }
}
END_TEST

/* Parts lie side by side, cover the region, and have samples of full length where there are several. */
START_TEST(test_parts_cover_the_region) {
    static const uint64_t sizes[] = {0, 1, 65537, (16 << 20) - 1, 32 << 20, (48 << 20) + 7, 1 << 30, (uint64_t)5 << 32};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const unsigned n = sw_sample_parts(sizes[i], SW_SAMPLE_MOST_PARTS);
        uint64_t end = 0;
        ck_assert(n >= 1 && n <= SW_SAMPLE_MOST_PARTS);
        for (unsigned k = 0; k < n; k++) {
            const struct sw_sample_part part = sw_sample_part(sizes[i], n, k);
            ck_assert_uint_eq(part.offset, end);
            ck_assert_uint_eq(part.offset % 16, 0);
            ck_assert(n == 1 || sw_sample_bytes(part.bytes) == SW_SAMPLE_MAX_BYTES);
            end += part.bytes;
        }
        ck_assert_uint_eq(end, sizes[i]);
    }
}
END_TEST

START_TEST(test_a_sample_consists_of_its_pieces) {
    const unsigned piece_bytes = piece_lengths[_i];
    for (size_t bytes = 0; bytes < 200000; bytes = bytes * 3 / 2 + 1) {
        struct sw_guard region = sw_guard_new(bytes, SW_GUARD_AT_END);
        uint8_t *sample = malloc(SW_SAMPLE_MAX_BYTES);
        ck_assert_ptr_nonnull(sample);
        sw_content_fill(region.data, bytes, SW_CONTENT_RANDOM, 1);
        const size_t got = sw_sample_gather(sample, region.data, bytes, piece_bytes);
        ck_assert_uint_eq(got, bytes < SW_SAMPLE_MAX_BYTES ? bytes : SW_SAMPLE_MAX_BYTES);
        for (size_t at = 0; at < got; at += piece_bytes) {
            const size_t n = got - at < piece_bytes ? got - at : piece_bytes;
            const uint64_t offset = sw_sample_offset(bytes, piece_bytes, (unsigned)(at / piece_bytes));
            ck_assert_mem_eq(sample + at, region.data + offset, n);
        }
        free(sample);
        sw_guard_free(&region);
    }
}
END_TEST

static double ratio_of(enum sw_content kind, size_t bytes, struct sw_plan *ret_plan) {
    static uint8_t sample[SW_SAMPLE_MAX_BYTES];
    uint8_t *data = malloc(bytes), *frame = malloc(sw_frame_bound_bytes(bytes));
    uint64_t frame_bytes;
    ck_assert(data && frame);
    sw_content_fill(data, bytes, kind, 4);
    sw_plan_make(ret_plan, SW_VALUE_NONE, data, bytes, sample);
    ck_assert_int_eq(sw_codec_encode(ret_plan, data, bytes, frame, sw_frame_bound_bytes(bytes), &frame_bytes, NULL), 0);
    free(data);
    free(frame);
    return (double)bytes / (double)frame_bytes;
}

START_TEST(test_plan) {
    struct sw_plan plan;
    double ratio = ratio_of(SW_CONTENT_TEXT, 1 << 20, &plan);
    ck_assert_int_eq(plan.codec, SW_CODEC_PHRASE); /* of few words */
    ck_assert_double_gt(ratio, 10);
    ck_assert_double_gt(plan.expected_ratio, 0.95 * ratio);
    ck_assert_double_lt(plan.expected_ratio, 1.05 * ratio);
    ratio = ratio_of(SW_CONTENT_ZEROS, 1 << 20, &plan);
    ck_assert_double_gt(ratio, 50);
    ratio = ratio_of(SW_CONTENT_HEX, 1 << 20, &plan); /* 1.838 without whole rows */
    ck_assert_double_gt(ratio, 1.86);
    ck_assert_int_eq(plan.codec, SW_CODEC_V5T);
    ratio = ratio_of(SW_CONTENT_RANDOM, 1 << 20, &plan);
    ck_assert_int_eq(plan.codec, SW_CODEC_RAW);
    ck_assert_double_eq(plan.expected_ratio, 1);
    ck_assert_double_gt(ratio, 0.999);
    sw_plan_init(&plan, NULL, 0, 0);
    ck_assert_int_eq(plan.codec, SW_CODEC_RAW);
    ck_assert_str_eq(sw_codec_name(SW_CODEC_RAW), "raw");
    ck_assert_str_eq(sw_codec_name(SW_CODEC_V5T), "v5t");
}
END_TEST

/* A codec that saves less than its decoder costs is no plan. */
START_TEST(test_a_small_gain_is_not_taken) {
    static uint8_t data[SW_SAMPLE_MAX_BYTES];
    struct sw_plan plan;
    sw_content_fill(data, sizeof data, SW_CONTENT_RANDOM, 1);
    sw_content_fill(data, sizeof data / 100 * 64, SW_CONTENT_HEX, 1);
    sw_plan_init(&plan, data, sizeof data, 1 << 20); /* would shrink to 1 / 1.03 */
    ck_assert_int_eq(plan.codec, SW_CODEC_RAW);
    sw_content_fill(data, sizeof data / 100 * 70, SW_CONTENT_HEX, 1);
    sw_plan_init(&plan, data, sizeof data, 1 << 20); /* 1.08 */
    ck_assert_int_eq(plan.codec, SW_CODEC_V5T);
}
END_TEST

/* A codec that costs more time must gain a few percent, and save a thousandth of the content: where little is left,
 * much of that is not enough. */
START_TEST(test_a_small_saving_is_not_taken) {
    static uint32_t values[SW_SAMPLE_MAX_BYTES / 4];
    enum { VALUES = sizeof values / sizeof values[0] };
    static const struct {
        uint32_t step;
        enum sw_codec_id codec;
        bool would_save;
    } steps[] = {{16, SW_CODEC_DFOR, true}, {64, SW_CODEC_DRADIX, false}, {4096, SW_CODEC_FOR, true}};
    struct sw_plan plan;
    for (size_t n = 0; n < sizeof steps / sizeof steps[0]; n++) {
        for (uint32_t i = 0; i < VALUES; i++)
            values[i] = i / steps[n].step;
        sw_plan_init_typed(&plan, SW_VALUE_U32, values, sizeof values, 1 << 20);
        ck_assert_int_eq(plan.codec, steps[n].codec);
        ck_assert_int_eq(plan.ratios[SW_CODEC_DRADIX] > plan.expected_ratio, steps[n].would_save);
    }
    ck_assert(plan.ratios[SW_CODEC_DRADIX] > 1.2 * plan.expected_ratio);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codec_table");
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, test_rules, 0, SW_CONTENT_NR);
    tcase_add_test(tests, test_section);
    tcase_add_test(tests, test_seams);
    tcase_add_loop_test(tests, test_sample_pieces_lie_in_the_region_without_overlap, 0, 2);
    tcase_add_test(tests, test_parts_cover_the_region);
    tcase_add_loop_test(tests, test_a_sample_consists_of_its_pieces, 0, 2);
    tcase_add_test(tests, test_plan);
    tcase_add_test(tests, test_a_small_gain_is_not_taken);
    tcase_add_test(tests, test_a_small_saving_is_not_taken);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

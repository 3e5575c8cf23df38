/* The generated column is the same every time, whatever part is asked for, and looks like l_comment. */
#include "tests/lib/tpch_text.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define BYTES ((size_t)5 * SW_TPCH_TEXT_BLOCK_BYTES)

static char *column;

static void make_column(void) {
    column = malloc(BYTES);
    ck_assert_ptr_nonnull(column);
    sw_tpch_text_fill(column, 0, BYTES, 1);
}

static void free_column(void) {
    free(column);
}

START_TEST(test_parts) {
    char *part = malloc(BYTES);
    ck_assert_ptr_nonnull(part);
    for (size_t at = 0; at < BYTES; at += 40009) {
        for (size_t bytes = 0; bytes <= BYTES - at; bytes = bytes * 3 + 1) {
            memset(part, 'x', BYTES);
            sw_tpch_text_fill(part, at, bytes, 1);
            ck_assert(memcmp(part, column + at, bytes) == 0);
            ck_assert(bytes == BYTES || part[bytes] == 'x');
        }
    }
    sw_tpch_text_fill(part, 0, 1000, 2);
    ck_assert(memcmp(part, column, 1000) != 0);
    ck_assert(memcmp(column, column + SW_TPCH_TEXT_BLOCK_BYTES, 1000) != 0);
    free(part);
}
END_TEST

/* A change of the generator changes what benchmarks measure: it must be deliberate. */
START_TEST(test_first_values) {
    static const char want[] = "lyly final foxes haggle slyly again\n"
                               "st the fluffily even dolphins. fluffily sil\n"
                               "ent packages wa\n";
    ck_assert_msg(memcmp(column, want, sizeof want - 1) == 0, "column begins with '%.100s'", column);
}
END_TEST

START_TEST(test_values) {
    size_t count[SW_TPCH_TEXT_MAX_VALUE_BYTES + 1] = {0}, values = 0;
    for (const char *at = column; at < column + BYTES; values++) {
        const char *end = memchr(at, '\n', (size_t)(column + BYTES - at));
        ck_assert_msg(end != NULL, "the last value has no end");
        size_t bytes = (size_t)(end - at);
        ck_assert(bytes >= SW_TPCH_TEXT_MIN_VALUE_BYTES && bytes <= SW_TPCH_TEXT_MAX_VALUE_BYTES);
        count[bytes]++;
        for (; at < end; at++)
            ck_assert_msg(*at >= ' ' && *at <= 'z', "byte %d", *at);
        at = end + 1;
    }
    for (size_t bytes = SW_TPCH_TEXT_MIN_VALUE_BYTES; bytes <= SW_TPCH_TEXT_MAX_VALUE_BYTES; bytes++) {
        ck_assert_uint_gt(count[bytes] * 34 * 10, values * 7); /* uniform: within 30 % of the mean */
        ck_assert_uint_lt(count[bytes] * 34 * 10, values * 13);
    }
    ck_assert_ptr_nonnull(memmem(column, BYTES, "pinto beans", 11));
    ck_assert_ptr_nonnull(memmem(column, BYTES, "furiously regular ", 18));
    ck_assert_ptr_nonnull(memmem(column, BYTES, " the ", 5));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tpch_text");
    TCase *tests = tcase_create("all");
    tcase_add_checked_fixture(tests, make_column, free_column);
    tcase_add_test(tests, test_parts);
    tcase_add_test(tests, test_first_values);
    tcase_add_test(tests, test_values);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

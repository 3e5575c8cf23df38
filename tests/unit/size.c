/* base/size.h: sizes as people write them. */
#include "base/size.h"
#include "tests/lib/run.h"

#include <check.h>

static const struct {
    const char *text;
    uint64_t bytes;
} sizes[] = {
    {"0", 0},
    {"65536", 65536},
    {"7B", 7},
    {"7 B", 7},
    {"4K", 4096},
    {"4KiB", 4096},
    {"4M", 4 << 20},
    {"4 MiB", 4 << 20},
    {"4G", UINT64_C(4) << 30},
    {"4GiB", UINT64_C(4) << 30},
    {"1.5GiB", UINT64_C(3) << 29},
    {"1.5 G", UINT64_C(3) << 29},
    {"0.25T", UINT64_C(1) << 38},
    {"1.0000000000000000000000001M", 1 << 20},
    {"0.3K", 307},
    {"0.99999999999999999999K", 1023},
    {"0.30000000000000000000K", 307},
    {"0.999999999999999999999999T", (UINT64_C(1) << 40) - 1},
    {"1.5", 1},
    {"16777215T", UINT64_C(16777215) << 40},
    {"16777216T", UINT64_MAX},
    {"18446744073709551615", UINT64_MAX},
    {"99999999999999999999999999999999999999999999 TiB", UINT64_MAX},
};

START_TEST(sizes_are_read) {
    uint64_t bytes;
    ck_assert_msg(sw_size_parse(sizes[_i].text, &bytes) && bytes == sizes[_i].bytes, "%s: %llu", sizes[_i].text,
                  (unsigned long long)bytes);
}
END_TEST

/* Zeros follow each: what is read behind the end looks like an end, too. */
static const char no_sizes[][8] = {
    "",    " ",    "M",    "MiB", " 4M", "4 ",   "4MB",   "4 MB", "4m",  "-4M",   "+4M", "4MM",
    "4iB", "4M x", "0x10", "4.M", ".5M", "4,5M", "4..5M", "1e9",  "nan", "4KiBs", "4Ki", "4Ki B",
};

START_TEST(invalid_sizes_are_refused) {
    uint64_t bytes;
    ck_assert_msg(!sw_size_parse(no_sizes[_i], &bytes), "%s", no_sizes[_i]);
}
END_TEST

START_TEST(range_of_sizes) {
    const char *at = "64K..1.5M";
    uint64_t bytes;
    ck_assert(sw_size_take(&at, &bytes));
    ck_assert_uint_eq(bytes, 65536);
    ck_assert_str_eq(at, "..1.5M");
    at += 2;
    ck_assert(sw_size_take(&at, &bytes));
    ck_assert_uint_eq(bytes, 3 << 19);
    ck_assert_str_eq(at, "");
    at = "x";
    ck_assert(!sw_size_take(&at, &bytes));
    ck_assert_str_eq(at, "x");
}
END_TEST

START_TEST(printed_sizes_are_read_back) {
    static const uint64_t all[] = {0, 1, 1023, 1024, 1025, 3 << 20, UINT64_C(5) << 30, UINT64_C(64) << 40, UINT64_MAX};
    char text[32];
    uint64_t bytes;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        ck_assert(sw_size_parse(sw_size_format(text, sizeof text, all[i]), &bytes) && bytes == all[i]);
    ck_assert_str_eq(sw_size_format(text, sizeof text, 3 << 20), "3 MiB");
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("size");
    tcase_add_loop_test(tests, sizes_are_read, 0, (int)(sizeof sizes / sizeof sizes[0]));
    tcase_add_loop_test(tests, invalid_sizes_are_refused, 0, (int)(sizeof no_sizes / sizeof no_sizes[0]));
    tcase_add_test(tests, range_of_sizes);
    tcase_add_test(tests, printed_sizes_are_read_back);
    Suite *suite = suite_create("size");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

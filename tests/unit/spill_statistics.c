/* Histograms and flows: each operation is in one bucket of each stage, and percentiles are bounds. */
#include "spill/statistics.h"

#include "tests/lib/run.h"
#include <check.h>
#include <string.h>

static struct sw_op_statistics statistics;

static void note(unsigned tier, uint64_t us) {
    sw_op_statistics_note(&statistics, &(struct sw_ended_op){.kind = SW_OP_KIND_RESTORE,
                                                             .tier = tier,
                                                             .codec = SW_CODEC_V5T,
                                                             .raw_bytes = 100,
                                                             .stored_bytes = 40,
                                                             .us = {us, us, us, us}});
}

static void setup(void) {
    memset(&statistics, 0, sizeof statistics);
}

START_TEST(bounds_grow_and_the_last_is_infinite) {
    for (unsigned i = 1; i < SW_HISTOGRAM_BUCKETS; i++)
        ck_assert_uint_gt(sw_histogram_bound_us(i), sw_histogram_bound_us(i - 1));
    ck_assert_uint_eq(sw_histogram_bound_us(SW_HISTOGRAM_BUCKETS - 1), UINT64_MAX);
}
END_TEST

START_TEST(a_duration_is_in_its_bucket) {
    const struct sw_histogram *histogram = &statistics.latency[SW_OP_KIND_RESTORE][SW_OP_STAGE_MOVE];
    static const uint64_t us[] = {0, 50, 51, 100, 10000000, 10000001, UINT64_MAX / 2};
    static const unsigned buckets[] = {0, 0, 1, 1, 16, 17, 17};
    for (size_t i = 0; i < sizeof us / sizeof us[0]; i++) {
        setup();
        note(0, us[i]);
        ck_assert_uint_eq(histogram->buckets[buckets[i]], 1);
        ck_assert_uint_eq(histogram->count, 1);
        ck_assert_uint_eq(histogram->sum_us, us[i]);
    }
}
END_TEST

START_TEST(percentiles) {
    const struct sw_histogram *histogram = &statistics.latency[SW_OP_KIND_RESTORE][SW_OP_STAGE_WHOLE];
    ck_assert_uint_eq(sw_histogram_percentile_us(histogram, 50), 0);
    for (int i = 0; i < 98; i++)
        note(0, 60);
    note(0, 900);
    note(0, 20000000);
    ck_assert_uint_eq(sw_histogram_percentile_us(histogram, 50), 100);
    ck_assert_uint_eq(sw_histogram_percentile_us(histogram, 98), 100);
    ck_assert_uint_eq(sw_histogram_percentile_us(histogram, 99), 1000);
    ck_assert_uint_eq(sw_histogram_percentile_us(histogram, 100), UINT64_MAX);
}
END_TEST

START_TEST(flows_by_tier) {
    note(0, 1);
    note(1, 1);
    note(1, 1);
    note(SW_STATISTICS_PACKED, 1);
    for (unsigned tier = 0; tier < SW_STATISTICS_TIER_NR; tier = tier == 1 ? SW_STATISTICS_PACKED : tier + 1) {
        const struct sw_flow *flow = &statistics.flows[SW_OP_KIND_RESTORE][tier][SW_CODEC_V5T];
        ck_assert_uint_eq(flow->operations, tier == 1 ? 2 : 1);
        ck_assert_uint_eq(flow->raw_bytes, 100 * flow->operations);
        ck_assert_uint_eq(flow->stored_bytes, 40 * flow->operations);
    }
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("spill_statistics");
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_test(tests, bounds_grow_and_the_last_is_infinite);
    tcase_add_test(tests, a_duration_is_in_its_bucket);
    tcase_add_test(tests, percentiles);
    tcase_add_test(tests, flows_by_tier);
    Suite *suite = suite_create("spill_statistics");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

/* Histograms and flows: each operation is in one bucket of each stage, and percentiles are bounds. */
#include "spill/engine_state.h"
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

/* ---- an operation's stages ---- */

static struct sw_engine engine;
static const struct sw_tier_kind memory_kind = {.name = "memory"};
static struct sw_tier memory = {.kind = &memory_kind}, behind = {.kind = &memory_kind, .rank = 1};

static uint64_t sum_us(enum sw_op_kind kind, enum sw_op_stage stage) {
    return engine.statistics.latency[kind][stage].sum_us;
}

/* The stages of an operation add up to the whole, whichever of them it had. */
START_TEST(stages_add_up) {
    static const struct {
        uint64_t mapped_us, planned_us, wait, plan, move;
    } rows[] = {{1300, 1700, 300, 400, 1300},
                {1300, 0, 300, 0, 1700},    /* without a plan */
                {1300, 1200, 300, 0, 1700}, /* the last buffer was mapped after the last plan was made */
                {0, 0, 0, 0, 2000}};        /* nothing was to be mapped */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct sw_run_outcome sum = {.mapped_us = rows[i].mapped_us, .planned_us = rows[i].planned_us};
        const struct sw_ended ended = {
            .engine = &engine, .operation = SW_OP_SPILL, .tier = &behind, .sum = &sum, .submitted_us = 1000};
        const struct sw_outcome outcome = {
            .codec = SW_CODEC_V5T, .raw_bytes = 100, .stored_bytes = 40, .total_us = 2000};
        memset(&engine, 0, sizeof engine);
        sw_outcome_note(&ended, &outcome);
        ck_assert_uint_eq(sum_us(SW_OP_KIND_SPILL, SW_OP_STAGE_WAIT), rows[i].wait);
        ck_assert_uint_eq(sum_us(SW_OP_KIND_SPILL, SW_OP_STAGE_PLAN), rows[i].plan);
        ck_assert_uint_eq(sum_us(SW_OP_KIND_SPILL, SW_OP_STAGE_MOVE), rows[i].move);
        ck_assert_uint_eq(sum_us(SW_OP_KIND_SPILL, SW_OP_STAGE_WHOLE), 2000);
        ck_assert_uint_eq(engine.statistics.flows[SW_OP_KIND_SPILL][1][SW_CODEC_V5T].operations, 1);
    }
}
END_TEST

/* What has failed does not count; what lies in its client's memory counts apart; what has no tier, for memory. */
START_TEST(operations_count_where_they_belong) {
    const struct sw_run_outcome sum = {0};
    struct sw_ended ended = {.engine = &engine, .operation = SW_OP_RESTORE, .sum = &sum};
    struct sw_outcome outcome = {.codec = SW_CODEC_RAW, .err.code = -SW_EIO};
    memset(&engine, 0, sizeof engine);
    engine.store.place.tiers = (struct sw_tiers){.at = {&memory, &behind}, .n = 2};
    sw_outcome_note(&ended, &outcome);
    ck_assert_uint_eq(engine.statistics.latency[SW_OP_KIND_RESTORE][SW_OP_STAGE_WHOLE].count, 0);
    outcome.err.code = 0;
    sw_outcome_note(&ended, &outcome);
    ended.operation = SW_OP_UNPACK;
    sw_outcome_note(&ended, &outcome);
    ended.operation = SW_OP_PACK;
    sw_outcome_note(&ended, &outcome);
    ck_assert_uint_eq(engine.statistics.flows[SW_OP_KIND_RESTORE][0][SW_CODEC_RAW].operations, 1);
    ck_assert_uint_eq(engine.statistics.flows[SW_OP_KIND_RESTORE][SW_STATISTICS_PACKED][SW_CODEC_RAW].operations, 1);
    ck_assert_uint_eq(engine.statistics.flows[SW_OP_KIND_SPILL][SW_STATISTICS_PACKED][SW_CODEC_RAW].operations, 1);
}
END_TEST

/* Its times, and what is known of its region. */
START_TEST(an_outcome_tells_times_and_region) {
    static char name[] = "a name";
    struct sw_run_outcome sum = {.started_us = 1200};
    struct sw_region region = {.raw_bytes = 100, .stored_bytes = 40, .codec = SW_CODEC_V5T, .reason = SW_COST_PAYS};
    struct sw_ended ended = {.engine = &engine,
                             .operation = SW_OP_SPILL,
                             .what = "spill of",
                             .region = &region,
                             .id = {.slot = 3, .gen = 4},
                             .sum = &sum,
                             .submitted_us = 1000};
    struct sw_outcome outcome;
    memset(&outcome, 0xEE, sizeof outcome); /* another operation's */
    memset(&engine, 0, sizeof engine);
    engine.now_us = 9000;
    engine.store.place.tiers = (struct sw_tiers){.at = {&memory, &behind}, .n = 2};
    region.name = name;
    sw_outcome_fill(&ended, &outcome);
    ck_assert(outcome.err.code == 0 && outcome.err.cuda == 0 && !outcome.err.msg[0] && !outcome.err.detail[0]);
    ck_assert(outcome.queued_us == 200 && outcome.total_us == 8000);
    ck_assert(outcome.region.slot == 3 && outcome.region.gen == 4);
    ck_assert(outcome.raw_bytes == 100 && outcome.stored_bytes == 40 && outcome.codec == SW_CODEC_V5T);
    ck_assert_str_eq(outcome.reason, "pays");
    ck_assert_str_eq(outcome.coder, "daemon");
    ck_assert_str_eq(outcome.tier, "memory");
    ck_assert_str_eq(outcome.name, "a name");
    ck_assert_int_eq(outcome.durability, SW_DURABILITY_SERVICE);

    sum = (struct sw_run_outcome){.err = {.code = -SW_EIO, .msg = "no"}}; /* canceled before it began */
    region.reason = SW_COST_CLIENT;
    region.name = NULL;
    sw_outcome_fill(&ended, &outcome);
    ck_assert_int_eq(outcome.err.code, -SW_EIO);
    ck_assert_ptr_nonnull(strstr(outcome.err.msg, "spill of region 3:4"));
    ck_assert(outcome.queued_us == 8000 && outcome.total_us == 8000);
    ck_assert_str_eq(outcome.coder, "client");
    ck_assert_str_eq(outcome.name, "");

    ended.operation = SW_OP_PACK;
    ended.submitted_us = 0;
    ended.region = NULL;
    sw_outcome_fill(&ended, &outcome);
    ck_assert(outcome.queued_us == 0 && outcome.total_us == 0 && outcome.raw_bytes == 0 && outcome.stored_bytes == 0);
    ck_assert_str_eq(outcome.tier, SW_PACKED_TIER_NAME);
    ck_assert_str_eq(outcome.coder, "daemon");
}
END_TEST

/* All tiers but memory. */
START_TEST(tiers_behind_memory_are_added_up) {
    struct sw_engine_stats stats = {0};
    for (unsigned i = 0; i < SW_TIERS_MAX; i++)
        stats.tiers[i] = (struct sw_tier_stats){.capacity_bytes = UINT64_C(100) << 8 * i, .used_bytes = 1u << i};
    const struct sw_tier_stats sum = sw_engine_stats_behind(&stats);
    uint64_t capacity_bytes = 0, used_bytes = 0;
    for (unsigned i = 1; i < SW_TIERS_MAX; i++) {
        capacity_bytes += stats.tiers[i].capacity_bytes;
        used_bytes += stats.tiers[i].used_bytes;
    }
    ck_assert_uint_eq(sum.capacity_bytes, capacity_bytes);
    ck_assert_uint_eq(sum.used_bytes, used_bytes);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("spill_statistics");
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_test(tests, bounds_grow_and_the_last_is_infinite);
    tcase_add_test(tests, a_duration_is_in_its_bucket);
    tcase_add_test(tests, percentiles);
    tcase_add_test(tests, flows_by_tier);
    tcase_add_test(tests, stages_add_up);
    tcase_add_test(tests, operations_count_where_they_belong);
    tcase_add_test(tests, an_outcome_tells_times_and_region);
    tcase_add_test(tests, tiers_behind_memory_are_added_up);
    Suite *suite = suite_create("spill_statistics");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

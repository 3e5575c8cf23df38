/* Rates as they are measured: meters, and an engine whose encoder, or whose link, is slow. */
#include "spill/planner/contention.h"
#include "spill/planner/cost.h"
#include "tests/lib/content.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/run.h"

#include <check.h>
#include <string.h>
#include <time.h>

/* ---- the rates --------------------------------------------------------------------------------------------------- */

/* One at a time, the first of which is let pass. Returns the clock. */
static uint64_t pass(struct sw_meter *meter, uint64_t now_us, unsigned n, uint64_t us, uint64_t bytes) {
    for (; n > 0; n--) {
        sw_meter_begin(meter, now_us);
        now_us += us;
        sw_meter_end(meter, now_us, bytes);
        now_us += 1000000; /* nothing under way: does not count */
    }
    return now_us;
}

START_TEST(test_a_meter_follows) {
    struct sw_meter meter = {0};
    ck_assert_double_eq(sw_meter_rate(&meter), 0);
    uint64_t now_us = pass(&meter, 5, 1, 900000, 1000); /* warming up */
    ck_assert_double_eq(sw_meter_rate(&meter), 0);
    now_us = pass(&meter, now_us, 1, 10, 1000);
    ck_assert_double_eq_tol(sw_meter_rate(&meter), 1e8, 1);
    now_us = pass(&meter, now_us, 1, 1000000, 1000); /* a hiccup: half as fast, not a hundred thousandth */
    ck_assert(sw_meter_rate(&meter) > 3e7);
    now_us = pass(&meter, now_us, 20, 1000, 1000); /* a trend */
    ck_assert(sw_meter_rate(&meter) > 0.9e6 && sw_meter_rate(&meter) < 1.1e6);
    now_us = pass(&meter, now_us, 1, 10, 1000);
    ck_assert(sw_meter_rate(&meter) < 2e6);
    sw_meter_age(&meter);
    ck_assert(sw_meter_rate(&meter) > 0.9e6); /* until something else is seen */
    (void)pass(&meter, now_us, 1, 10, 1000);
    ck_assert_double_eq_tol(sw_meter_rate(&meter), 1e8, 1);
}
END_TEST

START_TEST(test_a_meter_counts_time_once) {
    struct sw_meter meter = {0};
    (void)pass(&meter, 0, 1, 10, 1000);
    sw_meter_begin(&meter, 100);
    sw_meter_begin(&meter, 101);
    sw_meter_begin(&meter, 102);
    sw_meter_end(&meter, 120, 1000);
    sw_meter_end(&meter, 140, 0); /* failed: neither its bytes nor its time count */
    sw_meter_end(&meter, 160, 1000);
    ck_assert_double_eq_tol(sw_meter_rate(&meter), 1750.0 / (0.75 * 20 + 20) * 1e6, 1);
}
END_TEST

/* Steps that end together give one rate together. */
START_TEST(test_a_meter_joins_steps_that_end_together) {
    struct sw_meter meter = {0};
    uint64_t now_us = 0;
    for (int i = 0; i < 3; i++) { /* the first time warms up */
        for (int k = 0; k < 4; k++)
            sw_meter_begin(&meter, now_us);
        now_us += 100;
        for (int k = 0; k < 4; k++)
            sw_meter_end(&meter, now_us, 1000);
        ck_assert_double_eq_tol(sw_meter_rate(&meter), i == 0 ? 0 : 40e6, 1);
    }
}
END_TEST

START_TEST(test_classes_are_lengths) {
    ck_assert_int_eq(sw_cost_class(0), -1);
    ck_assert_int_eq(sw_cost_class(SW_COST_MIN_BYTES - 1), -1);
    ck_assert_int_eq(sw_cost_class(SW_COST_MIN_BYTES), 0);
    ck_assert_int_eq(sw_cost_class(2 * SW_COST_MIN_BYTES - 1), 0);
    ck_assert_int_eq(sw_cost_class(4 << 20), 4);
    ck_assert_int_eq(sw_cost_class(16 << 20), SW_COST_CLASSES - 1);
    ck_assert_int_eq(sw_cost_class(UINT64_MAX), SW_COST_CLASSES - 1);
}
END_TEST

/* ---- the engine -------------------------------------------------------------------------------------------------- */

/* A test adds to the fixture's device: a link with a rate, and time for each coded chunk. Changed only while the
 * device's worker rests. */
static struct {
    const struct sw_device_ops *real;
    struct sw_device_info info;
    double link;
    uint64_t encode_us;
} slow;

static void sleep_us(uint64_t us) {
    const struct timespec time = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
    (void)nanosleep(&time, NULL);
}

static const struct sw_device_info *linked_info(const struct sw_device *device) {
    (void)device;
    return &slow.info;
}

/* The device's capabilities are read when it is opened: it has a link from the beginning. */
static int open_linked(struct sw_device **ret, const struct sw_device_config *config, struct sw_err *err) {
    static struct sw_device_ops ops;
    const int rc = sw_device_host_open(ret, config, err);
    if (rc)
        return rc;
    slow.info = *(*ret)->ops->info(*ret);
    slow.info.has_link = true;
    ops = *(*ret)->ops;
    ops.info = linked_info;
    (*ret)->ops = &ops;
    return 0;
}

static int slow_encode(struct sw_device *device, unsigned s, const struct sw_plan *plan,
                       const struct sw_mapping *mapping, uint64_t offset, uint64_t bytes, struct sw_err *err) {
    if (plan->codec != SW_CODEC_RAW)
        sleep_us(slow.encode_us);
    return slow.real->encode(device, s, plan, mapping, offset, bytes, err);
}

static int slow_store(struct sw_device *device, unsigned s, void *h_to, uint64_t frame_offset, uint64_t bytes,
                      struct sw_err *err) {
    sleep_us((uint64_t)((double)bytes / slow.link * 1e6));
    return slow.real->store(device, s, h_to, frame_offset, bytes, err);
}

enum { BYTES = 256 << 10 };
#define LINK_RATE 25e6 /* 10 ms for a region's bytes: longer than the host's encoder takes, also under a sanitizer */

static struct sw_fixture fixture;
static struct sw_memory memory, to;
static struct sw_device_ops slow_ops;

static struct sw_fixture_config one_chunk(void) {
    struct sw_fixture_config config = sw_fixture_defaults;
    config.chunk_bytes = BYTES;
    return config;
}

static void open_slow(const struct sw_fixture_config *config, uint64_t encode_us) {
    struct sw_test_op op;
    sw_fixture_open_device = open_linked;
    sw_fixture_open(&fixture, config);
    memory = sw_memory_new(BYTES);
    to = sw_memory_new(BYTES);
    /* The worker's thread has read the device's operations, and reads them again only at its next job: now they can be
     * changed. */
    ck_assert_int_eq(sw_fixture_spill(&fixture, &memory, 0, 1, &op), 0);
    slow.real = fixture.device->ops;
    slow.link = LINK_RATE;
    slow.encode_us = encode_us;
    slow_ops = *slow.real;
    slow_ops.encode = slow_encode;
    slow_ops.store = slow_store;
    fixture.device->ops = &slow_ops;
}

static void close_slow(void) {
    struct sw_test_op op;
    ck_assert_int_eq(sw_fixture_spill(&fixture, &memory, 0, 1, &op), 0);
    fixture.device->ops = slow.real;
    sw_memory_free(&memory);
    sw_memory_free(&to);
    sw_fixture_close(&fixture);
}

/* Spills `kind`, restores and compares it. */
static struct sw_outcome round_trip(enum sw_content kind, uint64_t seed) {
    struct sw_test_op op, back;
    sw_content_fill(memory.data, BYTES, kind, seed);
    ck_assert_int_eq(sw_fixture_spill(&fixture, &memory, 0, BYTES, &op), 0);
    ck_assert_int_eq(sw_fixture_restore(&fixture, op.id, &to, 0, BYTES, false, &back), 0);
    ck_assert_int_eq(memcmp(to.data, memory.data, BYTES), 0);
    ck_assert_str_eq(op.outcome.reason, back.outcome.reason);
    return op.outcome;
}

/* Round trips until one is made for `reason`; returns how many that took. Of bytes whose frames take milliseconds on
 * the link: of shorter ones it would be the thread that is measured. */
static unsigned until_reason(enum sw_cost_reason reason, unsigned most, struct sw_outcome *ret) {
    for (unsigned n = 1; n <= most; n++) {
        *ret = round_trip(SW_CONTENT_HEX, n);
        if (strcmp(ret->reason, sw_cost_reason_text(reason)) == 0)
            return n;
    }
    ck_abort_msg("still \"%s\" after %u regions", ret->reason, most);
    return 0;
}

/* An encoder that takes ten times as long as the link: far enough apart for a busy machine. */
START_TEST(test_a_slow_encoder_is_left_out) {
    struct sw_engine_stats stats;
    struct sw_outcome outcome;
    const struct sw_fixture_config config = one_chunk();
    open_slow(&config, 100000);
    outcome = round_trip(SW_CONTENT_HEX, 0);
    ck_assert_str_eq(outcome.reason, sw_cost_reason_text(SW_COST_UNKNOWN));
    ck_assert_int_eq(outcome.codec, SW_CODEC_V5T);
    (void)until_reason(SW_COST_ENCODER, 20, &outcome);
    ck_assert_int_eq(outcome.codec, SW_CODEC_RAW);
    ck_assert_uint_ge(outcome.stored_bytes, BYTES);
    sw_engine_stats(fixture.engine, &stats);
    ck_assert_uint_ge(stats.reasons[SW_COST_ENCODER], 1);
    uint64_t sum = 0;
    for (int i = 0; i < SW_COST_REASON_NR; i++)
        sum += stats.reasons[i];
    ck_assert_uint_eq(sum, stats.spills);
    close_slow();
}
END_TEST

START_TEST(test_a_disk_is_measured) {
    struct sw_fixture_config config = one_chunk();
    struct sw_engine_stats stats;
    struct sw_test_op ops[16], back;
    config.capacity_bytes = (uint64_t)16 * BYTES;
    config.nvme_bytes = (uint64_t)64 * BYTES;
    config.staging_bytes = (uint64_t)8 * BYTES;
    config.high_pct = 90;
    config.low_pct = 80;
    open_slow(&config, 0);
    sw_engine_stats(fixture.engine, &stats);
    ck_assert_uint_eq(stats.tiers[1].write_bytes_per_s + stats.tiers[1].read_bytes_per_s, 0);
    sw_content_fill(memory.data, BYTES, SW_CONTENT_RANDOM, 1);
    for (int i = 0; i < 16; i++)
        ck_assert_int_eq(sw_fixture_spill(&fixture, &memory, 0, BYTES, &ops[i]), 0);
    for (int i = 15; i >= 0; i--)
        ck_assert_int_eq(sw_fixture_restore(&fixture, ops[i].id, &to, 0, BYTES, false, &back), 0);
    sw_engine_stats(fixture.engine, &stats);
    ck_assert_uint_gt(stats.tiers[1].write_bytes_per_s, 0);
    ck_assert_uint_gt(stats.tiers[1].read_bytes_per_s, 0);
    close_slow();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("rates");
    TCase *tcase = tcase_create("rates");
    tcase_add_test(tcase, test_a_meter_follows);
    tcase_add_test(tcase, test_a_meter_counts_time_once);
    tcase_add_test(tcase, test_a_meter_joins_steps_that_end_together);
    tcase_add_test(tcase, test_classes_are_lengths);
    tcase_add_test(tcase, test_a_slow_encoder_is_left_out);
    tcase_add_test(tcase, test_a_disk_is_measured);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

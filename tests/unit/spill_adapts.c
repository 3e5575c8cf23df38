/* The planner notices what changes: a GPU that gets busy or free, a link that gets slower, columns in turn, bytes that
 * begin to shrink, plans that are used up. In virtual time. */
#include "spill/store/frames.h"
#include "tests/lib/one_run.h"
#include "tests/lib/run.h"
#include "tests/lib/sim_device.h"
#include "tests/lib/sim_streams.h"

#include <check.h>

/* ---- streams ---- */

/* While CPUs had something else to do the direct way was the slower one. */
START_TEST(test_a_slow_period_of_the_direct_path_is_forgotten) {
    enum { N_MOVED = 200 };
    struct sw_sim_speed speed = speed_by_turns();
    const uint64_t bytes = 64 * MIB;
    struct rig r;
    speed.seal = 2 * GB;
    rig_open(&r, &speed, &datas[RANDOM]);
    (void)move_regions(&r, bytes, true, N_MOVED);
    const unsigned n_bad = sw_sim_counts(r.device).restores_raw;
    ck_assert_uint_le(n_bad, N_MOVED * N_SLOTS / 4);
    speed.seal = 24 * GB;
    sw_sim_set_speed(r.device, &speed);
    (void)move_regions(&r, bytes, true, N_MOVED);
    ck_assert_uint_ge(sw_sim_counts(r.device).restores_raw - n_bad, N_MOVED * N_SLOTS / 2);
    rig_close(&r);
}
END_TEST

static enum sw_cost_reason reason_of_text(struct rig *r) {
    struct sw_one_run spill;
    sw_one_run_init(&spill, SW_OP_SPILL, &r->mem, GIB, NULL);
    (void)run(r, &spill);
    sw_frames_free(spill.job.run.frames);
    return spill.job.run.outcome.reason;
}

/* Beside compressed chunks the link cannot be measured; now and then it is without. */
START_TEST(test_a_link_that_gets_slower_is_noticed) {
    enum { MOST = 200 };
    struct sw_sim_speed speed = speed_by_turns();
    struct rig r;
    int n = 0, n_in_part = 0;
    rig_open(&r, &speed, &datas[TEXT]);
    for (int i = 0; i < 20; i++)
        n_in_part += reason_of_text(&r) == SW_COST_PARTIAL;
    ck_assert_int_ge(n_in_part, 15);
    speed.link_out = speed.link_back = 12 * GB; /* to which the encoder can keep up */
    sw_sim_set_speed(r.device, &speed);
    while (reason_of_text(&r) != SW_COST_PAYS)
        ck_assert_int_lt(++n, MOST);
    rig_close(&r);
}
END_TEST

/* ---- a GPU that gets busy, and is free again ---- */

static double phase_s(struct rig *r, uint64_t bytes, double slowdown, unsigned n_skipped) {
    struct sw_sim_speed speed = sw_sim_idle_gpu;
    speed.slowdown = slowdown;
    sw_sim_set_speed(r->device, &speed);
    (void)move_regions(r, bytes, false, n_skipped);
    return move_regions(r, bytes, false, n_regions(bytes) - N_WARM);
}

/* A free GPU is noticed later than a busy one: trying costs a plan, which is paid with 1 % of the time. */
static const struct {
    uint64_t bytes;
    unsigned n_until_busy, n_until_free;
} notices[] = {{64 * MIB, 2, 700}, {96 * MIB, 2, 400}, {256 * MIB, 2, 250}, {GIB, 2, 80}};

START_TEST(test_a_gpu_that_gets_busy_and_free_again_is_noticed) {
    const struct scenario busy = {.data = TEXT, .slowdown = BUSY}, idle = {.data = TEXT, .slowdown = 1};
    const uint64_t bytes = notices[_i].bytes;
    const double raw_s = stream_s(&busy, bytes, true);
    struct rig r;
    rig_open(&r, &sw_sim_idle_gpu, &datas[TEXT]);
    const double at_first_s = phase_s(&r, bytes, 1, N_WARM);
    ck_not_slower(&busy, bytes, phase_s(&r, bytes, BUSY, notices[_i].n_until_busy), raw_s);
    ck_not_slower(&idle, bytes, phase_s(&r, bytes, 1, notices[_i].n_until_free), at_first_s);
    rig_close(&r);
}
END_TEST

/* The engine starts to compute: from the next region on only a part is compressed. */
START_TEST(test_a_gpu_that_gets_busy_is_noticed_within_a_region) {
    struct sw_sim_speed speed = speed_by_turns();
    const uint64_t bytes = (_i ? 4 : 1) * GIB;
    const double copies_s = (double)bytes / speed.link_out;
    struct rig r;
    rig_open(&r, &sw_sim_idle_gpu, &datas[TEXT]);
    (void)move_regions(&r, bytes, true, N_WARM);
    sw_sim_set_speed(r.device, &speed);
    const double s = move_region(&r, bytes, false);
    ck_assert_msg(s <= (_i ? 1.1 : 1.6) * copies_s, "%llu GiB: %.3f of copies", (unsigned long long)(bytes / GIB),
                  s / copies_s);
    rig_close(&r);
}
END_TEST

/* Compressing shorter regions does not pay on a shared GPU. Their probes do not stop long ones from being partially
 * compressed. */
START_TEST(test_long_regions_are_partially_compressed_beside_short_ones) {
    enum { N_SHORT = 300, N_LONG = 30 };
    const struct sw_sim_speed speed = speed_by_turns();
    struct rig r;
    int n_in_part = 0;
    rig_open(&r, &speed, &datas[TEXT]);
    (void)move_regions(&r, GIB, true, N_WARM);
    (void)move_regions(&r, 256 * MIB, true, N_SHORT);
    for (int i = 0; i < N_LONG; i++)
        n_in_part += reason_of_text(&r) == SW_COST_PARTIAL;
    ck_assert_int_ge(n_in_part, N_LONG - 5);
    rig_close(&r);
}
END_TEST

/* ---- columns in turn ---- */

struct turns {
    unsigned n_columns;
    bool between; /* behind each region of text comes one of bytes that do not shrink */
};

/* Regions of columns of text in turn, a table for one of which does little for another, after enough to know them all.
 */
static double turns_s(const struct turns *turns, const struct scenario *scenario, uint64_t bytes, bool raw,
                      double *ret_ratio) {
    enum { N_KNOWN = 80, N_MOVED = 200 };
    struct sw_sim_speed speed = sw_sim_idle_gpu;
    uint64_t stored = 0;
    struct rig r;
    double s = 0;
    speed.slowdown = scenario->slowdown;
    rig_open(&r, &speed, &datas[TEXT]);
    for (unsigned i = 0; i < N_KNOWN + N_MOVED; i++) {
        const bool shrinks = !turns->between || i % 2 == 0;
        struct sw_sim_data data = datas[shrinks ? TEXT : RANDOM];
        data.column = (turns->between ? i / 2 : i) % turns->n_columns;
        data.by_others = shrinks ? 1.3 : 1;
        data.plans_raw = raw;
        sw_sim_set_data(r.device, &data);
        struct sw_one_run spill;
        sw_one_run_init(&spill, SW_OP_SPILL, &r.mem, bytes, NULL);
        const double one_s = run(&r, &spill);
        sw_frames_free(spill.job.run.frames);
        s += i < N_KNOWN ? 0 : one_s;
        stored += i < N_KNOWN ? 0 : spill.job.run.outcome.stored_bytes;
    }
    *ret_ratio = N_MOVED * (double)bytes / (double)stored;
    rig_close(&r);
    return s;
}

static const unsigned turn_mib[] = {1, 4, 16, 64, 96, 256, 1024};

/* With at most as many columns as plans are kept, each region uses its own column's plan, and is as fast as a single
 * column. */
START_TEST(test_columns_in_turn_have_a_plan_each) {
    static const unsigned n_columns[] = {2, 3, SW_PLANS_KEPT};
    const struct scenario idle = {.data = TEXT, .slowdown = 1};
    const uint64_t bytes = turn_mib[_i] * MIB;
    const struct turns one = {.n_columns = 1};
    double ratio;
    const double one_s = turns_s(&one, &idle, bytes, false, &ratio);
    for (int i = 0; i < N(n_columns); i++) {
        const struct turns turns = {.n_columns = n_columns[i]};
        const double s = turns_s(&turns, &idle, bytes, false, &ratio);
        ck_assert_msg(s <= MOST_SLOWER * one_s, "%u columns, %u MiB: %.3f of one", n_columns[i], turn_mib[_i],
                      s / one_s);
        ck_assert_double_gt(ratio, 2.9);
    }
}
END_TEST

/* More columns than plans, and bytes between them that no plan suits. Shorter regions take up to a launch longer then.
 */
START_TEST(test_columns_in_turn_are_not_slower_than_raw) {
    static const struct turns cases[] = {{SW_PLANS_KEPT + 1, false}, {40, false}, {1, true}, {2, true},
                                         {SW_PLANS_KEPT, true},      {40, true}};
    for (int busy = 0; busy < 2; busy++)
        for (int i = 0; i < N(cases); i++) {
            const struct scenario scenario = {.data = TEXT, .slowdown = busy ? BUSY : 1};
            const uint64_t bytes = turn_mib[_i] * MIB;
            double ratio;
            const double raw_s = turns_s(&cases[i], &scenario, bytes, true, &ratio),
                         s = turns_s(&cases[i], &scenario, bytes, false, &ratio);
            ck_assert_msg(s <= 1.05 * raw_s, "%u columns, %u MiB%s%s: %.3f of raw", cases[i].n_columns, turn_mib[_i],
                          cases[i].between ? ", others between" : "", busy ? ", busy" : "", s / raw_s);
        }
}
END_TEST

/* A plan costs next to nothing beside the regions that it is used for. */
START_TEST(test_plans_take_a_small_part_of_the_time) {
    const struct scenario idle = {.data = TEXT, .slowdown = 1},
                          free_plans = {.data = TEXT, .slowdown = 1, .plans_are_free = true};
    for (int i = 0; i < N(turn_mib); i++) {
        const uint64_t bytes = turn_mib[i] * MIB;
        ck_not_slower(&idle, bytes, stream_s(&idle, bytes, false), 1.01 * stream_s(&free_plans, bytes, false));
    }
}
END_TEST

/* ---- bytes that become others ---- */

/* Returns the number of raw bytes of a region of that data that were compressed. */
static uint64_t compressed_bytes(struct rig *r, enum data data, uint64_t bytes) {
    struct sw_one_run spill;
    sw_one_run_init(&spill, SW_OP_SPILL, &r->mem, bytes, NULL);
    sw_sim_set_data(r->device, &datas[data]);
    (void)run(r, &spill);
    sw_frames_free(spill.job.run.frames);
    return spill.job.run.outcome.codec_raw_bytes[SW_CODEC_V5T];
}

START_TEST(test_one_compressible_column_in_four_is_compressed) {
    struct rig r;
    rig_open(&r, &sw_sim_idle_gpu, &datas[TEXT]);
    for (int i = 0; i < 40; i++)
        ck_assert_uint_eq(compressed_bytes(&r, i % 4 == 0 ? TEXT : RANDOM, 64 * MIB), i % 4 == 0 ? 64 * MIB : 0);
    rig_close(&r);
}
END_TEST

START_TEST(test_bytes_that_begin_to_shrink_are_compressed_again) {
    enum { MOST = 100 };
    struct rig r;
    int n = 0;
    rig_open(&r, &sw_sim_idle_gpu, &datas[RANDOM]);
    (void)move_regions(&r, 64 * MIB, false, 20);
    const unsigned n_plans = sw_sim_counts(r.device).plans;
    (void)move_regions(&r, 64 * MIB, false, 20);
    ck_assert_uint_eq(sw_sim_counts(r.device).plans, n_plans);
    while (compressed_bytes(&r, TEXT, 64 * MIB) == 0)
        ck_assert_int_lt(++n, MOST);
    ck_assert_uint_eq(compressed_bytes(&r, TEXT, 64 * MIB), 64 * MIB);
    rig_close(&r);
}
END_TEST

/* The same rate for each codec of numbers, both ways. */
static struct sw_sim_speed speed_of_numbers(double rate) {
    struct sw_sim_speed speed = sw_sim_idle_gpu;
    for (int codec = SW_CODEC_V5T + 1; codec < SW_CODEC_NR; codec++)
        speed.encode[codec] = speed.decode[codec] = rate;
    return speed;
}

/* Returns the number of raw bytes of a region of numbers that the codec has stored. */
static uint64_t bytes_of_numbers(struct rig *r, uint64_t bytes, enum sw_codec_id codec) {
    struct sw_one_run spill;
    sw_one_run_init(&spill, SW_OP_SPILL, &r->mem, bytes, NULL);
    spill.buffer.type = SW_VALUE_U32;
    (void)run(r, &spill);
    sw_frames_free(spill.job.run.frames);
    return spill.job.run.outcome.codec_raw_bytes[codec];
}

/* The denser codec is tried, found too slow, and left; but not where only its frames find room. */
START_TEST(test_numbers_use_the_fastest_codec) {
    struct sw_sim_speed speed = speed_of_numbers(2000 * GB);
    struct sw_sim_data data = datas[RANDOM];
    struct rig r;
    struct sw_sim_counts counts;
    data.of_numbers[SW_CODEC_RFOR] = 6;
    data.of_numbers[SW_CODEC_FOR] = 3;
    speed.encode[SW_CODEC_RFOR] = speed.link_out; /* the other one is through in a third of that */
    rig_open(&r, &speed, &data);
    if (_i)
        r.place.limit_bytes[0] = 64 * MIB; /* a sixth of the region fits, a third does not */
    for (int i = 0; i < 20; i++)
        ck_assert_uint_eq(bytes_of_numbers(&r, 256 * MIB, i && !_i ? SW_CODEC_FOR : SW_CODEC_RFOR), 256 * MIB);
    counts = sw_sim_counts(r.device);
    ck_assert(_i || counts.encodes[SW_CODEC_FOR] > 0);
    rig_close(&r);
}
END_TEST

/* Codecs that never match a column, and so are never measured, do not stop it from going raw. */
START_TEST(test_numbers_that_never_pay_get_no_plans) {
    const struct sw_sim_speed speed = speed_of_numbers(20 * GB);
    struct sw_sim_data data = datas[RANDOM];
    struct rig r;
    unsigned n_plans = 0;
    data.of_numbers[SW_CODEC_FOR] = 1.4;
    rig_open(&r, &speed, &data);
    for (int i = 0; i < 300; i++) {
        n_plans = i < 200 ? sw_sim_counts(r.device).plans : n_plans;
        (void)bytes_of_numbers(&r, 16 * MIB, SW_CODEC_FOR);
    }
    ck_assert_uint_le(sw_sim_counts(r.device).plans - n_plans, 10);
    rig_close(&r);
}
END_TEST

/* The last region's plan is used if a new one would take longer than the bytes; bytes that do not match it get a new
 * one. */
START_TEST(test_an_expensive_plan_is_reused) {
    struct rig r;
    rig_open(&r, &sw_sim_idle_gpu, &datas[TEXT]);
    (void)move_regions(&r, 16 * MIB, false, 20);
    const unsigned n_plans = sw_sim_counts(r.device).plans;
    ck_assert_uint_eq(compressed_bytes(&r, TEXT, 16 * MIB), 16 * MIB);
    ck_assert_uint_eq(sw_sim_counts(r.device).plans, n_plans);
    ck_assert_uint_eq(compressed_bytes(&r, MIXED, 32 * MIB), 32 * MIB);
    ck_assert_uint_eq(sw_sim_counts(r.device).plans, n_plans + 1);
    rig_close(&r);
}
END_TEST

/* One that was used as often as it may be is made anew at once: its price is shared out among as many regions. */
START_TEST(test_a_used_up_plan_is_replaced) {
    enum { ROUNDS = 4 };
    const uint64_t bytes = 16 * MIB;
    struct rig r;
    rig_open(&r, &sw_sim_idle_gpu, &datas[TEXT]);
    (void)move_regions(&r, bytes, false, 20);
    const unsigned n_plans = sw_sim_counts(r.device).plans;
    for (int i = 0; i < ROUNDS * 256; i++)
        ck_assert_uint_eq(compressed_bytes(&r, TEXT, bytes), bytes);
    ck_assert_uint_le(sw_sim_counts(r.device).plans, n_plans + ROUNDS);
    rig_close(&r);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("adapts");
    TCase *tcase = tcase_create("adapts");
    tcase_add_test(tcase, test_a_slow_period_of_the_direct_path_is_forgotten);
    tcase_add_test(tcase, test_a_link_that_gets_slower_is_noticed);
    tcase_add_loop_test(tcase, test_a_gpu_that_gets_busy_is_noticed_within_a_region, 0, 2);
    tcase_add_test(tcase, test_long_regions_are_partially_compressed_beside_short_ones);
    tcase_add_loop_test(tcase, test_a_gpu_that_gets_busy_and_free_again_is_noticed, 0, N(notices));
    tcase_add_test(tcase, test_one_compressible_column_in_four_is_compressed);
    tcase_add_test(tcase, test_bytes_that_begin_to_shrink_are_compressed_again);
    tcase_add_loop_test(tcase, test_numbers_use_the_fastest_codec, 0, 2);
    tcase_add_test(tcase, test_numbers_that_never_pay_get_no_plans);
    tcase_add_loop_test(tcase, test_columns_in_turn_have_a_plan_each, 0, N(turn_mib));
    tcase_add_loop_test(tcase, test_columns_in_turn_are_not_slower_than_raw, 2, N(turn_mib));
    tcase_add_test(tcase, test_plans_take_a_small_part_of_the_time);
    tcase_add_test(tcase, test_an_expensive_plan_is_reused);
    tcase_add_test(tcase, test_a_used_up_plan_is_replaced);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

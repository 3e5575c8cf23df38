/* Encoding never makes a stream of spills slower than raw by more than 3 %, planning included: in virtual time. */
#include "base/clock.h"
#include "spill/mover/mover_state.h"
#include "spill/store/frames.h"
#include "tests/lib/one_run.h"
#include "tests/lib/run.h"
#include "tests/lib/sim_device.h"
#include "tests/lib/sim_streams.h"

#include <check.h>

/* ---- streams ---- */

static void ck_never_slower(const struct scenario *scenario, uint64_t bytes) {
    ck_not_slower(scenario, bytes, stream_s(scenario, bytes, false), stream_s(scenario, bytes, true));
}

struct sizes {
    enum data data;
    unsigned mib[8]; /* up to a 0 */
};

static void ck_sizes(const struct sizes *sizes, struct scenario scenario) {
    scenario.data = sizes->data;
    for (unsigned i = 0; sizes->mib[i]; i++)
        ck_never_slower(&scenario, sizes->mib[i] * MIB);
}

#define ANY_SIZE                                                                                                       \
    { 1, 4, 16, 64, 256, 1024 }

static const struct sizes idle_sizes[] = {
    {RANDOM, ANY_SIZE}, {PACKED, ANY_SIZE}, {MIXED, ANY_SIZE}, {ALTERNATING, ANY_SIZE}, {TEXT, ANY_SIZE}};
/* Text of 16 MiB is left out, it takes longer: its frames are so short that the link seems to be as slow as the
 * encoder. */
static const struct sizes busy_sizes[] = {{RANDOM, ANY_SIZE},
                                          {PACKED, ANY_SIZE},
                                          {MIXED, ANY_SIZE},
                                          {ALTERNATING, {1, 4, 64, 256, 1024}},
                                          {TEXT, {1, 4, 64, 256, 1024}}};

START_TEST(test_spills_are_not_slower_on_an_idle_gpu) {
    ck_sizes(&idle_sizes[_i], (struct scenario){.slowdown = 1});
    ck_sizes(&idle_sizes[_i], (struct scenario){.slowdown = 1, .returns = true});
}
END_TEST

START_TEST(test_spills_are_not_slower_on_a_busy_gpu) {
    ck_sizes(&busy_sizes[_i], (struct scenario){.slowdown = BUSY});
    ck_sizes(&busy_sizes[_i], (struct scenario){.slowdown = BUSY, .returns = true});
}
END_TEST

START_TEST(test_the_choice_alone_costs_no_time) {
    ck_sizes(&idle_sizes[_i], (struct scenario){.slowdown = 1, .plans_are_free = true});
    ck_sizes(&busy_sizes[_i], (struct scenario){.slowdown = BUSY, .plans_are_free = true});
}
END_TEST

/* However slow kernels are, the link is as fast as ever. */
START_TEST(test_beside_a_busy_gpu_bytes_go_as_fast_as_copies) {
    static const unsigned mib[] = {1, 4, 16, 64, 256};
    for (int data = 0; data < N_DATA; data++)
        for (int i = 0; i < N(mib); i++) {
            const struct scenario scenario = {.data = (enum data)data, .slowdown = BUSY};
            if (mib[i] != 16 || !(data == TEXT || data == ALTERNATING))
                ck_not_slower(&scenario, mib[i] * MIB, stream_s(&scenario, mib[i] * MIB, false),
                              copies_s(mib[i] * MIB));
        }
}
END_TEST

/* The time includes the probes of whether kernels are still late. */
START_TEST(test_regions_do_not_wait_for_late_kernels) {
    static const unsigned mib[] = {128, 256, 1024};
    enum { N_MOVED = 30 };
    const struct sw_sim_speed speed = speed_by_turns();
    const uint64_t bytes = mib[_i] * MIB;
    struct rig r;
    rig_open(&r, &speed, &datas[RANDOM]);
    (void)move_regions(&r, bytes, true, N_WARM);
    const unsigned n_before = sw_sim_counts(r.device).spills_raw;
    const double s = move_regions(&r, bytes, true, N_MOVED), copies_s = N_MOVED * 2 * (double)bytes / speed.link_out;
    ck_assert_msg(s <= 1.05 * copies_s, "%u MiB: %.3f of copies", mib[_i], s / copies_s);
    ck_assert_uint_le(sw_sim_counts(r.device).spills_raw - n_before, N_MOVED * (N_SLOTS + 1U)); /* long steps */
    rig_close(&r);
}
END_TEST

/* A look whether bytes shrink by now has to wait for its turn: not one of the regions waits with it. */
START_TEST(test_long_regions_do_not_wait_for_probes) {
    static const unsigned gib[] = {1, 2, 4};
    enum { N_MOVED = 100 };
    const struct sw_sim_speed speed = speed_by_turns();
    const uint64_t bytes = gib[_i] * GIB;
    const double copies_s = (double)bytes / speed.link_out;
    struct rig r;
    rig_open(&r, &speed, &datas[RANDOM]);
    (void)move_regions(&r, bytes, true, N_WARM);
    const unsigned n_before = sw_sim_counts(r.device).plans;
    for (int i = 0; i < N_MOVED; i++) {
        const double s = move_region(&r, bytes, false);
        ck_assert_msg(s <= copies_s + 0.0003, "region %d of %u GiB: %.2f ms more than copies", i, gib[_i],
                      (s - copies_s) * 1e3);
    }
    ck_assert_uint_gt(sw_sim_counts(r.device).plans, n_before);
    rig_close(&r);
}
END_TEST

/* Raw regions of two sessions share the link. That does not make it seem slower, even if one of them is probed. Beside
 * a partially compressed one it does. */
START_TEST(test_probes_do_not_make_the_link_seem_slower) {
    enum { N_PAIRS = 100 };
    const struct sw_sim_speed speed = _i ? speed_by_turns() : sw_sim_idle_gpu;
    const uint64_t bytes = 4 * GIB;
    struct sw_run_memory mems[2] = {{.once = true}, {.once = true}};
    struct rig r;
    rig_open(&r, &speed, &datas[RANDOM]);
    for (int n = 0; n < N_PAIRS; n++) {
        struct sw_one_run spills[2];
        struct sw_cost_rates rates;
        for (int i = 0; i < 2; i++) {
            sw_one_run_init(&spills[i], SW_OP_SPILL, &mems[i], bytes, NULL);
            add(&r, &spills[i], 1 + (uint64_t)i);
        }
        (void)finish(&r, 2);
        for (int i = 0; i < 2; i++)
            sw_frames_free(spills[i].job.run.frames);
        sw_cost_class_rates(&r.mover->planner.costs[sw_cost_class(CHUNK_BYTES)], &rates);
        if (n >= N_WARM)
            ck_assert_msg(rates.direct_out > 0.9 * speed.link_out, "pair %d: %.1f GB/s", n, rates.direct_out / GB);
    }
    rig_close(&r);
}
END_TEST

/* One step with many frames takes longer than one with a single long one. */
START_TEST(test_groups_do_not_count_for_chunks) {
    struct rig r;
    const struct sw_room room = {.memory_bytes = UINT64_MAX, .allowed_bytes = UINT64_MAX};
    const struct sw_workload chunks = {.raw_bytes = 16 * MIB, .chunk_bytes = 4 * MIB, .n_chunks = 4, .room = &room},
                             group = {.raw_bytes = 4 * MIB,
                                      .chunk_bytes = 4 * MIB,
                                      .n_chunks = 1,
                                      .room = &room,
                                      .shares_step = true};
    rig_open(&r, &sw_sim_idle_gpu, &datas[TEXT]);
    struct sw_slot *slot = &r.mover->slots[0];
    for (int i = 0; i < 6; i++) { /* encoded at 42 GB/s, over a link of 84 */
        slot->group.n = 64;
        sw_measure_begin(r.mover, slot, i % 2 ? SW_MEASURE_ENCODE : SW_MEASURE_LINK_OUT, SW_CODEC_V5T, 4 * MIB,
                         4 * MIB);
        sw_sim_advance(r.device, i % 2 ? 100000 : 50000);
        sw_measure_end(r.mover, slot, true);
        slot->group.n = 0;
    }
    ck_assert_double_gt(sw_planner_ask(&r.mover->planner, &group, SW_CODEC_V5T, 3).rates.encode[SW_CODEC_V5T], 0);
    ck_assert_double_eq(sw_planner_ask(&r.mover->planner, &chunks, SW_CODEC_V5T, 3).rates.encode[SW_CODEC_V5T], 0);
    /* Groups do not spend the probe budget of chunks. */
    struct sw_plan plan = {.codec = SW_CODEC_V5T, .expected_ratio = 3};
    const int class = sw_cost_class(4 * MIB);
    r.mover->planner.plan_s[false] = 1;
    ck_assert_int_eq(sw_planner_decide(&r.mover->planner, false, &group, false, &plan).reason, SW_COST_ENCODER);
    ck_assert_double_gt(r.mover->planner.group_costs[class].probes.saved_s, 0);
    ck_assert_double_eq(r.mover->planner.costs[class].probes.saved_s, 0);
    rig_close(&r);
}
END_TEST

/* Also on an idle GPU, whose kernels are as fast: it may be busy by the next region. */
START_TEST(test_long_raw_regions_come_back_without_kernels) {
    struct sw_sim_speed speed = sw_sim_idle_gpu;
    struct rig r;
    rig_open(&r, &speed, &datas[RANDOM]);
    (void)move_regions(&r, 256 * MIB, true, 5);
    ck_assert_uint_eq(sw_sim_counts(r.device).decodes[SW_CODEC_RAW], 0);
    ck_assert_uint_ge(sw_sim_counts(r.device).restores_raw, 5 * N_SLOTS);
    rig_close(&r);
}
END_TEST

/* Chunks that the encoder manages beside raw ones are a gain, for the spill and, since there are fewer bytes, for the
 * restore. Plans are made meanwhile. */
START_TEST(test_compressible_bytes_beat_copies_on_a_shared_gpu) {
    enum { N_MOVED = 20 };
    struct sw_sim_speed speed = speed_by_turns();
    const uint64_t bytes = (_i ? 4 : 1) * GIB;
    const double copies_s = N_MOVED * (double)bytes / speed.link_out;
    struct rig r;
    rig_open(&r, &speed, &datas[TEXT]);
    (void)move_regions(&r, bytes, true, N_WARM);
    const double out_s = move_regions(&r, bytes, false, N_MOVED), both_s = move_regions(&r, bytes, true, N_MOVED);
    ck_assert_msg(out_s <= 0.9 * copies_s, "%.3f of copies out", out_s / copies_s);
    ck_assert_msg(both_s - out_s <= 0.98 * copies_s, "%.3f of copies back", (both_s - out_s) / copies_s);
    rig_close(&r);
}
END_TEST

/* ---- the simulation itself ---- */

START_TEST(test_steps_wait_for_their_slot_and_their_resource) {
    struct sw_sim_speed speed = sw_sim_idle_gpu;
    struct sw_slot_result result;
    struct sw_plan plan;
    struct sw_device *device = sw_sim_device_new(2, CHUNK_BYTES, POLL_US);
    const uint64_t begin_us = sw_clock_us();
    speed.launch_us = speed.wake_us = 0;
    speed.encode[SW_CODEC_RAW] = (double)MIB * 1e4; /* 1 MiB: 100 us */
    speed.link_out = (double)MIB * 2e4;
    sw_sim_set_speed(device, &speed);
    sw_sim_set_data(device, &datas[RANDOM]);
    sw_plan_init_raw(&plan);
    for (unsigned s = 0; s < 2; s++)
        ck_assert_int_eq(device->ops->encode(device, s, &plan, NULL, 0, MIB, NULL), 0);
    ck_assert_int_eq(device->ops->store(device, 0, NULL, 0, MIB, NULL), 0);
    ck_assert_int_eq(device->ops->slot_poll(device, 0, &result, NULL), -SW_EAGAIN);
    sw_sim_advance(device, 1000000000);
    ck_assert_uint_eq(sw_clock_us() - begin_us, 150);
    ck_assert_int_eq(device->ops->slot_poll(device, 0, &result, NULL), 0);
    ck_assert_uint_eq(result.frame.raw_bytes, MIB);
    ck_assert_int_eq(device->ops->slot_wait(device, 1, &result, NULL), 0);
    ck_assert_uint_eq(sw_clock_us() - begin_us, 200);
    sw_sim_advance(device, 5000); /* nothing is left to end */
    ck_assert_uint_eq(sw_clock_us() - begin_us, 205);
    device->ops->close(device);
    ck_assert_uint_ne(sw_clock_us(), begin_us + 205);
}
END_TEST

/* Beside a busy GPU every launch waits for its turn: a region that was compressed before comes back by few. */
START_TEST(test_frames_come_back_several_by_a_launch) {
    struct sw_sim_speed speed = sw_sim_idle_gpu;
    struct sw_one_run spill;
    struct rig r;
    rig_open(&r, &speed, &datas[TEXT]);
    sw_one_run_init(&spill, SW_OP_SPILL, &r.mem, 2 * GIB, NULL);
    (void)run(&r, &spill);
    struct sw_one_run restore;
    sw_one_run_init(&restore, SW_OP_RESTORE, &r.mem, spill.buffer.bytes, spill.job.run.frames);
    (void)run(&r, &restore);
    const unsigned n_launches = sw_sim_counts(r.device).decodes[SW_CODEC_V5T];
    ck_assert_uint_lt(2 * n_launches,
                      spill.job.run.frames->n_chunks); /* three frames to a buffer, but for the last ones */
    sw_frames_free(spill.job.run.frames);
    rig_close(&r);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("never slower");
    TCase *tcase = tcase_create("never slower");
    tcase_add_test(tcase, test_frames_come_back_several_by_a_launch);
    tcase_add_test(tcase, test_steps_wait_for_their_slot_and_their_resource);
    tcase_add_loop_test(tcase, test_spills_are_not_slower_on_an_idle_gpu, 0, N(idle_sizes));
    tcase_add_loop_test(tcase, test_spills_are_not_slower_on_a_busy_gpu, 0, N(busy_sizes));
    tcase_add_loop_test(tcase, test_the_choice_alone_costs_no_time, 0, N(idle_sizes));
    tcase_add_test(tcase, test_beside_a_busy_gpu_bytes_go_as_fast_as_copies);
    tcase_add_loop_test(tcase, test_regions_do_not_wait_for_late_kernels, 0, 3);
    tcase_add_loop_test(tcase, test_long_regions_do_not_wait_for_probes, 0, 3);
    tcase_add_loop_test(tcase, test_probes_do_not_make_the_link_seem_slower, 0, 2);
    tcase_add_test(tcase, test_groups_do_not_count_for_chunks);
    tcase_add_test(tcase, test_long_raw_regions_come_back_without_kernels);
    tcase_add_loop_test(tcase, test_compressible_bytes_beat_copies_on_a_shared_gpu, 0, 2);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

/* Encoding never makes a stream of spills slower than raw by more than 3 %, planning included: in virtual time. */
#include "base/alloc.h"
#include "base/clock.h"
#include "spill/mover/mover_state.h"
#include "spill/store/frames.h"
#include "spill/worker/transfer.h"
#include "tests/lib/one_run.h"
#include "tests/lib/run.h"
#include "tests/lib/sim_device.h"

#include <check.h>

#define GB 1e9
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define MOST_SLOWER 1.03
/* The slots of a GPU by the daemon's defaults. */
enum { N_SLOTS = 4, POLL_US = 500, NAP_NS = 100000 };
#define CHUNK_BYTES (26 * MIB)

/* Beside an engine that leaves a thirtieth of the computing units: the encoder makes 30 GB/s, raw kernels 56. */
#define BUSY 26.7

enum data { RANDOM, PACKED, MIXED, ALTERNATING, TEXT, N_DATA };
static const char *const data_names[N_DATA] = {"random", "already compressed", "mixed", "alternating", "text"};
static const struct sw_sim_data datas[N_DATA] = {
    [RANDOM] = {.ratios = {1, 1}, .stripe_bytes = GIB},
    [PACKED] = {.ratios = {1.02, 1.02}, .stripe_bytes = GIB},
    [MIXED] = {.ratios = {1.3, 1.3}, .stripe_bytes = GIB},
    [ALTERNATING] = {.ratios = {3, 1}, .stripe_bytes = CHUNK_BYTES},
    [TEXT] = {.ratios = {3, 3}, .stripe_bytes = GIB},
};

struct rig {
    struct sw_device *device;
    struct sw_tier *tier;
    struct sw_placement place;
    struct sw_tier_sink sink;
    struct sw_mover *mover;
    struct sw_run_memory mem;
    unsigned n_finished;
};

static void on_finished(struct sw_run *run, void *arg) {
    (void)run;
    ((struct rig *)arg)->n_finished++;
}

static void on_event(void *arg) {
    (void)arg;
}

static void rig_open(struct rig *r, const struct sw_sim_speed *speed, const struct sw_sim_data *data) {
    const struct sw_mover_host host = {.finished = on_finished, .progress = on_event, .arg = r};
    *r = (struct rig){
        .device = sw_sim_device_new(N_SLOTS, CHUNK_BYTES, POLL_US), .tier = sw_sim_tier_new(), .mem = {.once = true}};
    sw_sim_set_speed(r->device, speed);
    sw_sim_set_data(r->device, data);
    sw_placement_init(&r->place, &(struct sw_tiers){.at = {r->tier}, .n = 1}, 0);
    sw_tier_sink_init(&r->sink, &r->place, on_event, NULL);
    ck_assert_int_eq(sw_mover_new(&r->mover, r->device, &r->sink.sink, &host, NULL), 0);
}

static void rig_close(struct rig *r) {
    sw_mover_free(r->mover);
    sw_tier_sink_fini(&r->sink);
    r->tier->ops->close(r->tier);
    r->device->ops->close(r->device);
}

static void add(struct rig *r, struct sw_one_run *one, uint64_t session) {
    one->request.session = session;
    sw_job_init_run(&one->job, &one->request, 0);
    sw_mover_add(r->mover, &one->job.run);
}

/* Does a worker's steps (worker/worker.c) until that many more jobs have finished. Returns the time they took. */
static double finish(struct rig *r, unsigned n_jobs) {
    const uint64_t begin_ns = sw_sim_now_ns(), poll_ns = POLL_US * UINT64_C(1000);
    uint64_t advanced_ns = begin_ns;
    for (r->n_finished = 0; r->n_finished < n_jobs;) {
        const uint64_t idle_ns = sw_sim_now_ns() - advanced_ns;
        const bool polls = idle_ns < poll_ns || sw_mover_has_steps(r->mover);
        if (sw_mover_step(r->mover, polls))
            advanced_ns = sw_sim_now_ns();
        else if (polls)
            sw_sim_advance(r->device, poll_ns - idle_ns % poll_ns);
        else if (!sw_mover_wait(r->mover))
            sw_sim_advance(r->device, NAP_NS);
    }
    return (double)(sw_sim_now_ns() - begin_ns) / 1e9;
}

static double run(struct rig *r, struct sw_one_run *job) {
    add(r, job, 1);
    const double s = finish(r, 1);
    ck_assert_msg(!job->job.run.outcome.err.code, "%s", job->job.run.outcome.err.msg);
    return s;
}

/* A region goes out and, if `returns`, comes back. */
static double move_region(struct rig *r, uint64_t bytes, bool returns) {
    struct sw_one_run spill;
    sw_one_run_init(&spill, SW_OP_SPILL, &r->mem, bytes, NULL);
    double s = run(r, &spill);
    if (returns) {
        struct sw_one_run restore;
        sw_one_run_init(&restore, SW_OP_RESTORE, &r->mem, bytes, spill.job.run.frames);
        s += run(r, &restore);
    }
    sw_frames_free(spill.job.run.frames);
    return s;
}

static double move_regions(struct rig *r, uint64_t bytes, bool returns, unsigned n) {
    double s = 0;
    for (unsigned i = 0; i < n; i++)
        s += move_region(r, bytes, returns);
    return s;
}

/* ---- streams ---- */

enum { N_WARM = 10 };

/* Fewer of long ones: they have many chunks. */
static unsigned n_regions(uint64_t bytes) {
    return bytes < 16 * MIB ? 200 : bytes < 256 * MIB ? 60 : 40;
}

struct scenario {
    enum data data;
    double slowdown;
    bool plans_are_free; /* only the choice is tested */
    bool returns;        /* every region comes back before the next one goes out */
};

/* All but the first ones: rates have to be measured. */
static double stream_s(const struct scenario *scenario, uint64_t bytes, bool raw) {
    struct sw_sim_speed speed = sw_sim_idle_gpu;
    struct sw_sim_data data = datas[scenario->data];
    struct rig r;
    speed.slowdown = scenario->slowdown;
    speed.plan_us = scenario->plans_are_free ? 0 : speed.plan_us;
    data.plans_raw = raw;
    rig_open(&r, &speed, &data);
    (void)move_regions(&r, bytes, scenario->returns, N_WARM);
    const double s = move_regions(&r, bytes, scenario->returns, n_regions(bytes) - N_WARM);
    rig_close(&r);
    return s;
}

/* By the copy engines alone, one region after the other. */
static double copies_s(uint64_t bytes) {
    return (n_regions(bytes) - N_WARM) * (sw_sim_idle_gpu.launch_us / 1e6 + (double)bytes / sw_sim_idle_gpu.link_out);
}

static void ck_not_slower(const struct scenario *scenario, uint64_t bytes, double s, double raw_s) {
    ck_assert_msg(s <= MOST_SLOWER * raw_s, "%s, regions of %llu MiB, GPU slower by %.1f: %.3f of raw",
                  data_names[scenario->data], (unsigned long long)(bytes / MIB), scenario->slowdown, s / raw_s);
}

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
#define N(array) ((int)(sizeof(array) / sizeof(array)[0]))

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

/* As measured beside an engine that takes turns with everybody else's kernels: these begin late, but long ones are not
 * that slow. The CPU hashes 24 GB/s for each slot. */
static struct sw_sim_speed speed_by_turns(void) {
    struct sw_sim_speed speed = sw_sim_idle_gpu;
    const double part = 1 / 7.0;
    speed.slowdown = 2100 / speed.launch_us;
    for (int codec = 0; codec < SW_CODEC_NR; codec++) {
        speed.encode[codec] *= speed.slowdown * part;
        speed.decode[codec] *= speed.slowdown * part;
    }
    speed.hash *= speed.slowdown * part;
    speed.plan_us /= speed.slowdown * part;
    speed.seal = 24 * GB;
    return speed;
}

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
    r.mover->planner.plan_s = 1;
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

/* Of a free one later than of a busy one: trying costs a plan, which is paid with 1 % of the time. */
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

/* As many as plans are kept: each region goes by its own column's, as fast as if there were one column. */
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
    Suite *suite = suite_create("never_slower");
    TCase *tcase = tcase_create("never_slower");
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
    tcase_add_test(tcase, test_a_slow_period_of_the_direct_path_is_forgotten);
    tcase_add_loop_test(tcase, test_compressible_bytes_beat_copies_on_a_shared_gpu, 0, 2);
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

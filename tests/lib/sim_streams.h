/* sim_streams.h - streams of spills and restores on the simulated device (lib/sim_device.h), and how long they take.
 *
 * What does not fit fails the test. thread: one. */
#ifndef SW_TEST_SIM_STREAMS_H
#define SW_TEST_SIM_STREAMS_H

#include "spill/mover/mover_state.h"
#include "spill/store/frames.h"
#include "spill/worker/transfer.h"
#include "tests/lib/one_run.h"
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
    struct sw_tier *tier, *disk; /* disk: NULL: there is none */
    struct sw_placement place;
    struct sw_tier_sink sink;
    struct sw_mover *mover;
    struct sw_run_memory mem;
    unsigned n_finished;
};

static inline void on_finished(struct sw_run *run, void *arg) {
    (void)run;
    ((struct rig *)arg)->n_finished++;
}

static inline void on_event(void *arg) {
    (void)arg;
}

/* disk: bytes a second of a disk that all frames go to; 0: they stay in memory. */
static inline void rig_open_on(struct rig *r, const struct sw_sim_speed *speed, const struct sw_sim_data *data,
                               double disk) {
    const struct sw_mover_host host = {.finished = on_finished, .progress = on_event, .arg = r};
    *r = (struct rig){
        .device = sw_sim_device_new(N_SLOTS, CHUNK_BYTES, POLL_US), .tier = sw_sim_tier_new(), .mem = {.once = true}};
    sw_sim_set_speed(r->device, speed);
    sw_sim_set_data(r->device, data);
    r->disk = disk > 0 ? sw_sim_disk_new(r->device, disk) : NULL;
    struct sw_tiers tiers = {.at = {r->tier, r->disk}, .n = r->disk ? 2 : 1};
    ck_assert_int_eq(sw_tiers_settle(&tiers, NULL), 0);
    sw_placement_init(&r->place, &tiers, r->disk ? 4 * GIB : 0);
    if (r->disk)
        r->place.limit_bytes[0] = 0;
    sw_tier_sink_init(&r->sink, &r->place, on_event, NULL);
    ck_assert_int_eq(sw_mover_new(&r->mover, r->device, &r->sink.sink, &host, NULL), 0);
}

static inline void rig_open(struct rig *r, const struct sw_sim_speed *speed, const struct sw_sim_data *data) {
    rig_open_on(r, speed, data, 0);
}

static inline void rig_close(struct rig *r) {
    sw_mover_free(r->mover);
    sw_tier_sink_fini(&r->sink);
    r->tier->ops->close(r->tier);
    if (r->disk)
        r->disk->ops->close(r->disk);
    r->device->ops->close(r->device);
}

static inline void add(struct rig *r, struct sw_one_run *one, uint64_t session) {
    one->request.session = session;
    sw_job_init_run(&one->job, &one->request, 0);
    sw_mover_add(r->mover, &one->job.run);
}

/* Does a worker's steps (worker/worker.c) until that many more jobs have finished. Returns the time they took. */
static inline double finish(struct rig *r, unsigned n_jobs) {
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

static inline double run(struct rig *r, struct sw_one_run *job) {
    add(r, job, 1);
    const double s = finish(r, 1);
    ck_assert_msg(!job->job.run.outcome.err.code, "%s", job->job.run.outcome.err.msg);
    return s;
}

/* A region goes out and, if `returns`, comes back. */
static inline double move_region(struct rig *r, uint64_t bytes, bool returns) {
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

static inline double move_regions(struct rig *r, uint64_t bytes, bool returns, unsigned n) {
    double s = 0;
    for (unsigned i = 0; i < n; i++)
        s += move_region(r, bytes, returns);
    return s;
}

enum { N_WARM = 10 };

/* Fewer of long ones: they have many chunks. */
static inline unsigned n_regions(uint64_t bytes) {
    return bytes < 16 * MIB ? 200 : bytes < 256 * MIB ? 60 : 40;
}

struct scenario {
    enum data data;
    double slowdown;
    bool plans_are_free; /* only the choice is tested */
    bool returns;        /* every region comes back before the next one goes out */
};

/* All but the first ones: rates have to be measured. */
static inline double stream_s(const struct scenario *scenario, uint64_t bytes, bool raw) {
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

/* Seconds of plain copies by the copy engines alone, one region after the other. */
static inline double copies_s(uint64_t bytes) {
    return (n_regions(bytes) - N_WARM) * (sw_sim_idle_gpu.launch_us / 1e6 + (double)bytes / sw_sim_idle_gpu.link_out);
}

static inline void ck_not_slower(const struct scenario *scenario, uint64_t bytes, double s, double raw_s) {
    ck_assert_msg(s <= MOST_SLOWER * raw_s, "%s, regions of %llu MiB, GPU slower by %.1f: %.3f of raw",
                  data_names[scenario->data], (unsigned long long)(bytes / MIB), scenario->slowdown, s / raw_s);
}

#define N(array) ((int)(sizeof(array) / sizeof(array)[0]))

/* Rates as measured beside an engine whose kernels take turns with all others: our kernels begin late, but long ones
 * are not that slow. The CPU hashes 24 GB/s for each slot. */
static inline struct sw_sim_speed speed_by_turns(void) {
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

#endif

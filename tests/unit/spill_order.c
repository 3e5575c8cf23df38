/* In which order the buffers of one request go through two stages: the rule against all permutations, and the pipeline
 * in virtual time. */
#include "spill/pipeline/pipeline.h"
#include "spill/policy.h"
#include "tests/lib/content.h"
#include "tests/lib/run.h"
#include "tests/lib/sim_device.h"

#include <check.h>
#include <stdlib.h>

enum { MOST = 7, ROUNDS = 400 };

static uint64_t state = 1;

/* When the last one is through both stages, each of which takes one at a time. */
static double makespan(const struct sw_policy_stages *all, const int *order, int n) {
    double first = 0, second = 0;
    for (int i = 0; i < n; i++) {
        first += all[order[i]].first_s;
        second = (second > first ? second : first) + all[order[i]].second_s;
    }
    return second;
}

static double best_of_all(const struct sw_policy_stages *all, int *order, int n, int k) {
    double best = makespan(all, order, n);
    for (int i = k; i < n; i++) {
        int swapped = order[k];
        order[k] = order[i];
        order[i] = swapped;
        const double other = best_of_all(all, order, n, k + 1);
        best = other < best ? other : best;
        swapped = order[k];
        order[k] = order[i];
        order[i] = swapped;
    }
    return best;
}

/* As the pipeline does: again and again the one that goes before all that are left. */
static void by_the_rule(const struct sw_policy_stages *all, int *ret, int n) {
    bool gone[MOST] = {false};
    for (int at = 0; at < n; at++) {
        int best = -1;
        for (int i = 0; i < n; i++)
            if (!gone[i] && (best < 0 || sw_policy_goes_before(&all[i], &all[best])))
                best = i;
        gone[best] = true;
        ret[at] = best;
    }
}

/* Few different times, so that many are equal, or any; 0 among them. */
static double some_time(int round) {
    return round % 2 ? (double)(sw_random(&state) % 4) : (double)(sw_random(&state) % 100000) / 1e5;
}

START_TEST(no_order_is_better) {
    for (int round = 0; round < ROUNDS; round++) {
        struct sw_policy_stages all[MOST];
        int order[MOST], any[MOST];
        const int n = 1 + round % MOST;
        for (int i = 0; i < n; i++) {
            all[i] = (struct sw_policy_stages){some_time(round), some_time(round)};
            any[i] = i;
        }
        by_the_rule(all, order, n);
        const double best = best_of_all(all, any, n, 0);
        ck_assert_msg(makespan(all, order, n) <= best + 1e-9, "round %d: %g, not %g", round, makespan(all, order, n),
                      best);
    }
}
END_TEST

START_TEST(it_is_an_order) {
    for (int round = 0; round < 20000; round++) {
        struct sw_policy_stages s[3];
        for (int i = 0; i < 3; i++)
            s[i] = (struct sw_policy_stages){some_time(round), some_time(round)};
        ck_assert(!sw_policy_goes_before(&s[0], &s[0]));
        ck_assert(!sw_policy_goes_before(&s[0], &s[1]) || !sw_policy_goes_before(&s[1], &s[0]));
        if (sw_policy_goes_before(&s[0], &s[1]) && sw_policy_goes_before(&s[1], &s[2]))
            ck_assert(sw_policy_goes_before(&s[0], &s[2]));
        if (!sw_policy_goes_before(&s[0], &s[1]) && !sw_policy_goes_before(&s[1], &s[2]))
            ck_assert(!sw_policy_goes_before(&s[0], &s[2]));
    }
}
END_TEST

/* Where nothing is known, nobody is preferred. */
START_TEST(unknown_times_keep_the_order) {
    const struct sw_policy_stages unknown[3] = {{0}};
    int order[3];
    by_the_rule(unknown, order, 3);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(order[i], i);
}
END_TEST

/* ---- the pipeline ------------------------------------------------------------------------------------------------ */

#define CHUNK_BYTES ((uint64_t)26 << 20)
#define BUFFER_BYTES (20 * CHUNK_BYTES)
enum { N_SLOTS = 4, POLL_US = 500, WARM = 4, MANY = 12 };

static const struct sw_sim_data data = {.ratios = {8, 1.2}, .stripe_bytes = BUFFER_BYTES};

struct rig {
    struct sw_device *device;
    struct sw_tier *tier;
    struct sw_placement place;
    struct sw_pipeline *pipeline;
    unsigned n_finished;
};

static void on_finished(struct sw_job *job, void *arg) {
    ck_assert_int_eq(job->err.code, 0);
    ((struct rig *)arg)->n_finished++;
}

static void on_event(void *arg) {
    (void)arg;
}

static void rig_init(struct rig *r, const struct sw_sim_speed *speed) {
    const struct sw_pipeline_sink sink = {.finished = on_finished, .progress = on_event, .arrived = on_event, .arg = r};
    *r = (struct rig){.device = sw_sim_device_new(N_SLOTS, CHUNK_BYTES, POLL_US), .tier = sw_sim_tier_new()};
    sw_sim_set_speed(r->device, speed);
    sw_sim_set_data(r->device, &data);
    sw_placement_init(&r->place, r->tier, NULL, 0);
    ck_assert_int_eq(sw_pipeline_new(&r->pipeline, r->device, &r->place, &sink, NULL), 0);
}

static void rig_fini(struct rig *r) {
    sw_pipeline_free(r->pipeline);
    r->tier->ops->close(r->tier);
    r->device->ops->close(r->device);
}

static void step(struct rig *r) {
    if (!sw_pipeline_step(r->pipeline, true))
        sw_sim_advance(r->device, POLL_US * UINT64_C(1000));
}

static void add_buffer(struct rig *r, struct sw_job *job, struct sw_job_mem *mem, unsigned buffer, uint64_t op_number) {
    job->bytes = BUFFER_BYTES;
    job->offset = buffer * BUFFER_BYTES;
    job->mem = mem;
    job->unmap_after = true;
    job->session = 1;
    job->plan_key = buffer + 1;
    job->op_number = op_number;
    job->buffer = buffer;
    sw_pipeline_add(r->pipeline, job);
}

/* Two buffers: one that shrinks to an eighth, and behind it one that hardly does. */
struct pair {
    struct sw_job jobs[2];
    struct sw_job_mem mems[2];
};

static void add_pair(struct rig *r, struct pair *p, enum sw_job_kind kind, uint64_t op_number,
                     const struct pair *stored) {
    *p = (struct pair){.jobs = {{.kind = kind}, {.kind = kind}}};
    for (unsigned i = 0; i < 2; i++) {
        p->jobs[i].frames = stored ? stored->jobs[i].frames : NULL;
        add_buffer(r, &p->jobs[i], &p->mems[i], i, op_number);
    }
}

static void finish(struct rig *r, unsigned n_jobs) {
    while (r->n_finished < n_jobs)
        step(r);
    r->n_finished = 0;
}

static void free_frames(struct pair *p) {
    for (unsigned i = 0; i < 2; i++)
        sw_frames_free(p->jobs[i].frames);
}

/* Of a pair on its way, out or back, as one operation or as two, in microseconds. */
static double us_of(struct rig *r, struct pair *p, enum sw_job_kind kind, uint64_t op_number,
                    const struct pair *stored) {
    const uint64_t begun_ns = sw_sim_now_ns();
    add_pair(r, p, kind, op_number, stored);
    finish(r, 2);
    return (double)(sw_sim_now_ns() - begun_ns) / 1e3;
}

/* Bytes that shrink to an eighth keep the encoder busy for longer than the link, and the decoder; others the link.
 * While there are both, neither stage stands still for long, though there are but a few slots to wait in between. */
START_TEST(both_stages_are_kept_busy) {
    struct rig r;
    struct pair out, back;
    struct sw_sim_speed speed = sw_sim_idle_gpu;
    speed.encode[SW_CODEC_V5T] = 120e9;
    speed.decode[SW_CODEC_V5T] = 120e9;
    speed.plan_us = 0; /* beside a plan whatever has one goes */
    rig_init(&r, &speed);
    for (int i = 0; i < WARM; i++) { /* rates have to be measured */
        (void)us_of(&r, &out, SW_JOB_SPILL, 0, NULL);
        (void)us_of(&r, &back, SW_JOB_RESTORE, 0, &out);
        free_frames(&out);
    }
    const double coder_us = 2.0 * (double)BUFFER_BYTES / 120e9 * 1e6,
                 link_us = (double)BUFFER_BYTES * (1 / 8.0 + 1 / 1.2) / 55e9 * 1e6,
                 least_us = coder_us > link_us ? coder_us : link_us;
    const double out_us = us_of(&r, &out, SW_JOB_SPILL, 7, NULL), back_us = us_of(&r, &back, SW_JOB_RESTORE, 8, &out);
    /* One kind after the other takes 1.31 and 1.33 times as long as the busier stage. */
    ck_assert_double_lt(out_us, 1.2 * least_us);
    ck_assert_double_lt(back_us, 1.2 * least_us);
    free_frames(&out);
    rig_fini(&r);
}
END_TEST

/* The link does not wait for the plans of all buffers. */
START_TEST(chunks_go_beside_plans) {
    struct rig r;
    struct sw_job jobs[MANY];
    struct sw_job_mem mems[MANY] = {{.mapping = NULL}};
    struct sw_sim_speed speed = sw_sim_idle_gpu;
    speed.plan_us = 2000;
    rig_init(&r, &speed);
    for (unsigned i = 0; i < MANY; i++) {
        jobs[i] = (struct sw_job){.kind = SW_JOB_SPILL};
        add_buffer(&r, &jobs[i], &mems[i], i, 7);
    }
    while (sw_sim_counts(r.device).plans < MANY)
        step(&r);
    ck_assert_uint_gt(sw_sim_counts(r.device).encodes[SW_CODEC_V5T], MANY);
    finish(&r, MANY);
    for (unsigned i = 0; i < MANY; i++)
        sw_frames_free(jobs[i].frames);
    rig_fini(&r);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("order");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, no_order_is_better);
    tcase_add_test(tcase, it_is_an_order);
    tcase_add_test(tcase, unknown_times_keep_the_order);
    tcase_add_test(tcase, both_stages_are_kept_busy);
    tcase_add_test(tcase, chunks_go_beside_plans);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

/* The order in which the buffers of one request go through two stages: the rule against all permutations, and the mover
 * in virtual time. */
#include "spill/mover/mover.h"
#include "spill/planner/rules.h"
#include "spill/store/frames.h"
#include "spill/worker/transfer.h"
#include "tests/lib/content.h"
#include "tests/lib/run.h"
#include "tests/lib/sim_device.h"

#include <check.h>
#include <stdlib.h>

enum { MOST = 7, ROUNDS = 400 };

static uint64_t state = 1;

/* When the last one is through both stages, each of which takes one at a time. */
static double makespan(const struct sw_rules_stages *all, const int *order, int n) {
    double first = 0, second = 0;
    for (int i = 0; i < n; i++) {
        first += all[order[i]].first_s;
        second = (second > first ? second : first) + all[order[i]].second_s;
    }
    return second;
}

static double best_of_all(const struct sw_rules_stages *all, int *order, int n, int k) {
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

/* Orders buffers as the mover does: again and again it takes the one that goes before all others left. */
static void by_the_rule(const struct sw_rules_stages *all, int *ret, int n) {
    bool gone[MOST] = {false};
    for (int at = 0; at < n; at++) {
        int best = -1;
        for (int i = 0; i < n; i++)
            if (!gone[i] && (best < 0 || sw_rules_goes_before(&all[i], &all[best])))
                best = i;
        gone[best] = true;
        ret[at] = best;
    }
}

/* Few different times, so that many are equal, or any; 0 among them. */
static double some_time(int round) {
    return round % 2 ? (double)(sw_random(&state) % 4) : (double)(sw_random(&state) % 100000) / 1e5;
}

START_TEST(johnsons_rule_gives_the_best_order) {
    for (int round = 0; round < ROUNDS; round++) {
        struct sw_rules_stages all[MOST];
        int order[MOST], any[MOST];
        const int n = 1 + round % MOST;
        for (int i = 0; i < n; i++) {
            all[i] = (struct sw_rules_stages){some_time(round), some_time(round)};
            any[i] = i;
        }
        by_the_rule(all, order, n);
        const double best = best_of_all(all, any, n, 0);
        ck_assert_msg(makespan(all, order, n) <= best + 1e-9, "round %d: %g, not %g", round, makespan(all, order, n),
                      best);
    }
}
END_TEST

START_TEST(the_comparison_is_an_order) {
    for (int round = 0; round < 20000; round++) {
        struct sw_rules_stages s[3];
        for (int i = 0; i < 3; i++)
            s[i] = (struct sw_rules_stages){some_time(round), some_time(round)};
        ck_assert(!sw_rules_goes_before(&s[0], &s[0]));
        ck_assert(!sw_rules_goes_before(&s[0], &s[1]) || !sw_rules_goes_before(&s[1], &s[0]));
        if (sw_rules_goes_before(&s[0], &s[1]) && sw_rules_goes_before(&s[1], &s[2]))
            ck_assert(sw_rules_goes_before(&s[0], &s[2]));
        if (!sw_rules_goes_before(&s[0], &s[1]) && !sw_rules_goes_before(&s[1], &s[2]))
            ck_assert(!sw_rules_goes_before(&s[0], &s[2]));
    }
}
END_TEST

/* Without known times no buffer is preferred. */
START_TEST(unknown_times_keep_the_order) {
    const struct sw_rules_stages unknown[3] = {{0}};
    int order[3];
    by_the_rule(unknown, order, 3);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(order[i], i);
}
END_TEST

/* ---- the mover ------------------------------------------------------------------------------------------------ */

#define CHUNK_BYTES ((uint64_t)26 << 20)
#define BUFFER_BYTES (20 * CHUNK_BYTES)
enum { N_SLOTS = 4, POLL_US = 500, WARM = 4, MANY = 12 };

static const struct sw_sim_data data = {
    .ratios = {8, 1.2}, .stripe_bytes = BUFFER_BYTES, .of_numbers = {[SW_CODEC_RFOR] = 16}};

struct rig {
    struct sw_device *device;
    struct sw_tier *tier;
    struct sw_placement place;
    struct sw_tier_sink sink;
    struct sw_mover *mover;
    unsigned n_finished;
};

static void on_finished(struct sw_run *run, void *arg) {
    ck_assert_int_eq(run->outcome.err.code, 0);
    ((struct rig *)arg)->n_finished++;
}

static void on_event(void *arg) {
    (void)arg;
}

static void rig_init(struct rig *r, const struct sw_sim_speed *speed) {
    const struct sw_mover_host host = {.finished = on_finished, .progress = on_event, .arg = r};
    *r = (struct rig){.device = sw_sim_device_new(N_SLOTS, CHUNK_BYTES, POLL_US), .tier = sw_sim_tier_new()};
    sw_sim_set_speed(r->device, speed);
    sw_sim_set_data(r->device, &data);
    sw_placement_init(&r->place, &(struct sw_tiers){.at = {r->tier}, .n = 1}, 0);
    sw_tier_sink_init(&r->sink, &r->place, on_event, NULL);
    ck_assert_int_eq(sw_mover_new(&r->mover, r->device, &r->sink.sink, &host, NULL), 0);
}

static void rig_fini(struct rig *r) {
    sw_mover_free(r->mover);
    sw_tier_sink_fini(&r->sink);
    r->tier->ops->close(r->tier);
    r->device->ops->close(r->device);
}

static void step(struct rig *r) {
    if (!sw_mover_step(r->mover, true))
        sw_sim_advance(r->device, POLL_US * UINT64_C(1000));
}

/* Buffers of one request: text that shrinks to an eighth, text that hardly does, numbers that shrink to a sixteenth. */
enum { DENSE, LOOSE, NUMBERS, MOST_BUFFERS };

struct request {
    unsigned first, end;          /* which of them */
    uint64_t bytes[MOST_BUFFERS]; /* 0: BUFFER_BYTES */
    struct sw_request request;
    struct sw_buffer buffers[MOST_BUFFERS];
    struct sw_run_memory mems[MOST_BUFFERS];
    struct sw_job jobs[MOST_BUFFERS];
};

static void add_request(struct rig *r, struct request *q, enum sw_operation operation, uint64_t number,
                        const struct request *stored) {
    q->request = (struct sw_request){
        .operation = operation, .session = 1, .number = number, .n_buffers = MOST_BUFFERS, .buffers = q->buffers};
    for (unsigned i = q->first; i < q->end; i++) {
        struct sw_job *job = &q->jobs[i];
        q->mems[i] = (struct sw_run_memory){.once = true};
        q->buffers[i] = (struct sw_buffer){.memory = &q->mems[i],
                                           .offset = i * BUFFER_BYTES,
                                           .bytes = q->bytes[i] ? q->bytes[i] : BUFFER_BYTES,
                                           .type = i == NUMBERS ? SW_VALUE_U32 : SW_VALUE_NONE,
                                           .number = i + 1};
        *job = (struct sw_job){0};
        sw_job_init_run(job, &q->request, i);
        job->run.frames = stored ? stored->jobs[i].run.frames : NULL;
        sw_mover_add(r->mover, &job->run);
    }
}

static void finish(struct rig *r, unsigned n_jobs) {
    while (r->n_finished < n_jobs)
        step(r);
    r->n_finished = 0;
}

static void free_frames(struct request *p) {
    for (unsigned i = p->first; i < p->end; i++)
        sw_frames_free(p->jobs[i].run.frames);
}

/* Returns the time of a request in microseconds. */
static double us_of(struct rig *r, struct request *q, enum sw_operation kind, uint64_t op_number,
                    const struct request *stored) {
    const uint64_t begun_ns = sw_sim_now_ns();
    add_request(r, q, kind, op_number, stored);
    finish(r, q->end - q->first);
    return (double)(sw_sim_now_ns() - begun_ns) / 1e3;
}

/* Between the coder and the link: dense buffers keep the coder busy for longer, in both directions; the others the
 * link. Rates have been measured. Chunks with a plan go beside planning, so plans take no time. */
static void rig_init_warm(struct rig *r) {
    struct sw_sim_speed speed = sw_sim_idle_gpu;
    speed.encode[SW_CODEC_V5T] = speed.encode[SW_CODEC_RFOR] = 120e9;
    speed.decode[SW_CODEC_V5T] = speed.decode[SW_CODEC_RFOR] = 120e9;
    speed.plan_us = 0;
    rig_init(r, &speed);
    for (unsigned i = 0; i < WARM * MOST_BUFFERS; i++) {
        struct request out = {.first = i % MOST_BUFFERS, .end = i % MOST_BUFFERS + 1}, back = out;
        (void)us_of(r, &out, SW_OP_SPILL, 0, NULL);
        (void)us_of(r, &back, SW_OP_RESTORE, 0, &out);
        free_frames(&out);
    }
}

/* While both kinds are left, neither stage is idle for long, although few slots can wait in between. All of one kind
 * before the other takes 1.31 and 1.33 times as long as the busier stage. */
START_TEST(both_stages_are_kept_busy) {
    struct rig r;
    struct request out = {.first = DENSE, .end = NUMBERS}, back = out;
    rig_init_warm(&r);
    const double coder_us = 2.0 * (double)BUFFER_BYTES / 120e9 * 1e6,
                 link_us = (double)BUFFER_BYTES * (1 / 8.0 + 1 / 1.2) / 55e9 * 1e6,
                 least_us = coder_us > link_us ? coder_us : link_us;
    const double out_us = us_of(&r, &out, SW_OP_SPILL, 7, NULL), back_us = us_of(&r, &back, SW_OP_RESTORE, 8, &out);
    ck_assert_msg(out_us < 1.1 * least_us, "%g of %g us", out_us, least_us);
    ck_assert_msg(back_us < 1.2 * least_us, "%g of %g us", back_us, least_us);
    free_frames(&out);
    rig_fini(&r);
}
END_TEST

/* Steps until all chunks of a buffer have been dealt; *ret_dealt: how many of each buffer then. */
static void deal_all_of(struct rig *r, const struct request *request, unsigned buffer, size_t ret_dealt[MOST_BUFFERS]) {
    const struct sw_run *run = &request->jobs[buffer].run;
    while (!run->frames || run->n_dealt < run->frames->n_chunks)
        step(r);
    for (unsigned i = request->first; i < request->end; i++)
        ret_dealt[i] = request->jobs[i].run.n_dealt;
}

/* Among buffers of one kind, the first by the rule goes first: on the spill path the one that is longer on the link, on
 * the restore path the one that is shorter there. A chunk more goes at once with a buffer's plan. */
START_TEST(buffers_of_one_kind_follow_the_rule) {
    struct rig r;
    struct request out = {.end = MOST_BUFFERS}, back = out;
    size_t dealt[MOST_BUFFERS];
    rig_init_warm(&r);
    add_request(&r, &out, SW_OP_SPILL, 7, NULL);
    deal_all_of(&r, &out, DENSE, dealt);
    ck_assert_uint_le(dealt[NUMBERS], 2);
    ck_assert_uint_ge(dealt[LOOSE], 5);
    finish(&r, 3);
    add_request(&r, &back, SW_OP_RESTORE, 8, &out);
    deal_all_of(&r, &back, NUMBERS, dealt);
    ck_assert_uint_le(dealt[DENSE], 2);
    ck_assert_uint_ge(dealt[LOOSE], 5);
    finish(&r, 3);
    free_frames(&out);
    rig_fini(&r);
}
END_TEST

/* The last one of twelve spills of a long text and of short numbers that shrink so far. */
static double us_with_numbers(double ratio, enum sw_cost_reason *ret_reason) {
    const struct sw_sim_data even = {
        .ratios = {3, 3}, .stripe_bytes = BUFFER_BYTES, .of_numbers = {[SW_CODEC_RFOR] = ratio}};
    struct request out = {.first = LOOSE, .end = MOST_BUFFERS, .bytes = {0, 0, 60 << 20}};
    struct sw_sim_speed speed = sw_sim_idle_gpu;
    struct rig r;
    double us = 0;
    speed.encode[SW_CODEC_RFOR] = 45e9;
    speed.decode[SW_CODEC_RFOR] = 500e9;
    rig_init(&r, &speed);
    sw_sim_set_data(r.device, &even);
    for (unsigned i = 1; i <= 12; i++) {
        us = us_of(&r, &out, SW_OP_SPILL, i, NULL);
        free_frames(&out);
    }
    *ret_reason = out.jobs[NUMBERS].run.outcome.reason;
    rig_fini(&r);
    return us;
}

/* Alone their encoder would be slower than the link; here it works while the link has the text. */
START_TEST(a_short_buffer_is_compressed_beside_a_long_one) {
    enum sw_cost_reason reason, raw_reason;
    const double us = us_with_numbers(6, &reason), raw_us = us_with_numbers(0, &raw_reason);
    ck_assert_str_eq(sw_cost_reason_text(raw_reason), sw_cost_reason_text(SW_COST_NO_GAIN));
    ck_assert_str_eq(sw_cost_reason_text(reason), sw_cost_reason_text(SW_COST_PAYS));
    ck_assert_msg(us < 0.95 * raw_us, "%g us, raw %g", us, raw_us);
}
END_TEST

/* On their way back frames wait behind another buffer's raw chunks, of which many come at once. This wait does not
 * count as decoding time: the next spill compresses them as before. */
START_TEST(restores_beside_raw_chunks_do_not_count_as_slow) {
    const struct sw_sim_data some = {
        .ratios = {3, 1}, .stripe_bytes = BUFFER_BYTES, .of_numbers = {[SW_CODEC_RFOR] = 1.3}};
    struct sw_sim_speed speed = sw_sim_idle_gpu;
    struct request out = {.end = MOST_BUFFERS, .bytes = {0, 0, 500 << 20}}, back = out;
    struct rig r;
    speed.encode[SW_CODEC_RFOR] = 2000e9;
    speed.decode[SW_CODEC_RFOR] = 100e9;
    rig_init(&r, &speed);
    sw_sim_set_data(r.device, &some);
    for (unsigned i = 1; i <= 12; i++) {
        (void)us_of(&r, &out, SW_OP_SPILL, 2 * i, NULL);
        (void)us_of(&r, &back, SW_OP_RESTORE, 2 * i + 1, &out);
        ck_assert_str_eq(sw_cost_reason_text(out.jobs[NUMBERS].run.outcome.reason),
                         sw_cost_reason_text(i == 1 ? SW_COST_UNKNOWN : SW_COST_PAYS));
        free_frames(&out);
    }
    rig_fini(&r);
}
END_TEST

/* Twenty requests beside others that keep the GPU busy (spill_never_slower.c has how busy); the time of the last ten.
 */
static double us_beside_others(bool plans_raw) {
    struct sw_sim_speed speed = sw_sim_idle_gpu;
    const struct sw_sim_data even = {
        .ratios = {3, 3}, .stripe_bytes = BUFFER_BYTES, .of_numbers = {[SW_CODEC_RFOR] = 3}, .plans_raw = plans_raw};
    struct request out = {.first = LOOSE, .end = MOST_BUFFERS, .bytes = {0, 128 << 20, 128 << 20}};
    struct rig r;
    double us = 0;
    speed.slowdown = 26.7;
    speed.encode[SW_CODEC_RFOR] = 900e9;
    speed.decode[SW_CODEC_RFOR] = 1200e9;
    rig_init(&r, &speed);
    sw_sim_set_data(r.device, &even);
    for (unsigned i = 1; i <= 20; i++) {
        const double request_us = us_of(&r, &out, SW_OP_SPILL, i, NULL);
        us += i > 10 ? request_us : 0;
        free_frames(&out);
    }
    rig_fini(&r);
    return us;
}

START_TEST(several_buffers_are_not_slower_than_raw_beside_others) {
    const double raw_us = us_beside_others(true), us = us_beside_others(false);
    ck_assert_msg(us <= 1.03 * raw_us, "%.2f of raw", us / raw_us);
}
END_TEST

/* The link does not wait for the plans of all buffers. */
START_TEST(chunks_go_beside_plans) {
    struct rig r;
    struct sw_job jobs[MANY] = {0};
    struct sw_buffer buffers[MANY];
    struct sw_run_memory mems[MANY] = {0};
    const struct sw_request request = {
        .operation = SW_OP_SPILL, .session = 1, .number = 7, .n_buffers = MANY, .buffers = buffers};
    struct sw_sim_speed speed = sw_sim_idle_gpu;
    speed.plan_us = 2000;
    rig_init(&r, &speed);
    for (unsigned i = 0; i < MANY; i++) {
        mems[i].once = true;
        buffers[i] =
            (struct sw_buffer){.memory = &mems[i], .offset = i * BUFFER_BYTES, .bytes = BUFFER_BYTES, .number = i + 1};
        sw_job_init_run(&jobs[i], &request, i);
        sw_mover_add(r.mover, &jobs[i].run);
    }
    while (sw_sim_counts(r.device).plans < MANY)
        step(&r);
    ck_assert_uint_gt(sw_sim_counts(r.device).encodes[SW_CODEC_V5T], MANY);
    finish(&r, MANY);
    for (unsigned i = 0; i < MANY; i++)
        sw_frames_free(jobs[i].run.frames);
    rig_fini(&r);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("order");
    TCase *tcase = tcase_create("all");
    tcase_add_test(tcase, johnsons_rule_gives_the_best_order);
    tcase_add_test(tcase, the_comparison_is_an_order);
    tcase_add_test(tcase, unknown_times_keep_the_order);
    tcase_add_test(tcase, both_stages_are_kept_busy);
    tcase_add_test(tcase, buffers_of_one_kind_follow_the_rule);
    tcase_add_test(tcase, a_short_buffer_is_compressed_beside_a_long_one);
    tcase_add_test(tcase, restores_beside_raw_chunks_do_not_count_as_slow);
    tcase_add_test(tcase, several_buffers_are_not_slower_than_raw_beside_others);
    tcase_add_test(tcase, chunks_go_beside_plans);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

/* Text gets the denser codec where regions go out faster by it, and never so that they take longer: in virtual time. */
#include "tests/lib/run.h"
#include "tests/lib/sim_streams.h"

struct dense_case {
    const char *name;
    double disk, slowdown; /* disk: bytes a second; 0: frames stay in memory */
    uint64_t bytes;
    unsigned n;
    double least_gain; /* in time, of all regions together, the dictionary's price included */
    bool is_dense;     /* most of them are */
    bool learns;       /* the GPU does */
};

static const struct dense_case cases[] = {
    {"memory", 0, 1, GIB, 30, 0.999, false, false},
    {"memory, the GPU learns, 8 GiB", 0, 1, 8 * GIB, 10, 1.4, true, true},
    {"memory, the GPU learns, 1 GiB", 0, 1, GIB, 30, 1.2, true, true},
    {"memory, the GPU learns, 256 MiB", 0, 1, 256 * MIB, 100, 1.2, true, true},
    {"memory, the GPU learns, 64 MiB", 0, 1, 64 * MIB, 400, 1.15, true, true},
    {"memory, the GPU learns, 16 MiB", 0, 1, 16 * MIB, 100, 0.999, false, true},
    {"memory, the GPU learns and is nearly full", 0, 150, 8 * GIB, 4, 0.99, false, true},
    {"a disk of 3 GB/s", 3 * GB, 1, GIB, 30, 1.38, true, false},
    {"a disk of 3 GB/s, 16 MiB", 3 * GB, 1, 16 * MIB, 200, 1.1, true, false},
    {"a store of 0.3 GB/s", 0.3 * GB, 1, 256 * MIB, 20, 1.3, true, false},
    {"a disk faster than the link", 200 * GB, 1, GIB, 30, 0.999, false, false},
    {"a disk of 3 GB/s, the GPU is nearly full", 3 * GB, 150, GIB, 20, 0.97, false, false},
};

/* Returns the time of all regions. gain: of the denser codec; 0: there is none. */
static double time_s(const struct dense_case *c, double gain, struct sw_sim_counts *ret) {
    struct sw_sim_speed speed = sw_sim_idle_gpu;
    struct sw_sim_data data = datas[TEXT];
    struct rig r;
    speed.slowdown = c->slowdown;
    data.dense_gain = gain;
    data.learns = c->learns;
    rig_open_on(&r, &speed, &data, c->disk);
    const double s = move_regions(&r, c->bytes, false, c->n);
    *ret = sw_sim_counts(r.device);
    rig_close(&r);
    return s;
}

START_TEST(text_is_denser_where_that_saves_time) {
    const struct dense_case *c = &cases[_i];
    struct sw_sim_counts counts, without;
    const double usual_s = time_s(c, 0, &without), s = time_s(c, 1.44, &counts);
    ck_assert_uint_eq(without.encodes[SW_CODEC_ONPAIR], 0);
    ck_assert_msg(usual_s > c->least_gain * s, "%s: %.3f times as fast, %u and %u frames", c->name, usual_s / s,
                  counts.encodes[SW_CODEC_V5T], counts.encodes[SW_CODEC_ONPAIR]);
    ck_assert_msg((counts.encodes[SW_CODEC_ONPAIR] > counts.encodes[SW_CODEC_V5T]) == c->is_dense,
                  "%s: %u and %u frames", c->name, counts.encodes[SW_CODEC_V5T], counts.encodes[SW_CODEC_ONPAIR]);
    ck_assert(c->is_dense || counts.encodes[SW_CODEC_ONPAIR] == 0);
}
END_TEST

struct cold_case {
    const char *name;
    double disk;
    uint64_t bytes;
    double least_gain;
    bool waits; /* all of its frames are by one plan */
    bool learns;
};

static const struct cold_case cold_cases[] = {
    {"2 GiB", 3 * GB, 2 * GIB, 1.2, false, false},   {"8 GiB", 3 * GB, 8 * GIB, 1.35, false, false},
    {"64 MiB", 3 * GB, 64 * MIB, 1, true, false},    {"a store of 0.3 GB/s", 0.3 * GB, 512 * MIB, 1.2, true, false},
    {"memory, 64 MiB", 0, 64 * MIB, 1, true, true},  {"memory, 256 MiB", 0, 256 * MIB, 1, true, true},
    {"memory, 1 GiB", 0, GIB, 1, true, true},        {"memory, 3 GiB", 0, 3 * GIB, 1.2, false, true},
    {"memory, 8 GiB", 0, 8 * GIB, 1.3, false, true},
};

/* A region of another session has shown the rates. */
static double cold_s(const struct cold_case *c, double gain, struct sw_sim_counts *ret) {
    struct sw_sim_data data = datas[TEXT];
    struct sw_one_run other;
    struct rig r;
    data.dense_gain = gain;
    data.learns = c->learns;
    rig_open_on(&r, &sw_sim_idle_gpu, &data, c->disk);
    sw_one_run_init(&other, SW_OP_SPILL, &r.mem, 256 * MIB, NULL);
    add(&r, &other, 2);
    (void)finish(&r, 1);
    sw_frames_free(other.job.run.frames);
    const struct sw_sim_counts before = sw_sim_counts(r.device);
    const double s = move_region(&r, c->bytes, false);
    *ret = sw_sim_counts(r.device);
    ret->encodes[SW_CODEC_V5T] -= before.encodes[SW_CODEC_V5T];
    rig_close(&r);
    return s;
}

/* A long region begins with the usual codec, learns meanwhile, and changes to the denser one. It waits where that takes
 * less time than the chunks would that go meanwhile. To memory no region waits, and a short one learns nothing. */
START_TEST(the_first_region_learns) {
    const struct cold_case *c = &cold_cases[_i];
    struct sw_sim_counts counts, without;
    const double usual_s = cold_s(c, 0, &without), s = cold_s(c, 1.44, &counts);
    ck_assert_msg(usual_s >= c->least_gain * s, "%s: %.3f times as fast, %u and %u frames", c->name, usual_s / s,
                  counts.encodes[SW_CODEC_V5T], counts.encodes[SW_CODEC_ONPAIR]);
    ck_assert_int_eq(counts.encodes[SW_CODEC_ONPAIR] > 0, c->least_gain > 1);
    ck_assert_int_eq(counts.encodes[SW_CODEC_V5T] > 0 && counts.encodes[SW_CODEC_ONPAIR] > 0, !c->waits);
}
END_TEST

struct turn_case {
    unsigned n_columns;
    bool by_lot; /* in no order */
    uint64_t bytes;
    double least_gain; /* of the second half of the regions; the first pays for learning, and may be slower by 3 % */
};

static const struct turn_case turn_cases[] = {
    {1, false, 256 * MIB, 1.3}, {2, false, 256 * MIB, 1.3}, {5, false, 256 * MIB, 1.3}, {16, false, 256 * MIB, 1.3},
    {3, false, GIB, 1.3},       {20, false, GIB, 0.98},     {3, true, GIB, 1.1},        {2, true, 256 * MIB, 0.97},
    {5, true, 256 * MIB, 0.98}, {20, true, 256 * MIB, 0.98}};

/* Returns the seconds that a session's regions take out and back, the first half of them and the second. */
static void turns_s(const struct turn_case *c, double gain, double ret_s[2]) {
    enum { N_REGIONS = 1000 };
    struct sw_sim_data data = datas[TEXT];
    struct rig r;
    unsigned random = 1;
    data.dense_gain = gain;
    data.learns = true;
    data.by_others = 1.6;
    rig_open_on(&r, &sw_sim_idle_gpu, &data, 0);
    ret_s[0] = ret_s[1] = 0;
    for (unsigned i = 0; i < N_REGIONS; i++) {
        random = random * 1664525u + 1013904223u;
        data.column = (c->by_lot ? random >> 16 : i) % c->n_columns;
        sw_sim_set_data(r.device, &data);
        ret_s[2 * i >= N_REGIONS] += move_region(&r, c->bytes, true);
    }
    rig_close(&r);
}

/* Columns of text take turns. A dictionary does little for another column than its own, and nobody knows whose turn it
 * is if they come in no order. */
START_TEST(each_column_gets_a_dictionary) {
    const struct turn_case *c = &turn_cases[_i];
    double usual_s[2], s[2];
    turns_s(c, 0, usual_s);
    turns_s(c, 1.44, s);
    ck_assert_double_le(s[0], MOST_SLOWER * usual_s[0]);
    ck_assert_msg(usual_s[1] >= c->least_gain * s[1], "%u columns, %u MiB: %.3f times as fast", c->n_columns,
                  (unsigned)(c->bytes / MIB), usual_s[1] / s[1]);
}
END_TEST

/* A run that is canceled while a slot learns ends when that slot has ended, and leaves nothing behind. */
START_TEST(a_region_is_canceled_while_it_learns) {
    struct sw_sim_data data = datas[TEXT];
    struct sw_one_run one;
    struct rig r;
    data.dense_gain = 1.44;
    rig_open_on(&r, &sw_sim_idle_gpu, &data, 3 * GB);
    (void)move_region(&r, 256 * MIB, false);
    sw_one_run_init(&one, SW_OP_SPILL, &r.mem, 8 * GIB, NULL);
    add(&r, &one, 1);
    while (one.job.run.course.learning != SW_LEARNING_UNDER_WAY)
        if (!sw_mover_step(r.mover, true))
            sw_sim_advance(r.device, NAP_NS);
    sw_mover_cancel(r.mover, &one.job.signals);
    (void)finish(&r, 1);
    ck_assert_int_eq(one.job.run.outcome.err.code, -SW_ECANCELED);
    ck_assert_double_lt(move_region(&r, 256 * MIB, false), 0.1);
    rig_close(&r);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("spill_dense");
    TCase *tcase = tcase_create("dense");
    tcase_add_loop_test(tcase, text_is_denser_where_that_saves_time, 0, N(cases));
    tcase_add_loop_test(tcase, the_first_region_learns, 0, N(cold_cases));
    tcase_add_loop_test(tcase, each_column_gets_a_dictionary, 0, N(turn_cases));
    tcase_add_test(tcase, a_region_is_canceled_while_it_learns);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

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
};

static const struct dense_case cases[] = {
    {"memory", 0, 1, GIB, 30, 0.999, false},
    {"a disk of 3 GB/s", 3 * GB, 1, GIB, 30, 1.35, true},
    {"a disk of 3 GB/s, 16 MiB", 3 * GB, 1, 16 * MIB, 200, 1.1, true},
    {"a store of 0.3 GB/s", 0.3 * GB, 1, 256 * MIB, 20, 1.3, true},
    {"a disk faster than the link", 200 * GB, 1, GIB, 30, 0.999, false},
    {"a disk of 3 GB/s, the GPU is nearly full", 3 * GB, 150, GIB, 20, 0.97, false},
};

/* Returns the time of all regions. gain: of the denser codec; 0: there is none. */
static double time_s(const struct dense_case *c, double gain, struct sw_sim_counts *ret) {
    struct sw_sim_speed speed = sw_sim_idle_gpu;
    struct sw_sim_data data = datas[TEXT];
    struct rig r;
    speed.slowdown = c->slowdown;
    data.dense_gain = gain;
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

int main(void) {
    Suite *suite = suite_create("spill_dense");
    TCase *tcase = tcase_create("dense");
    tcase_add_loop_test(tcase, text_is_denser_where_that_saves_time, 0, N(cases));
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

/* Compress or not: the decisions of the cost model for given rates. */
#include "spill/device/device.h"
#include "spill/planner/contention.h"
#include "spill/planner/cost.h"
#include "tests/lib/run.h"

#include <check.h>
#include <string.h>

#define GB 1e9
#define RAW SW_CODEC_RAW
#define V5T SW_CODEC_V5T

/* A long region. Raw frames are made and read by a copy that never decides. */
static struct sw_cost_question question_of(double ratio, double encode, double restore, double link) {
    return (struct sw_cost_question){.codec = SW_CODEC_V5T,
                                     .expected_ratio = ratio,
                                     .raw_bytes = (uint64_t)1 << 30,
                                     .n_chunks = 40,
                                     .n_slots = 4,
                                     .rates = {.encode = {2000 * GB, encode},
                                               .link_out = link,
                                               .restore = {link < 2000 * GB ? link : 2000 * GB, restore}}};
}

static void ck_choice(const struct sw_cost_question *q, enum sw_codec_id codec, enum sw_cost_reason reason) {
    struct sw_cost_answer answer;
    sw_cost_choose(q, &answer);
    ck_assert_msg(answer.reason == reason, "\"%s\", not \"%s\"", sw_cost_reason_text(answer.reason),
                  sw_cost_reason_text(reason));
    ck_assert_int_eq(answer.codec, codec);
}

START_TEST(test_numbers_of_the_design) {
    const struct {
        double ratio, encode, restore;
        bool is_short, to_disk;
        enum sw_codec_id codec;
        enum sw_cost_reason reason;
    } rows[] = {
        {3.00, 700, 165, false, false, V5T, SW_COST_PAYS},   {3.00, 700, 165, true, false, V5T, SW_COST_PAYS},
        {1.02, 700, 56, false, false, RAW, SW_COST_NO_GAIN}, {1.02, 700, 56, false, true, RAW, SW_COST_NO_GAIN},
        {3.00, 40, 165, false, false, V5T, SW_COST_PARTIAL}, /* a busy GPU: slower than the link, which takes the rest
                                                              */
        {3.00, 5, 165, false, false, RAW, SW_COST_ENCODER},  /* too slow even for that */
        {3.00, 40, 3, false, false, RAW, SW_COST_ENCODER},   /* nor would it be made up for on the way back */
        {3.00, 40, 165, false, true, V5T, SW_COST_PAYS},     /* but not than a disk */
        {3.00, 110, 165, false, false, V5T, SW_COST_PAYS},   /* the link is no bottleneck any more */
        {3.00, 60, 165, true, false, RAW, SW_COST_ENCODER},  /* one chunk: nothing overlaps */
        {3.00, 54, 165, false, false, V5T, SW_COST_PARTIAL}, /* as slow as raw: in part it is faster */
        {3.00, 2, 165, false, true, RAW, SW_COST_ENCODER},   {3.00, 700, 20, false, false, RAW, SW_COST_DECODER},
        {3.00, 700, 50, false, false, V5T, SW_COST_PAYS}, /* the gain of the spill makes up for it */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sw_cost_question q = question_of(rows[i].ratio, rows[i].encode * GB, rows[i].restore * GB, 55 * GB);
        if (rows[i].is_short)
            q.n_chunks = 1;
        q.to_disk = rows[i].to_disk;
        q.rates.disk_write = q.rates.disk_read = 3 * GB;
        ck_choice(&q, rows[i].codec, rows[i].reason);
    }
}
END_TEST

/* The rates of the codec that would be used count. */
START_TEST(test_each_codec_has_its_rates) {
    struct sw_cost_question q = question_of(3, 2 * GB, 165 * GB, 55 * GB);
    struct sw_cost_answer answer;
    ck_choice(&q, RAW, SW_COST_ENCODER);
    q.codec = SW_CODEC_DFOR;
    ck_choice(&q, SW_CODEC_DFOR, SW_COST_UNKNOWN);
    q.rates.encode[SW_CODEC_DFOR] = 1500 * GB;
    q.rates.restore[SW_CODEC_DFOR] = 165 * GB;
    ck_choice(&q, SW_CODEC_DFOR, SW_COST_PAYS);
    sw_cost_choose(&q, &answer);
    ck_assert_double_lt(answer.times[SW_CODEC_DFOR].out_s, answer.times[RAW].out_s);
    q.rates.encode[SW_CODEC_DFOR] = 2 * GB;
    ck_choice(&q, RAW, SW_COST_ENCODER);
    ck_assert(sw_cost_is_hopeless(&q, &answer));
}
END_TEST

/* A denser codec whose encoder cannot keep up gives way; not to one that saves no time, or only as much as noise. */
START_TEST(test_the_fastest_codec_may_have_a_lower_ratio) {
    struct sw_cost_question dense = question_of(4, 90 * GB, 165 * GB, 55 * GB), loose = dense;
    loose.codec = SW_CODEC_DFOR;
    loose.expected_ratio = 3;
    ck_assert(sw_cost_is_quicker(&loose, &dense)); /* not measured yet: it is given its chance */
    ck_assert(!sw_cost_is_quicker(&dense, &loose));
    loose.rates.encode[SW_CODEC_DFOR] = 1500 * GB;
    loose.rates.restore[SW_CODEC_DFOR] = 150 * GB;
    dense.rates = loose.rates;
    ck_assert(sw_cost_is_quicker(&loose, &dense));
    ck_assert(!sw_cost_is_quicker(&dense, &loose));
    dense.rates.restore[SW_CODEC_V5T] = loose.rates.restore[SW_CODEC_V5T] = 2000 * GB; /* made up for on the way back */
    ck_assert(!sw_cost_is_quicker(&loose, &dense));
    dense.rates.restore[SW_CODEC_V5T] = loose.rates.restore[SW_CODEC_V5T] = 165 * GB;
    dense.rates.encode[SW_CODEC_V5T] = loose.rates.encode[SW_CODEC_V5T] = 164 * GB;
    ck_assert(!sw_cost_is_quicker(&loose, &dense));
    dense.rates.encode[SW_CODEC_V5T] = loose.rates.encode[SW_CODEC_V5T] = 0;
    ck_assert(!sw_cost_is_quicker(&loose, &dense)); /* of the denser one nothing is known */
    dense.rates.encode[SW_CODEC_V5T] = loose.rates.encode[SW_CODEC_V5T] = 164 * GB;
    dense.rates.restore[SW_CODEC_V5T] = loose.rates.restore[SW_CODEC_V5T] = 20 * GB;
    dense.rates.restore[SW_CODEC_DFOR] = loose.rates.restore[SW_CODEC_DFOR] = 0;
    ck_assert(!sw_cost_is_quicker(&loose, &dense)); /* an unknown rate of one restore path counts for neither */
}
END_TEST

/* During a spill only a clear gain counts, because few chunks have been measured. */
START_TEST(test_running_compression_stops_only_for_a_clear_gain) {
    const struct {
        double encode;
        uint64_t raw_bytes;
        enum sw_cost_reason reason;
        bool stops;
    } rows[] = {{700, (uint64_t)1 << 30, SW_COST_PAYS, false},
                {60, (uint64_t)1 << 30, SW_COST_PARTIAL, false},
                {40, (uint64_t)1 << 30, SW_COST_PARTIAL, true},
                {50, 80000000, SW_COST_ENCODER, false},
                {30, 80000000, SW_COST_ENCODER, true}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sw_cost_question q = question_of(3, rows[i].encode * GB, 165 * GB, 55 * GB);
        struct sw_cost_answer answer;
        q.raw_bytes = rows[i].raw_bytes;
        const bool stops = sw_cost_stops_paying(&q, &answer);
        ck_assert_msg(answer.reason == rows[i].reason, "%g GB/s: \"%s\"", rows[i].encode,
                      sw_cost_reason_text(answer.reason));
        ck_assert_msg(stops == rows[i].stops, "%g GB/s: %d", rows[i].encode, stops);
    }
}
END_TEST

START_TEST(test_times_are_those_of_the_slowest_stage) {
    struct sw_cost_question q = question_of(3, 700 * GB, 165 * GB, 55 * GB);
    struct sw_cost_answer answer;
    q.n_chunks = UINT32_MAX;
    sw_cost_choose(&q, &answer);
    ck_assert_double_eq_tol(answer.times[RAW].out_s, (double)q.raw_bytes / (55 * GB), 1e-6);
    ck_assert_double_eq_tol(answer.times[V5T].out_s, (double)q.raw_bytes / (165 * GB), 1e-6);
    ck_assert_double_eq_tol(answer.times[V5T].back_s, (double)q.raw_bytes / (165 * GB), 1e-6);
    q.n_chunks = 1;
    sw_cost_choose(&q, &answer);
    ck_assert_double_eq_tol(answer.times[V5T].out_s, (double)q.raw_bytes * (1 / (165 * GB) + 1 / (700 * GB)), 1e-6);
}
END_TEST

/* Written on the way out and read on the way back, each at its own rate. Frames cross as long as they are stored. */
START_TEST(test_a_disk_is_a_stage_of_spills_and_restores) {
    struct sw_cost_question q = question_of(3, 700 * GB, 165 * GB, 55 * GB);
    struct sw_cost_answer answer;
    q.n_chunks = UINT32_MAX;
    q.to_disk = true;
    q.rates.disk_write = 3 * GB;
    q.rates.disk_read = 6 * GB;
    sw_cost_choose(&q, &answer);
    ck_assert_double_eq_tol(answer.times[RAW].out_s, (double)q.raw_bytes / (3 * GB), 1e-6);
    ck_assert_double_eq_tol(answer.times[RAW].back_s, (double)q.raw_bytes / (6 * GB), 1e-6);
    ck_assert_double_eq_tol(answer.times[V5T].out_s, (double)q.raw_bytes / (9 * GB), 1e-6);
    ck_assert_double_eq_tol(answer.times[V5T].back_s, (double)q.raw_bytes / (18 * GB), 1e-6);
    q.raw_bytes = 80000000; /* by kernels, not directly */
    sw_cost_choose(&q, &answer);
    ck_assert_double_eq_tol(answer.times[RAW].back_s, (double)q.raw_bytes / (6 * GB), 1e-6);
}
END_TEST

/* A decoder that is slower than the disk loses time, but only once it is known how fast the disk reads. */
START_TEST(test_a_restore_from_disk_is_estimated_by_its_read_rate) {
    struct sw_cost_question q = question_of(3, 700 * GB, 1 * GB, 55 * GB);
    q.to_disk = true;
    q.rates.disk_write = q.rates.disk_read = 3 * GB;
    ck_choice(&q, RAW, SW_COST_DECODER);
    q.rates.disk_read = 0;
    ck_choice(&q, V5T, SW_COST_PAYS);
    q.rates.disk_read = 3 * GB;
    q.rates.disk_write = 0;
    ck_choice(&q, V5T, SW_COST_UNKNOWN);
}
END_TEST

/* A GPU that others keep busy: kernels have become slow, copies have not. */
START_TEST(test_beside_a_busy_gpu_raw_bytes_go_directly) {
    struct sw_cost_question q = question_of(3, 30 * GB, 40 * GB, 55 * GB);
    struct sw_cost_answer answer;
    q.raw_bytes = 80000000;
    sw_cost_choose(&q, &answer);
    ck_assert(answer.codec == RAW && answer.reason == SW_COST_ENCODER && !answer.direct); /* raw kernels are fast */
    q.rates.encode[RAW] = 30 * GB;
    ck_choice(&q, RAW, SW_COST_ENCODER); /* compressing is compared with the direct path */
    sw_cost_choose(&q, &answer);
    ck_assert(answer.direct);
    ck_assert_double_eq_tol(answer.times[RAW].out_s, (double)q.raw_bytes / (55 * GB), 1e-3);
    q.expected_ratio = 1;
    sw_cost_choose(&q, &answer);
    ck_assert(answer.reason == SW_COST_NO_GAIN && answer.direct);
    q.rates.direct_out = 29 * GB; /* the CPU is no faster */
    sw_cost_choose(&q, &answer);
    ck_assert(!answer.direct);
    q.raw_bytes = 90000000; /* a kernel hashes it beside its copies */
    sw_cost_choose(&q, &answer);
    ck_assert(answer.direct);
}
END_TEST

/* A long region that would lose time if all of it were compressed gains some if it is partially compressed: the
 * encoder's share relieves the link. */
START_TEST(test_partial_compression_gains_what_the_encoder_manages) {
    const struct sw_cost_question part = question_of(3, 40 * GB, 165 * GB, 55 * GB);
    struct sw_cost_answer answer;
    struct sw_cost_question q = part;
    sw_cost_choose(&q, &answer);
    ck_assert(answer.codec == V5T && answer.reason == SW_COST_PARTIAL && answer.direct);
    ck_assert_double_lt(answer.times[V5T].out_s, answer.times[RAW].out_s / 1.1);
    ck_assert_double_gt(answer.times[V5T].out_s, answer.times[RAW].out_s / 1.4);
    ck_assert_double_lt(answer.times[V5T].back_s, answer.times[RAW].back_s);
    q.plan_s = 0.9 * (answer.times[RAW].out_s - answer.times[V5T].out_s);
    ck_assert(!sw_cost_is_hopeless(&q, &answer));
    q.plan_s *= 1.2; /* more than is won */
    ck_assert(sw_cost_is_hopeless(&q, &answer));
    q = part;
    q.n_chunks = 8;
    ck_choice(&q, RAW, SW_COST_ENCODER);
    q = part;
    q.raw_bytes = 80000000;
    ck_choice(&q, RAW, SW_COST_ENCODER);
    q = part;
    q.room_is_short = true;
    ck_choice(&q, V5T, SW_COST_ROOM);
    q = part;
    q.rates.encode[V5T] = 400 * GB; /* all of it saves more */
    ck_choice(&q, V5T, SW_COST_PAYS);
}
END_TEST

/* A step takes as long as one kernel hashes, for regions of any length. */
START_TEST(test_steps_beside_compressed_chunks_are_short) {
    struct sw_cost_direct region = {
        .raw_bytes = (uint64_t)4 << 30, .n_chunks = 160, .n_slots = 4, .is_alone = true, .is_mixed = true};
    ck_assert_uint_eq(sw_cost_direct_chunks(&region), 5);
    region.n_chunks = 4000;
    ck_assert_uint_eq(sw_cost_direct_chunks(&region), 16);
    region.is_alone = false;
    ck_assert_uint_eq(sw_cost_direct_chunks(&region), 4);
}
END_TEST

START_TEST(test_raw_bytes_come_back_directly_where_that_is_faster) {
    struct sw_cost_rates rates = {.link_out = 55 * GB};
    ck_assert(!sw_cost_restores_directly(&rates)); /* nothing is known of the kernels */
    rates.restore[RAW] = 54 * GB;
    ck_assert(!sw_cost_restores_directly(&rates)); /* nor are they slower to speak of */
    rates.restore[RAW] = 40 * GB;
    ck_assert(sw_cost_restores_directly(&rates));
    rates.direct_back = 35 * GB;
    ck_assert(!sw_cost_restores_directly(&rates));
}
END_TEST

START_TEST(test_a_plan_that_cannot_pay_is_not_made) {
    struct sw_cost_question q = question_of(8, 8 * GB, 165 * GB, 55 * GB);
    struct sw_cost_answer answer;
    ck_assert(sw_cost_is_hopeless(&q, &answer));
    ck_assert_int_eq(answer.codec, RAW);
    q.room_is_short = true;
    ck_assert(!sw_cost_is_hopeless(&q, &answer));
    q.room_is_short = false;
    q.rates.encode[V5T] = 0;
    ck_assert(!sw_cost_is_hopeless(&q, &answer));
    q.rates.encode[V5T] = 100 * GB;
    ck_assert(!sw_cost_is_hopeless(&q, &answer));
    q.plan_s = (double)q.raw_bytes / (55 * GB); /* as long as all of it raw */
    ck_assert(sw_cost_is_hopeless(&q, &answer));
    ck_assert_int_eq(answer.codec, RAW);
    q.room_is_short = true;
    ck_assert(!sw_cost_is_hopeless(&q, &answer));
    q = question_of(1, 100 * GB, 165 * GB, 55 * GB);
    ck_assert(sw_cost_is_hopeless(&q, &answer));
    ck_assert_int_eq(answer.reason, SW_COST_NO_GAIN);
    q = question_of(8, 700 * GB, 20 * GB, 55 * GB);
    ck_assert(sw_cost_is_hopeless(&q, &answer));
    ck_assert_int_eq(answer.reason, SW_COST_DECODER);
}
END_TEST

START_TEST(test_kernels_are_probed_now_and_then) {
    struct sw_cost_class c = {.encode = {[RAW] = {.bytes = 50, .us = 1}},
                              .restore = {[RAW] = {.bytes = 5, .us = 1}},
                              .direct_out = {.bytes = 50, .us = 1},
                              .direct_back = {.bytes = 50, .us = 1}};
    unsigned n_out = 0, n_back = 0;
    for (int i = 0; i < 10000; i++)
        n_out += sw_cost_probe_kernels_out(&c, 1 << 20, 1 << 20); /* takes twice as long */
    ck_assert_uint_ge(n_out, 49);
    ck_assert_uint_le(n_out, 50);
    for (int i = 0; i < 10000; i++)
        n_back += sw_cost_probe_kernels_back(&c, 1 << 20, 1 << 20); /* ten times */
    ck_assert_uint_ge(n_back, 9);
    ck_assert_uint_le(n_back, 10);
}
END_TEST

/* Probes take 1 % of the time; if a probe costs nothing, one region in ten is probed. */
START_TEST(test_the_direct_path_is_probed_now_and_then) {
    struct sw_cost_class slow = {.restore = {[RAW] = {.bytes = 50, .us = 1}}, .direct_back = {.bytes = 25, .us = 1}},
                         like = {.restore = {[RAW] = {.bytes = 50, .us = 1}}, .direct_back = {.bytes = 50, .us = 1}};
    unsigned n_slow = 0, n_like = 0;
    for (int i = 0; i < 1000; i++) {
        n_slow += sw_cost_probe_direct_back(&slow, 64 << 20);
        slow.direct_back.is_old = false;
        n_like += sw_cost_probe_direct_back(&like, 64 << 20);
    }
    ck_assert_uint_ge(n_slow, 9);
    ck_assert_uint_le(n_slow, 10);
    ck_assert_uint_ge(n_like, 90);
    ck_assert_uint_le(n_like, 100);
    ck_assert(like.direct_back.is_old);
    struct sw_cost_class unknown = {0}; /* kernels come first */
    ck_assert(!sw_cost_probe_direct_back(&unknown, 64 << 20));
}
END_TEST

/* Probes of all kinds together take 1 % of the time. The expensive one gets its turn beside the cheap ones, and one
 * that is no longer asked for delays none. */
START_TEST(test_one_budget_pays_for_all_probes) {
    const double costs_s[SW_PROBE_NR] = {0.5, 0.001, 0.01, 0.002};
    struct sw_probe_budget budget = {0};
    unsigned n_made[SW_PROBE_NR] = {0};
    double taken_s = 0, spent_s = 0;
    for (int i = 0; i < 40000; i++) {
        const enum sw_probe probe = (enum sw_probe)(i % SW_PROBE_NR);
        taken_s += 0.01;
        if (!sw_probe_is_due(&budget, probe, 0.01, costs_s[probe]))
            continue;
        n_made[probe]++;
        spent_s += costs_s[probe];
        ck_assert_double_le(spent_s, 0.01 * taken_s * 1.0001);
    }
    for (int probe = 0; probe < SW_PROBE_NR; probe++)
        ck_assert_uint_ge(n_made[probe], 7); /* all of it, 4 s, in rounds of 0.513 s */
    (void)sw_probe_is_due(&budget, SW_PROBE_ENCODING, 0, 1e9);
    for (int i = 0; i < 1000; i++)
        n_made[SW_PROBE_LINK] += sw_probe_is_due(&budget, SW_PROBE_LINK, 1, 0.001);
    ck_assert_uint_ge(n_made[SW_PROBE_LINK], 900);
}
END_TEST

/* Frames of long regions never come back by kernels, but the gain of compressing on the restore path is still known. */
START_TEST(test_the_direct_rate_suffices_for_the_restore_path) {
    struct sw_cost_question q = question_of(8, 700 * GB, 20 * GB, 55 * GB);
    q.rates.restore[RAW] = 0;
    q.rates.direct_back = 55 * GB;
    ck_choice(&q, RAW, SW_COST_DECODER);
    q.rates.direct_back = 25 * GB;
    q.rates.restore[RAW] = 55 * GB; /* of short regions */
    ck_choice(&q, V5T, SW_COST_PAYS);
}
END_TEST

static struct sw_cost_direct direct_of(uint64_t raw_bytes, size_t n_chunks, bool is_back) {
    return (struct sw_cost_direct){
        .raw_bytes = raw_bytes, .n_chunks = n_chunks, .n_slots = 4, .is_back = is_back, .is_alone = true};
}

START_TEST(test_direct_steps_are_long_and_alike) {
    struct sw_cost_direct region = direct_of(1000000000, 37, false);
    ck_assert_uint_eq(sw_cost_direct_chunks(&region), 10); /* one for each slot */
    region.n_chunks = 65;                                  /* two: 9 * 8 */
    ck_assert_uint_eq(sw_cost_direct_chunks(&region), 9);
    region.n_chunks = 10000;
    ck_assert_uint_le(sw_cost_direct_chunks(&region), SW_RAW_MAX);
    region.is_alone = false;
    ck_assert_uint_le(sw_cost_direct_chunks(&region), 4);
    region = direct_of(50000000, 8, false); /* the CPU's */
    ck_assert_uint_eq(sw_cost_direct_chunks(&region), 1);
    region.is_back = true;
    ck_assert_uint_eq(sw_cost_direct_chunks(&region), 2);
}
END_TEST

START_TEST(test_the_cpu_hashes_if_kernels_are_too_late) {
    struct sw_cost_direct out = direct_of(1000000000, 40, false), back = direct_of(1000000000, 40, true);
    ck_assert_uint_eq(sw_cost_chunks_by_cpu(&out, 30, 10), 0); /* kernels begin with the copies */
    ck_assert_uint_eq(sw_cost_chunks_by_cpu(&back, 0, 10), 0);
    ck_assert_uint_eq(sw_cost_chunks_by_cpu(&back, 30, 10), 5); /* 115 MB */
    ck_assert_uint_eq(sw_cost_chunks_by_cpu(&back, 38, 2), 2);
    ck_assert_uint_eq(sw_cost_chunks_by_cpu(&back, 34, 3), 2); /* and 3 chunks behind it */
    out.raw_bytes = back.raw_bytes = 80000000;
    ck_assert_uint_eq(sw_cost_chunks_by_cpu(&out, 0, 1), 1);
    ck_assert_uint_eq(sw_cost_chunks_by_cpu(&back, 0, 1), 1);
    out.raw_bytes = back.raw_bytes = 100000000;
    ck_assert_uint_eq(sw_cost_chunks_by_cpu(&out, 0, 10), 0);
    ck_assert_uint_eq(sw_cost_chunks_by_cpu(&back, 0, 1), 1);
}
END_TEST

/* A frame among direct copies crosses slowly; the rate of the link stays the same. */
START_TEST(test_the_link_is_at_least_as_fast_as_direct_steps) {
    struct sw_cost_class c = {.link_out = {.bytes = 10, .us = 1}, .direct_out = {.bytes = 50, .us = 1}};
    struct sw_cost_rates rates;
    sw_cost_class_rates(&c, &rates);
    ck_assert_double_eq_tol(rates.link_out, 50e6, 1);
    c.link_out.bytes = 55;
    sw_cost_class_rates(&c, &rates);
    ck_assert_double_eq_tol(rates.link_out, 55e6, 1);
}
END_TEST

START_TEST(test_unknown_rates_decide_nothing) {
    struct sw_cost_question q = question_of(3, 2 * GB, 165 * GB, 55 * GB);
    ck_choice(&q, RAW, SW_COST_ENCODER);
    q.to_disk = true;
    ck_choice(&q, V5T, SW_COST_UNKNOWN);
    q.to_disk = false;
    q.rates.encode[V5T] = 0;
    ck_choice(&q, V5T, SW_COST_UNKNOWN);
    q = question_of(3, 700 * GB, 2 * GB, 55 * GB);
    ck_choice(&q, RAW, SW_COST_DECODER);
    q.rates.restore[RAW] = 0; /* then the way out decides alone */
    ck_choice(&q, V5T, SW_COST_PAYS);
    q.rates.link_out = 0;
    ck_choice(&q, V5T, SW_COST_UNKNOWN);
}
END_TEST

START_TEST(test_short_regions_and_short_room) {
    struct sw_cost_question q = question_of(3, 2 * GB, 165 * GB, 55 * GB);
    q.room_is_short = true;
    ck_choice(&q, V5T, SW_COST_ROOM);
    q.expected_ratio = 1.02;
    ck_choice(&q, RAW, SW_COST_NO_GAIN);
    q = question_of(3, 2 * GB, 165 * GB, 55 * GB);
    q.raw_bytes = SW_COST_MIN_BYTES - 1;
    q.n_chunks = 1;
    ck_choice(&q, V5T, SW_COST_SHORT);
    q.raw_bytes++;
    ck_choice(&q, RAW, SW_COST_ENCODER);
}
END_TEST

START_TEST(test_reasons_fit_into_their_field) {
    for (int reason = 0; reason < SW_COST_REASON_NR; reason++)
        ck_assert_uint_lt(strlen(sw_cost_reason_text((enum sw_cost_reason)reason)), 32);
}
END_TEST

/* Chunks that were not compressed pay for probes, which never take more than 1 %. */
START_TEST(test_probes_are_rare) {
    const struct {
        double encode;
        uint64_t n_chunks;
        int after;
    } rows[] = {{40 * GB, 15, 2}, {25 * GB, 1, 78}, {5 * GB, 1, 558}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sw_cost_question q = question_of(3, rows[i].encode, 165 * GB, 55 * GB);
        struct sw_cost_class class = {0};
        struct sw_cost_answer answer;
        int n = 1;
        q.n_chunks = rows[i].n_chunks;
        sw_cost_choose(&q, &answer);
        ck_assert_int_eq(answer.reason, SW_COST_ENCODER);
        for (int turn = 0; turn < 3; turn++, n = 1) {
            while (!sw_cost_probe_encoding(&class, &q, &answer))
                n++;
            const double extra =
                answer.times[V5T].out_s + answer.times[V5T].back_s - answer.times[RAW].out_s - answer.times[RAW].back_s;
            ck_assert_double_le(extra / (double)q.n_chunks,
                                0.01 * n * (answer.times[RAW].out_s + answer.times[RAW].back_s) * 1.0001);
            ck_assert_int_le(n, rows[i].after);
            /* Old measurements are not averaged with new ones, in neither direction. */
            ck_assert(class.encode[V5T].is_old && class.restore[V5T].is_old);
            class.encode[V5T].is_old = class.restore[V5T].is_old = false;
        }
    }
}
END_TEST

/* A partial probe takes several chunks, and the budget pays for them. There is none if only the decoder is slow, or if
 * a direct step takes all chunks. */
START_TEST(test_partial_probes) {
    const struct {
        double encode, restore;
        uint64_t raw_bytes, n_chunks;
        bool in_part;
    } rows[] = {{5 * GB, 165 * GB, (uint64_t)1 << 30, 40, true},
                {5 * GB, 165 * GB, (uint64_t)1 << 28, 10, true},
                {5 * GB, 165 * GB, (uint64_t)96 << 20, 8, false},
                {700 * GB, 20 * GB, (uint64_t)1 << 30, 40, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sw_cost_question q = question_of(3, rows[i].encode, rows[i].restore, 55 * GB);
        struct sw_cost_class class = {0};
        struct sw_cost_answer answer;
        double n = 1;
        q.raw_bytes = rows[i].raw_bytes;
        q.n_chunks = rows[i].n_chunks;
        sw_cost_choose(&q, &answer);
        ck_assert_int_eq(answer.codec, RAW);
        ck_assert_int_eq(sw_contention_probes_partially(&q, answer.reason == SW_COST_ENCODER), rows[i].in_part);
        while (!sw_cost_probe_encoding(&class, &q, &answer))
            n++;
        const double raw_s = answer.times[RAW].out_s + answer.times[RAW].back_s,
                     extra_s = answer.times[V5T].out_s + answer.times[V5T].back_s - raw_s;
        ck_assert_double_ge(0.01 * n * raw_s * 1.0001, (rows[i].in_part ? 3 : 1) * extra_s / (double)q.n_chunks);
    }
}
END_TEST

/* The link is probed at a quarter of the usual share of the time, and its old rate then does not count any more. */
START_TEST(test_a_probe_of_the_link_replaces_its_rate) {
    struct sw_probe_budget budget = {0};
    struct sw_meter direct_out = {.bytes = 55 * GB, .us = 1e6};
    for (int n = 1; n < 40; n++) {
        ck_assert(!sw_contention_probes_link(&budget, &direct_out, 1, 1.1));
        ck_assert(!direct_out.is_old);
    }
    for (int n = 0; n < 2 && !direct_out.is_old; n++)
        ck_assert_int_eq(sw_contention_probes_link(&budget, &direct_out, 1, 1.1), direct_out.is_old);
    ck_assert(direct_out.is_old);
}
END_TEST

/* Time saved for tries is never lost by a try that has won, and what a win gains is not added to it. */
START_TEST(test_a_win_fills_the_budget_of_tries) {
    struct sw_replan_budget budget = {.saved_s = 2};
    sw_replan_try_won(&budget, 1);
    ck_assert_double_eq(budget.saved_s, 2);
    sw_replan_try_won(&budget, 3);
    ck_assert_double_eq(budget.saved_s, 3);
}
END_TEST

/* Plans that were dropped before they were worth their price make the next one twice as dear each, up to 64 times; one
 * that was worth it ends that. */
START_TEST(test_wasted_plans_make_the_next_one_dearer) {
    struct sw_replan_budget budget = {0};
    for (unsigned wasted = 0; wasted < 9; wasted++) {
        const double price = (double)(1u << (wasted < 6 ? wasted : 6));
        ck_assert(!sw_replan_add_regret(&budget, false, price - 0.5));
        ck_assert(sw_replan_add_regret(&budget, false, 0.5));
        sw_replan_planned(&budget);
        sw_replan_plan_wasted(&budget);
    }
    sw_replan_plan_paid(&budget);
    ck_assert(sw_replan_add_regret(&budget, false, 1));
}
END_TEST

/* A buffer of a table: one of the slots at a time encodes and decodes by its codec, the others work for other buffers.
 */
START_TEST(test_buffers_of_a_request_share_the_slots) {
    struct sw_cost_question q = question_of(6, 38 * GB, 165 * GB, 55 * GB),
                            slow_back = question_of(6, 700 * GB, 24 * GB, 55 * GB);
    q.n_chunks = slow_back.n_chunks = 8;
    q.raw_bytes = slow_back.raw_bytes = 60000000;
    ck_choice(&q, RAW, SW_COST_ENCODER); /* true for a region that has the slots for itself */
    ck_choice(&slow_back, RAW, SW_COST_DECODER);
    sw_cost_share_slots(&q);
    sw_cost_share_slots(&slow_back);
    ck_choice(&q, V5T, SW_COST_PAYS);
    ck_choice(&slow_back, V5T, SW_COST_PAYS);
    q.codec = RAW; /* how fast raw chunks go is known of all slots */
    q.rates.encode[RAW] = 38 * GB;
    sw_cost_share_slots(&q);
    ck_assert_double_eq(q.rates.encode[RAW], 38 * GB);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cost");
    TCase *tcase = tcase_create("cost");
    tcase_add_test(tcase, test_numbers_of_the_design);
    tcase_add_test(tcase, test_each_codec_has_its_rates);
    tcase_add_test(tcase, test_the_fastest_codec_may_have_a_lower_ratio);
    tcase_add_test(tcase, test_running_compression_stops_only_for_a_clear_gain);
    tcase_add_test(tcase, test_times_are_those_of_the_slowest_stage);
    tcase_add_test(tcase, test_a_disk_is_a_stage_of_spills_and_restores);
    tcase_add_test(tcase, test_a_restore_from_disk_is_estimated_by_its_read_rate);
    tcase_add_test(tcase, test_beside_a_busy_gpu_raw_bytes_go_directly);
    tcase_add_test(tcase, test_partial_compression_gains_what_the_encoder_manages);
    tcase_add_test(tcase, test_steps_beside_compressed_chunks_are_short);
    tcase_add_test(tcase, test_raw_bytes_come_back_directly_where_that_is_faster);
    tcase_add_test(tcase, test_a_plan_that_cannot_pay_is_not_made);
    tcase_add_test(tcase, test_kernels_are_probed_now_and_then);
    tcase_add_test(tcase, test_the_direct_path_is_probed_now_and_then);
    tcase_add_test(tcase, test_one_budget_pays_for_all_probes);
    tcase_add_test(tcase, test_the_direct_rate_suffices_for_the_restore_path);
    tcase_add_test(tcase, test_direct_steps_are_long_and_alike);
    tcase_add_test(tcase, test_the_cpu_hashes_if_kernels_are_too_late);
    tcase_add_test(tcase, test_the_link_is_at_least_as_fast_as_direct_steps);
    tcase_add_test(tcase, test_unknown_rates_decide_nothing);
    tcase_add_test(tcase, test_short_regions_and_short_room);
    tcase_add_test(tcase, test_reasons_fit_into_their_field);
    tcase_add_test(tcase, test_probes_are_rare);
    tcase_add_test(tcase, test_partial_probes);
    tcase_add_test(tcase, test_a_probe_of_the_link_replaces_its_rate);
    tcase_add_test(tcase, test_a_win_fills_the_budget_of_tries);
    tcase_add_test(tcase, test_wasted_plans_make_the_next_one_dearer);
    tcase_add_test(tcase, test_buffers_of_a_request_share_the_slots);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

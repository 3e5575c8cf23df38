/* The next step of a run, and the tiers for its frames, as tables of snapshots. */
#include "spill/planner/planner.h"
#include "tests/lib/run.h"

#include <check.h>

#define MIB ((uint64_t)1 << 20)
enum { N_CHUNKS = 32 };
#define CHUNK_BYTES (16 * MIB)

struct step_case {
    const char *name;
    struct sw_course course;
    struct sw_snapshot now; /* lengths are those above */
    enum sw_step step;
};

static struct sw_plan v5t = {.codec = SW_CODEC_V5T}, raw = {.codec = SW_CODEC_RAW};

static const struct step_case cases[] = {
    {"no plan yet", {.plan_state = SW_PLAN_STATE_MISSING}, {.is_running = true}, SW_STEP_PLAN},
    {"a plan is being made", {.plan_state = SW_PLAN_STATE_MISSING}, {.is_running = false}, SW_STEP_ENCODE},
    {"a plan is being made, others go", {.is_mixed = true}, {.is_running = false}, SW_STEP_COPY},
    {"by its plan", {.plan_state = SW_PLAN_STATE_SETTLED, .plan = &v5t}, {.is_running = true}, SW_STEP_ENCODE},
    {"raw, by kernels", {.plan_state = SW_PLAN_STATE_SETTLED, .plan = &raw}, {.is_running = true}, SW_STEP_ENCODE},
    {"raw, long, directly",
     {.plan_state = SW_PLAN_STATE_SETTLED, .plan = &raw, .is_direct = true},
     {.is_running = true},
     SW_STEP_COPY},
    {"in part, and no slot copies",
     {.plan_state = SW_PLAN_STATE_SETTLED, .plan = &v5t, .is_mixed = true},
     {.is_running = true},
     SW_STEP_COPY},
    {"in part, and a slot copies",
     {.plan_state = SW_PLAN_STATE_SETTLED, .plan = &v5t, .is_mixed = true},
     {.is_running = true, .has_copying = true},
     SW_STEP_ENCODE},
    {"a pack never copies",
     {.plan_state = SW_PLAN_STATE_SETTLED, .plan = &raw, .is_direct = true},
     {.is_running = true, .is_pack = true},
     SW_STEP_ENCODE},
    {"nothing is left", {.plan_state = SW_PLAN_STATE_MISSING}, {.is_running = true, .n_dealt = N_CHUNKS}, SW_STEP_WAIT},
};

START_TEST(a_step_follows_from_the_snapshot) {
    static struct sw_planner planner = {.n_slots = 4, .has_link = true};
    const struct step_case *c = &cases[_i];
    struct sw_snapshot now = c->now;
    now.n_chunks = N_CHUNKS;
    now.chunk_bytes = CHUNK_BYTES;
    now.raw_bytes = N_CHUNKS * CHUNK_BYTES;
    const enum sw_step step = sw_planner_next_step(&planner, &c->course, &now, 4 * CHUNK_BYTES);
    ck_assert_msg(step == c->step, "%s: step %d, not %d", c->name, (int)step, (int)c->step);
}
END_TEST

/* Raw frames come back directly if they are many, or without a link; and all steps of a region the same way. */
START_TEST(a_restore_path_is_chosen_once) {
    static struct sw_planner planner = {.n_slots = 4, .has_link = true};
    struct sw_snapshot now = {.n_chunks = N_CHUNKS, .chunk_bytes = CHUNK_BYTES, .raw_bytes = N_CHUNKS * CHUNK_BYTES};
    struct sw_course course = {0};
    ck_assert_int_eq(sw_planner_next_step_back(&planner, &course, &now, CHUNK_BYTES, CHUNK_BYTES), SW_STEP_COPY);
    now.raw_bytes = CHUNK_BYTES;
    now.n_chunks = 1;
    course = (struct sw_course){0};
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(sw_planner_next_step_back(&planner, &course, &now, CHUNK_BYTES, CHUNK_BYTES), SW_STEP_ENCODE);
        planner.has_link = false;
    }
    course = (struct sw_course){0};
    ck_assert_int_eq(sw_planner_next_step_back(&planner, &course, &now, CHUNK_BYTES, CHUNK_BYTES), SW_STEP_COPY);
}
END_TEST

/* ---- what has been measured ---- */

#define GB 1e9

/* An idle link of 55 GB/s, and an encoder and a decoder. */
static void measure(struct sw_planner *p, double encode, double restore) {
    *p = (struct sw_planner){.n_slots = 4, .has_link = true};
    for (int i = 0; i < SW_COST_CLASSES; i++) {
        struct sw_cost_class *c = &p->costs[i];
        c->encode[SW_CODEC_RAW] = (struct sw_meter){.bytes = 2000 * GB, .us = 1e6};
        c->encode[SW_CODEC_V5T] = (struct sw_meter){.bytes = encode, .us = 1e6};
        c->restore[SW_CODEC_V5T] = (struct sw_meter){.bytes = restore, .us = 1e6};
        c->restore[SW_CODEC_RAW] = c->link_out = c->direct_out = c->direct_back =
            (struct sw_meter){.bytes = 55 * GB, .us = 1e6};
    }
}

/* A spill under way by a plan that promises a third, with room for all of it. */
static struct sw_snapshot spill_of(size_t n_chunks, size_t n_dealt) {
    return (struct sw_snapshot){.is_running = true,
                                .n_chunks = n_chunks,
                                .chunk_bytes = CHUNK_BYTES,
                                .raw_bytes = n_chunks * CHUNK_BYTES,
                                .n_dealt = n_dealt,
                                .n_encoded = n_dealt,
                                .room = {.memory_bytes = UINT64_MAX, .allowed_bytes = UINT64_MAX}};
}

static struct sw_course course_of(void) {
    static struct sw_plan plan;
    plan = (struct sw_plan){.codec = SW_CODEC_V5T, .expected_ratio = 3, .raw_bytes = CHUNK_BYTES};
    return (struct sw_course){.plan_state = SW_PLAN_STATE_SETTLED, .reason = SW_COST_PAYS, .plan = &plan};
}

/* The last chunk overlaps with nothing: an encoder that is hardly faster than the link does not pay any more. */
START_TEST(the_rest_is_decided_by_itself) {
    static struct sw_planner planner;
    const struct sw_snapshot now = spill_of(5, 0);
    struct sw_course course = course_of();
    measure(&planner, 60 * GB, 60 * GB);
    sw_planner_evaluate(&planner, &course, &now, 0);
    ck_assert_int_eq(course.reason, SW_COST_PAYS);
    sw_planner_evaluate(&planner, &course, &now, 4);
    ck_assert_int_eq(course.reason, SW_COST_ENCODER);
    ck_assert_int_eq(course.plan->codec, SW_CODEC_RAW);
}
END_TEST

/* A GPU gets busy during a spill. Frames under way by the old plan tell nothing about the new one. */
START_TEST(a_spill_that_stops_paying_changes_its_path) {
    static struct sw_planner planner;
    struct sw_snapshot now = spill_of(5, 2);
    struct sw_course course = course_of();
    measure(&planner, 30 * GB, 165 * GB);
    sw_planner_reevaluate(&planner, &course, &now);
    ck_assert_int_eq(course.plan->codec, SW_CODEC_RAW);
    ck_assert_int_eq(course.reason, SW_COST_ENCODER);
    ck_assert_uint_eq(course.plan_number, 1);
    now = spill_of(N_CHUNKS, 2); /* long enough to go in part, by the same plan */
    course = course_of();
    sw_planner_reevaluate(&planner, &course, &now);
    ck_assert_int_eq(course.plan->codec, SW_CODEC_V5T);
    ck_assert(course.is_mixed);
    ck_assert_uint_eq(course.plan_number, 0);
    planner.n_slots = 1; /* one that encodes leaves none that copies */
    course = course_of();
    sw_planner_reevaluate(&planner, &course, &now);
    ck_assert_int_eq(course.plan->codec, SW_CODEC_RAW);
    ck_assert(course.is_direct && !course.is_mixed);
}
END_TEST

/* Time does not count for a pack, without a link, or where nothing is left. */
START_TEST(time_does_not_count_for_packs_or_without_a_link) {
    static struct sw_planner planner;
    measure(&planner, 30 * GB, 165 * GB);
    for (int i = 0; i < 4; i++) {
        struct sw_snapshot now = spill_of(5, i == 3 ? 5 : 2);
        struct sw_course course = course_of();
        now.is_pack = i == 0;
        planner.has_link = i != 1;
        now.is_running = i != 2;
        sw_planner_reevaluate(&planner, &course, &now);
        ck_assert_msg(course.plan->codec == SW_CODEC_V5T && course.reason == SW_COST_PAYS, "%d", i);
    }
}
END_TEST

static struct sw_frame_layout frame_of(double ratio) {
    return (struct sw_frame_layout){.codec = SW_CODEC_V5T,
                                    .raw_bytes = CHUNK_BYTES,
                                    .frame_bytes = (uint64_t)((double)CHUNK_BYTES / ratio),
                                    .data_offset = 4096};
}

/* A long region would go in part, by a slow encoder, but not if its plan takes longer than the region: until then all
 * of its chunks would have gone. _i: whether its kept plan is to be made anew, or there was none. */
START_TEST(nothing_goes_in_part_beside_a_plan_that_comes_too_late) {
    static struct sw_planner planner;
    enum { MANY_CHUNKS = 64, N_PLANS = SW_PLAN_ESTIMATES };
    static const double late_s[] = {1e-4, 10};
    const struct sw_snapshot now = spill_of(MANY_CHUNKS, 0);
    const struct sw_plan made = {
        .codec = SW_CODEC_V5T, .expected_ratio = _i ? 3 : 1.4, .raw_bytes = now.raw_bytes, .segment_log2 = 12};
    for (int is_late = 0; is_late < 2; is_late++) {
        struct sw_plan plan;
        struct sw_course course = {.plan_key = 7, .plan = &plan};
        struct sw_plan_choice choice = {0};
        measure(&planner, 30 * GB, 165 * GB);
        for (int i = 0; i < N_PLANS; i++) /* of those that hardly shrink only the estimates are kept */
            sw_plan_cache_put(&planner.plans, 7, now.raw_bytes, &(struct sw_plan_choice){0}, &made);
        for (int i = 0; _i && i < N_PLANS; i++, sw_plan_cache_note_mismatch(&choice)) {
            ck_assert_ptr_nonnull(sw_plan_cache_find(&planner.plans, 7, now.raw_bytes, &choice));
            (void)sw_plan_cache_use(&planner.plans, 7, &choice, 0.9999999);
        }
        planner.plan_s[false] = late_s[is_late];
        const bool goes_raw = sw_planner_begin(&planner, &course, &now);
        ck_assert_int_eq(goes_raw, !_i && is_late);
        ck_assert_int_eq(course.is_mixed, !is_late);
        ck_assert_int_eq(course.reason, SW_COST_ENCODER);
    }
}
END_TEST

/* Bytes have become others than their plan was made for: they are sampled anew, which is counted. */
START_TEST(drifting_bytes_are_sampled_again) {
    static struct sw_planner planner;
    const struct sw_snapshot now = spill_of(5, 2);
    const struct sw_frame_layout frame = frame_of(2);
    struct sw_course course = course_of();
    measure(&planner, 700 * GB, 165 * GB);
    planner.plan_s[false] = 1e-6;
    for (unsigned n = 1; n < 4; n++) {
        course.plan_state = SW_PLAN_STATE_SETTLED;
        sw_planner_handle_drift(&planner, &course, &now, &frame);
        ck_assert_int_eq(course.plan_state, SW_PLAN_STATE_MISSING);
        ck_assert_uint_eq(course.n_retrained, n);
    }
}
END_TEST

/* If a new plan would take too long, the rest is decided by the ratio seen, not by the plan's estimate. */
START_TEST(drifting_bytes_use_the_ratio_seen) {
    static struct sw_planner planner;
    const struct sw_snapshot now = spill_of(5, 2);
    measure(&planner, 700 * GB, 165 * GB);
    planner.plan_s[false] = 1;
    for (int shrinks = 0; shrinks < 2; shrinks++) {
        const struct sw_frame_layout frame = frame_of(shrinks ? 2 : 1.02);
        struct sw_course course = course_of();
        sw_planner_handle_drift(&planner, &course, &now, &frame);
        ck_assert_int_eq(course.plan_state, SW_PLAN_STATE_SETTLED);
        ck_assert_int_eq(course.plan->codec, shrinks ? SW_CODEC_V5T : SW_CODEC_RAW);
        ck_assert_int_eq(course.reason, shrinks ? SW_COST_PAYS : SW_COST_NO_GAIN);
        ck_assert_double_eq_tol(course.plan->expected_ratio, shrinks ? 2 : 1, 1e-3);
        ck_assert_uint_eq(course.plan_number, 1); /* chunks under way had a higher estimate */
    }
}
END_TEST

/* A pack goes on by a kept plan if its first frame shrinks as the plan's own did, within 3 %; a spill, if it shrinks no
 * less than expected, within 15 %. */
START_TEST(a_pack_must_shrink_as_the_plans_own_region) {
    static struct sw_planner planner;
    static const struct {
        double part; /* of the ratio of the plan's own first frame */
        bool matches_pack, matches_spill;
    } rows[] = {{1, true, true},     {0.98, true, true}, {1.02, true, true}, {0.95, false, true},
                {1.05, false, true}, {2, false, true},   {0.8, false, false}};
    for (size_t i = 0; i < 2 * sizeof rows / sizeof rows[0]; i++) {
        const bool is_pack = i % 2;
        const struct sw_plan made = {
            .codec = SW_CODEC_V5T, .expected_ratio = 3, .raw_bytes = 5 * CHUNK_BYTES, .segment_log2 = 12};
        const double ratio = sw_plan_data_ratio(&made);
        const struct sw_frame_layout own = {.codec = SW_CODEC_V5T,
                                            .raw_bytes = CHUNK_BYTES,
                                            .frame_bytes = (uint64_t)((double)CHUNK_BYTES / ratio)},
                                     frame = {.codec = SW_CODEC_V5T,
                                              .raw_bytes = CHUNK_BYTES,
                                              .frame_bytes =
                                                  (uint64_t)((double)CHUNK_BYTES / ratio / rows[i / 2].part)};
        struct sw_snapshot now = spill_of(5, 0);
        struct sw_plan plan;
        struct sw_course first = {.plan_key = 7, .plan = &plan}, course = first;
        measure(&planner, 700 * GB, 165 * GB);
        planner.plan_s[false] = 1e-4;
        now.is_pack = is_pack;
        sw_planner_take_plan(&planner, &first, &now, 0, &made);
        (void)sw_planner_check_frame(&planner, &first, &now, first.plan_number, &own);
        ck_assert(sw_planner_begin(&planner, &course, &now));
        now.n_dealt = now.n_encoded = 1;
        const enum sw_plan_mismatch mismatch =
            sw_planner_check_frame(&planner, &course, &now, course.plan_number, &frame);
        const bool matches = mismatch == SW_MISMATCH_ACCEPT && !(plan.expected_ratio < made.expected_ratio);
        ck_assert_msg(matches == (is_pack ? rows[i / 2].matches_pack : rows[i / 2].matches_spill), "%g, pack: %d",
                      rows[i / 2].part, is_pack);
    }
}
END_TEST

/* Every chunk has gone before there was a plan: why they went as they did stays true. The plan is for other regions. */
START_TEST(a_late_plan_is_kept_for_other_runs) {
    static struct sw_planner planner;
    const struct sw_snapshot now = spill_of(4, 4);
    const struct sw_plan plan = *course_of().plan;
    struct sw_plan plans[2];
    struct sw_course course = {.plan_key = 7, .plan = &plans[0], .reason = SW_COST_ENCODER},
                     other = {.plan_key = 7, .plan = &plans[1]};
    measure(&planner, 700 * GB, 165 * GB);
    planner.plan_s[false] = 0.01;
    sw_planner_take_plan(&planner, &course, &now, now.n_chunks, &plan);
    ck_assert_int_eq(course.reason, SW_COST_ENCODER);
    const struct sw_snapshot next = spill_of(4, 0);
    ck_assert(sw_planner_begin(&planner, &other, &next));
    ck_assert_int_eq(other.plan->codec, SW_CODEC_V5T);
}
END_TEST

/* Whether copies are faster is probed with a region whose frames are all raw: with others nothing is measured. */
START_TEST(partially_compressed_regions_probe_no_restore_path) {
    static struct sw_planner planner;
    const struct sw_snapshot now = spill_of(4, 0);
    unsigned n_copied[2] = {0};
    for (int is_mixed = 0; is_mixed < 2; is_mixed++) {
        measure(&planner, 700 * GB, 165 * GB);
        for (int i = 0; i < 200; i++) {
            struct sw_course course = {.is_mixed = is_mixed};
            (void)sw_planner_next_step_back(&planner, &course, &now, CHUNK_BYTES, CHUNK_BYTES);
            n_copied[is_mixed] += course.restore_path == SW_RESTORE_PATH_DIRECT;
        }
    }
    ck_assert_uint_gt(n_copied[0], 0);
    ck_assert_uint_eq(n_copied[1], 0);
}
END_TEST

/* Frames look for room in memory, then in the places behind it, in order. Where they would come to rest somewhere else
 * uncompressed, or nowhere, or be more than is allowed, room is short. */
struct room_case {
    const char *name;
    struct sw_room room; /* for 64 MiB, which shrink to a half */
    bool is_behind, is_short;
    double write, read;
};

static const struct room_case rooms[] = {
    {"memory has room for both", {.memory_bytes = 64 * MIB, .n_behind = 1}, false, false, 0, 0},
    {"raw, only the place behind has",
     {.memory_bytes = 63 * MIB, .n_behind = 1, .behind = {{64 * MIB, 2e9, 1e9, false}}},
     false,
     true,
     0,
     0},
    {"both go behind", {.n_behind = 1, .behind = {{64 * MIB, 2e9, 1e9, false}}}, true, false, 2e9, 1e9},
    {"both go behind that",
     {.n_behind = 2, .behind = {{MIB, 2e9, 1e9, false}, {64 * MIB, 3e9, 15e8, false}}},
     true,
     false,
     3e9,
     15e8},
    {"raw, they go one further",
     {.n_behind = 2, .behind = {{32 * MIB, 2e9, 1e9, false}, {64 * MIB, 3e9, 1e9, false}}},
     true,
     true,
     2e9,
     1e9},
    {"raw, there is none", {.memory_bytes = 63 * MIB}, false, true, 0, 0},
    {"there is none", {.memory_bytes = MIB, .n_behind = 1, .behind = {{MIB, 2e9, 1e9, false}}}, false, true, 0, 0},
    {"raw, it is more than is allowed", {.memory_bytes = 64 * MIB, .allowed_bytes = 63 * MIB}, false, true, 0, 0},
};

START_TEST(tiers_are_tried_in_order) {
    static struct sw_planner planner = {.n_slots = 4, .has_link = true};
    const struct room_case *c = &rooms[_i];
    struct sw_room room = c->room;
    room.allowed_bytes = room.allowed_bytes ? room.allowed_bytes : UINT64_MAX;
    const struct sw_workload what = {.raw_bytes = 64 * MIB, .chunk_bytes = CHUNK_BYTES, .n_chunks = 4, .room = &room};
    const struct sw_cost_question question = sw_planner_ask(&planner, &what, SW_CODEC_V5T, 2);
    ck_assert_msg(question.to_disk == c->is_behind, "%s: goes on: %d", c->name, question.to_disk);
    ck_assert_msg(question.room_is_short == c->is_short, "%s: is short: %d", c->name, question.room_is_short);
    ck_assert_msg(!(question.rates.disk_write < c->write || question.rates.disk_write > c->write), "%s: writes %g",
                  c->name, question.rates.disk_write);
    ck_assert_msg(!(question.rates.disk_read < c->read || question.rates.disk_read > c->read), "%s: reads %g", c->name,
                  question.rates.disk_read);
}
END_TEST

/* ---- beside the data ---- */

/* An encoder beside the data compresses any compressible bytes, whatever the rates, and makes a plan if the link then
 * saves its time. Chunks never go directly. */
static const struct beside_case {
    const char *name;
    double encode, ratio, plan_s;
    size_t n_chunks;
    bool compresses, plans; /* plans: drifting bytes get a new one */
} besides[] = {
    {"quicker than the link", 700 * GB, 3, 1e-4, 5, true, true},
    {"much slower than the link", 5 * GB, 3, 1e-4, 5, true, true},
    {"the same, of a long region", 5 * GB, 3, 1e-4, 4 * N_CHUNKS, true, true},
    {"not known", 0, 3, 1e-4, 5, true, true},
    {"shrinks a little", 5 * GB, 1.06, 1e-4, 4 * N_CHUNKS, true, true},
    {"does not shrink", 700 * GB, 1.04, 1e-4, 5, false, false},
    {"a plan takes longer than it saves", 700 * GB, 3, 1, 5, true, false},
    {"the same, for what is left", 700 * GB, 3, 2e-3, 2, true, false},
};

START_TEST(beside_the_data_all_compressible_bytes_are_compressed) {
    static struct sw_planner planner;
    const struct beside_case *c = &besides[_i];
    struct sw_snapshot now = spill_of(c->n_chunks, 0);
    struct sw_course course = course_of();
    const enum sw_codec_id codec = c->compresses ? SW_CODEC_V5T : SW_CODEC_RAW;
    measure(&planner, c->encode, 165 * GB);
    planner.is_beside_data = true;
    planner.plan_s[false] = c->plan_s;
    course.plan->expected_ratio = c->ratio;
    sw_planner_evaluate(&planner, &course, &now, 0);
    ck_assert_msg(course.plan->codec == codec && !course.is_mixed, "%s: %s", c->name,
                  sw_cost_reason_text(course.reason));
    sw_planner_reevaluate(&planner, &course, &now);
    ck_assert_msg(course.plan->codec == codec && !course.is_mixed, "%s: later: %s", c->name,
                  sw_cost_reason_text(course.reason));
    now = spill_of(c->n_chunks, 1);
    const struct sw_frame_layout frame = frame_of(c->ratio * 0.8);
    course = course_of();
    course.plan->expected_ratio = c->ratio;
    sw_planner_handle_drift(&planner, &course, &now, &frame);
    ck_assert_msg((course.plan_state == SW_PLAN_STATE_MISSING) == c->plans && !course.is_mixed, "%s: plans: %d",
                  c->name, !c->plans);
}
END_TEST

/* After four regions that do not shrink others go without a plan, now and then one with it; but none in part. */
START_TEST(beside_the_data_a_plan_must_pay) {
    static struct sw_planner planner;
    unsigned n_planned = 0;
    measure(&planner, 5 * GB, 165 * GB);
    planner.is_beside_data = true;
    planner.plan_s[false] = 2e-3;
    for (unsigned i = 0; i < 300; i++) {
        const struct sw_snapshot now = spill_of(N_CHUNKS, 0);
        struct sw_plan plan, own;
        struct sw_course course = {.plan_key = 7, .plan = &own};
        if (!sw_planner_begin(&planner, &course, &now)) {
            sw_plan_init_raw(&plan);
            plan.raw_bytes = now.raw_bytes;
            sw_planner_take_plan(&planner, &course, &now, 0, &plan);
            n_planned++;
        }
        ck_assert(!course.is_mixed && course.plan->codec == SW_CODEC_RAW);
        ck_assert(i >= 4 || n_planned == i + 1);
    }
    ck_assert(n_planned > 4 && n_planned < 60);
}
END_TEST

/* Alone a region of numbers takes the codec whose encoder takes less time. Among several buffers of a request the link
 * is busy meanwhile, unless the encoder is hardly faster than what the link takes. */
START_TEST(among_buffers_the_link_hides_the_encoder) {
    static struct sw_planner planner;
    for (int i = 0; i < 4; i++) {
        const bool is_shared = i & 1, is_slow = i & 2;
        struct sw_snapshot now = spill_of(N_CHUNKS, 0);
        struct sw_plan plan = {.codec = SW_CODEC_RADIX,
                               .value_type = SW_VALUE_I64,
                               .expected_ratio = 20,
                               .raw_bytes = now.raw_bytes,
                               .ratios = {[SW_CODEC_RADIX] = 20, [SW_CODEC_FOR] = 16}};
        struct sw_course course = {.plan_state = SW_PLAN_STATE_SETTLED, .plan = &plan};
        now.shares_slots = is_shared;
        now.type = SW_VALUE_I64;
        measure(&planner, 700 * GB, 165 * GB);
        for (int c = 0; c < SW_COST_CLASSES; c++) {
            planner.costs[c].encode[SW_CODEC_RADIX] = (struct sw_meter){.bytes = (is_slow ? 250 : 600) * GB, .us = 1e6};
            planner.costs[c].encode[SW_CODEC_FOR] = (struct sw_meter){.bytes = 2800 * GB, .us = 1e6};
        }
        sw_planner_evaluate(&planner, &course, &now, 0);
        ck_assert_int_eq(plan.codec, is_shared && !is_slow ? SW_CODEC_RADIX : SW_CODEC_FOR);
    }
}
END_TEST

/* Returns after how many regions their kept plan is made anew. */
static unsigned regions_by_a_plan(bool is_shared) {
    static struct sw_planner planner;
    const struct sw_plan made = {.codec = SW_CODEC_V5T, .expected_ratio = 3, .raw_bytes = N_CHUNKS * CHUNK_BYTES};
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    struct sw_snapshot now = spill_of(N_CHUNKS, 0);
    planner = (struct sw_planner){0};
    measure(&planner, 700 * GB, 165 * GB);
    sw_planner_observe_plan(&planner, false, 500);
    sw_plan_cache_put(&planner.plans, key, now.raw_bytes, &(struct sw_plan_choice){0}, &made);
    now.shares_slots = is_shared;
    for (unsigned n = 0;; n++) {
        struct sw_plan plan;
        struct sw_course course = {.plan_key = key, .plan = &plan};
        if (!sw_planner_begin(&planner, &course, &now))
            return n;
    }
}

/* The plans of several buffers of a request would delay it one after the other. */
START_TEST(plans_of_several_buffers_last_longer) {
    const unsigned alone = regions_by_a_plan(false), shared = regions_by_a_plan(true);
    ck_assert_uint_gt(alone, 2);
    ck_assert_uint_ge(shared, 2 * alone);
    ck_assert_uint_le(shared, 8 * alone);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("steps");
    tcase_add_loop_test(tests, a_step_follows_from_the_snapshot, 0, sizeof cases / sizeof cases[0]);
    tcase_add_test(tests, a_restore_path_is_chosen_once);
    tcase_add_test(tests, the_rest_is_decided_by_itself);
    tcase_add_test(tests, a_spill_that_stops_paying_changes_its_path);
    tcase_add_test(tests, time_does_not_count_for_packs_or_without_a_link);
    tcase_add_test(tests, drifting_bytes_are_sampled_again);
    tcase_add_loop_test(tests, nothing_goes_in_part_beside_a_plan_that_comes_too_late, 0, 2);
    tcase_add_test(tests, drifting_bytes_use_the_ratio_seen);
    tcase_add_test(tests, a_late_plan_is_kept_for_other_runs);
    tcase_add_test(tests, a_pack_must_shrink_as_the_plans_own_region);
    tcase_add_test(tests, partially_compressed_regions_probe_no_restore_path);
    tcase_add_loop_test(tests, tiers_are_tried_in_order, 0, sizeof rooms / sizeof rooms[0]);
    tcase_add_loop_test(tests, beside_the_data_all_compressible_bytes_are_compressed, 0,
                        sizeof besides / sizeof besides[0]);
    tcase_add_test(tests, beside_the_data_a_plan_must_pay);
    tcase_add_test(tests, among_buffers_the_link_hides_the_encoder);
    tcase_add_test(tests, plans_of_several_buffers_last_longer);
    Suite *suite = suite_create("planner");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

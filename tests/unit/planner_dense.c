/* Whether a run's text gets a plan with a dictionary, as a table of goals, room and rates; and how many are kept. */
#include "spill/planner/dense.h"
#include "tests/lib/run.h"

#include <check.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define GB 1e9
#define NONE SW_PREFER_NONE
#define TIME SW_PREFER_TIME
#define ROOM SW_PREFER_ROOM

static struct sw_planner planner;

struct goal {
    const char *name;
    enum sw_prefer prefer;
    uint64_t raw_bytes, memory_bytes; /* the text's length; the room that memory has */
    double disk;                      /* GB a second; 0: there is none */
    bool is_unmeasured;               /* how fast the disk writes */
    bool has_link, is_wanted;
    double encode, dense_encode; /* the usual codec's, and the denser one's, GB a second; 0: not measured */
    enum sw_value_type type;
    bool is_pack, takes_none;
};

static const struct goal goals[] = {
    {"memory behind a link", NONE, .raw_bytes = 8 * GIB, .memory_bytes = 64 * GIB, .disk = 3, .has_link = true,
     .encode = 700},
    {"memory of the host device", NONE, .raw_bytes = 8 * GIB, .memory_bytes = 64 * GIB, .disk = 3},
    {"room is preferred", ROOM, .raw_bytes = 64 * MIB, .memory_bytes = 64 * GIB, .disk = 3, .has_link = true,
     .is_wanted = true, .encode = 700},
    {"room is preferred, no link", ROOM, .raw_bytes = 64 * MIB, .memory_bytes = 64 * GIB, .is_wanted = true},
    {"too short for a dictionary", ROOM, .raw_bytes = MIB, .memory_bytes = 64 * GIB, .disk = 3, .has_link = true,
     .encode = 700},
    {"to a slow disk", NONE, .raw_bytes = 8 * GIB, .memory_bytes = 0, .disk = 3, .has_link = true, .is_wanted = true,
     .encode = 700},
    {"to a slow disk, the denser encoder is slow", NONE, .raw_bytes = 8 * GIB, .memory_bytes = 0, .disk = 3,
     .has_link = true, .encode = 700, .dense_encode = 5},
    {"to a slow disk, for time", TIME, .raw_bytes = 8 * GIB, .memory_bytes = 0, .disk = 3, .has_link = true,
     .is_wanted = true, .encode = 700},
    {"to a slow disk, nothing is measured", NONE, .raw_bytes = 8 * GIB, .memory_bytes = 0, .disk = 3, .has_link = true,
     .is_wanted = true},
    {"to a disk of an unknown rate", NONE, .raw_bytes = 8 * GIB, .disk = 3, .is_unmeasured = true, .has_link = true,
     .encode = 700},
    {"to a slow disk, one short region", NONE, .raw_bytes = 64 * MIB, .memory_bytes = 0, .disk = 3, .has_link = true,
     .encode = 700},
    {"to a disk as fast as the link", NONE, .raw_bytes = 8 * GIB, .memory_bytes = 0, .disk = 400, .has_link = true,
     .encode = 700},
    {"to a slow disk, but others keep the GPU busy", NONE, .raw_bytes = 8 * GIB, .memory_bytes = 0, .disk = 3,
     .has_link = true, .encode = 5},
    {"to a disk, no link", NONE, .raw_bytes = 64 * MIB, .memory_bytes = 0, .disk = 3, .is_wanted = true},
    {"to a disk, no link, for time", TIME, .raw_bytes = 64 * MIB, .memory_bytes = 0, .disk = 3},
    {"to a disk, no link, a short region", NONE, .raw_bytes = 8 * MIB, .memory_bytes = 0, .disk = 3},
    {"memory is nearly full", NONE, .raw_bytes = GIB, .memory_bytes = GIB - 1, .has_link = true, .is_wanted = true,
     .encode = 700},
    {"memory is nearly full, for time", TIME, .raw_bytes = GIB, .memory_bytes = GIB - 1, .has_link = true,
     .encode = 700},
    {"memory is nearly full, a short region", NONE, .raw_bytes = 8 * MIB, .memory_bytes = 8 * MIB - 1, .has_link = true,
     .encode = 700},
    {"numbers for room", ROOM, .raw_bytes = GIB, .memory_bytes = 64 * GIB, .disk = 3, .has_link = true,
     .is_wanted = true, .encode = 700, .type = SW_VALUE_U32},
    {"numbers to a slow disk", NONE, .raw_bytes = 8 * GIB, .disk = 3, .has_link = true, .encode = 700,
     .type = SW_VALUE_U32},
    {"a pack", ROOM, .raw_bytes = GIB, .memory_bytes = 64 * GIB, .disk = 3, .has_link = true, .encode = 700,
     .is_pack = true},
    {"a device without dictionaries", ROOM, .raw_bytes = GIB, .memory_bytes = 64 * GIB, .disk = 3, .has_link = true,
     .encode = 700, .takes_none = true},
};

static struct sw_snapshot snapshot_of(const struct goal *g) {
    struct sw_snapshot now = {.type = g->type,
                              .is_pack = g->is_pack,
                              .raw_bytes = g->raw_bytes,
                              .chunk_bytes = 16 * MIB,
                              .n_chunks = (g->raw_bytes + 16 * MIB - 1) / (16 * MIB)};
    now.room = (struct sw_room){.memory_bytes = g->memory_bytes, .allowed_bytes = UINT64_MAX, .prefer = g->prefer};
    if (g->disk > 0) {
        now.room.n_behind = 1;
        now.room.behind[0] = (struct sw_room_place){
            .bytes = UINT64_MAX, .write = g->is_unmeasured ? 0 : g->disk * GB, .read = g->disk * GB};
    }
    return now;
}

static void init(const struct goal *g) {
    planner = (struct sw_planner){.n_slots = 4, .has_link = g->has_link, .takes_dictionaries = !g->takes_none};
    for (int i = 0; i < SW_COST_CLASSES; i++) {
        struct sw_cost_class *c = &planner.costs[i];
        c->encode[SW_CODEC_RAW] = (struct sw_meter){.bytes = 2000 * GB, .us = 1e6};
        c->encode[SW_CODEC_V5T] = (struct sw_meter){.bytes = g->encode * GB, .us = 1e6};
        c->encode[SW_CODEC_ONPAIR] = (struct sw_meter){.bytes = g->dense_encode * GB, .us = 1e6};
        c->link_out = c->direct_out = (struct sw_meter){.bytes = 55 * GB, .us = 1e6};
    }
}

START_TEST(a_goal_decides) {
    const struct goal *g = &goals[_i];
    const struct sw_snapshot now = snapshot_of(g);
    init(g);
    ck_assert_msg(sw_dense_is_wanted(&planner, sw_plan_key(1, g->type, 0), &now) == g->is_wanted, "%s", g->name);
}
END_TEST

/* Only raw frames that find no room before a store go there. */
START_TEST(a_store_is_known_by_the_room_before_it) {
    struct sw_room room = {.memory_bytes = MIB, .n_behind = 2, .allowed_bytes = UINT64_MAX};
    room.behind[0] = (struct sw_room_place){.bytes = 2 * MIB};
    room.behind[1] = (struct sw_room_place){.bytes = 4 * MIB, .is_store = true};
    for (uint64_t mib = 1; mib <= 5; mib++)
        ck_assert_int_eq(sw_planner_goes_to_store(&room, mib * MIB), mib == 3 || mib == 4);
}
END_TEST

/* Short regions for a slow disk: the dictionary is learned when together they would have gained its price. */
START_TEST(short_regions_pay_together) {
    const struct goal g = {.raw_bytes = 64 * MIB, .disk = 3, .has_link = true, .encode = 700};
    const struct sw_snapshot now = snapshot_of(&g);
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    struct sw_plan plan = {.codec = SW_CODEC_ONPAIR, .expected_ratio = 4, .raw_bytes = g.raw_bytes};
    struct sw_plan_choice choice = {0};
    unsigned n = 1;
    init(&g);
    while (!sw_dense_is_wanted(&planner, key, &now))
        ck_assert_uint_lt(n++, 100);
    ck_assert_uint_gt(n, 3);
    sw_plan_cache_put(&planner.plans, key | SW_PLAN_KEY_DENSE, g.raw_bytes, &choice, &plan);
    ck_assert(sw_dense_is_wanted(&planner, key, &now)); /* the kept one costs nothing */
    ck_assert(!sw_dense_is_wanted(&planner, sw_plan_key(2, SW_VALUE_NONE, 0), &now));
}
END_TEST

/* A run that gets one asks for it by its key; plans of both goals are kept apart. */
START_TEST(goals_have_plans_of_their_own) {
    const struct goal g = {.prefer = ROOM,
                           .raw_bytes = 64 * MIB,
                           .memory_bytes = 64 * GIB,
                           .has_link = true,
                           .encode = 700,
                           .dense_encode = 400};
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    struct sw_snapshot now = snapshot_of(&g);
    struct sw_plan plan;
    struct sw_course course = {.plan_key = key, .plan = &plan};
    init(&g);
    ck_assert(!sw_planner_begin(&planner, &course, &now));
    ck_assert(sw_plan_key_is_dense(course.plan_key));
    const struct sw_plan made = {.codec = SW_CODEC_ONPAIR, .expected_ratio = 4, .raw_bytes = g.raw_bytes};
    sw_planner_observe_plan(&planner, true, 20000);
    sw_planner_take_plan(&planner, &course, &now, 0, &made);
    ck_assert_int_eq(course.reason, SW_COST_ROOM);
    course = (struct sw_course){.plan_key = key, .plan = &plan};
    ck_assert(sw_planner_begin(&planner, &course, &now));
    ck_assert_int_eq(plan.codec, SW_CODEC_ONPAIR);
    now.room.prefer = SW_PREFER_TIME;
    course = (struct sw_course){.plan_key = key, .plan = &plan};
    ck_assert(!sw_planner_begin(&planner, &course, &now));
    ck_assert_uint_eq(course.plan_key, key);
}
END_TEST

/* The oldest plan with a dictionary makes way for the newest; it is not used any more. */
START_TEST(few_dictionaries_are_kept) {
    static struct sw_plan_cache cache;
    static struct sw_frame_dictionary dictionaries[SW_PLAN_DICTIONARIES + 1];
    for (unsigned i = 0; i <= SW_PLAN_DICTIONARIES; i++) {
        const struct sw_plan plan = {
            .codec = SW_CODEC_ONPAIR, .expected_ratio = 4, .raw_bytes = GIB, .dictionary = &dictionaries[i]};
        struct sw_plan_choice choice = {0};
        sw_plan_cache_put(&cache, sw_plan_key(1 + i, SW_VALUE_NONE, 0), GIB, &choice, &plan);
    }
    for (unsigned i = 0; i <= SW_PLAN_DICTIONARIES; i++) {
        struct sw_plan_choice choice = {0};
        ck_assert_int_eq(sw_plan_cache_has_dictionary(&cache, &dictionaries[i]), i > 0);
        ck_assert_int_eq(sw_plan_cache_find(&cache, sw_plan_key(1 + i, SW_VALUE_NONE, 0), GIB, &choice) != NULL, i > 0);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("planner_dense");
    TCase *tcase = tcase_create("dense");
    tcase_add_loop_test(tcase, a_goal_decides, 0, sizeof goals / sizeof goals[0]);
    tcase_add_test(tcase, a_store_is_known_by_the_room_before_it);
    tcase_add_test(tcase, short_regions_pay_together);
    tcase_add_test(tcase, goals_have_plans_of_their_own);
    tcase_add_test(tcase, few_dictionaries_are_kept);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

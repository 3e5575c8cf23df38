/* The next step of a run, and where its frames may go, by tables of what the planner is shown. */
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

static const struct step_case cases[] = {
    {"no plan yet", {.plan_state = SW_PLAN_STATE_MISSING}, {.is_running = true}, SW_STEP_PLAN},
    {"a plan is being made", {.plan_state = SW_PLAN_STATE_MISSING}, {.is_running = false}, SW_STEP_ENCODE},
    {"a plan is being made, others go", {.is_mixed = true}, {.is_running = false}, SW_STEP_COPY},
    {"by its plan",
     {.plan_state = SW_PLAN_STATE_SETTLED, .plan = {.codec = SW_CODEC_V5T}},
     {.is_running = true},
     SW_STEP_ENCODE},
    {"raw, by kernels", {.plan_state = SW_PLAN_STATE_SETTLED}, {.is_running = true}, SW_STEP_ENCODE},
    {"raw, long, directly",
     {.plan_state = SW_PLAN_STATE_SETTLED, .is_direct = true},
     {.is_running = true},
     SW_STEP_COPY},
    {"in part, and no slot copies",
     {.plan_state = SW_PLAN_STATE_SETTLED, .plan = {.codec = SW_CODEC_V5T}, .is_mixed = true},
     {.is_running = true},
     SW_STEP_COPY},
    {"in part, and a slot copies",
     {.plan_state = SW_PLAN_STATE_SETTLED, .plan = {.codec = SW_CODEC_V5T}, .is_mixed = true},
     {.is_running = true, .has_copying = true},
     SW_STEP_ENCODE},
    {"a pack never copies",
     {.plan_state = SW_PLAN_STATE_SETTLED, .is_direct = true},
     {.is_running = true, .is_pack = true},
     SW_STEP_ENCODE},
    {"nothing is left", {.plan_state = SW_PLAN_STATE_MISSING}, {.is_running = true, .n_dealt = N_CHUNKS}, SW_STEP_WAIT},
};

START_TEST(a_step_follows_from_what_is_shown) {
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

/* Raw frames of a long region come back directly where there is a link, and all of its steps the same way. */
START_TEST(a_way_back_is_chosen_once) {
    static struct sw_planner planner = {.n_slots = 4, .has_link = true};
    const struct sw_snapshot now = {
        .n_chunks = N_CHUNKS, .chunk_bytes = CHUNK_BYTES, .raw_bytes = N_CHUNKS * CHUNK_BYTES};
    struct sw_course course = {0};
    ck_assert_int_eq(sw_planner_next_step_back(&planner, &course, &now, CHUNK_BYTES, CHUNK_BYTES), SW_STEP_COPY);
    planner.has_link = false;
    ck_assert_int_eq(sw_planner_next_step_back(&planner, &course, &now, CHUNK_BYTES, CHUNK_BYTES), SW_STEP_COPY);
    course = (struct sw_course){0};
    ck_assert_int_eq(sw_planner_next_step_back(&planner, &course, &now, CHUNK_BYTES, CHUNK_BYTES), SW_STEP_ENCODE);
}
END_TEST

/* Frames look for room in memory, then in the places behind it, in order. Where they would come to rest somewhere else
 * uncompressed, or nowhere, or be more than is allowed, room is short. */
struct room_case {
    const char *name;
    struct sw_room room; /* for 64 MiB, which shrink to a half */
    bool is_behind, is_short;
    double write;
};

static const struct room_case rooms[] = {
    {"memory has room for both", {.memory_bytes = 64 * MIB, .n_behind = 1}, false, false, 0},
    {"raw, only the place behind has",
     {.memory_bytes = 63 * MIB, .n_behind = 1, .behind = {{64 * MIB, 2e9, 1e9}}},
     false,
     true,
     0},
    {"both go behind", {.n_behind = 1, .behind = {{64 * MIB, 2e9, 1e9}}}, true, false, 2e9},
    {"both go behind that", {.n_behind = 2, .behind = {{MIB, 2e9, 1e9}, {64 * MIB, 3e9, 1e9}}}, true, false, 3e9},
    {"raw, they go one further",
     {.n_behind = 2, .behind = {{32 * MIB, 2e9, 1e9}, {64 * MIB, 3e9, 1e9}}},
     true,
     true,
     2e9},
    {"raw, there is none", {.memory_bytes = 63 * MIB}, false, true, 0},
    {"there is none", {.memory_bytes = MIB, .n_behind = 1, .behind = {{MIB, 2e9, 1e9}}}, false, true, 0},
    {"raw, it is more than is allowed", {.memory_bytes = 64 * MIB, .allowed_bytes = 63 * MIB}, false, true, 0},
};

START_TEST(room_is_looked_for_in_order) {
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
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("steps");
    tcase_add_loop_test(tests, a_step_follows_from_what_is_shown, 0, sizeof cases / sizeof cases[0]);
    tcase_add_test(tests, a_way_back_is_chosen_once);
    tcase_add_loop_test(tests, room_is_looked_for_in_order, 0, sizeof rooms / sizeof rooms[0]);
    Suite *suite = suite_create("planner");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

/* The region table: ids, generations, states. And the policy that sizes chunks and sees drift. */
#include "base/alloc.h"
#include "spill/engine_state.h"
#include "spill/planner/rules.h"
#include "spill/store/region.h"
#include "tests/lib/run.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>

/* The table compares owners, and their numbers. */
static struct sw_owner owner_a = {.number = 1}, owner_b = {.number = 2};
static struct sw_owner *const a = &owner_a, *const b = &owner_b;

static struct sw_region_table table;

static void setup(void) {
    ck_assert_int_eq(sw_region_table_init(&table, 4, 0, 0), 0);
}

START_TEST(test_ids_are_never_reused) {
    struct sw_region_id seen[40];
    for (int i = 0; i < 40; i++) {
        struct sw_region *region = sw_region_acquire(&table, a);
        ck_assert_ptr_nonnull(region);
        ck_assert_uint_ne(region->id.gen, 0);
        ck_assert_int_eq(region->state, SW_REGION_IN);
        seen[i] = region->id;
        for (int j = 0; j < i; j++)
            ck_assert(seen[j].slot != seen[i].slot || seen[j].gen != seen[i].gen);
        sw_region_release(&table, region);
        struct sw_region *found;
        for (int j = 0; j <= i; j++)
            ck_assert_int_eq(sw_region_find(&table, a, seen[j], &found, NULL), -SW_ESTALE);
    }
    /* Slots take turns, so generations rise slowly. */
    ck_assert_uint_eq(seen[39].gen, 10);
    sw_region_table_fini(&table);
}
END_TEST

START_TEST(test_a_full_table_gives_nothing) {
    struct sw_region *regions[4], *found;
    for (int i = 0; i < 4; i++)
        regions[i] = sw_region_acquire(&table, i % 2 ? a : b);
    ck_assert_ptr_null(sw_region_acquire(&table, a));
    ck_assert_int_eq(sw_region_find(&table, a, regions[1]->id, &found, NULL), 0);
    ck_assert_ptr_eq(found, regions[1]);
    /* Another owner's region looks exactly like one that is dead, or that never was. */
    struct sw_err theirs = {0}, dead = {0}, never = {0};
    struct sw_region_id old = regions[0]->id, future = {old.slot, old.gen + 1};
    ck_assert_int_eq(sw_region_find(&table, a, future, &found, &never), -SW_ENOENT);
    ck_assert_int_eq(sw_region_find(&table, b, future, &found, NULL),
                     -SW_ENOENT); /* also to the region that has the slot now */
    ck_assert_int_eq(sw_region_find(&table, a, old, &found, &theirs), -SW_ENOENT);
    ck_assert_int_eq(sw_region_find_any(&table, old, &found, NULL), 0);
    sw_region_release(&table, regions[0]);
    ck_assert_int_eq(sw_region_find(&table, a, old, &found, &dead), -SW_ENOENT);
    ck_assert_str_eq(theirs.msg, dead.msg);
    ck_assert_str_eq(theirs.msg, "there is no region 0:1");
    ck_assert_str_eq(never.msg, "there is no region 0:2");
    /* Its owner gets the reason until the slot has another region. */
    ck_assert_int_eq(sw_region_find(&table, b, old, &found, NULL), -SW_ESTALE);
    ck_assert_int_eq(sw_region_find_any(&table, old, &found, NULL), -SW_ESTALE);
    ck_assert_int_eq(sw_region_find_any(&table, future, &found, NULL), -SW_ENOENT);
    ck_assert_ptr_eq(sw_region_acquire(&table, a), regions[0]);
    ck_assert_int_eq(sw_region_find(&table, b, old, &found, NULL), -SW_ENOENT);
    ck_assert_int_eq(sw_region_find_any(&table, old, &found, NULL), -SW_ESTALE);
    struct sw_region_id beyond = {4, 1}, zero = {0, 0};
    ck_assert_int_eq(sw_region_find(&table, a, beyond, &found, NULL), -SW_ENOENT);
    ck_assert_int_eq(sw_region_find(&table, a, zero, &found, NULL), -SW_ENOENT);
    for (int i = 0; i < 4; i++)
        sw_region_release(&table, regions[i]);
    sw_region_table_fini(&table);
}
END_TEST

START_TEST(test_a_generation_that_wraps_skips_zero) {
    struct sw_region *region = sw_region_acquire(&table, a);
    region->id.gen = UINT32_MAX;
    for (int i = 0; i < 3; i++)
        sw_region_release(&table, sw_region_acquire(&table, a));
    sw_region_release(&table, region);
    for (int i = 0; i < 3; i++)
        ck_assert_uint_eq(sw_region_acquire(&table, a)->id.gen, 2);
    ck_assert_uint_eq(sw_region_acquire(&table, a)->id.gen, 1);
}
END_TEST

START_TEST(test_a_full_table_is_filled_again_and_again) {
    for (int round = 0; round < 4; round++) {
        struct sw_region *regions[4];
        for (int i = 0; i < 4; i++) {
            regions[i] = sw_region_acquire(&table, a);
            ck_assert_ptr_nonnull(regions[i]);
        }
        ck_assert_ptr_null(sw_region_acquire(&table, a));
        for (int i = 0; i < 4; i++)
            sw_region_release(&table, regions[i]);
    }
    sw_region_table_fini(&table);
}
END_TEST

/* A predecessor may have used any generation up to the first one, also in an entry that is adopted with a lower one. */
START_TEST(test_ids_go_on_after_a_predecessors) {
    static const uint32_t first_gens[] = {0, 1, 7, UINT32_MAX - 1, UINT32_MAX};
    for (size_t k = 0; k < sizeof first_gens / sizeof first_gens[0]; k++) {
        const uint32_t first = first_gens[k], next = first == UINT32_MAX ? 1 : first + 1;
        struct sw_region_table others;
        ck_assert_int_eq(sw_region_table_init(&others, 2, 0, first), 0);
        struct sw_region *adopted = sw_region_adopt(&others, a, (struct sw_region_id){0, 1}, SW_REGION_LOST);
        sw_region_table_settle(&others);
        struct sw_region *region = sw_region_acquire(&others, a);
        ck_assert_uint_eq(region->id.gen, next);
        sw_region_release(&others, region);
        sw_region_release(&others, adopted);
        for (int i = 0; i < 2; i++) {
            region = sw_region_acquire(&others, a);
            ck_assert_uint_ne(region->id.gen, 0);
            ck_assert(region->id.slot == 1 || region->id.gen == (first ? next : 2));
            sw_region_release(&others, region);
        }
        sw_region_table_fini(&others);
    }
    sw_region_table_fini(&table);
}
END_TEST

/* Ids from a file or from another process: none that a table cannot have, and none that it has already. */
START_TEST(test_only_possible_ids_are_adopted) {
    static const struct sw_region_id bad[] = {{4, 1}, {UINT32_MAX, 1}, {3, 0}};
    const struct sw_region_id good = {3, 9};
    struct sw_region *found;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_ptr_null(sw_region_adopt(&table, a, bad[i], SW_REGION_LOST));
    ck_assert_uint_eq(table.n_used, 0);
    struct sw_region *region = sw_region_adopt(&table, a, good, SW_REGION_LOST);
    ck_assert_ptr_nonnull(region);
    ck_assert_ptr_null(sw_region_adopt(&table, b, (struct sw_region_id){3, 10}, SW_REGION_LOST));
    ck_assert_int_eq(sw_region_find(&table, a, good, &found, NULL), 0);
    ck_assert_ptr_eq(found, region);
    ck_assert_uint_eq(table.n_used, 1);
    sw_region_release(&table, region);
    sw_region_table_fini(&table);
}
END_TEST

static void walk_and_release(const enum sw_region_state *states, size_t n) {
    struct sw_region *region = sw_region_acquire(&table, a);
    for (size_t i = 0; i < n; i++) {
        sw_region_move(region, states[i]);
        ck_assert_int_eq(region->state, states[i]);
    }
    sw_region_release(&table, region);
}

START_TEST(test_every_transition_of_the_diagram_is_allowed) {
    static const enum sw_region_state walk[] = {
        SW_REGION_STAGING,   SW_REGION_IN,        SW_REGION_STAGING, SW_REGION_ENCODING,  SW_REGION_IN,
        SW_REGION_STAGING,   SW_REGION_ENCODING,  SW_REGION_STORING, SW_REGION_IN,        SW_REGION_STAGING,
        SW_REGION_ENCODING,  SW_REGION_STORING,   SW_REGION_OUT,     SW_REGION_RESTORING, SW_REGION_OUT,
        SW_REGION_RESTORING, SW_REGION_IN,        SW_REGION_STAGING, SW_REGION_ENCODING,  SW_REGION_STORING,
        SW_REGION_OUT,       SW_REGION_RESTORING, SW_REGION_LOST};
    static const enum sw_region_state incomplete[] = {SW_REGION_STAGING, SW_REGION_ENCODING, SW_REGION_STORING,
                                                      SW_REGION_OUT, SW_REGION_LOST};
    walk_and_release(walk, sizeof walk / sizeof walk[0]);
    walk_and_release(incomplete, sizeof incomplete / sizeof incomplete[0]);
    sw_region_table_fini(&table);
}
END_TEST

START_TEST(test_an_illegal_move_aborts) {
    static const enum sw_region_state wrong[] = {SW_REGION_IN,  SW_REGION_ENCODING,  SW_REGION_STORING,
                                                 SW_REGION_OUT, SW_REGION_RESTORING, SW_REGION_LOST};
    sw_region_move(sw_region_acquire(&table, a), wrong[_i]);
}
END_TEST

/* Errors of the stored bytes cost the region; others leave it OUT. What is unusable never gets less by it. */
START_TEST(test_only_bad_bytes_cost_a_region) {
    static const struct {
        int code;
        bool proves_loss;
    } rows[] = {{-SW_EFRAME, true}, {-SW_ECHECKSUM, true}, {-SW_EVERSION, true},   {-SW_ELOST, true},
                {-SW_EIO, false},   {-SW_ENOMEM, false},   {-SW_ECANCELED, false}, {-SW_EUNALLOCATED, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sw_err err = {.code = rows[i].code, .scope = SW_SCOPE_REQUEST}, wide = err;
        ck_assert_int_eq(sw_restore_proves_loss(rows[i].code), rows[i].proves_loss);
        wide.scope = SW_SCOPE_DEVICE;
        sw_restore_widen(&err);
        sw_restore_widen(&wide);
        ck_assert_int_eq(err.scope, rows[i].proves_loss ? SW_SCOPE_REGION : SW_SCOPE_REQUEST);
        ck_assert_int_eq(wide.scope, SW_SCOPE_DEVICE);
    }
}
END_TEST

START_TEST(test_chunk_lengths_give_every_slot_work) {
    const uint64_t MiB = 1 << 20;
    ck_assert_uint_eq(sw_rules_chunk_bytes(0, 64 * MiB, 4), 4 * MiB);
    ck_assert_uint_eq(sw_rules_chunk_bytes(1, 64 << 10, 2), 64 << 10);
    ck_assert_uint_eq(sw_rules_chunk_bytes(10000 * MiB, 64 * MiB, 4), 64 * MiB);
    /* Objects of a store: 32 MiB, unless the device takes less, or the rule wants more. */
    ck_assert_uint_eq(sw_rules_object_chunk_bytes(4 * MiB, 64 * MiB), 32 * MiB);
    ck_assert_uint_eq(sw_rules_object_chunk_bytes(4 * MiB, 26 * MiB), 26 * MiB);
    ck_assert_uint_eq(sw_rules_object_chunk_bytes(64 * MiB, 64 * MiB), 64 * MiB);
    for (uint64_t bytes = 1; bytes < 5000 * MiB; bytes = bytes * 3 + 7)
        for (unsigned slots = 1; slots <= 16; slots++) {
            uint64_t chunk = sw_rules_chunk_bytes(bytes, 64 * MiB, slots);
            ck_assert_uint_eq(chunk % (32 << 10), 0);
            ck_assert(chunk >= 4 * MiB && chunk <= 64 * MiB);
            if (bytes >= slots * 8 * MiB)
                ck_assert_uint_ge((bytes + chunk - 1) / chunk, slots);
        }
}
END_TEST

START_TEST(test_drift_makes_a_new_table_only_where_it_pays) {
    struct sw_rules_drift drift = {
        .expected_ratio = 3.0, .raw_bytes = 30000, .data_bytes = 10000, .rest_bytes = 300000, .chunk_bytes = 30000};
    ck_assert(!sw_rules_retrain(&drift));
    drift.data_bytes = 11500; /* 2.61: noise */
    ck_assert(!sw_rules_retrain(&drift));
    drift.data_bytes = 12000; /* 2.5 */
    ck_assert(sw_rules_retrain(&drift));
    drift.rest_bytes = 59999; /* less than two chunks to gain on */
    ck_assert(!sw_rules_retrain(&drift));
    drift.rest_bytes = 60000;
    ck_assert(sw_rules_retrain(&drift));
    drift.n_retrained = 16; /* hopeless */
    ck_assert(!sw_rules_retrain(&drift));
    drift = (struct sw_rules_drift){
        .expected_ratio = 1.0, .raw_bytes = 30000, .data_bytes = 30150, .rest_bytes = 300000, .chunk_bytes = 30000};
    ck_assert(!sw_rules_retrain(&drift)); /* raw is as expected */
    drift.data_bytes = 10000;             /* better than expected */
    ck_assert(!sw_rules_retrain(&drift));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("region and policy");
    TCase *tcase = tcase_create("region");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, test_ids_are_never_reused);
    tcase_add_test(tcase, test_a_full_table_gives_nothing);
    tcase_add_test(tcase, test_a_generation_that_wraps_skips_zero);
    tcase_add_test(tcase, test_a_full_table_is_filled_again_and_again);
    tcase_add_test(tcase, test_ids_go_on_after_a_predecessors);
    tcase_add_test(tcase, test_only_possible_ids_are_adopted);
    tcase_add_test(tcase, test_every_transition_of_the_diagram_is_allowed);
    tcase_add_loop_test_raise_signal(tcase, test_an_illegal_move_aborts, SIGABRT, 0, 6);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("policy");
    tcase_add_test(tcase, test_only_bad_bytes_cost_a_region);
    tcase_add_test(tcase, test_chunk_lengths_give_every_slot_work);
    tcase_add_test(tcase, test_drift_makes_a_new_table_only_where_it_pays);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

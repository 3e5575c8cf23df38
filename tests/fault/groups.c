/* Any step of a group of short regions fails: the affected regions get a named error, the others are served, every
 * region's bytes are whole, the sums are right, and nothing is left behind. */
#include "base/alloc.h"
#include "spill/engine_state.h"
#include "tests/lib/content.h"
#include "tests/lib/group_rig.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <string.h>

/* Two full groups and a short one. */
enum { PART = 2, BYTES = 3000, MAX = 64 };

static struct sw_rig rig;
static struct sw_memory from, to;
static uint8_t *original;
static unsigned full, n; /* regions of a full group, and all */
static struct sw_test_op ops[MAX];
static struct sw_region_id ids[MAX];

static void setup(void) {
    sw_rig_open(&rig, NULL);
    full = (unsigned)(rig.f.device->ops->info(rig.f.device)->group_bytes / sw_group_item_bytes(BYTES));
    n = 2 * full + PART;
    ck_assert(full > PART && n <= MAX);
    from = sw_memory_new((size_t)n * BYTES);
    to = sw_memory_new((size_t)n * BYTES);
    original = sw_alloc((size_t)n * BYTES);
    ck_assert_ptr_nonnull(original);
    sw_content_fill(original, (size_t)n * BYTES, SW_CONTENT_TEXT, 42);
    memcpy(from.data, original, (size_t)n * BYTES);
}

static void teardown(void) {
    sw_memory_free(&from);
    sw_memory_free(&to);
    sw_free(original);
    sw_rig_close(&rig);
}

/* Each region through a memory of its own, unmapped with its operation. */
static void hand_over(bool restores) {
    const struct sw_memory *memory = restores ? &to : &from;
    memset(ops, 0, sizeof ops);
    for (unsigned i = 0; i < n; i++) {
        struct sw_range range = {
            .mem = sw_fixture_mem(&rig.f, rig.f.owner, memory, true), .offset = (uint64_t)i * BYTES, .bytes = BYTES};
        if (restores)
            ck_assert_int_eq(sw_engine_restore(rig.f.owner, ids[i], SW_TRANSFER(&range, 1, .keep = true),
                                               sw_test_op_done, &ops[i], NULL),
                             0);
        else
            ck_assert_int_eq(
                sw_engine_spill(rig.f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[i], &ids[i], NULL), 0);
        sw_mem_close(range.mem, NULL, NULL);
    }
}

/* Waits for all; returns how many have failed, each with `expected`. */
static unsigned await(int expected) {
    unsigned failed = 0;
    struct sw_engine_stats stats;
    for (unsigned i = 0; i < n; i++) {
        const struct sw_err *err = &ops[i].outcome.err;
        sw_fixture_until(&rig.f, &ops[i].done);
        ck_assert_uint_eq(ops[i].calls, 1);
        ck_assert_msg(err->code == 0 || err->code == expected, "%s", err->msg);
        ck_assert(err->code == 0 || strlen(err->msg) > 0);
        failed += err->code != 0;
    }
    do { /* memories are forgotten after the callbacks */
        (void)uv_run(&rig.f.loop, UV_RUN_NOWAIT);
        sw_engine_stats(rig.f.engine, &stats);
    } while (stats.n_mems > 0);
    sw_engine_check(rig.f.engine);
    ck_assert_uint_eq(stats.n_mapped + stats.n_ops, 0);
    return failed;
}

static unsigned run_held(bool restores, const char *step, unsigned nth, int code, enum sw_fault fault) {
    sw_rig_hold(&rig);
    hand_over(restores);
    sw_device_faulty_arm(rig.f.device, step, nth, code, fault);
    sw_rig_release(&rig);
    const unsigned failed = await(code);
    sw_device_faulty_arm(rig.f.device, step, 0, 0, SW_FAULT_AT_ONCE);
    return failed;
}

/* Whatever was spilled comes back, whatever was not is untouched, and its id is dead. */
static void check_spilled_and_drop(void) {
    struct sw_engine_stats stats;
    ck_assert_int_eq(memcmp(from.data, original, (size_t)n * BYTES), 0);
    for (unsigned i = 0; i < n; i++) {
        struct sw_test_op op;
        if (ops[i].outcome.err.code) {
            ck_assert_int_eq(sw_fixture_state(&rig.f, ids[i]), -SW_ESTALE);
            continue;
        }
        memset(to.data, 0xEE, to.bytes);
        ck_assert_int_eq(sw_fixture_restore(&rig.f, ids[i], &to, 0, BYTES, false, &op), 0);
        ck_assert_int_eq(memcmp(to.data, original + (size_t)i * BYTES, BYTES), 0);
        ck_assert_uint_eq(to.data[BYTES], 0xEE);
    }
    sw_engine_check(rig.f.engine);
    sw_engine_stats(rig.f.engine, &stats);
    ck_assert_uint_eq(stats.n_regions, 1); /* the rig's */
}

static const char *const spill_steps[] = {"map", "make_plan", "encode_group", "store_group"};

START_TEST(test_any_step_of_a_groups_spill_fails) {
    const char *step = spill_steps[_i / 3];
    unsigned nth = 1, failed;
    while ((failed = run_held(false, step, nth, -SW_EGPU, (enum sw_fault)(_i % 3))) > 0) {
        ck_assert_uint_eq(failed, strcmp(step, "map") == 0 ? 1 : nth < 3 ? full : PART);
        check_spilled_and_drop();
        ck_assert_uint_le(nth++, n);
    }
    ck_assert_uint_gt(nth, 1);
    check_spilled_and_drop();
    ck_assert(strcmp(step, "map") != 0 || nth == n + 1);
    ck_assert(!strstr(step, "group") || nth == 4); /* three groups */
}
END_TEST

/* It fails alone. */
START_TEST(test_the_commit_of_a_member_fails) {
    for (unsigned nth = 1; nth <= n + 1; nth++) {
        (void)sw_fixture_fail_commit(&rig.f, nth);
        ck_assert_uint_eq(run_held(false, "map", 0, -SW_EIO, SW_FAULT_AT_ONCE), nth <= n);
        ck_assert_uint_eq(sw_fixture_fail_commit(&rig.f, 0), n);
        check_spilled_and_drop();
    }
}
END_TEST

START_TEST(test_a_member_of_a_groups_restore_cannot_be_mapped) {
    unsigned nth = 1, failed;
    hand_over(false);
    ck_assert_uint_eq(await(0), 0);
    while ((failed = run_held(true, "map", nth, -SW_EGPU, (enum sw_fault)_i)) > 0) {
        ck_assert_uint_eq(failed, 1);
        for (unsigned i = 0; i < n; i++) {
            ck_assert_int_eq(sw_fixture_state(&rig.f, ids[i]), SW_REGION_OUT);
            ck_assert(ops[i].outcome.err.code ||
                      memcmp(to.data + (size_t)i * BYTES, original + (size_t)i * BYTES, BYTES) == 0);
        }
        memset(to.data, 0xEE, to.bytes);
        ck_assert_uint_le(nth++, n);
    }
    ck_assert_uint_eq(nth, n + 1);
    ck_assert_int_eq(memcmp(to.data, original, (size_t)n * BYTES), 0);
    check_spilled_and_drop();
}
END_TEST

/* Whose fault it was is not known, so each of them is done again alone. */
START_TEST(test_a_failed_group_restore_is_retried_singly) {
    const unsigned nth = 1 + (unsigned)_i / 3;
    hand_over(false);
    ck_assert_uint_eq(await(0), 0);
    const unsigned decodes = sw_rig_counts().decodes;
    ck_assert_uint_eq(run_held(true, "restore_group", nth, -SW_EGPU, (enum sw_fault)(_i % 3)), 0);
    ck_assert_uint_eq(sw_rig_counts().decodes - decodes, 1 + (nth < 3 ? full : PART));
    ck_assert_int_eq(memcmp(to.data, original, (size_t)n * BYTES), 0);
    check_spilled_and_drop();
}
END_TEST

static struct sw_stored *stored_frame(unsigned i) {
    struct sw_region *region;
    ck_assert_int_eq(sw_region_find(&rig.f.engine->store.regions, rig.f.owner, ids[i], &region, NULL), 0);
    return &region->frames->stored[0];
}

/* The bytes of two short regions' frames, of which a frame has one extent and some of one length. */
static void exchange(unsigned i, unsigned k) {
    uint8_t *a = stored_frame(i)->extents[0].memory, *b = stored_frame(k)->extents[0].memory;
    const uint64_t bytes =
        stored_frame(i)->bytes < stored_frame(k)->bytes ? stored_frame(i)->bytes : stored_frame(k)->bytes;
    for (uint64_t at = 0; at < bytes; at++) {
        const uint8_t byte = a[at];
        a[at] = b[at];
        b[at] = byte;
    }
}

/* Whole frames are exchanged: their regions are lost, no client gets another's bytes, and the other regions of the
 * group come back. */
START_TEST(test_exchanged_frames_of_a_group_lose_only_their_regions) {
    hand_over(false);
    ck_assert_uint_eq(await(0), 0);
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = i + 1; k < n; k++) {
            memset(to.data, 0xEE, to.bytes);
            exchange(i, k);
            ck_assert_uint_eq(run_held(true, "map", 0, -SW_ECHECKSUM, SW_FAULT_AT_ONCE), 2);
            for (unsigned j = 0; j < n; j++) {
                const bool is_one = j == i || j == k;
                struct sw_region *region;
                ck_assert_int_eq(sw_region_find(&rig.f.engine->store.regions, rig.f.owner, ids[j], &region, NULL), 0);
                ck_assert_int_eq(ops[j].outcome.err.code, is_one ? -SW_ECHECKSUM : 0);
                ck_assert_int_eq(region->state, is_one ? SW_REGION_LOST : SW_REGION_OUT);
                ck_assert(is_one ? to.data[(size_t)j * BYTES] == 0xEE
                                 : memcmp(to.data + (size_t)j * BYTES, original + (size_t)j * BYTES, BYTES) == 0);
                region->state = SW_REGION_OUT; /* as if it had not been polled */
            }
            exchange(i, k);
        }
    ck_assert_uint_gt(sw_rig_counts().restore_groups, 0);
    hand_over(true);
    ck_assert_uint_eq(await(0), 0);
    ck_assert_int_eq(memcmp(to.data, original, (size_t)n * BYTES), 0);
}
END_TEST

START_TEST(test_a_lost_context_takes_all_groups_with_it) {
    hand_over(false);
    ck_assert_uint_eq(await(0), 0);
    const bool restores = _i / 3 == 1;
    const unsigned failed =
        run_held(restores, restores ? "restore_group" : "encode_group", 2, -SW_EGPULOST, (enum sw_fault)(_i % 3));
    /* A context that dies at the same moment also fails an operation that has just ended well. */
    ck_assert(failed == n - full || (_i % 3 == SW_FAULT_AT_ONCE && failed == n));
    ck_assert(sw_engine_device_lost(rig.f.engine));
    for (unsigned i = 0; restores && i < n; i++)
        ck_assert_int_eq(sw_fixture_state(&rig.f, ids[i]), SW_REGION_OUT);
    ck_assert_int_eq(memcmp(from.data, original, (size_t)n * BYTES), 0);
}
END_TEST

/* Allocations fail from the moment that the groups are made. */
START_TEST(test_every_allocation_of_a_group_fails_in_turn) {
    enum { THROUGH = 5 };
    unsigned n_failed = 0, successes = 0;
    for (unsigned long nth = 1; successes < THROUGH; nth++) {
        sw_rig_hold(&rig);
        hand_over(false);
        sw_alloc_fail_nth(nth);
        sw_rig_release(&rig);
        const unsigned failed = await(-SW_ENOMEM);
        sw_alloc_fail_nth(0);
        n_failed += failed > 0;
        successes = failed > 0 ? 0 : successes + 1;
        check_spilled_and_drop();
        ck_assert_uint_lt(nth, 1000);
    }
    ck_assert_uint_gt(n_failed, n / 2); /* mapping alone has as many on the host device */
}
END_TEST

int main(void) {
    Suite *suite = suite_create("group faults");
    TCase *tcase = tcase_create("group faults");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_any_step_of_a_groups_spill_fails, 0,
                        3 * sizeof spill_steps / sizeof spill_steps[0]);
    tcase_add_test(tcase, test_the_commit_of_a_member_fails);
    tcase_add_loop_test(tcase, test_a_member_of_a_groups_restore_cannot_be_mapped, 0, 3);
    tcase_add_loop_test(tcase, test_a_failed_group_restore_is_retried_singly, 0, 9);
    tcase_add_test(tcase, test_exchanged_frames_of_a_group_lose_only_their_regions);
    tcase_add_loop_test(tcase, test_a_lost_context_takes_all_groups_with_it, 0, 6);
    tcase_add_test(tcase, test_every_allocation_of_a_group_fails_in_turn);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

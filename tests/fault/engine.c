/* Whatever fails in mid-spill or mid-restore: a named error, the client's memory or the stored copy whole, books in
 * order, nothing left behind. */
#include "base/alloc.h"
#include "spill/engine_state.h"
#include "tests/lib/content.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <string.h>

enum { REGION_BYTES = 200000, MANY = 200 };

static struct sw_fixture f;
static struct sw_memory from, to;
static uint8_t *original;

static void setup(void) {
    sw_fixture_open(&f, NULL);
    from = sw_memory_new(REGION_BYTES);
    to = sw_memory_new(REGION_BYTES);
    original = sw_alloc(REGION_BYTES);
    ck_assert_ptr_nonnull(original);
    sw_content_fill(original, REGION_BYTES, SW_CONTENT_MIXED, 42);
    memcpy(from.data, original, REGION_BYTES);
}

static void teardown(void) {
    sw_memory_free(&from);
    sw_memory_free(&to);
    sw_free(original);
    sw_fixture_close(&f);
}

static void check_nothing_in_use(unsigned n_regions) {
    struct sw_engine_stats stats;
    sw_engine_check(f.engine);
    sw_engine_stats(f.engine, &stats);
    ck_assert_uint_eq(stats.n_mapped + stats.n_ops + stats.n_mems, 0);
    ck_assert_uint_eq(stats.n_regions, n_regions);
    ck_assert(n_regions > 0 || stats.tiers[0].used_bytes == 0);
}

static void check_restorable(struct sw_region_id id) {
    struct sw_test_op op;
    memset(to.data, 0xEE, to.bytes);
    ck_assert_int_eq(sw_fixture_state(&f, id), SW_REGION_OUT);
    ck_assert_int_eq(sw_fixture_restore(&f, id, &to, 0, to.bytes, false, &op), 0);
    ck_assert_int_eq(memcmp(to.data, original, REGION_BYTES), 0);
}

/* A failed spill: named, the id dead, the memory untouched, the engine fit for the next one. */
static void check_failed_spill(const struct sw_test_op *op, int rc, int expected) {
    ck_assert_int_eq(rc, expected);
    ck_assert_uint_gt(strlen(op->outcome.err.msg), 0);
    ck_assert_int_eq(memcmp(from.data, original, REGION_BYTES), 0);
    ck_assert_int_eq(sw_fixture_state(&f, op->id), -SW_ESTALE);
    check_nothing_in_use(0);
}

static const char *const spill_steps[] = {"map", "make_plan", "encode", "store"};
static const char *const restore_steps[] = {"map", "load", "decode"};

START_TEST(test_any_step_of_a_spill_fails) {
    const char *step = spill_steps[_i / 3];
    struct sw_test_op op;
    unsigned nth = 1;
    for (;; nth++) {
        sw_device_faulty_arm(f.device, step, nth, -SW_EGPU, (enum sw_fault)(_i % 3));
        int rc = sw_fixture_spill(&f, &from, 0, from.bytes, &op);
        if (rc == 0)
            break;
        check_failed_spill(&op, rc, -SW_EGPU);
        ck_assert_uint_lt(nth, MANY);
    }
    sw_device_faulty_arm(f.device, step, 0, 0, SW_FAULT_AT_ONCE);
    ck_assert_uint_gt(nth, 1);
    ck_assert(strcmp(step, "encode") != 0 || nth == 5); /* four chunks */
    check_restorable(op.id);
    check_nothing_in_use(0);
}
END_TEST

START_TEST(test_any_step_of_a_restore_fails) {
    const char *step = restore_steps[_i / 3];
    struct sw_test_op op, back;
    unsigned nth = 1;
    ck_assert_int_eq(sw_fixture_spill(&f, &from, 0, from.bytes, &op), 0);
    for (;; nth++) {
        sw_device_faulty_arm(f.device, step, nth, -SW_EGPU, (enum sw_fault)(_i % 3));
        int rc = sw_fixture_restore(&f, op.id, &to, 0, to.bytes, true, &back);
        if (rc == 0)
            break;
        ck_assert_int_eq(rc, -SW_EGPU);
        ck_assert_int_eq(sw_fixture_state(&f, op.id), SW_REGION_OUT);
        check_nothing_in_use(1);
        ck_assert_uint_lt(nth, MANY);
    }
    sw_device_faulty_arm(f.device, step, 0, 0, SW_FAULT_AT_ONCE);
    ck_assert_uint_gt(nth, 1);
    check_restorable(op.id);
    check_nothing_in_use(0);
}
END_TEST

static const enum sw_content contents[] = {SW_CONTENT_TEXT, SW_CONTENT_MIXED, SW_CONTENT_RANDOM};

/* Each chunk's: encoded ones, and raw ones that go together in one step. */
START_TEST(test_any_commit_of_a_spill_fails) {
    struct sw_test_op op;
    unsigned nth = 1;
    sw_content_fill(original, REGION_BYTES, contents[_i], 42);
    memcpy(from.data, original, REGION_BYTES);
    for (;; nth++) {
        (void)sw_fixture_fail_commit(&f, nth);
        const int rc = sw_fixture_spill(&f, &from, 0, from.bytes, &op);
        if (rc == 0)
            break;
        check_failed_spill(&op, rc, -SW_EIO);
    }
    ck_assert_uint_eq(sw_fixture_fail_commit(&f, 0), 4);
    ck_assert_uint_eq(nth, 5);
    check_restorable(op.id);
    check_nothing_in_use(0);
}
END_TEST

/* A memory of one operation may stay open for long after that has failed. */
START_TEST(test_a_failed_mapping_keeps_no_descriptors) {
    enum { N = 50 };
    const unsigned fds_before = sw_count_fds();
    struct sw_test_op ops[N] = {0};
    struct sw_mem *mems[N];
    for (int i = 0; i < N; i++) {
        mems[i] = sw_fixture_mem(&f, f.owner, &from, true);
        const struct sw_range range = {.mem = mems[i], .bytes = from.bytes};
        sw_device_faulty_arm(f.device, "map", 1, -SW_EGPU, SW_FAULT_AT_ONCE);
        ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[i], &ops[i].id, NULL),
                         0);
        sw_fixture_until(&f, &ops[i].done);
        ck_assert_int_eq(ops[i].outcome.err.code, -SW_EGPU);
    }
    ck_assert_uint_eq(sw_count_fds(), fds_before);
    for (int i = 0; i < N; i++)
        sw_fixture_close_mem(&f, mems[i]);
    check_nothing_in_use(0);
}
END_TEST

START_TEST(test_pinning_fails) {
    struct sw_test_op op;
    sw_device_faulty_arm(f.device, "pin", 1, -SW_EGPU, SW_FAULT_AT_ONCE);
    int rc = sw_fixture_spill(&f, &from, 0, from.bytes, &op);
    check_failed_spill(&op, rc, -SW_EGPU);
    ck_assert_int_eq(sw_fixture_spill(&f, &from, 0, from.bytes, &op), 0);
    check_restorable(op.id);
}
END_TEST

START_TEST(test_a_lost_context_fails_everything_of_its_device) {
    struct sw_test_op kept, op, running[4] = {0};
    ck_assert_int_eq(sw_fixture_spill(&f, &from, 0, from.bytes, &kept), 0);
    ck_assert(!sw_engine_device_lost(f.engine));
    sw_device_faulty_arm(f.device, "encode", 6, -SW_EGPULOST, (enum sw_fault)_i);
    struct sw_range range = {.mem = sw_fixture_mem(&f, f.owner, &from, false), .bytes = from.bytes};
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &running[i], &running[i].id,
                                         &op.outcome.err),
                         0);
    for (int i = 0; i < 4; i++) {
        sw_fixture_until(&f, &running[i].done);
        ck_assert(running[i].outcome.err.code == -SW_EGPULOST || running[i].outcome.err.code == 0);
    }
    ck_assert_int_eq(running[3].outcome.err.code, -SW_EGPULOST);
    ck_assert(sw_engine_device_lost(f.engine));
    sw_fixture_close_mem(&f, range.mem);
    ck_assert_int_eq(sw_fixture_spill(&f, &from, 0, from.bytes, &op), -SW_EGPULOST);
    ck_assert_int_eq(op.outcome.err.scope, SW_SCOPE_DEVICE);
    ck_assert_int_eq(sw_fixture_restore(&f, kept.id, &to, 0, to.bytes, false, &op), -SW_EGPULOST);
    ck_assert_int_eq(sw_fixture_state(&f, kept.id), SW_REGION_OUT);
    sw_engine_check(f.engine);
}
END_TEST

START_TEST(test_a_full_arena_fails_the_spill_that_does_not_fit) {
    struct sw_test_op first, op;
    teardown();
    struct sw_fixture_config config = sw_fixture_defaults;
    config.capacity_bytes = 250 << 10;
    sw_fixture_open(&f, &config);
    from = sw_memory_new(REGION_BYTES);
    to = sw_memory_new(REGION_BYTES);
    original = sw_alloc(REGION_BYTES);
    sw_content_fill(original, REGION_BYTES, SW_CONTENT_RANDOM, 42);
    memcpy(from.data, original, REGION_BYTES);
    ck_assert_int_eq(sw_fixture_spill(&f, &from, 0, from.bytes, &first), 0);
    for (int i = 0; i < 3; i++) {
        int rc = sw_fixture_spill(&f, &from, 0, from.bytes, &op);
        ck_assert_int_eq(rc, -SW_ENOSPACE);
        ck_assert_int_eq(memcmp(from.data, original, REGION_BYTES), 0);
        check_nothing_in_use(1);
    }
    check_restorable(first.id);
    check_nothing_in_use(0);
    ck_assert_int_eq(sw_fixture_spill(&f, &from, 0, from.bytes, &op), 0);
}
END_TEST

/* Opens a memory, spills and restores; failures in between are not repeated. Returns true if all succeeded. */
static bool round_trip_on_a_bad_heap(unsigned long nth, struct sw_region_id *ret_id, bool *ret_stored) {
    struct sw_mem_desc descs[2] = {sw_memory_desc(&from), sw_memory_desc(&to)};
    struct sw_test_op ops[2] = {0};
    struct sw_mem *mems[2] = {0};
    struct sw_err err = {0};
    sw_alloc_fail_nth(nth);
    int rc = sw_mem_open(f.owner, &descs[0], true, &mems[0], &err);
    struct sw_range range = {.mem = mems[0], .bytes = from.bytes};
    if (!rc)
        rc = sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[0], ret_id, &err);
    if (!rc) {
        sw_fixture_until(&f, &ops[0].done);
        rc = ops[0].outcome.err.code;
    }
    *ret_stored = rc == 0;
    if (!rc)
        rc = sw_mem_open(f.owner, &descs[1], true, &mems[1], &err);
    range.mem = mems[1];
    if (!rc)
        rc = sw_engine_restore(f.owner, *ret_id, SW_TRANSFER(&range, 1, .keep = true), sw_test_op_done, &ops[1], &err);
    if (!rc) {
        sw_fixture_until(&f, &ops[1].done);
        rc = ops[1].outcome.err.code;
    }
    sw_alloc_fail_nth(0);
    ck_assert(rc == 0 || rc == -SW_ENOMEM);
    for (int i = 0; i < 2; i++) {
        sw_mem_desc_fini(&descs[i]);
        if (mems[i])
            sw_fixture_close_mem(&f, mems[i]);
    }
    return rc == 0;
}

START_TEST(test_every_allocation_fails_in_turn) {
    /* Some failures do no harm (a chunk is stored raw instead), so one success does not mean that we are through. */
    enum { THROUGH = 12 };
    unsigned failed = 0, successes = 0;
    for (unsigned long nth = 1; successes < THROUGH; nth++) {
        struct sw_region_id id = {0, 0};
        bool stored;
        if (round_trip_on_a_bad_heap(nth, &id, &stored)) {
            successes++;
        } else {
            failed++;
            successes = 0;
        }
        ck_assert_int_eq(memcmp(from.data, original, REGION_BYTES), 0);
        check_nothing_in_use(stored);
        if (stored)
            check_restorable(id);
        check_nothing_in_use(0);
        ck_assert_uint_lt(nth, 1000);
    }
    ck_assert_uint_gt(failed, 10);
}
END_TEST

static struct sw_stored *stored_frame(struct sw_region_id id, size_t chunk) {
    struct sw_region *region;
    ck_assert_int_eq(sw_region_find(&f.engine->store.regions, f.owner, id, &region, NULL), 0);
    ck_assert_uint_lt(chunk, region->frames->n_chunks);
    return &region->frames->stored[chunk];
}

START_TEST(test_a_damaged_frame_is_never_returned_as_data) {
    struct sw_test_op op, back;
    uint64_t seed = 7;
    unsigned refused = 0;
    for (int i = 0; i < 36; i++) {
        ck_assert_int_eq(sw_fixture_spill(&f, &from, 0, from.bytes, &op), 0);
        struct sw_stored *frame = stored_frame(op.id, (size_t)(i % 4));
        /* The header's bytes one after the other, then any. */
        uint64_t at = i < 24 ? (uint64_t)i * 3 : sw_random(&seed) % frame->bytes;
        for (unsigned e = 0; e < frame->n_extents; e++) {
            if (at < frame->extents[e].bytes) {
                ((uint8_t *)frame->extents[e].memory)[at] ^= (uint8_t)(1u << (i % 8));
                break;
            }
            at -= frame->extents[e].bytes;
        }
        int rc = sw_fixture_restore(&f, op.id, &to, 0, to.bytes, true, &back);
        if (rc == 0) { /* padding was hit: nothing that counts was damaged */
            ck_assert_int_eq(memcmp(to.data, original, REGION_BYTES), 0);
        } else {
            refused++;
            ck_assert(rc == -SW_EFRAME || rc == -SW_ECHECKSUM || rc == -SW_EVERSION);
            ck_assert_int_eq(back.outcome.err.scope, SW_SCOPE_REGION);
            ck_assert_int_eq(sw_fixture_state(&f, op.id), SW_REGION_LOST);
            ck_assert_int_eq(sw_fixture_restore(&f, op.id, &to, 0, to.bytes, true, &back), -SW_ELOST);
        }
        sw_engine_check(f.engine);
        ck_assert_int_eq(sw_engine_drop(f.owner, op.id, NULL), 0);
        check_nothing_in_use(0);
    }
    ck_assert_uint_gt(refused, 24);
}
END_TEST

START_TEST(test_an_owner_closes_while_steps_fail) {
    struct sw_test_op ops[3] = {0};
    struct sw_owner *owner;
    ck_assert_int_eq(sw_owner_open(f.engine, &owner, NULL), 0);
    sw_device_faulty_arm(f.device, "store", 3, -SW_EGPU, SW_FAULT_LATE);
    for (int i = 0; i < 3; i++) {
        struct sw_range range = {.mem = sw_fixture_mem(&f, owner, &from, true), .bytes = from.bytes};
        ck_assert_int_eq(sw_engine_spill(owner, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[i], &ops[i].id, NULL), 0);
    }
    sw_fixture_until(&f, &ops[0].done);
    sw_fixture_close_owner(&f, owner);
    for (int i = 0; i < 3; i++)
        ck_assert_uint_eq(ops[i].calls, 1);
    check_nothing_in_use(0);
}
END_TEST

START_TEST(test_an_engine_that_cannot_be_opened_leaves_nothing) {
    struct sw_engine_config config = {
        .devices = &f.device, .n_devices = 1, .tiers = {.at = {f.tier}, .n = 1}, .max_regions = 10};
    struct sw_engine *engine = NULL;
    struct sw_err err;
    long live = sw_alloc_live();
    unsigned long nth = 1;
    for (;; nth++) {
        memset(&err, 0, sizeof err);
        sw_alloc_fail_nth(nth);
        int rc = sw_engine_open(&engine, &f.loop, &config, &err);
        sw_alloc_fail_nth(0);
        if (rc == 0)
            break;
        ck_assert_int_eq(rc, -SW_ENOMEM);
        ck_assert_int_eq(sw_alloc_live(), live);
    }
    ck_assert_uint_ge(nth, 5);
    sw_engine_close(engine, NULL, NULL);
    while (sw_alloc_live() != live)
        (void)uv_run(&f.loop, UV_RUN_ONCE);
    config.n_devices = 0;
    ck_assert_int_eq(sw_engine_open(&engine, &f.loop, &config, &err), -SW_EINVAL);
    sw_engine_close(NULL, NULL, NULL);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine faults");
    TCase *tcase = tcase_create("engine faults");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_any_step_of_a_spill_fails, 0, 3 * sizeof spill_steps / sizeof spill_steps[0]);
    tcase_add_loop_test(tcase, test_any_step_of_a_restore_fails, 0, 3 * sizeof restore_steps / sizeof restore_steps[0]);
    tcase_add_loop_test(tcase, test_any_commit_of_a_spill_fails, 0, sizeof contents / sizeof contents[0]);
    tcase_add_test(tcase, test_a_failed_mapping_keeps_no_descriptors);
    tcase_add_test(tcase, test_pinning_fails);
    tcase_add_loop_test(tcase, test_a_lost_context_fails_everything_of_its_device, 0, 2);
    tcase_add_test(tcase, test_a_full_arena_fails_the_spill_that_does_not_fit);
    tcase_add_test(tcase, test_every_allocation_fails_in_turn);
    tcase_add_test(tcase, test_a_damaged_frame_is_never_returned_as_data);
    tcase_add_test(tcase, test_an_owner_closes_while_steps_fail);
    tcase_add_test(tcase, test_an_engine_that_cannot_be_opened_leaves_nothing);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

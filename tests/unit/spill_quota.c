/* A tenant's limit of stored bytes is never exceeded, not even by many spills at once. A spill beyond it fails by name
 * with its memory unchanged. Failed, dropped and restored regions no longer count. sw_engine_check() compares the sums.
 */
#include "spill/engine_state.h"
#include "tests/lib/content.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <string.h>

enum { REGION_BYTES = 200000, QUOTA_BYTES = 500000, SHORT_BYTES = 20000 };

static struct sw_fixture f;
static struct sw_memory memory;
static struct sw_quota quota;

static void open_fixture(const struct sw_fixture_config *config) {
    sw_fixture_open(&f, config);
    memset(&quota, 0, sizeof quota);
    sw_owner_set_quota(f.owner, &quota);
    memory = sw_memory_new(REGION_BYTES);
    sw_content_fill(memory.data, memory.bytes, SW_CONTENT_RANDOM, 1);
}

static void setup(void) {
    open_fixture(NULL);
}

/* Everything is forgotten by then. */
static void teardown(void) {
    if (f.owner)
        sw_fixture_close_owner(&f, f.owner);
    f.owner = NULL;
    ck_assert_uint_eq(atomic_load(&quota.bytes), 0);
    ck_assert_uint_eq(quota.n_regions, 0);
    ck_assert_uint_eq(atomic_load(&quota.kept.used_bytes), 0);
    sw_memory_free(&memory);
    sw_fixture_close(&f);
}

static void check_memory(void) {
    static uint8_t expected[REGION_BYTES];
    sw_content_fill(expected, sizeof expected, SW_CONTENT_RANDOM, 1);
    ck_assert_mem_eq(memory.data, expected, sizeof expected);
}

static void check_too_much(int rc, const struct sw_test_op *op) {
    ck_assert_int_eq(rc, -SW_ETENANTBYTES);
    ck_assert_int_eq(op->outcome.err.scope, SW_SCOPE_REQUEST);
    ck_assert_ptr_nonnull(strstr(op->outcome.err.msg, "the tenant has"));
    check_memory();
    sw_engine_check(f.engine);
}

/* Spills until no more fits, drops one, spills again. */
static void fill_and_drop(uint64_t bytes, unsigned expected) {
    struct sw_test_op op = {0}, first = {0};
    unsigned n = 0;
    int rc = 0;
    for (; (rc = sw_fixture_spill(&f, &memory, 0, bytes, &op)) == 0; n++) {
        sw_engine_check(f.engine);
        first = n == 0 ? op : first;
        ck_assert_uint_le(n, expected);
    }
    check_too_much(rc, &op);
    ck_assert_uint_eq(n, expected);
    ck_assert_uint_gt(atomic_load(&quota.bytes), n * bytes);
    for (int i = 0; i < 3; i++)
        check_too_much(sw_fixture_spill(&f, &memory, 0, bytes, &op), &op);
    ck_assert_int_eq(sw_engine_drop(f.owner, first.id, NULL), 0);
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, bytes, &op), 0);
    ck_assert_int_eq(sw_fixture_restore(&f, op.id, &memory, 0, memory.bytes, false, &op), 0);
    check_memory();
    sw_engine_check(f.engine);
}

START_TEST(a_spill_that_would_exceed_it_is_cut_off) {
    quota.max_bytes = QUOTA_BYTES;
    fill_and_drop(REGION_BYTES, 2);
}
END_TEST

START_TEST(a_region_of_one_chunk_is_cut_off_too) {
    quota.max_bytes = QUOTA_BYTES;
    fill_and_drop(SHORT_BYTES, 24);
}
END_TEST

/* The host tier is full before the quota is: frames go on to the disk, and count once. */
START_TEST(a_spill_to_the_disk_is_cut_off_too) {
    struct sw_fixture_config config = sw_fixture_defaults;
    teardown();
    config.capacity_bytes = 2 << 20;
    config.staging_bytes = 1 << 20;
    config.nvme_bytes = 8 << 20;
    config.high_pct = 60;
    config.low_pct = 30;
    open_fixture(&config);
    quota.max_bytes = 3 << 20;
    fill_and_drop(REGION_BYTES, 15);
    struct sw_engine_stats stats;
    sw_engine_stats(f.engine, &stats);
    ck_assert_uint_gt(stats.tiers[1].used_bytes, 1 << 20);
}
END_TEST

/* Loop: without a disk, and with one. Many spills at once find the tiers full, or wait for room. Bytes that were
 * charged before they found no room no longer count. */
START_TEST(frames_without_room_do_not_count) {
    enum { N = 24 };
    struct sw_test_op ops[N];
    struct sw_fixture_config config = sw_fixture_defaults;
    unsigned n_stored = 0;
    uint64_t stored_bytes = 0;
    teardown();
    config.capacity_bytes = 1 << 20;
    config.staging_bytes = _i ? 512 << 10 : 0;
    config.nvme_bytes = _i ? 2 << 20 : 0;
    config.high_pct = config.low_pct = _i ? 100 : 0;
    open_fixture(&config);
    quota.max_bytes = UINT64_C(1) << 40;
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &memory, false);
    memset(ops, 0, sizeof ops);
    for (unsigned i = 0; i < N; i++) {
        struct sw_range range = {.mem = mem, .bytes = REGION_BYTES};
        ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[i], &ops[i].id, NULL),
                         0);
    }
    for (unsigned i = 0; i < N; i++) {
        sw_fixture_until(&f, &ops[i].done);
        ck_assert(ops[i].outcome.err.code == 0 || ops[i].outcome.err.code == -SW_ENOSPACE);
        n_stored += ops[i].outcome.err.code == 0;
        stored_bytes += ops[i].outcome.err.code ? 0 : ops[i].outcome.stored_bytes;
        sw_engine_check(f.engine);
    }
    ck_assert_uint_gt(n_stored, 2);
    ck_assert_uint_lt(n_stored, N);
    ck_assert_uint_eq(atomic_load(&quota.bytes), stored_bytes);
    sw_fixture_close_mem(&f, mem);
    check_memory();
}
END_TEST

START_TEST(nothing_begins_when_nothing_is_left) {
    struct sw_test_op op;
    struct sw_engine_stats stats;
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, memory.bytes, &op), 0);
    quota.max_bytes = atomic_load(&quota.bytes);
    check_too_much(sw_fixture_spill(&f, &memory, 0, 1, &op), &op);
    ck_assert_uint_eq(op.calls, 0);
    sw_engine_stats(f.engine, &stats);
    ck_assert_uint_eq(stats.failed_ops, 0);
}
END_TEST

/* A restart with a lower limit makes such a tenant: recovered regions count, and nothing more is stored. */
START_TEST(a_tenant_above_its_quota_gets_nothing) {
    struct sw_test_op op;
    struct sw_err err = {0};
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, memory.bytes, &op), 0);
    const unsigned long long bytes = atomic_load(&quota.bytes);
    quota.max_bytes = bytes / 2;
    ck_assert_int_eq(sw_quota_take(&quota, 1, &err), -SW_ETENANTBYTES);
    ck_assert_int_eq(err.code, -SW_ETENANTBYTES);
    ck_assert_uint_eq(atomic_load(&quota.bytes), bytes);
}
END_TEST

START_TEST(sessions_and_parallel_spills_share_the_quota) {
    enum { N = 24 };
    struct sw_owner *other;
    struct sw_test_op ops[N];
    unsigned n_stored = 0;
    ck_assert_int_eq(sw_owner_open(f.engine, &other, NULL), 0);
    sw_owner_set_quota(other, &quota);
    quota.max_bytes = 3 * QUOTA_BYTES;
    memset(ops, 0, sizeof ops);
    for (unsigned i = 0; i < N; i++) {
        struct sw_owner *owner = i % 2 ? other : f.owner;
        const uint64_t bytes = i % 3 ? REGION_BYTES : SHORT_BYTES;
        struct sw_range range = {.mem = sw_fixture_mem(&f, owner, &memory, true), .bytes = bytes};
        ck_assert_int_eq(sw_engine_spill(owner, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[i], &ops[i].id, NULL), 0);
    }
    for (unsigned i = 0; i < N; i++) {
        sw_fixture_until(&f, &ops[i].done);
        sw_engine_check(f.engine);
        ck_assert(ops[i].outcome.err.code == 0 || ops[i].outcome.err.code == -SW_ETENANTBYTES);
        n_stored += ops[i].outcome.err.code == 0;
    }
    ck_assert_uint_gt(n_stored, 4);
    ck_assert_uint_lt(n_stored, N);
    check_memory();
    sw_fixture_close_owner(&f, other);
    sw_engine_check(f.engine);
}
END_TEST

static const char *const steps[] = {"map", "make_plan", "encode", "store"};

START_TEST(failed_spills_do_not_count) {
    struct sw_test_op op;
    for (unsigned nth = 1;; nth++) {
        sw_device_faulty_arm(f.device, steps[_i], nth, -SW_EGPU, SW_FAULT_LATE);
        const int rc = sw_fixture_spill(&f, &memory, 0, memory.bytes, &op);
        if (rc == 0)
            break;
        ck_assert_uint_eq(atomic_load(&quota.bytes), 0);
        ck_assert_uint_eq(quota.n_regions, 0);
    }
    sw_device_faulty_arm(f.device, steps[_i], 0, 0, SW_FAULT_AT_ONCE);
    ck_assert_int_eq(sw_fixture_restore(&f, op.id, &memory, 0, memory.bytes, false, &op), 0);
    ck_assert_uint_eq(atomic_load(&quota.bytes), 0);
    check_memory();
}
END_TEST

START_TEST(regions_of_all_sessions_are_counted) {
    struct sw_owner *other, *stranger;
    struct sw_quota strangers = {.max_regions = 1};
    struct sw_test_op op, ops[3];
    quota.max_regions = 3;
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, SHORT_BYTES, &ops[i]), 0);
    ck_assert_int_eq(sw_owner_open(f.engine, &other, NULL), 0);
    sw_owner_set_quota(other, &quota);
    ck_assert_int_eq(sw_owner_open(f.engine, &stranger, NULL), 0);
    sw_owner_set_quota(stranger, &strangers);
    struct sw_owner *own = f.owner;
    f.owner = other;
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, SHORT_BYTES, &op), -SW_ETENANTREGIONS);
    f.owner = stranger; /* who has a quota of his own */
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, SHORT_BYTES, &op), 0);
    f.owner = own;
    ck_assert_int_eq(sw_fixture_restore(&f, ops[0].id, &memory, 0, SHORT_BYTES, false, &op), 0);
    f.owner = other;
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, SHORT_BYTES, &op), 0);
    f.owner = own;
    sw_fixture_close_owner(&f, other);
    ck_assert_uint_eq(quota.n_regions, 2);
    sw_fixture_close_owner(&f, stranger);
    ck_assert_uint_eq(strangers.n_regions, 0);
    sw_engine_check(f.engine);
}
END_TEST

/* The frames of a pack lie in its client's memory; only frames that do not fit there count. */
START_TEST(packs_need_hardly_any_quota) {
    struct sw_test_op op;
    quota.max_bytes = QUOTA_BYTES;
    atomic_store(&quota.bytes, quota.max_bytes); /* as if by others */
    sw_content_fill(memory.data, memory.bytes, SW_CONTENT_TEXT, 1);
    ck_assert_int_eq(sw_fixture_pack(&f, &memory, 0, memory.bytes, &op), 0);
    ck_assert_int_eq(sw_fixture_unpack(&f, op.id, &memory, 0, memory.bytes, &op), 0);
    ck_assert_uint_eq(atomic_load(&quota.bytes), quota.max_bytes);
    sw_content_fill(memory.data, memory.bytes, SW_CONTENT_RANDOM, 1);
    ck_assert_int_eq(sw_fixture_pack(&f, &memory, 0, memory.bytes, &op), -SW_ETENANTBYTES);
    check_memory(); /* the pack was undone */
    atomic_store(&quota.bytes, 0);
    ck_assert_int_eq(sw_fixture_pack(&f, &memory, 0, memory.bytes, &op), 0);
    ck_assert_uint_gt(atomic_load(&quota.bytes), 0);
    ck_assert_uint_lt(atomic_load(&quota.bytes), REGION_BYTES / 10);
    sw_engine_check(f.engine);
    ck_assert_int_eq(sw_fixture_unpack(&f, op.id, &memory, 0, memory.bytes, &op), 0);
    check_memory();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("spill_quota");
    TCase *tcase = tcase_create("spill_quota");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_spill_that_would_exceed_it_is_cut_off);
    tcase_add_test(tcase, a_region_of_one_chunk_is_cut_off_too);
    tcase_add_test(tcase, a_spill_to_the_disk_is_cut_off_too);
    tcase_add_loop_test(tcase, frames_without_room_do_not_count, 0, 2);
    tcase_add_test(tcase, nothing_begins_when_nothing_is_left);
    tcase_add_test(tcase, a_tenant_above_its_quota_gets_nothing);
    tcase_add_test(tcase, sessions_and_parallel_spills_share_the_quota);
    tcase_add_loop_test(tcase, failed_spills_do_not_count, 0, sizeof steps / sizeof steps[0]);
    tcase_add_test(tcase, regions_of_all_sessions_are_counted);
    tcase_add_test(tcase, packs_need_hardly_any_quota);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

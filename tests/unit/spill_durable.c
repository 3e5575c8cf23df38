/* Durable regions go to their tenant when their session ends, whatever the session was doing. The next session of the
 * tenant finds them by name; other users do not even see that they exist. */
#include "base/alloc.h"
#include "spill/engine_state.h"
#include "spill/operator.h"
#include "tests/lib/content.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <string.h>

enum { REGION_BYTES = 300000 };

static struct sw_fixture f;
static struct sw_memory memory;
static struct sw_quota quota;
static struct sw_owner *tenant_owner;

static struct sw_owner *new_owner(void) {
    struct sw_owner *owner = NULL;
    ck_assert_int_eq(sw_owner_open(f.engine, &owner, NULL), 0);
    sw_owner_set_quota(owner, &quota);
    return owner;
}

static void open_fixture(const struct sw_fixture_config *config) {
    sw_fixture_open(&f, config);
    memset(&quota, 0, sizeof quota);
    quota.max_durable = SW_FIXTURE_MAX_DURABLE;
    tenant_owner = new_owner();
    sw_owner_become_tenant_owner(tenant_owner, 1000);
    sw_owner_set_quota(f.owner, &quota);
    sw_owner_set_tenant_owner(f.owner, tenant_owner);
    memory = sw_memory_new(REGION_BYTES);
    sw_content_fill(memory.data, memory.bytes, SW_CONTENT_TEXT, 1);
}

static void setup(void) {
    open_fixture(NULL);
}

/* Without a catalogue nothing survives the engine. */
static void teardown(void) {
    if (f.owner)
        sw_fixture_close_owner(&f, f.owner);
    f.owner = NULL;
    sw_fixture_close_owner(&f, tenant_owner);
    ck_assert_uint_eq(atomic_load(&quota.bytes) + quota.n_regions, 0);
    sw_memory_free(&memory);
    sw_fixture_close(&f);
}

enum { REQUEST = 7 };

static int begin(const char *name, struct sw_test_op *op) {
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &memory, true);
    const struct sw_range range = {.mem = mem, .bytes = REGION_BYTES};
    *op = (struct sw_test_op){0};
    const int rc = sw_engine_spill(f.owner, SW_TRANSFER(&range, 1, .name = name, .request = REQUEST), sw_test_op_done,
                                   op, &op->id, &op->outcome.err);
    sw_mem_close(mem, NULL, NULL);
    return rc;
}

static int spill(const char *name, struct sw_test_op *op) {
    const int rc = begin(name, op);
    if (rc == 0)
        sw_fixture_until(&f, &op->done);
    return rc ? rc : op->outcome.err.code;
}

static int adopt(const char *name, struct sw_region_id *ret) {
    struct sw_err err = {0};
    return sw_engine_adopt(f.owner, name, ret, &err);
}

/* The session ends, the next one begins. */
static void next_session(void) {
    sw_fixture_close_owner(&f, f.owner);
    f.owner = new_owner();
    sw_owner_set_tenant_owner(f.owner, tenant_owner);
    sw_engine_check(f.engine);
}

static void check_bytes(struct sw_region_id id) {
    static uint8_t expected[REGION_BYTES];
    struct sw_test_op op;
    sw_content_fill(expected, sizeof expected, SW_CONTENT_TEXT, 1);
    memset(memory.data, 0, memory.bytes);
    ck_assert_int_eq(sw_fixture_restore(&f, id, &memory, 0, memory.bytes, false, &op), 0);
    ck_assert_mem_eq(memory.data, expected, sizeof expected);
}

START_TEST(durable_regions_outlive_their_session) {
    struct sw_test_op durable, plain;
    struct sw_region_id id = {0};
    ck_assert_int_eq(spill("orders", &durable), 0);
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, 1000, &plain), 0);
    next_session();
    ck_assert_uint_eq(quota.n_regions, 1);
    ck_assert_uint_gt(atomic_load(&quota.bytes), 0);
    ck_assert_int_eq(sw_fixture_state(&f, durable.id), -SW_ENOENT); /* not the session's yet */
    ck_assert_int_eq(adopt("orders", &id), 0);
    ck_assert_mem_eq(&id, &durable.id, sizeof id);
    ck_assert_int_eq(adopt("orders", &id), 0); /* what one has is found */
    check_bytes(id);
    check_bytes(id); /* a restore keeps it */
    ck_assert_int_eq(sw_engine_consume(f.owner, id, NULL), 0);
    check_bytes(id); /* a batch's restore, too */
    next_session();
    ck_assert_int_eq(adopt("orders", &id), 0);
    ck_assert_int_eq(sw_engine_drop(f.owner, id, NULL), 0);
    ck_assert_int_eq(sw_fixture_state(&f, id), -SW_ESTALE); /* it was the session's, though it has not spilled it */
    ck_assert_int_eq(adopt("orders", &id), -SW_ENOENT);
    ck_assert_uint_eq(atomic_load(&quota.bytes) + quota.n_regions, 0);
    sw_engine_check(f.engine);
}
END_TEST

/* Sessions count their requests from the same number: after a restart one's spill must not be taken for another's. */
/* Its spill may still fail, so no other session gets its id yet. */
START_TEST(a_region_being_spilled_is_not_adopted) {
    struct sw_test_op op;
    struct sw_region_id id;
    ck_assert_int_eq(begin("orders", &op), 0);
    ck_assert_int_eq(adopt("orders", &id), -SW_EBUSY);
    sw_fixture_until(&f, &op.done);
    ck_assert_int_eq(op.outcome.err.code, 0);
    ck_assert_int_eq(adopt("orders", &id), 0);
}
END_TEST

START_TEST(an_adopted_region_belongs_to_no_request) {
    struct sw_test_op op;
    struct sw_region_id id, found;
    ck_assert_int_eq(spill("orders", &op), 0);
    sw_engine_find_by_request(f.owner, REQUEST, &found, 1);
    ck_assert_mem_eq(&found, &op.id, sizeof found);
    next_session();
    ck_assert_int_eq(adopt("orders", &id), 0);
    sw_engine_find_by_request(f.owner, REQUEST, &found, 1);
    ck_assert_uint_eq(found.gen, 0);
    sw_engine_find_by_request(f.owner, 0, &found, 1);
    ck_assert_uint_eq(found.gen, 0);
}
END_TEST

/* An operator names a region by its user, too, if several users have the name. */
START_TEST(names_belong_to_their_users) {
    struct sw_owner *first = f.owner, *other_tenant = new_owner();
    struct sw_test_op ours, theirs;
    struct sw_region_id id;
    ck_assert_int_eq(spill("orders", &ours), 0);
    ck_assert_int_eq(sw_engine_find_name(f.engine, "orders", UINT32_MAX, &id, NULL), 0);
    ck_assert_mem_eq(&id, &ours.id, sizeof id);
    sw_owner_become_tenant_owner(other_tenant, 1001);
    f.owner = new_owner();
    sw_owner_set_tenant_owner(f.owner, other_tenant);
    ck_assert_int_eq(spill("orders", &theirs), 0);
    ck_assert_int_eq(sw_engine_find_name(f.engine, "orders", UINT32_MAX, &id, NULL), -SW_EINVAL);
    ck_assert_int_eq(sw_engine_find_name(f.engine, "orders", 1001, &id, NULL), 0);
    ck_assert_mem_eq(&id, &theirs.id, sizeof id);
    ck_assert_int_eq(sw_engine_find_name(f.engine, "orders", 1002, &id, NULL), -SW_ENOENT);
    sw_fixture_close_owner(&f, f.owner);
    sw_fixture_close_owner(&f, other_tenant);
    f.owner = first;
}
END_TEST

START_TEST(durabilities_are_checked) {
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &memory, false);
    const struct sw_range range = {.mem = mem, .bytes = REGION_BYTES};
    struct sw_test_op op = {0};
    for (int durability = 0; durability <= SW_DURABILITY_NR; durability++) {
        const int rc =
            sw_engine_spill(f.owner, SW_TRANSFER(&range, 1, .name = "x", .durability = (enum sw_durability)durability),
                            sw_test_op_done, &op, &op.id, NULL);
        ck_assert_int_eq(rc, durability == SW_DURABILITY_NR ? -SW_EINVAL : durability ? -SW_EDURABILITY : 0);
        if (rc == 0) {
            sw_fixture_until(&f, &op.done);
            ck_assert_int_eq(sw_engine_drop(f.owner, op.id, NULL), 0);
        }
    }
    sw_mem_close(mem, NULL, NULL);
}
END_TEST

START_TEST(names_are_checked_and_bounded) {
    char longest[SW_REGION_NAME_BYTES + 1];
    struct sw_test_op op, first;
    memset(longest, 'x', sizeof longest);
    longest[SW_REGION_NAME_BYTES] = 0;
    ck_assert_int_eq(spill("", &op), -SW_EINVAL);
    ck_assert_int_eq(spill(longest, &op), -SW_EINVAL);
    longest[SW_REGION_NAME_BYTES - 1] = 0;
    ck_assert_int_eq(spill(longest, &first), 0);
    ck_assert_int_eq(spill(longest, &op), -SW_EEXIST);
    ck_assert_int_eq(spill("2", &op), 0);
    next_session();
    ck_assert_int_eq(spill("2", &op), -SW_EEXIST); /* whoever has it */
    ck_assert_int_eq(spill("3", &op), 0);
    ck_assert_int_eq(spill("4", &op), -SW_ETENANTREGIONS);
    ck_assert_int_eq(sw_engine_drop(f.owner, op.id, NULL), -SW_ENOENT); /* nothing was made */
    ck_assert_int_eq(adopt(longest, &op.id), 0);
    ck_assert_int_eq(sw_engine_drop(f.owner, op.id, NULL), 0);
    ck_assert_int_eq(spill("4", &op), 0);
    sw_engine_check(f.engine);
}
END_TEST

START_TEST(a_session_without_a_tenant_owner_makes_no_durable_regions) {
    struct sw_owner *own = f.owner;
    struct sw_test_op op;
    struct sw_region_id id;
    f.owner = new_owner();
    ck_assert_int_eq(spill("orders", &op), -SW_ENOTSUP);
    ck_assert_int_eq(adopt("orders", &id), -SW_ENOENT);
    sw_fixture_close_owner(&f, f.owner);
    f.owner = own;
}
END_TEST

START_TEST(another_tenant_finds_nothing) {
    struct sw_quota others = {.max_durable = SW_FIXTURE_MAX_DURABLE};
    struct sw_err there = {0}, never = {0};
    struct sw_test_op op;
    struct sw_region_id id;
    struct sw_owner *stranger, *strangers_tenant_owner;
    ck_assert_int_eq(spill("orders", &op), 0);
    next_session();
    ck_assert_int_eq(sw_owner_open(f.engine, &strangers_tenant_owner, NULL), 0);
    sw_owner_set_quota(strangers_tenant_owner, &others);
    sw_owner_become_tenant_owner(strangers_tenant_owner, 1001);
    ck_assert_int_eq(sw_owner_open(f.engine, &stranger, NULL), 0);
    sw_owner_set_quota(stranger, &others);
    sw_owner_set_tenant_owner(stranger, strangers_tenant_owner);
    ck_assert_int_eq(sw_engine_adopt(stranger, "orders", &id, &there), -SW_ENOENT);
    ck_assert_int_eq(sw_engine_adopt(stranger, "lineitem", &id, &never), -SW_ENOENT);
    ck_assert_mem_eq(&there, &never, sizeof there);
    ck_assert_int_eq(sw_engine_drop(stranger, op.id, NULL), -SW_ENOENT);
    struct sw_owner *own = f.owner;
    f.owner = stranger; /* the name is free for others */
    ck_assert_int_eq(spill("orders", &op), 0);
    f.owner = own;
    sw_fixture_close_owner(&f, stranger);
    sw_fixture_close_owner(&f, strangers_tenant_owner);
    ck_assert_uint_eq(others.n_regions, 0);
}
END_TEST

START_TEST(one_session_has_a_durable_region_at_a_time) {
    struct sw_test_op op;
    struct sw_region_id id;
    struct sw_owner *first = f.owner;
    ck_assert_int_eq(spill("orders", &op), 0);
    f.owner = new_owner();
    sw_owner_set_tenant_owner(f.owner, tenant_owner);
    ck_assert_int_eq(adopt("orders", &id), -SW_EBUSY);
    sw_fixture_close_owner(&f, first);
    ck_assert_int_eq(adopt("orders", &id), 0);
    check_bytes(id);
}
END_TEST

/* An adopted region is one of the session's: the most allowed may be there, one more is refused and stays the tenant's.
 */
START_TEST(a_session_adopts_as_many_as_it_may_have) {
    struct sw_test_op first, second;
    struct sw_region_id id;
    ck_assert_int_eq(spill("orders", &first), 0);
    ck_assert_int_eq(spill("parts", &second), 0);
    next_session();
    f.engine->config.max_owner_regions = 1;
    ck_assert_int_eq(adopt("orders", &id), 0);
    ck_assert_int_eq(adopt("parts", &id), -SW_ELIMIT);
    ck_assert_int_eq(adopt("orders", &id), 0); /* which it has */
    sw_engine_check(f.engine);
    ck_assert_int_eq(sw_engine_drop(f.owner, id, NULL), 0);
    ck_assert_int_eq(adopt("parts", &id), 0);
    check_bytes(id);
}
END_TEST

/* It had not been reported as stored. */
START_TEST(a_failed_spill_frees_its_name) {
    struct sw_test_op op;
    struct sw_region_id id;
    sw_device_faulty_arm(f.device, "encode", 1, -SW_EGPU, SW_FAULT_LATE);
    ck_assert_int_eq(spill("orders", &op), -SW_EGPU);
    sw_device_faulty_arm(f.device, "encode", 0, 0, SW_FAULT_AT_ONCE);
    ck_assert_int_eq(adopt("orders", &id), -SW_ENOENT);
    ck_assert_int_eq(spill("orders", &op), 0);
    check_bytes(op.id);
}
END_TEST

/* Killed while it restores: the region stays, whole. */
START_TEST(the_session_ends_during_a_spill) {
    struct sw_test_op op, restored = {0};
    struct sw_region_id id;
    ck_assert_int_eq(spill("orders", &op), 0);
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &memory, true);
    const struct sw_range range = {.mem = mem, .bytes = REGION_BYTES};
    ck_assert_int_eq(sw_engine_restore(f.owner, op.id, SW_TRANSFER(&range, 1), sw_test_op_done, &restored, NULL), 0);
    sw_mem_close(mem, NULL, NULL);
    next_session();
    ck_assert_uint_eq(restored.calls, 1);
    ck_assert_int_eq(adopt("orders", &id), 0);
    check_bytes(id);
    /* and while it spills: there or not, never half */
    ck_assert_int_eq(begin("lineitem", &op), 0);
    next_session();
    const int rc = adopt("lineitem", &id);
    ck_assert(rc == 0 || rc == -SW_ENOENT);
    if (rc == 0)
        check_bytes(id);
}
END_TEST

START_TEST(no_memory) {
    struct sw_test_op op;
    for (unsigned long nth = 1;; nth++) {
        struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &memory, true);
        const struct sw_range range = {.mem = mem, .bytes = REGION_BYTES};
        op = (struct sw_test_op){0};
        sw_alloc_fail_nth(nth);
        const int rc =
            sw_engine_spill(f.owner, SW_TRANSFER(&range, 1, .name = "orders"), sw_test_op_done, &op, &op.id, NULL);
        sw_alloc_fail_nth(0);
        sw_mem_close(mem, NULL, NULL);
        if (rc == 0)
            sw_fixture_until(&f, &op.done); /* the worker may have met the failure */
        if (rc == 0 && op.outcome.err.code == 0)
            break;
        ck_assert_int_eq(rc ? rc : op.outcome.err.code, -SW_ENOMEM);
        ck_assert_uint_eq(quota.n_regions, 0);
        sw_engine_check(f.engine);
    }
    check_bytes(op.id);
}
END_TEST

/* The region is on its way to the disk when its session ends. The move goes on for the tenant owner. */
START_TEST(a_move_continues_for_the_tenant_owner) {
    struct sw_fixture_config config = sw_fixture_defaults;
    struct sw_test_op op;
    struct sw_region_id id = {0};
    int rc;
    teardown();
    config.nvme_bytes = 16 << 20;
    config.staging_bytes = 1 << 20;
    config.high_pct = 90;
    config.low_pct = 80;
    open_fixture(&config);
    ck_assert_int_eq(spill("orders", &op), 0);
    ck_assert_int_eq(sw_engine_advise(f.owner, op.id, SW_ADVISE_DEMOTE, 0, NULL), 0);
    ck_assert_uint_eq(f.engine->balance.n_moves, 1);
    next_session();
    while ((rc = adopt("orders", &id)) == -SW_EBUSY) /* as it says while it is being moved */
        (void)uv_run(&f.loop, UV_RUN_ONCE);
    ck_assert_int_eq(rc, 0);
    struct sw_region_info info;
    ck_assert_int_eq(sw_engine_query(f.owner, id, &info, NULL), 0);
    ck_assert_str_eq(info.tier, "nvme");
    check_bytes(id);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("spill_durable");
    TCase *tcase = tcase_create("spill_durable");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, durable_regions_outlive_their_session);
    tcase_add_test(tcase, a_region_being_spilled_is_not_adopted);
    tcase_add_test(tcase, an_adopted_region_belongs_to_no_request);
    tcase_add_test(tcase, names_belong_to_their_users);
    tcase_add_test(tcase, durabilities_are_checked);
    tcase_add_test(tcase, names_are_checked_and_bounded);
    tcase_add_test(tcase, a_session_without_a_tenant_owner_makes_no_durable_regions);
    tcase_add_test(tcase, another_tenant_finds_nothing);
    tcase_add_test(tcase, one_session_has_a_durable_region_at_a_time);
    tcase_add_test(tcase, a_session_adopts_as_many_as_it_may_have);
    tcase_add_test(tcase, a_failed_spill_frees_its_name);
    tcase_add_test(tcase, the_session_ends_during_a_spill);
    tcase_add_test(tcase, no_memory);
    tcase_add_test(tcase, a_move_continues_for_the_tenant_owner);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

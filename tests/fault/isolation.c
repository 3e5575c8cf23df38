/* One tenant's bytes never reach another one's memory, whichever way they were left behind: in the arena, in a device's
 * scratch, on the disk; and whatever fails. Each test fills all of these with a secret, ends that session, and looks
 * for the secret in the memory that the next one handed over. */
#include "base/alloc.h"
#include "spill/engine_state.h"
#include "tests/lib/content.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES = 200000, SHORT_BYTES = 3000, N_SHORT = 8 };
#ifdef __SANITIZE_THREAD__ /* many times slower */
enum { MANY = 5, N_CALLS = 1 };
#else
enum { MANY = 40, N_CALLS = 6 };
#endif

static const char secret[] = "another tenant's";
static struct sw_fixture f;
static struct sw_memory theirs, own, original;

/* One slot, so that a client's steps meet the remains of the last client's. Random bytes are stored raw, so the secret
 * is in the frames as it is. */
static void open_fixture(bool with_nvme) {
    struct sw_fixture_config config = sw_fixture_defaults;
    config.n_slots = 1;
    config.capacity_bytes = with_nvme ? 2 << 20 : 4 << 20;
    if (with_nvme) {
        config.staging_bytes = (2 << 20) - (256 << 10);
        config.nvme_bytes = 4 << 20;
        config.high_pct = 90;
        config.low_pct = 80;
    }
    sw_fixture_open(&f, &config);
    theirs = sw_memory_new(BYTES);
    own = sw_memory_new(BYTES + 4096);
    original = sw_memory_new(BYTES);
    sw_content_fill(theirs.data, BYTES, SW_CONTENT_RANDOM, 1);
    for (size_t at = 0; at + sizeof secret < BYTES; at += 500)
        memcpy(theirs.data + at, secret, strlen(secret));
    sw_content_fill(original.data, BYTES, SW_CONTENT_MIXED, 2);
}

static void setup(void) {
    open_fixture(false);
}

static void teardown(void) {
    sw_memory_free(&theirs);
    sw_memory_free(&own);
    sw_memory_free(&original);
    sw_fixture_close(&f);
}

static void spill_short(const struct sw_memory *memory, struct sw_test_op ops[N_SHORT]) {
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, memory, false);
    memset(ops, 0, N_SHORT * sizeof ops[0]);
    sw_engine_hold(f.engine, true);
    for (unsigned i = 0; i < N_SHORT; i++) {
        struct sw_range range = {.mem = mem, .offset = (uint64_t)i * SHORT_BYTES, .bytes = SHORT_BYTES};
        ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[i], &ops[i].id, NULL),
                         0);
    }
    sw_engine_release(f.engine);
    for (unsigned i = 0; i < N_SHORT; i++)
        sw_fixture_until(&f, &ops[i].done);
    sw_fixture_close_mem(&f, mem);
}

static void restore_short(const struct sw_memory *memory, const struct sw_test_op spilled[N_SHORT]) {
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, memory, false);
    struct sw_test_op ops[N_SHORT] = {0};
    sw_engine_hold(f.engine, true);
    for (unsigned i = 0; i < N_SHORT; i++) {
        struct sw_range range = {.mem = mem, .offset = (uint64_t)i * SHORT_BYTES, .bytes = SHORT_BYTES};
        ops[i].done = sw_engine_restore(f.owner, spilled[i].id, SW_TRANSFER(&range, 1, .keep = true), sw_test_op_done,
                                        &ops[i], NULL) < 0;
    }
    sw_engine_release(f.engine);
    for (unsigned i = 0; i < N_SHORT; i++)
        sw_fixture_until(&f, &ops[i].done);
    sw_fixture_close_mem(&f, mem);
}

/* The other tenant leaves the secret wherever it can, and is gone. */
static void leave_secrets(void) {
    struct sw_test_op op, ops[N_SHORT];
    ck_assert_int_eq(sw_fixture_spill(&f, &theirs, 0, BYTES, &op), 0);
    ck_assert_int_eq(sw_fixture_restore(&f, op.id, &theirs, 0, BYTES, true, &op), 0);
    spill_short(&theirs, ops);
    restore_short(&theirs, ops);
    ck_assert_int_eq(sw_fixture_pack(&f, &theirs, 0, BYTES, &op), 0);
    ck_assert_int_eq(sw_fixture_unpack(&f, op.id, &theirs, 0, BYTES, &op), 0);
    ck_assert_ptr_nonnull(memmem(theirs.data, BYTES, secret, strlen(secret)));
    sw_fixture_close_owner(&f, f.owner);
    ck_assert_int_eq(sw_owner_open(f.engine, &f.owner, NULL), 0);
}

static void check_own(const char *when, unsigned nth) {
    ck_assert_msg(!memmem(own.data, own.bytes, secret, strlen(secret)), "%s, %u", when, nth);
    sw_engine_check(f.engine);
}

static void fill_own(void) {
    memset(own.data, 0, own.bytes);
    memcpy(own.data, original.data, BYTES);
}

/* Everything that writes to the client's memory, with whatever fails in between left failed. */
static void use_service(const char *when, unsigned nth) {
    struct sw_test_op op, ops[N_SHORT];
    fill_own();
    const int rc = sw_fixture_spill(&f, &own, 0, BYTES, &op);
    check_own(when, nth);
    memset(own.data, 0, own.bytes);
    if (rc == 0)
        (void)sw_fixture_restore(&f, op.id, &own, 0, own.bytes, true, &op);
    check_own(when, nth);
    fill_own();
    spill_short(&own, ops);
    check_own(when, nth);
    memset(own.data, 0, own.bytes);
    restore_short(&own, ops);
    check_own(when, nth);
    fill_own();
    if (sw_fixture_pack(&f, &own, 0, BYTES, &op) == 0) {
        check_own(when, nth); /* the client also sees memory that the service has finished with */
        (void)sw_fixture_unpack(&f, op.id, &own, 0, BYTES, &op);
    }
    check_own(when, nth);
    sw_fixture_close_owner(&f, f.owner);
    ck_assert_int_eq(sw_owner_open(f.engine, &f.owner, NULL), 0);
}

static const char *const steps[] = {"map",   "make_plan", "encode", "store",        "load",        "place",
                                    "fetch", "decode",    "unpack", "encode_group", "store_group", "restore_group"};
enum { N_STEPS = sizeof steps / sizeof steps[0] };

START_TEST(failed_steps_leak_no_bytes) {
    const char *step = steps[_i / 2];
    static const unsigned calls[] = {1, 5, 2, 4, 8, 11}; /* of the region's chunks, of the pack's */
    for (size_t i = 0; i < N_CALLS; i++) {
        leave_secrets();
        sw_device_faulty_arm(f.device, step, calls[i], -SW_EGPU, _i % 2 ? SW_FAULT_LATE : SW_FAULT_AT_ONCE);
        use_service(step, calls[i]);
        sw_device_faulty_arm(f.device, step, 0, 0, SW_FAULT_AT_ONCE);
    }
}
END_TEST

START_TEST(damaged_frames_leak_no_bytes) {
    uint64_t random = 7;
    struct sw_test_op op, back;
    for (unsigned i = 0; i < MANY; i++) {
        struct sw_region *region;
        leave_secrets();
        fill_own();
        ck_assert_int_eq(sw_fixture_spill(&f, &own, 0, BYTES, &op), 0);
        ck_assert_int_eq(sw_region_find(&f.engine->store.regions, f.owner, op.id, &region, NULL), 0);
        struct sw_stored *frame = &region->frames->stored[sw_random(&random) % region->frames->n_chunks];
        struct sw_extent *extent = &frame->extents[sw_random(&random) % frame->n_extents];
        for (int k = 0; k < 3; k++) /* lengths and offsets are in the front */
            ((uint8_t *)extent->memory)[sw_random(&random) % (i % 2 ? extent->bytes : 512)] ^= (uint8_t)(1u << i % 8);
        memset(own.data, 0, own.bytes);
        (void)sw_fixture_restore(&f, op.id, &own, 0, own.bytes, true, &back);
        check_own("damaged", i);
        ck_assert_int_eq(sw_engine_drop(f.owner, op.id, NULL), 0);
    }
}
END_TEST

START_TEST(failed_allocations_leak_no_bytes) {
    for (unsigned nth = 1; nth <= MANY; nth++) {
        struct sw_test_op op;
        leave_secrets();
        fill_own();
        struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &own, false);
        const struct sw_range range = {.mem = mem, .bytes = BYTES};
        memset(&op, 0, sizeof op);
        sw_alloc_fail_nth(nth);
        if (sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &op, &op.id, NULL) == 0)
            sw_fixture_until(&f, &op.done);
        sw_alloc_fail_nth(0);
        sw_fixture_close_mem(&f, mem);
        check_own("no memory", nth);
        if (op.done && op.outcome.err.code == 0)
            ck_assert_int_eq(sw_fixture_restore(&f, op.id, &own, 0, own.bytes, false, &op), 0);
        check_own("no memory", nth);
    }
}
END_TEST

/* The next client's frames on the disk, to the ends of their blocks, contain nothing of the last client's. */
static void check_blocks(struct sw_region_id id) {
    static uint8_t block[4096];
    struct sw_region *region;
    char path[96];
    (void)snprintf(path, sizeof path, "%s/data-0000", f.folder.path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(sw_region_find(&f.engine->store.regions, f.owner, id, &region, NULL), 0);
    unsigned n = 0;
    for (size_t i = 0; i < region->frames->n_chunks; i++) {
        const struct sw_stored *frame = &region->frames->stored[i];
        for (unsigned e = 0; sw_stored_is_away(frame) && e < frame->n_extents; e++)
            for (uint64_t at = 0; at < frame->extents[e].bytes; at += sizeof block, n++) {
                ck_assert_int_eq(pread(fd, block, sizeof block, (off_t)(frame->extents[e].offset + at)), sizeof block);
                ck_assert_ptr_null(memmem(block, sizeof block, secret, strlen(secret)));
            }
    }
    ck_assert_uint_gt(n, 0);
    (void)close(fd);
}

START_TEST(failed_steps_beside_a_disk_leak_no_bytes) {
    struct sw_test_op op, first;
    struct stat st;
    char path[96];
    teardown();
    open_fixture(true);
    for (unsigned i = 0; i < 6; i++) {
        leave_secrets();
        ck_assert_int_eq(sw_fixture_spill(&f, &theirs, 0, BYTES, &first), 0);
        ck_assert_int_eq(sw_fixture_spill(&f, &theirs, 0, BYTES, &op), 0); /* the host tier has no more room */
        leave_secrets();
        fill_own();
        ck_assert_int_eq(sw_fixture_spill(&f, &own, 0, BYTES, &first), 0);
        ck_assert_int_eq(sw_fixture_spill(&f, &own, 0, BYTES - 100 * i, &op), 0);
        check_blocks(op.id);
        memset(own.data, 0, own.bytes);
        ck_assert_int_eq(sw_fixture_restore(&f, op.id, &own, 0, own.bytes, true, &op), 0);
        check_own("disk", i);
        use_service("disk", i);
    }
    static const char *const names[] = {"data-0000", "manifest", "lock"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", f.folder.path, names[i]);
        ck_assert_int_eq(stat(path, &st), 0);
        ck_assert_uint_eq(st.st_mode & 07777, 0600);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("isolation");
    TCase *tcase = tcase_create("isolation");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, failed_steps_leak_no_bytes, 0, 2 * N_STEPS);
    tcase_add_test(tcase, damaged_frames_leak_no_bytes);
    tcase_add_test(tcase, failed_allocations_leak_no_bytes);
    tcase_add_test(tcase, failed_steps_beside_a_disk_leak_no_bytes);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

/* Regions that an earlier version of the program has recorded are restored into memory without pages, which its clients
 * do not make: each once, and by the next process only. */
#include "spill/device/guard.h"
#include "spill/engine_state.h"
#include "spill/read.h"
#include "tests/lib/content.h"
#include "tests/lib/lives.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CELL_BYTES = 256, HINTS_AT = 16, PAGE = 4096 };
enum { SHORT_BYTES = 5000, SHORT = 4, N = 5, N_TOGETHER = 16, TOGETHER_APART = 2 * PAGE }; /* regions 0 ... SHORT */
#define NO_HOLES (UINT32_C(1) << 12)

static struct sw_life life;
static struct sw_region_id *const ids = sw_world.ids;

static bool can_guard(void) {
    const bool is_there = sw_guard_take();
    if (is_there)
        sw_guard_give_back();
    else
        (void)fprintf(stderr, "skipped: userfaultfd() cannot be used here\n");
    return is_there;
}

/* Makes the records as version 0.1 writes them. */
static void make_records_old(void) {
    struct stat st;
    ck_assert_int_eq(fstat(sw_world.catalogue, &st), 0);
    for (off_t at = CELL_BYTES + HINTS_AT; at < st.st_size; at += CELL_BYTES) {
        uint32_t hints;
        ck_assert_int_eq(pread(sw_world.catalogue, &hints, sizeof hints, at), sizeof hints);
        hints &= ~NO_HOLES;
        ck_assert_int_eq(pwrite(sw_world.catalogue, &hints, sizeof hints, at), sizeof hints);
    }
}

/* All pages from there on. */
static void punch(uint64_t offset) {
    const off_t bytes = (off_t)(sw_world.memory.bytes + PAGE - offset);
    ck_assert_int_eq(fallocate(sw_world.memory.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, bytes),
                     0);
}

/* Spills or restores a range of one chunk, or in place. */
static int run_range(struct sw_owner *owner, unsigned i, uint64_t bytes, bool in_place, bool restore, bool keep) {
    struct sw_mem_desc desc = sw_memory_desc(&sw_world.memory);
    struct sw_test_op op = {0};
    struct sw_mem *mem;
    ck_assert_int_eq(sw_mem_open(owner, &desc, false, &mem, NULL), 0);
    const struct sw_range range = {.mem = mem, .bytes = bytes};
    const int rc =
        restore
            ? sw_engine_restore(owner, ids[i], SW_TRANSFER(&range, 1, .in_place = in_place, .keep = keep),
                                sw_test_op_done, &op, NULL)
            : sw_engine_spill(owner, SW_TRANSFER(&range, 1, .in_place = in_place), sw_test_op_done, &op, &ids[i], NULL);
    sw_mem_close(mem, NULL, NULL);
    if (rc)
        return rc;
    sw_life_until(&life, &op.done);
    return op.outcome.err.code;
}

static int restore(struct sw_owner *owner, unsigned i, bool keep) {
    return i == SHORT ? run_range(owner, i, SHORT_BYTES, false, true, keep) : sw_life_run(&life, owner, i, true, keep);
}

static int restore_into_holes(struct sw_owner *owner, unsigned i) {
    punch(0);
    return restore(owner, i, true);
}

static void ck_holds(unsigned i) {
    static uint8_t expected[SW_WORLD_REGION_BYTES];
    sw_world_fill(expected, i);
    ck_assert_mem_eq(sw_world.memory.data, expected, i == SHORT ? SHORT_BYTES : SW_WORLD_REGION_BYTES);
}

static void leave_regions(void) {
    sw_life_open(&life, 0);
    struct sw_owner *owner = sw_life_new_owner(&life);
    for (unsigned i = 0; i < N; i++) {
        sw_world_fill(sw_world.memory.data, i);
        ck_assert_int_eq(i == SHORT ? run_range(owner, i, SHORT_BYTES, false, false, false)
                                    : sw_life_run(&life, owner, i, false, false),
                         0);
    }
    sw_life_close(&life, owner, true);
}

/* The next process, and the session. */
static struct sw_owner *find(void) {
    sw_life_open(&life, 0);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_lost, 0);
    struct sw_owner *owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    ck_assert_ptr_nonnull(owner);
    return owner;
}

/* Compressed, raw, of several buffers, short. */
START_TEST(old_regions_are_restored_into_holes_once) {
    if (!can_guard())
        return;
    leave_regions();
    make_records_old();
    struct sw_owner *owner = find();
    for (unsigned i = 0; i < N; i++) {
        ck_assert_int_eq(restore_into_holes(owner, i), 0);
        ck_holds(i);
        ck_assert_int_eq(restore_into_holes(owner, i), -SW_EUNALLOCATED);
        ck_assert_int_eq(fallocate(sw_world.memory.fd, 0, 0, (off_t)sw_world.memory.bytes), 0);
        ck_assert_int_eq(restore(owner, i, false), 0);
        ck_holds(i);
    }
    /* Regions that are stored from now on may not. */
    sw_world_fill(sw_world.memory.data, 0);
    ck_assert_int_eq(sw_life_run(&life, owner, 0, false, false), 0);
    ck_assert_int_eq(restore_into_holes(owner, 0), -SW_EUNALLOCATED);
    sw_engine_check(life.engine);
    sw_life_close(&life, owner, false);
}
END_TEST

/* All at once, each with pages of its own: they go in groups. Returns how many fail for holes. */
static unsigned run_together(struct sw_owner *owner, struct sw_region_id group[N_TOGETHER], bool restore) {
    struct sw_mem_desc desc = sw_memory_desc(&sw_world.memory);
    struct sw_test_op ops[N_TOGETHER] = {0};
    struct sw_mem *mem;
    unsigned n_refused = 0;
    ck_assert_int_eq(sw_mem_open(owner, &desc, false, &mem, NULL), 0);
    for (unsigned i = 0; i < N_TOGETHER; i++) {
        const struct sw_range range = {.mem = mem, .offset = i * TOGETHER_APART, .bytes = SHORT_BYTES};
        ck_assert_int_eq(
            restore ? sw_engine_restore(owner, group[i], SW_TRANSFER(&range, 1, .keep = true), sw_test_op_done, &ops[i],
                                        NULL)
                    : sw_engine_spill(owner, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[i], &group[i], NULL),
            0);
    }
    sw_mem_close(mem, NULL, NULL);
    for (unsigned i = 0; i < N_TOGETHER; i++) {
        sw_life_until(&life, &ops[i].done);
        const int code = ops[i].outcome.err.code;
        ck_assert(code == 0 || code == -SW_EUNALLOCATED);
        n_refused += code != 0;
    }
    return n_refused;
}

START_TEST(a_group_of_old_regions_is_restored_into_holes_once) {
    static uint8_t expected[SW_WORLD_REGION_BYTES];
    struct sw_region_id group[N_TOGETHER];
    if (!can_guard())
        return;
    sw_world_fill(expected, 0);
    memcpy(sw_world.memory.data, expected, sizeof expected);
    sw_life_open(&life, 0);
    struct sw_owner *owner = sw_life_new_owner(&life);
    ck_assert_uint_eq(run_together(owner, group, false), 0);
    sw_life_close(&life, owner, true);
    make_records_old();
    owner = find();
    punch(0);
    ck_assert_uint_eq(run_together(owner, group, true), 0);
    for (size_t i = 0; i < N_TOGETHER; i++)
        ck_assert_mem_eq(sw_world.memory.data + i * TOGETHER_APART, expected + i * TOGETHER_APART, SHORT_BYTES);
    punch(0);
    ck_assert_uint_eq(run_together(owner, group, true), N_TOGETHER);
    sw_life_close(&life, owner, false);
}
END_TEST

START_TEST(new_regions_are_not_restored_into_holes) {
    if (!can_guard())
        return;
    leave_regions();
    struct sw_owner *owner = find();
    for (unsigned i = 0; i < N; i++)
        ck_assert_int_eq(restore_into_holes(owner, i), -SW_EUNALLOCATED);
    sw_life_close(&life, owner, false);
}
END_TEST

/* Or a client could end the service by that again and again. */
START_TEST(the_second_next_process_fills_no_holes) {
    if (!can_guard())
        return;
    leave_regions();
    make_records_old();
    struct sw_owner *owner = find();
    sw_life_close(&life, owner, true);
    owner = find();
    for (unsigned i = 0; i < N; i++)
        ck_assert_int_eq(restore_into_holes(owner, i), -SW_EUNALLOCATED);
    sw_life_close(&life, owner, false);
}
END_TEST

START_TEST(a_restore_that_cannot_begin_takes_nothing) {
    const struct sw_memory right = sw_world.memory;
    if (!can_guard())
        return;
    leave_regions();
    make_records_old();
    struct sw_owner *owner = find();
    sw_world.memory.fd = memfd_create("unsealed", MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(sw_world.memory.fd, (off_t)right.bytes), 0);
    ck_assert_int_eq(sw_life_run(&life, owner, 0, true, true), -SW_EUNSEALED);
    (void)close(sw_world.memory.fd);
    sw_world.memory = right;
    ck_assert_int_eq(restore_into_holes(owner, 0), 0);
    ck_holds(0);
    sw_life_close(&life, owner, false);
}
END_TEST

/* _i 0: ends without a chunk. 1: its memory cannot be mapped. */
START_TEST(a_read_that_writes_nothing_takes_nothing) {
    struct sw_buffer_info buffers[SW_FRAMES_MAX_BUFFERS];
    struct sw_test_op op = {0}, end = {0};
    struct sw_read *read = NULL;
    struct sw_mem *mem;
    unsigned n;
    if (!can_guard())
        return;
    leave_regions();
    make_records_old();
    struct sw_owner *owner = find();
    ck_assert_int_eq(sw_read_begin(owner, ids[0], &read, buffers, &n, NULL), 0);
    if (_i) {
        const struct sw_memory right = sw_world.memory;
        sw_world.memory.fd = memfd_create("unsealed", MFD_CLOEXEC);
        ck_assert_int_eq(ftruncate(sw_world.memory.fd, (off_t)right.bytes), 0);
        struct sw_mem_desc desc = sw_memory_desc(&sw_world.memory);
        ck_assert_int_eq(sw_mem_open(owner, &desc, true, &mem, NULL), 0);
        (void)close(sw_world.memory.fd);
        sw_world.memory = right;
        const struct sw_range range = {.mem = mem, .bytes = right.bytes};
        ck_assert_int_eq(sw_read_chunks(read, &range, 1, sw_test_op_done, &op, NULL), 0);
        sw_mem_close(mem, NULL, NULL);
        sw_life_until(&life, &op.done);
        ck_assert_int_eq(op.outcome.err.code, -SW_EUNSEALED);
    } else {
        sw_read_fail(read, &(struct sw_err){.code = -SW_ECANCELED, .msg = "enough"});
    }
    ck_assert_int_eq(sw_read_end(read, true, sw_test_op_done, &end, NULL), 0);
    sw_life_until(&life, &end.done);
    ck_assert_int_ne(end.outcome.err.code, 0);
    ck_assert_int_eq(restore_into_holes(owner, 0), 0);
    ck_holds(0);
    ck_assert_int_eq(restore_into_holes(owner, 0), -SW_EUNALLOCATED);
    sw_life_close(&life, owner, false);
}
END_TEST

/* The client may free the memory behind the packed bytes. With zeros even the first chunk, which is decoded over its
 * own frame, reaches there. _i: 0 ... 1 text, 2 ... 3 zeros; even: new regions, odd: old ones */
START_TEST(an_old_packed_region_gets_no_pages) {
    struct sw_region_info info;
    const bool is_old = _i % 2;
    if (!can_guard())
        return;
    uint8_t *expected = malloc(SW_WORLD_REGION_BYTES);
    sw_life_open(&life, 0);
    struct sw_owner *owner = sw_life_new_owner(&life);
    sw_content_fill(expected, SW_WORLD_REGION_BYTES, _i < 2 ? SW_CONTENT_TEXT : SW_CONTENT_ZEROS, 7);
    memcpy(sw_world.memory.data, expected, SW_WORLD_REGION_BYTES);
    ck_assert_int_eq(run_range(owner, 0, SW_WORLD_REGION_BYTES, true, false, false), 0);
    sw_life_close(&life, owner, true);
    if (is_old)
        make_records_old();
    owner = find();
    ck_assert_int_eq(sw_engine_query(owner, ids[0], &info, NULL), 0);
    const uint64_t end = (info.stored_bytes + PAGE - 1) / PAGE * PAGE;
    ck_assert_uint_lt(end, SW_WORLD_REGION_BYTES - PAGE);
    punch(end);
    ck_assert_int_eq(run_range(owner, 0, SW_WORLD_REGION_BYTES, true, true, false), is_old ? 0 : -SW_EUNALLOCATED);
    if (is_old)
        ck_assert_mem_eq(sw_world.memory.data, expected, SW_WORLD_REGION_BYTES);
    sw_life_close(&life, owner, false);
    free(expected);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("recovery of holes");
    TCase *tcase = tcase_create("recovery of holes");
    tcase_add_checked_fixture(tcase, sw_world_setup, sw_world_teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, old_regions_are_restored_into_holes_once);
    tcase_add_test(tcase, a_group_of_old_regions_is_restored_into_holes_once);
    tcase_add_test(tcase, new_regions_are_not_restored_into_holes);
    tcase_add_test(tcase, the_second_next_process_fills_no_holes);
    tcase_add_test(tcase, a_restore_that_cannot_begin_takes_nothing);
    tcase_add_loop_test(tcase, a_read_that_writes_nothing_takes_nothing, 0, 2);
    tcase_add_loop_test(tcase, an_old_packed_region_gets_no_pages, 0, 4);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

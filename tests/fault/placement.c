/* Regions that do not fit into the host tier: they go to the NVMe tier, at once or later, and come back from there;
 * whatever fails on the way, the memory or the stored copy is whole. */
#include "base/alloc.h"
#include "base/clock.h"
#include "spill/engine_state.h"
#include "spill/operator.h"
#include "tests/lib/content.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Regions of 10 chunks that do not shrink: 640 KiB each in a host tier of 4 MiB, of which 1 MiB is for the way. */
enum { N = 16, REGION_BYTES = 10 * 65536 - 77 };

static struct sw_fixture f;
static struct sw_memory memory;
static struct sw_region_id ids[N];

static struct sw_stored fills; /* free bytes of the host tier */

static struct {
    atomic_int reads, writes; /* the n-th data request fails; 0: none */
    atomic_bool all, hangs;   /* every write fails; does not end */
    atomic_bool is_slow;      /* every write takes some milliseconds */
    atomic_int n_failed;      /* of those */
} fault;

static bool is_hit(atomic_int *countdown, size_t bytes) {
    return bytes % 4096 == 0 && atomic_load(countdown) > 0 && atomic_fetch_sub(countdown, 1) == 1;
}

static ssize_t faulty_pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    while (atomic_load(&fault.hangs))
        (void)usleep(1000);
    (void)usleep(atomic_load(&fault.is_slow) ? 20000 : 0);
    if (!is_hit(&fault.writes, bytes) && !(bytes % 4096 == 0 && atomic_load(&fault.all)))
        return pwrite(fd, data, bytes, offset);
    (void)atomic_fetch_add(&fault.n_failed, 1);
    errno = EIO;
    return -1;
}

static ssize_t faulty_pread(int fd, void *ret, size_t bytes, off_t offset) {
    if (!is_hit(&fault.reads, bytes))
        return pread(fd, ret, bytes, offset);
    errno = EIO;
    return -1;
}

/* A minute ahead of the real time. */
static uint64_t a_minute_later_us(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return ((uint64_t)now.tv_sec + 60) * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static const struct sw_nvme_file_ops faulty_files = {.pwrite = faulty_pwrite, .pread = faulty_pread};

static void open_fixture(uint64_t nvme_bytes, unsigned high_pct, unsigned low_pct, bool with_faults) {
    struct sw_fixture_config config = sw_fixture_defaults;
    config.capacity_bytes = 4 << 20;
    config.staging_bytes = 1 << 20;
    config.nvme_bytes = nvme_bytes;
    config.high_pct = high_pct;
    config.low_pct = low_pct;
    config.files = with_faults ? &faulty_files : NULL;
    sw_fixture_open(&f, &config);
    memory = sw_memory_new(REGION_BYTES);
}

static void close_fixture(void) {
    sw_memory_free(&memory);
    sw_fixture_close(&f);
}

static void fill(uint64_t seed) {
    sw_content_fill(memory.data, memory.bytes, SW_CONTENT_RANDOM, seed);
}

static void check_content(uint64_t seed) {
    uint8_t *expected = sw_alloc(REGION_BYTES);
    ck_assert_ptr_nonnull(expected);
    sw_content_fill(expected, REGION_BYTES, SW_CONTENT_RANDOM, seed);
    ck_assert_int_eq(memcmp(memory.data, expected, REGION_BYTES), 0);
    sw_free(expected);
}

static int spill(int i) {
    struct sw_test_op op;
    fill((uint64_t)i);
    int rc = sw_fixture_spill(&f, &memory, 0, memory.bytes, &op);
    if (rc)
        check_content((uint64_t)i);
    ids[i] = op.id;
    return rc;
}

static int restore(int i, bool keep) {
    struct sw_test_op op;
    memset(memory.data, 0xEE, memory.bytes);
    int rc = sw_fixture_restore(&f, ids[i], &memory, 0, memory.bytes, keep, &op);
    if (!rc)
        check_content((uint64_t)i);
    return rc;
}

static const char *tier_of(int i) {
    struct sw_region_info info;
    ck_assert_int_eq(sw_engine_query(f.owner, ids[i], &info, NULL), 0);
    return info.tier;
}

static void await_moves(void) {
    while (f.engine->balance.n_moves > 0)
        (void)uv_run(&f.loop, UV_RUN_ONCE);
}

static struct sw_engine_stats settled_stats(void) {
    struct sw_engine_stats stats;
    await_moves();
    sw_engine_check(f.engine);
    sw_engine_stats(f.engine, &stats);
    return stats;
}

static bool add_moving(const struct sw_region_view *view, void *arg) {
    *(unsigned *)arg += view->is_moving;
    return true;
}

START_TEST(test_regions_without_room_in_host_memory_go_to_the_disk) {
    open_fixture(32 << 20, 100, 100, false);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(spill(i), 0);
    const struct sw_engine_stats stats = settled_stats();
    ck_assert_str_eq(tier_of(0), "host");
    ck_assert_str_eq(tier_of(N - 1), "nvme");
    ck_assert_uint_le(stats.tiers[0].used_bytes, 3 << 20);
    ck_assert_uint_gt(stats.tiers[1].used_bytes, 6 << 20);
    ck_assert_uint_eq(stats.demotions, 0);
    for (int i = N; i-- > 0;) {
        ck_assert_int_eq(restore(i, true), 0);
        ck_assert_int_eq(restore(i, false), 0);
    }
    close_fixture();
}
END_TEST

START_TEST(test_above_the_watermark_the_oldest_regions_move) {
    open_fixture(32 << 20, 70, 40, false);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(spill(i), 0);
    struct sw_engine_stats stats = settled_stats();
    ck_assert_uint_gt(stats.demotions, 0);
    ck_assert_str_eq(tier_of(0), "nvme");
    ck_assert_str_eq(tier_of(3), "host");
    ck_assert_uint_le(stats.tiers[0].used_bytes, (uint64_t)(3 << 20) / 100 * 40);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(restore(i, false), 0);
    stats = settled_stats();
    ck_assert_uint_eq(stats.tiers[0].used_bytes + stats.tiers[1].used_bytes, 0);
    close_fixture();
}
END_TEST

/* Small regions: many rounds of moves lie between the watermarks. */
START_TEST(test_moves_continue_to_the_low_watermark) {
    struct sw_test_op op;
    struct sw_engine_stats stats;
    int n = 0;
    open_fixture(32 << 20, 70, 20, false);
    fill(1);
    do {
        ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, 65536, &op), 0);
        sw_engine_stats(f.engine, &stats);
        ck_assert_int_lt(++n, 64);
    } while (stats.demotions == 0 &&
             stats.tiers[0].used_bytes <= (uint64_t)(3 << 20) / 100 * 70); /* moves may be over already */
    stats = settled_stats();
    ck_assert_uint_le(stats.tiers[0].used_bytes, (uint64_t)(3 << 20) / 100 * 20);
    ck_assert_uint_ge(stats.tiers[0].used_bytes, (uint64_t)(3 << 20) / 100 * 10);
    close_fixture();
}
END_TEST

/* New watermarks count at once, the low one, too. */
START_TEST(test_watermarks_may_change) {
    static const unsigned marks[][2] = {{90, 80}, {70, 40}, {30, 20}};
    struct sw_test_op op;
    open_fixture(32 << 20, 100, 100, false);
    fill(1);
    for (unsigned i = 0; i < 44; i++) /* 93 % */
        ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, 65536, &op), 0);
    ck_assert_uint_eq(settled_stats().demotions, 0);
    for (unsigned i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        sw_engine_set_limits(f.engine, marks[i][0], marks[i][1], 1000);
        const uint64_t used_bytes = settled_stats().tiers[0].used_bytes, low_bytes = (3 << 20) / 100 * marks[i][1];
        ck_assert_uint_le(used_bytes, low_bytes);
        ck_assert_uint_gt(used_bytes + 2 * 65536, low_bytes);
    }
    close_fixture();
}
END_TEST

static unsigned count_moving(void) {
    unsigned n = 0;
    ck_assert_uint_eq(sw_engine_visit(f.engine, 0, 1000, add_moving, &n), UINT32_MAX);
    return n;
}

/* Many short regions move at once, also when many bytes have been moved before. */
START_TEST(test_short_regions_move_together) {
    enum { SHORT = 20 };
    struct sw_test_op op;
    open_fixture(64 << 20, 100, 100, false);
    for (int i = 0; i < 28; i++) { /* 17 MiB */
        ck_assert_int_eq(spill(0), 0);
        ck_assert_int_eq(sw_engine_advise(f.owner, ids[0], SW_ADVISE_DEMOTE, 0, NULL), 0);
        (void)settled_stats();
    }
    fill(1);
    for (unsigned i = 0; i < SHORT; i++)
        ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, 65536, &op), 0);
    ck_assert_int_eq(sw_engine_drain(f.engine, "nvme", NULL), 0);
    ck_assert_uint_eq(count_moving(), SHORT);
    ck_assert_uint_eq(settled_stats().tiers[0].used_bytes, 0);
    close_fixture();
}
END_TEST

static bool note_moved(const struct sw_region_view *view, void *arg) {
    uint64_t *most = arg;
    *most = view->is_moving && view->moved_bytes > *most ? view->moved_bytes : *most;
    return true;
}

/* An operator sees how far a move has come. */
START_TEST(test_the_progress_of_a_move_is_seen) {
    uint64_t seen = 0, before;
    unsigned n_steps = 0;
    open_fixture(32 << 20, 100, 100, true);
    ck_assert_int_eq(spill(0), 0);
    atomic_store(&fault.is_slow, true);
    ck_assert_int_eq(sw_engine_advise(f.owner, ids[0], SW_ADVISE_DEMOTE, 0, NULL), 0);
    while (count_moving()) {
        before = seen;
        ck_assert_uint_eq(sw_engine_visit(f.engine, 0, 1000, note_moved, &seen), UINT32_MAX);
        n_steps += seen > before;
        (void)uv_run(&f.loop, UV_RUN_NOWAIT);
    }
    ck_assert_uint_gt(n_steps, 0);
    ck_assert_uint_le(seen, settled_stats().tiers[1].used_bytes);
    ck_assert_int_eq(restore(0, false), 0);
    close_fixture();
}
END_TEST

/* The disk has room for a part of the region alone. The region stays, and what was moved of it is given up. */
START_TEST(test_a_move_to_a_full_disk_ends) {
    const uint64_t until_us = sw_clock_us() + 20000000;
    open_fixture(512 << 10, 100, 100, false);
    ck_assert_int_eq(spill(0), 0);
    ck_assert_int_eq(sw_engine_advise(f.owner, ids[0], SW_ADVISE_DEMOTE, 0, NULL), 0);
    while (count_moving() && sw_clock_us() < until_us)
        (void)uv_run(&f.loop, UV_RUN_NOWAIT);
    ck_assert_uint_eq(count_moving(), 0);
    const struct sw_engine_stats stats = settled_stats();
    ck_assert_uint_eq(stats.demotions, 0);
    ck_assert_int_eq(restore(0, false), 0);
    ck_assert_uint_eq(settled_stats().tiers[1].used_bytes, 0);
    close_fixture();
}
END_TEST

/* Restores, drops and the end of the session at any moment of a move. */
START_TEST(test_a_region_can_be_restored_during_its_move) {
    open_fixture(32 << 20, 40, 10, false);
    for (int round = 0; round < 12; round++) {
        for (int i = 0; i < 4; i++)
            ck_assert_int_eq(spill(i), 0);
        for (int turn = 0; turn < round % 7; turn++)
            (void)uv_run(&f.loop, UV_RUN_NOWAIT);
        for (int i = 0; i < 4; i++)
            ck_assert_int_eq(i == round % 4 ? sw_engine_drop(f.owner, ids[i], NULL) : restore(i, i % 2), 0);
        for (int i = 0; i < 4; i++)
            ck_assert(i % 2 == 0 || i == round % 4 || sw_engine_drop(f.owner, ids[i], NULL) == 0);
        const struct sw_engine_stats stats = settled_stats();
        ck_assert_uint_eq(stats.tiers[0].used_bytes + stats.tiers[1].used_bytes, 0);
    }
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(spill(i), 0);
    close_fixture(); /* with moves under way */
}
END_TEST

static int advise(int i, enum sw_advice advice, uint32_t value) {
    return sw_engine_advise(f.owner, ids[i], advice, value, NULL);
}

START_TEST(test_advice_is_followed) {
    open_fixture(32 << 20, 70, 40, false);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(spill(i), 0);
    ck_assert_int_eq(advise(0, SW_ADVISE_PIN, 1), 0);
    ck_assert_int_eq(advise(1, SW_ADVISE_PRIORITY, 7), 0);
    ck_assert_int_eq(spill(3), 0);
    (void)settled_stats();
    ck_assert_str_eq(tier_of(0), "host"); /* pinned */
    ck_assert_str_eq(tier_of(2), "nvme"); /* of no priority, and older than 3 */
    ck_assert_int_eq(advise(2, SW_ADVISE_PREFETCH, 0), 0);
    ck_assert_int_eq(advise(2, SW_ADVISE_PREFETCH, 0), -SW_EBUSY);
    struct sw_engine_stats stats = settled_stats();
    ck_assert_uint_eq(stats.promotions, 1);
    ck_assert_str_eq(tier_of(2), "host");
    ck_assert_int_eq(advise(2, SW_ADVISE_PREFETCH, 0), 0); /* is there */
    ck_assert_int_eq(advise(2, SW_ADVISE_PREFETCH, 1), -SW_EINVAL);
    ck_assert_int_eq(advise(2, SW_ADVISE_PIN, 2), -SW_EINVAL);
    ck_assert_int_eq(advise(2, SW_ADVISE_PRIORITY, 256), -SW_EINVAL);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(restore(i, false), 0);
    ck_assert_int_eq(advise(2, SW_ADVISE_PIN, 1), -SW_ESTALE);
    close_fixture();
}
END_TEST

/* A region can be had while it is fetched; a fetch that fails leaves it where it is. */
START_TEST(test_a_fetch_can_be_interrupted_and_can_fail) {
    open_fixture(32 << 20, 100, 100, true);
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(spill(i), 0);
    ck_assert_int_eq(advise(5, SW_ADVISE_PREFETCH, 0), -SW_ENOSPACE);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(sw_engine_drop(f.owner, ids[i], NULL), 0);
    atomic_store(&fault.reads, 3);
    ck_assert_int_eq(advise(5, SW_ADVISE_PREFETCH, 0), 0);
    (void)settled_stats();
    atomic_store(&fault.reads, 0);
    ck_assert_int_eq(restore(5, true), 0);
    for (int turn = 0; turn < 5; turn++) {
        ck_assert_int_eq(advise(5, SW_ADVISE_PREFETCH, 0), 0);
        for (int i = 0; i < turn; i++)
            (void)uv_run(&f.loop, UV_RUN_NOWAIT);
        ck_assert_int_eq(restore(5, true), 0);
        (void)settled_stats();
    }
    ck_assert_int_eq(advise(5, SW_ADVISE_PREFETCH, 0), 0);
    (void)settled_stats();
    ck_assert_str_eq(tier_of(5), "host");
    ck_assert_int_eq(advise(4, SW_ADVISE_PREFETCH, 0), 0);
    ck_assert_int_eq(sw_engine_drop(f.owner, ids[4], NULL), 0); /* in the middle */
    (void)settled_stats();
    ck_assert_int_eq(restore(3, false), 0);
    ck_assert_int_eq(restore(5, false), 0);
    close_fixture();
}
END_TEST

START_TEST(test_both_tiers_full) {
    int n = 0, rc;
    open_fixture(4 << 20, 100, 100, false);
    while ((rc = spill(n)) == 0)
        ck_assert_int_lt(++n, N);
    ck_assert_int_eq(rc, -SW_ENOSPACE);
    ck_assert_int_ge(n, 8);
    (void)settled_stats();
    ck_assert_int_eq(restore(0, false), 0);
    ck_assert_int_eq(spill(n), 0); /* there is room again */
    for (int i = 1; i <= n; i++)
        ck_assert_int_eq(restore(i, false), 0);
    close_fixture();
}
END_TEST

START_TEST(test_a_disk_that_fails_costs_that_operation_only) {
    open_fixture(32 << 20, 100, 100, true);
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(spill(i), 0);
    ck_assert_str_eq(tier_of(5), "nvme");
    for (int nth = 1; nth <= 10; nth++) {
        atomic_store(&fault.writes, nth);
        ck_assert_int_eq(spill(6), -SW_EIO);
        atomic_store(&fault.writes, 0);
        atomic_store(&fault.reads, nth);
        ck_assert_int_eq(restore(5, true), -SW_EIO);
        atomic_store(&fault.reads, 0);
        ck_assert_int_eq(sw_fixture_state(&f, ids[5]), SW_REGION_OUT);
        (void)settled_stats();
        ck_assert_int_eq(restore(5, true), 0);
    }
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(restore(i, false), 0);
    close_fixture();
}
END_TEST

START_TEST(test_a_move_that_fails_leaves_the_region_where_it_is) {
    open_fixture(32 << 20, 70, 40, true);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(spill(i), 0);
    atomic_store(&fault.writes, 5);
    ck_assert_int_eq(spill(3), 0);
    (void)settled_stats();
    atomic_store(&fault.writes, 0);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(restore(i, true), 0);
    const struct sw_engine_stats stats = settled_stats();
    ck_assert_uint_gt(stats.demotions, 0); /* tried again */
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(restore(i, false), 0);
    close_fixture();
}
END_TEST

/* The part of a region that such a move leaves in the host tier can be moved later, although most of the region is on
 * the disk. */
START_TEST(test_the_rest_of_a_region_follows) {
    open_fixture(32 << 20, 100, 90, true);
    ck_assert_int_eq(spill(0), 0);
    atomic_store(&fault.writes, 8);
    ck_assert_int_eq(sw_engine_make_room(f.engine, UINT64_MAX, NULL), 0);
    ck_assert_uint_gt(settled_stats().tiers[0].used_bytes, 0);
    ck_assert_str_eq(tier_of(0), "nvme");
    ck_assert_int_eq(sw_engine_make_room(f.engine, UINT64_MAX, NULL), 0);
    ck_assert_uint_eq(settled_stats().tiers[0].used_bytes, 0);
    ck_assert_int_eq(restore(0, false), 0);
    close_fixture();
}
END_TEST

/* Stores as much as a predecessor with more memory could: no room is left for frames under way. */
static void rest_above_the_limit(void) {
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(spill(i), 0);
    const struct sw_engine_stats stats = settled_stats();
    const uint64_t free_bytes = stats.tiers[0].capacity_bytes - stats.tiers[0].used_bytes;
    ck_assert_int_eq(f.tier->ops->reserve(f.tier, free_bytes - free_bytes % 4096, &fills, NULL), 0);
}

/* A demotion that fails makes no room: every spill fails at once, with the error of a full tier. */
START_TEST(test_a_failed_demotion_delays_no_spill) {
    open_fixture(32 << 20, 100, 50, true);
    rest_above_the_limit();
    atomic_store(&fault.all, true);
    for (int i = 0; i < 6; i++) /* every other one waits for the one before it */
        ck_assert_int_eq(spill(4), -SW_ENOSPACE);
    await_moves();
    atomic_store(&fault.all, false);
    ck_assert_int_eq(spill(4), -SW_ENOSPACE); /* begins a demotion, */
    ck_assert_int_eq(spill(4), 0);            /* which is waited for */
    await_moves();
    sw_stored_release(&fills);
    ck_assert_uint_gt(settled_stats().demotions, 0);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(restore(i, false), 0);
    close_fixture();
}
END_TEST

/* A disk that takes nothing is not asked again and again. */
START_TEST(test_a_move_that_fails_is_not_tried_again_at_once) {
    open_fixture(32 << 20, 70, 0, true);
    atomic_store(&fault.all, true);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(spill(i), 0);
    while (f.engine->balance.n_moves > 0) {
        (void)uv_run(&f.loop, UV_RUN_ONCE);
        ck_assert_int_lt(atomic_load(&fault.n_failed), 500); /* of 40 chunks */
    }
    ck_assert_int_gt(atomic_load(&fault.n_failed), 0);
    ck_assert_uint_eq(settled_stats().demotions, 0); /* none has ended well */
    atomic_store(&fault.all, false);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(restore(i, false), 0);
    close_fixture();
}
END_TEST

/* Nor when the next region comes: by then the tier is below its high watermark again, and the moves that have failed
 * are over. */
START_TEST(test_moves_that_have_failed_do_not_go_on_below_the_watermark) {
    struct sw_test_op op;
    open_fixture(32 << 20, 70, 0, true);
    atomic_store(&fault.all, true);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(spill(i), 0);
    await_moves();
    ck_assert_int_gt(atomic_load(&fault.n_failed), 0);
    atomic_store(&fault.all, false);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(sw_engine_drop(f.owner, ids[i], NULL), 0);
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, 65536, &op), 0);
    ck_assert_uint_eq(settled_stats().demotions, 0);
    close_fixture();
}
END_TEST

/* Exactly the bytes that an operator asked for leave the first tier, a few at a time: the tier does not continue to its
 * low watermark, and the rest of the demand is not forgotten. */
START_TEST(test_a_demand_of_the_operator_is_met_exactly) {
    enum { SMALL = 65536, REGIONS = 20, WISHED = 6 }; /* more than are moved at once */
    struct sw_test_op op;
    open_fixture(32 << 20, 100, 0, false);
    fill(1);
    for (int i = 0; i < REGIONS; i++)
        ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, SMALL, &op), 0);
    const uint64_t stored_bytes = settled_stats().tiers[0].used_bytes / REGIONS;
    ck_assert_int_eq(sw_engine_make_room(f.engine, WISHED * stored_bytes - SMALL / 2, NULL), 0);
    ck_assert_uint_eq(settled_stats().demotions, WISHED);
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, SMALL, &op), 0);
    ck_assert_uint_eq(settled_stats().demotions, WISHED);
    close_fixture();
}
END_TEST

/* The operator sees that it failed, and asks again. */
START_TEST(test_a_demand_of_the_operator_ends_with_a_move_that_fails) {
    open_fixture(32 << 20, 100, 0, true);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(spill(i), 0);
    atomic_store(&fault.all, true);
    ck_assert_int_eq(sw_engine_make_room(f.engine, UINT64_MAX, NULL), 0);
    (void)settled_stats();
    ck_assert_int_gt(atomic_load(&fault.n_failed), 0);
    atomic_store(&fault.all, false);
    ck_assert_int_eq(spill(3), 0);
    ck_assert_uint_eq(settled_stats().demotions, 0);
    ck_assert_int_eq(sw_engine_make_room(f.engine, UINT64_MAX, NULL), 0);
    ck_assert_uint_eq(settled_stats().demotions, 4);
    close_fixture();
}
END_TEST

/* ---- transfers at once ---- */

static struct {
    const struct sw_tier_ops *real;
    struct sw_tier_ops ops;
    atomic_int kind; /* of transfers that wait; -1: none do */
    struct sw_tier_io *waiting[N];
    atomic_uint n;
} held;

static void submit_held(struct sw_tier *tier, struct sw_tier_io *io) {
    const unsigned n = atomic_load(&held.n);
    if ((int)io->kind != atomic_load(&held.kind) || n == N) {
        held.real->submit(tier, io);
        return;
    }
    held.waiting[n] = io;
    atomic_store(&held.n, n + 1);
}

/* Before anything is stored. */
static void watch_disk(void) {
    held.real = f.nvme->ops;
    held.ops = *held.real;
    held.ops.submit = submit_held;
    atomic_store(&held.kind, -1);
    f.nvme->ops = &held.ops;
}

/* The disk takes these and does not answer. */
static void hold(enum sw_tier_io_kind kind) {
    atomic_store(&held.n, 0);
    atomic_store(&held.kind, (int)kind);
}

static void await_held(unsigned n) {
    while (atomic_load(&held.n) < n)
        (void)uv_run(&f.loop, UV_RUN_NOWAIT);
}

/* Waits until so many were asked for, and a moment longer: no more come. Then lets the disk answer. */
static void ck_held(unsigned n) {
    await_held(n);
    (void)usleep(20000);
    ck_assert_uint_eq(atomic_load(&held.n), n);
    atomic_store(&held.kind, -1);
    for (unsigned i = 0; i < n; i++)
        held.real->submit(f.nvme, held.waiting[i]);
}

/* One region has but a few of its ten chunks on their way, so that others find room and a turn: four when it is moved,
 * six when it is restored. */
START_TEST(test_few_chunks_of_a_region_are_on_their_way) {
    struct sw_test_op op = {0};
    open_fixture(32 << 20, 100, 100, false);
    watch_disk();
    ck_assert_int_eq(spill(0), 0);
    hold(SW_TIER_WRITE);
    ck_assert_int_eq(advise(0, SW_ADVISE_DEMOTE, 0), 0);
    ck_held(4);
    (void)settled_stats();
    ck_assert_str_eq(tier_of(0), "nvme");
    hold(SW_TIER_READ);
    const struct sw_range range = {.mem = sw_fixture_mem(&f, f.owner, &memory, true), .bytes = REGION_BYTES};
    ck_assert_int_eq(sw_engine_restore(f.owner, ids[0], SW_TRANSFER(&range, 1), sw_test_op_done, &op, NULL), 0);
    ck_held(6);
    sw_fixture_until(&f, &op.done);
    ck_assert_int_eq(op.outcome.err.code, 0);
    check_content(0);
    sw_fixture_close_mem(&f, range.mem);
    close_fixture();
}
END_TEST

/* Memory that fills up meanwhile takes no more of a region that is fetched: what lies above its limit is for frames
 * under way. */
START_TEST(test_a_fetch_ends_when_memory_is_full) {
    struct sw_test_op op;
    open_fixture(32 << 20, 100, 100, false);
    watch_disk();
    ck_assert_int_eq(spill(0), 0);
    ck_assert_int_eq(advise(0, SW_ADVISE_DEMOTE, 0), 0);
    (void)settled_stats();
    for (int i = 1; i < 4; i++)
        ck_assert_int_eq(spill(i), 0);
    hold(SW_TIER_READ);
    ck_assert_int_eq(advise(0, SW_ADVISE_PREFETCH, 0), 0);
    await_held(4);
    for (unsigned i = 0; i < 12; i++)
        ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, 65536, &op), 0);
    ck_held(4);
    const struct sw_engine_stats stats = settled_stats();
    ck_assert_uint_eq(stats.promotions, 0);
    ck_assert_uint_le(stats.tiers[0].used_bytes, 3 << 20);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(restore(i, false), 0);
    close_fixture();
}
END_TEST

/* The disk is spared the rest of a region that is dropped while it moves. */
START_TEST(test_a_dropped_region_does_not_move_on) {
    open_fixture(32 << 20, 100, 100, false);
    watch_disk();
    ck_assert_int_eq(spill(0), 0);
    hold(SW_TIER_WRITE);
    ck_assert_int_eq(advise(0, SW_ADVISE_DEMOTE, 0), 0);
    await_held(4);
    ck_assert_int_eq(sw_engine_drop(f.owner, ids[0], NULL), 0);
    for (unsigned i = 0; i < 4; i++)
        held.real->submit(f.nvme, held.waiting[i]);
    while (f.engine->balance.n_moves > 0 && atomic_load(&held.n) == 4)
        (void)uv_run(&f.loop, UV_RUN_NOWAIT);
    ck_assert_uint_eq(atomic_load(&held.n), 4);
    atomic_store(&held.kind, -1);
    (void)settled_stats();
    close_fixture();
}
END_TEST

/* A region that was fetched is about to be used: however old it is, others leave before it. */
START_TEST(test_a_promoted_region_is_not_the_next_to_move) {
    open_fixture(32 << 20, 100, 100, false);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(spill(i), 0);
    ck_assert_int_eq(advise(0, SW_ADVISE_DEMOTE, 0), 0);
    (void)settled_stats();
    ck_assert_str_eq(tier_of(0), "nvme");
    ck_assert_int_eq(advise(0, SW_ADVISE_PREFETCH, 0), 0);
    (void)settled_stats();
    ck_assert_int_eq(sw_engine_make_room(f.engine, 1, NULL), 0);
    (void)settled_stats();
    ck_assert_str_eq(tier_of(0), "host");
    ck_assert_str_eq(tier_of(1), "nvme");
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(restore(i, false), 0);
    close_fixture();
}
END_TEST

/* Spills do not wait for a demotion that hangs. */
START_TEST(test_a_hung_disk_delays_no_spill) {
    open_fixture(32 << 20, 100, 50, true);
    rest_above_the_limit();
    atomic_store(&fault.hangs, true);
    ck_assert_int_eq(spill(4), -SW_ENOSPACE);
    ck_assert_uint_gt(f.engine->balance.n_moves, 0);
    sw_clock_set(a_minute_later_us);
    ck_assert_int_eq(spill(4), -SW_ENOSPACE);
    ck_assert_uint_gt(f.engine->balance.n_moves, 0);
    atomic_store(&fault.hangs, false);
    await_moves();
    ck_assert_int_eq(spill(4), 0);
    await_moves();
    sw_stored_release(&fills);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(restore(i, false), 0);
    close_fixture();
}
END_TEST

/* The host tier is just large enough for its chunks. A restore has read the next chunk, a spill has all slots, and each
 * waits for the other. A third job would wait with them. */
START_TEST(test_long_chunks_on_their_way_in_a_small_host_tier) {
    enum { MIB = 1 << 20, LEAST = 8192 };
    struct sw_fixture_config config = sw_fixture_defaults;
    struct sw_test_op on_disk, back = {0}, out = {0}, small;
    config.n_slots = 2;
    config.chunk_bytes = MIB;
    config.capacity_bytes = config.initial_bytes = 4 * MIB;
    config.staging_bytes = 2 * MIB;
    config.nvme_bytes = 64 * MIB;
    config.high_pct = config.low_pct = 100;
    config.max_regions = config.max_owner_regions = 1000;
    sw_fixture_open(&f, &config);
    memory = sw_memory_new(16 * MIB);
    fill(1);
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, 3 * MIB, &on_disk), 0);
    (void)settled_stats();
    ck_assert_int_eq(sw_engine_advise(f.owner, on_disk.id, SW_ADVISE_DEMOTE, 0, NULL), 0);
    for (uint64_t left; (left = 2 * MIB - settled_stats().tiers[0].used_bytes) >= LEAST;)
        ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, left > 10 * LEAST ? 7 * LEAST : LEAST / 2, &small), 0);
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &memory, false);
    const struct sw_range to = {.mem = mem, .bytes = 3 * MIB},
                          from = {.mem = mem, .offset = 4 * MIB, .bytes = 12 * MIB};
    sw_engine_hold(f.engine, true);
    ck_assert_int_eq(
        sw_engine_restore(f.owner, on_disk.id, SW_TRANSFER(&to, 1, .keep = true), sw_test_op_done, &back, NULL), 0);
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&from, 1), sw_test_op_done, &out, &out.id, NULL), 0);
    sw_engine_release(f.engine);
    sw_fixture_until(&f, &back.done);
    sw_fixture_until(&f, &out.done);
    ck_assert_int_eq(back.outcome.err.code, 0);
    ck_assert_int_eq(out.outcome.err.code, 0);
    sw_fixture_close_mem(&f, mem);
    ck_assert_int_eq(sw_fixture_restore(&f, out.id, &memory, 4 * MIB, 12 * MIB, false, &out), 0);
    close_fixture();
}
END_TEST

/* What else lay in the memory that frames take on their way is not written to the disk: the rest of a frame's last
 * block is zero. _i 1: the region is moved there. */
START_TEST(test_a_frames_last_block_holds_nothing_else) {
    struct sw_region *region;
    struct sw_stored all;
    uint8_t block[4096];
    open_fixture(32 << 20, 100, 100, false);
    ck_assert_int_eq(f.tier->ops->reserve(f.tier, 4 << 20, &all, NULL), 0);
    for (unsigned i = 0; i < all.n_extents; i++)
        memset(all.extents[i].memory, 0x77, all.extents[i].bytes);
    sw_stored_release(&all);
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(spill(i), 0);
    if (_i == 1)
        ck_assert_int_eq(advise(0, SW_ADVISE_DEMOTE, 0), 0);
    (void)settled_stats();
    const struct sw_region_id id = ids[_i == 1 ? 0 : 5];
    ck_assert_int_eq(sw_region_find(&f.engine->store.regions, f.owner, id, &region, NULL), 0);
    const int fd = sw_nvme_open_data(&f.folder);
    for (size_t chunk = 0; chunk < region->frames->n_chunks; chunk++) {
        const struct sw_stored *stored = &region->frames->stored[chunk];
        ck_assert(stored->tier == f.nvme && stored->n_extents == 1 && stored->bytes % sizeof block > 0);
        const uint64_t in_block = stored->bytes % sizeof block,
                       at = stored->extents[0].offset + stored->bytes - in_block;
        ck_assert_int_eq(pread(fd, block, sizeof block, (off_t)at), sizeof block);
        for (uint64_t i = in_block; i < sizeof block; i++)
            ck_assert_uint_eq(block[i], 0);
    }
    (void)close(fd);
    close_fixture();
}
END_TEST

START_TEST(test_damage_on_the_disk_is_found) {
    struct sw_region *region;
    open_fixture(32 << 20, 100, 100, false);
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(spill(i), 0);
    ck_assert_int_eq(sw_region_find(&f.engine->store.regions, f.owner, ids[5], &region, NULL), 0);
    /* Two chunks of one region change places: each is a good frame, but not this one's. */
    struct sw_stored first = region->frames->stored[0];
    region->frames->stored[0] = region->frames->stored[9];
    region->frames->stored[9] = first;
    ck_assert_int_eq(restore(5, false), -SW_ECHECKSUM);
    ck_assert_int_eq(sw_fixture_state(&f, ids[5]), SW_REGION_LOST);
    close_fixture();
}
END_TEST

/* The disk has written one good frame of a region to another one's place. _i 1: the region was recorded by a version
 * that knew no identities. */
START_TEST(test_a_misdirected_write_is_found) {
    static uint8_t bytes[1 << 20];
    struct sw_region *region;
    open_fixture(32 << 20, 100, 100, false);
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(spill(i), 0);
    ck_assert_int_eq(sw_region_find(&f.engine->store.regions, f.owner, ids[5], &region, NULL), 0);
    const struct sw_stored *to = &region->frames->stored[0], *from = &region->frames->stored[8];
    const int fd = sw_nvme_open_data(&f.folder);
    ck_assert(to->n_extents == 1 && from->n_extents == 1 && to->bytes == from->bytes);
    ck_assert_int_eq(pread(fd, bytes, from->bytes, (off_t)from->extents[0].offset), (ssize_t)from->bytes);
    ck_assert_int_eq(pwrite(fd, bytes, to->bytes, (off_t)to->extents[0].offset), (ssize_t)to->bytes);
    (void)close(fd);
    for (size_t i = 0; _i && i < region->frames->n_chunks; i++)
        region->frames->identities[i] = 0;
    ck_assert_int_eq(restore(5, false), -SW_ECHECKSUM);
    ck_assert_int_eq(sw_fixture_state(&f, ids[5]), SW_REGION_LOST);
    close_fixture();
}
END_TEST

START_TEST(test_sessions_end_during_moves) {
    open_fixture(32 << 20, 60, 20, false);
    for (int round = 0; round < 20; round++) {
        struct sw_owner *owner;
        struct sw_test_op ops[8] = {0};
        ck_assert_int_eq(sw_owner_open(f.engine, &owner, NULL), 0);
        fill(1);
        for (int i = 0; i < 8; i++) {
            struct sw_range range = {.mem = sw_fixture_mem(&f, owner, &memory, true), .bytes = memory.bytes};
            ck_assert_int_eq(sw_engine_spill(owner, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[i], &ops[i].id, NULL),
                             0);
        }
        for (int turn = 0; turn < round; turn++) {
            (void)uv_run(&f.loop, UV_RUN_NOWAIT);
            (void)usleep(200);
        }
        sw_fixture_close_owner(&f, owner);
        for (int i = 0; i < 8; i++)
            ck_assert_uint_eq(ops[i].calls, 1);
        const struct sw_engine_stats stats = settled_stats();
        ck_assert_uint_eq(stats.tiers[0].used_bytes + stats.tiers[1].used_bytes, 0);
    }
    close_fixture();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("placement");
    TCase *tcase = tcase_create("placement");
    tcase_add_test(tcase, test_regions_without_room_in_host_memory_go_to_the_disk);
    tcase_add_test(tcase, test_above_the_watermark_the_oldest_regions_move);
    tcase_add_test(tcase, test_moves_continue_to_the_low_watermark);
    tcase_add_test(tcase, test_watermarks_may_change);
    tcase_add_test(tcase, test_short_regions_move_together);
    tcase_add_test(tcase, test_the_progress_of_a_move_is_seen);
    tcase_add_test(tcase, test_a_move_to_a_full_disk_ends);
    tcase_add_test(tcase, test_a_region_can_be_restored_during_its_move);
    tcase_add_test(tcase, test_advice_is_followed);
    tcase_add_test(tcase, test_a_fetch_can_be_interrupted_and_can_fail);
    tcase_add_test(tcase, test_both_tiers_full);
    tcase_add_test(tcase, test_a_disk_that_fails_costs_that_operation_only);
    tcase_add_test(tcase, test_a_move_that_fails_leaves_the_region_where_it_is);
    tcase_add_test(tcase, test_the_rest_of_a_region_follows);
    tcase_add_test(tcase, test_a_failed_demotion_delays_no_spill);
    tcase_add_test(tcase, test_a_move_that_fails_is_not_tried_again_at_once);
    tcase_add_test(tcase, test_moves_that_have_failed_do_not_go_on_below_the_watermark);
    tcase_add_test(tcase, test_a_demand_of_the_operator_is_met_exactly);
    tcase_add_test(tcase, test_a_demand_of_the_operator_ends_with_a_move_that_fails);
    tcase_add_test(tcase, test_few_chunks_of_a_region_are_on_their_way);
    tcase_add_test(tcase, test_a_fetch_ends_when_memory_is_full);
    tcase_add_test(tcase, test_a_dropped_region_does_not_move_on);
    tcase_add_test(tcase, test_a_promoted_region_is_not_the_next_to_move);
    tcase_add_test(tcase, test_a_hung_disk_delays_no_spill);
    tcase_add_test(tcase, test_long_chunks_on_their_way_in_a_small_host_tier);
    tcase_add_loop_test(tcase, test_a_frames_last_block_holds_nothing_else, 0, 2);
    tcase_add_test(tcase, test_damage_on_the_disk_is_found);
    tcase_add_loop_test(tcase, test_a_misdirected_write_is_found, 0, 2);
    tcase_add_test(tcase, test_sessions_end_during_moves);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

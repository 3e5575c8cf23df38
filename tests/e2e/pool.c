/* The buffer manager (ipc/spillway_pool.h) on a real spillwayd on the host device. */
#include "base/alloc.h"
#include "base/assert.h"
#include "tests/lib/content.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/pooled.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"
#include <check.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 128 << 10, N = 4 };

static struct spillway_handle *handles[64];

static void open_pool(void) {
    sw_pooled_open(sw_served_daemon.socket, .wait_ms = -1);
}

/* Closes the pool, of which nothing may be left here or in the service. */
static void close_pool(void) {
    sw_pooled_close();
    ck_assert_int_eq(sw_alloc_live(), 0);
    struct spillway *connection = sw_served_connect(&sw_served_daemon);
    sw_served_close(connection);
}

/* Makes n buffers of `bytes`, used in order. */
static void make(unsigned n, uint64_t bytes) {
    for (unsigned i = 0; i < n; i++) {
        handles[i] = sw_pooled_new(bytes);
        sw_pooled_fill(handles[i], i);
    }
}

/* Which of handles[0..n) are live: a letter for each. */
static const char *live(unsigned n) {
    static char text[64 + 1];
    for (unsigned i = 0; i < n; i++)
        text[i] = sw_pooled_is(handles[i], "live") ? (char)('A' + i) : '-';
    text[n] = 0;
    return text;
}

/* ---- one buffer -------------------------------------------------------------------------------------------------- */

START_TEST(comes_back_with_its_bytes) {
    open_pool();
    struct spillway_handle *h = sw_pooled_new(BYTES + 77, .keep_priority = 3);
    ck_assert(sw_pooled_is(h, "empty"));
    sw_pooled_fill(h, 5);
    ck_assert(sw_pooled_is(h, "live"));
    for (unsigned i = 0; i < 3; i++) {
        sw_pooled_ok(spillway_handle_spill(h, &sw_pooled_error));
        ck_assert(sw_pooled_is(h, "spilled"));
        ck_assert_uint_gt(sw_pooled_info(h).stored_bytes, 0);
        ck_assert_uint_eq(sw_pooled_memory.used_bytes, 0);
        sw_pooled_ck(h, 5);
        ck_assert_uint_eq(sw_pooled_info(h).stored_bytes, 0);
    }
    const struct spillway_pool_stats stats = sw_pooled_stats();
    ck_assert_uint_eq(stats.evictions, 3);
    ck_assert_uint_eq(stats.restores, 3);
    ck_assert_uint_eq(stats.live_bytes, BYTES + 77);
    ck_assert_uint_eq(stats.held_bytes, BYTES + 77);
    sw_pooled_ok(spillway_handle_free(h, &sw_pooled_error));
    ck_assert_uint_eq(sw_pooled_memory.used_bytes, 0);
    ck_assert_uint_eq(sw_pooled_stats().handles, 0);
    close_pool();
}
END_TEST

START_TEST(pins_nest) {
    void *data, *again;
    uint64_t freed = 9;
    open_pool();
    make(1, BYTES);
    sw_pooled_ok(spillway_handle_pin(handles[0], NULL, &data, &sw_pooled_error));
    sw_pooled_ok(spillway_handle_pin(handles[0], NULL, &again, &sw_pooled_error));
    ck_assert_ptr_eq(data, again);
    ck_assert_uint_eq(sw_pooled_info(handles[0]).pins, 2);
    for (unsigned i = 0; i < 2; i++) {
        sw_pooled_ck_failed(spillway_handle_spill(handles[0], &sw_pooled_error), SPILLWAY_EBUSY, "pinned");
        sw_pooled_ck_failed(spillway_handle_free(handles[0], &sw_pooled_error), SPILLWAY_EBUSY, "pinned");
        sw_pooled_ck_failed(spillway_pool_make_room(sw_pooled, 1, &freed, &sw_pooled_error), SPILLWAY_ENOMEM, "idle");
        ck_assert_uint_eq(freed, 0);
        sw_pooled_ok(spillway_handle_unpin(handles[0], NULL, &sw_pooled_error));
    }
    sw_pooled_ck_failed(spillway_handle_unpin(handles[0], NULL, &sw_pooled_error), SPILLWAY_EINVAL, "not pinned");
    sw_pooled_ck_failed(spillway_handle_pin_ready(handles[0], 0, &data, &sw_pooled_error), SPILLWAY_EINVAL,
                        "not pinned");
    ck_assert_uint_eq(sw_pooled_make_room(1), BYTES);
    close_pool();
}
END_TEST

START_TEST(refuses_bad_options) {
    struct spillway_handle *h = NULL;
    static const struct spillway_handle_options bad[] = {
        {.size = 1, .bytes = BYTES},
        {.size = sizeof bad[0]},
        {.size = sizeof bad[0], .bytes = 7, .type = SPILLWAY_I32},
        {.size = sizeof bad[0], .bytes = 8, .type = SPILLWAY_DEC128 + 1},
        {.size = sizeof bad[0], .bytes = 8, .type = SPILLWAY_DEC128},
        {.size = sizeof bad[0], .bytes = 7, .type = SPILLWAY_BF16},
        {.size = sizeof bad[0], .bytes = 7, .type = SPILLWAY_F16},
        {.size = sizeof bad[0], .bytes = 8, .flags = 0x80},
        {.size = sizeof bad[0], .bytes = 8, .reserved = 1},
    };
    open_pool();
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        sw_pooled_ck_failed(spillway_pool_new(sw_pooled, &bad[i], &h, &sw_pooled_error), SPILLWAY_EINVAL, "");
    const struct spillway_handle_options good = {.size = sizeof good, .bytes = 8};
    sw_pooled_ck_failed(spillway_pool_adopt(sw_pooled, NULL, &good, &h, &sw_pooled_error), SPILLWAY_EINVAL, "NULL");
    sw_pooled_ck_failed(spillway_pool_watch(sw_pooled, &h, &good, &h, &sw_pooled_error), SPILLWAY_EINVAL, "owner");
    ck_assert_ptr_null(h);
    close_pool();
    struct spillway_pool *pool = NULL;
    const struct spillway_pool_options many = {.size = sizeof many, .n_connections = 17},
                                       half = {.size = sizeof half, .allocator.free = sw_pooled_allocator.free},
                                       flags = {.size = sizeof flags, .flags = 2},
                                       nowhere = {.size = sizeof nowhere, .gpu = -1};
    sw_pooled_ck_failed(spillway_pool_create(&pool, &many, &sw_pooled_error), SPILLWAY_EINVAL, "17 connections");
    sw_pooled_ck_failed(spillway_pool_create(&pool, &half, &sw_pooled_error), SPILLWAY_EINVAL, "both");
    sw_pooled_ck_failed(spillway_pool_create(&pool, &flags, &sw_pooled_error), SPILLWAY_EINVAL, "flags 0x2");
    sw_pooled_ck_failed(spillway_pool_create(&pool, &nowhere, &sw_pooled_error), SPILLWAY_EINVAL, "GPU -1");
}
END_TEST

/* ---- which leave first ------------------------------------------------------------------------------------------- */

START_TEST(least_recently_used_leaves_first) {
    open_pool();
    make(N, BYTES);
    sw_pooled_use(handles[0]);
    ck_assert_uint_eq(sw_pooled_make_room(1), BYTES);
    ck_assert_str_eq(live(N), "A-CD");
    ck_assert_uint_eq(sw_pooled_make_room(BYTES + 1), 2 * BYTES);
    ck_assert_str_eq(live(N), "A---");
    for (unsigned i = 0; i < N; i++)
        sw_pooled_ck(handles[i], i);
    close_pool();
}
END_TEST

/* Ages 3 and 2 are similar; age 1 is another power of two. */
START_TEST(of_similar_age_the_largest_leaves) {
    open_pool();
    handles[0] = sw_pooled_new(BYTES);
    handles[1] = sw_pooled_new(2 * BYTES);
    handles[2] = sw_pooled_new(4 * BYTES);
    for (unsigned i = 0; i < 3; i++)
        sw_pooled_fill(handles[i], i);
    ck_assert_uint_eq(sw_pooled_make_room(1), 2 * BYTES);
    ck_assert_str_eq(live(3), "A-C");
    ck_assert_uint_eq(sw_pooled_make_room(1), BYTES);
    ck_assert_str_eq(live(3), "--C");
    close_pool();
}
END_TEST

START_TEST(low_priority_leaves_first) {
    open_pool();
    handles[0] = sw_pooled_new(BYTES, .keep_priority = 2);
    handles[1] = sw_pooled_new(BYTES, .flags = SPILLWAY_HANDLE_STAYS);
    handles[2] = sw_pooled_new(BYTES, .keep_priority = 1);
    for (unsigned i = 0; i < 3; i++)
        sw_pooled_fill(handles[i], i);
    (void)sw_pooled_make_room(1);
    ck_assert_str_eq(live(3), "AB-");
    (void)sw_pooled_make_room(1);
    ck_assert_str_eq(live(3), "-B-");
    sw_pooled_ck_failed(spillway_handle_spill(handles[1], &sw_pooled_error), SPILLWAY_EINVAL, "STAYS");
    close_pool();
}
END_TEST

/* More buffers than one call of the library takes, from two connections. */
START_TEST(many_leave_in_one_call) {
    enum { MANY = 200, SMALL = 4096 };
    static struct spillway_handle *many[MANY];
    sw_pooled_open(sw_served_daemon.socket, .n_connections = 2, .wait_ms = -1);
    for (unsigned i = 0; i < MANY; i++)
        sw_pooled_fill(many[i] = sw_pooled_new(SMALL), i);
    ck_assert_uint_eq(sw_pooled_make_room(150 * SMALL), 150 * SMALL);
    ck_assert_uint_eq(sw_pooled_stats().spilled, 150);
    for (unsigned i = 0; i < MANY; i++)
        sw_pooled_ck(many[i], i);
    close_pool();
}
END_TEST

START_TEST(counts_buffers_and_pins) {
    void *data;
    open_pool();
    make(3, BYTES);
    struct spillway_handle *empty = sw_pooled_new(BYTES);
    (void)sw_pooled_make_room(1);
    for (unsigned i = 0; i < 2; i++)
        sw_pooled_ok(spillway_handle_pin(handles[2], NULL, &data, &sw_pooled_error));
    const struct spillway_pool_stats stats = sw_pooled_stats();
    ck_assert_uint_eq(stats.handles, 4);
    ck_assert_uint_eq(stats.live, 2);
    ck_assert_uint_eq(stats.spilled, 1);
    ck_assert_uint_eq(stats.spilled_bytes, BYTES);
    ck_assert_uint_eq(stats.pinned, 1);
    ck_assert_uint_eq(stats.hits, 2);
    ck_assert_uint_eq(stats.waits, 0);
    sw_pooled_use(handles[0]); /* waits for its restore, once */
    sw_pooled_ok(spillway_handle_pin_begin(handles[1], NULL, &sw_pooled_error) == 1 ? 0 : -1);
    ck_assert_uint_eq(sw_pooled_stats().waits, 1);
    ck_assert_uint_eq(sw_pooled_stats().hits, 3);
    ck_assert_int_eq(spillway_handle_pin_begin(empty, NULL, &sw_pooled_error), 1); /* there is nothing to restore */
    close_pool();
}
END_TEST

/* Callers that were built with a larger or a smaller struct. */
START_TEST(checks_the_sizes_of_structs) {
    struct spillway_handle_info info = {.size = sizeof info - 1};
    struct spillway_pool_stats stats = {.size = sizeof stats - 1};
    open_pool();
    make(1, BYTES);
    sw_pooled_ck_failed(spillway_handle_query(handles[0], &info, &sw_pooled_error), SPILLWAY_EINVAL, "handle_info");
    sw_pooled_ck_failed(spillway_pool_stats(sw_pooled, &stats, &sw_pooled_error), SPILLWAY_EINVAL, "pool_stats");
    close_pool();
}
END_TEST

/* What two of one call have become is told of each. */
START_TEST(each_has_its_own_figures) {
    open_pool();
    make(2, BYTES);
    void *data;
    sw_pooled_ok(spillway_handle_pin(handles[1], NULL, &data, &sw_pooled_error));
    memset(data, 0, BYTES);
    sw_pooled_ok(spillway_handle_unpin(handles[1], NULL, &sw_pooled_error));
    (void)sw_pooled_make_room(2 * BYTES);
    const uint64_t mixed_bytes = sw_pooled_info(handles[0]).stored_bytes,
                   zero_bytes = sw_pooled_info(handles[1]).stored_bytes;
    ck_assert_uint_lt(zero_bytes, mixed_bytes);
    ck_assert_uint_eq(sw_pooled_stats().stored_bytes, mixed_bytes + zero_bytes);
    close_pool();
}
END_TEST

/* ---- room -------------------------------------------------------------------------------------------------------- */

START_TEST(keeps_to_its_budget) {
    void *data[2];
    sw_pooled_open(sw_served_daemon.socket, .budget_bytes = 2 * BYTES, .wait_ms = -1);
    make(N, BYTES);
    for (unsigned i = 0; i < 10; i++) {
        sw_pooled_ck(handles[i % N], i % N);
        ck_assert_uint_le(sw_pooled_memory.used_bytes, 2 * BYTES);
    }
    for (unsigned i = 0; i < 2; i++)
        sw_pooled_ok(spillway_handle_pin(handles[i], NULL, &data[i], &sw_pooled_error));
    sw_pooled_ck_failed(spillway_handle_pin(handles[2], NULL, &data[0], &sw_pooled_error), SPILLWAY_ENOMEM, "budget");
    ck_assert_uint_eq(sw_pooled_info(handles[2]).pins, 0);
    sw_pooled_ok(spillway_pool_set_budget(sw_pooled, 3 * BYTES - 1, &sw_pooled_error)); /* not quite enough */
    sw_pooled_ck_failed(spillway_handle_pin(handles[2], NULL, &data[0], &sw_pooled_error), SPILLWAY_ENOMEM, "budget");
    sw_pooled_ok(spillway_pool_set_budget(sw_pooled, 3 * BYTES, &sw_pooled_error));
    sw_pooled_ck(handles[2], 2);
    sw_pooled_ok(spillway_pool_set_budget(sw_pooled, BYTES, &sw_pooled_error)); /* more than that is pinned */
    sw_pooled_ck_failed(spillway_handle_pin(handles[3], NULL, &data[0], &sw_pooled_error), SPILLWAY_ENOMEM,
                        "the pool's budget has no room for 131072 bytes, and no other buffer is idle");
    close_pool();
}
END_TEST

/* What cannot help does not happen: nothing leaves for a buffer above the budget, nor for a prefetch. */
START_TEST(nothing_leaves_in_vain) {
    void *data;
    sw_pooled_open(sw_served_daemon.socket, .budget_bytes = 2 * BYTES, .wait_ms = -1);
    make(3, BYTES);
    ck_assert_str_eq(live(3), "-BC");
    struct spillway_handle *large = sw_pooled_new(2 * BYTES + 1);
    sw_pooled_ck_failed(spillway_handle_pin(large, NULL, &data, &sw_pooled_error), SPILLWAY_ENOMEM, "budget");
    sw_pooled_ck_failed(spillway_handle_prefetch(handles[0], NULL, &sw_pooled_error), SPILLWAY_ENOMEM, "budget");
    ck_assert_str_eq(live(3), "-BC");
    close_pool();
}
END_TEST

START_TEST(evicts_when_the_allocator_fails) {
    void *data[3];
    open_pool();
    sw_pooled_memory.limit_bytes = 2 * BYTES;
    make(3, BYTES);
    ck_assert_str_eq(live(3), "-BC");
    for (unsigned i = 1; i < 3; i++)
        sw_pooled_ok(spillway_handle_pin(handles[i], NULL, &data[i], &sw_pooled_error));
    sw_pooled_ck_failed(spillway_handle_pin(handles[0], NULL, &data[0], &sw_pooled_error), SPILLWAY_ENOMEM,
                        "allocator");
    ck_assert(sw_pooled_is(handles[0], "spilled"));
    ck_assert_uint_eq(sw_pooled_stats().failed_restores, 1);
    sw_pooled_ck_failed(spillway_handle_prefetch(handles[0], NULL, &sw_pooled_error), SPILLWAY_ENOMEM, "allocator");
    sw_pooled_ok(spillway_handle_unpin(handles[1], NULL, &sw_pooled_error));
    sw_pooled_ck_failed(spillway_handle_prefetch(handles[0], NULL, &sw_pooled_error), SPILLWAY_ENOMEM, "allocator");
    sw_pooled_ck(handles[0], 0);
    ck_assert_str_eq(live(3), "A-C");
    close_pool();
}
END_TEST

static bool make_room_in_allocator(uint64_t bytes) {
    struct spillway_error error;
    uint64_t freed = 0;
    (void)spillway_pool_make_room(sw_pooled, bytes, &freed, &error);
    return freed > 0;
}

static void *pin_in_turn(void *arg) {
    struct spillway_error error;
    for (unsigned i = 0; i < 20 / SW_TEST_EVERY + 4; i++) {
        struct spillway_handle *h = handles[(i + *(const unsigned *)arg) % 6];
        void *data;
        const int rc = spillway_handle_pin(h, NULL, &data, &error);
        SW_ASSERT(rc == 0 || rc == -SPILLWAY_ENOMEM);
        SW_ASSERT(rc < 0 || spillway_handle_unpin(h, NULL, &error) == 0);
    }
    return NULL;
}

static void pin_in_threads(void) {
    static unsigned first[] = {0, 2, 4};
    pthread_t threads[3];
    sw_pooled_memory.on_full = make_room_in_allocator;
    (void)sw_pooled_make_room(3 * BYTES);
    sw_pooled_memory.limit_bytes = 3 * BYTES;
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, pin_in_turn, &first[i]), 0);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_uint_gt(sw_pooled_memory.n_refusals, 0);
    for (unsigned i = 0; i < 6; i++)
        sw_pooled_ck(handles[i], i);
}

/* While threads are in the allocator, which asks the pool for room there. */
START_TEST(makes_room_inside_the_allocator) {
    sw_pooled_open(sw_served_daemon.socket, .wait_ms = 2000);
    make(6, BYTES);
    pin_in_threads();
    close_pool();
}
END_TEST

/* The allocator even holds its lock there, which callbacks of other threads that free wait for. */
START_TEST(makes_room_under_the_allocators_lock) {
    sw_pooled_open(sw_served_daemon.socket, .wait_ms = 5);
    for (unsigned i = 0; i < 6; i++)
        sw_pooled_fill(handles[i] = sw_pooled_new(BYTES, .flags = i % 2 ? SPILLWAY_HANDLE_CONSTANT : 0), i);
    (void)sw_pooled_make_room(6 * BYTES);
    for (unsigned i = 0; i < 6; i++)
        sw_pooled_ck(handles[i], i);
    sw_pooled_memory.on_full_locked = true;
    pin_in_threads();
    close_pool();
}
END_TEST

/* A callback that frees memory stands still, and so does its thread: others get what else there is. */
static atomic_bool stands_still;
static atomic_uint n_making_room;
static _Thread_local bool is_slow;

static void stand_still(void *data) {
    (void)data;
    while (is_slow && atomic_load(&stands_still))
        (void)usleep(1000);
}

static void *make_room_too(void *arg) {
    struct spillway_error error;
    uint64_t freed;
    is_slow = true;
    (void)atomic_fetch_add(&n_making_room, 1);
    SW_ASSERT(spillway_pool_make_room(sw_pooled, 1, &freed, &error) == 0);
    *(uint64_t *)arg = freed;
    return NULL;
}

START_TEST(a_slow_callback_holds_up_nobody) {
    uint64_t freed = 0, freed_there = 0;
    pthread_t thread;
    open_pool();
    make(2, BYTES);
    atomic_store(&stands_still, true);
    sw_pooled_memory.on_free = stand_still;
    ck_assert_int_eq(pthread_create(&thread, NULL, make_room_too, &freed_there), 0);
    while (!sw_pooled_is(handles[0], "spilled"))
        (void)usleep(1000);
    ck_assert_uint_eq(sw_pooled_make_room(1), BYTES);
    ck_assert_str_eq(live(2), "--");
    sw_pooled_ck_failed(spillway_pool_make_room(sw_pooled, 1, &freed, &sw_pooled_error), SPILLWAY_ENOMEM, "idle");
    sw_pooled_ck(handles[0], 0); /* restored while its old memory is still being freed */
    atomic_store(&stands_still, false);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_uint_ge(freed_there, BYTES);
    close_pool();
}
END_TEST

/* The other thread's memory is room as soon as it is free. */
START_TEST(waits_for_a_slow_callback) {
    uint64_t freed[2] = {0};
    pthread_t threads[2];
    sw_pooled_open(sw_served_daemon.socket, .wait_ms = SW_TEST_WAIT_MS);
    make(1, BYTES);
    atomic_store(&stands_still, true);
    sw_pooled_memory.on_free = stand_still;
    ck_assert_int_eq(pthread_create(&threads[0], NULL, make_room_too, &freed[0]), 0);
    while (!sw_pooled_is(handles[0], "spilled"))
        (void)usleep(1000);
    ck_assert_int_eq(pthread_create(&threads[1], NULL, make_room_too, &freed[1]), 0);
    while (atomic_load(&n_making_room) < 2)
        (void)usleep(1000);
    (void)usleep(20000);
    atomic_store(&stands_still, false);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    close_pool();
}
END_TEST

/* ---- restores without waiting ------------------------------------------------------------------------------------ */

START_TEST(restores_in_the_background) {
    void *data = NULL;
    open_pool();
    make(2, BYTES);
    (void)sw_pooled_make_room(2 * BYTES);
    sw_pooled_ok(spillway_handle_prefetch(handles[0], NULL, &sw_pooled_error));
    sw_pooled_ok(spillway_handle_prefetch(handles[0], NULL, &sw_pooled_error));
    ck_assert_int_eq(spillway_handle_pin_begin(handles[1], NULL, &sw_pooled_error), 0);
    int rc;
    while ((rc = spillway_handle_pin_ready(handles[1], 0, &data, &sw_pooled_error)) == -SPILLWAY_EAGAIN)
        (void)usleep(100);
    sw_pooled_ok(rc);
    ck_assert_int_eq(spillway_handle_pin_begin(handles[1], NULL, &sw_pooled_error), 1);
    sw_pooled_ok(spillway_handle_unpin(handles[1], NULL, &sw_pooled_error));
    sw_pooled_ok(spillway_handle_unpin(handles[1], NULL, &sw_pooled_error));
    sw_pooled_ck(handles[0], 0);
    sw_pooled_ck(handles[1], 1);
    ck_assert_uint_eq(sw_pooled_stats().restores, 2);
    close_pool();
}
END_TEST

/* Nobody takes the answer of a prefetch in; make_room does, and evicts the buffer again. */
START_TEST(what_was_prefetched_can_leave) {
    sw_pooled_open(sw_served_daemon.socket, .wait_ms = -1);
    make(1, BYTES);
    (void)sw_pooled_make_room(1);
    sw_pooled_ok(spillway_handle_prefetch(handles[0], NULL, &sw_pooled_error));
    uint64_t freed = 0;
    while (spillway_pool_make_room(sw_pooled, 1, &freed, &sw_pooled_error) < 0)
        (void)usleep(1000);
    ck_assert_str_eq(live(1), "-");
    sw_pooled_ok(spillway_handle_prefetch(handles[0], NULL, &sw_pooled_error));
    sw_pooled_ok(spillway_handle_spill(handles[0], &sw_pooled_error)); /* waits for it */
    ck_assert(sw_pooled_is(handles[0], "spilled"));
    sw_pooled_ok(spillway_handle_prefetch(handles[0], NULL, &sw_pooled_error));
    sw_pooled_ok(spillway_handle_free(handles[0], &sw_pooled_error)); /* so does this */
    close_pool();
}
END_TEST

/* It counts as used, so others leave before it is asked for. */
START_TEST(what_was_prefetched_stays_longer) {
    uint64_t freed;
    open_pool();
    make(3, BYTES);
    sw_pooled_ok(spillway_handle_spill(handles[0], &sw_pooled_error));
    sw_pooled_ok(spillway_handle_prefetch(handles[0], NULL, &sw_pooled_error));
    while (!sw_pooled_is(handles[0], "live"))
        sw_pooled_ok(spillway_pool_make_room(sw_pooled, 0, &freed, &sw_pooled_error));
    (void)sw_pooled_make_room(1);
    ck_assert_str_eq(live(3), "A-C");
    close_pool();
}
END_TEST

START_TEST(given_up_pins_leave_nothing) {
    open_pool();
    make(1, BYTES);
    (void)sw_pooled_make_room(1);
    ck_assert_int_ge(spillway_handle_pin_begin(handles[0], NULL, &sw_pooled_error), 0);
    sw_pooled_ok(spillway_handle_unpin(handles[0], NULL, &sw_pooled_error));
    sw_pooled_ck(handles[0], 0);
    (void)sw_pooled_make_room(1);
    ck_assert_int_ge(spillway_handle_pin_begin(handles[0], NULL, &sw_pooled_error), 0);
    close_pool(); /* while it is under way, and pinned */
}
END_TEST

/* ---- memory of others -------------------------------------------------------------------------------------------- */

static struct sw_pooled_memory owners = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *owner_gives(void *user, uint64_t bytes, struct CUstream_st *stream) {
    return sw_pooled_allocator.alloc(user, bytes, stream);
}

static void owner_frees(void *user, void *data, uint64_t bytes) {
    SW_ASSERT(user == &owners);
    sw_pooled_allocator.free(user, data, bytes);
}

static struct spillway_handle *take_over(bool watch, bool gives) {
    struct spillway_handle *h = NULL;
    const struct spillway_handle_options options = {
        .size = sizeof options, .bytes = BYTES, .allocator = {gives ? owner_gives : NULL, owner_frees, &owners}};
    void *data = owner_gives(&owners, BYTES, NULL);
    sw_content_fill(data, BYTES, SW_CONTENT_MIXED, 9);
    if (watch)
        sw_pooled_ok(spillway_pool_watch(sw_pooled, data, &options, &h, &sw_pooled_error));
    else
        sw_pooled_ok(spillway_pool_adopt(sw_pooled, data, &options, &h, &sw_pooled_error));
    ck_assert(sw_pooled_is(h, "live"));
    return h;
}

START_TEST(adopts_memory) {
    open_pool();
    struct spillway_handle *h = take_over(false, false);
    sw_pooled_ck(h, 9);
    ck_assert_uint_eq(sw_pooled_make_room(1), BYTES);
    ck_assert_uint_eq(owners.used_bytes, 0);
    sw_pooled_ck(h, 9); /* in the pool's own memory */
    ck_assert_uint_eq(sw_pooled_memory.used_bytes, BYTES);
    (void)sw_pooled_make_room(1);
    ck_assert_uint_eq(sw_pooled_memory.used_bytes, 0);
    struct spillway_handle *other = take_over(false, true);
    sw_pooled_ok(spillway_handle_free(other, &sw_pooled_error));
    ck_assert_uint_eq(owners.used_bytes, 0);
    (void)take_over(false, true);
    close_pool(); /* frees it, too */
    ck_assert_uint_eq(owners.used_bytes, 0);
}
END_TEST

START_TEST(watches_memory) {
    void *data = NULL;
    open_pool();
    struct spillway_handle *h = take_over(true, true);
    ck_assert_uint_eq(sw_pooled_make_room(1), BYTES);
    ck_assert_uint_eq(owners.used_bytes, 0);
    sw_pooled_ck(h, 9); /* in the owner's memory */
    ck_assert_uint_eq(owners.used_bytes, BYTES);
    sw_pooled_ok(spillway_handle_pin(h, NULL, &data, &sw_pooled_error));
    sw_pooled_ok(spillway_handle_unpin(h, NULL, &sw_pooled_error));
    sw_pooled_ok(spillway_handle_free(h, &sw_pooled_error));
    ck_assert_uint_eq(owners.used_bytes, BYTES); /* the owner's again */
    ck_assert_uint_eq(sw_pooled_stats().held_bytes, 0);
    owner_frees(&owners, data, BYTES);
    h = take_over(true, false);
    (void)sw_pooled_make_room(1);
    sw_pooled_ck(h, 9); /* in the pool's memory, which it owns */
    ck_assert_uint_eq(sw_pooled_memory.used_bytes, BYTES);
    sw_pooled_ok(spillway_handle_free(h, &sw_pooled_error));
    close_pool();
}
END_TEST

START_TEST(adopted_memory_may_push_others_out) {
    sw_pooled_open(sw_served_daemon.socket, .budget_bytes = 2 * BYTES, .wait_ms = -1);
    make(2, BYTES);
    (void)take_over(false, true);
    ck_assert_str_eq(live(2), "-B");
    close_pool();
}
END_TEST

/* The default allocator; this memory is copied. */
START_TEST(works_without_an_allocator) {
    const struct spillway_options connection = {.size = sizeof connection, .socket_path = sw_served_daemon.socket};
    const struct spillway_pool_options options = {.size = sizeof options, .connection = &connection, .wait_ms = -1};
    sw_pooled_open_with(&options);
    make(2, 5 * BYTES + 3);
    ck_assert_uint_eq(sw_pooled_make_room(8 * BYTES), 2 * (5 * BYTES + 3));
    sw_pooled_ok(spillway_handle_prefetch(handles[1], NULL, &sw_pooled_error));
    for (unsigned i = 0; i < 2; i++)
        sw_pooled_ck(handles[i], i);
    sw_pooled_ok(spillway_pool_prepare(sw_pooled, handles, &sw_pooled_error));
    close_pool();
}
END_TEST

/* A pool asks its allocator once which kind of memory it gives, and gives that back. */
START_TEST(looks_at_the_allocators_memory) {
    const struct spillway_options to = {.size = sizeof to, .socket_path = sw_served_daemon.socket};
    const struct spillway_pool_options options = {
        .size = sizeof options, .connection = &to, .n_connections = 2, .allocator = sw_pooled_allocator};
    sw_pooled_open_with(&options);
    ck_assert_uint_eq(sw_pooled_memory.n_allocs, 1);
    ck_assert_uint_eq(sw_pooled_memory.used_bytes, 0);
    struct spillway *connection = sw_served_connect(&sw_served_daemon);
    ck_assert_uint_eq(sw_served_status(connection).sessions, 3);
    spillway_close(connection);
    close_pool();
}
END_TEST

/* ---- constant buffers -------------------------------------------------------------------------------------------- */

START_TEST(constant_buffers_are_spilled_once) {
    open_pool();
    struct spillway_handle *h = sw_pooled_new(BYTES, .flags = SPILLWAY_HANDLE_CONSTANT);
    sw_pooled_fill(h, 3);
    struct spillway *connection = sw_served_connect(&sw_served_daemon);
    for (unsigned i = 0; i < 3; i++) {
        (void)sw_pooled_make_room(1);
        ck_assert(sw_pooled_is(h, "spilled"));
        ck_assert_uint_eq(sw_served_status(connection).regions, 1);
        sw_pooled_ck(h, 3);
        ck_assert_uint_eq(sw_served_status(connection).regions, 1);
        ck_assert_uint_gt(sw_pooled_info(h).stored_bytes, 0);
    }
    sw_pooled_ok(spillway_handle_free(h, &sw_pooled_error));
    sw_served_ck_empty(connection, 0);
    spillway_close(connection);
    close_pool();
}
END_TEST

/* ---- threads ----------------------------------------------------------------------------------------------------- */

enum { N_THREADS = 4, N_BUFFERS = 16, BUFFER_BYTES = 64 << 10, ROUNDS = 150 / SW_TEST_EVERY + 20 };

static void hold(struct spillway_handle *h, unsigned i, uint8_t *expected) {
    struct spillway_error error;
    void *data = NULL;
    const int rc = spillway_handle_pin(h, NULL, &data, &error);
    SW_ASSERT(rc == 0 || rc == -SPILLWAY_ENOMEM);
    if (rc < 0)
        return;
    sw_content_fill(expected, BUFFER_BYTES, SW_CONTENT_MIXED, i);
    SW_ASSERT(memcmp(data, expected, BUFFER_BYTES) == 0);
    SW_ASSERT(spillway_handle_unpin(h, NULL, &error) == 0);
}

static void *hammer(void *arg) {
    uint64_t random = *(const unsigned *)arg, freed;
    uint8_t *expected = malloc(BUFFER_BYTES);
    SW_ASSERT(expected);
    for (unsigned round = 0; round < ROUNDS; round++) {
        const unsigned i = (unsigned)(sw_random(&random) % N_BUFFERS);
        switch (sw_random(&random) % 8) {
        case 0:
            (void)spillway_pool_make_room(sw_pooled, 3 * BUFFER_BYTES, &freed, NULL);
            break;
        case 1:
            (void)spillway_handle_prefetch(handles[i], NULL, NULL);
            break;
        case 2:
            (void)spillway_handle_spill(handles[i], NULL);
            break;
        default:
            hold(handles[i], i, expected);
        }
    }
    free(expected);
    return NULL;
}

START_TEST(threads_find_their_bytes) {
    static unsigned seeds[N_THREADS] = {1, 2, 3, 4};
    pthread_t threads[N_THREADS];
    sw_pooled_open(sw_served_daemon.socket, .n_connections = 2, .budget_bytes = 10 * BUFFER_BYTES);
    sw_pooled_memory.limit_bytes = 8 * BUFFER_BYTES;
    for (unsigned i = 0; i < N_BUFFERS; i++) {
        handles[i] = sw_pooled_new(BUFFER_BYTES, .flags = i % 3 ? 0 : SPILLWAY_HANDLE_CONSTANT);
        sw_pooled_fill(handles[i], i);
    }
    for (unsigned i = 0; i < N_THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, hammer, &seeds[i]), 0);
    for (unsigned i = 0; i < N_THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    for (unsigned i = 0; i < N_BUFFERS; i++)
        sw_pooled_ck(handles[i], i);
    const struct spillway_pool_stats stats = sw_pooled_stats();
    ck_assert_uint_gt(stats.evictions, 0);
    ck_assert_uint_eq(stats.pinned, 0);
    ck_assert_uint_eq(stats.held_bytes, stats.live_bytes);
    ck_assert_uint_eq(stats.failed_spills, 0);
    close_pool();
}
END_TEST

/* ---- processes --------------------------------------------------------------------------------------------------- */

START_TEST(a_forked_child_is_refused) {
    open_pool();
    make(1, BYTES);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        void *data;
        uint64_t freed = 9;
        struct spillway_error *e = &sw_pooled_error;
        struct spillway_pool_stats stats = {.size = sizeof stats};
        const bool is_refused = spillway_handle_pin(handles[0], NULL, &data, e) == -SPILLWAY_EINVAL &&
                                spillway_pool_make_room(sw_pooled, 1, &freed, e) == -SPILLWAY_EINVAL &&
                                spillway_handle_free(handles[0], e) == -SPILLWAY_EINVAL &&
                                spillway_pool_stats(sw_pooled, &stats, e) == -SPILLWAY_EINVAL && freed == 0 &&
                                strstr(e->text, "forked");
        const unsigned n_open = sw_count_fds();
        spillway_pool_close(sw_pooled);
        _exit(is_refused && sw_count_fds() < n_open ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    (void)sw_pooled_make_room(1);
    sw_pooled_ck(handles[0], 0);
    close_pool();
}
END_TEST

START_TEST(survives_a_lost_service) {
    void *data = NULL;
    uint64_t freed;
    open_pool();
    make(3, BYTES);
    handles[3] = sw_pooled_new(BYTES, .flags = SPILLWAY_HANDLE_CONSTANT);
    sw_pooled_fill(handles[3], 3);
    sw_pooled_ok(spillway_handle_spill(handles[3], &sw_pooled_error));
    sw_pooled_ck(handles[3], 3);
    (void)sw_pooled_make_room(1);
    ck_assert_str_eq(live(N), "-BCD");
    (void)sw_test_daemon_stop(&sw_served_daemon, SIGKILL);
    sw_pooled_ck_failed(spillway_pool_make_room(sw_pooled, 4 * BYTES, &freed, &sw_pooled_error), SPILLWAY_ECONN, "");
    ck_assert_uint_eq(freed, 0);
    ck_assert_str_eq(live(N), "-BCD"); /* the constant one, too, whose copy is gone */
    ck_assert(sw_pooled_is(handles[0], "lost"));
    for (unsigned i = 0; i < 2; i++)
        sw_pooled_ck_failed(spillway_handle_pin(handles[0], NULL, &data, &sw_pooled_error), SPILLWAY_ELOST, "ECONN");
    sw_pooled_ck_failed(spillway_handle_prefetch(handles[0], NULL, &sw_pooled_error), SPILLWAY_ELOST, "ECONN");
    for (unsigned i = 1; i < N; i++)
        sw_pooled_ck(handles[i], i);
    sw_pooled_ok(spillway_handle_free(handles[0], &sw_pooled_error));
    sw_pooled_fill(sw_pooled_new(BYTES), 7);
    sw_pooled_close();
    ck_assert_int_eq(sw_alloc_live(), 0);
    sw_test_daemon_clean(&sw_served_daemon);
}
END_TEST

static void start_own(void) {
    sw_test_daemon_start(&sw_served_daemon, SW_SPILLWAYD_PATH, NULL);
}

int main(void) {
    Suite *suite = suite_create("pool");
    TCase *served = tcase_create("served"), *lost = tcase_create("lost");
    tcase_add_unchecked_fixture(served, sw_served_start, sw_served_stop);
    tcase_add_test(served, comes_back_with_its_bytes);
    tcase_add_test(served, pins_nest);
    tcase_add_test(served, refuses_bad_options);
    tcase_add_test(served, least_recently_used_leaves_first);
    tcase_add_test(served, of_similar_age_the_largest_leaves);
    tcase_add_test(served, low_priority_leaves_first);
    tcase_add_test(served, many_leave_in_one_call);
    tcase_add_test(served, counts_buffers_and_pins);
    tcase_add_test(served, checks_the_sizes_of_structs);
    tcase_add_test(served, each_has_its_own_figures);
    tcase_add_test(served, keeps_to_its_budget);
    tcase_add_test(served, nothing_leaves_in_vain);
    tcase_add_test(served, evicts_when_the_allocator_fails);
    tcase_add_test(served, makes_room_inside_the_allocator);
    tcase_add_test(served, makes_room_under_the_allocators_lock);
    tcase_add_test(served, a_slow_callback_holds_up_nobody);
    tcase_add_test(served, waits_for_a_slow_callback);
    tcase_add_test(served, restores_in_the_background);
    tcase_add_test(served, what_was_prefetched_can_leave);
    tcase_add_test(served, what_was_prefetched_stays_longer);
    tcase_add_test(served, given_up_pins_leave_nothing);
    tcase_add_test(served, adopts_memory);
    tcase_add_test(served, watches_memory);
    tcase_add_test(served, adopted_memory_may_push_others_out);
    tcase_add_test(served, works_without_an_allocator);
    tcase_add_test(served, looks_at_the_allocators_memory);
    tcase_add_test(served, constant_buffers_are_spilled_once);
    tcase_add_test(served, threads_find_their_bytes);
    tcase_add_test(served, a_forked_child_is_refused);
    suite_add_tcase(suite, served);
    tcase_add_checked_fixture(lost, start_own, NULL);
    tcase_add_test(lost, survives_a_lost_service);
    suite_add_tcase(suite, lost);
    return sw_test_run(suite, CK_FORK);
}

/* The buffer manager against a daemon that the test plays: failures, slow replies, and concurrent calls. */
#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "ipc/proto.h"
#include "tests/lib/play.h"
#include "tests/lib/pooled.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 10000, SLOT = 3 };

static struct spillway_handle *handle;

/* Starts the daemon, and makes a pool with one buffer in it. */
static void begin_patient(void (*serve)(int socket), int wait_ms) {
    sw_play_start(serve);
    sw_pooled_open(sw_play.address.sun_path, .wait_ms = wait_ms);
    handle = sw_pooled_new(BYTES);
    sw_pooled_fill(handle, 1);
}

static void begin(void (*serve)(int socket)) {
    begin_patient(serve, -1);
}

static void end(void) {
    sw_pooled_close();
    sw_play_stop();
    ck_assert_int_eq(sw_alloc_live(), 0);
}

/* ---- the daemon's part ------------------------------------------------------------------------------------------- */

/* A spill or restore of one buffer comes in. Returns the seq of its last packet; the memory is accepted. */
static uint32_t take(int socket, unsigned type) {
    struct sw_msg open, parts, msg;
    sw_play_expect(socket, &open, SW_MSG_MEM_OPEN);
    sw_play_expect(socket, &parts, SW_MSG_MEM_PARTS);
    sw_play_expect(socket, &msg, type);
    sw_play_put_ok(socket, open.header.seq);
    sw_play_put_ok(socket, parts.header.seq);
    return msg.header.seq;
}

static void spill_well(int socket) {
    sw_play_put_result(socket, take(socket, SW_MSG_BUILD), SLOT, BYTES);
}

static void restore_well(int socket) {
    sw_play_put_result(socket, take(socket, SW_MSG_READ), SLOT, BYTES);
}

static void refuse(int socket, unsigned type, const char *name) {
    sw_play_put_error(socket, take(socket, type), name, SW_SCOPE_REQUEST, "that is played");
}

static void await_go(void) {
    while (sem_wait(&sw_play.go) < 0)
        ;
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

static void fail_a_spill(int socket) {
    sw_play_greet(socket);
    refuse(socket, SW_MSG_BUILD, "ENOSPACE");
    refuse(socket, SW_MSG_BUILD, "EDRAINING");
    spill_well(socket);
    sw_play_expect_end(socket);
}

START_TEST(a_failed_spill_leaves_it_live) {
    uint64_t freed = 1;
    begin(fail_a_spill);
    sw_pooled_ck_failed(spillway_pool_make_room(sw_pooled, 1, &freed, &sw_pooled_error), SPILLWAY_ENOSPACE, "played");
    ck_assert_uint_eq(freed, 0);
    sw_pooled_ck_failed(spillway_handle_spill(handle, &sw_pooled_error), SPILLWAY_EDRAINING, "played");
    ck_assert(sw_pooled_is(handle, "live"));
    ck_assert_uint_eq(sw_pooled_stats().failed_spills, 2);
    sw_pooled_ck(handle, 1);
    ck_assert_uint_eq(sw_pooled_make_room(1), BYTES);
    end();
}
END_TEST

/* Each is spilled by a call of its own: the second when the first has failed. */
START_TEST(the_first_of_several_failures_is_told) {
    uint64_t freed = 1;
    begin(fail_a_spill);
    sw_pooled_fill(sw_pooled_new(BYTES), 2);
    sw_pooled_ck_failed(spillway_pool_make_room(sw_pooled, 1, &freed, &sw_pooled_error), SPILLWAY_ENOSPACE, "played");
    ck_assert_uint_eq(sw_pooled_stats().failed_spills, 2);
    ck_assert_uint_eq(sw_pooled_make_room(1), BYTES);
    end();
}
END_TEST

/* If a pin finds no room, its error's text says why other buffers stay. */
START_TEST(a_failed_spill_is_why_there_is_no_room) {
    void *data;
    begin(fail_a_spill);
    sw_pooled_memory.limit_bytes = BYTES;
    struct spillway_handle *other = sw_pooled_new(BYTES);
    sw_pooled_ck_failed(spillway_handle_pin(other, NULL, &data, &sw_pooled_error), SPILLWAY_ENOMEM, "ENOSPACE");
    ck_assert(sw_pooled_is(other, "empty"));
    sw_pooled_ck_failed(spillway_handle_pin(other, NULL, &data, &sw_pooled_error), SPILLWAY_ENOMEM, "EDRAINING");
    sw_pooled_fill(other, 2);
    ck_assert(sw_pooled_is(handle, "spilled"));
    end();
}
END_TEST

static void fail_a_restore(int socket) {
    sw_play_greet(socket);
    spill_well(socket);
    refuse(socket, SW_MSG_READ, "EIO");
    refuse(socket, SW_MSG_READ, "EBUSY");
    restore_well(socket);
    sw_play_expect_end(socket);
}

START_TEST(a_failed_restore_leaves_it_spilled) {
    void *data;
    begin(fail_a_restore);
    (void)sw_pooled_make_room(1);
    sw_pooled_ck_failed(spillway_handle_pin(handle, NULL, &data, &sw_pooled_error), SPILLWAY_EIO, "played");
    ck_assert(sw_pooled_is(handle, "spilled"));
    ck_assert_uint_eq(sw_pooled_info(handle).pins, 0);
    ck_assert_uint_eq(sw_pooled_memory.used_bytes, 0);
    ck_assert_uint_eq(sw_pooled_stats().held_bytes, 0);
    ck_assert_int_eq(spillway_handle_pin_begin(handle, NULL, &sw_pooled_error), 0);
    sw_pooled_ck_failed(spillway_handle_pin_ready(handle, -1, &data, &sw_pooled_error), SPILLWAY_EBUSY, "played");
    ck_assert_uint_eq(sw_pooled_info(handle).pins, 0);
    ck_assert_uint_gt(sw_pooled_info(handle).stored_bytes, 0);
    ck_assert_uint_eq(sw_pooled_info(handle).stored_bytes, sw_pooled_stats().stored_bytes);
    sw_pooled_use(handle);
    ck_assert_uint_eq(sw_pooled_info(handle).stored_bytes, 0); /* the service has no copy any more */
    ck_assert_uint_eq(sw_pooled_stats().failed_restores, 2);
    end();
}
END_TEST

enum { N = 3 }; /* buffers that are spilled together */

/* Their spill comes in, in one packet; all that is said of memories is answered. Returns its seq. */
static uint32_t take_batch(int socket) {
    struct sw_msg msg;
    while (sw_play_get(socket, &msg) && msg.header.type != SW_MSG_BUILD)
        sw_play_put_ok(socket, msg.header.seq);
    SW_ASSERT(msg.header.type == SW_MSG_BUILD && msg.u.build.n_builds == N);
    return msg.header.seq;
}

static void restart_in_a_batch(int socket) {
    struct sw_msg msg;
    sw_play_greet(socket);
    sw_play_put_error(socket, take_batch(socket), "ERESTARTED", SW_SCOPE_REQUEST, "that is played");
    sw_play_put_batch(socket, take_batch(socket), N, SLOT, N * BYTES);
    while (sw_play_get(socket, &msg))
        sw_play_put_ok(socket, msg.header.seq);
}

/* Buffers that are spilled together are repeated together. */
START_TEST(a_batch_is_repeated_after_a_restart) {
    begin(restart_in_a_batch);
    for (unsigned i = 1; i < N; i++)
        sw_pooled_fill(sw_pooled_new(BYTES), i + 1);
    ck_assert_uint_eq(sw_pooled_make_room(N * BYTES), N * BYTES);
    ck_assert_uint_eq(sw_pooled_stats().failed_spills, 0);
    end();
}
END_TEST

static void refuse_some(int socket, unsigned type) {
    enum { N_TRIES = 4 };
    for (unsigned i = 1; i <= N_TRIES; i++)
        sw_play_put_error(socket, take(socket, type), "ERESTARTED", SW_SCOPE_REQUEST,
                          i < N_TRIES ? "once more" : "for good");
}

static void restart_again_and_again(int socket) {
    sw_play_greet(socket);
    refuse_some(socket, SW_MSG_BUILD);
    spill_well(socket);
    refuse_some(socket, SW_MSG_READ);
    restore_well(socket);
    sw_play_expect_end(socket);
}

/* A service that is restarted again and again fails a call at last. The next call begins anew. */
START_TEST(calls_are_repeated_a_few_times) {
    void *data;
    begin(restart_again_and_again);
    sw_pooled_ck_failed(spillway_handle_spill(handle, &sw_pooled_error), SPILLWAY_ERESTARTED, "for good");
    ck_assert(sw_pooled_is(handle, "live"));
    sw_pooled_ok(spillway_handle_spill(handle, &sw_pooled_error));
    sw_pooled_ck_failed(spillway_handle_pin(handle, NULL, &data, &sw_pooled_error), SPILLWAY_ERESTARTED, "for good");
    ck_assert(sw_pooled_is(handle, "spilled"));
    sw_pooled_use(handle);
    end();
}
END_TEST

static void restart_after_one_of_a_batch(int socket) {
    static const struct sw_wire_text texts[] = {{"raw"}, {"host"}, {"ERESTARTED"}};
    static const struct sw_wire_result results[N] = {
        {.slot = SLOT, .gen = 9, .codec = 1, .tier = 2, .raw_bytes = BYTES, .stored_bytes = BYTES},
        {.error = 3, .scope = SW_SCOPE_REQUEST},
        {.error = 3, .scope = SW_SCOPE_REQUEST}};
    struct sw_msg msg = {.u.results = {.n_results = N, .n_texts = 3, .results = results, .texts = texts}};
    sw_play_greet(socket);
    sw_play_put(socket, &msg, SW_MSG_RESULTS, take_batch(socket));
    while (sw_play_get(socket, &msg)) {
        SW_ASSERT(msg.header.type != SW_MSG_BUILD);
        sw_play_put_ok(socket, msg.header.seq);
    }
}

/* What the service has done before its restart is not done again. */
START_TEST(a_batch_done_in_part_is_not_repeated) {
    uint64_t freed = 0;
    begin(restart_after_one_of_a_batch);
    for (unsigned i = 1; i < N; i++)
        sw_pooled_fill(sw_pooled_new(BYTES), i + 1);
    sw_pooled_ck_failed(spillway_pool_make_room(sw_pooled, N * BYTES, &freed, &sw_pooled_error), SPILLWAY_ERESTARTED,
                        "");
    ck_assert_uint_eq(freed, BYTES);
    ck_assert_uint_eq(sw_pooled_stats().failed_spills, N - 1);
    end();
}
END_TEST

static void spill_one_by_one(int socket) {
    sw_play_greet(socket);
    for (uint32_t i = 0; i + 1 < N; i++)
        sw_play_put_result(socket, take(socket, SW_MSG_BUILD), SLOT + i, BYTES);
    sw_play_expect_end(socket);
}

static void keep(void *user, void *data, uint64_t bytes) {
    (void)user;
    (void)data;
    (void)bytes;
}

/* Buffers whose spill cannot be sent together, because the memory of one is gone, are spilled each by itself. Loop:
 * which one stays. */
START_TEST(one_without_memory_keeps_no_other) {
    struct spillway_handle *handles[N];
    const size_t page_bytes = 2 * (size_t)sysconf(_SC_PAGESIZE) * 2;
    void *gone = mmap(NULL, page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t freed = 0;
    sw_play_start(spill_one_by_one);
    sw_pooled_open(sw_play.address.sun_path, .wait_ms = -1);
    for (int i = 0; i < N; i++) {
        const struct spillway_handle_options options = {
            .size = sizeof options, .bytes = BYTES, .allocator = {.free = keep}, .keep_priority = (uint8_t)i};
        if (i == _i)
            sw_pooled_ok(spillway_pool_adopt(sw_pooled, gone, &options, &handles[i], &sw_pooled_error));
        else
            sw_pooled_fill(handles[i] = sw_pooled_new(BYTES, .keep_priority = (uint8_t)i), 1);
    }
    ck_assert_int_lt(spillway_pool_make_room(sw_pooled, N * BYTES, &freed, &sw_pooled_error), 0);
    ck_assert_uint_eq(freed, (N - 1) * BYTES);
    for (int i = 0; i < N; i++)
        ck_assert(sw_pooled_is(handles[i], i == _i ? "live" : "spilled"));
    ck_assert_uint_eq(sw_pooled_stats().failed_spills, 1);
    end();
    (void)munmap(gone, page_bytes);
}
END_TEST

static void spill_one(int socket) {
    sw_play_greet(socket);
    spill_well(socket);
    sw_play_expect_end(socket);
}

/* The one that leaves first is found among any number. */
START_TEST(the_last_of_many_leaves_first) {
    enum { MANY = 100 };
    struct spillway_handle *last = NULL;
    begin(spill_one);
    sw_pooled_ok(spillway_handle_free(handle, &sw_pooled_error));
    for (unsigned i = 0; i < MANY; i++)
        sw_pooled_fill(last = sw_pooled_new(BYTES, .keep_priority = i + 1 < MANY ? 9 : 1), 1);
    ck_assert_uint_eq(sw_pooled_make_room(1), BYTES);
    ck_assert(sw_pooled_is(last, "spilled"));
    end();
}
END_TEST

/* What the service hears of the buffer: the type of its values, and how much it is worth to keep. */
static void hear_of_it(int socket) {
    struct sw_msg open, parts, build;
    sw_play_greet(socket);
    sw_play_expect(socket, &open, SW_MSG_MEM_OPEN);
    sw_play_expect(socket, &parts, SW_MSG_MEM_PARTS);
    sw_play_expect(socket, &build, SW_MSG_BUILD);
    SW_ASSERT(build.u.build.builds[0].keep_priority == 7);
    SW_ASSERT(build.u.build.buffers[0].value_type == SPILLWAY_I32);
    sw_play_put_ok(socket, open.header.seq);
    sw_play_put_ok(socket, parts.header.seq);
    sw_play_put_result(socket, build.header.seq, SLOT, BYTES);
    restore_well(socket);
    sw_play_expect_end(socket);
}

/* And what its handle tells of the stored bytes, as long as there are some. */
START_TEST(both_sides_are_told_of_it) {
    sw_play_start(hear_of_it);
    sw_pooled_open(sw_play.address.sun_path, .wait_ms = -1);
    handle = sw_pooled_new(BYTES, .keep_priority = 7, .type = SPILLWAY_I32);
    sw_pooled_fill(handle, 1);
    (void)sw_pooled_make_room(1);
    ck_assert_str_eq(sw_pooled_info(handle).codec, "sixteen letters");
    sw_pooled_use(handle);
    ck_assert_str_eq(sw_pooled_info(handle).codec, "");
    end();
}
END_TEST

/* ---- two connections --------------------------------------------------------------------------------------------- */

static int greet_another(void) {
    const int socket = accept(sw_play.listener, NULL, NULL);
    SW_ASSERT(socket >= 0);
    sw_play_greet(socket);
    return socket;
}

static void spill_in_turn(int socket) {
    sw_play_greet(socket);
    const int other = greet_another();
    spill_well(socket);
    spill_well(other);
    spill_well(socket);
    sw_play_expect_end(socket);
    (void)close(other);
}

START_TEST(connections_take_turns) {
    sw_play_start(spill_in_turn);
    sw_pooled_open(sw_play.address.sun_path, .wait_ms = -1, .n_connections = 2);
    for (unsigned i = 0; i < 3; i++) {
        sw_pooled_fill(handle = sw_pooled_new(BYTES), i);
        sw_pooled_ok(spillway_handle_spill(handle, &sw_pooled_error));
    }
    end();
}
END_TEST

static void hang_up_one_of_two(int socket) {
    sw_play_greet(socket);
    const int other = greet_another();
    spill_well(socket);
    spill_well(other);
    sw_play_hang_up(socket, take(socket, SW_MSG_READ));
    for (unsigned i = 0; i < 3; i++)
        spill_well(other);
    sw_play_expect_end(other);
    (void)close(other);
}

/* Only what the lost one had is lost. */
START_TEST(one_of_two_connections_is_lost) {
    void *data;
    sw_play_start(hang_up_one_of_two);
    sw_pooled_open(sw_play.address.sun_path, .wait_ms = -1, .n_connections = 2);
    struct spillway_handle *handles[5];
    for (unsigned i = 0; i < 5; i++) {
        sw_pooled_fill(handles[i] = sw_pooled_new(BYTES), i);
        if (i < 2)
            sw_pooled_ok(spillway_handle_spill(handles[i], &sw_pooled_error));
    }
    sw_pooled_ck_failed(spillway_handle_pin(handles[0], NULL, &data, &sw_pooled_error), SPILLWAY_ELOST, "ECONN");
    for (unsigned i = 2; i < 5; i++)
        sw_pooled_ok(spillway_handle_spill(handles[i], &sw_pooled_error));
    for (unsigned i = 0; i < 5; i++)
        ck_assert(sw_pooled_is(handles[i], i ? "spilled" : "lost"));
    end();
}
END_TEST

static void restart_once(int socket) {
    sw_play_greet(socket);
    refuse(socket, SW_MSG_BUILD, "ERESTARTED");
    spill_well(socket);
    refuse(socket, SW_MSG_READ, "ERESTARTED");
    restore_well(socket);
    sw_play_expect_end(socket);
}

START_TEST(both_are_repeated_after_a_restart) {
    begin(restart_once);
    (void)sw_pooled_make_room(1);
    sw_pooled_use(handle);
    ck_assert_uint_eq(sw_pooled_stats().failed_restores, 0);
    ck_assert_uint_eq(sw_pooled_stats().failed_spills, 0);
    end();
}
END_TEST

static void hang_up_in_restore(int socket) {
    sw_play_greet(socket);
    spill_well(socket);
    sw_play_hang_up(socket, take(socket, SW_MSG_READ));
}

START_TEST(a_connection_lost_in_a_restore) {
    void *data;
    begin(hang_up_in_restore);
    struct spillway_handle *other = sw_pooled_new(BYTES, .flags = SPILLWAY_HANDLE_STAYS);
    sw_pooled_fill(other, 2);
    (void)sw_pooled_make_room(1);
    sw_pooled_ck_failed(spillway_handle_pin(handle, NULL, &data, &sw_pooled_error), SPILLWAY_ELOST, "ECONN");
    ck_assert(sw_pooled_is(handle, "lost"));
    ck_assert_uint_eq(sw_pooled_memory.used_bytes, BYTES);
    sw_pooled_ck(other, 2);
    end();
}
END_TEST

/* No call can start on a lost connection. */
START_TEST(each_buffer_that_cannot_leave_counts) {
    void *data;
    uint64_t freed = 1;
    begin(hang_up_in_restore);
    (void)sw_pooled_make_room(1);
    ck_assert_int_lt(spillway_handle_pin(handle, NULL, &data, &sw_pooled_error), 0);
    for (unsigned i = 0; i < 3; i++)
        sw_pooled_fill(sw_pooled_new(BYTES), 2);
    sw_pooled_ck_failed(spillway_pool_make_room(sw_pooled, 3 * BYTES, &freed, &sw_pooled_error), SPILLWAY_ECONN, "");
    ck_assert_uint_eq(freed, 0);
    ck_assert_uint_eq(sw_pooled_stats().failed_spills, 3);
    end();
}
END_TEST

/* The service takes one operation at a time. */
static void take_one_at_a_time(int socket) {
    sw_play_greet_with(socket, 1, SW_PLAY_MAX_PIECES);
    spill_well(socket);
    sw_play_put_result(socket, take(socket, SW_MSG_BUILD), SLOT + 1, BYTES);
    const uint32_t seq = take(socket, SW_MSG_READ);
    await_go();
    sw_play_put_result(socket, seq, SLOT, BYTES);
    restore_well(socket);
    sw_play_expect_end(socket);
}

static void *prefetch(void *arg) {
    SW_ASSERT(spillway_handle_prefetch(arg, NULL, NULL) == 0);
    return NULL;
}

START_TEST(waits_its_turn) {
    pthread_t thread;
    begin(take_one_at_a_time);
    struct spillway_handle *other = sw_pooled_new(BYTES);
    sw_pooled_fill(other, 2);
    sw_pooled_ok(spillway_handle_spill(handle, &sw_pooled_error));
    sw_pooled_ok(spillway_handle_spill(other, &sw_pooled_error));
    sw_pooled_ok(spillway_handle_prefetch(handle, NULL, &sw_pooled_error));
    ck_assert_int_eq(pthread_create(&thread, NULL, prefetch, other), 0);
    while (!sw_pooled_is(other, "restoring"))
        (void)usleep(1000);
    (void)usleep(20000);
    (void)sem_post(&sw_play.go);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    sw_pooled_use(handle);
    sw_pooled_use(other);
    end();
}
END_TEST

/* ---- at once ----------------------------------------------------------------------------------------------------- */

static void hold_a_spill(int socket) {
    sw_play_greet(socket);
    const uint32_t seq = take(socket, SW_MSG_BUILD);
    await_go();
    sw_play_put_result(socket, seq, SLOT, BYTES);
    sw_play_expect_drop(socket, SLOT);
    sw_play_expect_end(socket);
}

struct room {
    uint64_t freed;
    int rc;
};

static atomic_uint n_making_room;

static void *make_room_there(void *arg) {
    struct room *room = arg;
    (void)atomic_fetch_add(&n_making_room, 1);
    room->rc = spillway_pool_make_room(sw_pooled, 1, &room->freed, NULL);
    return NULL;
}

static void *pin_there(void *arg) {
    void *data;
    (void)arg;
    SW_ASSERT(spillway_handle_pin(handle, NULL, &data, NULL) == 0);
    SW_ASSERT(spillway_handle_unpin(handle, NULL, NULL) == 0);
    return NULL;
}

static void *pin_and_keep(void *arg) {
    SW_ASSERT(spillway_handle_pin(handle, NULL, arg, NULL) == 0);
    return NULL;
}

START_TEST(a_pin_keeps_what_is_being_spilled) {
    pthread_t evicts, pins;
    struct room room;
    begin(hold_a_spill);
    ck_assert_int_eq(pthread_create(&evicts, NULL, make_room_there, &room), 0);
    while (!sw_pooled_is(handle, "spilling"))
        (void)usleep(1000);
    ck_assert_int_eq(pthread_create(&pins, NULL, pin_there, NULL), 0);
    while (sw_pooled_stats().waits == 0)
        (void)usleep(1000);
    (void)sem_post(&sw_play.go);
    ck_assert_int_eq(pthread_join(pins, NULL), 0);
    ck_assert_int_eq(pthread_join(evicts, NULL), 0);
    ck_assert_int_eq(sw_pooled_memory.n_allocs, 1);
    ck_assert_uint_eq(sw_pooled_stats().evictions, 0);
    ck_assert_uint_eq(room.freed, 0);
    sw_pooled_ck(handle, 1);
    end();
}
END_TEST

/* A prefetch does not wait, but keeps it, too. */
START_TEST(a_prefetch_keeps_what_is_being_spilled) {
    pthread_t evicts;
    struct room room;
    begin(hold_a_spill);
    ck_assert_int_eq(pthread_create(&evicts, NULL, make_room_there, &room), 0);
    while (!sw_pooled_is(handle, "spilling"))
        (void)usleep(1000);
    sw_pooled_ok(spillway_handle_prefetch(handle, NULL, &sw_pooled_error));
    (void)sem_post(&sw_play.go);
    ck_assert_int_eq(pthread_join(evicts, NULL), 0);
    ck_assert_int_eq(room.rc, -SPILLWAY_ENOMEM);
    ck_assert(sw_pooled_is(handle, "live"));
    end();
}
END_TEST

static void serve_nothing(int socket) {
    sw_play_greet(socket);
    sw_play_expect_end(socket);
}

static void serve_one_spill(int socket) {
    sw_play_greet(socket);
    spill_well(socket);
    sw_play_expect_end(socket);
}

static void give_back(void *user, void *data, uint64_t bytes) {
    (void)user, (void)data, (void)bytes;
}

/* A pin that waits for room goes on as soon as another one ends, or a watched buffer does. */
START_TEST(room_of_others_is_seen_at_once) {
    const struct spillway_handle_options watched = {
        .size = sizeof watched, .bytes = BYTES, .allocator.free = give_back, .flags = SPILLWAY_HANDLE_STAYS};
    static uint8_t memory[BYTES];
    struct spillway_handle *first = NULL;
    pthread_t thread;
    void *data;
    sw_play_start(_i ? serve_nothing : serve_one_spill);
    sw_pooled_open(sw_play.address.sun_path, .wait_ms = SW_TEST_WAIT_MS, .budget_bytes = BYTES);
    if (_i)
        sw_pooled_ok(spillway_pool_watch(sw_pooled, memory, &watched, &first, &sw_pooled_error));
    else
        sw_pooled_ok(spillway_handle_pin(first = sw_pooled_new(BYTES), NULL, &data, &sw_pooled_error));
    handle = sw_pooled_new(BYTES);
    ck_assert_int_eq(pthread_create(&thread, NULL, pin_there, NULL), 0);
    (void)usleep(20000);
    const uint64_t begun_us = sw_clock_us();
    sw_pooled_ok(_i ? spillway_handle_free(first, &sw_pooled_error)
                    : spillway_handle_unpin(first, NULL, &sw_pooled_error));
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_uint_lt(sw_clock_us() - begun_us, SW_TEST_WAIT_MS * UINT64_C(500));
    end();
}
END_TEST

static sem_t is_asked, may_give;

static bool wait_in_allocator(uint64_t bytes) {
    (void)bytes;
    (void)sem_post(&is_asked);
    while (sem_wait(&may_give) < 0)
        ;
    return true;
}

static bool find_memory_later(uint64_t bytes) {
    (void)wait_in_allocator(bytes);
    sw_pooled_memory.limit_bytes = 0;
    return true;
}

/* One thread allocates, and others that pin the same buffer wait for it. */
START_TEST(one_thread_allocates_and_others_wait) {
    pthread_t threads[2];
    void *data;
    begin(serve_nothing);
    ck_assert(sem_init(&is_asked, 0, 0) == 0 && sem_init(&may_give, 0, 0) == 0);
    sw_pooled_memory.limit_bytes = BYTES;
    sw_pooled_memory.on_full = find_memory_later;
    handle = sw_pooled_new(BYTES, .flags = SPILLWAY_HANDLE_STAYS);
    ck_assert_int_eq(pthread_create(&threads[0], NULL, pin_and_keep, &data), 0);
    while (sem_wait(&is_asked) < 0)
        ;
    ck_assert_int_eq(pthread_create(&threads[1], NULL, pin_there, NULL), 0);
    while (sw_pooled_stats().waits == 0)
        (void)usleep(1000);
    (void)sem_post(&may_give);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_uint_eq(sw_pooled_info(handle).pins, 1);
    ck_assert_uint_eq(sw_pooled_memory.n_allocs, 2);
    sw_pooled_ok(spillway_handle_unpin(handle, NULL, &sw_pooled_error));
    end();
}
END_TEST

static bool find_none_later(uint64_t bytes) {
    (void)wait_in_allocator(bytes);
    return false;
}

static void *find_no_memory(void *arg) {
    void *data;
    (void)arg;
    SW_ASSERT(spillway_handle_pin(handle, NULL, &data, NULL) == -SPILLWAY_ENOMEM);
    return NULL;
}

/* If there is no memory, all of them learn it. There was nothing to restore. */
START_TEST(all_that_wait_learn_that_there_is_no_memory) {
    pthread_t threads[2];
    struct spillway_handle *first;
    void *data;
    begin(serve_nothing);
    sw_pooled_ok(spillway_handle_pin(first = handle, NULL, &data, &sw_pooled_error));
    ck_assert(sem_init(&is_asked, 0, 0) == 0 && sem_init(&may_give, 0, 0) == 0);
    sw_pooled_memory.limit_bytes = BYTES;
    sw_pooled_memory.on_full = find_none_later;
    handle = sw_pooled_new(BYTES);
    ck_assert_int_eq(pthread_create(&threads[0], NULL, find_no_memory, NULL), 0);
    while (sem_wait(&is_asked) < 0)
        ;
    ck_assert_int_eq(pthread_create(&threads[1], NULL, find_no_memory, NULL), 0);
    while (sw_pooled_stats().waits == 0)
        (void)usleep(1000);
    for (unsigned i = 0; i < 2; i++) /* the pool asks again when it has looked for room */
        (void)sem_post(&may_give);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_uint_eq(sw_pooled_info(handle).pins, 0);
    ck_assert_uint_eq(sw_pooled_stats().failed_restores, 0);
    sw_pooled_ok(spillway_handle_unpin(first, NULL, &sw_pooled_error));
    end();
}
END_TEST

static void hold_the_only_spill(int socket) {
    sw_play_greet(socket);
    const uint32_t seq = take(socket, SW_MSG_BUILD);
    await_go();
    sw_play_put_result(socket, seq, SLOT, BYTES);
    sw_play_expect_end(socket);
}

/* The service keeps the copy of a constant one, so it leaves later without being moved. */
START_TEST(a_constant_one_that_stays_is_stored) {
    pthread_t evicts;
    struct room room;
    sw_play_start(hold_the_only_spill);
    sw_pooled_open(sw_play.address.sun_path, .wait_ms = -1);
    sw_pooled_fill(handle = sw_pooled_new(BYTES, .flags = SPILLWAY_HANDLE_CONSTANT), 1);
    ck_assert_int_eq(pthread_create(&evicts, NULL, make_room_there, &room), 0);
    while (!sw_pooled_is(handle, "spilling"))
        (void)usleep(1000);
    sw_pooled_ok(spillway_handle_prefetch(handle, NULL, &sw_pooled_error));
    (void)sem_post(&sw_play.go);
    ck_assert_int_eq(pthread_join(evicts, NULL), 0);
    ck_assert(sw_pooled_is(handle, "live"));
    ck_assert_uint_gt(sw_pooled_info(handle).stored_bytes, 0);
    ck_assert_uint_eq(sw_pooled_make_room(1), BYTES);
    end();
}
END_TEST

/* A pin that waits for room in the budget goes on as soon as that is larger. */
START_TEST(a_larger_budget_is_seen_at_once) {
    pthread_t thread;
    void *data;
    begin_patient(serve_nothing, SW_TEST_WAIT_MS);
    sw_pooled_ok(spillway_handle_pin(handle, NULL, &data, &sw_pooled_error)); /* cannot leave */
    sw_pooled_ok(spillway_pool_set_budget(sw_pooled, BYTES, &sw_pooled_error));
    struct spillway_handle *first = handle;
    handle = sw_pooled_new(BYTES);
    ck_assert_int_eq(pthread_create(&thread, NULL, pin_there, NULL), 0);
    (void)usleep(20000);
    ck_assert_uint_eq(sw_pooled_stats().held_bytes, BYTES);
    const uint64_t begun_us = sw_clock_us();
    sw_pooled_ok(spillway_pool_set_budget(sw_pooled, 2 * BYTES, &sw_pooled_error));
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_uint_lt(sw_clock_us() - begun_us, SW_TEST_WAIT_MS * UINT64_C(500));
    sw_pooled_ok(spillway_handle_unpin(first, NULL, &sw_pooled_error));
    end();
}
END_TEST

static void *spill_there(void *arg) {
    SW_ASSERT(spillway_handle_spill(handle, NULL) == 0);
    *(bool *)arg = !sw_pooled_is(handle, "spilled");
    return NULL;
}

static void *free_there(void *arg) {
    (void)arg;
    SW_ASSERT(spillway_handle_free(handle, NULL) == 0);
    return NULL;
}

/* A second spill, and the end of the handle, wait for the first spill. */
START_TEST(others_wait_for_a_spill) {
    pthread_t evicts, other;
    struct room room;
    bool is_early = false;
    begin(_i ? hold_a_spill : hold_the_only_spill);
    ck_assert_int_eq(pthread_create(&evicts, NULL, make_room_there, &room), 0);
    while (!sw_pooled_is(handle, "spilling"))
        (void)usleep(1000);
    ck_assert_int_eq(pthread_create(&other, NULL, _i ? free_there : spill_there, &is_early), 0);
    (void)usleep(20000);
    (void)sem_post(&sw_play.go);
    ck_assert_int_eq(pthread_join(evicts, NULL), 0);
    ck_assert_int_eq(pthread_join(other, NULL), 0);
    ck_assert(!is_early);
    ck_assert_uint_eq(room.freed, BYTES);
    end();
}
END_TEST

/* The second finds nothing idle, but what the first has begun. */
START_TEST(waits_for_spills_of_other_threads) {
    pthread_t first, second;
    struct room rooms[2];
    begin_patient(hold_the_only_spill, SW_TEST_WAIT_MS);
    ck_assert_int_eq(pthread_create(&first, NULL, make_room_there, &rooms[0]), 0);
    while (!sw_pooled_is(handle, "spilling"))
        (void)usleep(1000);
    ck_assert_int_eq(pthread_create(&second, NULL, make_room_there, &rooms[1]), 0);
    while (atomic_load(&n_making_room) < 2)
        (void)usleep(1000);
    (void)usleep(20000);
    (void)sem_post(&sw_play.go);
    ck_assert_int_eq(pthread_join(first, NULL), 0);
    ck_assert_int_eq(pthread_join(second, NULL), 0);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(rooms[i].rc, 0);
        ck_assert_uint_eq(rooms[i].freed, BYTES);
    }
    end();
}
END_TEST

static void hold_a_restore(int socket) {
    sw_play_greet(socket);
    spill_well(socket);
    const uint32_t seq = take(socket, SW_MSG_READ);
    await_go();
    sw_play_put_result(socket, seq, SLOT, BYTES);
    sw_play_expect_end(socket);
}

START_TEST(one_thread_restores_and_others_wait) {
    enum { PINS = 3 };
    pthread_t threads[PINS];
    void *data[PINS];
    begin(hold_a_restore);
    (void)sw_pooled_make_room(1);
    for (unsigned i = 0; i < PINS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, pin_and_keep, &data[i]), 0);
    while (sw_pooled_stats().waits < PINS)
        (void)usleep(1000);
    (void)sem_post(&sw_play.go);
    for (unsigned i = 0; i < PINS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_uint_eq(sw_pooled_stats().restores, 1);
    ck_assert_uint_eq(sw_pooled_info(handle).pins, PINS);
    ck_assert_uint_eq(sw_pooled_memory.n_allocs, 2);
    for (unsigned i = 0; i < PINS; i++)
        sw_pooled_ok(spillway_handle_unpin(handle, NULL, &sw_pooled_error));
    end();
}
END_TEST

/* Looks do not wait, and are not counted as waits; the pin stays. */
START_TEST(a_pin_is_ready_in_time_or_not) {
    void *data = NULL;
    begin(hold_a_restore);
    (void)sw_pooled_make_room(1);
    ck_assert_int_eq(spillway_handle_pin_begin(handle, NULL, &sw_pooled_error), 0);
    sw_pooled_ck_failed(spillway_handle_pin_ready(handle, 0, &data, &sw_pooled_error), SPILLWAY_EAGAIN, "runs");
    ck_assert_uint_eq(sw_pooled_stats().waits, 0);
    const uint64_t begun_us = sw_clock_us();
    sw_pooled_ck_failed(spillway_handle_pin_ready(handle, 20, &data, &sw_pooled_error), SPILLWAY_EAGAIN, "20 ms");
    ck_assert_uint_ge(sw_clock_us() - begun_us, 20000);
    ck_assert_uint_eq(sw_pooled_stats().waits, 1);
    (void)sem_post(&sw_play.go);
    sw_pooled_ok(spillway_handle_pin_ready(handle, -1, &data, &sw_pooled_error));
    ck_assert_ptr_nonnull(data);
    sw_pooled_ok(spillway_handle_unpin(handle, NULL, &sw_pooled_error));
    end();
}
END_TEST

static void *close_there(void *arg) {
    spillway_pool_close(arg);
    return NULL;
}

/* The service writes to the memory of a prefetch: it is not freed before. */
START_TEST(the_end_waits_for_a_prefetch) {
    pthread_t thread;
    begin(hold_a_restore);
    (void)sw_pooled_make_room(1);
    sw_pooled_ok(spillway_handle_prefetch(handle, NULL, &sw_pooled_error));
    ck_assert_int_eq(pthread_create(&thread, NULL, close_there, sw_pooled), 0);
    (void)usleep(20000);
    (void)pthread_mutex_lock(&sw_pooled_memory.lock);
    ck_assert_uint_eq(sw_pooled_memory.used_bytes, BYTES);
    (void)pthread_mutex_unlock(&sw_pooled_memory.lock);
    (void)sem_post(&sw_play.go);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    sw_pooled = NULL;
    end();
    ck_assert_uint_eq(sw_pooled_memory.used_bytes, 0);
}
END_TEST

static void hold_and_fail_a_restore(int socket) {
    sw_play_greet(socket);
    spill_well(socket);
    const uint32_t seq = take(socket, SW_MSG_READ);
    await_go();
    sw_play_put_error(socket, seq, "EIO", SW_SCOPE_REQUEST, "that is played");
    sw_play_expect_end(socket);
}

static void *fail_to_pin(void *arg) {
    void *data;
    (void)arg;
    SW_ASSERT(spillway_handle_pin(handle, NULL, &data, NULL) == -SPILLWAY_EIO);
    return NULL;
}

START_TEST(all_that_wait_learn_of_a_failure) {
    enum { PINS = 3 };
    pthread_t threads[PINS];
    begin(hold_and_fail_a_restore);
    (void)sw_pooled_make_room(1);
    for (unsigned i = 0; i < PINS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, fail_to_pin, NULL), 0);
    while (sw_pooled_stats().waits < PINS)
        (void)usleep(1000);
    (void)sem_post(&sw_play.go);
    for (unsigned i = 0; i < PINS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_uint_eq(sw_pooled_info(handle).pins, 0);
    ck_assert(sw_pooled_is(handle, "spilled"));
    end();
}
END_TEST

/* ---- allocations ------------------------------------------------------------------------------------------------- */

static void serve_until_the_end(int socket) {
    struct sw_msg msg;
    while (sw_play_get(socket, &msg)) {
        struct sw_msg hello = {.u.hello_ok = {.version = SW_PROTO_VERSION,
                                              .max_in_flight = SW_PLAY_MAX_IN_FLIGHT,
                                              .max_buffers = SW_PLAY_MAX_PIECES}};
        if (msg.header.type == SW_MSG_HELLO)
            sw_play_put(socket, &hello, SW_MSG_HELLO_OK, msg.header.seq);
        else if (msg.header.type == SW_MSG_BUILD)
            sw_play_put_batch(socket, msg.header.seq, msg.u.build.n_builds, SLOT,
                              (uint64_t)msg.u.build.n_builds * BYTES);
        else if (msg.header.type == SW_MSG_READ)
            sw_play_put_result(socket, msg.header.seq, SLOT, BYTES);
        else if (msg.header.type == SW_MSG_DISCARD)
            sw_play_put_discarded(socket, msg.header.seq, 1);
        else
            sw_play_put_ok(socket, msg.header.seq);
    }
}

/* The n-th allocation of a buffer's life fails; what was done stays right, and nothing leaks. */
START_TEST(survives_failed_allocations) {
    begin(serve_until_the_end);
    for (unsigned long n = 1; n < 30; n++) {
        const struct spillway_handle_options options = {.size = sizeof options, .bytes = BYTES};
        struct spillway_handle *h = NULL;
        uint64_t freed;
        void *data;
        sw_alloc_fail_nth(n);
        int rc = spillway_pool_new(sw_pooled, &options, &h, &sw_pooled_error);
        ck_assert_msg(rc == 0 || rc == -SPILLWAY_ENOMEM, "%s: %s", sw_pooled_error.name, sw_pooled_error.text);
        if (rc < 0)
            continue;
        rc = spillway_handle_pin(h, NULL, &data, &sw_pooled_error);
        ck_assert_int_eq(rc, 0);
        sw_pooled_ok(spillway_handle_unpin(h, NULL, &sw_pooled_error));
        rc = spillway_pool_make_room(sw_pooled, 2 * BYTES, &freed, &sw_pooled_error);
        ck_assert_msg(rc == 0 || rc == -SPILLWAY_ENOMEM, "%s: %s", sw_pooled_error.name, sw_pooled_error.text);
        rc = spillway_handle_pin(h, NULL, &data, &sw_pooled_error);
        ck_assert_msg(rc == 0 || rc == -SPILLWAY_ENOMEM, "%s: %s", sw_pooled_error.name, sw_pooled_error.text);
        sw_alloc_fail_nth(0);
        if (rc == 0)
            sw_pooled_ok(spillway_handle_unpin(h, NULL, &sw_pooled_error));
        sw_pooled_use(h);
        sw_pooled_use(handle);
        sw_pooled_ok(spillway_handle_free(h, &sw_pooled_error));
    }
    ck_assert_uint_gt(sw_pooled_stats().failed_spills, 0);
    ck_assert_uint_gt(sw_pooled_stats().failed_restores, 0);
    end();
}
END_TEST

START_TEST(a_pool_that_cannot_be_made) {
    struct spillway_pool *pool = NULL;
    const struct spillway_options nobody = {.size = sizeof nobody, .socket_path = "/nonexistent/s"};
    const struct spillway_pool_options options = {.size = sizeof options, .connection = &nobody};
    sw_pooled_ck_failed(spillway_pool_create(&pool, &options, &sw_pooled_error), SPILLWAY_ENOSERVICE, "");
    sw_alloc_fail_nth(1);
    sw_pooled_ck_failed(spillway_pool_create(&pool, &options, &sw_pooled_error), SPILLWAY_ENOMEM, "pool");
    ck_assert_ptr_null(pool);
    ck_assert_int_eq(sw_alloc_live(), 0);
    spillway_pool_close(NULL);
    ck_assert_int_eq(spillway_handle_free(NULL, NULL), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_pool");
    TCase *fails = tcase_create("failures"), *at_once = tcase_create("at once"), *memory = tcase_create("allocations");
    tcase_add_test(fails, a_failed_spill_leaves_it_live);
    tcase_add_test(fails, the_first_of_several_failures_is_told);
    tcase_add_test(fails, a_failed_spill_is_why_there_is_no_room);
    tcase_add_test(fails, a_failed_restore_leaves_it_spilled);
    tcase_add_test(fails, both_are_repeated_after_a_restart);
    tcase_add_test(fails, a_batch_is_repeated_after_a_restart);
    tcase_add_test(fails, calls_are_repeated_a_few_times);
    tcase_add_test(fails, a_batch_done_in_part_is_not_repeated);
    tcase_add_loop_test(fails, one_without_memory_keeps_no_other, 0, N);
    tcase_add_test(fails, the_last_of_many_leaves_first);
    tcase_add_test(fails, both_sides_are_told_of_it);
    tcase_add_test(fails, connections_take_turns);
    tcase_add_test(fails, one_of_two_connections_is_lost);
    tcase_add_test(fails, a_connection_lost_in_a_restore);
    tcase_add_test(fails, each_buffer_that_cannot_leave_counts);
    tcase_add_test(fails, waits_its_turn);
    suite_add_tcase(suite, fails);
    tcase_add_test(at_once, a_pin_keeps_what_is_being_spilled);
    tcase_add_test(at_once, a_prefetch_keeps_what_is_being_spilled);
    tcase_add_loop_test(at_once, room_of_others_is_seen_at_once, 0, 2);
    tcase_add_test(at_once, one_thread_allocates_and_others_wait);
    tcase_add_test(at_once, all_that_wait_learn_that_there_is_no_memory);
    tcase_add_test(at_once, a_constant_one_that_stays_is_stored);
    tcase_add_loop_test(at_once, others_wait_for_a_spill, 0, 2);
    tcase_add_test(at_once, waits_for_spills_of_other_threads);
    tcase_add_test(at_once, a_larger_budget_is_seen_at_once);
    tcase_add_test(at_once, one_thread_restores_and_others_wait);
    tcase_add_test(at_once, a_pin_is_ready_in_time_or_not);
    tcase_add_test(at_once, the_end_waits_for_a_prefetch);
    tcase_add_test(at_once, all_that_wait_learn_of_a_failure);
    suite_add_tcase(suite, at_once);
    tcase_add_test(memory, survives_failed_allocations);
    tcase_add_test(memory, a_pool_that_cannot_be_made);
    suite_add_tcase(suite, memory);
    return sw_test_run(suite, CK_FORK);
}

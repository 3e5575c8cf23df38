/* The buffer manager when a connection is lost between its calls, what it prepares, and what it counts, against a
 * daemon that the test plays. */
#include "base/alloc.h"
#include "base/assert.h"
#include "ipc/pool/pool.h"
#include "ipc/proto.h"
#include "tests/lib/play.h"
#include "tests/lib/pooled.h"
#include "tests/lib/run.h"

#include <check.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 10000, SLOT = 3 };

/* ---- the daemon -------------------------------------------------------------------------------------------------- */

static uint32_t take(int socket, struct sw_msg *ret, unsigned type) {
    struct sw_msg open, parts;
    sw_play_expect(socket, &open, SW_MSG_MEM_OPEN);
    sw_play_expect(socket, &parts, SW_MSG_MEM_PARTS);
    sw_play_expect(socket, ret, type);
    sw_play_put_ok(socket, open.header.seq);
    sw_play_put_ok(socket, parts.header.seq);
    return ret->header.seq;
}

static void spill_one(int socket) {
    struct sw_msg msg;
    sw_play_put_result(socket, take(socket, &msg, SW_MSG_BUILD), SLOT, BYTES);
}

static void restore_one(int socket) {
    struct sw_msg msg;
    sw_play_put_result(socket, take(socket, &msg, SW_MSG_READ), SLOT, BYTES);
}

/* Of the pool's second connection. */
static int greet_another(void) {
    const int socket = accept(sw_play.listener, NULL, NULL);
    SW_ASSERT(socket >= 0);
    sw_play_greet(socket);
    return socket;
}

/* ---- the client -------------------------------------------------------------------------------------------------- */

static void begin(void (*serve)(int socket), unsigned n_connections) {
    sw_play_start(serve);
    sw_pooled_open(sw_play.address.sun_path, .wait_ms = -1, .n_connections = n_connections);
}

static void end(void) {
    sw_pooled_close();
    sw_play_stop();
    ck_assert_int_eq(sw_alloc_live(), 0);
}

static struct spillway_handle *new_live(uint32_t flags) {
    struct spillway_handle *handle = sw_pooled_new(BYTES, .flags = flags);
    sw_pooled_fill(handle, 1);
    return handle;
}

static void spill(struct spillway_handle *handle) {
    sw_pooled_ok(spillway_handle_spill(handle, &sw_pooled_error));
    ck_assert(sw_pooled_is(handle, "spilled"));
}

/* Something has come to the first connection that no call has taken in. */
static void await_news(void) {
    struct pollfd p = {.fd = spillway_fd(sw_pooled->lanes[0].connection), .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, SW_TEST_WAIT_MS), 1);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void lose_a_constant_one(int socket) {
    struct sw_msg msg;
    sw_play_greet(socket);
    const int other = greet_another();
    spill_one(socket);
    const uint32_t seq = take(socket, &msg, SW_MSG_READ);
    SW_ASSERT(msg.u.read.reads[0].flags & SW_READ_KEEP);
    sw_play_put_result(socket, seq, SLOT, BYTES);
    (void)sem_wait(&sw_play.go);
    (void)shutdown(socket, SHUT_RDWR);
    spill_one(other);
    spill_one(other);
    sw_play_expect_end(other);
    (void)close(other);
}

/* Its copy is gone with the connection, so it is moved again. Nothing more goes to the lost one. */
START_TEST(a_constant_buffer_without_its_copy_is_spilled_again) {
    begin(lose_a_constant_one, 2);
    struct spillway_handle *handle = new_live(SPILLWAY_HANDLE_CONSTANT), *other = new_live(0);
    spill(handle);
    sw_pooled_use(handle);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    await_news();
    spill(handle);
    spill(other);
    end();
}
END_TEST

static void hang_up_after_a_spill(int socket) {
    sw_play_greet(socket);
    const int other = greet_another();
    spill_one(socket);
    spill_one(other);
    (void)sem_wait(&sw_play.go);
    (void)shutdown(socket, SHUT_RDWR);
    spill_one(other);
    spill_one(other);
    sw_play_expect_end(other);
    (void)close(other);
}

/* A drop has found out. The first call that meets the lost connection fails, and no other one is sent there. */
START_TEST(a_lost_connection_fails_one_call) {
    struct spillway_handle *handles[4];
    begin(hang_up_after_a_spill, 2);
    for (unsigned i = 0; i < 4; i++)
        handles[i] = new_live(0);
    spill(handles[0]);
    spill(handles[1]);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    await_news();
    sw_pooled_ok(spillway_handle_free(handles[0], &sw_pooled_error));
    sw_pooled_ck_failed(spillway_handle_spill(handles[2], &sw_pooled_error), SPILLWAY_ECONN, "");
    ck_assert(sw_pooled_is(handles[2], "live"));
    spill(handles[3]);
    spill(handles[2]);
    end();
}
END_TEST

static void restore_and_spill(int socket) {
    sw_play_greet(socket);
    spill_one(socket);
    restore_one(socket);
    spill_one(socket);
    sw_play_expect_end(socket);
}

/* A program that prefetches a buffer is about to use it. */
START_TEST(a_restored_buffer_is_young) {
    enum { MANY = 40 };
    begin(restore_and_spill, 1);
    struct spillway_handle *restored = new_live(0), *other = new_live(0);
    spill(restored);
    for (unsigned i = 0; i < MANY; i++)
        sw_pooled_use(other);
    struct spillway_handle *last = new_live(SPILLWAY_HANDLE_STAYS);
    for (unsigned i = 0; i < MANY; i++)
        sw_pooled_use(last);
    sw_pooled_ok(spillway_handle_prefetch(restored, NULL, &sw_pooled_error));
    await_news();
    ck_assert_uint_eq(sw_pooled_make_room(1), BYTES);
    ck_assert(sw_pooled_is(restored, "live") && sw_pooled_is(other, "spilled"));
    end();
}
END_TEST

static void spill_once(int socket) {
    sw_play_greet(socket);
    spill_one(socket);
    sw_play_expect_end(socket);
}

START_TEST(buffers_are_counted_not_pins) {
    struct spillway_handle *handles[3];
    void *data;
    begin(spill_once, 1);
    for (unsigned i = 0; i < 3; i++)
        handles[i] = new_live(0);
    for (unsigned i = 0; i < 2; i++)
        sw_pooled_ok(spillway_handle_pin(handles[0], NULL, &data, &sw_pooled_error));
    spill(handles[1]);
    (void)sw_pooled_new(BYTES); /* has no memory */
    const struct spillway_pool_stats stats = sw_pooled_stats();
    ck_assert(stats.handles == 4 && stats.live == 2 && stats.pinned == 1 && stats.spilled == 1);
    ck_assert(stats.live_bytes == 2 * BYTES && stats.held_bytes == 2 * BYTES && stats.spilled_bytes == BYTES);
    for (unsigned i = 0; i < 2; i++)
        sw_pooled_ok(spillway_handle_unpin(handles[0], NULL, &sw_pooled_error));
    ck_assert_uint_eq(sw_pooled_stats().pinned, 0);
    end();
}
END_TEST

static void register_with_both(int socket) {
    sw_play_greet(socket);
    const int other = greet_another();
    (void)sw_play_register(socket);
    (void)sw_play_register(other);
    sw_play_expect_end(socket);
    (void)close(other);
}

/* Memory that has to be copied goes through an arena of each. */
START_TEST(each_connection_is_prepared) {
    static char copied[BYTES];
    begin(register_with_both, 2);
    sw_pooled_ok(spillway_pool_prepare(sw_pooled, copied, &sw_pooled_error));
    end();
}
END_TEST

static int look_at(struct spillway_handle *handle, unsigned call) {
    struct spillway_handle_info info = {.size = sizeof info};
    struct spillway_pool_stats stats = {.size = sizeof stats};
    uint64_t freed;
    switch (call) {
    case 0:
        return spillway_handle_query(handle, &info, &sw_pooled_error);
    case 1:
        return spillway_pool_stats(sw_pooled, &stats, &sw_pooled_error);
    case 2:
        return spillway_pool_set_budget(sw_pooled, 0, &sw_pooled_error);
    case 3:
        return spillway_pool_make_room(sw_pooled, 0, &freed, &sw_pooled_error);
    default:
        return spillway_handle_prefetch(handle, NULL, &sw_pooled_error);
    }
}

static void serve_nothing(int socket) {
    sw_play_greet(socket);
    sw_play_expect_end(socket);
}

/* The error of an earlier call is no longer there. */
START_TEST(a_call_that_goes_well_has_no_error) {
    begin(serve_nothing, 1);
    struct spillway_handle *handle = new_live(0);
    for (unsigned call = 0; call < 5; call++) {
        sw_pooled_error = (struct spillway_error){.code = -SPILLWAY_ELOST, .text = "earlier"};
        ck_assert_int_eq(look_at(handle, call), 0);
        ck_assert(sw_pooled_error.code == 0 && !sw_pooled_error.text[0]);
    }
    end();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_pool_lost");
    TCase *tcase = tcase_create("lost");
    tcase_add_test(tcase, a_constant_buffer_without_its_copy_is_spilled_again);
    tcase_add_test(tcase, a_lost_connection_fails_one_call);
    tcase_add_test(tcase, a_restored_buffer_is_young);
    tcase_add_test(tcase, buffers_are_counted_not_pins);
    tcase_add_test(tcase, each_connection_is_prepared);
    tcase_add_test(tcase, a_call_that_goes_well_has_no_error);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

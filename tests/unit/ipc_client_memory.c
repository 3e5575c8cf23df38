/* How the client library handles memory, with a played daemon: marks of streams, and registered memory. */
#include "base/alloc.h"
#include "base/assert.h"
#include "ipc/client/client_staging.h"
#include "ipc/proto.h"
#include "ipc/spillway.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/play.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <stdbool.h>
#include <unistd.h>

/* ---- marks ------------------------------------------------------------------------------------------------------- */

/* Receives the two packets of a spill that waits for that word; returns the seq of the first. */
static uint32_t take_gpu_spill(int socket, uint32_t word) {
    struct sw_msg open, spill;
    sw_play_expect(socket, &open, SW_MSG_MEM_OPEN);
    sw_play_expect(socket, &spill, SW_MSG_BUILD);
    const struct sw_wire_chunk *chunk = &spill.u.build.chunks[0];
    SW_ASSERT(open.u.mem_open.kind == SW_MEM_CUDA_IPC && open.u.mem_open.mem == chunk->mem);
    SW_ASSERT(chunk->order_word == word && chunk->order_value > 0);
    return open.header.seq;
}

static void answer_gpu_spills(int socket) {
    struct sw_msg status;
    sw_play_greet(socket);
    const uint32_t first = take_gpu_spill(socket, 0), second = take_gpu_spill(socket, 1);
    sw_play_expect(socket, &status, SW_MSG_STATUS);
    sw_play_put_ok(socket, second);
    sw_play_put_result(socket, first + 1, 1, SW_PLAY_BYTES); /* the rest of the group is due */
    sw_play_put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    sw_play_expect(socket, &status, SW_MSG_STATUS);
    sw_play_put_error(socket, second + 1, "ERANGE", SW_SCOPE_REQUEST, "no such word");
    sw_play_put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    sw_play_put_ok(socket, take_gpu_spill(socket, 1));
    sw_play_expect(socket, &status, SW_MSG_STATUS);
    sw_play_put_ok(socket, first);
    sw_play_put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    (void)take_gpu_spill(socket, 0);
}

static void ck_held_after_status(unsigned n_held) {
    struct spillway_status status = {.size = sizeof status};
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error),
                     0); /* takes in all that comes before its reply */
    ck_assert_uint_eq(sw_play.gpu.n_held, n_held);
}

/* A mark is free when all packets of its operation are answered, and not earlier, whether or not the program waits. The
 * page is sent once. */
START_TEST(marks_are_held_until_the_reply) {
    sw_play_open(answer_gpu_spills);
    sw_play.gpu.on = true;
    struct spillway_ticket *first = sw_play_spill(), *second = sw_play_spill();
    spillway_ticket_free(second);
    ck_held_after_status(2);
    ck_held_after_status(1);
    struct spillway_ticket *third = sw_play_spill();
    ck_held_after_status(1);
    ck_assert_int_eq(spillway_wait(first, 0, NULL, 0, &sw_play.error), 0);
    struct spillway_ticket *fourth = sw_play_spill();
    ck_assert_int_eq(spillway_wait(fourth, -1, NULL, 0, &sw_play.error), -SPILLWAY_ECONN);
    ck_assert_int_eq(spillway_wait(third, 0, NULL, 0, &sw_play.error), -SPILLWAY_ECONN);
    ck_assert_uint_eq(sw_play.gpu.n_held, 0);
    sw_play_close();
    ck_assert_uint_eq(sw_play.gpu.n_pages, 1);
}
END_TEST

static void take_gpu_spill_only(int socket) {
    sw_play_greet(socket);
    (void)take_gpu_spill(socket, 0);
    sw_play_expect_end(socket);
}

START_TEST(no_mark_leaks_without_replies) {
    struct spillway_ticket *ticket = NULL;
    int rc = -1;
    sw_play_open(take_gpu_spill_only);
    sw_play.gpu.on = true;
    for (unsigned long n = 1; rc < 0; n++) {
        sw_alloc_fail_nth(n);
        rc = spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(sw_play.data, SW_PLAY_BYTES)), 1, &ticket,
                            &sw_play.error);
        sw_alloc_fail_nth(0);
        ck_assert_uint_eq(sw_play.gpu.n_held, rc == 0);
    }
    sw_play_close();
    ck_assert_uint_eq(sw_play.gpu.n_held, 0);
}
END_TEST

static void refuse_the_page(int socket) {
    sw_play_greet(socket);
    for (unsigned i = 0; i < 2; i++) {
        const uint32_t seq = take_gpu_spill(socket, 0);
        sw_play_put_ok(socket, seq);
        sw_play_put_error(socket, seq + 1, "EINVAL", SW_SCOPE_REQUEST, "no page");
    }
    sw_play_expect_end(socket);
}

/* A page that the service had no room for is sent again with the next mark. */
START_TEST(a_refused_page_of_marks_is_sent_again) {
    sw_play.gpu.n_refused = 1;
    sw_play_open(refuse_the_page);
    sw_play.gpu.on = true;
    for (unsigned i = 0; i < 2; i++) {
        struct spillway_ticket *ticket = sw_play_spill();
        ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), -SPILLWAY_EINVAL);
        ck_assert_uint_eq(sw_play.gpu.n_pages, i + 1);
    }
    sw_play_close();
}
END_TEST

/* ---- registered memory ------------------------------------------------------------------------------------------- */

enum { MANY_PARTS = 2 * SW_PROTO_MAX_FDS + 5 };

static void take_many_parts(int socket) {
    struct sw_msg open, msg;
    uint32_t first = 0;
    sw_play_greet(socket);
    sw_play_expect(socket, &open, SW_MSG_MEM_OPEN);
    SW_ASSERT(open.u.mem_open.n_parts == MANY_PARTS);
    sw_play_put_ok(socket, open.header.seq);
    while (first < MANY_PARTS) {
        sw_play_expect(socket, &msg, SW_MSG_MEM_PARTS);
        SW_ASSERT(msg.u.mem_parts.mem == open.u.mem_open.mem && msg.u.mem_parts.first == first);
        for (uint32_t i = 0; i < msg.u.mem_parts.count; i++)
            SW_ASSERT(msg.u.mem_parts.part_bytes[i] == ++first);
        sw_play_put_ok(socket, msg.header.seq);
    }
    sw_play_expect_end(socket);
}

/* No packet takes all descriptors of such memory. */
START_TEST(memory_of_many_parts_takes_several_packets) {
    sw_play.gpu.n_parts = MANY_PARTS;
    sw_play_open(take_many_parts);
    sw_play.gpu.on = true;
    ck_assert_int_eq(spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static void serve_two_at_once(int socket) {
    struct sw_msg open[2], parts, msg;
    sw_play_greet(socket);
    for (unsigned i = 0; i < 2; i++) {
        sw_play_expect(socket, &open[i], SW_MSG_MEM_OPEN);
        sw_play_expect(socket, &parts, SW_MSG_MEM_PARTS);
        sw_play_expect(socket, &msg, SW_MSG_BUILD);
        SW_ASSERT(msg.u.build.chunks[0].mem == open[i].u.mem_open.mem);
    }
    SW_ASSERT(open[0].u.mem_open.mem != open[1].u.mem_open.mem);
    for (unsigned i = 0; i < 2; i++)
        sw_play_put_spilled(socket, open[i].header.seq, i + 1);
    sw_play_expect_end(socket);
}

/* Also when the numbers of memories begin anew: one that a running call has is left out. */
START_TEST(running_calls_have_memories_of_different_numbers) {
    sw_play_open(serve_two_at_once);
    sw_play.connection->next_mem = 1;
    struct spillway_ticket *first = sw_play_spill();
    sw_play.connection->next_mem = 1;
    struct spillway_ticket *second = sw_play_spill();
    ck_assert_int_eq(spillway_wait(first, -1, NULL, 0, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(second, -1, NULL, 0, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static void serve_registered(int socket) {
    struct sw_msg msg;
    sw_play_greet(socket);
    const uint32_t mem = sw_play_register(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    const struct sw_wire_chunk *chunk = &msg.u.build.chunks[0];
    SW_ASSERT(chunk->mem == mem && chunk->offset == 1100 && chunk->raw_bytes == 3900);
    sw_play_put_result(socket, msg.header.seq, 1, 3900);
    sw_play_expect(socket, &msg, SW_MSG_READ);
    chunk = &msg.u.read.chunks[0];
    SW_ASSERT(chunk->mem == mem && chunk->offset == 1000 && chunk->raw_bytes == 4000);
    sw_play_put_error(socket, msg.header.seq, "ENOMEM", SW_SCOPE_REQUEST, "closes nothing that is registered");
    sw_play_put_spilled(socket, sw_play_take_spill(socket), 2); /* not inside: handed over for itself */
    sw_play_expect_mem_close(socket, mem);
    sw_play_put_spilled(socket, sw_play_take_spill(socket), 3);
    sw_play_expect_end(socket);
}

START_TEST(registered_memory_is_handed_over_once) {
    struct spillway_ticket *inside = NULL, *all = NULL;
    sw_play_open(serve_registered);
    uint8_t *first = (uint8_t *)sw_play.data + 1000;
    ck_assert_int_eq(spillway_register(sw_play.connection, first, 4000, &sw_play.error), 0);
    ck_assert_int_eq(
        spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(first + 100, 3900)), 1, &inside, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(inside, -1, NULL, 0, &sw_play.error), 0);
    ck_assert_int_eq(spillway_restore(sw_play.connection,
                                      SW_REQUEST(SW_ONE(first, 4000), .region = (struct spillway_region){1, 9}), 1,
                                      &all, &sw_play.error),
                     0);
    ck_assert_int_eq(spillway_wait(all, -1, NULL, 0, &sw_play.error), -SPILLWAY_ENOMEM);
    ck_assert_int_eq(spillway_wait(sw_play_spill(), -1, NULL, 0, &sw_play.error), 0);
    ck_assert_int_eq(spillway_unregister(sw_play.connection, first, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(sw_play_spill(), -1, NULL, 0, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static void serve_two_registrations(int socket) {
    sw_play_greet(socket);
    const uint32_t first = sw_play_register(socket), second = sw_play_register(socket),
                   third = sw_play_register(socket);
    SW_ASSERT(first != second && first != third && second != third);
    sw_play_expect_mem_close(socket, first);
    sw_play_expect_end(socket);
}

START_TEST(registered_ranges_are_kept_apart) {
    int local = 0;
    sw_play_open(serve_two_registrations);
    uint8_t *bytes = sw_play.data;
    ck_assert_int_eq(spillway_register(sw_play.connection, bytes + 1000, 1000, &sw_play.error), 0);
    ck_assert_int_eq(spillway_register(sw_play.connection, bytes + 2000, 1000, &sw_play.error), 0); /* side by side */
    ck_assert_int_eq(spillway_register(sw_play.connection, bytes + 500, 500, &sw_play.error), 0);
    sw_play_ck_error(spillway_register(sw_play.connection, bytes + 1000, 1000, &sw_play.error), SPILLWAY_EEXIST,
                     SPILLWAY_SCOPE_REQUEST, "overlap");
    sw_play_ck_error(spillway_register(sw_play.connection, bytes, 1001, &sw_play.error), SPILLWAY_EEXIST,
                     SPILLWAY_SCOPE_REQUEST, "overlap");
    sw_play_ck_error(spillway_register(sw_play.connection, bytes, SW_PLAY_BYTES, &sw_play.error), SPILLWAY_EEXIST,
                     SPILLWAY_SCOPE_REQUEST, "overlap");
    sw_play_ck_error(spillway_register(sw_play.connection, bytes + 2999, 1, &sw_play.error), SPILLWAY_EEXIST,
                     SPILLWAY_SCOPE_REQUEST, "overlap");
    sw_play_ck_error(spillway_register(sw_play.connection, bytes, 0, &sw_play.error), SPILLWAY_EINVAL,
                     SPILLWAY_SCOPE_REQUEST, "no bytes");
    sw_play_ck_error(spillway_register(sw_play.connection, NULL, 1, &sw_play.error), SPILLWAY_EINVAL,
                     SPILLWAY_SCOPE_REQUEST, "NULL");
    sw_play_ck_error(spillway_register(sw_play.connection, &local, 1, &sw_play.error), SPILLWAY_EMEMKIND,
                     SPILLWAY_SCOPE_REQUEST, "neither");
    sw_play_ck_error(spillway_unregister(sw_play.connection, bytes, &sw_play.error), SPILLWAY_ENOENT,
                     SPILLWAY_SCOPE_REQUEST, "starts at");
    sw_play_ck_error(spillway_unregister(sw_play.connection, bytes + 1001, &sw_play.error), SPILLWAY_ENOENT,
                     SPILLWAY_SCOPE_REQUEST, "");
    ck_assert_int_eq(spillway_unregister(sw_play.connection, bytes + 1000, &sw_play.error), 0);
    sw_play_ck_error(spillway_unregister(sw_play.connection, bytes + 1000, &sw_play.error), SPILLWAY_ENOENT,
                     SPILLWAY_SCOPE_REQUEST, "");
    sw_play_close(); /* with two still registered */
}
END_TEST

static void serve_beyond_registered(int socket) {
    struct sw_msg open, parts, msg;
    sw_play_greet(socket);
    const uint32_t mem = sw_play_register(socket);
    sw_play_expect(socket, &open, SW_MSG_MEM_OPEN);
    sw_play_expect(socket, &parts, SW_MSG_MEM_PARTS);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    SW_ASSERT(open.u.mem_open.mem != mem && msg.u.build.chunks[0].mem == open.u.mem_open.mem);
    sw_play_put_ok(socket, open.header.seq);
    sw_play_put_ok(socket, parts.header.seq);
    sw_play_put_result(socket, msg.header.seq, 1, 1000);
    sw_play_expect_end(socket);
}

/* Begins in registered memory, and ends behind it: handed over by itself; also when the numbers of memories begin anew,
 * among which the registered one has the first. */
START_TEST(what_ends_behind_registered_memory_is_handed_over) {
    struct spillway_ticket *ticket = NULL;
    sw_play_open(serve_beyond_registered);
    uint8_t *bytes = sw_play.data;
    ck_assert_int_eq(spillway_register(sw_play.connection, bytes + 1000, 1000, &sw_play.error), 0);
    sw_play.connection->next_mem = 1;
    ck_assert_int_eq(
        spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(bytes + 1500, 1000)), 1, &ticket, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static void serve_two_of_three(int socket) {
    struct sw_msg msg;
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 2);
    const uint32_t mem = sw_play_register(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    (void)sem_wait(&sw_play.go);
    sw_play_put_batch(socket, msg.header.seq, 2, 1, 200);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    SW_ASSERT(msg.u.build.n_builds == 1 && msg.u.build.chunks[0].mem == mem);
    sw_play_put_batch(socket, msg.header.seq, 1, 3, 100);
    sw_play_expect_mem_close(socket, mem);
    sw_play_expect_end(socket);
}

/* The service cannot wait for a request that it has not got. */
START_TEST(unregistering_waits_for_what_was_not_sent) {
    struct spillway_buffer buffers[3];
    struct spillway_request requests[3] = {{0}};
    struct spillway_ticket *ticket = NULL;
    sw_play_open(serve_two_of_three);
    ck_assert_int_eq(spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error), 0);
    for (unsigned i = 0; i < 3; i++)
        buffers[i] = (struct spillway_buffer){.data = (uint8_t *)sw_play.data + (size_t)i * 100, .bytes = 100};
    sw_requests_of_each(requests, buffers, 3);
    ck_assert_int_eq(spillway_spill(sw_play.connection, requests, 3, &ticket, &sw_play.error), 0);
    spillway_set_timeout(sw_play.connection, 30);
    sw_play_ck_error(spillway_unregister(sw_play.connection, sw_play.data, &sw_play.error), SPILLWAY_ETIMEDOUT,
                     SPILLWAY_SCOPE_REQUEST, "an operation in the memory");
    spillway_set_timeout(sw_play.connection, -1);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    ck_assert_int_eq(spillway_unregister(sw_play.connection, sw_play.data, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(ticket, 0, NULL, 0, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static void refuse_registration(int socket) {
    sw_play_greet(socket);
    sw_play_refuse_registration(socket);
    sw_play_put_spilled(socket, sw_play_take_spill(socket), 1);
    (void)sw_play_register(socket);
}

START_TEST(registering_reports_unsuitable_memory) {
    sw_play_open(refuse_registration);
    sw_play_ck_error(spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error),
                     SPILLWAY_EIMPORT, SPILLWAY_SCOPE_REQUEST, "cannot be opened");
    ck_assert_int_eq(spillway_wait(sw_play_spill(), -1, NULL, 0, &sw_play.error), 0);
    /* The daemon ends, and registered memory with it, whatever the answer. */
    ck_assert_int_eq(spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error), 0);
    sw_play_ck_error(spillway_unregister(sw_play.connection, sw_play.data, &sw_play.error), SPILLWAY_ECONN,
                     SPILLWAY_SCOPE_SESSION, "");
    sw_play_ck_error(spillway_unregister(sw_play.connection, sw_play.data, &sw_play.error), SPILLWAY_ENOENT,
                     SPILLWAY_SCOPE_REQUEST, "");
    sw_play_ck_error(spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error), SPILLWAY_ECONN,
                     SPILLWAY_SCOPE_SESSION, "");
    sw_play_close();
}
END_TEST

static void register_and_leave(int socket) {
    sw_play_greet(socket);
    (void)sw_play_register(socket);
    (void)usleep(50000); /* not so early that the registration sees it */
}

static void answer_no_close(int socket) {
    struct sw_msg msg;
    sw_play_greet(socket);
    (void)sw_play_register(socket);
    sw_play_expect(socket, &msg, SW_MSG_MEM_CLOSE);
    const uint32_t closing = msg.header.seq;
    sw_play_put_spilled(socket, sw_play_take_spill(socket), 1); /* asserts that it is handed over for this call */
    sw_play_put_ok(socket, closing);
    sw_play_expect_end(socket);
}

/* Its number may end at any moment. */
START_TEST(memory_that_is_being_unregistered_is_not_used) {
    sw_play_open(answer_no_close);
    ck_assert_int_eq(spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error), 0);
    spillway_set_timeout(sw_play.connection, 50);
    sw_play_ck_error(spillway_unregister(sw_play.connection, sw_play.data, &sw_play.error), SPILLWAY_ETIMEDOUT,
                     SPILLWAY_SCOPE_REQUEST, "MEM_CLOSE");
    spillway_set_timeout(sw_play.connection, 20000);
    ck_assert_int_eq(spillway_wait(sw_play_spill(), -1, NULL, 0, &sw_play.error), 0);
    ck_assert_int_eq(spillway_unregister(sw_play.connection, sw_play.data, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

/* The call is the first to find that the connection is lost. */
START_TEST(unregistering_ends_with_a_connection_that_is_lost) {
    sw_play_open(register_and_leave);
    ck_assert_int_eq(spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error), 0);
    struct pollfd gone = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
    ck_assert_int_eq(poll(&gone, 1, 3000), 1);
    sw_play_ck_error(spillway_unregister(sw_play.connection, sw_play.data, &sw_play.error), SPILLWAY_ECONN,
                     SPILLWAY_SCOPE_SESSION, "");
    sw_play_ck_error(spillway_unregister(sw_play.connection, sw_play.data, &sw_play.error), SPILLWAY_ENOENT,
                     SPILLWAY_SCOPE_REQUEST, "");
    sw_play_close();
}
END_TEST

static void serve_registration(int socket) {
    sw_play_greet(socket);
    sw_play_expect_mem_close(socket, sw_play_register(socket));
    sw_play_expect_end(socket);
}

START_TEST(a_heap_that_fails_registers_nothing) {
    int rc = -1;
    sw_play_open(serve_registration);
    const long live = sw_alloc_live();
    const unsigned before = sw_count_fds();
    unsigned long n = 1;
    for (; rc < 0; n++) {
        sw_alloc_fail_nth(n);
        rc = spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error);
        sw_alloc_fail_nth(0);
        ck_assert(rc == 0 || rc == -SPILLWAY_ENOMEM);
        ck_assert_int_eq(sw_alloc_live(), rc ? live : live + 1);
        ck_assert_uint_eq(sw_count_fds(), before);
    }
    ck_assert_uint_ge(n, 6);
    sw_alloc_fail_nth(1);
    ck_assert_int_eq(spillway_unregister(sw_play.connection, sw_play.data, &sw_play.error), -SPILLWAY_ENOMEM);
    sw_alloc_fail_nth(0);
    ck_assert_int_eq(spillway_unregister(sw_play.connection, sw_play.data, &sw_play.error),
                     0); /* nothing had changed */
    sw_play_close();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_client_memory");
    TCase *tcase = tcase_create("memory");
    tcase_add_test(tcase, marks_are_held_until_the_reply);
    tcase_add_test(tcase, no_mark_leaks_without_replies);
    tcase_add_test(tcase, a_refused_page_of_marks_is_sent_again);
    tcase_add_test(tcase, memory_of_many_parts_takes_several_packets);
    tcase_add_test(tcase, running_calls_have_memories_of_different_numbers);
    tcase_add_test(tcase, registered_memory_is_handed_over_once);
    tcase_add_test(tcase, registered_ranges_are_kept_apart);
    tcase_add_test(tcase, what_ends_behind_registered_memory_is_handed_over);
    tcase_add_test(tcase, unregistering_waits_for_what_was_not_sent);
    tcase_add_test(tcase, registering_reports_unsuitable_memory);
    tcase_add_test(tcase, memory_that_is_being_unregistered_is_not_used);
    tcase_add_test(tcase, unregistering_ends_with_a_connection_that_is_lost);
    tcase_add_test(tcase, a_heap_that_fails_registers_nothing);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

/* The client library at its limits: operations in flight, descriptors, a full socket, a heap that fails, a daemon that
 * talks nonsense, and arguments that are wrong. */
#include "base/alloc.h"
#include "base/clock.h"
#include "ipc/client/client.h"
#include "ipc/proto.h"
#include "ipc/spillway.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/play.h"
#include "tests/lib/requests.h"
#include "tests/lib/resume_rig.h"
#include "tests/lib/run.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static void allow_two(int socket) {
    sw_play_greet_with(socket, 2, SW_PLAY_MAX_PIECES);
    const uint32_t first = sw_play_take_spill(socket), second = sw_play_take_spill(socket);
    (void)sem_wait(&sw_play.go);
    sw_play_put_spilled(socket, second, 2);
    sw_play_put_spilled(socket, first, 1);
    sw_play_put_spilled(socket, sw_play_take_spill(socket), 3);
    sw_play_expect_end(socket);
}

START_TEST(no_more_in_flight_than_the_daemon_allows) {
    struct spillway_ticket *none = NULL;
    sw_play_open(allow_two);
    struct spillway_ticket *first = sw_play_spill();
    struct spillway_ticket *second = sw_play_spill();
    sw_play_ck_error(
        spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(sw_play.data, SW_PLAY_BYTES)), 1, &none, &sw_play.error),
        SPILLWAY_ELIMIT, SPILLWAY_SCOPE_REQUEST, "2 operations");
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    ck_assert_int_eq(spillway_wait(first, -1, NULL, 0, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(second, -1, NULL, 0, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(sw_play_spill(), -1, NULL, 0, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static void serve_one(int socket) {
    sw_play_greet(socket);
    sw_play_put_spilled(socket, sw_play_take_spill(socket), 1);
    sw_play_expect_end(socket);
}

/* sendmsg() of the test's thread, while too many descriptors are on their way, or the kernel has no memory for them. */
static const int refusals[] = {ETOOMANYREFS, ENOMEM, ENOBUFS};
static int refusal;
static bool refuses_descriptors;
static pthread_t client;

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags) {
    if (pthread_equal(pthread_self(), client) && refuses_descriptors && message->msg_controllen) {
        errno = refusal;
        return -1;
    }
    return __real_sendmsg(fd, message, flags);
}

/* The socket has room all the time; how often does an event loop wake? Loop: why they are refused. */
START_TEST(an_event_loop_sleeps_while_descriptors_are_refused) {
    unsigned n_wakes = 0;
    refusal = refusals[_i];
    client = pthread_self();
    sw_play_open(serve_one);
    struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
    refuses_descriptors = true;
    struct spillway_ticket *ticket = sw_play_spill();
    for (const uint64_t begun_us = sw_clock_us(); n_wakes < 4 || sw_clock_us() - begun_us < 300000;) {
        const int n_ready = poll(&p, 1, 300);
        ck_assert_int_ge(n_ready, 0);
        n_wakes += n_ready > 0;
        ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    }
    ck_assert_uint_lt(n_wakes, 100);
    refuses_descriptors = false;
    do
        ck_assert_int_eq(poll(&p, 1, 60000), 1);
    while (spillway_dispatch(sw_play.connection, &sw_play.error) == 0);
    ck_assert_int_eq(spillway_wait(ticket, 0, NULL, 0, &sw_play.error), 0);
    ck_assert_int_eq(poll(&p, 1, 100), 0);              /* nor does it wake any more */
    ck_assert_uint_eq(sw_play.connection->retry_us, 0); /* the next time, the pauses begin short */
    sw_play_close();
}
END_TEST

/* Says that it stops, and hangs up only after the client. */
static void stop(int socket) {
    struct sw_msg msg;
    sw_resume_greet(socket, false);
    (void)sem_wait(&sw_play.go);
    sw_play_put_error(socket, 0, "ESHUTDOWN", SW_SCOPE_SESSION, "the service has been stopped");
    while (sw_play_get(socket, &msg))
        ;
}

/* The pause after a refusal ends with the connection: while the service is away, only attempts to reconnect wake. */
START_TEST(an_event_loop_sleeps_while_the_service_is_away) {
    unsigned n_wakes = 0;
    refusal = refusals[0];
    client = pthread_self();
    sw_play_open(stop);
    refuses_descriptors = true;
    struct spillway_ticket *ticket = sw_play_spill();
    ck_assert_uint_gt(sw_play.connection->retry_at_us, 0);
    ck_assert_int_eq(unlink(sw_play.address.sun_path), 0);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    while (sw_play.connection->link == SW_LINK_UP)
        sw_resume_dispatch();
    struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
    for (const uint64_t begun_us = sw_clock_us(); sw_clock_us() - begun_us < 100000; n_wakes++) {
        ck_assert_int_ge(poll(&p, 1, 100), 0);
        ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    }
    ck_assert_uint_lt(n_wakes, 12); /* pauses of 5 ms, 10 ms, ... */
    ck_assert_uint_eq(sw_play.connection->retry_at_us, 0);
    refuses_descriptors = false;
    spillway_ticket_free(ticket);
    sw_play_close();
}
END_TEST

static void read_only(int socket) {
    struct sw_msg msg;
    sw_play_greet(socket);
    while (sw_play_get(socket, &msg))
        ;
}

/* What was never sent goes with the connection, and its descriptors. */
START_TEST(a_close_leaves_nothing_of_what_was_not_sent) {
    refusal = refusals[0];
    client = pthread_self();
    sw_play_open(read_only);
    refuses_descriptors = true;
    (void)sw_play_spill();
    sw_play_close();
}
END_TEST

static void hang_up(int socket) {
    sw_play_greet(socket);
    (void)sem_wait(&sw_play.go);
}

/* Nor does it wait for the close. */
START_TEST(a_lost_connection_holds_no_descriptors) {
    refusal = refusals[0];
    client = pthread_self();
    sw_play_open(hang_up);
    const unsigned before = sw_count_fds();
    refuses_descriptors = true;
    struct spillway_ticket *ticket = sw_play_spill();
    ck_assert_uint_gt(sw_count_fds(), before + 1); /* a timer, and the memory's */
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), -SPILLWAY_ECONN);
    ck_assert(sw_list_empty(&sw_play.connection->outbox));
    ck_assert_uint_le(sw_count_fds(), before + 1);
    sw_play_close();
}
END_TEST

static void allow_one(int socket) {
    sw_play_greet_with(socket, 1, SW_PLAY_MAX_PIECES);
    for (uint32_t i = 1; i <= 3; i++)
        sw_play_put_spilled(socket, sw_play_take_spill(socket), i);
    sw_play_expect_end(socket);
}

/* Nothing but the call itself looks for replies. */
START_TEST(a_client_that_only_retries_makes_progress) {
    struct spillway_ticket *tickets[3];
    sw_play_open(allow_one);
    for (int i = 0; i < 3; i++)
        for (int tries = 0; tries < 60000; tries++) {
            const int rc = spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(sw_play.data, SW_PLAY_BYTES)), 1,
                                          &tickets[i], NULL);
            ck_assert(rc == 0 || (rc == -SPILLWAY_ELIMIT && tries < 59999));
            if (rc == 0)
                break;
            (void)usleep(1000);
        }
    ck_assert_int_eq(spillway_wait(tickets[0], 0, NULL, 0, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(tickets[2], -1, NULL, 0, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static void read_nothing_for_a_while(int socket) {
    uint32_t seqs[SW_PLAY_MAX_IN_FLIGHT];
    sw_play_greet(socket);
    (void)sem_wait(&sw_play.go);
    for (uint32_t i = 0; i < SW_PLAY_MAX_IN_FLIGHT; i++)
        seqs[i] = sw_play_take_spill(socket);
    for (uint32_t i = 0; i < SW_PLAY_MAX_IN_FLIGHT; i++)
        sw_play_put_spilled(socket, seqs[i], i);
    sw_play_expect_end(socket);
}

/* A call that waits (_i) sends the rest as well as an event loop. */
START_TEST(a_full_socket_blocks_nobody) {
    struct spillway_ticket *tickets[SW_PLAY_MAX_IN_FLIGHT];
    struct spillway_result result = {.size = sizeof result};
    sw_play_open(read_nothing_for_a_while);
    const unsigned before = sw_count_fds();
    for (unsigned i = 0; i < SW_PLAY_MAX_IN_FLIGHT; i++)
        tickets[i] = sw_play_spill();
    ck_assert_uint_gt(sw_count_fds(), before); /* packets wait in the library, with their memory */
    sw_play_ck_error(spillway_wait(tickets[0], 10, NULL, 0, &sw_play.error), SPILLWAY_EAGAIN, SPILLWAY_SCOPE_REQUEST,
                     "");
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    if (_i)
        ck_assert_int_eq(spillway_wait(tickets[SW_PLAY_MAX_IN_FLIGHT - 1], SW_TEST_WAIT_MS, &result, 1, &sw_play.error),
                         0);
    unsigned n_done = _i ? 1 : 0;
    while (n_done < SW_PLAY_MAX_IN_FLIGHT) { /* by the event loop's way: for room in the socket, too */
        struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, 60000), 1);
        const int n = spillway_dispatch(sw_play.connection, &sw_play.error);
        ck_assert_int_ge(n, 0);
        n_done += (unsigned)n;
    }
    struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, 50), 0); /* the room of the socket wakes nobody any more */
    ck_assert(!sw_play.connection->polls_room);
    ck_assert_uint_eq(sw_count_fds(), before);
    for (unsigned i = 0; i < SW_PLAY_MAX_IN_FLIGHT; i++) {
        ck_assert_int_eq(spillway_wait(tickets[i], 0, &result, 1, &sw_play.error), 0);
        ck_assert_uint_eq(result.region.slot, i);
    }
    sw_play_close();
}
END_TEST

START_TEST(a_heap_that_fails_costs_one_call) {
    struct spillway_ticket *ticket = NULL;
    int rc = -1;
    sw_play_open(serve_one);
    const long live = sw_alloc_live();
    const unsigned before = sw_count_fds();
    unsigned long n = 1;
    for (; rc < 0; n++) {
        sw_alloc_fail_nth(n);
        rc = spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(sw_play.data, SW_PLAY_BYTES)), 1, &ticket,
                            &sw_play.error);
        sw_alloc_fail_nth(0);
        if (rc < 0) {
            ck_assert_int_eq(rc, -SPILLWAY_ENOMEM);
            ck_assert_int_eq(sw_alloc_live(), live);
            ck_assert_uint_eq(sw_count_fds(), before);
        }
    }
    ck_assert_uint_ge(n, 6);
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

/* ---- a daemon that is none --------------------------------------------------------------------------------------- */

static void put_bytes(int socket, const void *bytes, size_t n, const int *fds, unsigned n_fds) {
    (void)sw_packet_send(socket, bytes, n, fds, n_fds);
}

static void say_noise(int socket, uint32_t seq) {
    static const uint8_t noise[100] = {'n', 'o', 'i', 's', 'e'};
    (void)seq;
    put_bytes(socket, noise, sizeof noise, NULL, 0);
}

static void say_one_byte(int socket, uint32_t seq) {
    (void)seq;
    put_bytes(socket, "x", 1, NULL, 0);
}

static void say_too_much(int socket, uint32_t seq) {
    static const uint8_t packet[SW_PROTO_MAX_PACKET_BYTES + 1];
    (void)seq;
    put_bytes(socket, packet, sizeof packet, NULL, 0);
}

static void say_too_little(int socket, uint32_t seq) {
    struct sw_msg msg = {.header = {.type = SW_MSG_RESULTS, .seq = seq + 2}};
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    put_bytes(socket, packet, sw_msg_encode(&msg, packet) - 1, NULL, 0);
}

static void say_it_with_a_descriptor(int socket, uint32_t seq) {
    struct sw_msg msg = {.header = {.type = SW_MSG_OK, .seq = seq}};
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    const size_t bytes = sw_msg_encode(&msg, packet);
    put_bytes(socket, packet, bytes, &socket, 1);
}

static void say_it_twice(int socket, uint32_t seq) {
    sw_play_put_ok(socket, seq);
    sw_play_put_ok(socket, seq);
}

static void answer_nobody(int socket, uint32_t seq) {
    sw_play_put_ok(socket, seq + 3);
}

static void answer_the_dead(int socket, uint32_t seq) {
    sw_play_put_ok(socket, seq - 1);
}

static void answer_something_else(int socket, uint32_t seq) {
    struct sw_msg msg = {0};
    sw_play_put(socket, &msg, SW_MSG_DETAILS, seq + 2);
}

static void answer_early(int socket, uint32_t seq) {
    sw_play_put_result(socket, seq, 1, SW_PLAY_BYTES);
}

static void ask_back(int socket, uint32_t seq) {
    struct sw_msg msg = {0};
    sw_play_put(socket, &msg, SW_MSG_BUILD, seq);
}

static void lie_about_the_length(int socket, uint32_t seq) {
    sw_play_put_result(socket, seq + 2, 1, SW_PLAY_BYTES + 1);
}

static void (*const lies[])(int socket, uint32_t seq) = {
    say_noise,    say_one_byte,         say_too_much,    say_too_little,        say_it_with_a_descriptor,
    say_it_twice, answer_nobody,        answer_the_dead, answer_something_else, answer_early,
    ask_back,     lie_about_the_length,
};
static void (*lie)(int socket, uint32_t seq);

static void serve_a_lie(int socket) {
    sw_play_greet(socket);
    lie(socket, sw_play_take_spill(socket));
    sw_play_expect_end(socket);
}

START_TEST(garbage_ends_the_connection) {
    lie = lies[_i];
    const unsigned before = sw_count_fds();
    sw_play_open(serve_a_lie);
    struct spillway_ticket *ticket = sw_play_spill();
    sw_play_ck_error(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), SPILLWAY_EPROTO, SPILLWAY_SCOPE_SESSION, "");
    ck_assert_str_ne(sw_play.error.text, "");
    sw_play_ck_error(spillway_drop(sw_play.connection, &(struct spillway_region){1, 1}, 1, &sw_play.error),
                     SPILLWAY_EPROTO, SPILLWAY_SCOPE_SESSION, "");
    sw_play_close();
    ck_assert_uint_eq(sw_count_fds(), before + 2); /* the data's descriptor, and the one of the page for marks */
}
END_TEST

static atomic_bool has_seen_the_end; /* the daemon */

static void say_noise_until_the_end(int socket) {
    sw_play_greet(socket);
    (void)sem_wait(&sw_play.go);
    say_noise(socket, 0);
    sw_play_expect_end(socket);
    atomic_store(&has_seen_the_end, true);
}

/* The daemon sees the end at once, and need not wait for the close. */
START_TEST(garbage_hangs_up) {
    sw_play_open(say_noise_until_the_end);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    while (spillway_dispatch(sw_play.connection, &sw_play.error) == 0)
        (void)usleep(1000);
    for (unsigned ms = 0; !atomic_load(&has_seen_the_end); ms++) {
        ck_assert_uint_lt(ms, SW_TEST_WAIT_MS);
        (void)usleep(1000);
    }
    sw_play_close();
}
END_TEST

/* ---- arguments --------------------------------------------------------------------------------------------------- */

START_TEST(arguments_are_checked) {
    struct spillway_ticket *none = NULL;
    sw_play_open(serve_one);
    sw_play_ck_error(spillway_restore(sw_play.connection,
                                      SW_REQUEST(SW_ONE(sw_play.data, SW_PLAY_BYTES),
                                                 .region = (struct spillway_region){1, 1}, .flags = 32),
                                      1, &none, &sw_play.error),
                     SPILLWAY_EINVAL, SPILLWAY_SCOPE_REQUEST, "0x20");
    sw_play_ck_error(spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(NULL, 1)), 1, &none, &sw_play.error),
                     SPILLWAY_EINVAL, SPILLWAY_SCOPE_REQUEST, "NULL");
    sw_play_ck_error(spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE((void *)4096, 8)), 1, &none, &sw_play.error),
                     SPILLWAY_EMEMKIND, SPILLWAY_SCOPE_REQUEST, "neither");
    sw_play_ck_error(spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(&none, 8), .flags = SPILLWAY_IN_PLACE), 1,
                                    &none, &sw_play.error),
                     SPILLWAY_EMEMKIND, SPILLWAY_SCOPE_REQUEST, "neither");
    sw_play_ck_error(spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(sw_play.data, (uint64_t)1 << 46)), 1, &none,
                                    &sw_play.error),
                     SPILLWAY_ERANGE, SPILLWAY_SCOPE_REQUEST, "memory ends");
    struct spillway_ticket *ticket = sw_play_spill();
    struct spillway_result results[2] = {{.size = sizeof results[0]}};
    sw_play_ck_error(spillway_wait(ticket, -1, results, 2, &sw_play.error), SPILLWAY_EINVAL, SPILLWAY_SCOPE_REQUEST,
                     "room for 2 results, must be 1");
    ck_assert_int_eq(spillway_wait(ticket, -1, results, 1, &sw_play.error),
                     0); /* none of them cost the connection anything */
    sw_play_close();
    spillway_close(NULL);
    ck_assert_str_eq(spillway_error_name(SPILLWAY_ENOSPACE), "ENOSPACE");
    ck_assert_str_eq(spillway_error_name(-SPILLWAY_ENOSPACE), "ENOSPACE");
    ck_assert_str_eq(spillway_error_text(-SPILLWAY_ENOSPACE), "tier is full");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("limits of a client");
    TCase *tcase = tcase_create("limits of a client");
    tcase_add_test(tcase, no_more_in_flight_than_the_daemon_allows);
    tcase_add_test(tcase, a_client_that_only_retries_makes_progress);
    tcase_add_loop_test(tcase, an_event_loop_sleeps_while_descriptors_are_refused, 0,
                        (int)(sizeof refusals / sizeof refusals[0]));
    tcase_add_test(tcase, an_event_loop_sleeps_while_the_service_is_away);
    tcase_add_test(tcase, a_close_leaves_nothing_of_what_was_not_sent);
    tcase_add_test(tcase, a_lost_connection_holds_no_descriptors);
    tcase_add_loop_test(tcase, a_full_socket_blocks_nobody, 0, 2);
    tcase_add_test(tcase, a_heap_that_fails_costs_one_call);
    tcase_add_loop_test(tcase, garbage_ends_the_connection, 0, (int)(sizeof lies / sizeof lies[0]));
    tcase_add_test(tcase, garbage_hangs_up);
    tcase_add_test(tcase, arguments_are_checked);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

/* The client library when its connection is lost and comes back, to a played daemon that has kept the session. */
#include "base/assert.h"
#include "ipc/client/client.h"
#include "ipc/proto.h"
#include "ipc/spillway.h"
#include "tests/lib/play.h"
#include "tests/lib/requests.h"
#include "tests/lib/resume_rig.h"
#include "tests/lib/run.h"

#include <check.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* ---- how long it is tried ---------------------------------------------------------------------------------------- */

static void serve_no_more(int socket) {
    sw_resume_greet(socket, false);
    sw_resume_leave(socket);
}

static void stop(int socket) {
    sw_resume_greet(socket, false);
    (void)sem_wait(&sw_play.go);
    sw_play_put_error(socket, 0, "ESHUTDOWN", SW_SCOPE_SESSION, "the service has been stopped");
    (void)shutdown(socket, SHUT_RDWR);
}

/* The service has said so. */
START_TEST(a_service_that_stopped_for_good_is_named) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_open(stop);
    spillway_set_reconnect(sw_play.connection, 50);
    sw_resume_lose_connection();
    sw_play_ck_error(spillway_status(sw_play.connection, &status, &sw_play.error), SPILLWAY_ESHUTDOWN,
                     SPILLWAY_SCOPE_SESSION, "did not come back in time");
    sw_play_close();
}
END_TEST

/* With a limit of 0 nothing is tried. */
START_TEST(no_reconnection_is_tried_without_time) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_open(serve_no_more);
    spillway_set_reconnect(sw_play.connection, 0);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    sw_play_ck_error(spillway_status(sw_play.connection, &status, &sw_play.error), SPILLWAY_ECONN,
                     SPILLWAY_SCOPE_SESSION, "");
    ck_assert_str_eq(sw_play.error.text, "the daemon closed the connection");
    ck_assert_int_eq(spillway_prepare(sw_play.connection, sw_play.data, &sw_play.error), -SPILLWAY_ECONN);
    sw_play_close();
}
END_TEST

/* The library sleeps until the time is over, while a process that took the connection does not answer. */
START_TEST(the_time_limit_wakes_once) {
    struct pollfd p = {.events = POLLIN};
    unsigned n_wakes = 0;
    int rc = 0;
    sw_play_open(serve_no_more);
    spillway_set_reconnect(sw_play.connection, 100);
    sw_resume_lose_connection();
    p.fd = spillway_fd(sw_play.connection);
    for (; rc == 0; n_wakes++) {
        ck_assert_int_eq(poll(&p, 1, SW_TEST_WAIT_MS), 1);
        rc = spillway_dispatch(sw_play.connection, &sw_play.error);
    }
    sw_play_ck_error(rc, SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION, "in time");
    ck_assert_uint_lt(n_wakes, 10);
    sw_play_close();
}
END_TEST

/* The service would wait for ten minutes. */
static const struct {
    int limit_ms;
    bool listens; /* it can be connected to, but does not answer */
    bool hello;   /* it has been, already */
} ends[] = {{0, true, false},  {0, true, true},  {0, false, false},
            {50, true, false}, {50, true, true}, {50, false, false}};

START_TEST(a_reconnection_ends_at_its_time_limit) {
    int rc = 0;
    sw_play_open(serve_no_more);
    sw_resume_lose_connection();
    if (!ends[_i].listens)
        ck_assert_int_eq(unlink(sw_play.address.sun_path), 0);
    if (ends[_i].hello)
        sw_resume_dispatch();
    spillway_set_reconnect(sw_play.connection, ends[_i].limit_ms);
    while (rc == 0) {
        struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, 30000), 1);
        rc = spillway_dispatch(sw_play.connection, &sw_play.error);
    }
    sw_play_ck_error(rc, SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION, "in time");
    ck_assert_int_eq(sw_play.connection->link, SW_LINK_UP); /* nothing is tried any more */
    sw_play_close();
}
END_TEST

/* The limit of the options. The service would wait for ten minutes. */
START_TEST(options_limit_a_reconnection) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_start(serve_no_more);
    ck_assert_int_eq(spillway_open(&sw_play.connection,
                                   SW_OPTIONS(.socket_path = sw_play.address.sun_path, .reconnect_ms = 50),
                                   &sw_play.error),
                     0);
    sw_resume_lose_connection();
    sw_play_ck_error(spillway_status(sw_play.connection, &status, &sw_play.error), SPILLWAY_ECONN,
                     SPILLWAY_SCOPE_SESSION, "in time");
    spillway_close(sw_play.connection);
    sw_play_stop();
}
END_TEST

/* The linker puts it in the place of sw_clock_us(). */
uint64_t __real_sw_clock_us(void);
uint64_t __wrap_sw_clock_us(void);
static atomic_ullong skew_us;
uint64_t __wrap_sw_clock_us(void) {
    return __real_sw_clock_us() + atomic_load(&skew_us);
}

/* The pauses between the attempts become longer, up to half a second: a service that is back is found soon. */
START_TEST(attempts_are_never_far_apart) {
    enum { N_TRIES = 14, LONGEST_US = 500000 };
    struct itimerspec left;
    sw_play_open(serve_no_more);
    sw_resume_lose_connection();
    ck_assert_int_eq(unlink(sw_play.address.sun_path), 0);
    for (unsigned i = 0; i < N_TRIES; i++) {
        ck_assert_int_eq(timerfd_gettime(sw_play.connection->timers[SW_TIMER_RESUME], &left), 0);
        const int64_t left_us = left.it_value.tv_sec * INT64_C(1000000) + left.it_value.tv_nsec / 1000,
                      pause_us = left_us - (int64_t)atomic_load(&skew_us);
        ck_assert_int_le(pause_us, i ? LONGEST_US : LONGEST_US / 50);
        ck_assert(i < 8 || pause_us > LONGEST_US / 2);
        atomic_fetch_add(&skew_us, (unsigned long long)(pause_us > 0 ? pause_us : 0) + 1);
        ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    }
    spillway_set_reconnect(sw_play.connection, 0);
    ck_assert_int_lt(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static int64_t pause_left_us(void) {
    struct itimerspec left;
    ck_assert_int_eq(timerfd_gettime(sw_play.connection->timers[SW_TIMER_RESUME], &left), 0);
    return left.it_value.tv_sec * INT64_C(1000000) + left.it_value.tv_nsec / 1000;
}

static void serve_two_losses(int socket) {
    sw_resume_greet(socket, false);
    sw_resume_leave(socket);
    const int again = sw_resume_come_back();
    sw_resume_expect_settled(again);
    sw_resume_leave(again);
    (void)close(again);
}

/* While the connection is up no timer runs, and after the next loss the pauses are short again. */
START_TEST(each_reconnection_begins_anew) {
    enum { FIRST_US = 5000, N_TRIES = 10 };
    char hidden[sizeof sw_play.address.sun_path + 2];
    sw_play_open(serve_two_losses);
    (void)snprintf(hidden, sizeof hidden, "%s_", sw_play.address.sun_path);
    ck_assert_int_eq(rename(sw_play.address.sun_path, hidden), 0);
    sw_resume_lose_connection();
    for (unsigned i = 0; i < N_TRIES; i++) {
        atomic_fetch_add(&skew_us, 500000);
        ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    }
    ck_assert_int_eq(rename(hidden, sw_play.address.sun_path), 0);
    atomic_fetch_add(&skew_us, 500000);
    while (!atomic_load(&sw_resume_is_back) || sw_play.connection->link != SW_LINK_UP)
        ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    ck_assert_int_eq(pause_left_us(), 0);
    ck_assert_int_eq(unlink(sw_play.address.sun_path), 0);
    sw_resume_lose_connection();
    ck_assert_int_le(pause_left_us() - (int64_t)atomic_load(&skew_us), FIRST_US);
    sw_play_close();
}
END_TEST

/* A program that sleeps on spillway_fd() wakes when the time is over, although the next try would come later. */
START_TEST(the_time_limit_wakes_the_event_loop) {
    struct itimerspec left;
    int rc = 0;
    sw_play_open(serve_no_more);
    spillway_set_reconnect(sw_play.connection, 1);
    sw_resume_lose_connection();
    if (sw_play.connection->link != SW_LINK_UP) { /* not over yet */
        ck_assert_int_eq(timerfd_gettime(sw_play.connection->timers[SW_TIMER_RESUME], &left), 0);
        ck_assert(left.it_value.tv_sec == 0 && left.it_value.tv_nsec <= 1000000);
    }
    while (rc == 0)
        rc = spillway_dispatch(sw_play.connection, &sw_play.error);
    sw_play_ck_error(rc, SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION, "in time");
    sw_play_close();
}
END_TEST

static void serve_late(int socket) {
    struct sw_msg msg;
    sw_resume_greet(socket, false);
    sw_resume_leave(socket);
    const int again = sw_resume_come_back();
    sw_resume_expect_settled(again);
    sw_play_expect(again, &msg, SW_MSG_STATUS);
    sw_play_put(again, &msg, SW_MSG_STATUS_OK, msg.header.seq);
    sw_play_expect_end(again);
    (void)close(again);
}

START_TEST(the_time_limit_can_grow_during_a_reconnection) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_open(serve_late);
    spillway_set_timeout(sw_play.connection, 60); /* for a service that answers */
    spillway_set_reconnect(sw_play.connection, 50);
    sw_resume_lose_connection();
    spillway_set_reconnect(sw_play.connection, -1);
    (void)usleep(100000);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

/* A limit that is set during a reconnection counts from the loss: it may be over at once. */
START_TEST(the_time_limit_counts_from_the_loss) {
    sw_play_open(serve_no_more);
    sw_resume_lose_connection();
    atomic_fetch_add(&skew_us, 3000000);
    spillway_set_reconnect(sw_play.connection, 2000);
    sw_play_ck_error(spillway_dispatch(sw_play.connection, &sw_play.error), SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION,
                     "in time");
    sw_play_close();
}
END_TEST

/* ---- another process, another state ------------------------------------------------------------------------------ */

static void await_return(void) {
    while (!atomic_load(&sw_resume_is_back))
        sw_resume_dispatch();
}

static void serve_with_lower_limits(int socket) {
    sw_resume_greet(socket, false);
    sw_resume_leave(socket);
    const int again = accept(sw_play.listener, NULL, NULL);
    SW_ASSERT(again >= 0);
    sw_resume_greet_with(again, true, 1, 1);
    sw_resume_expect_settled(again);
    const uint32_t seq = sw_play_take_spill(again);
    (void)sem_wait(&sw_play.go);
    sw_play_put_spilled(again, seq, 1);
    sw_play_expect_end(again);
    (void)close(again);
}

START_TEST(limits_are_those_of_the_next_process) {
    struct spillway_ticket *first = NULL, *second = NULL;
    sw_play_open(serve_with_lower_limits);
    sw_resume_lose_connection();
    await_return();
    ck_assert_int_eq(sw_resume_spill(&first), 0);
    sw_play_ck_error(sw_resume_spill(&second), SPILLWAY_ELIMIT, SPILLWAY_SCOPE_REQUEST, "1 operations");
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    ck_assert_int_eq(spillway_wait(first, -1, NULL, 0, &sw_play.error), 0);
    sw_play_ck_error(sw_resume_spill_buffers(&second), SPILLWAY_ELIMIT, SPILLWAY_SCOPE_REQUEST, "allows 1 in flight");
    sw_play_close();
}
END_TEST

static void serve_with_a_shorter_grace(int socket) {
    sw_resume_greet(socket, false);
    sw_resume_leave(socket);
    sw_resume_grace_ms = 50;
    const int again = sw_resume_come_back();
    sw_resume_expect_settled(again);
    sw_resume_leave(again);
    (void)close(again);
}

/* The next process may come back sooner than this one, or later: its own word counts. */
START_TEST(the_grace_is_that_of_the_next_process) {
    int rc = 0;
    sw_play_open(serve_with_a_shorter_grace);
    sw_resume_lose_connection();
    await_return();
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    while (rc == 0) {
        struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, 10000), 1);
        rc = spillway_dispatch(sw_play.connection, &sw_play.error);
    }
    sw_play_ck_error(rc, SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION, "in time");
    sw_play_close();
}
END_TEST

/* The first process that takes the connection answers another request than HELLO. */
static void serve_a_wrong_seq(int socket) {
    struct sw_msg msg, settle, reply = {.u.hello_ok = {.version = SW_PROTO_VERSION, .resumed = 1}};
    sw_resume_greet(socket, false);
    sw_resume_leave(socket);
    const int wrong = accept(sw_play.listener, NULL, NULL);
    sw_play_expect(wrong, &msg, SW_MSG_HELLO);
    sw_play_put(wrong, &reply, SW_MSG_HELLO_OK, msg.header.seq + 1);
    sw_play_expect_end(wrong);
    (void)close(wrong);
    const int again = accept(sw_play.listener, NULL, NULL);
    reply.u.hello_ok = (struct sw_msg_hello_ok){
        .version = SW_PROTO_VERSION, .resumed = 1, .max_in_flight = 10, .max_buffers = 100, .reconnect_ms = 600000};
    sw_play_expect(again, &msg, SW_MSG_HELLO);
    sw_play_put(again, &reply, SW_MSG_HELLO_OK, msg.header.seq);
    sw_play_expect(again, &settle, SW_MSG_SETTLE);
    SW_ASSERT(settle.header.seq != msg.header.seq); /* each request has its own */
    atomic_store(&sw_resume_is_back, true);
    sw_play_put_ok(again, settle.header.seq);
    sw_play_expect_end(again);
    (void)close(again);
}

START_TEST(only_the_answer_to_its_hello_counts) {
    sw_play_open(serve_a_wrong_seq);
    sw_resume_lose_connection();
    await_return();
    sw_play_close();
}
END_TEST

enum { OUTAGE_MS = 200 };

static void serve_after_an_outage(int socket) {
    struct sw_msg msg;
    sw_resume_greet(socket, false);
    sw_play_expect(socket, &msg, SW_MSG_STATUS);
    sw_play_hang_up(socket, msg.header.seq);
    (void)usleep(OUTAGE_MS * 1000);
    const int again = sw_resume_come_back();
    sw_play_expect(again, &msg, SW_MSG_STATUS);
    sw_play_put(again, &msg, SW_MSG_STATUS_OK, msg.header.seq);
    sw_resume_expect_settled(again);
    sw_play_expect_end(again);
    (void)close(again);
}

/* The limit of a call is the service's time to answer: while there is no service it does not run. */
START_TEST(an_outage_does_not_count) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_open(serve_after_an_outage);
    spillway_set_timeout(sw_play.connection, OUTAGE_MS / 2);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

enum { LIMIT_S = 30 }; /* of a call */

static void skew_by(unsigned seconds) {
    atomic_fetch_add(&skew_us, seconds * UINT64_C(1000000));
}

static void serve_long_after_an_outage(int socket) {
    struct sw_msg msg, settle;
    sw_resume_greet(socket, false);
    sw_play_expect(socket, &msg, SW_MSG_STATUS);
    sw_play_hang_up(socket, msg.header.seq);
    const int again = accept(sw_play.listener, NULL, NULL);
    SW_ASSERT(again >= 0);
    skew_by(LIMIT_S - 1); /* now that no timer of the client's waits for the true clock */
    sw_resume_greet(again, true);
    sw_play_expect(again, &msg, SW_MSG_STATUS);
    sw_play_expect(again, &settle, SW_MSG_SETTLE);
    (void)usleep(20000); /* until the connection is back on the other side, too */
    skew_by(LIMIT_S - 1);
    sw_play_put_ok(again, settle.header.seq); /* the call looks at the time */
    (void)usleep(20000);
    sw_play_put(again, &msg, SW_MSG_STATUS_OK, msg.header.seq);
    sw_play_expect_end(again);
    (void)close(again);
}

/* The time is counted from the return, not from the call. */
START_TEST(after_an_outage_the_service_has_all_its_time) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_open(serve_long_after_an_outage);
    spillway_set_timeout(sw_play.connection, LIMIT_S * 1000);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static void serve_a_stop_and_a_crash(int socket) {
    sw_resume_greet(socket, false);
    (void)sem_wait(&sw_play.go);
    sw_play_put_error(socket, 0, "ESHUTDOWN", SW_SCOPE_SESSION, "the service has been stopped");
    (void)shutdown(socket, SHUT_RDWR);
    const int again = sw_resume_come_back();
    sw_resume_expect_settled(again);
    sw_resume_leave(again);
    (void)close(again);
}

/* That the process before was stopped says nothing of this one's end. */
START_TEST(a_stop_is_forgotten_when_the_service_is_back) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_open(serve_a_stop_and_a_crash);
    sw_resume_lose_connection();
    await_return();
    spillway_set_reconnect(sw_play.connection, 50);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    sw_play_ck_error(spillway_status(sw_play.connection, &status, &sw_play.error), SPILLWAY_ECONN,
                     SPILLWAY_SCOPE_SESSION, "in time");
    sw_play_close();
}
END_TEST

static void await_end(int rc, int code) {
    while (rc == 0) {
        struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, 30000), 1);
        rc = spillway_dispatch(sw_play.connection, &sw_play.error);
    }
    sw_play_ck_error(rc, code, SPILLWAY_SCOPE_SESSION, "has nothing of this connection");
}

static unsigned other_version; /* _i of the next test */

/* A process that is full, or stops, and then one that has no such session, or speaks another version. */
static void serve_another(int socket) {
    struct sw_msg msg, reply = {.u.hello_ok = {.version = SW_PROTO_VERSION + other_version,
                                               .max_in_flight = SW_PLAY_MAX_IN_FLIGHT,
                                               .max_buffers = 100,
                                               .resumed = other_version,
                                               .reconnect_ms = 600000}};
    sw_resume_greet(socket, false);
    (void)sw_play_take_spill(socket);
    sw_resume_leave(socket);
    int again = accept(sw_play.listener, NULL, NULL);
    sw_play_expect(again, &msg, SW_MSG_HELLO);
    sw_play_put_error(again, msg.header.seq, "ELIMIT", SW_SCOPE_SESSION, "too many sessions");
    sw_play_expect_end(again);
    (void)close(again);
    again = accept(sw_play.listener, NULL, NULL);
    sw_play_expect(again, &msg, SW_MSG_HELLO);
    SW_ASSERT(memcmp(msg.u.hello.token, sw_resume_token, sizeof sw_resume_token) == 0);
    sw_play_put(again, &reply, SW_MSG_HELLO_OK, msg.header.seq);
    sw_play_expect_end(again);
    (void)close(again);
}

START_TEST(a_session_that_is_gone_ends_the_connection) {
    struct spillway_status status = {.size = sizeof status};
    struct spillway_ticket *ticket = NULL;
    other_version = (unsigned)_i;
    sw_play_open(serve_another);
    ck_assert_int_eq(sw_resume_spill(&ticket), 0);
    sw_resume_lose_connection();
    await_end(0, SPILLWAY_ERESTARTED);
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), -SPILLWAY_ERESTARTED);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), -SPILLWAY_ERESTARTED);
    ck_assert_int_eq(sw_resume_spill(&ticket), -SPILLWAY_ERESTARTED);
    sw_play_close();
}
END_TEST

/* The next process has no name of this connection, so a close asks it for nothing. */
static void forget_the_session(int socket) {
    struct sw_msg msg, reply = {.u.hello_ok = {.version = SW_PROTO_VERSION, .max_in_flight = 10, .max_buffers = 100}};
    struct pollfd p = {.fd = sw_play.listener, .events = POLLIN};
    sw_resume_greet(socket, false);
    sw_play_put_spilled(socket, sw_play_take_spill(socket), 1);
    sw_resume_leave(socket);
    const int again = accept(sw_play.listener, NULL, NULL);
    sw_play_expect(again, &msg, SW_MSG_HELLO);
    sw_play_put(again, &reply, SW_MSG_HELLO_OK, msg.header.seq);
    sw_play_expect_end(again);
    (void)close(again);
    (void)sem_wait(&sw_play.go);
    SW_ASSERT(poll(&p, 1, 0) == 0);
}

START_TEST(close_does_not_look_for_a_session_that_is_gone) {
    sw_play_open(forget_the_session);
    ck_assert_int_eq(spillway_wait(sw_resume_spill_named(), SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    sw_resume_lose_connection();
    await_end(0, SPILLWAY_ERESTARTED);
    spillway_close(sw_play.connection);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    sw_play_stop();
}
END_TEST

/* Another call finds that out: an event loop wakes, to be told as well. */
START_TEST(the_end_of_a_session_wakes_the_event_loop) {
    struct spillway_status status = {.size = sizeof status};
    other_version = 0;
    sw_play_open(serve_another);
    spillway_ticket_free(sw_play_spill());
    sw_resume_lose_connection();
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), -SPILLWAY_ERESTARTED);
    struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, SW_TEST_WAIT_MS), 1);
    ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), -SPILLWAY_ERESTARTED);
    sw_play_close();
}
END_TEST

static void refuse_the_memory_and_leave(int socket) {
    sw_resume_greet(socket, false);
    sw_play_put_error(socket, sw_play_take_spill(socket), "EIMPORT", SW_SCOPE_REQUEST, "cannot be mapped");
    sw_resume_leave(socket);
    const int again = sw_resume_come_back();
    sw_resume_expect_settled(again);
    sw_play_expect_end(again);
    (void)close(again);
}

/* One of its packets has failed, so the service has nothing of it. */
START_TEST(a_request_that_has_failed_is_not_settled) {
    struct spillway_ticket *ticket = NULL;
    sw_play_open(refuse_the_memory_and_leave);
    ck_assert_int_eq(sw_resume_spill(&ticket), 0);
    ck_assert_int_eq(spillway_wait(ticket, 100, NULL, 0, &sw_play.error), -SPILLWAY_EAGAIN); /* takes the error in */
    sw_resume_lose_connection();
    sw_play_ck_error(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), SPILLWAY_EIMPORT, SPILLWAY_SCOPE_REQUEST,
                     "cannot be mapped");
    await_return();
    sw_play_close();
}
END_TEST

static void lose_a_registration(int socket) {
    struct sw_msg msg;
    uint32_t mem;
    sw_resume_greet(socket, false);
    (void)sw_play_take_registration(socket, &mem);
    (void)shutdown(socket, SHUT_RDWR);
    const int again = sw_resume_come_back();
    sw_resume_expect_settled(again);
    sw_play_expect(again, &msg, SW_MSG_MEM_CLOSE); /* of the first attempt, whose end is not known */
    sw_play_put_error(again, msg.header.seq, "ENOENT", SW_SCOPE_REQUEST, "no such memory");
    (void)sw_play_register(again);
    sw_play_expect_end(again);
    (void)close(again);
}

START_TEST(a_registration_is_repeated) {
    sw_play_open(lose_a_registration);
    ck_assert_int_eq(spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static void lose_a_drop(int socket) {
    struct sw_msg msg;
    sw_resume_greet(socket, false);
    sw_play_put_spilled(socket, sw_play_take_spill(socket), 7);
    sw_play_expect(socket, &msg, SW_MSG_DISCARD);
    sw_play_hang_up(socket, msg.header.seq);
    const int again = sw_resume_come_back();
    sw_play_expect_drop(again, 7);
    sw_resume_expect_settled(again);
    sw_play_expect_end(again);
    (void)close(again);
}

/* Nobody waits for it, and nobody else would drop the region. */
START_TEST(a_drop_of_the_librarys_own_is_repeated) {
    sw_play_open(lose_a_drop);
    struct spillway_ticket *ticket = sw_play_spill();
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), 0);
    spillway_ticket_free(ticket);
    await_return();
    sw_play_close();
}
END_TEST

static void serve_at_a_relative_path(int socket) {
    sw_resume_greet(socket, false);
    sw_resume_leave(socket);
    const int again = sw_resume_come_back();
    sw_resume_expect_settled(again);
    sw_play_expect_end(again);
    (void)close(again);
}

START_TEST(a_program_may_leave_the_folder_of_a_relative_path) {
    sw_play_start(serve_at_a_relative_path);
    ck_assert_int_eq(chdir(sw_play.folder), 0);
    ck_assert_int_eq(spillway_open(&sw_play.connection, SW_OPTIONS(.socket_path = "s"), &sw_play.error), 0);
    ck_assert_int_eq(chdir("/"), 0);
    sw_resume_lose_connection();
    await_return();
    spillway_close(sw_play.connection);
    sw_play_stop();
}
END_TEST

static void expect_settle_of(int socket, uint32_t seq, struct sw_msg *ret) {
    sw_play_expect(socket, ret, SW_MSG_SETTLE);
    SW_ASSERT(ret->u.settle.type == SW_MSG_BUILD && ret->u.settle.seq == seq && ret->u.settle.n_ids == 1);
}

/* Two processes end before they answer. */
static void serve_a_request_settled_thrice(int socket) {
    struct sw_msg msg;
    sw_resume_greet(socket, false);
    const uint32_t seq = sw_play_take_spill(socket) + 2;
    sw_resume_leave(socket);
    for (unsigned i = 0; i < 2; i++) {
        const int again = sw_resume_come_back();
        expect_settle_of(again, seq, &msg);
        SW_ASSERT(msg.header.seq != seq);
        (void)shutdown(again, SHUT_RDWR);
        (void)close(again);
    }
    const int last = sw_resume_come_back();
    expect_settle_of(last, seq, &msg);
    sw_play_put_result(last, msg.header.seq, 7, SW_PLAY_BYTES);
    sw_resume_expect_settled(last);
    sw_play_expect_drop(last, 7);
    sw_play_expect_end(last);
    (void)close(last);
}

/* It is always asked about by the number of the request itself. */
START_TEST(a_request_is_settled_until_there_is_an_answer) {
    struct spillway_result result = {.size = sizeof result};
    struct spillway_ticket *ticket = NULL;
    sw_play_open(serve_a_request_settled_thrice);
    ck_assert_int_eq(sw_resume_spill(&ticket), 0);
    sw_resume_lose_connection();
    ck_assert_int_eq(spillway_wait(ticket, -1, &result, 1, &sw_play.error), 0);
    ck_assert_uint_eq(result.region.slot, 7);
    ck_assert_int_eq(spillway_drop(sw_play.connection, &result.region, 1, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static uint32_t settled_flags; /* that the request shall be settled with */

static void serve_a_settled_batch(int socket) {
    struct sw_msg msg;
    sw_resume_greet(socket, false);
    (void)sw_play_register(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    SW_ASSERT(msg.u.build.n_builds == 2);
    const uint32_t seq = msg.header.seq;
    sw_resume_leave(socket);
    const int again = sw_resume_come_back();
    (void)sw_play_register(again);
    sw_play_expect(again, &msg, SW_MSG_SETTLE);
    SW_ASSERT(msg.u.settle.seq == seq && msg.u.settle.n_ids == 2 && msg.u.settle.flags == settled_flags);
    sw_play_put_batch(again, msg.header.seq, 2, 1, UINT64_C(2) * SW_PLAY_BYTES);
    sw_resume_expect_settled(again);
    sw_play_expect_end(again);
    (void)close(again);
}

/* As it was sent: all or nothing, or (_i) each by itself. */
START_TEST(a_batch_is_settled_as_it_was_sent) {
    struct spillway_ticket *ticket = NULL;
    settled_flags = _i ? 0 : SW_REQ_ALL;
    sw_play_open(serve_a_settled_batch);
    ck_assert_int_eq(spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error), 0);
    const struct spillway_request *one =
        SW_REQUEST(SW_ONE(sw_play.data, SW_PLAY_BYTES), .flags = _i ? (uint32_t)SPILLWAY_EACH : 0u);
    const struct spillway_request both[] = {*one, *one};
    ck_assert_int_eq(spillway_spill(sw_play.connection, both, 2, &ticket, &sw_play.error), 0);
    sw_resume_lose_connection();
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static const struct {
    const char *name;
    int code;
} repeated[] = {{"ENOENT", 0}, {"ESTALE", 0}, {"EBUSY", SPILLWAY_EBUSY}};
static unsigned repetition;

/* The process is killed before its answer arrives, but has dropped the region. */
static void serve_a_drop_twice(int socket) {
    const struct sw_wire_result result = {.error = 1, .scope = SW_SCOPE_REQUEST};
    struct sw_wire_text text = {""};
    struct sw_msg msg, reply = {.u.results = {.n_results = 1, .n_texts = 1, .results = &result, .texts = &text}};
    memcpy(text.text, repeated[repetition].name, strlen(repeated[repetition].name));
    sw_resume_greet(socket, false);
    sw_play_expect(socket, &msg, SW_MSG_DISCARD);
    sw_play_hang_up(socket, msg.header.seq);
    const int again = sw_resume_come_back();
    sw_play_expect(again, &msg, SW_MSG_DISCARD);
    SW_ASSERT(msg.u.discard.n_ids == 1 && msg.u.discard.ids[0].slot == 3);
    sw_play_put(again, &reply, SW_MSG_RESULTS, msg.header.seq);
    sw_resume_expect_settled(again);
    sw_play_expect_end(again);
    (void)close(again);
}

START_TEST(a_drop_that_is_repeated_may_find_nothing) {
    const struct spillway_region region = {3, 9};
    repetition = (unsigned)_i;
    sw_play_open(serve_a_drop_twice);
    ck_assert_int_eq(spillway_drop(sw_play.connection, &region, 1, &sw_play.error), -repeated[_i].code);
    sw_play_close();
}
END_TEST

static void serve_a_question_twice(int socket) {
    struct sw_msg msg;
    sw_resume_greet(socket, false);
    sw_play_expect(socket, &msg, SW_MSG_INSPECT);
    sw_play_hang_up(socket, msg.header.seq);
    const int again = sw_resume_come_back();
    sw_play_expect(again, &msg, SW_MSG_INSPECT);
    sw_play_put_error(again, msg.header.seq, "ESTALE", SW_SCOPE_REGION, "nothing is there");
    sw_resume_expect_settled(again);
    sw_play_expect_end(again);
    (void)close(again);
}

/* Only for a drop is nothing there as good as an answer. */
START_TEST(a_question_that_is_repeated_may_find_nothing) {
    struct spillway_region_info info = {.size = sizeof info};
    sw_play_open(serve_a_question_twice);
    sw_play_ck_error(spillway_query(sw_play.connection, (struct spillway_region){3, 9}, &info, &sw_play.error),
                     SPILLWAY_ESTALE, SPILLWAY_SCOPE_REGION, "nothing is there");
    sw_play_close();
}
END_TEST

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* The next process has the connection, and says nothing. The client hangs up at once: it has nothing of the client's.
 */
static void expect_a_quick_end(int socket) {
    struct sw_msg msg;
    sw_resume_greet(socket, false);
    (void)sw_play_take_spill(socket);
    sw_resume_leave(socket);
    const int again = accept(sw_play.listener, NULL, NULL);
    sw_play_expect(again, &msg, SW_MSG_HELLO);
    struct pollfd p = {.fd = again};
    SW_ASSERT(poll(&p, 1, 5000) == 1 && p.revents & POLLHUP);
    (void)close(again);
}

START_TEST(close_does_not_wait_for_a_service_that_is_not_back) {
    struct spillway_ticket *ticket = NULL;
    sw_play_open(expect_a_quick_end);
    ck_assert_int_eq(sw_resume_spill(&ticket), 0);
    sw_resume_lose_connection();
    while (sw_play.connection->link != SW_LINK_HELLO)
        sw_resume_dispatch();
    sw_play_close();
}
END_TEST

/* The process ends before the session does: its last packet is an answer. */
static void answer_at_the_end(int socket) {
    struct sw_msg msg;
    sw_resume_greet(socket, false);
    sw_play_put_spilled(socket, sw_play_take_spill(socket), 1);
    const uint32_t seq = sw_play_take_spill(socket);
    sw_play_expect_end(socket);
    sw_play_put_ok(socket, seq);
    (void)shutdown(socket, SHUT_RDWR);
    const int again = sw_resume_come_back();
    SW_ASSERT(!sw_play_get(again, &msg));
    sw_play_put_ok(again, 0);
    (void)close(again);
}

/* Else the next process would keep the name for it. */
START_TEST(close_ends_the_session_with_the_next_process) {
    sw_play_open(answer_at_the_end);
    struct spillway_ticket *named = sw_resume_spill_named(), *other = NULL;
    ck_assert_int_eq(spillway_wait(named, -1, NULL, 0, &sw_play.error), 0);
    ck_assert_int_eq(sw_resume_spill(&other), 0);
    sw_play_close();
}
END_TEST

/* ---- somebody else has taken the path ---------------------------------------------------------------------------- */

enum { IMPOSTOR = 4242 };
static atomic_bool was_impostor;

/* Until the next process is asked for its status; returns its socket. */
static int come_back_after_an_impostor(int socket) {
    struct sw_msg msg;
    sw_resume_greet(socket, false);
    sw_resume_leave(socket);
    int again;
    for (char byte; (again = accept(sw_play.listener, NULL, NULL)) >= 0 && recv(again, &byte, 1, MSG_PEEK) == 0;) {
        (void)close(again); /* no token, no memory */
        atomic_store(&was_impostor, true);
    }
    SW_ASSERT(atomic_load(&was_impostor));
    sw_resume_greet(again, true);
    sw_resume_expect_settled(again);
    sw_play_expect(again, &msg, SW_MSG_STATUS);
    sw_play_put(again, &msg, SW_MSG_STATUS_OK, msg.header.seq);
    return again;
}

static void serve_after_an_impostor(int socket) {
    const int again = come_back_after_an_impostor(socket);
    sw_play_expect_end(again);
    (void)close(again);
}

/* Opens a connection, loses it, meets an impostor, and then the service again. */
static void meet_an_impostor(void (*serve)(int socket)) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_open(serve);
    sw_resume_lose_connection();
    sw_play.stranger = IMPOSTOR;
    while (!atomic_load(&was_impostor))
        sw_resume_dispatch();
    sw_play.stranger = 0;
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
}

START_TEST(an_impostor_gets_no_data) {
    meet_an_impostor(serve_after_an_impostor);
    sw_play_close();
}
END_TEST

START_TEST(an_impostor_is_named_when_the_time_is_over) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_open(serve_no_more);
    spillway_set_reconnect(sw_play.connection, 500);
    sw_resume_lose_connection();
    sw_play.stranger = IMPOSTOR;
    sw_play_ck_error(spillway_status(sw_play.connection, &status, &sw_play.error), SPILLWAY_EUNTRUSTED,
                     SPILLWAY_SCOPE_SESSION, "uid 4242");
    sw_play_close();
}
END_TEST

static void serve_after_an_impostor_and_leave(int socket) {
    const int again = come_back_after_an_impostor(socket);
    sw_resume_leave(again);
    (void)close(again);
}

/* It was another loss of the connection. */
START_TEST(an_impostor_is_forgotten_when_the_service_is_back) {
    struct spillway_status status = {.size = sizeof status};
    meet_an_impostor(serve_after_an_impostor_and_leave);
    spillway_set_reconnect(sw_play.connection, 50);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    sw_play_ck_error(spillway_status(sw_play.connection, &status, &sw_play.error), SPILLWAY_ECONN,
                     SPILLWAY_SCOPE_SESSION, "in time");
    sw_play_close();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_client_resume");
    TCase *tcase = tcase_create("resume");
    tcase_add_loop_test(tcase, a_reconnection_ends_at_its_time_limit, 0, (int)(sizeof ends / sizeof ends[0]));
    tcase_add_test(tcase, a_service_that_stopped_for_good_is_named);
    tcase_add_test(tcase, no_reconnection_is_tried_without_time);
    tcase_add_test(tcase, the_time_limit_wakes_once);
    tcase_add_test(tcase, options_limit_a_reconnection);
    tcase_add_test(tcase, the_time_limit_wakes_the_event_loop);
    tcase_add_test(tcase, attempts_are_never_far_apart);
    tcase_add_test(tcase, each_reconnection_begins_anew);
    tcase_add_test(tcase, the_time_limit_can_grow_during_a_reconnection);
    tcase_add_test(tcase, the_time_limit_counts_from_the_loss);
    tcase_add_test(tcase, limits_are_those_of_the_next_process);
    tcase_add_test(tcase, the_grace_is_that_of_the_next_process);
    tcase_add_test(tcase, only_the_answer_to_its_hello_counts);
    tcase_add_test(tcase, an_outage_does_not_count);
    tcase_add_test(tcase, after_an_outage_the_service_has_all_its_time);
    tcase_add_loop_test(tcase, a_session_that_is_gone_ends_the_connection, 0, 2);
    tcase_add_test(tcase, close_does_not_look_for_a_session_that_is_gone);
    tcase_add_test(tcase, the_end_of_a_session_wakes_the_event_loop);
    tcase_add_test(tcase, a_request_that_has_failed_is_not_settled);
    tcase_add_test(tcase, a_registration_is_repeated);
    tcase_add_test(tcase, a_drop_of_the_librarys_own_is_repeated);
    tcase_add_test(tcase, a_program_may_leave_the_folder_of_a_relative_path);
    tcase_add_test(tcase, a_request_is_settled_until_there_is_an_answer);
    tcase_add_loop_test(tcase, a_batch_is_settled_as_it_was_sent, 0, 2);
    tcase_add_loop_test(tcase, a_drop_that_is_repeated_may_find_nothing, 0, 3);
    tcase_add_test(tcase, a_question_that_is_repeated_may_find_nothing);
    tcase_add_test(tcase, a_stop_is_forgotten_when_the_service_is_back);
    tcase_add_test(tcase, close_does_not_wait_for_a_service_that_is_not_back);
    tcase_add_test(tcase, close_ends_the_session_with_the_next_process);
    tcase_add_test(tcase, an_impostor_gets_no_data);
    tcase_add_test(tcase, an_impostor_is_named_when_the_time_is_over);
    tcase_add_test(tcase, an_impostor_is_forgotten_when_the_service_is_back);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

/* How the client library connects, which servers it trusts, and how long it waits for a service that does not answer.
 */
#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "ipc/client/client.h"
#include "ipc/proto.h"
#include "ipc/spillway.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/play.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* ---- connecting -------------------------------------------------------------------------------------------------- */

static void refuse_version(int socket) {
    struct sw_msg msg;
    sw_play_expect(socket, &msg, SW_MSG_HELLO);
    sw_play_put_error(socket, msg.header.seq, "EVERSION", SW_SCOPE_SESSION, "daemon speaks 2");
}

static void speak_another_version(int socket) {
    struct sw_msg msg;
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    sw_play_expect(socket, &msg, SW_MSG_HELLO);
    msg.header.type = SW_MSG_HELLO_OK;
    const size_t bytes = sw_msg_encode(&msg, packet);
    packet[4] = SW_PROTO_VERSION + 1;
    (void)sw_packet_send(socket, packet, bytes, NULL, 0);
}

static void agree_on_another_version(int socket) {
    struct sw_msg msg, reply = {.u.hello_ok = {.version = SW_PROTO_VERSION + 1}};
    sw_play_expect(socket, &msg, SW_MSG_HELLO);
    sw_play_put(socket, &reply, SW_MSG_HELLO_OK, msg.header.seq);
}

static void refuse_connection(int socket) {
    sw_play_put_error(socket, 0, "ELIMIT", SW_SCOPE_SESSION, "8 sessions are open");
}

static void hang_up_at_hello(int socket) {
    struct sw_msg msg;
    sw_play_expect(socket, &msg, SW_MSG_HELLO);
}

static const struct {
    void (*serve)(int socket);
    int code;
    const char *text;
} refusals[] = {
    {refuse_version, SPILLWAY_EVERSION, "daemon speaks 2"},
    {speak_another_version, SPILLWAY_EVERSION, "is not supported"},
    {agree_on_another_version, SPILLWAY_EVERSION, "the daemon speaks protocol version"},
    {refuse_connection, SPILLWAY_ELIMIT, "8 sessions are open"},
    {hang_up_at_hello, SPILLWAY_ECONN, "closed"},
};

START_TEST(open_reports_why_not) {
    const unsigned before = sw_count_fds();
    sw_play_start(refusals[_i].serve);
    const int rc =
        spillway_open(&sw_play.connection, SW_OPTIONS(.socket_path = sw_play.address.sun_path), &sw_play.error);
    sw_play_ck_error(rc, refusals[_i].code, SPILLWAY_SCOPE_SESSION, refusals[_i].text);
    sw_play_stop();
    ck_assert_uint_eq(sw_count_fds(), before);
    ck_assert_int_eq(sw_alloc_live(), 0);
}
END_TEST

START_TEST(open_needs_a_listening_service) {
    char path[200];
    const unsigned before = sw_count_fds();
    sw_play_ck_error(
        spillway_open(&sw_play.connection, SW_OPTIONS(.socket_path = "/nonexistent/socket"), &sw_play.error),
        SPILLWAY_ENOSERVICE, SPILLWAY_SCOPE_SESSION, "/nonexistent/socket");
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = 0;
    sw_play_ck_error(spillway_open(&sw_play.connection, SW_OPTIONS(.socket_path = path), &sw_play.error),
                     SPILLWAY_EINVAL, SPILLWAY_SCOPE_SESSION, "199 bytes");
    ck_assert_int_eq(spillway_open(&sw_play.connection, SW_OPTIONS(.socket_path = "/nonexistent/socket"), NULL),
                     -SPILLWAY_ENOSERVICE);
    ck_assert_int_eq(setenv("SPILLWAY_SOCKET", "/nonexistent/other", 1), 0);
    sw_play_ck_error(spillway_open(&sw_play.connection, NULL, &sw_play.error), SPILLWAY_ENOSERVICE,
                     SPILLWAY_SCOPE_SESSION, "/nonexistent/other");
    ck_assert_uint_eq(sw_count_fds(), before);
}
END_TEST

/* As control.sock is one. */
START_TEST(a_socket_of_another_kind_is_named) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char folder[SW_TEST_PATH_BYTES];
    sw_test_folder(folder);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s/s", folder);
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (const struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    sw_play_ck_error(spillway_open(&sw_play.connection, SW_OPTIONS(.socket_path = address.sun_path), &sw_play.error),
                     SPILLWAY_ENOSERVICE, SPILLWAY_SCOPE_SESSION, "use data.sock");
    (void)close(listener);
    (void)unlink(address.sun_path);
    (void)rmdir(folder);
}
END_TEST

/* Not even HELLO. */
static void expect_silence(int socket) {
    sw_play_expect_end(socket);
}

static void greet_and_end(int socket) {
    sw_play_greet(socket);
    sw_play_expect_end(socket);
}

/* Whatever is negative means none. */
START_TEST(calls_may_have_no_time_limit) {
    sw_play_start(greet_and_end);
    ck_assert_int_eq(spillway_open(&sw_play.connection,
                                   SW_OPTIONS(.socket_path = sw_play.address.sun_path, .call_ms = -5), &sw_play.error),
                     0);
    ck_assert_int_eq(sw_play.connection->timeout_ms, -1);
    spillway_set_timeout(sw_play.connection, 5);
    ck_assert_int_eq(sw_play.connection->timeout_ms, 5);
    spillway_set_timeout(sw_play.connection, -5);
    ck_assert_int_eq(sw_play.connection->timeout_ms, -1);
    spillway_close(sw_play.connection);
    sw_play_stop();
}
END_TEST

enum { STRANGER = 4242 };

START_TEST(an_untrusted_server_gets_no_data) {
    const unsigned before = sw_count_fds();
    sw_play.stranger = STRANGER;
    sw_play_start(expect_silence);
    sw_play_ck_error(
        spillway_open(&sw_play.connection, SW_OPTIONS(.socket_path = sw_play.address.sun_path), &sw_play.error),
        SPILLWAY_EUNTRUSTED, SPILLWAY_SCOPE_SESSION,
        "served by uid 4242: if that is the service's user, set SPILLWAY_SERVICE_UID");
    sw_play_stop();
    ck_assert_uint_eq(sw_count_fds(), before);
    ck_assert_int_eq(sw_alloc_live(), 0);
}
END_TEST

START_TEST(a_named_server_user_is_trusted) {
    sw_play.stranger = STRANGER;
    sw_play_start(greet_and_end);
    if (_i)
        ck_assert_int_eq(setenv("SPILLWAY_SERVICE_UID", "4242", 1), 0);
    ck_assert_int_eq(
        _i ? spillway_open(&sw_play.connection, SW_OPTIONS(.socket_path = sw_play.address.sun_path), &sw_play.error)
           : spillway_open(&sw_play.connection,
                           SW_OPTIONS(.socket_path = sw_play.address.sun_path, .flags = SPILLWAY_SERVED_BY,
                                      .server_uid = STRANGER),
                           &sw_play.error),
        0);
    spillway_close(sw_play.connection);
    sw_play_stop();
    ck_assert_int_eq(sw_alloc_live(), 0);
}
END_TEST

START_TEST(naming_another_user_does_not_make_a_server_trusted) {
    sw_play.stranger = STRANGER;
    sw_play_start(expect_silence);
    ck_assert_int_eq(setenv("SPILLWAY_SERVICE_UID", "4242", 1), 0); /* the call names another one */
    sw_play_ck_error(spillway_open(&sw_play.connection,
                                   SW_OPTIONS(.socket_path = sw_play.address.sun_path, .flags = SPILLWAY_SERVED_BY,
                                              .server_uid = STRANGER + 1),
                                   &sw_play.error),
                     SPILLWAY_EUNTRUSTED, SPILLWAY_SCOPE_SESSION, "uid 4242");
    sw_play_stop();
}
END_TEST

START_TEST(a_server_uid_must_be_a_number) {
    static const char *const wrong[] = {"spillway", "-1", "4294967295", "18446744073709551616", "4242 ", "0x10", " 1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ck_assert_int_eq(setenv("SPILLWAY_SERVICE_UID", wrong[i], 1), 0);
        sw_play_ck_error(
            spillway_open(&sw_play.connection, SW_OPTIONS(.socket_path = "/nonexistent/socket"), &sw_play.error),
            SPILLWAY_EINVAL, SPILLWAY_SCOPE_SESSION, "must be a uid");
    }
}
END_TEST

/* Before the socket, which is not there, is looked for. */
START_TEST(options_are_checked) {
    const uint32_t known = SPILLWAY_SERVED_BY | SPILLWAY_CODEC_CLIENT | SPILLWAY_CODEC_SERVICE;
    for (unsigned bit = 0; bit < 32; bit++) {
        const uint32_t flag = (uint32_t)1 << bit;
        const int rc = spillway_open(&sw_play.connection,
                                     SW_OPTIONS(.socket_path = "/nonexistent/socket", .flags = flag, .server_uid = 1),
                                     &sw_play.error);
        ck_assert_msg((rc == -SPILLWAY_EINVAL) == !(flag & known) && rc < 0, "flag %x: %d", (unsigned)flag, rc);
    }
    sw_play_ck_error(spillway_open(&sw_play.connection,
                                   SW_OPTIONS(.socket_path = "/nonexistent/socket",
                                              .flags = SPILLWAY_CODEC_CLIENT | SPILLWAY_CODEC_SERVICE),
                                   &sw_play.error),
                     SPILLWAY_EINVAL, SPILLWAY_SCOPE_REQUEST, "cannot be both");
    ck_assert_int_eq(setenv("SPILLWAY_CODEC", "clients", 1), 0);
    sw_play_ck_error(
        spillway_open(&sw_play.connection, SW_OPTIONS(.socket_path = "/nonexistent/socket"), &sw_play.error),
        SPILLWAY_EINVAL, SPILLWAY_SCOPE_REQUEST, "SPILLWAY_CODEC=clients");
}
END_TEST

/* A server that takes the connection late and then sends nothing. */
static _Atomic uint64_t offset_us;
static uint64_t slow_us = 9700000;
static bool is_slow;

/* A connect() that a signal interrupts every 3 seconds, of a clock that the test plays. */
static bool interrupts;
static uint64_t now_us;
static unsigned n_attempts;
static long patience_s[8]; /* of each attempt */

static uint64_t played_clock(void) {
    return now_us;
}

/* A connect() that returns once the daemon has sent all that it will. */
static bool awaits_answers;
static sem_t answered;

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes);
int __real_connect(int fd, const struct sockaddr *address, socklen_t bytes);

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes) {
    struct timeval timeout;
    socklen_t timeout_bytes = sizeof timeout;
    if (is_slow)
        offset_us += slow_us;
    if (!interrupts) {
        const int rc = __real_connect(fd, address, bytes);
        while (rc == 0 && awaits_answers && sem_wait(&answered) < 0)
            continue;
        return rc;
    }
    ck_assert_uint_lt(n_attempts, 8);
    ck_assert_int_eq(getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, &timeout_bytes), 0);
    patience_s[n_attempts++] = (long)timeout.tv_sec;
    now_us += timeout.tv_sec < 3 ? (uint64_t)timeout.tv_sec * 1000000 : 3000000;
    errno = timeout.tv_sec < 3 ? EAGAIN : EINTR;
    return -1;
}

static uint64_t late_clock(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return offset_us + (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Stands still until the client is gone: it does not see that the client sends no more. */
static void say_nothing(int socket) {
    struct sw_msg msg;
    struct pollfd wait = {.fd = socket};
    sw_play_expect(socket, &msg, SW_MSG_HELLO);
    (void)poll(&wait, 1, SW_TEST_WAIT_MS);
    sw_play_expect_end(socket);
}

START_TEST(open_waits_for_ten_seconds_in_all) {
    sw_play_start(say_nothing);
    sw_clock_set(late_clock);
    is_slow = true;
    const uint64_t begun_us = late_clock();
    sw_play_ck_error(
        spillway_open(&sw_play.connection, SW_OPTIONS(.socket_path = sw_play.address.sun_path), &sw_play.error),
        SPILLWAY_ETIMEDOUT, SPILLWAY_SCOPE_SESSION, "the service did not answer in 10 s");
    const uint64_t took_us = late_clock() - begun_us;
    sw_clock_set(NULL);
    ck_assert_uint_ge(took_us, 9900000);
    ck_assert_uint_lt(took_us, 14000000);
    sw_play_stop();
}
END_TEST

enum { HOUR_US = 3600 * 1000 * 1000u };

static void answer_after_an_hour(int socket) {
    struct sw_msg msg;
    sw_play_greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_STATUS);
    offset_us += HOUR_US;
    (void)usleep(20000);
    sw_play_put(socket, &msg, SW_MSG_STATUS_OK, msg.header.seq);
    sw_play_expect_end(socket);
}

/* Neither for the connection nor for an answer. */
START_TEST(options_may_take_all_limits_away) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_start(answer_after_an_hour);
    sw_clock_set(late_clock);
    is_slow = true;
    slow_us = HOUR_US;
    ck_assert_int_eq(spillway_open(&sw_play.connection,
                                   SW_OPTIONS(.socket_path = sw_play.address.sun_path, .connect_ms = -1, .call_ms = -1),
                                   &sw_play.error),
                     0);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    spillway_close(sw_play.connection);
    sw_clock_set(NULL);
    sw_play_stop();
}
END_TEST

static void answer_nothing(int socket) {
    struct sw_msg msg;
    sw_play_greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_STATUS);
    sw_play_expect_end(socket);
}

START_TEST(options_limit_the_time_of_a_call) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_start(answer_nothing);
    ck_assert_int_eq(spillway_open(&sw_play.connection,
                                   SW_OPTIONS(.socket_path = sw_play.address.sun_path, .call_ms = 50), &sw_play.error),
                     0);
    sw_play_ck_error(spillway_status(sw_play.connection, &status, &sw_play.error), SPILLWAY_ETIMEDOUT,
                     SPILLWAY_SCOPE_REQUEST, "within 50 ms");
    spillway_close(sw_play.connection);
    sw_play_stop();
}
END_TEST

static void answer_late(int socket) {
    struct sw_msg adopt, status;
    sw_play_greet(socket);
    sw_play_expect(socket, &adopt, SW_MSG_ADOPT);
    sw_play_expect(socket, &status, SW_MSG_STATUS);
    sw_play_put_result(socket, adopt.header.seq, 5, SW_PLAY_BYTES);
    sw_play_put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    while (sw_play_get(socket, &status))
        ;
    sw_play_put_ok(socket, 0);
}

/* What the caller has given for it may be gone by then. */
START_TEST(an_answer_after_the_time_limit_is_written_nowhere) {
    struct spillway_status status = {.size = sizeof status};
    struct spillway_region region = {0};
    sw_play_open(answer_late);
    spillway_set_timeout(sw_play.connection, 20);
    sw_play_ck_error(spillway_adopt(sw_play.connection, "orders", &region, &sw_play.error), SPILLWAY_ETIMEDOUT,
                     SPILLWAY_SCOPE_REQUEST, "");
    spillway_set_timeout(sw_play.connection, SW_TEST_WAIT_MS);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    ck_assert(region.slot == 0 && region.generation == 0);
    sw_play_close();
}
END_TEST

/* To the byte: with its end it fits into a socket's address, or not. */
START_TEST(a_path_may_be_as_long_as_an_address) {
    char path[sizeof sw_play.address.sun_path + 1];
    const size_t bytes = sizeof sw_play.address.sun_path - 1 + (size_t)_i;
    memset(path, 'x', bytes);
    path[0] = '/';
    path[bytes] = 0;
    sw_play_ck_error(spillway_open(&sw_play.connection, SW_OPTIONS(.socket_path = path), &sw_play.error),
                     _i ? SPILLWAY_EINVAL : SPILLWAY_ENOSERVICE, SPILLWAY_SCOPE_SESSION, path + (_i ? bytes : 0));
}
END_TEST

static void take_a_plain_spill(int socket) {
    sw_play_greet(socket);
    sw_play_put_spilled(socket, sw_play_take_spill(socket), 1); /* and no question about frames */
    sw_play_expect_end(socket);
}

/* What the program says counts, not its environment, which need not even be valid then. */
START_TEST(options_go_before_the_environment) {
    ck_assert_int_eq(setenv("SPILLWAY_CODEC", _i ? "clients" : "client", 1), 0);
    sw_play_start(take_a_plain_spill);
    ck_assert_int_eq(spillway_open(&sw_play.connection,
                                   SW_OPTIONS(.socket_path = sw_play.address.sun_path, .flags = SPILLWAY_CODEC_SERVICE),
                                   &sw_play.error),
                     0);
    sw_play_make_data();
    ck_assert_int_eq(spillway_wait(sw_play_spill(), -1, NULL, 0, &sw_play.error), 0);
    spillway_close(sw_play.connection);
    sw_play_stop();
}
END_TEST

/* The first request of a connection has the number 1. */
static void greet_and_stop(int socket) {
    struct sw_msg msg,
        reply = {
            .u.hello_ok = {.version = SW_PROTO_VERSION, .max_in_flight = 1, .max_buffers = 1, .reconnect_ms = 1000}};
    sw_play_put(socket, &reply, SW_MSG_HELLO_OK, 1);
    sw_play_put_error(socket, 0, "ESHUTDOWN", SW_SCOPE_SESSION, "the service has been stopped");
    ck_assert_int_eq(sem_post(&answered), 0);
    sw_play_expect(socket, &msg, SW_MSG_HELLO);
}

/* Open fails: the connection that it would return could not be used, and would not come back. */
START_TEST(a_service_that_stops_behind_its_greeting) {
    const unsigned before = sw_count_fds();
    ck_assert_int_eq(sem_init(&answered, 0, 0), 0);
    awaits_answers = true;
    sw_play_start(greet_and_stop);
    const int rc =
        spillway_open(&sw_play.connection, SW_OPTIONS(.socket_path = sw_play.address.sun_path), &sw_play.error);
    sw_play_ck_error(rc, SPILLWAY_ESHUTDOWN, SPILLWAY_SCOPE_SESSION, "the service has been stopped");
    sw_play_stop();
    ck_assert_uint_eq(sw_count_fds(), before);
    ck_assert_int_eq(sw_alloc_live(), 0);
}
END_TEST

START_TEST(signals_do_not_make_open_wait_longer) {
    interrupts = true;
    sw_clock_set(played_clock);
    sw_play_ck_error(
        spillway_open(&sw_play.connection, SW_OPTIONS(.socket_path = "/nonexistent/socket"), &sw_play.error),
        SPILLWAY_ETIMEDOUT, SPILLWAY_SCOPE_SESSION, "did not take the connection in 10 s");
    sw_clock_set(NULL);
    ck_assert_uint_eq(n_attempts, 4);
    for (unsigned i = 0; i < n_attempts; i++)
        ck_assert_int_eq(patience_s[i], 10 - 3 * (long)i);
}
END_TEST

/* ---- a service that hangs ---------------------------------------------------------------------------------------- */

static struct spillway_region_info region_info = {.size = sizeof region_info};
static struct spillway_buffer_info buffer_infos[SPILLWAY_MAX_BUFFERS];
static struct spillway_packed_chunk chunk;
static const struct spillway_region some_region = {1, 1};

static int ask_status(void) {
    struct spillway_status status = {.size = sizeof status};
    return spillway_status(sw_play.connection, &status, &sw_play.error);
}

static int ask_drop(void) {
    return spillway_drop(sw_play.connection, &some_region, 1, &sw_play.error);
}

static int ask_query(void) {
    return spillway_query(sw_play.connection, some_region, &region_info, &sw_play.error);
}

static int ask_query_buffers(void) {
    uint32_t n;
    return spillway_query_buffers(sw_play.connection, some_region, buffer_infos, &n, &sw_play.error);
}

static int ask_query_packed(void) {
    uint32_t n;
    return spillway_query_packed(sw_play.connection, some_region, &chunk, 1, &n, &sw_play.error);
}

static int ask_adopt(void) {
    struct spillway_region region;
    return spillway_adopt(sw_play.connection, "orders", &region, &sw_play.error);
}

static int ask_advise(void) {
    return spillway_advise(sw_play.connection, some_region, SPILLWAY_ADVICE_PIN, 1, &sw_play.error);
}

static int ask_register(void) {
    return spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error);
}

static int (*const questions[])(void) = {ask_status,       ask_drop,  ask_query,  ask_query_buffers,
                                         ask_query_packed, ask_adopt, ask_advise, ask_register};

/* Answers nothing until the client has given up, then all. */
static void answer_too_late(int socket) {
    struct sw_msg msgs[8];
    unsigned n = 0;
    sw_play_greet(socket);
    do
        SW_ASSERT(n < 8 && sw_play_get(socket, &msgs[n++]));
    while (msgs[n - 1].header.type == SW_MSG_MEM_OPEN);
    (void)sem_wait(&sw_play.go);
    for (unsigned i = 0; i < n; i++)
        if (msgs[i].header.type == SW_MSG_STATUS)
            sw_play_put(socket, &msgs[i], SW_MSG_STATUS_OK, msgs[i].header.seq);
        else if (msgs[i].header.type == SW_MSG_MEM_OPEN || msgs[i].header.type == SW_MSG_MEM_PARTS)
            sw_play_put_ok(socket, msgs[i].header.seq);
        else
            sw_play_put_error(socket, msgs[i].header.seq, "ENOENT", SW_SCOPE_REQUEST, "late");
    while (sw_play_get(socket, &msgs[0]))
        if (msgs[0].header.type == SW_MSG_STATUS)
            sw_play_put(socket, &msgs[0], SW_MSG_STATUS_OK, msgs[0].header.seq);
        else
            sw_play_put_ok(socket, msgs[0].header.seq);
}

/* The connection goes on, and the late answer is ignored. */
START_TEST(a_service_that_hangs_is_not_waited_for) {
    sw_play_open(answer_too_late);
    spillway_set_timeout(sw_play.connection, 50);
    sw_play_ck_error(questions[_i](), SPILLWAY_ETIMEDOUT, SPILLWAY_SCOPE_REQUEST, "within 50 ms");
    spillway_set_timeout(sw_play.connection, -1);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    ck_assert_int_eq(ask_status(), 0);
    if (questions[_i] == ask_register)
        ck_assert_int_eq(ask_register(), 0); /* as if it had never been registered */
    sw_play_close();
}
END_TEST

static void close_late(int socket) {
    struct sw_msg msg;
    sw_play_greet(socket);
    (void)sw_play_register(socket);
    sw_play_expect(socket, &msg, SW_MSG_MEM_CLOSE);
    (void)sem_wait(&sw_play.go);
    sw_play_put_ok(socket, msg.header.seq);
    sw_play_expect_end(socket);
}

/* The memory is the service's until it has said that it is closed, by whichever call. */
START_TEST(a_close_that_timed_out_continues) {
    sw_play_open(close_late);
    ck_assert_int_eq(ask_register(), 0);
    spillway_set_timeout(sw_play.connection, 30);
    for (int i = 0; i < 2; i++)
        sw_play_ck_error(spillway_unregister(sw_play.connection, sw_play.data, &sw_play.error), SPILLWAY_ETIMEDOUT,
                         SPILLWAY_SCOPE_REQUEST, "MEM_CLOSE within 30 ms");
    sw_play_ck_error(ask_register(), SPILLWAY_EEXIST, SPILLWAY_SCOPE_REQUEST, "overlap");
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    spillway_set_timeout(sw_play.connection, -1);
    ck_assert_int_eq(spillway_unregister(sw_play.connection, sw_play.data, &sw_play.error), 0);
    sw_play_ck_error(spillway_unregister(sw_play.connection, sw_play.data, &sw_play.error), SPILLWAY_ENOENT,
                     SPILLWAY_SCOPE_REQUEST, "starts at");
    sw_play_close();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_client_open");
    TCase *tcase = tcase_create("open");
    tcase_add_loop_test(tcase, open_reports_why_not, 0, (int)(sizeof refusals / sizeof refusals[0]));
    tcase_add_test(tcase, open_needs_a_listening_service);
    tcase_add_test(tcase, a_socket_of_another_kind_is_named);
    tcase_add_test(tcase, calls_may_have_no_time_limit);
    tcase_add_test(tcase, an_untrusted_server_gets_no_data);
    tcase_add_test(tcase, naming_another_user_does_not_make_a_server_trusted);
    tcase_add_test(tcase, a_server_uid_must_be_a_number);
    tcase_add_test(tcase, options_are_checked);
    tcase_add_test(tcase, options_may_take_all_limits_away);
    tcase_add_test(tcase, options_limit_the_time_of_a_call);
    tcase_add_test(tcase, an_answer_after_the_time_limit_is_written_nowhere);
    tcase_add_loop_test(tcase, a_path_may_be_as_long_as_an_address, 0, 2);
    tcase_add_loop_test(tcase, options_go_before_the_environment, 0, 2);
    tcase_add_loop_test(tcase, a_named_server_user_is_trusted, 0, 2);
    tcase_add_test(tcase, a_service_that_stops_behind_its_greeting);
    tcase_add_test(tcase, signals_do_not_make_open_wait_longer);
    tcase_add_test(tcase, open_waits_for_ten_seconds_in_all);
    tcase_add_loop_test(tcase, a_service_that_hangs_is_not_waited_for, 0,
                        (int)(sizeof questions / sizeof questions[0]));
    tcase_add_test(tcase, a_close_that_timed_out_continues);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

/* A client and a service manager after a restart, or without one: single cases, without load (restart.c has load). */
#include "base/clock.h"
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/must.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"
#include "tests/lib/served.h"
#include "tests/lib/supervisor.h"
#include "tests/lib/wire.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PLACE_BYTES = 1 << 20 };

static const char *const in_memory[] = {"log_level=warning", NULL};

static struct spillway *connect_to(const struct sw_supervisor *s) {
    struct spillway *connection = NULL;
    struct spillway_error error;
    MUST(spillway_open(&connection, SW_OPTIONS(.socket_path = s->daemon.socket), &error) == 0, &error);
    return connection;
}

static struct spillway_region spill_some(struct spillway *connection, uint8_t *memory, uint64_t bytes) {
    struct spillway_ticket *ticket;
    struct spillway_result result = {.size = sizeof result};
    struct spillway_error error;
    sw_content_fill(memory, bytes, SW_CONTENT_TEXT, 7);
    MUST(spillway_spill(connection, SW_REQUEST(SW_ONE(memory, bytes)), 1, &ticket, &error) == 0, &error);
    MUST(spillway_wait(ticket, SW_TEST_WAIT_MS, &result, 1, &error) == 0, &error);
    spillway_ticket_free(ticket);
    return result.region;
}

/* A call of many requests that the client encodes, with a restart at any time. Requests that have begun must be
 * repeated. The others go on with the new process, which first needs the frame buffers. */
START_TEST(coded_batch_goes_on_with_the_next_process) {
    enum { N = 24, EACH_BYTES = 4 << 20, ROUNDS = 6 };
    static const char *const options[] = {"log_level=warning", "host_tier_bytes=1GiB", NULL};
    static struct sw_supervisor s;
    struct spillway_buffer buffers[N];
    struct spillway_request requests[N];
    struct spillway_result results[N];
    struct spillway_ticket *ticket;
    struct spillway_error error;
    struct spillway *c = NULL;
    unsigned n_stored = 0;
    uint8_t *memory = malloc((size_t)N * EACH_BYTES), *back = malloc(EACH_BYTES);
    ck_assert(memory && back);
    sw_content_fill(memory, (size_t)N * EACH_BYTES, SW_CONTENT_TEXT, 3);
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, options);
    MUST(spillway_open(&c, SW_OPTIONS(.socket_path = s.daemon.socket, .flags = SPILLWAY_CODEC_CLIENT), &error) == 0,
         &error);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < N; i++) {
            buffers[i] = (struct spillway_buffer){.data = memory + (size_t)i * EACH_BYTES, .bytes = EACH_BYTES};
            requests[i] = (struct spillway_request){
                .size = sizeof requests[i], .buffers = &buffers[i], .n_buffers = 1, .flags = SPILLWAY_EACH};
        }
        results[0].size = sizeof results[0];
        MUST(spillway_spill(c, requests, N, &ticket, &error) == 0, &error);
        (void)spillway_wait(ticket, (int)(10 * round), NULL, 0, &error);
        ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
        ck_assert(sw_supervisor_spawn(&s));
        const int rc = spillway_wait(ticket, SW_TEST_WAIT_MS, results, N, &error);
        ck_assert_msg(rc == 0 || rc == -SPILLWAY_ERESTARTED, "round %u: %s: %s", round, error.name, error.text);
        spillway_ticket_free(ticket);
        for (unsigned i = 0; i < N; i++) {
            if (results[i].code == -SPILLWAY_ERESTARTED)
                continue;
            ck_assert_int_eq(results[i].code, 0);
            buffers[i].data = back;
            requests[i].region = results[i].region;
            MUST(spillway_restore(c, &requests[i], 1, &ticket, &error) == 0, &error);
            MUST(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &error) == 0, &error);
            spillway_ticket_free(ticket);
            ck_assert_int_eq(memcmp(back, memory + (size_t)i * EACH_BYTES, EACH_BYTES), 0);
            n_stored++;
        }
    }
    ck_assert_uint_gt(n_stored, 0);
    spillway_close(c);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
    free(back);
    free(memory);
}
END_TEST

/* The store is gone: the client gets an error, and old ids are unknown. */
START_TEST(lost_store_ends_the_connection) {
    static struct sw_supervisor s;
    struct spillway_region_info info = {.size = sizeof info};
    struct spillway_error error;
    uint8_t *memory = sw_served_memory(PLACE_BYTES);
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, in_memory);
    struct spillway *connection = connect_to(&s);
    const struct spillway_region region = spill_some(connection, memory, 100000);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    sw_supervisor_forget(&s);
    ck_assert(sw_supervisor_spawn(&s));
    ck_assert_int_eq(spillway_query(connection, region, &info, &error), -SPILLWAY_ERESTARTED);
    ck_assert_int_eq(error.scope, SPILLWAY_SCOPE_SESSION);
    spillway_close(connection);
    connection = connect_to(&s);
    ck_assert_int_lt(spillway_query(connection, region, &info, &error), 0);
    spillway_close(connection);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
}
END_TEST

/* A service that has just begun hands its memory to its supervisor, which is this process. */
static unsigned count_fds_at_rest(void) {
    unsigned before;
    do {
        before = sw_count_fds();
        sleep_us(500000);
    } while (sw_count_fds() != before);
    return before;
}

/* A connection takes four descriptors, one of them to reconnect. With fewer left the error names the program's limit,
 * and no descriptor leaks. */
START_TEST(too_few_descriptors_for_a_connection) {
    enum { NEEDED = 4 };
    static struct sw_supervisor s;
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, in_memory);
    const unsigned before = count_fds_at_rest();
    for (unsigned n = 0; n <= NEEDED; n++) {
        struct spillway *connection = NULL;
        struct spillway_error error;
        sw_leave_fds(n);
        const int rc = spillway_open(&connection, SW_OPTIONS(.socket_path = s.daemon.socket), &error);
        sw_leave_all_fds();
        ck_assert_msg(rc == (n < NEEDED ? -SPILLWAY_ELIMIT : 0), "%u left: %s: %s", n, error.name, error.text);
        ck_assert_int_eq(error.scope, rc < 0 ? SPILLWAY_SCOPE_SESSION : SPILLWAY_SCOPE_REQUEST);
        ck_assert_uint_eq(sw_count_fds(), before + (rc < 0 ? 0 : NEEDED));
        spillway_close(connection);
    }
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
}
END_TEST

/* A process of its own, which spills, tells so, and ends when it is killed. */
static pid_t start_client(const struct sw_supervisor *s) {
    int told[2];
    char c;
    ck_assert_int_eq(pipe(told), 0);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct spillway *connection = connect_to(s);
        (void)spill_some(connection, sw_served_memory(PLACE_BYTES), 100000);
        ck_assert_int_eq(write(told[1], "x", 1), 1);
        for (;;)
            (void)pause();
    }
    (void)close(told[1]);
    ck_assert_int_eq(read(told[0], &c, 1), 1);
    (void)close(told[0]);
    return pid;
}

/* A client that makes no call does not notice a restart. Sessions of ended processes end after the grace period;
 * sessions of running ones wait. */
START_TEST(sessions_that_are_not_resumed_end) {
    static const char *const options[] = {"log_level=info", "reconnect_grace_s=1", NULL};
    static struct sw_supervisor s;
    struct spillway_status status = {.size = sizeof status, .regions = 3};
    struct spillway_ticket *ticket;
    struct spillway_error error;
    uint8_t *memory = sw_served_memory(PLACE_BYTES);
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, options);
    const pid_t ended = start_client(&s), late = start_client(&s);
    struct spillway *idle = connect_to(&s);
    const struct spillway_region region = spill_some(idle, memory, 100000);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    ck_assert_int_eq(kill(ended, SIGKILL), 0);
    ck_assert_int_eq(waitpid(ended, NULL, 0), ended);
    ck_assert(sw_supervisor_spawn(&s));
    struct spillway *other = connect_to(&s);
    while (status.regions > 2) { /* ends with the test's time limit, if not */
        MUST(spillway_status(other, &status, &error) == 0, &error);
        sleep_us(10000);
    }
    sleep_us(3500000); /* and more often than once: for an hour */
    MUST(spillway_status(other, &status, &error) == 0, &error);
    ck_assert_uint_eq(status.regions, 2);
    ck_assert_uint_eq(sw_test_daemon_logged(&s.daemon, "event=sessions.expired sessions=1"), 1);
    ck_assert_int_eq(kill(late, SIGKILL), 0); /* its session waits no longer than the next turn */
    ck_assert_int_eq(waitpid(late, NULL, 0), late);
    while (status.regions > 1) {
        MUST(spillway_status(other, &status, &error) == 0, &error);
        sleep_us(10000);
    }
    ck_assert_uint_eq(sw_test_daemon_logged(&s.daemon, "event=sessions.expired sessions=1"), 2);
    memset(memory, 0, 100000);
    MUST(spillway_restore(idle, SW_REQUEST(SW_ONE(memory, 100000), .region = region), 1, &ticket, &error) == 0, &error);
    MUST(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &error) == 0, &error);
    uint8_t *expected = sw_served_memory(PLACE_BYTES);
    sw_content_fill(expected, 100000, SW_CONTENT_TEXT, 7);
    ck_assert_mem_eq(memory, expected, 100000);
    MUST(spillway_status(other, &status, &error) == 0, &error);
    ck_assert_uint_eq(status.tier_used_bytes, 0);
    spillway_close(other);
    spillway_close(idle);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
}
END_TEST

/* A service in a pid namespace of its own, with each start a new one, as in a container. Clients outside have pid 0
 * there, so it is unknown whether they run, and they have an hour. */
START_TEST(a_client_that_cannot_be_seen_comes_back) {
    static const char *const options[] = {"log_level=info", "reconnect_grace_s=1", NULL};
    static struct sw_supervisor s;
    char script[SW_TEST_PATH_BYTES];
    struct spillway_status status = {.size = sizeof status};
    struct spillway_ticket *ticket;
    struct spillway_error error;
    uint8_t *memory = sw_served_memory(PLACE_BYTES);
    sw_test_daemon_script(script,
                          "exec unshare --pid --fork --kill-child=KILL sh -c 'export LISTEN_PID=$$; exec \"$@\"' sh",
                          SW_SPILLWAYD_PATH);
    sw_supervisor_start(&s, script, options);
    ck_assert_uint_eq(sw_test_daemon_logged(&s.daemon, "event=session.open"), 0);
    struct spillway *idle = connect_to(&s);
    ck_assert_uint_eq(sw_test_daemon_logged(&s.daemon, "event=session.open session=1 pid=0 "), 1);
    const struct spillway_region region = spill_some(idle, memory, 100000);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    ck_assert(sw_supervisor_spawn(&s));
    sleep_us(3500000); /* of which a second is the grace period */
    struct spillway *other = connect_to(&s);
    MUST(spillway_status(other, &status, &error) == 0, &error);
    ck_assert_uint_eq(status.regions, 1);
    ck_assert_uint_eq(sw_test_daemon_logged(&s.daemon, "event=sessions.expired"), 0);
    MUST(spillway_restore(idle, SW_REQUEST(SW_ONE(memory, 100000), .region = region), 1, &ticket, &error) == 0, &error);
    MUST(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &error) == 0, &error);
    ck_assert_uint_eq(sw_test_daemon_logged(&s.daemon, " resumed=yes"), 1);
    spillway_close(other);
    spillway_close(idle);
    (void)sw_supervisor_stop(&s, SIGKILL); /* unshare(1) hands no other signal on */
    sw_supervisor_end(&s);
    ck_assert_int_eq(unlink(script), 0);
}
END_TEST

static bool may_have_pid_namespaces(void) {
    return system("unshare --pid --fork --kill-child=KILL true >/dev/null 2>&1") == 0;
}

/* The service does not come back: the library gives up in time, and says so. */
START_TEST(a_client_gives_up_in_time) {
    static struct sw_supervisor s;
    struct spillway_status status = {.size = sizeof status};
    struct spillway_error error;
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, in_memory);
    struct spillway *connection = connect_to(&s);
    spillway_set_reconnect(connection, 50);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    const uint64_t begun_us = sw_clock_us();
    ck_assert_int_eq(spillway_status(connection, &status, &error), -SPILLWAY_ESHUTDOWN);
    ck_assert_uint_ge(sw_clock_us() - begun_us, 40000);
    for (int i = 0; i < 2; i++) { /* the event loop notices it, however late */
        struct pollfd watched = {.fd = spillway_fd(connection), .events = POLLIN};
        ck_assert_int_eq(poll(&watched, 1, 1000), 1);
        ck_assert_int_eq(spillway_dispatch(connection, &error), -SPILLWAY_ESHUTDOWN);
    }
    spillway_close(connection);
    sw_supervisor_end(&s);
}
END_TEST

/* The socket that clients wait in is there while the service is not; one that a socket unit made is used, too. */
START_TEST(socket_of_the_manager_is_used) {
    static struct sw_supervisor s;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    sw_supervisor_init(&s, SW_SPILLWAYD_PATH, in_memory);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", s.daemon.socket);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(fd, 8), 0);
    sw_supervisor_store(&s, "spillwayd.socket", fd);
    ck_assert(sw_supervisor_spawn(&s));
    struct spillway *connection = connect_to(&s);
    spillway_close(connection);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    ck_assert_int_eq(access(s.daemon.socket, F_OK), 0); /* the manager's to remove */
    ck_assert(sw_supervisor_spawn(&s));
    connection = connect_to(&s);
    spillway_close(connection);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
}
END_TEST

/* A start that fails has taken nothing from the store: the next one finds all of it. */
static void wait_for(struct spillway_ticket *ticket) {
    struct spillway_error error;
    MUST(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &error) == 0, &error);
    spillway_ticket_free(ticket);
}

/* After a change to shorter chunks, regions that were stored in longer ones still come back. */
START_TEST(longer_chunks_come_back) {
    static const struct {
        const char *before[3], *after[3];
    } rows[] = {
        {{"chunk_bytes=1MiB", "log_level=error"}, {"chunk_bytes=64KiB", "log_level=error"}},
        {{"slots=1", "log_level=error"}, {"slots=16", "log_level=error"}},
    };
    enum { BIG = 24 << 20, SMALL = 4096 };
    static struct sw_supervisor s;
    struct spillway_ticket *ticket;
    struct spillway_result packed = {.size = sizeof packed};
    struct spillway_error error;
    const int fd = sw_wire_memfd(NULL, BIG, 0);
    uint8_t *big = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *expected = malloc(BIG);
    uint8_t *small = sw_served_memory(PLACE_BYTES), *in_place = sw_served_memory(PLACE_BYTES);
    ck_assert(big != MAP_FAILED && expected);
    sw_content_fill(expected, BIG, SW_CONTENT_TEXT, 7);
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, rows[_i].before);
    struct spillway *connection = connect_to(&s);
    const struct spillway_region long_one = spill_some(connection, big, BIG),
                                 short_one = spill_some(connection, small, SMALL);
    memcpy(in_place, expected, PLACE_BYTES);
    MUST(spillway_spill(connection, SW_REQUEST(SW_ONE(in_place, PLACE_BYTES), .flags = SPILLWAY_IN_PLACE), 1, &ticket,
                        &error) == 0,
         &error);
    MUST(spillway_wait(ticket, SW_TEST_WAIT_MS, &packed, 1, &error) == 0, &error);
    spillway_ticket_free(ticket);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    s.options = rows[_i].after;
    ck_assert(sw_supervisor_spawn(&s));
    memset(big, 0, BIG);
    memset(small, 0, SMALL);
    MUST(spillway_restore(connection, SW_REQUEST(SW_ONE(big, BIG), .region = long_one), 1, &ticket, &error) == 0,
         &error);
    wait_for(ticket);
    ck_assert_mem_eq(big, expected, BIG);
    MUST(spillway_restore(connection, SW_REQUEST(SW_ONE(small, SMALL), .region = short_one), 1, &ticket, &error) == 0,
         &error);
    wait_for(ticket);
    ck_assert_mem_eq(small, expected, SMALL);
    MUST(spillway_restore(
             connection, SW_REQUEST(SW_ONE(in_place, PLACE_BYTES), .region = packed.region, .flags = SPILLWAY_IN_PLACE),
             1, &ticket, &error) == 0,
         &error);
    wait_for(ticket);
    ck_assert_mem_eq(in_place, expected, PLACE_BYTES);
    spillway_close(connection);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
    (void)close(fd);
    free(expected);
}
END_TEST

START_TEST(failed_start_keeps_what_is_stored) {
    static const char *const no_such_device[] = {"device=cuda", NULL};
    static struct sw_supervisor s;
    struct spillway_ticket *ticket;
    struct spillway_error error;
    uint8_t *memory = sw_served_memory(PLACE_BYTES);
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, in_memory);
    struct spillway *connection = connect_to(&s);
    const struct spillway_region region = spill_some(connection, memory, 100000);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    const unsigned n_stored = sw_supervisor_n_stored(&s);
    s.options = no_such_device;
    if (sw_supervisor_spawn(&s)) /* there is one here */
        ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    ck_assert_uint_eq(sw_supervisor_n_stored(&s), n_stored);
    s.options = in_memory;
    ck_assert(sw_supervisor_spawn(&s));
    memset(memory, 0, PLACE_BYTES);
    MUST(spillway_restore(connection, SW_REQUEST(SW_ONE(memory, PLACE_BYTES), .region = region), 1, &ticket, &error) ==
             0,
         &error);
    MUST(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &error) == 0, &error);
    spillway_ticket_free(ticket);
    uint8_t *expected = calloc(1, PLACE_BYTES);
    sw_content_fill(expected, 100000, SW_CONTENT_TEXT, 7);
    ck_assert_mem_eq(memory, expected, 100000);
    free(expected);
    spillway_close(connection);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
}
END_TEST

static unsigned watchdogs(struct sw_supervisor *s) {
    (void)pthread_mutex_lock(&s->lock);
    const unsigned n = s->n_watchdog;
    (void)pthread_mutex_unlock(&s->lock);
    return n;
}

/* It is fed while the service is well, and not while it hangs. */
START_TEST(watchdog_is_fed) {
    static struct sw_supervisor s;
    sw_supervisor_init(&s, SW_SPILLWAYD_PATH, in_memory);
    s.handover.watchdog_ms = 2000;
    ck_assert(sw_supervisor_spawn(&s));
    while (watchdogs(&s) < 3)
        sleep_us(10000);
    sw_test_daemon_pause(&s.daemon);
    sleep_us(100000);
    const unsigned before = watchdogs(&s);
    sleep_us(1200000);
    ck_assert_uint_eq(watchdogs(&s), before);
    ck_assert_int_eq(kill(s.daemon.pid, SIGCONT), 0);
    while (watchdogs(&s) == before)
        sleep_us(10000);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("after_restart");
    TCase *tcase = tcase_create("after_restart");
    sw_test_slow(tcase, 90);
    tcase_add_test(tcase, coded_batch_goes_on_with_the_next_process);
    tcase_add_test(tcase, lost_store_ends_the_connection);
    tcase_add_test(tcase, too_few_descriptors_for_a_connection);
    tcase_add_test(tcase, sessions_that_are_not_resumed_end);
    if (may_have_pid_namespaces())
        tcase_add_test(tcase, a_client_that_cannot_be_seen_comes_back);
    else
        (void)printf("left out: this user may not make pid namespaces (unshare --pid)\n");
    tcase_add_test(tcase, a_client_gives_up_in_time);
    tcase_add_test(tcase, socket_of_the_manager_is_used);
    tcase_add_test(tcase, failed_start_keeps_what_is_stored);
    tcase_add_loop_test(tcase, longer_chunks_come_back, 0, 2);
    tcase_add_test(tcase, watchdog_is_fed);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

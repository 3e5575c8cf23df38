/* One user against all others, with the default configuration. Until the user is refused, the service uses no more
 * memory for it than the budget; other users are served meanwhile; and when the user has gone, all memory is given
 * back. */
#include "base/clock.h"
#include "tests/lib/run.h"
#include "tests/lib/sound.h"
#include "tests/lib/wire.h"
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

enum { OTHERS_UID = 77777, MOST_SESSIONS = 64, PARTS = 4096, SHORT_BYTES = 4096 };

static const char *const options[] = {"data_socket_mode=\"0666\"", "bookkeeping_bytes=32MiB", "max_sessions=32",
                                      "tenant_bytes=64MiB", NULL};

static struct sw_test_daemon daemon_process;

static void setup(void) {
    struct rlimit limit = {.rlim_cur = 20000, .rlim_max = 20000};
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    sw_test_daemon_start(&daemon_process, SW_SPILLWAYD_PATH, options);
    ck_assert_int_eq(chmod(daemon_process.folder, 0755), 0);
    ck_assert_ptr_null(sw_sound_round_trip(&daemon_process, 300000, 7));
}

static void teardown(void) {
    ck_assert_int_eq(sw_test_daemon_stop(&daemon_process, SIGTERM), 0);
    sw_test_daemon_clean(&daemon_process);
}

static struct sw_wire wires[MOST_SESSIONS];

/* Returns whether the service takes it: a refused client gets the error without a request. */
static bool is_taken(struct sw_wire *wire) {
    struct sw_msg msg = {.header = {.type = SW_MSG_HELLO}};
    msg.u.hello.version = SW_PROTO_OLDEST_VERSION;
    (void)sw_wire_send(wire, &msg, NULL, 0);
    ck_assert_int_eq(sw_wire_receive(wire, &msg), 1);
    return msg.header.type == SW_MSG_HELLO_OK;
}

/* Opens as many sessions as one user may have. Returns their number. */
static unsigned open_all(void) {
    unsigned n = 0;
    for (; n < MOST_SESSIONS && sw_wire_connect(&wires[n], daemon_process.socket); n++)
        if (!is_taken(&wires[n])) {
            sw_wire_close(&wires[n]);
            break;
        }
    return n;
}

static uint64_t anonymous_bytes(void) {
    return (uint64_t)sw_test_daemon_anonymous_kib(&daemon_process) << 10;
}

/* A round trip of another user, if there can be one, and how long it takes. */
static void ck_others_are_served(void) {
    int status = -1;
    const uint64_t before_us = sw_clock_us();
    const pid_t pid = getuid() == 0 ? fork() : -1;
    if (pid < 0)
        return; /* only root can be two users */
    if (pid == 0) {
        if (setgid(OTHERS_UID) || setuid(OTHERS_UID))
            _exit(2);
        _exit(sw_sound_round_trip(&daemon_process, 300000, 9) ? 1 : 0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert_uint_lt(sw_clock_us() - before_us, 20000000);
}

static void close_all(unsigned n) {
    for (unsigned i = 0; i < n; i++)
        sw_wire_close(&wires[i]);
}

static void ck_given_back(uint64_t before) {
    const uint64_t begin_us = sw_clock_us();
    struct sw_wire wire = {0};
    struct sw_msg_status_ok status = {.sessions = 99};
    while (sw_wire_connect(&wire, daemon_process.socket) && !is_taken(&wire)) /* the others' sessions are ending */
        sw_wire_close(&wire);
    while (status.sessions > 1 && sw_clock_us() - begin_us < 20000000) {
        ck_assert_int_eq(sw_wire_status(&wire, &status), 0);
        (void)usleep(1000);
    }
    ck_assert_uint_eq(status.sessions, 1);
    ck_assert_uint_eq(status.regions, 0);
    sw_wire_close(&wire);
    /* Freed memory may stay in the heap, but it is reused: the next round does not grow. */
    ck_assert_uint_lt(anonymous_bytes(), before + 64 * MIB);
}

/* Each session announces memories with parts that never come, until none is taken any more. */
static unsigned announce(unsigned n_sessions) {
    unsigned n_refused = 0;
    for (unsigned i = 0; i < n_sessions; i++)
        for (uint32_t mem = 1; mem <= 1024; mem++) {
            const int rc = sw_wire_mem_open(&wires[i], mem, SW_MEM_CUDA_VMM, PARTS, 0, SHORT_BYTES);
            ck_assert(rc == 0 || rc == -SW_ETENANTMEMORY);
            n_refused += rc != 0;
        }
    return n_refused;
}

START_TEST(announced_memories_that_never_arrive) {
    const uint64_t before = anonymous_bytes();
    for (int round = 0; round < 2; round++) {
        const unsigned n = open_all();
        ck_assert_uint_gt(n, 1);
        ck_assert_uint_lt(n, 32); /* not all that there may be */
        ck_assert_uint_gt(announce(n < 4 ? n : 4), 0);
        ck_assert_uint_lt(anonymous_bytes(), before + 64 * MIB);
        ck_others_are_served();
        close_all(n);
        ck_given_back(before);
    }
}
END_TEST

START_TEST(empty_regions) {
    enum { BATCHES = 2000 };
    const uint64_t before = anonymous_bytes();
    struct sw_region_id ids[SW_PROTO_MAX_BATCH];
    const int fd = sw_wire_content_memfd(SHORT_BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK);
    const unsigned n = open_all();
    int rc = 0;
    unsigned i = 0;
    for (; rc == 0 && i < n; i++) {
        ck_assert_int_eq(sw_wire_mem(&wires[i], 1, fd, SHORT_BYTES, false), 0);
        for (unsigned k = 0; rc == 0 && k < BATCHES; k++)
            rc = sw_wire_spill_batch(&wires[i], 1, SW_PROTO_MAX_BATCH, 0, ids);
        if (rc == -SW_ELIMIT)
            rc = 0; /* of the session */
    }
    ck_assert_int_eq(rc, -SW_ETENANTMEMORY);
    ck_assert_uint_lt(anonymous_bytes(), before + 64 * MIB);
    ck_others_are_served();
    close_all(n);
    ck_given_back(before);
    (void)close(fd);
}
END_TEST

/* A memory of many GB without a page: a spill that may fit begins, and costs one record for each chunk. */
START_TEST(very_short_spills) {
    enum { AT_ONCE = 200 };
    const uint64_t bytes = (uint64_t)16 << 30, before = anonymous_bytes();
    const int fd = sw_wire_memfd(NULL, 0, 0);
    ck_assert(ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    sw_wire_open(&wires[0], daemon_process.socket);
    ck_assert_int_eq(sw_wire_mem(&wires[0], 1, fd, bytes, false), 0);
    for (unsigned i = 0; i < AT_ONCE; i++) {
        struct sw_msg msg = sw_wire_spill_msg(1, 0, bytes);
        (void)sw_wire_send(&wires[0], &msg, NULL, 0);
    }
    (void)usleep(300000);
    ck_assert_uint_lt(anonymous_bytes(), before + 64 * MIB);
    sw_wire_close(&wires[0]);
    ck_given_back(before);
    ck_others_are_served();
    (void)close(fd);
}
END_TEST

START_TEST(one_user_cannot_fill_the_log) {
    struct sw_wire wire;
    sw_wire_open(&wire, daemon_process.socket);
    for (uint32_t mem = 0; mem < 2000; mem++)
        ck_assert_int_eq(sw_wire_mem_close(&wire, mem), -SW_ENOENT);
    sw_wire_close(&wire);
    const unsigned n = sw_test_daemon_logged(&daemon_process, "event=request.failed");
    ck_assert_uint_ge(n, 10);
    ck_assert_uint_le(n, 40); /* ten in ten seconds */
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("budgets");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, announced_memories_that_never_arrive);
    tcase_add_test(tests, empty_regions);
    tcase_add_test(tests, very_short_spills);
    tcase_add_test(tests, one_user_cannot_fill_the_log);
    Suite *suite = suite_create("budgets");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

/* A client and a service manager after a restart, or without one: single cases, without load (restart.c has load). */
#include "base/clock.h"
#include "codec/plan/planning.h"
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/must.h"
#include "tests/lib/packets.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"
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
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PLACE_BYTES = 1 << 20 };

static const char *const in_memory[] = {"log_level=warning", NULL};

static uint8_t *new_memory(void) {
    const int fd = sw_wire_memfd(NULL, PLACE_BYTES, 0);
    uint8_t *memory = mmap(NULL, PLACE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    (void)close(fd);
    return memory;
}

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

/* The store is gone: the client gets an error, and old ids are unknown. */
START_TEST(lost_store_ends_the_connection) {
    static struct sw_supervisor s;
    struct spillway_region_info info = {.size = sizeof info};
    struct spillway_error error;
    uint8_t *memory = new_memory();
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
        (void)spill_some(connection, new_memory(), 100000);
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
    struct spillway_status status = {.size = sizeof status, .regions = 2};
    struct spillway_ticket *ticket;
    struct spillway_error error;
    uint8_t *memory = new_memory();
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, options);
    const pid_t ended = start_client(&s);
    struct spillway *idle = connect_to(&s);
    const struct spillway_region region = spill_some(idle, memory, 100000);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    ck_assert_int_eq(kill(ended, SIGKILL), 0);
    ck_assert_int_eq(waitpid(ended, NULL, 0), ended);
    ck_assert(sw_supervisor_spawn(&s));
    struct spillway *other = connect_to(&s);
    while (status.regions > 1) { /* ends with the test's time limit, if not */
        MUST(spillway_status(other, &status, &error) == 0, &error);
        sleep_us(10000);
    }
    sleep_us(2500000); /* and more often than once */
    MUST(spillway_status(other, &status, &error) == 0, &error);
    ck_assert_uint_eq(status.regions, 1);
    ck_assert_uint_eq(sw_test_daemon_logged(&s.daemon, "event=sessions.expired sessions=1"), 1);
    memset(memory, 0, 100000);
    MUST(spillway_restore(idle, SW_REQUEST(SW_ONE(memory, 100000), .region = region), 1, &ticket, &error) == 0, &error);
    MUST(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &error) == 0, &error);
    uint8_t *expected = new_memory();
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
    uint8_t *memory = new_memory();
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
    uint8_t *small = new_memory(), *in_place = new_memory();
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
    uint8_t *memory = new_memory();
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

/* Bytes that do not shrink; region i's. */
enum { RANDOM_BYTES = 1000001 };

static struct spillway_region spill_random(struct spillway *connection, uint8_t *memory, unsigned i) {
    struct spillway_ticket *ticket;
    struct spillway_result result = {.size = sizeof result};
    struct spillway_error error;
    sw_content_fill(memory, RANDOM_BYTES, SW_CONTENT_RANDOM, i);
    MUST(spillway_spill(connection, SW_REQUEST(SW_ONE(memory, RANDOM_BYTES)), 1, &ticket, &error) == 0, &error);
    MUST(spillway_wait(ticket, SW_TEST_WAIT_MS, &result, 1, &error) == 0, &error);
    spillway_ticket_free(ticket);
    return result.region;
}

/* 0: these are its bytes; or why it has none. */
static int restore_random(struct spillway *connection, uint8_t *memory, struct spillway_region region, unsigned i) {
    struct spillway_ticket *ticket;
    struct spillway_error error;
    uint8_t *expected = calloc(1, PLACE_BYTES);
    sw_content_fill(expected, RANDOM_BYTES, SW_CONTENT_RANDOM, i);
    memset(memory, 0, RANDOM_BYTES);
    MUST(spillway_restore(connection,
                          SW_REQUEST(SW_ONE(memory, RANDOM_BYTES), .region = region, .flags = SPILLWAY_KEEP), 1,
                          &ticket, &error) == 0,
         &error);
    const int rc = spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &error);
    spillway_ticket_free(ticket);
    if (!rc)
        ck_assert_mem_eq(memory, expected, RANDOM_BYTES);
    free(expected);
    return rc;
}

/* Plain text on the disk stays, new frames are encrypted, and both survive. */
START_TEST(encryption_is_turned_on) {
    enum { N = 8 };
    static struct sw_supervisor s;
    static struct spillway_region regions[2 * N];
    char folder[SW_TEST_PATH_BYTES], option[SW_TEST_PATH_BYTES + 32];
    struct spillway_status status = {.size = sizeof status};
    struct spillway_error error;
    uint8_t *memory = new_memory();
    sw_test_folder_here(folder);
    (void)snprintf(option, sizeof option, "nvme_tier_directory=%s/nvme", folder);
    const char *options[] = {"log_level=warning",          option,
                             "nvme_encrypt=off",           "nvme_tier_bytes=64 MiB",
                             "host_tier_bytes=8 MiB",      "host_tier_initial_bytes=8 MiB",
                             "host_tier_slab_bytes=2 MiB", NULL};
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, options);
    struct spillway *connection = connect_to(&s);
    for (unsigned i = 0; i < 2 * N; i++) {
        if (i == N) {
            options[2] = "nvme_encrypt=on";
            ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
            ck_assert(sw_supervisor_spawn(&s));
        }
        regions[i] = spill_random(connection, memory, i);
    }
    MUST(spillway_status(connection, &status, &error) == 0, &error);
    ck_assert_uint_gt(status.nvme_used_bytes, (uint64_t)N * RANDOM_BYTES); /* of both */
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    ck_assert(sw_supervisor_spawn(&s));
    for (unsigned i = 0; i < 2 * N; i++)
        ck_assert_int_eq(restore_random(connection, memory, regions[i], i), 0);
    spillway_close(connection);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
}
END_TEST

/* Plain or encrypted: regions on the disk are back when the disk is. */
START_TEST(a_start_without_the_disk_keeps_what_is_on_it) {
    enum { N = 8 };
    static struct sw_supervisor s;
    static struct spillway_region regions[N];
    char folder[SW_TEST_PATH_BYTES], option[SW_TEST_PATH_BYTES + 32];
    unsigned n_lost = 0;
    uint8_t *memory = new_memory();
    sw_test_folder_here(folder);
    (void)snprintf(option, sizeof option, "nvme_tier_directory=%s/nvme", folder);
    const char *options[] = {_i ? "nvme_encrypt=on" : "nvme_encrypt=off",
                             option,
                             "log_level=warning",
                             "nvme_tier_bytes=64 MiB",
                             "host_tier_bytes=8 MiB",
                             "host_tier_initial_bytes=8 MiB",
                             "host_tier_slab_bytes=2 MiB",
                             NULL};
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, options);
    struct spillway *connection = connect_to(&s);
    for (unsigned i = 0; i < N; i++)
        regions[i] = spill_random(connection, memory, i);
    options[1] = "nvme_tier_directory=none";
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    ck_assert(sw_supervisor_spawn(&s));
    for (unsigned i = 0; i < N; i++) {
        const int rc = restore_random(connection, memory, regions[i], i);
        ck_assert(rc == 0 || rc == -SPILLWAY_ELOST);
        n_lost += rc != 0;
    }
    ck_assert_uint_gt(n_lost, 0);
    options[1] = option;
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    ck_assert(sw_supervisor_spawn(&s));
    for (unsigned i = 0; i < N; i++)
        ck_assert_int_eq(restore_random(connection, memory, regions[i], i), 0);
    spillway_close(connection);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
}
END_TEST

/* Disk reads of a killed process arrive in memory that its successor has, with or without that disk. They hit nothing
 * of the successor's. */
START_TEST(a_killed_process_has_requests_at_the_disk) {
    static struct sw_supervisor s;
    char folder[SW_TEST_PATH_BYTES], option[SW_TEST_PATH_BYTES + 32];
    struct spillway_error error;
    struct spillway_ticket *ticket;
    uint8_t *memory = new_memory();
    int ends[2];
    sw_test_folder_here(folder);
    (void)snprintf(option, sizeof option, "nvme_tier_directory=%s/nvme", folder);
    const char *options[] = {option,
                             "log_level=info",
                             "nvme_tier_bytes=64 MiB",
                             "host_tier_bytes=4 MiB",
                             "host_tier_initial_bytes=0",
                             "host_tier_slab_bytes=4 MiB",
                             NULL};
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, options);
    struct spillway *connection = connect_to(&s);
    const struct spillway_region region = spill_random(connection, memory, 1);
    const unsigned n_stored = sw_supervisor_n_stored(&s);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    ck_assert(sw_supervisor_spawn(&s)); /* they have ended by then */
    ck_assert_uint_eq(sw_test_daemon_logged(&s.daemon, "tier.held"), 0);
    ck_assert_uint_eq(sw_supervisor_n_stored(&s), n_stored);

    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    sw_supervisor_store(&s, "transfers-that-hang", ends[0]);
    options[0] = "nvme_tier_directory=none";
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    ck_assert(sw_supervisor_spawn(&s));
    ck_assert_uint_eq(sw_test_daemon_logged(&s.daemon, "tier.held"), 1);
    ck_assert_int_eq(restore_random(connection, memory, region, 1), 0);
    MUST(spillway_spill(connection, SW_REQUEST(SW_ONE(memory, RANDOM_BYTES)), 1, &ticket, &error) == 0, &error);
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &error), -SPILLWAY_ENOSPACE);
    spillway_ticket_free(ticket);
    (void)close(ends[1]);
    const struct spillway_region other = spill_random(connection, memory, 2);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    ck_assert(sw_supervisor_spawn(&s));
    ck_assert_uint_eq(sw_test_daemon_logged(&s.daemon, "tier.held"), 1);
    ck_assert_int_eq(restore_random(connection, memory, region, 1), 0);
    ck_assert_int_eq(restore_random(connection, memory, other, 2), 0);
    spillway_close(connection);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
}
END_TEST

/* ---- damage on the disk ---- */

enum { DISK_REGIONS = 8, COMMIT_AT = 64, COMMIT_BYTES = 88 };

struct disk {
    char folder[SW_TEST_PATH_BYTES], option[SW_TEST_PATH_BYTES + 32], path[SW_TEST_PATH_BYTES + 32];
    const char *options[8];
    struct sw_supervisor s;
    struct spillway *connection;
    uint8_t *memory;
    struct spillway_region regions[DISK_REGIONS];
};

/* Regions of which some have come to the disk; then the service is killed. */
static void disk_start(struct disk *d, bool encrypt) {
    d->memory = new_memory();
    sw_test_folder_here(d->folder);
    (void)snprintf(d->option, sizeof d->option, "nvme_tier_directory=%s/nvme", d->folder);
    d->options[0] = d->option;
    d->options[1] = "log_level=warning";
    d->options[2] = "nvme_tier_bytes=64 MiB";
    d->options[3] = "host_tier_bytes=8 MiB";
    d->options[4] = "host_tier_initial_bytes=8 MiB";
    d->options[5] = "host_tier_slab_bytes=2 MiB";
    d->options[6] = encrypt ? "nvme_encrypt=on" : "nvme_encrypt=off";
    d->options[7] = NULL;
    sw_supervisor_start(&d->s, SW_SPILLWAYD_PATH, d->options);
    d->connection = connect_to(&d->s);
    for (unsigned i = 0; i < DISK_REGIONS; i++)
        d->regions[i] = spill_random(d->connection, d->memory, i);
    ck_assert_int_eq(sw_supervisor_stop(&d->s, SIGKILL), -SIGKILL);
}

static void disk_end(struct disk *d) {
    spillway_close(d->connection);
    ck_assert_int_eq(sw_supervisor_stop(&d->s, SIGTERM), 0);
    sw_supervisor_end(&d->s);
}

static const char *disk_file(struct disk *d, const char *name) {
    (void)snprintf(d->path, sizeof d->path, "%s/nvme/%s", d->folder, name);
    return d->path;
}

/* Zeros behind the last record, as a power cut may leave them. */
static void append_zeros(const char *path) {
    const int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    const char zeros[100] = {0};
    ck_assert_int_eq(write(fd, zeros, sizeof zeros), sizeof zeros);
    (void)close(fd);
}

static void flip_byte(const char *path, off_t at) {
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    char byte;
    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    (void)close(fd);
}

/* Restores all. Returns how many are lost. */
static unsigned disk_restore_all(struct disk *d) {
    unsigned n_lost = 0;
    for (unsigned i = 0; i < DISK_REGIONS; i++) {
        const int rc = restore_random(d->connection, d->memory, d->regions[i], i);
        ck_assert_msg(rc == 0 || rc == -SPILLWAY_ELOST, "region %u: %d", i, rc);
        n_lost += rc != 0;
    }
    return n_lost;
}

/* Returns the command's exit code, and its output about the folder. */
static int check_tier(struct disk *d, char ret[4096]) {
    char line[2 * SW_TEST_PATH_BYTES + 200];
    (void)snprintf(line, sizeof line, "'%s' --check-tier --set '%s' 2>&1", SW_SPILLWAYD_PATH, d->option);
    FILE *shell = popen(line, "r");
    ck_assert_ptr_nonnull(shell);
    ret[fread(ret, 1, 4095, shell)] = 0;
    return WEXITSTATUS(pclose(shell));
}

/* While regions on the disk may be needed, a damaged manifest is read as far as possible, and lost regions are named.
 * After the end of the unit or of the machine they cannot be needed any more. */
START_TEST(a_damaged_manifest) {
    static struct disk d;
    char said[4096];
    disk_start(&d, _i);
    ck_assert_int_eq(check_tier(&d, said), 0);
    ck_assert_ptr_nonnull(strstr(said, "nothing is damaged"));
    append_zeros(disk_file(&d, "manifest"));
    ck_assert_int_eq(check_tier(&d, said), 1);
    ck_assert_ptr_nonnull(strstr(said, "damage      manifest at byte "));
    ck_assert(sw_supervisor_spawn(&d.s));
    ck_assert_uint_eq(sw_test_daemon_logged(&d.s.daemon, "tier.damaged tier=nvme file=manifest offset="), 1);
    ck_assert_uint_eq(sw_test_daemon_logged(&d.s.daemon, "region.lost"), 0);
    ck_assert_uint_eq(disk_restore_all(&d), 0);
    ck_assert_int_eq(sw_supervisor_stop(&d.s, SIGKILL), -SIGKILL);

    ck_assert_int_eq(check_tier(&d, said), 0); /* it was written anew */
    flip_byte(disk_file(&d, "manifest"), COMMIT_AT + COMMIT_BYTES + 50);
    ck_assert(sw_supervisor_spawn(&d.s));
    ck_assert_uint_eq(sw_test_daemon_logged(&d.s.daemon, "tier.damaged"), 2);
    ck_assert_uint_eq(sw_test_daemon_logged(&d.s.daemon, "region.lost region="), 1);
    ck_assert_uint_eq(sw_test_daemon_logged(&d.s.daemon, "lost=1"), 1);
    ck_assert_uint_eq(disk_restore_all(&d), 1);
    spillway_close(d.connection);
    ck_assert_int_eq(sw_supervisor_stop(&d.s, SIGKILL), -SIGKILL);

    append_zeros(disk_file(&d, "manifest"));
    sw_supervisor_forget(&d.s);
    ck_assert(sw_supervisor_spawn(&d.s));
    ck_assert_uint_eq(sw_test_daemon_logged(&d.s.daemon, "tier.emptied"), 1);
    d.connection = connect_to(&d.s);
    for (unsigned i = 0; i < DISK_REGIONS; i++)
        d.regions[i] = spill_random(d.connection, d.memory, i);
    ck_assert_uint_eq(disk_restore_all(&d), 0);
    disk_end(&d);
}
END_TEST

/* A folder in the manifest's place can be opened but not read: EIO. Regions in memory are served, nothing is removed,
 * and a start that can read the disk has all regions again. If nothing can be lost, the start is refused. */
START_TEST(a_disk_that_cannot_be_read) {
    static struct disk d;
    char saved[sizeof d.path];
    disk_start(&d, _i);
    (void)strcpy(saved, disk_file(&d, "saved"));
    ck_assert_int_eq(rename(disk_file(&d, "manifest"), saved), 0);
    ck_assert_int_eq(mkdir(disk_file(&d, "manifest"), 0700), 0);
    ck_assert(sw_supervisor_spawn(&d.s));
    ck_assert_uint_eq(sw_test_daemon_logged(&d.s.daemon, "tier.unreadable tier=nvme name=EIO"), 1);
    const unsigned n_lost = disk_restore_all(&d);
    ck_assert(n_lost > 0 && n_lost < DISK_REGIONS);
    ck_assert_uint_eq(sw_test_daemon_logged(&d.s.daemon, "region.lost region="), n_lost);
    ck_assert_int_eq(sw_supervisor_stop(&d.s, SIGKILL), -SIGKILL);
    ck_assert_int_eq(rmdir(disk_file(&d, "manifest")), 0);
    ck_assert_int_eq(rename(saved, disk_file(&d, "manifest")), 0);
    ck_assert(sw_supervisor_spawn(&d.s));
    ck_assert_uint_eq(disk_restore_all(&d), 0);
    spillway_close(d.connection);
    ck_assert_int_eq(sw_supervisor_stop(&d.s, SIGKILL), -SIGKILL);

    ck_assert_int_eq(rename(disk_file(&d, "manifest"), saved), 0);
    ck_assert_int_eq(mkdir(disk_file(&d, "manifest"), 0700), 0);
    sw_supervisor_forget(&d.s);
    ck_assert(!sw_supervisor_spawn(&d.s));
    ck_assert_uint_eq(sw_test_daemon_logged(&d.s.daemon, "start.failed name=EIO"), 1);
    ck_assert_int_eq(rmdir(disk_file(&d, "manifest")), 0);
    ck_assert_int_eq(rename(saved, disk_file(&d, "manifest")), 0);
    ck_assert(sw_supervisor_spawn(&d.s));
    d.connection = connect_to(&d.s);
    disk_end(&d);
}
END_TEST

/* All of the data on the disk is noise: each restore that finds it says where, at the level that everybody sees. */
START_TEST(a_damaged_frame) {
    static struct disk d;
    static char noise[1 << 20];
    char said[4096];
    unsigned n_bad = 0;
    disk_start(&d, false);
    memset(noise, 0x77, sizeof noise);
    const int fd = open(disk_file(&d, "data-0000"), O_WRONLY | O_CLOEXEC);
    for (off_t at = 0; at < 64 << 20; at += (off_t)sizeof noise)
        ck_assert_int_eq(pwrite(fd, noise, sizeof noise, at), sizeof noise);
    (void)close(fd);
    ck_assert_int_eq(check_tier(&d, said), 1);
    ck_assert_ptr_nonnull(strstr(said, "bad frame   region "));
    ck_assert_ptr_nonnull(strstr(said, "data-0000 at byte "));
    d.options[1] = "log_level=error";
    ck_assert(sw_supervisor_spawn(&d.s));
    for (unsigned i = 0; i < DISK_REGIONS; i++)
        n_bad += restore_random(d.connection, d.memory, d.regions[i], i) != 0;
    ck_assert_uint_gt(n_bad, 0);
    ck_assert_uint_eq(sw_test_daemon_logged(&d.s.daemon, "frame.bad tier=nvme file=data-0000 offset="), n_bad);
    disk_end(&d);
}
END_TEST

/* A spill has reached the disk, but its reply was lost; then the disk is away. Its client has the bytes, and may repeat
 * the spill. */
START_TEST(a_spill_whose_reply_was_lost) {
    enum { BYTES = 1000001 };
    static struct sw_supervisor s;
    char folder[SW_TEST_PATH_BYTES], option[SW_TEST_PATH_BYTES + 32];
    struct sw_msg msg = {.header = {.type = SW_MSG_SETTLE9}};
    struct sw_msg_region info;
    struct sw_region_id id;
    struct sw_wire wire;
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_RANDOM, 1, F_SEAL_SHRINK);
    sw_test_folder_here(folder);
    (void)snprintf(option, sizeof option, "nvme_tier_directory=%s/nvme", folder);
    const char *options[] = {"log_level=error",
                             option,
                             "nvme_tier_bytes=16MiB",
                             "host_tier_bytes=8MiB",
                             "host_tier_high_pct=1",
                             "host_tier_low_pct=0",
                             "host_tier_slab_bytes=2MiB",
                             "host_tier_initial_bytes=0",
                             NULL};
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, options);
    sw_wire_open(&wire, s.daemon.socket);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, false), 0);
    ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, BYTES, &id), 0);
    msg.u.settle9 = (struct sw_msg_settle9){.type = SW_MSG_SPILL, .seq = wire.seq, .count = 1};
    do
        ck_assert_int_eq(sw_wire_query(&wire, id, &info), 0);
    while (strcmp((char *)info.tier, "nvme") != 0); /* ends with the test's time limit, if not */
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    options[1] = "nvme_tier_directory=none";
    ck_assert(sw_supervisor_spawn(&s));
    sw_wire_close(&wire);
    ck_assert(sw_wire_resume(&wire, s.daemon.socket));
    ck_assert_int_eq(sw_wire_query(&wire, id, &info), 0);
    ck_assert_str_eq((char *)info.state, "lost");
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), -SW_ERESTARTED);
    ck_assert_int_eq(sw_wire_query(&wire, id, &info), -SW_ESTALE); /* or it would stay for ever */
    sw_wire_close(&wire);
    (void)close(fd);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
}
END_TEST

/* Three builds, each by itself or all or nothing: a restart later they are found by seq and index. Then they are read
 * back. Once the reply is in the socket nothing is left of them, or soon after it. */
START_TEST(packets_are_settled) {
    enum { N = 3, BYTES = 100000 };
    const uint32_t flags = _i ? SW_REQ_ALL : 0;
    static struct sw_test_packet packet;
    static struct sw_supervisor s;
    struct sw_region_id ids[N];
    struct sw_wire wire = {0};
    const int fd = sw_wire_content_memfd(N * BYTES, SW_CONTENT_RANDOM, 1, F_SEAL_SHRINK);
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, in_memory);
    sw_wire_open_version(&wire, s.daemon.socket, SW_PROTO_VERSION);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, N * BYTES, false), 0);
    for (int is_read = 0; is_read < 2; is_read++) {
        sw_test_packet(&packet, is_read ? SW_MSG_READ : SW_MSG_BUILD, flags);
        for (unsigned i = 0; i < N; i++) {
            if (is_read) {
                (void)sw_test_add_read(&packet, ids[i], 0);
                (void)sw_test_add_room(&packet, 1, i * (uint64_t)BYTES, BYTES);
                continue;
            }
            (void)sw_test_add_build(&packet, NULL);
            (void)sw_test_add_buffer(&packet, BYTES, 0);
            (void)sw_test_add_chunk(&packet, 1, i * (uint64_t)BYTES, BYTES);
        }
        ck_assert_int_eq(sw_wire_call(&wire, &packet.msg, NULL, 0), 0);
        const uint32_t seq = wire.seq;
        ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
        ck_assert(sw_supervisor_spawn(&s));
        sw_wire_close(&wire);
        ck_assert(sw_wire_resume(&wire, s.daemon.socket));
        ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, N * BYTES, false), 0);
        sw_test_packet(&packet, SW_MSG_SETTLE, flags);
        packet.msg.u.settle.type = is_read ? SW_MSG_READ : SW_MSG_BUILD;
        packet.msg.u.settle.seq = seq;
        for (unsigned i = 0; i < N; i++)
            sw_test_add_id(&packet, is_read ? ids[i] : (struct sw_region_id){0});
        const int rc = sw_wire_call(&wire, &packet.msg, NULL, 0);
        ck_assert(rc == 0 || (is_read && rc == -SW_ESTALE));
        for (unsigned i = 0; !is_read && i < N; i++) {
            ck_assert_int_eq(sw_test_result_code(&packet.msg, i), 0);
            ids[i] = sw_test_result_id(&packet.msg, i);
        }
        sw_test_packet(&packet, SW_MSG_SETTLE, 0);
        ck_assert_int_eq(sw_wire_call(&wire, &packet.msg, NULL, 0), 0);
    }
    ck_assert(sw_wire_memfd_holds(fd, N * BYTES, SW_CONTENT_RANDOM, 1));
    sw_wire_close(&wire);
    (void)close(fd);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
}
END_TEST

/* A client of version 10 that has a memory and a region open. */
struct opener {
    struct sw_supervisor s;
    struct sw_wire wire;
    struct sw_test_packet packet;
    int fd;
};
enum { OPEN_CHUNK = 64 << 10, OPEN_BYTES = 3 * OPEN_CHUNK };

static int opener_call(struct opener *o) {
    return sw_wire_call(&o->wire, &o->packet.msg, NULL, 0);
}

static void opener_restart(struct opener *o) {
    ck_assert_int_eq(sw_supervisor_stop(&o->s, SIGKILL), -SIGKILL);
    ck_assert(sw_supervisor_spawn(&o->s));
    sw_wire_close(&o->wire);
    ck_assert(sw_wire_resume(&o->wire, o->s.daemon.socket));
    ck_assert_int_eq(sw_wire_mem(&o->wire, 1, o->fd, OPEN_BYTES, false), 0);
}

/* A durable build's part of a packet: with the begin the first chunk, with the commit the others. */
static int opener_build(struct opener *o, const char *name, uint32_t number, unsigned flags) {
    const bool begins = flags & SW_BUILD_BEGIN;
    sw_test_packet(&o->packet, SW_MSG_BUILD, 0);
    struct sw_wire_build *build = sw_test_add_build(&o->packet, begins ? name : NULL);
    build->build = number;
    (void)sw_test_add_buffer(&o->packet, OPEN_BYTES, 0);
    o->packet.buffers[0].chunk_bytes = OPEN_CHUNK;
    struct sw_wire_chunk *chunk =
        sw_test_add_chunk(&o->packet, 1, begins ? 0 : OPEN_CHUNK, begins ? OPEN_CHUNK : OPEN_BYTES - OPEN_CHUNK);
    chunk->at = chunk->offset;
    build->flags = (uint16_t)flags;
    build->n_buffers = o->packet.msg.u.build.n_buffers = begins;
    return opener_call(o);
}

static int opener_read(struct opener *o, struct sw_region_id id, uint32_t number, unsigned flags, bool has_chunk) {
    sw_test_packet(&o->packet, SW_MSG_READ, 0);
    struct sw_wire_read *read = sw_test_add_read(&o->packet, flags & SW_READ_BEGIN ? id : (struct sw_region_id){0}, 0);
    read->read = number;
    read->flags = (uint16_t)flags;
    if (has_chunk)
        (void)sw_test_add_room(&o->packet, 1, 0, OPEN_BYTES);
    return opener_call(o);
}

static int opener_settle(struct opener *o, uint32_t type, uint32_t seq, struct sw_region_id id) {
    sw_test_packet(&o->packet, SW_MSG_SETTLE, 0);
    o->packet.msg.u.settle.type = type;
    o->packet.msg.u.settle.seq = seq;
    if (type)
        sw_test_add_id(&o->packet, id);
    return opener_call(o);
}

/* Of an open build nothing is left, not even its name; of one that was committed by its last packet all is, and that
 * packet is settled. Of an open read the region is left, however far it was; a client that has all of its chunks
 * consumes it. */
START_TEST(open_builds_and_reads_are_settled) {
    static struct opener o;
    o.fd = sw_wire_content_memfd(OPEN_BYTES, SW_CONTENT_RANDOM, 1, F_SEAL_SHRINK);
    sw_supervisor_start(&o.s, SW_SPILLWAYD_PATH, in_memory);
    sw_wire_open_version(&o.wire, o.s.daemon.socket, SW_PROTO_VERSION);
    ck_assert_int_eq(sw_wire_mem(&o.wire, 1, o.fd, OPEN_BYTES, false), 0);
    ck_assert_int_eq(opener_build(&o, "open", 1, SW_BUILD_BEGIN), 0);
    ck_assert_int_eq(opener_build(&o, NULL, 2, SW_BUILD_BEGIN), 0);
    ck_assert_int_eq(opener_build(&o, NULL, 2, SW_BUILD_COMMIT), 0);
    const uint32_t seq = o.wire.seq;
    opener_restart(&o);
    ck_assert_int_eq(opener_settle(&o, SW_MSG_BUILD, seq - 2, (struct sw_region_id){0}), -SW_ERESTARTED);
    ck_assert_int_eq(opener_settle(&o, SW_MSG_BUILD, seq, (struct sw_region_id){0}), 0);
    const struct sw_region_id id = sw_test_result_id(&o.packet.msg, 0);
    ck_assert_uint_eq(o.packet.msg.u.results.results[0].raw_bytes, OPEN_BYTES);
    ck_assert_int_eq(opener_settle(&o, 0, 0, (struct sw_region_id){0}), 0);
    ck_assert_int_eq(opener_build(&o, NULL, 1, SW_BUILD_COMMIT), -SW_ENOENT);
    ck_assert_int_eq(opener_build(&o, "open", 3, SW_BUILD_BEGIN), 0); /* the name is free */
    static const uint8_t zeros[OPEN_BYTES];
    ck_assert_int_eq(pwrite(o.fd, zeros, sizeof zeros, 0), sizeof zeros);
    ck_assert_int_eq(opener_read(&o, id, 4, SW_READ_BEGIN, true), 0);
    if (_i == 0)
        ck_assert_int_eq(opener_read(&o, id, 4, SW_READ_END, false), 0);
    const uint32_t read_seq = o.wire.seq;
    opener_restart(&o);
    ck_assert(sw_wire_memfd_holds(o.fd, OPEN_BYTES, SW_CONTENT_RANDOM, 1));
    if (_i == 0) {
        const int rc = opener_settle(&o, SW_MSG_READ, read_seq, id);
        ck_assert(rc == 0 || rc == -SW_ESTALE);
        ck_assert_int_eq(opener_settle(&o, 0, 0, (struct sw_region_id){0}), 0);
    } else {
        ck_assert_int_eq(opener_settle(&o, SW_MSG_READ, read_seq + 1, id), -SW_ERESTARTED);
        ck_assert_int_eq(opener_settle(&o, 0, 0, (struct sw_region_id){0}), 0);
        sw_test_packet(&o.packet, SW_MSG_DISCARD, SW_REQ_CONSUME);
        sw_test_add_id(&o.packet, id);
        ck_assert_int_eq(opener_call(&o), 0);
    }
    const int rc = opener_read(&o, id, 5, SW_READ_BEGIN, false);
    ck_assert(rc == -SW_ENOENT || rc == -SW_ESTALE);
    sw_wire_close(&o.wire);
    (void)close(o.fd);
    ck_assert_int_eq(sw_supervisor_stop(&o.s, SIGTERM), 0);
    sw_supervisor_end(&o.s);
}
END_TEST

/* Frames of three chunks, each at its chunk's place in the memory. */
static void opener_encode(const struct opener *o, const uint8_t *raw, uint64_t ret_bytes[3]) {
    static _Alignas(16) uint8_t frame[2 * OPEN_CHUNK];
    static uint8_t sample[SW_SAMPLE_MAX_BYTES];
    struct sw_plan plan;
    sw_plan_make(&plan, SW_VALUE_NONE, raw, OPEN_BYTES, sample);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(
            sw_codec_encode(&plan, raw + i * OPEN_CHUNK, OPEN_CHUNK, frame, sizeof frame, &ret_bytes[i], NULL), 0);
        ck_assert_uint_le(ret_bytes[i], OPEN_CHUNK);
        ck_assert_int_eq(pwrite(o->fd, frame, ret_bytes[i], i * OPEN_CHUNK), (ssize_t)ret_bytes[i]);
    }
}

/* Frames 0 to n - 1, in a build that begins and does or does not commit. */
static int opener_build_frames(struct opener *o, uint32_t number, const uint64_t *bytes, unsigned n) {
    sw_test_packet(&o->packet, SW_MSG_BUILD, 0);
    struct sw_wire_build *build = sw_test_add_build(&o->packet, NULL);
    build->build = number;
    build->flags = n == 3 ? SW_BUILD_BEGIN | SW_BUILD_COMMIT : SW_BUILD_BEGIN;
    sw_test_add_buffer(&o->packet, OPEN_BYTES, 0)->chunk_bytes = OPEN_CHUNK;
    for (unsigned i = 0; i < n; i++) {
        struct sw_wire_chunk *chunk = sw_test_add_chunk(&o->packet, 1, i * OPEN_CHUNK, OPEN_CHUNK);
        chunk->at = chunk->offset;
        chunk->frame_bytes = (uint32_t)bytes[i];
    }
    return opener_call(o);
}

/* A region of frames that a client has made outlives the service: the successor says that the client made them, and
 * sends them. Frames of an open build are gone. */
START_TEST(frames_of_a_client_outlive_the_service) {
    static struct opener o;
    static uint8_t raw[OPEN_BYTES], stored[OPEN_CHUNK], out[OPEN_CHUNK];
    uint64_t bytes[3];
    sw_content_fill(raw, sizeof raw, SW_CONTENT_TEXT, 3);
    o.fd = sw_wire_memfd(NULL, OPEN_BYTES, F_SEAL_SHRINK);
    ck_assert_int_eq(fallocate(o.fd, 0, 0, OPEN_BYTES), 0);
    sw_supervisor_start(&o.s, SW_SPILLWAYD_PATH, in_memory);
    sw_wire_open_version(&o.wire, o.s.daemon.socket, SW_PROTO_VERSION);
    ck_assert_int_eq(sw_wire_mem(&o.wire, 1, o.fd, OPEN_BYTES, false), 0);
    opener_encode(&o, raw, bytes);
    ck_assert_int_eq(opener_build_frames(&o, 1, bytes, 2), 0);
    ck_assert_int_eq(opener_build_frames(&o, 2, bytes, 3), 0);
    const uint32_t seq = o.wire.seq;
    opener_restart(&o);
    ck_assert_int_eq(opener_settle(&o, SW_MSG_BUILD, seq, (struct sw_region_id){0}), 0);
    const struct sw_region_id id = sw_test_result_id(&o.packet.msg, 0);
    ck_assert_str_eq(sw_test_text(&o.packet.msg, o.packet.msg.u.results.results[0].coder), "client");
    ck_assert_int_eq(opener_settle(&o, 0, 0, (struct sw_region_id){0}), 0);
    struct sw_msg_status_ok status;
    ck_assert_int_eq(sw_wire_status(&o.wire, &status), 0);
    ck_assert_uint_eq(status.regions, 1);
    static const uint8_t zeros[OPEN_BYTES];
    ck_assert_int_eq(pwrite(o.fd, zeros, sizeof zeros, 0), sizeof zeros);
    sw_test_packet(&o.packet, SW_MSG_READ, 0);
    (void)sw_test_add_read(&o.packet, id, 0);
    for (unsigned i = 0; i < 3; i++) {
        struct sw_wire_chunk *chunk = sw_test_add_room(&o.packet, 1, i * OPEN_CHUNK, OPEN_CHUNK);
        chunk->at = chunk->offset;
        chunk->buffer = 0;
        chunk->frame_bytes = OPEN_CHUNK;
    }
    ck_assert_int_eq(opener_call(&o), 0);
    ck_assert_uint_eq(o.packet.msg.u.results.n_frames, 3);
    for (unsigned i = 0; i < 3; i++) {
        const struct sw_wire_frame *frame = &o.packet.msg.u.results.frames[i];
        uint64_t raw_bytes = 0;
        ck_assert(frame->offset == i * OPEN_CHUNK && frame->bytes == bytes[i]);
        ck_assert_int_eq(pread(o.fd, stored, frame->bytes, (off_t)frame->offset), (ssize_t)frame->bytes);
        ck_assert_int_eq(sw_codec_decode(stored, frame->bytes, out, sizeof out, &raw_bytes, NULL), 0);
        ck_assert_mem_eq(out, raw + i * OPEN_CHUNK, OPEN_CHUNK);
    }
    sw_wire_close(&o.wire);
    (void)close(o.fd);
    ck_assert_int_eq(sw_supervisor_stop(&o.s, SIGTERM), 0);
    sw_supervisor_end(&o.s);
}
END_TEST

/* A client has used up all seqs, before the service is killed or while it is away, and starts again. Regions of the
 * last round's seqs must not be taken for those of this round. */
START_TEST(seqs_wrap_around) {
    enum { BYTES = 100000, STEP = 1 << 20, STEPS = 4096 };
    static struct sw_supervisor s;
    struct sw_msg_status_ok status;
    struct sw_msg_region info;
    struct sw_region_id old, new;
    struct sw_wire wire;
    struct sw_msg msg = {.header = {.type = SW_MSG_SETTLE9}}, newer = msg;
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_RANDOM, 1, F_SEAL_SHRINK);
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, in_memory);
    sw_wire_open(&wire, s.daemon.socket);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, false), 0);
    ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, BYTES, &old), 0);
    msg.u.settle9 = (struct sw_msg_settle9){.type = SW_MSG_SPILL, .seq = wire.seq, .count = 1};
    for (int i = 0; _i && i < STEPS; i++) {
        wire.seq += STEP - 1;
        ck_assert_int_eq(sw_wire_status(&wire, &status), 0);
    }
    ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, BYTES, &new), 0);
    newer.u.settle9 = (struct sw_msg_settle9){.type = SW_MSG_SPILL, .seq = wire.seq, .count = 1};
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    ck_assert(sw_supervisor_spawn(&s));
    sw_wire_close(&wire);
    if (!_i)
        wire.seq = msg.u.settle9.seq - 3;
    ck_assert(sw_wire_resume(&wire, s.daemon.socket)); /* its first one may be any */
    ck_assert_int_eq(sw_wire_query(&wire, old, &info), 0);
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), -SW_ERESTARTED);
    ck_assert_int_eq(sw_wire_query(&wire, old, &info), 0);
    ck_assert_int_eq(sw_wire_call(&wire, &newer, NULL, 0), _i ? 0 : -SW_ERESTARTED);
    ck_assert(!_i || newer.u.result.slot == new.slot);
    wire.seq += STEP;
    ck_assert_int_eq(sw_wire_status(&wire, &status), -SW_EPROTO); /* not on the way */
    sw_wire_close(&wire);
    (void)close(fd);
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
    tcase_add_test(tcase, encryption_is_turned_on);
    tcase_add_loop_test(tcase, a_start_without_the_disk_keeps_what_is_on_it, 0, 2);
    tcase_add_test(tcase, a_killed_process_has_requests_at_the_disk);
    tcase_add_loop_test(tcase, a_damaged_manifest, 0, 2);
    tcase_add_loop_test(tcase, a_disk_that_cannot_be_read, 0, 2);
    tcase_add_test(tcase, a_damaged_frame);
    tcase_add_test(tcase, a_spill_whose_reply_was_lost);
    tcase_add_loop_test(tcase, packets_are_settled, 0, 2);
    tcase_add_loop_test(tcase, open_builds_and_reads_are_settled, 0, 2);
    tcase_add_test(tcase, frames_of_a_client_outlive_the_service);
    tcase_add_loop_test(tcase, seqs_wrap_around, 0, 2);
    tcase_add_test(tcase, watchdog_is_fed);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

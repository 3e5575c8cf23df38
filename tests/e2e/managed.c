/* What operators see of a service with a service manager: regions whose session has not been resumed yet, memory that
 * fits the manager's store and shrinks with its limit, owners of the sockets, and programs that outlive a restart. */
#include "base/alloc.h"
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/control.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"
#include "tests/lib/supervisor.h"

#include <check.h>
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
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, DATA_BYTES = 300000 };
static const char *const plain[] = {"log_level=info", NULL};
static struct sw_supervisor s;
static uint8_t *data;

static void setup(void) {
    const int fd = memfd_create("managed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && ftruncate(fd, DATA_BYTES) == 0);
    data = mmap(NULL, DATA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(data, MAP_FAILED);
}

static void end(void) {
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
}

static void finish(struct spillway_ticket *ticket, struct spillway_result *ret) {
    struct spillway_error error;
    const int rc = spillway_wait(ticket, SW_TEST_WAIT_MS, ret, ret != NULL, &error);
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
    spillway_ticket_free(ticket);
}

static struct spillway_region spill_from(struct spillway *client, uint8_t *from) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    sw_content_fill(from, DATA_BYTES, SW_CONTENT_TEXT, 7);
    ck_assert_int_eq(spillway_spill(client, SW_REQUEST(SW_ONE(from, DATA_BYTES)), 1, &ticket, NULL), 0);
    finish(ticket, &result);
    return result.region;
}

static struct spillway_region spill(struct spillway *client) {
    return spill_from(client, data);
}

static struct spillway_ticket *begin_restore(struct spillway *client, struct spillway_region region) {
    struct spillway_ticket *ticket = NULL;
    memset(data, 0, DATA_BYTES);
    ck_assert_int_eq(spillway_restore(client, SW_REQUEST(SW_ONE(data, DATA_BYTES), .region = region), 1, &ticket, NULL),
                     0);
    return ticket;
}

static void end_restore(struct spillway_ticket *ticket) {
    static uint8_t expected[DATA_BYTES];
    finish(ticket, NULL);
    sw_content_fill(expected, DATA_BYTES, SW_CONTENT_TEXT, 7);
    ck_assert_mem_eq(data, expected, DATA_BYTES);
}

static void restore(struct spillway *client, struct spillway_region region) {
    end_restore(begin_restore(client, region));
}

static long long tier_number(const char *name) {
    struct sw_ctl *ctl = sw_control_connect(&s.daemon);
    json_t *answer = sw_control_ask(ctl, "tiers", NULL);
    const json_t *tier = json_array_get(json_object_get(answer, "tiers"), 0);
    const long long number = json_integer_value(json_object_get(tier, name));
    json_decref(answer);
    sw_ctl_close(ctl);
    return number;
}

static void await_number(const char *name, long long number) {
    const struct timespec a_little = {.tv_nsec = 5000000};
    while (tier_number(name) != number)
        (void)nanosleep(&a_little, NULL);
}

/* They have no session yet, but have an owner. */
START_TEST(regions_wait_for_their_session) {
    char mine[64];
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, plain);
    struct spillway *client = sw_served_connect(&s.daemon);
    const struct spillway_region region = spill(client);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    ck_assert(sw_supervisor_spawn(&s)); /* nothing makes the client come back: it is in no call */
    struct sw_ctl *ctl = sw_control_connect(&s.daemon);
    (void)snprintf(mine, sizeof mine, "{\"uid\":%u}", getuid());
    json_t *answer = sw_control_ask(ctl, "regions", mine);
    const json_t *found = json_array_get(json_object_get(answer, "regions"), 0);
    ck_assert_int_eq(json_integer_value(json_object_get(found, "uid")), getuid());
    ck_assert(json_is_null(json_object_get(found, "session")));
    json_decref(answer);
    sw_ctl_close(ctl);
    restore(client, region);
    spillway_close(client);
    end();
}
END_TEST

/* The client finds the restarted service wherever it is by then; calls that began meanwhile have waited for it. */
START_TEST(restore_begun_while_the_service_is_away) {
    uint8_t *private = malloc(DATA_BYTES); /* copied on its way out, and handed over on its way back */
    struct spillway *client = NULL;
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, plain);
    ck_assert(private && chdir(s.daemon.folder) == 0);
    ck_assert_int_eq(spillway_open(&client, SW_OPTIONS(.socket_path = "data.sock"), NULL), 0);
    ck_assert_int_eq(chdir("/"), 0);
    const struct spillway_region region = spill_from(client, private);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    ck_assert_int_eq(spillway_dispatch(client, NULL), 0); /* the client knows */
    struct spillway_ticket *ticket = begin_restore(client, region);
    ck_assert(sw_supervisor_spawn(&s));
    end_restore(ticket);
    spillway_close(client);
    free(private);
    end();
}
END_TEST

/* A client without memory for the question asks later about its spill: if it did not, the service would forget it. */
START_TEST(a_client_without_memory_asks_later_about_its_spill) {
    struct spillway_error error;
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, plain);
    struct spillway *client = sw_served_connect(&s.daemon);
    for (unsigned long nth = 1; nth <= 4; nth++) {
        struct spillway_ticket *ticket = NULL;
        sw_test_daemon_pause(&s.daemon);
        ck_assert_int_eq(spillway_spill(client, SW_REQUEST(SW_ONE(data, DATA_BYTES)), 1, &ticket, NULL), 0);
        ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
        ck_assert(sw_supervisor_spawn(&s));
        sw_alloc_fail_nth(nth);
        ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &error), -SPILLWAY_ERESTARTED);
        sw_alloc_fail_nth(0);
        spillway_ticket_free(ticket);
        restore(client, spill(client));
    }
    spillway_close(client);
    end();
}
END_TEST

/* The manager would not say that it has no room for another slab. */
START_TEST(slabs_fit_the_store) {
    enum { LIMIT = 12, OTHERS = 8 };
    static const char *const options[] = {"log_level=info", "host_tier_slab_bytes=2MiB", NULL};
    sw_supervisor_init(&s, SW_SPILLWAYD_PATH, options);
    s.handover.store_limit = LIMIT;
    ck_assert(sw_supervisor_spawn(&s));
    await_number("backed_bytes", 64ll * MIB);
    ck_assert_uint_eq(sw_test_daemon_logged(&s.daemon, "event=tier.larger_slabs tier=host slab_bytes=16777216"), 1);
    const unsigned n_stored = sw_supervisor_n_stored(&s);
    ck_assert_uint_le(n_stored, LIMIT);
    ck_assert_uint_ge(n_stored, LIMIT - OTHERS);
    /* With a larger limit new slabs are larger. */
    static const char *const more[] = {"log_level=info", "host_tier_slab_bytes=2MiB", "host_tier_bytes=96MiB",
                                       "host_tier_initial_bytes=96MiB", NULL};
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    s.options = more;
    ck_assert(sw_supervisor_spawn(&s));
    await_number("backed_bytes", 96ll * MIB);
    ck_assert_uint_eq(sw_supervisor_n_stored(&s), n_stored + 1);
    end();
}
END_TEST

/* A start that fails late has begun to send signs of life, and still ends by itself. _i 0: the data socket's path is a
 * file; 1: the control socket's, when clients are served already. */
START_TEST(a_start_that_fails_ends) {
    static const char *const options[][2] = {{"data_socket=/dev/null", NULL}, {"control_socket=/dev/null", NULL}};
    sw_supervisor_init(&s, SW_SPILLWAYD_PATH, options[_i]);
    s.handover.watchdog_ms = 60000;
    s.daemon.handover = &s.handover;
    sw_test_daemon_fork(&s.daemon, s.program, s.options);
    ck_assert_int_eq(sw_test_daemon_stop(&s.daemon, 0), 1);
    ck_assert_uint_eq(sw_test_daemon_logged(&s.daemon, "/dev/null exists and is no socket"), 1);
    sw_supervisor_end(&s);
}
END_TEST

/* What no part of this version has taken is left to nobody: the manager forgets it, and the service closes its own. */
START_TEST(what_is_not_known_is_closed) {
    struct pollfd other = {.fd = -1};
    int ends[2];
    sw_supervisor_init(&s, SW_SPILLWAYD_PATH, plain);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    other.fd = ends[0];
    sw_supervisor_store(&s, "a-later-part", ends[1]);
    ck_assert(sw_supervisor_spawn(&s));
    ck_assert_int_eq(poll(&other, 1, 10000), 1);
    ck_assert_int_eq(other.revents, POLLHUP); /* nobody has the other end */
    (void)close(ends[0]);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
}
END_TEST

/* The predecessor's memory goes back to the machine, except for slabs with regions. */
START_TEST(a_lower_limit_releases_memory) {
    static const char *const less[] = {"log_level=info", "host_tier_bytes=8MiB", "host_tier_initial_bytes=0", NULL};
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, plain);
    await_number("backed_bytes", 64ll * MIB);
    const unsigned n_stored = sw_supervisor_n_stored(&s);
    struct spillway *client = sw_served_connect(&s.daemon);
    const struct spillway_region region = spill(client);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    s.options = less;
    ck_assert(sw_supervisor_spawn(&s));
    ck_assert_int_eq(tier_number("backed_bytes"), 8ll * MIB);
    ck_assert_int_eq(tier_number("capacity_bytes"), 8ll * MIB);
    ck_assert_int_eq(tier_number("limit_bytes"), 8ll * MIB);
    ck_assert_uint_eq(sw_supervisor_n_stored(&s), n_stored - 14);
    restore(client, region);
    spillway_close(client);
    end();
}
END_TEST

/* ---- spillwayctl ------------------------------------------------------------------------------------------------- */

/* The control socket as a socket unit makes it: a client that connects while the service is away waits in it. */
static void store_socket(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(fd, 8), 0);
    sw_supervisor_store(&s, "spillwayd.socket", fd);
}

static void store_control_socket(void) {
    store_socket(s.daemon.control);
}

/* The unit makes the file, but the configuration says who may use it. */
START_TEST(socket_of_a_unit_is_permitted_by_the_configuration) {
    enum { OPERATORS = 54321 };
    static const char *const options[] = {"log_level=info", "control_socket_mode=0606", NULL},
                             *const by_group[] = {"log_level=info", "control_group=54321", NULL};
    struct stat file;
    sw_supervisor_init(&s, SW_SPILLWAYD_PATH, options);
    store_control_socket();
    ck_assert_int_eq(stat(s.daemon.control, &file), 0);
    const gid_t group = file.st_gid;
    ck_assert(sw_supervisor_spawn(&s));
    ck_assert(stat(s.daemon.control, &file) == 0 && (file.st_mode & 0777) == 0606 && file.st_gid == group);
    if (getuid() == 0) { /* others can give it to their own groups only */
        ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
        s.options = by_group;
        ck_assert(sw_supervisor_spawn(&s));
        ck_assert(stat(s.daemon.control, &file) == 0 && (file.st_mode & 0777) == 0660 && file.st_gid == OPERATORS);
    }
    end();
}
END_TEST

/* The unit and the configuration mean the same file, but write its path in their own ways. */
START_TEST(socket_of_a_unit_with_another_path) {
    char path[2][96], link[64];
    sw_supervisor_init(&s, SW_SPILLWAYD_PATH, plain);
    (void)snprintf(link, sizeof link, "%s/link", s.daemon.folder);
    (void)snprintf(path[0], sizeof path[0], "%s//control.sock", s.daemon.folder);
    (void)snprintf(path[1], sizeof path[1], "%s/control.sock", link);
    ck_assert_int_eq(symlink(".", link), 0);
    store_socket(path[_i]);
    ck_assert(sw_supervisor_spawn(&s));
    struct sw_ctl *ctl = sw_control_connect(&s.daemon);
    json_decref(sw_control_ask(ctl, "status", NULL));
    sw_ctl_close(ctl);
    ck_assert_uint_eq(sw_test_daemon_logged(&s.daemon, "fdstore.unknown"), 0);
    end();
}
END_TEST

static FILE *begin(const char *arguments) {
    char line[512];
    (void)snprintf(line, sizeof line, "exec '%s' --socket '%s' %s 2>&1", SW_SPILLWAYCTL_PATH, s.daemon.control,
                   arguments);
    FILE *program = popen(line, "r");
    ck_assert_ptr_nonnull(program);
    return program;
}

static void await_line(FILE *program, const char *says) {
    char line[512];
    do
        ck_assert_msg(fgets(line, sizeof line, program) != NULL, "it has ended before '%s'", says);
    while (!strstr(line, says));
}

static int exit_code(FILE *program) {
    char line[512];
    while (fgets(line, sizeof line, program)) /* else it dies of a pipe without a reader */
        ;
    const int status = pclose(program);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void await_subscriber(void) {
    const struct timespec a_little = {.tv_nsec = 5000000};
    bool is_there = false;
    while (!is_there) {
        struct sw_ctl *ctl = sw_control_connect(&s.daemon);
        json_t *answer = sw_control_ask(ctl, "metrics", NULL);
        is_there = strstr(json_string_value(answer), "spillway_event_subscribers 1\n") != NULL;
        json_decref(answer);
        sw_ctl_close(ctl);
        (void)nanosleep(&a_little, NULL);
    }
}

START_TEST(events_are_followed_over_a_restart) {
    sw_supervisor_init(&s, SW_SPILLWAYD_PATH, plain);
    store_control_socket();
    ck_assert(sw_supervisor_spawn(&s));
    FILE *events = begin("events --follow session"), *top = begin("top --interval 0.05");
    await_line(top, "serving");
    await_subscriber();
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    await_line(events, "ECONN");
    await_line(top, "ECONN");
    ck_assert(sw_supervisor_spawn(&s));
    await_line(top, "serving");
    await_subscriber();
    spillway_close(sw_served_connect(&s.daemon));
    await_line(events, "session.open");
    /* The socket is gone as well: there is nothing to wait for. */
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    sw_supervisor_end(&s);
    ck_assert_int_eq(exit_code(events), 3);
    ck_assert_int_eq(exit_code(top), 3);
}
END_TEST

/* ---- load over a restart ----------------------------------------------------------------------------------------- */

/* The program's number comes first: it is to be ended when the restarts are over, however long they take. */
static pid_t begin_bench(FILE **ret, const char *load) {
    char line[512];
    (void)snprintf(line, sizeof line, "echo $$; exec '%s' --socket '%s' %s --duration 300 2>&1", SW_BENCH_PATH,
                   s.daemon.socket, load);
    *ret = popen(line, "r");
    ck_assert(*ret && fgets(line, sizeof line, *ret));
    return (pid_t)strtol(line, NULL, 10);
}

/* Interrupted calls are repeated, and every byte is back. */
START_TEST(bench_goes_on_over_a_restart) {
    static const char *const loads[] = {"--column l_comment --size 16K..64K --sessions 2 --parked 20",
                                        "--table lineitem --scale 0.02"};
    const struct timespec a_while = {.tv_nsec = 300000000};
    FILE *bench;
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, plain);
    const pid_t pid = begin_bench(&bench, loads[_i]);
    for (unsigned i = 0; i < 2; i++) {
        const int signal = i ? SIGKILL : SIGTERM;
        while (tier_number("frames") < 20)
            ;
        ck_assert_int_eq(sw_supervisor_stop(&s, signal), i ? -SIGKILL : 0);
        ck_assert(sw_supervisor_spawn(&s));
        (void)nanosleep(&a_while, NULL);
    }
    ck_assert_int_eq(kill(pid, SIGINT), 0);
    await_line(bench, "verified  every byte of");
    ck_assert_int_eq(exit_code(bench), 0);
    end();
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("managed");
    sw_test_slow(tests, 60);
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_test(tests, regions_wait_for_their_session);
    tcase_add_test(tests, restore_begun_while_the_service_is_away);
    tcase_add_test(tests, a_client_without_memory_asks_later_about_its_spill);
    tcase_add_test(tests, slabs_fit_the_store);
    tcase_add_loop_test(tests, a_start_that_fails_ends, 0, 2);
    tcase_add_test(tests, what_is_not_known_is_closed);
    tcase_add_test(tests, a_lower_limit_releases_memory);
    tcase_add_test(tests, socket_of_a_unit_is_permitted_by_the_configuration);
    tcase_add_loop_test(tests, socket_of_a_unit_with_another_path, 0, 2);
    tcase_add_test(tests, events_are_followed_over_a_restart);
    tcase_add_loop_test(tests, bench_goes_on_over_a_restart, 0, 2);
    Suite *suite = suite_create("managed");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

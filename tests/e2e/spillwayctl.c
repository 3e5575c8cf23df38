/* spillwayctl against a real spillwayd: what it prints, and with which exit code. */
#include "daemon/control/control_methods.h"
#include "ipc/spillway.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char output[1 << 17];

static int finish(FILE *program) {
    output[fread(output, 1, sizeof output - 1, program)] = 0;
    const int status = pclose(program);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static FILE *begin(const char *arguments) {
    char line[1024];
    (void)snprintf(line, sizeof line, "'%s' --socket '%s' %s 2>&1", SW_SPILLWAYCTL_PATH, sw_served_daemon.control,
                   arguments);
    FILE *program = popen(line, "r");
    ck_assert_ptr_nonnull(program);
    return program;
}

/* Runs spillwayctl on the case's daemon; both streams go to `output`. Returns the exit code. */
static int run(const char *arguments) {
    return finish(begin(arguments));
}

static void ck_says(const char *arguments, int exit_code, const char *says) {
    const int code = run(arguments);
    ck_assert_msg(code == exit_code && strstr(output, says), "%s: %d, '%s' does not say '%s'", arguments, code, output,
                  says);
}

static const struct {
    const char *arguments;
    int exit_code;
    const char *says;
} commands[] = {
    {"--version", 0, "spillwayctl " SW_VERSION "\n"},
    {"status", 0, "\nstate                serving\n"},
    {"status --json", 0, "\"state\":\"serving\""},
    {"-j status", 0, "\"state\":\"serving\""},
    {"stats", 0, "\nlatency\nkind     stage  operations"},
    {"sessions", 0, "sessions  -\n"},
    {"regions", 0, "regions  -\n"},
    {"regions --limit 10 --tier=host", 0, "regions  -\n"},
    {"tiers", 0, "host        64.0 MiB"},
    {"config get", 0, "max_sessions"},
    {"config.get", 0, "max_sessions"},
    {"config get slots", 0, "slots  2\n"},
    {"config get --name slots", 0, "slots  2\n"},
    {"config set max_session_regions 1000", 0, "max_session_regions  1000\n"},
    {"config set max_session_regions 65536", 0, "max_session_regions  65536\n"},
    {"config set slots 4", 1, "spillwayctl: ENOTSUP: slots: needs a restart\n"},
    {"config set nonsense 4", 1, "spillwayctl: ECONFIG: nonsense: unknown option\n"},
    {"config reload", 0, "changed        -\nneeds_restart  -\n"},
    {"drain", 0, "draining    no\n"},
    {"drain on", 0, "draining    yes\n"},
    {"drain --mode=off", 0, "draining    no\n"},
    {"drain maybe", 1, "EINVAL: mode: \"maybe\" is not one of on, off\n"},
    {"spill 4MiB", 1, "ENOTSUP: there is no NVMe tier"},
    {"spill 4 MiB", 2, "unexpected argument 'MiB'"},
    {"spill much", 1, "EINVAL: bytes: \"much\" is not a whole number"},
    {"drop 7:3", 1, "ESTALE"},
    {"drop seven", 1, "is not a region such as \"7:3\""},
    {"drop", 1, "parameter region is missing"},
    {"demote 7:3", 1, "ESTALE"},
    {"promote 7:3", 1, "ESTALE"},
    {"log level", 0, "log_level  info\n"},
    {"log level debug", 0, "log_level  debug\n"},
    {"log level info", 0, "log_level  info\n"},
    {"metrics", 0, "# TYPE spillway_sessions gauge\nspillway_sessions 0\n"},
    {"drain on --mode off", 2, "given twice: 'mode'"},
    {"events --mode off", 0, ""},
    {"top --once", 0, "serving, up "},
    {"", 2, "a command is missing"},
    {"nonsense", 2, "there is no command 'nonsense'"},
    {"config", 2, "a word is missing behind 'config'"},
    {"config nonsense", 2, "there is no command 'config.nonsense'"},
    {"conf get", 2, "there is no command 'conf'"},
    {"--nonsense status", 2, "unknown option '--nonsense'"},
    {"status --limit 1", 2, "unknown option '--limit'"},
    {"status -x", 2, "unknown option '-x'"},
    {"status extra", 2, "unexpected argument 'extra'"},
    {"status --once", 2, "--once is for top only"},
    {"top --once --json", 2, "--json is not for top"},
    {"top --follow", 2, "--follow is for events only"},
    {"top --interval nan", 2, "--interval: 'nan' is not 0.05 to 3600"},
    {"top --interval 0", 2, "--interval: '0' is not 0.05 to 3600"},
    {"events --count x", 2, "--count: 'x' is not a number from 1"},
    {"regions --limit", 2, "needs a value: '--limit'"},
    {"--json=1 status", 2, "takes no value: '--json=1'"},
    {"--socket /nonexistent/x status", 3, "ECONN: /nonexistent/x: No such file or directory"},
};

START_TEST(commands_and_mistakes) {
    ck_says(commands[_i].arguments, commands[_i].exit_code, commands[_i].says);
}
END_TEST

START_TEST(help_tells_every_method) {
    char command[64];
    ck_assert_int_eq(run("--help"), 0);
    for (int i = 0; i < SW_CONTROL_METHOD_NR; i++) {
        (void)snprintf(command, sizeof command, "\n  %s\n", sw_control_rows[i].name);
        for (char *at = command; *at; at++)
            if (*at == '.')
                *at = ' ';
        ck_assert_msg(strstr(output, command) != NULL, "no help on %s", command);
    }
}
END_TEST

START_TEST(output_that_cannot_be_written) {
    char line[512];
    (void)snprintf(line, sizeof line, "'%s' --socket '%s' status 2>&1 >/dev/full", SW_SPILLWAYCTL_PATH,
                   sw_served_daemon.control);
    ck_assert_int_eq(finish(popen(line, "r")), 1);
    ck_assert_ptr_nonnull(strstr(output, "EIO: standard output: No space left on device"));
}
END_TEST

/* The connection must not be what is printed to. */
START_TEST(streams_that_are_closed) {
    char line[512];
    (void)snprintf(line, sizeof line,
                   "'%s' --socket '%s' events --follow <&- >&- 2>&- & sleep 0.3; "
                   "for i in 0 1 2; do readlink /proc/$!/fd/$i; done; kill $!",
                   SW_SPILLWAYCTL_PATH, sw_served_daemon.control);
    ck_assert_int_eq(finish(popen(line, "r")), 0);
    ck_assert_str_eq(output, "/dev/null\n/dev/null\n/dev/null\n");
}
END_TEST

START_TEST(socket_by_environment) {
    char line[512];
    (void)snprintf(line, sizeof line, "SPILLWAY_CONTROL_SOCKET='%s' '%s' status", sw_served_daemon.control,
                   SW_SPILLWAYCTL_PATH);
    ck_assert_int_eq(finish(popen(line, "r")), 0);
    ck_assert_ptr_nonnull(strstr(output, "serving"));
}
END_TEST

START_TEST(sessions_and_regions_as_tables) {
    struct spillway *client = sw_served_connect(&sw_served_daemon);
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result;
    struct spillway_error error;
    char arguments[64];
    const int fd = memfd_create("ctl", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && ftruncate(fd, 4096) == 0);
    void *data = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(data, MAP_FAILED);
    ck_assert_int_eq(spillway_spill(client, data, 4096, NULL, &ticket, &error), 0);
    ck_assert_int_eq(spillway_wait(ticket, -1, &result, &error), 0);
    spillway_ticket_free(ticket);
    ck_says("sessions", 0, "session");
    ck_assert_ptr_nonnull(strstr(output, "4.0 KiB"));
    ck_says("regions --state out", 0, "region ");
    (void)snprintf(arguments, sizeof arguments, "%u:%u", result.region.slot, result.region.generation);
    ck_assert_ptr_nonnull(strstr(output, arguments));
    ck_says("top --once", 0, "1 sessions, 1 regions");
    (void)snprintf(arguments, sizeof arguments, "drop %u:%u", result.region.slot, result.region.generation);
    ck_says(arguments, 0, "region  ");
    ck_says("regions", 0, "regions  -\n");
    sw_served_close(client);
    (void)munmap(data, 4096);
    (void)close(fd);
}
END_TEST

static void await_subscriber(void) {
    const struct timespec a_little = {.tv_nsec = 10000000};
    while (run("metrics") == 0 && !strstr(output, "spillway_event_subscribers 1\n"))
        (void)nanosleep(&a_little, NULL);
}

START_TEST(events_are_followed) {
    FILE *watch = begin("events --only drain --count 2");
    await_subscriber();
    ck_assert_int_eq(run("drain off"), 0);
    ck_assert_int_eq(run("log level info"), 0);
    ck_assert_int_eq(run("drain off"), 0);
    ck_assert_int_eq(finish(watch), 0);
    const char *first = strstr(output, " drain mode=off\n");
    ck_assert_msg(first && strstr(first + 1, " drain mode=off\n") && !strstr(output, "config"), "%s", output);
    watch = begin("events --follow --json drain");
    await_subscriber();
    ck_assert_int_eq(run("drain off"), 0);
    char line[512];
    ck_assert_ptr_nonnull(fgets(line, sizeof line, watch));
    ck_assert_msg(strstr(line, "\"event\":\"drain\"") != NULL, "%s", line);
    sw_served_stop(); /* ends it */
    ck_assert_int_eq(finish(watch), 3);
}
END_TEST

START_TEST(top_goes_on_until_the_service_ends) {
    FILE *watch = begin("top --interval 0.05");
    char line[512];
    for (int looks = 0; looks < 3;)
        looks += fgets(line, sizeof line, watch) && strncmp(line, "spillwayd ", 10) == 0;
    sw_served_stop();
    ck_assert_int_eq(finish(watch), 3);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("spillwayctl"), *alone = tcase_create("alone");
    tcase_add_unchecked_fixture(tests, sw_served_start, sw_served_stop);
    tcase_add_loop_test(tests, commands_and_mistakes, 0, (int)(sizeof commands / sizeof commands[0]));
    tcase_add_test(tests, help_tells_every_method);
    tcase_add_test(tests, output_that_cannot_be_written);
    tcase_add_test(tests, streams_that_are_closed);
    tcase_add_test(tests, socket_by_environment);
    tcase_add_test(tests, sessions_and_regions_as_tables);
    tcase_add_checked_fixture(alone, sw_served_start, sw_served_stop);
    tcase_add_test(alone, events_are_followed);
    tcase_add_test(alone, top_goes_on_until_the_service_ends);
    Suite *suite = suite_create("spillwayctl");
    suite_add_tcase(suite, tests);
    suite_add_tcase(suite, alone);
    return sw_test_run(suite, CK_FORK);
}

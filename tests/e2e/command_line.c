/* spillwayd's options: what they print, and with which exit code. */
#include "tests/lib/run.h"
#include "tests/lib/spillwayd.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

static char output[65536], from_file[sizeof output];

/* Runs a line of the shell, whose standard output goes to `output`. Returns its exit code. */
static int run_line(const char *line) {
    FILE *shell = popen(line, "r");
    ck_assert_ptr_nonnull(shell);
    output[fread(output, 1, sizeof output - 1, shell)] = 0;
    const int status = pclose(shell);
    ck_assert_msg(WIFEXITED(status), "%x: %s", (unsigned)status, output);
    return WEXITSTATUS(status);
}

/* Runs spillwayd with these arguments; both streams go to `output`. Returns the exit code. */
static int run(const char *arguments) {
    char line[1024];
    (void)snprintf(line, sizeof line, "'%s' %s 2>&1", SW_SPILLWAYD_PATH, arguments);
    return run_line(line);
}

START_TEST(information) {
    ck_assert_int_eq(run("--version"), 0);
    ck_assert_str_eq(output, "spillwayd " SW_VERSION "\n");
    ck_assert_int_eq(run("--help"), 0);
    ck_assert_ptr_nonnull(strstr(output, "Usage: spillwayd"));
    ck_assert_ptr_nonnull(strstr(output, "max_session_memories: a whole number from 1 to"));
    ck_assert_ptr_nonnull(strstr(output, "a number with K, M, G or T (KiB, MiB, GiB, TiB)"));
    ck_assert_int_eq(run("--check-config"), 0);
    ck_assert_str_eq(output, "");
    ck_assert_int_eq(run("--check-config --set control_group=no-such-group --set control_socket=none"), 0);
    ck_assert_int_eq(run("--check-config --set data_socket=/x/control.sock --set control_socket=/x/c"), 0);
}
END_TEST

START_TEST(printed_config_is_loaded_again) {
    char path[SW_TEST_PATH_BYTES], first[sizeof output], arguments[128];
    ck_assert_int_eq(run("--print-config --set slots=3 -s device=host"), 0);
    ck_assert_ptr_nonnull(strstr(output, "\"slots\": 3,"));
    (void)strcpy(first, output);
    const int fd = sw_test_file(path);
    ck_assert_int_eq(write(fd, output, strlen(output)), (ssize_t)strlen(output));
    (void)close(fd);
    (void)snprintf(arguments, sizeof arguments, "--config %s --print-config", path);
    ck_assert_int_eq(run(arguments), 0);
    ck_assert_str_eq(output, first);
    /* An assignment wins over a file, also in front of it. */
    (void)snprintf(arguments, sizeof arguments, "--set slots=4 -c %s --print-config", path);
    ck_assert_int_eq(run(arguments), 0);
    ck_assert_ptr_nonnull(strstr(output, "\"slots\": 4,"));
    ck_assert_ptr_nonnull(strstr(output, "\"device\": \"host\","));
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

START_TEST(a_lower_limit_alone_is_enough) {
    ck_assert_int_eq(
        run("--set host_tier_bytes=64MiB --set max_regions=500 --set host_tier_high_pct=70 --print-config"), 0);
    ck_assert_ptr_nonnull(strstr(output, "\"host_tier_initial_bytes\": \"auto\","));
    ck_assert_ptr_nonnull(strstr(output, "\"host_tier_slab_bytes\": \"auto\","));
    ck_assert_ptr_nonnull(strstr(output, "\"max_session_regions\": \"auto\","));
    ck_assert_ptr_nonnull(strstr(output, "\"host_tier_low_pct\": \"auto\","));
    ck_assert_int_eq(run("--help"), 0);
    ck_assert_ptr_nonnull(strstr(output, "(default: auto, which is 256 MiB, or host_tier_bytes if that is less)"));
    ck_assert_ptr_nonnull(
        strstr(output, "(default: auto, which is 65536, or max_regions if that is less; may be changed"));
}
END_TEST

/* A snapshot of 950 bytes in a host tier of `capacity`: the whole program, from standard input and from a file. */
static int dry_run(unsigned capacity, const char *options) {
    char path[SW_TEST_PATH_BYTES], arguments[256];
    const int fd = sw_test_file(path);
    ck_assert_int_gt(dprintf(fd,
                             "{\"host_tier\": {\"used_bytes\": 950, \"capacity_bytes\": %u}, \"regions\": ["
                             "{\"region\": \"7:1\", \"stored_bytes\": 450, \"used_us\": 1, \"tier\": \"host\", "
                             "\"priority\": 2}, "
                             "{\"region\": \"8:1\", \"stored_bytes\": 250, \"used_us\": 2, \"tier\": \"host\", "
                             "\"pinned\": true}, "
                             "{\"region\": \"9:1\", \"stored_bytes\": 250, \"used_us\": 3, \"tier\": \"host\"}]}",
                             capacity),
                     0);
    (void)close(fd);
    (void)snprintf(arguments, sizeof arguments, "%s --dry-run %s", options, path);
    const int code = run(arguments);
    (void)strcpy(from_file, output);
    (void)snprintf(arguments, sizeof arguments, "%s --dry-run - <%s", options, path);
    ck_assert_int_eq(run(arguments), code);
    ck_assert_str_eq(output, from_file);
    ck_assert_int_eq(unlink(path), 0);
    return code;
}

START_TEST(dry_run_lists_regions_to_move) {
    ck_assert_int_eq(dry_run(1000, "--set nvme_tier_directory=/nonexistent"), 0);
    ck_assert_ptr_nonnull(strstr(output, "moved to the NVMe tier: 1 of 3 regions, 250 bytes\n"));
    ck_assert_ptr_nonnull(strstr(output, "    1  9:1 "));
    ck_assert_ptr_nonnull(strstr(output, "stays  8:1 "));
    ck_assert_int_eq(dry_run(1000, "--set nvme_tier_directory=/nonexistent --set host_tier_low_pct=20"), 0);
    ck_assert_ptr_nonnull(strstr(output, "moved to the NVMe tier: 2 of 3 regions, 700 bytes\n"));
    ck_assert_ptr_nonnull(strstr(output, "    2  7:1 "));
    ck_assert_int_eq(dry_run(1100, "--set nvme_tier_directory=/nonexistent"), 0); /* 86 % */
    ck_assert_ptr_nonnull(strstr(output, "moved to the NVMe tier: 0 of 3 regions, 0 bytes\n"));
    ck_assert_int_eq(dry_run(1000, ""), 0);
    ck_assert_ptr_nonnull(strstr(output, "nvme_tier_directory is none: nothing is moved\n"));
    ck_assert_int_eq(dry_run(1000, "--set host_tier_low_pct=95"), 2); /* the configuration counts as it does else */
    ck_assert_ptr_nonnull(strstr(output, "host_tier_low_pct: 95 exceeds host_tier_high_pct"));
}
END_TEST

#define FIVE "12345"
#define FOLDER_OF_95 FIVE FIVE FIVE FIVE FIVE FIVE FIVE FIVE FIVE FIVE FIVE FIVE FIVE FIVE FIVE FIVE FIVE FIVE FIVE

static const struct {
    const char *arguments, *says;
} mistakes[] = {
    {"--nonsense", "unrecognized option"},
    {"--set", "requires an argument"},
    {"argument", "unexpected argument 'argument'"},
    {"--set slots", "slots: must be NAME=VALUE"},
    {"--check-config --set slots=99", "slots: 99 is not a whole number from 0 to 16"},
    {"--check-config --set nonsense=1", "nonsense: unknown option"},
    {"--check-config --set data_soket=/x", "data_soket: unknown option; did you mean data_socket?"},
    {"--check-config --set host_tier_bytes=2MiB --set host_tier_initial_bytes=256MiB",
     "host_tier_initial_bytes: 256 MiB exceeds host_tier_bytes, which is 2 MiB; lower it or leave it out"},
    {"--check-config --set data_socket=/" FOLDER_OF_95 "/d",
     "control_socket: auto is a path of 109 bytes, more than 107; shorten data_socket's folder"},
    {"--check-config --set control_group=no-such-group", "control_group: there is no group no-such-group"},
    {"--check-config --set control_read_group=no-such-group", "control_read_group: there is no group no-such-group"},
    {"--check-config --set data_socket=/x/d --set control_socket=/x/d",
     "control_socket: this is the path of data_socket; choose another path"},
    {"--check-config --set data_socket=/x/control.sock", "control_socket: auto is the path of data_socket"},
    {"--check-config --set data_socket=control.sock", "control_socket: auto is the path of data_socket"},
    {"--config /nonexistent/config.json", "/nonexistent/config.json: No such file or directory"},
    {"--config /dev/null", "/dev/null:1: "},
    {"--check-tier", "nvme_tier_directory is none"},
    {"--dry-run", "requires an argument"},
    {"--dry-run - </dev/null", "/dev/stdin:1: "},
    {"--dry-run /nonexistent/snapshot", "/nonexistent/snapshot: No such file or directory"},
};

/* A contradiction is found when all files are read. Its text still names the file, but only if one of the values is
 * there. */
START_TEST(a_contradiction_is_reported_with_its_file) {
    char path[SW_TEST_PATH_BYTES], line[512];
    const int fd = sw_test_file(path);
    ck_assert(dprintf(fd, "{\"host_tier_slab_bytes\": \"256 MiB\"}") > 0);
    (void)close(fd);
    const char *name = strrchr(path, '/');
    (void)snprintf(line, sizeof line, "--check-config --config %s --set host_tier_bytes=64M", path);
    ck_assert_int_eq(run(line), 2);
    const char *says = strstr(output, ": host_tier_slab_bytes: 256 MiB exceeds host_tier_bytes, which is 64 MiB");
    ck_assert_msg(says && strstr(output, name) && strstr(output, name) < says, "%s", output);
    (void)snprintf(line, sizeof line,
                   "--check-config --config %s --set host_tier_slab_bytes=256M --set "
                   "host_tier_bytes=64M",
                   path);
    ck_assert_int_eq(run(line), 2);
    ck_assert_msg(!strstr(output, name), "%s", output);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

START_TEST(mistakes_exit_with_2) {
    ck_assert_int_eq(run(mistakes[_i].arguments), 2);
    ck_assert_msg(strstr(output, mistakes[_i].says) != NULL, "'%s' does not say '%s'", output, mistakes[_i].says);
}
END_TEST

/* The loop's descriptors must not be those of closed streams: log lines would go to them. */
START_TEST(streams_that_are_closed) {
    char folder[SW_TEST_PATH_BYTES], line[1024];
    sw_test_folder(folder);
    (void)snprintf(line, sizeof line,
                   "cd %s; '%s' --set device=host --set data_socket=%s/data.sock --set host_tier_bytes=64MiB --set "
                   "host_tier_initial_bytes=0 --set host_tier_slab_bytes=4MiB <&- >&- 2>&- & "
                   "for i in $(seq 100); do [ -S control.sock ] && break; sleep 0.1; done; "
                   "for i in 0 1 2; do readlink /proc/$!/fd/$i; done; kill $!; wait $!; echo $?",
                   folder, SW_SPILLWAYD_PATH, folder);
    ck_assert_int_eq(run_line(line), 0);
    ck_assert_str_eq(output, "/dev/null\n/dev/null\n/dev/null\n0\n");
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

/* Written differently, the path is found only at the start; there is no other service, and the text blames none. */
START_TEST(both_sockets_at_one_path) {
    char folder[SW_TEST_PATH_BYTES], arguments[512];
    sw_test_folder(folder);
    (void)snprintf(arguments, sizeof arguments,
                   "--set device=host --set data_socket=%s/d --set control_socket=%s//d --set host_tier_bytes=64MiB "
                   "--set host_tier_initial_bytes=0 --set host_tier_slab_bytes=4MiB",
                   folder, folder);
    ck_assert_int_eq(run(arguments), 1);
    ck_assert_ptr_nonnull(strstr(output, "//d: a socket of another kind is listening"));
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

START_TEST(a_file_size_limit_is_reported) {
    char folder[SW_TEST_PATH_BYTES], line[1024];
    sw_test_folder(folder);
    (void)snprintf(line, sizeof line,
                   "ulimit -f 1024; exec '%s' --set device=host --set data_socket=%s/d --set host_tier_bytes=64MiB "
                   "--set host_tier_initial_bytes=0 --set host_tier_slab_bytes=4MiB --set nvme_tier_directory=%s/nvme "
                   "2>&1",
                   SW_SPILLWAYD_PATH, folder, folder);
    ck_assert_int_eq(run_line(line), 1);
    ck_assert_msg(strstr(output, "event=start.failed name=ENOSPACE ") && strstr(output, "File too large"), "%s",
                  output);
    (void)snprintf(line, sizeof line, "rm -r %s", folder);
    ck_assert_int_eq(system(line), 0);
}
END_TEST

/* A file that was not written must not pass for one. */
START_TEST(output_that_cannot_be_written) {
    static const char *const options[] = {"--print-config", "--help", "--version", "--set slots=3 --print-config"};
    char arguments[128];
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        (void)snprintf(arguments, sizeof arguments, "%s 3>&1 >/dev/full 2>&3 3>&- ; exit $?", options[i]);
        ck_assert_int_eq(run(arguments), 1);
        ck_assert_str_eq(output, "spillwayd: standard output: No space left on device\n");
    }
}
END_TEST

START_TEST(a_tier_larger_than_memory_is_reported) {
    char folder[SW_TEST_PATH_BYTES], arguments[512];
    sw_test_folder(folder);
    /* The folder of the disk cannot be had, so that it ends when it has looked. */
    (void)snprintf(
        arguments, sizeof arguments,
        "--set device=host --set data_socket=%s/d --set host_tier_bytes=64TiB --set host_tier_initial_bytes=0 "
        "--set nvme_tier_directory=/dev/null",
        folder);
    ck_assert_int_eq(run(arguments), 1);
    ck_assert_ptr_nonnull(strstr(output, "level=warning event=tier.exceeds_memory tier=host "
                                         "host_tier_bytes=70368744177664 memory_bytes="));
    ck_assert_ptr_nonnull(strstr(output, " bound_bytes="));
    (void)strcat(arguments, " --set log_level=error");
    ck_assert_int_eq(run(arguments), 1);
    ck_assert_msg(!strstr(output, "level=warning") && strstr(output, "level=error"), "%s", output);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

/* The log says why the service did not start, also if the configuration is the reason; a check starts nothing. */
START_TEST(wrong_configuration_is_logged) {
    ck_assert_int_eq(run("--set log_level=loud"), 2);
    ck_assert_ptr_nonnull(strstr(output,
                                 "level=error event=start.failed name=ECONFIG text=\"log_level: \\\"loud\\\" is "
                                 "not one of error"));
    ck_assert_ptr_nonnull(strstr(output, "\nTry 'spillwayd --help'.\n"));
    ck_assert_int_eq(run("--config /nonexistent/file"), 2);
    ck_assert_ptr_nonnull(strstr(output, "event=start.failed name=EIO text=\"/nonexistent/file: No such file"));
    ck_assert_int_eq(run("--set log_level=loud --check-config"), 2);
    ck_assert_ptr_null(strstr(output, "start.failed"));
}
END_TEST

START_TEST(too_few_descriptors) {
    /* Enough descriptors that libuv does not abort, however the test was started. */
    ck_assert_int_eq(run("--version; sh -c 'exec 3>&- 4>&- 5>&- 6>&- 7>&-; ulimit -n 8; exec " SW_SPILLWAYD_PATH
                         " --set data_socket=/nonexistent/d'"),
                     1);
    ck_assert_msg(strstr(output, "event=start.failed name=EIO text=\"loop: too many open files: raise RLIMIT_NOFILE"),
                  "%s", output);
}
END_TEST

START_TEST(input_that_ends) {
    char folder[SW_TEST_PATH_BYTES], line[1024];
    sw_test_folder(folder);
    static const char command[] = "%s '%s' --stop-at-eof --set device=host --set data_socket=%s/d "
                                  "--set host_tier_bytes=64MiB --set host_tier_slab_bytes=4MiB %s 2>&1";
    (void)snprintf(line, sizeof line, command, "echo not yet |", SW_SPILLWAYD_PATH, folder, "");
    ck_assert_int_eq(run_line(line), 0);
    const char *ready = strstr(output, "event=service.ready "), *ended = strstr(output, "event=input.ended ");
    ck_assert_msg(ready && ended && ready < ended, "%s", output);
    (void)snprintf(line, sizeof line, command, "", SW_SPILLWAYD_PATH, folder, "</dev/null");
    ck_assert_int_eq(run_line(line), 1);
    ck_assert_msg(strstr(output, "--stop-at-eof: standard input must be a pipe or a socket"), "%s", output);
    ck_assert_int_eq(rmdir(folder), 0); /* it has removed its sockets */
}
END_TEST

/* Starts it with a pipe's end as its input. Returns the other end. */
static int start_with_input(struct sw_test_daemon *daemon) {
    char data_socket[128];
    int input[2];
    sw_test_folder(daemon->folder);
    (void)snprintf(daemon->socket, sizeof daemon->socket, "%s/d", daemon->folder);
    (void)snprintf(daemon->log, sizeof daemon->log, "%s/log", daemon->folder);
    (void)snprintf(data_socket, sizeof data_socket, "data_socket=%s", daemon->socket);
    ck_assert_int_eq(pipe2(input, O_CLOEXEC), 0);
    daemon->pid = fork();
    if (daemon->pid == 0) {
        (void)dup2(input[0], STDIN_FILENO);
        (void)dup2(open(daemon->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), STDERR_FILENO);
        (void)execl(SW_SPILLWAYD_PATH, "spillwayd", "--stop-at-eof", "--set", "device=host", "--set", data_socket,
                    "--set", "host_tier_bytes=64MiB", "--set", "host_tier_slab_bytes=4MiB", (char *)NULL);
        _exit(127);
    }
    while (access(daemon->socket, F_OK) < 0)
        (void)usleep(1000);
    (void)close(input[0]);
    return input[1];
}

/* Its input ends, and a signal comes, before it looks at either. */
START_TEST(two_reasons_to_stop) {
    struct sw_test_daemon daemon = {.pid = 0};
    const int input = start_with_input(&daemon);
    sw_test_daemon_pause(&daemon);
    (void)close(input);
    ck_assert_int_eq(kill(daemon.pid, SIGTERM), 0);
    ck_assert_int_eq(sw_test_daemon_stop(&daemon, SIGCONT), 0);
    sw_test_daemon_clean(&daemon);
}
END_TEST

START_TEST(input_that_stays_open) {
    struct sw_test_daemon daemon = {.pid = 0};
    const int input = start_with_input(&daemon);
    ck_assert_int_eq(sw_test_daemon_stop(&daemon, SIGTERM), 0);
    ck_assert_uint_eq(sw_test_daemon_logged(&daemon, "event=input.ended "), 0);
    (void)close(input);
    sw_test_daemon_clean(&daemon);
}
END_TEST

/* Only the end of the input counts: it still reads its configuration again. */
START_TEST(input_that_says_something) {
    struct sw_test_daemon daemon = {.pid = 0};
    const int input = start_with_input(&daemon);
    int left;
    ck_assert_int_eq(write(input, "stop", 4), 4);
    do {
        (void)usleep(1000);
        ck_assert_int_eq(ioctl(input, FIONREAD, &left), 0);
    } while (left);
    ck_assert_int_eq(kill(daemon.pid, SIGHUP), 0);
    while (!sw_test_daemon_logged(&daemon, "event=config.reload ") &&
           !sw_test_daemon_logged(&daemon, "event=service.stopped "))
        (void)usleep(1000);
    ck_assert_uint_eq(sw_test_daemon_logged(&daemon, "event=input.ended "), 0);
    (void)close(input);
    ck_assert_int_eq(sw_test_daemon_stop(&daemon, 0), 0);
    ck_assert_uint_eq(sw_test_daemon_logged(&daemon, "event=input.ended "), 1);
    sw_test_daemon_clean(&daemon);
}
END_TEST

/* Of two signals the second ends it at once. The sockets go all the same. */
START_TEST(a_second_signal_does_not_wait) {
    struct sw_test_daemon daemon = {.pid = 0};
    sw_test_daemon_start(&daemon, SW_SPILLWAYD_PATH, NULL);
    sw_test_daemon_pause(&daemon);
    ck_assert(kill(daemon.pid, SIGTERM) == 0 && kill(daemon.pid, SIGINT) == 0);
    ck_assert_int_eq(sw_test_daemon_stop(&daemon, SIGCONT), 1);
    ck_assert(access(daemon.socket, F_OK) < 0 && access(daemon.control, F_OK) < 0);
    ck_assert_uint_eq(sw_test_daemon_logged(&daemon, "exit without waiting"), 1);
    sw_test_daemon_clean(&daemon);
}
END_TEST

START_TEST(a_missing_device_is_reported) {
    if (access("/dev/nvidiactl", F_OK) == 0)
        return; /* there may be one */
    ck_assert_int_eq(run("--set device=cuda --set data_socket=/tmp/spillway-no-gpu.sock"), 1);
    ck_assert_ptr_nonnull(strstr(output, "event=start.failed name=EDEVICE"));
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("command_line");
    tcase_add_test(tests, information);
    tcase_add_test(tests, printed_config_is_loaded_again);
    tcase_add_test(tests, a_lower_limit_alone_is_enough);
    tcase_add_test(tests, dry_run_lists_regions_to_move);
    tcase_add_test(tests, a_contradiction_is_reported_with_its_file);
    tcase_add_loop_test(tests, mistakes_exit_with_2, 0, (int)(sizeof mistakes / sizeof mistakes[0]));
    tcase_add_test(tests, output_that_cannot_be_written);
    tcase_add_test(tests, streams_that_are_closed);
    tcase_add_test(tests, both_sockets_at_one_path);
    tcase_add_test(tests, a_file_size_limit_is_reported);
    tcase_add_test(tests, a_tier_larger_than_memory_is_reported);
    tcase_add_test(tests, wrong_configuration_is_logged);
    tcase_add_test(tests, too_few_descriptors);
    tcase_add_test(tests, input_that_ends);
    tcase_add_test(tests, two_reasons_to_stop);
    tcase_add_test(tests, input_that_stays_open);
    tcase_add_test(tests, input_that_says_something);
    tcase_add_test(tests, a_second_signal_does_not_wait);
    tcase_add_test(tests, a_missing_device_is_reported);
    Suite *suite = suite_create("command_line");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

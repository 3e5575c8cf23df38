/* spillwayd's options: what they print, and with which exit code. */
#include "tests/lib/run.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char output[16384];

/* Runs spillwayd with these arguments; both streams go to `output`. Returns the exit code. */
static int run(const char *arguments) {
    char line[1024];
    (void)snprintf(line, sizeof line, "'%s' %s 2>&1", SW_SPILLWAYD_PATH, arguments);
    FILE *program = popen(line, "r");
    ck_assert_ptr_nonnull(program);
    output[fread(output, 1, sizeof output - 1, program)] = 0;
    const int status = pclose(program);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

START_TEST(information) {
    ck_assert_int_eq(run("--version"), 0);
    ck_assert_str_eq(output, "spillwayd " SW_VERSION "\n");
    ck_assert_int_eq(run("--help"), 0);
    ck_assert_ptr_nonnull(strstr(output, "Usage: spillwayd"));
    ck_assert_ptr_nonnull(strstr(output, "max_session_memories: a whole number from 1 to"));
    ck_assert_int_eq(run("--check-config"), 0);
    ck_assert_str_eq(output, "");
}
END_TEST

START_TEST(printed_config_is_loaded_again) {
    char path[] = "/tmp/spillway-config-XXXXXX", first[sizeof output], arguments[128];
    ck_assert_int_eq(run("--print-config --set slots=3 -s device=host"), 0);
    ck_assert_ptr_nonnull(strstr(output, "\"slots\": 3,"));
    (void)strcpy(first, output);
    const int fd = mkstemp(path);
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

static const struct {
    const char *arguments, *says;
} mistakes[] = {
    {"--nonsense", "unrecognized option"},
    {"--set", "requires an argument"},
    {"argument", "unexpected argument 'argument'"},
    {"--set slots", "slots: must be NAME=VALUE"},
    {"--check-config --set slots=99", "slots: 99 is not a whole number from 0 to 64"},
    {"--check-config --set nonsense=1", "nonsense: unknown option"},
    {"--check-config --set host_tier_bytes=2MiB", "host_tier_initial_bytes: 268435456 exceeds host_tier_bytes"},
    {"--config /nonexistent/config.json", "/nonexistent/config.json: No such file or directory"},
    {"--config /dev/null", "/dev/null:1: "},
};

START_TEST(mistakes_exit_with_2) {
    ck_assert_int_eq(run(mistakes[_i].arguments), 2);
    ck_assert_msg(strstr(output, mistakes[_i].says) != NULL, "'%s' does not say '%s'", output, mistakes[_i].says);
}
END_TEST

START_TEST(device_that_is_not_there) {
    if (access("/dev/nvidiactl", F_OK) == 0)
        return; /* there may be one */
    ck_assert_int_eq(run("--set device=cuda --set data_socket=/tmp/spillway-no-gpu.sock"), 1);
    ck_assert_ptr_nonnull(strstr(output, "event=start.failed name=EDEVICE"));
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("command_line");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, information);
    tcase_add_test(tests, printed_config_is_loaded_again);
    tcase_add_loop_test(tests, mistakes_exit_with_2, 0, (int)(sizeof mistakes / sizeof mistakes[0]));
    tcase_add_test(tests, device_that_is_not_there);
    Suite *suite = suite_create("command_line");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

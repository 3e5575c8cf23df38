/* Connections to the control socket of a real spillwayd: subscriptions to events, misuse that must not harm it, and
 * rights. control.c has the methods. */
#include "ipc/spillway.h"
#include "tests/lib/control_rig.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"

#include <check.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = SW_TEST_WAIT_MS, NOBODY = 65534, GROUP = 54321, OTHER_GROUP = 54322 };

/* ---- events ------------------------------------------------------------------------------------------------------ */

START_TEST(events_are_sent) {
    struct sw_ctl *watcher = sw_control_connect(&sw_rig.served);
    json_decref(sw_control_ask(watcher, "events", NULL));
    json_decref(sw_control_ask(sw_rig.ctl, "log.level", "[\"error\"]")); /* events do not depend on it */
    struct spillway *second = sw_served_connect(&sw_rig.served);
    json_t *event = sw_control_event(watcher, "session.open");
    ck_assert_int_eq(sw_rig_number(event, "session"), 2);
    ck_assert_int_eq(sw_rig_number(event, "pid"), getpid());
    ck_assert_int_gt(sw_rig_number(event, "time_ms"), 0);
    json_decref(event);
    const struct spillway_region region = sw_rig_spill(SW_RIG_BYTES);
    event = sw_control_event(watcher, "spill.done");
    ck_assert_int_eq(sw_rig_number(event, "bytes"), SW_RIG_BYTES);
    ck_assert_str_eq(sw_rig_text(event, "tier"), "host");
    json_decref(event);
    ck_assert_int_eq(sw_rig_restore(region), 0);
    json_decref(sw_control_event(watcher, "restore.done"));
    ck_assert_int_eq(sw_rig_restore(region), -SPILLWAY_ESTALE);
    event = sw_control_event(watcher, "request.failed");
    ck_assert_str_eq(sw_rig_text(event, "name"), "ESTALE");
    json_decref(event);
    json_decref(sw_control_ask(sw_rig.ctl, "drain", "[\"on\"]"));
    json_decref(sw_control_event(watcher, "drain.set"));
    json_decref(sw_control_ask(watcher, "events", "{\"only\":\"session,tier.held\"}"));
    json_decref(sw_control_ask(sw_rig.ctl, "drain", "[\"off\"]"));
    spillway_close(second);
    const char *line;
    struct sw_err err;
    ck_assert_int_eq(sw_ctl_receive(watcher, WAIT_MS, &line, &err), 0);
    ck_assert_msg(strstr(line, "\"session.close\""), "%s", line);
    json_decref(sw_control_ask(watcher, "events", "{\"mode\":\"off\"}"));
    ck_assert_int_eq(sw_test_daemon_stop(&sw_rig.served, SIGTERM), 0);
    ck_assert_int_eq(sw_ctl_receive(watcher, WAIT_MS, &line, &err), -SW_ECONN);
    sw_ctl_close(watcher);
    sw_rig_start_anew(NULL);
}
END_TEST

START_TEST(the_end_of_the_service_is_sent) {
    const char *line;
    struct sw_err err;
    json_decref(sw_control_ask(sw_rig.ctl, "events", "[\"service.stopping\"]"));
    ck_assert_int_eq(sw_test_daemon_stop(&sw_rig.served, SIGTERM), 0);
    ck_assert_int_eq(sw_ctl_receive(sw_rig.ctl, WAIT_MS, &line, &err), 0);
    ck_assert_msg(strstr(line, "\"service.stopping\""), "%s", line);
    sw_rig_start_anew(NULL);
}
END_TEST

static long long count_dropped(void) {
    static const char name[] = "\nspillway_events_dropped_total ";
    json_t *metrics = sw_control_ask(sw_rig.ctl, "metrics", NULL);
    const char *at = strstr(json_string_value(metrics), name);
    ck_assert_ptr_nonnull(at);
    const long long dropped = strtoll(at + strlen(name), NULL, 10);
    json_decref(metrics);
    return dropped;
}

/* A subscriber that does not read gets a count of the events it missed, and nothing waits for it. */
START_TEST(events_left_out_are_counted) {
    struct sw_ctl *watcher = sw_control_connect(&sw_rig.served);
    json_decref(sw_control_ask(watcher, "events", "[\"drain\"]"));
    const char *line;
    struct sw_err err;
    /* A socket, and the service's queue behind it, hold a few hundred KiB; an event has 100 bytes. */
    for (int i = 0; i < 200 && !count_dropped(); i++)
        for (int j = 0; j < 100; j++)
            json_decref(sw_control_ask(sw_rig.ctl, "drain", "[\"off\"]"));
    ck_assert_int_gt(count_dropped(), 0);
    const long long dropped = count_dropped(); /* the last event came before this was asked */
    long long told = 0, events = 0;
    while (told == 0) {
        ck_assert_int_eq(sw_ctl_receive(watcher, WAIT_MS, &line, &err), 0);
        json_t *message = json_loads(line, 0, NULL);
        if (strcmp(sw_rig_text(message, "method"), "dropped") == 0)
            told = sw_rig_number(json_object_get(message, "params"), "events");
        events++;
        json_decref(message);
    }
    ck_assert_int_eq(told, dropped);
    ck_assert_int_gt(events, 1000);
    sw_ctl_close(watcher);
}
END_TEST

/* ---- harm -------------------------------------------------------------------------------------------------------- */

static void ck_sound(void) {
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "status", NULL, "pid"), sw_rig.served.pid);
    ck_assert_int_eq(sw_rig_restore(sw_rig_spill(SW_RIG_BYTES)), 0);
}

static const char *const bad_lines[] = {
    "{",
    "[[[[[[[[",
    "nonsense",
    "{\"jsonrpc\":\"2.0\",\"method\":\"\",\"id\":1}",
    "[]",
    "{}",
    "\"\\ud800\"",
    "1e400",
    "{\"jsonrpc\":\"2.0\",\"method\":\"regions\",\"params\":{\"limit\":1e99},\"id\":1}",
    "{\"jsonrpc\":\"2.0\",\"method\":\"regions\",\"params\":{\"limit\":1,\"limit\":1},\"id\":1}",
    "{\"jsonrpc\":\"2.0\",\"method\":\"drop\",\"params\":[\"99999999999999999999999:1\"],\"id\":1}",
    "\xff\xfe\xfd",
};

START_TEST(bad_lines_are_answered) {
    const char *line;
    struct sw_err err;
    for (size_t i = 0; i < sizeof bad_lines / sizeof bad_lines[0]; i++) {
        ck_assert_int_eq(sw_ctl_send(sw_rig.ctl, bad_lines[i], &err), 0);
        ck_assert_int_eq(sw_ctl_receive(sw_rig.ctl, WAIT_MS, &line, &err), 0);
        ck_assert_msg(strstr(line, "\"error\""), "%s: %s", bad_lines[i], line);
    }
    ck_assert_int_eq(sw_ctl_send(sw_rig.ctl, "\n\r\n\n", &err), 0); /* nothing is asked */
    ck_sound();
}
END_TEST

START_TEST(lines_are_limited) {
    static char line[(256 << 10) + 2];
    const char *answer;
    struct sw_err err;
    struct sw_ctl *other = sw_control_connect(&sw_rig.served);
    memset(line, ' ', sizeof line - 1);
    (void)memcpy(line, "{}", 2);
    for (size_t most = 256 << 10; most + 1 >= 256 << 10; most--) { /* without the newline */
        line[most] = 0;
        ck_assert_int_eq(sw_ctl_send(other, line, &err), 0);
        ck_assert_int_eq(sw_ctl_receive(other, WAIT_MS, &answer, &err), 0);
        ck_assert_ptr_nonnull(strstr(answer, "-32600"));
    }
    memset(line, 'x', sizeof line - 1);
    (void)sw_ctl_send(other, line, &err);
    ck_assert_int_eq(sw_ctl_receive(other, WAIT_MS, &answer, &err), 0);
    ck_assert_ptr_nonnull(strstr(answer, "ELIMIT"));
    ck_assert_int_eq(sw_ctl_receive(other, WAIT_MS, &answer, &err), -SW_ECONN);
    sw_ctl_close(other);
    ck_sound();
}
END_TEST

START_TEST(connections_are_limited) {
    struct sw_ctl *others[40];
    const unsigned fds = sw_test_daemon_fds(&sw_rig.served);
    unsigned n_served = 0;
    for (unsigned i = 0; i < 40; i++) {
        json_t *result = NULL;
        struct sw_err err;
        others[i] = sw_control_connect(&sw_rig.served);
        const int rc = sw_ctl_call(others[i], "status", NULL, &result, &err);
        ck_assert_msg(rc == 0 || rc == -SW_ELIMIT, "%s", err.msg);
        n_served += rc == 0;
        json_decref(result);
    }
    ck_assert_uint_eq(n_served, 31);
    for (unsigned i = 0; i < 40; i++)
        sw_ctl_close(others[i]);
    const struct timespec a_little = {.tv_nsec = 10000000};
    while (sw_test_daemon_fds(&sw_rig.served) > fds)
        (void)nanosleep(&a_little, NULL);
    ck_sound();
}
END_TEST

/* A peer asks for much and reads nothing: the service stops reading from it, and others notice nothing. */
START_TEST(answers_that_are_not_read) {
    struct sw_ctl *other = sw_control_connect(&sw_rig.served);
    static char batch[16 << 10];
    struct sw_err err;
    size_t n = 0;
    for (int i = 0; i < 64; i++)
        n += (size_t)snprintf(batch + n, sizeof batch - n, "%s{\"jsonrpc\":\"2.0\",\"method\":\"metrics\",\"id\":1}",
                              i ? "," : "[");
    (void)snprintf(batch + n, sizeof batch - n, "]");
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(sw_ctl_send(other, batch, &err), 0);
    ck_sound();
    const char *line;
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(sw_ctl_receive(other, WAIT_MS, &line, &err), 0);
        ck_assert_int_eq(line[0], '[');
    }
    sw_ctl_close(other);
    ck_sound();
}
END_TEST

START_TEST(peers_that_hang_up_during_a_request) {
    for (int i = 0; i < 20; i++) {
        struct sw_ctl *other = sw_control_connect(&sw_rig.served);
        struct sw_err err;
        json_decref(sw_control_ask(other, "events", NULL));
        ck_assert_int_eq(sw_ctl_send(other, "{\"jsonrpc\":\"2.0\",\"method\":\"metrics\",\"id\":1}", &err), 0);
        sw_ctl_close(other);
    }
    ck_sound();
}
END_TEST

static int connect_raw(void) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", sw_rig.served.control);
    ck_assert(fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

START_TEST(requests_sent_at_once_all_get_answers) {
    const int fd = connect_raw();
    const char *line = "{\"jsonrpc\":\"2.0\",\"method\":\"metrics\",\"id\":1}\n";
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(send(fd, line, strlen(line), 0), (ssize_t)strlen(line));
    ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
    static char in[1 << 16];
    unsigned n_lines = 0;
    for (ssize_t n; (n = recv(fd, in, sizeof in, 0)) > 0;)
        for (ssize_t i = 0; i < n; i++)
            n_lines += in[i] == '\n';
    ck_assert_uint_eq(n_lines, 20);
    (void)close(fd);
}
END_TEST

/* Lines that end with the stream, as `printf | nc -N` sends them, and the lines that come back. */
static const struct {
    const char *said;
    unsigned n_answers;
    const char *last;
} last_lines[] = {
    {"{\"jsonrpc\":\"2.0\",\"method\":\"status\",\"id\":7}", 1, "\"id\":7}"},
    {"\n{\"jsonrpc\":\"2.0\",\"method\":\"status\",\"id\":7}\r", 1, "\"id\":7}"},
    {"{\"jsonrpc\":\"2.0\",\"method\":\"status\",\"id\":7}\n{\"jsonrpc\":\"2.0\",\"method\":\"metrics\",\"id\":8}", 2,
     "\"id\":8"},
    {"[{\"jsonrpc\":\"2.0\",\"method\":\"status\",\"id\":7},{\"jsonrpc\":\"2.0\",\"method\":\"status\",\"id\":9}]", 1,
     "\"id\":9"},
    {"{\"jsonrpc\":\"2.0\",\"met", 1, "-32700"},
    {"\r\n", 0, ""},
    {"", 0, ""},
};

START_TEST(the_last_line_needs_no_newline) {
    static char in[1 << 16];
    const char *said = last_lines[_i].said;
    const int fd = connect_raw();
    size_t bytes = 0;
    unsigned n_lines = 0;
    ck_assert_int_eq(send(fd, said, strlen(said), 0), (ssize_t)strlen(said));
    ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
    for (ssize_t n; (n = recv(fd, in + bytes, sizeof in - 1 - bytes, 0)) > 0;)
        bytes += (size_t)n;
    for (size_t i = 0; i < bytes; i++)
        n_lines += in[i] == '\n';
    ck_assert_uint_eq(n_lines, last_lines[_i].n_answers);
    ck_assert_msg(strstr(in, last_lines[_i].last) != NULL, "%s", in);
    (void)close(fd);
    ck_sound();
}
END_TEST

START_TEST(stale_socket_is_replaced) {
    sw_ctl_close(sw_rig.ctl);
    ck_assert_int_eq(sw_test_daemon_stop(&sw_rig.served, SIGKILL), -SIGKILL);
    spillway_close(sw_rig.client);
    ck_assert_int_eq(access(sw_rig.served.control, F_OK), 0);
    int exit_code;
    ck_assert(sw_test_daemon_try(&sw_rig.served, SW_SPILLWAYD_PATH, NULL, &exit_code));
    sw_rig.ctl = sw_control_connect(&sw_rig.served);
    sw_rig.client = sw_served_connect(&sw_rig.served);
    ck_sound();
}
END_TEST

/* ---- rights ------------------------------------------------------------------------------------------------------ */

/* The result of `method` for another user with that group among its own: 0, or its error; -SW_ECONN: no connection. */
static int as_other(gid_t group, bool primary, const char *method, const char *params) {
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct sw_ctl *other = NULL;
        json_t *result = NULL;
        struct sw_err err;
        const gid_t groups[] = {1, group, 4000000000u}; /* the kernel sorts them */
        if (setgroups(group && !primary ? 3 : 0, groups) < 0 || setgid(primary ? group : NOBODY) < 0 ||
            setuid(NOBODY) < 0)
            _exit(99);
        int rc = sw_ctl_open(&other, sw_rig.served.control, &err);
        if (rc == 0)
            rc = sw_ctl_call(other, method, params ? json_loads(params, 0, NULL) : NULL, &result, &err);
        _exit(rc == 0 ? 0 : 1 + sw_err_index(rc));
    }
    int status;
    ck_assert(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    ck_assert_int_ne(WEXITSTATUS(status), 99);
    return WEXITSTATUS(status) ? sw_err_from_name(sw_err_name_at(WEXITSTATUS(status) - 1)) : 0;
}

START_TEST(others_are_refused) {
    if (getuid() != 0)
        return;
    struct stat found;
    ck_assert_int_eq(chmod(sw_rig.served.folder, 0755), 0);
    ck_assert(stat(sw_rig.served.control, &found) == 0 && (found.st_mode & 0777) == 0660);
    ck_assert_int_eq(as_other(0, false, "status", NULL), -SW_EACCES); /* by the file */
    ck_assert_int_eq(chmod(sw_rig.served.control, 0666), 0);
    ck_assert_int_eq(as_other(0, false, "status", NULL), -SW_EACCES); /* by the service */
    ck_assert_int_eq(as_other(GROUP, false, "status", NULL), -SW_EACCES);
    ck_sound();
}
END_TEST

/* Repeated refusals do not fill the log. */
START_TEST(logged_refusals_are_limited) {
    enum { N = 40, LINES = 10 };
    if (getuid() != 0)
        return;
    const char *const options[] = {"control_socket_mode=0666", NULL};
    sw_rig_start_anew(options);
    ck_assert_int_eq(chmod(sw_rig.served.folder, 0755), 0);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(as_other(0, false, "status", NULL), -SW_EACCES);
    const unsigned n = sw_test_daemon_logged(&sw_rig.served, "event=control.refused ");
    ck_assert_uint_ge(n, LINES);
    ck_assert_uint_le(n, 2 * LINES); /* a slow machine's time for it may be over in between */
    ck_assert_uint_ge(sw_test_daemon_logged(&sw_rig.served, " left_out=0"), LINES);
}
END_TEST

START_TEST(groups_have_their_rights) {
    if (getuid() != 0)
        return;
    char all[48], read[48];
    struct stat found;
    (void)snprintf(all, sizeof all, "control_group=%d", GROUP);
    (void)snprintf(read, sizeof read, "control_read_group=%d", OTHER_GROUP);
    const char *const options[] = {all, read, "control_socket_mode=0666", NULL};
    sw_rig_start_anew(options);
    ck_assert_int_eq(chmod(sw_rig.served.folder, 0755), 0);
    ck_assert(stat(sw_rig.served.control, &found) == 0 && found.st_gid == GROUP && (found.st_mode & 0777) == 0666);
    for (int primary = 0; primary < 2; primary++) {
        ck_assert_int_eq(as_other(GROUP, primary, "status", NULL), 0);
        ck_assert_int_eq(as_other(GROUP, primary, "drain", "[\"off\"]"), 0);
        ck_assert_int_eq(as_other(OTHER_GROUP, primary, "status", NULL), 0);
        ck_assert_int_eq(as_other(OTHER_GROUP, primary, "events", NULL), 0);
        ck_assert_int_eq(as_other(OTHER_GROUP, primary, "drain", "[\"off\"]"), -SW_EACCES);
        ck_assert_int_eq(as_other(OTHER_GROUP, primary, "config.set", "[\"log_level\",\"debug\"]"), -SW_EACCES);
    }
    ck_assert_int_eq(as_other(0, false, "status", NULL), -SW_EACCES);
}
END_TEST

static const struct {
    const char *option, *says;
} refused[] = {
    {"control_group=there-is-no-such-group", "control_group: there is no group there-is-no-such-group"},
    {"control_read_group=4294967295", "control_read_group: there is no group"},
    {"control_socket=/nonexistent/folder/control.sock", "No such file or directory"},
    {"control_socket=/dev/null", "exists and is no socket"},
};

START_TEST(start_fails_on_bad_options) {
    const char *const options[] = {refused[_i].option, NULL};
    int exit_code = 0;
    sw_rig_stop();
    sw_test_daemon_clean(&sw_rig.served);
    ck_assert(!sw_test_daemon_try(&sw_rig.served, SW_SPILLWAYD_PATH, options, &exit_code));
    ck_assert_int_eq(exit_code, 1);
    ck_assert_uint_eq(sw_test_daemon_logged(&sw_rig.served, refused[_i].says), 1);
    sw_rig_start_anew(NULL);
}
END_TEST

START_TEST(no_control_socket) {
    const char *const options[] = {"control_socket=none", NULL};
    sw_rig_stop();
    sw_test_daemon_clean(&sw_rig.served);
    sw_test_daemon_start(&sw_rig.served, SW_SPILLWAYD_PATH, options);
    ck_assert_int_ne(access(sw_rig.served.control, F_OK), 0);
    sw_rig_start_anew(NULL);
}
END_TEST

int main(void) {
    sw_rig.spillwayd = SW_SPILLWAYD_PATH;
    TCase *tests = tcase_create("control_peers");
    tcase_add_checked_fixture(tests, sw_rig_setup, sw_rig_teardown);
    tcase_add_test(tests, events_are_sent);
    tcase_add_test(tests, the_end_of_the_service_is_sent);
    tcase_add_test(tests, events_left_out_are_counted);
    tcase_add_test(tests, bad_lines_are_answered);
    tcase_add_test(tests, lines_are_limited);
    tcase_add_test(tests, connections_are_limited);
    tcase_add_test(tests, answers_that_are_not_read);
    tcase_add_test(tests, peers_that_hang_up_during_a_request);
    tcase_add_test(tests, requests_sent_at_once_all_get_answers);
    tcase_add_loop_test(tests, the_last_line_needs_no_newline, 0, (int)(sizeof last_lines / sizeof last_lines[0]));
    tcase_add_test(tests, stale_socket_is_replaced);
    tcase_add_test(tests, others_are_refused);
    tcase_add_test(tests, logged_refusals_are_limited);
    tcase_add_test(tests, groups_have_their_rights);
    tcase_add_loop_test(tests, start_fails_on_bad_options, 0, (int)(sizeof refused / sizeof refused[0]));
    tcase_add_test(tests, no_control_socket);
    Suite *suite = suite_create("control_peers");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

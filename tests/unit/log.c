/* Log lines to a reader that stalls: logging does not wait, lines stay whole, and missing lines are counted. */
#include "base/log.h"

#include "tests/lib/run.h"
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { N_LINES = 20000 };

static int reader; /* of stderr; only tests that want to read it do */

static void be_stderr(int fd) {
    ck_assert_int_ge(dup2(fd, STDERR_FILENO), 0);
    (void)close(fd);
}

static void make_pipe(void) {
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    reader = ends[0];
    be_stderr(ends[1]);
}

static void make_socket(void) {
    int ends[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    reader = ends[0];
    be_stderr(ends[1]);
}

static void make_terminal(void) {
    char name[64];
    reader = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    ck_assert(reader >= 0 && grantpt(reader) == 0 && unlockpt(reader) == 0);
    ck_assert_int_eq(ptsname_r(reader, name, sizeof name), 0);
    be_stderr(open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
}

static const struct {
    void (*make)(void);
    bool opened;
} kinds[] = {{make_pipe, false}, {make_pipe, true}, {make_socket, false}, {make_socket, true}, {make_terminal, true}};

/* All that is there; a terminal puts a carriage return before each newline. Returns its lines. */
static unsigned read_lines(char *ret, size_t ret_bytes) {
    struct pollfd some = {.fd = reader, .events = POLLIN};
    size_t n = 0;
    unsigned n_lines = 0;
    while (n + 1 < ret_bytes && poll(&some, 1, 100) == 1) {
        const ssize_t got = read(reader, ret + n, ret_bytes - 1 - n);
        ck_assert_int_gt(got, 0);
        n += (size_t)got;
    }
    ret[n] = 0;
    for (const char *at = ret; (at = strchr(at, '\n')); at++)
        n_lines++;
    return n_lines;
}

/* Each line begins with its time: checks that, and returns the rest. */
static char *behind_time(char *line) {
    enum { TIME_BYTES = sizeof "time=2026-01-31T12:34:56.789Z " - 1 };
    struct tm utc = {0};
    const char *end = strptime(line, "time=%Y-%m-%dT%H:%M:%S.", &utc);
    ck_assert_msg(end && strspn(end, "0123456789") == 3 && strncmp(end + 3, "Z ", 2) == 0, "%s", line);
    struct timespec now; /* time() is behind by up to a tick */
    (void)clock_gettime(CLOCK_REALTIME, &now);
    const time_t then = timegm(&utc);
    ck_assert_msg(then <= now.tv_sec && then > now.tv_sec - 600, "%s", line);
    return line + TIME_BYTES;
}

START_TEST(logging_does_not_wait_for_a_reader) {
    static char text[8 << 20];
    unsigned n = 0, n_dropped = 0, i;
    char *rest = text;
    kinds[_i].make();
    if (kinds[_i].opened)
        sw_log_open();
    for (i = 0; i < N_LINES; i++)
        sw_log(SW_LOG_INFO, "news", "n=%u text=\"something of some length, so that lines do not fit anywhere evenly\"",
               i);
    for (int more = 0; more < 2;
         more++) { /* the unfinished line, and the count of missing ones, come with the next one */
        (void)read_lines(rest, (size_t)(text + sizeof text - rest));
        rest += strlen(rest);
        sw_log(SW_LOG_INFO, "more", "n=%d", more);
    }
    (void)read_lines(rest, (size_t)(text + sizeof text - rest));
    rest = text;
    for (char *line; (line = strsep(&rest, "\n")) && *line;) {
        line[strcspn(line, "\r")] = 0;
        line = behind_time(line);
        if (sscanf(line, "level=info event=news n=%u text=", &i) == 1) {
            ck_assert_msg(i == n + n_dropped && strcmp(strrchr(line, ' '), " evenly\"") == 0, "%s", line);
            n++;
        } else if (sscanf(line, "level=warning event=log.dropped lines=%u why=", &i) == 1) {
            n_dropped += i;
        } else {
            ck_assert_msg(sscanf(line, "level=info event=more n=%u", &i) == 1 && n_dropped > 0, "%s", line);
        }
    }
    ck_assert_uint_gt(n, 100);
    ck_assert_uint_gt(n_dropped, 0);
    ck_assert_uint_eq(n + n_dropped, N_LINES);
}
END_TEST

/* Others write to the same pipe, and may have it blocking: it stays so. */
START_TEST(stderr_itself_stays_as_it_is) {
    make_pipe();
    const int before = fcntl(STDERR_FILENO, F_GETFL);
    sw_log_open();
    ck_assert_int_eq(fcntl(STDERR_FILENO, F_GETFL), before);
    ck_assert_int_eq(before & O_NONBLOCK, 0);
}
END_TEST

/* The disk is full: lines that could not be written are reported once there is room. */
START_TEST(failed_writes_are_counted) {
    char text[1024];
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(full, 0);
    be_stderr(full);
    sw_log(SW_LOG_INFO, "news", "n=1");
    sw_log(SW_LOG_INFO, "news", "n=2");
    make_pipe();
    sw_log(SW_LOG_INFO, "news", "n=3");
    ck_assert_uint_eq(read_lines(text, sizeof text), 2);
    (void)behind_time(text);
    (void)behind_time(strchr(text, '\n') + 1);
    ck_assert_ptr_nonnull(strstr(text, "event=log.dropped lines=2 "));
    ck_assert_ptr_nonnull(strstr(text, "event=news n=3\n"));
}
END_TEST

/* A whole line of the greatest length, with its time. */
START_TEST(long_lines_are_cut) {
    static char text[4096], value[2000];
    memset(value, 'v', sizeof value - 1);
    make_pipe();
    sw_log(SW_LOG_INFO, "long", "a=%s", value);
    ck_assert_uint_eq(read_lines(text, sizeof text), 1);
    const char *line = behind_time(text);
    ck_assert_uint_gt(strlen(line), 1000);
    ck_assert_uint_le(strlen(line), 1024);
    ck_assert_str_eq(line + strlen(line) - 2, "v\n");
}
END_TEST

/* Up to the greatest length a line is printed whole; a longer one is as long as that. */
START_TEST(lines_about_the_greatest_length) {
    enum { MOST = 1022 };
    static char text[4096], value[1101];
    make_pipe();
    for (size_t n = 900; n < sizeof value; n++) {
        memset(value, 'v', n);
        sw_log(SW_LOG_INFO, "long", "a=%s", value);
        const ssize_t got = read(reader, text, sizeof text - 1);
        ck_assert_int_gt(got, 0);
        const char *line = behind_time(text);
        const size_t whole = strlen("level=info event=long a=") + n, length = strcspn(line, "\n");
        ck_assert_uint_eq(length, whole < MOST ? whole : MOST);
        ck_assert_uint_eq(strspn(strstr(line, "a=") + 2, "v"), length - strlen("level=info event=long a="));
        ck_assert_ptr_eq(line + length + 1, text + got); /* and nothing behind its newline */
        memset(text, 0, sizeof text);
    }
}
END_TEST

/* Readers of the log see lines of operations as debug lines. */
START_TEST(operations_are_printed_at_debug) {
    char text[1024];
    make_pipe();
    sw_log(SW_LOG_OPERATION, "spill.done", "n=1");
    ck_assert_uint_eq(read_lines(text, sizeof text), 0);
    ck_assert(sw_log_set_level_name("debug"));
    sw_log(SW_LOG_OPERATION, "spill.done", "n=2");
    sw_log(SW_LOG_DEBUG, "detail", "n=3");
    ck_assert_uint_eq(read_lines(text, sizeof text), 2);
    ck_assert_ptr_nonnull(strstr(text, " level=debug event=spill.done n=2\n"));
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("log");
    tcase_add_test(tests, long_lines_are_cut);
    tcase_add_test(tests, lines_about_the_greatest_length);
    tcase_add_test(tests, operations_are_printed_at_debug);
    tcase_add_loop_test(tests, logging_does_not_wait_for_a_reader, 0, (int)(sizeof kinds / sizeof kinds[0]));
    tcase_add_test(tests, stderr_itself_stays_as_it_is);
    tcase_add_test(tests, failed_writes_are_counted);
    Suite *suite = suite_create("log");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

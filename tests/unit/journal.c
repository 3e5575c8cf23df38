/* Log lines to the journal: its protocol, spoken to a socket of the test's own. */
#include "base/journal.h"

#include "base/log.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"
#include <check.h>
#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char folder[SW_TEST_PATH_BYTES], path[96], errors[96];
static int journal;

/* stderr as systemd makes it: a stream of the journal, here a file, named in JOURNAL_STREAM. */
static void name_stderr(void) {
    char stream[64];
    struct stat found;
    const int fd = open(errors, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert(fd >= 0 && dup2(fd, STDERR_FILENO) >= 0 && fstat(STDERR_FILENO, &found) == 0);
    (void)close(fd);
    (void)snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)found.st_dev,
                   (unsigned long long)found.st_ino);
    ck_assert_int_eq(setenv("JOURNAL_STREAM", stream, 1), 0);
}

static void setup(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    sw_test_folder(folder);
    (void)snprintf(path, sizeof path, "%s/journal", folder);
    (void)snprintf(errors, sizeof errors, "%s/stderr", folder);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    journal = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    ck_assert(journal >= 0 && bind(journal, (const struct sockaddr *)&address, sizeof address) == 0);
    name_stderr();
}

static void teardown(void) {
    (void)close(journal);
    (void)unlink(path);
    (void)unlink(errors);
    ck_assert_int_eq(rmdir(folder), 0);
}

static size_t receive(char *ret, size_t ret_bytes) {
    const ssize_t n = recv(journal, ret, ret_bytes - 1, 0);
    ck_assert_int_gt(n, 0);
    ret[n] = 0;
    return (size_t)n;
}

static size_t printed(void) {
    struct stat found;
    return stat(errors, &found) == 0 ? (size_t)found.st_size : 0;
}

START_TEST(fields_reach_the_journal) {
    char text[4096];
    ck_assert(sw_journal_open(path));
    sw_log(SW_LOG_WARNING, "spill.done", "session=4 region=7:3 text=\"a b\"");
    (void)receive(text, sizeof text);
    ck_assert_str_eq(text,
                     "MESSAGE=spill.done session=4 region=7:3 text=\"a b\"\nPRIORITY=4\nSYSLOG_IDENTIFIER=spillwayd\n"
                     "EVENT=spill.done\nSESSION=4\nREGION=7:3\nTEXT=a b\n");
    sw_log(SW_LOG_DEBUG, "not.printed", "n=1"); /* the level holds here, too */
    ck_assert_int_lt(recv(journal, text, sizeof text, 0), 0);
    ck_assert_uint_eq(printed(), 0);
}
END_TEST

START_TEST(lines_in_a_value_do_not_make_fields) {
    char text[4096], quoted[64];
    ck_assert(sw_journal_open(path));
    sw_log(SW_LOG_INFO, "session.open", "client=%s", sw_log_quote(quoted, sizeof quoted, "x\nPRIORITY=0"));
    const size_t n = receive(text, sizeof text);
    static const char start[] = "MESSAGE=session.open client=\"x\\x0aPRIORITY=0\"\nPRIORITY=6\n"
                                "SYSLOG_IDENTIFIER=spillwayd\nEVENT=session.open\nCLIENT\n";
    ck_assert_mem_eq(text, start, sizeof start - 1);
    uint64_t length;
    memcpy(&length, text + sizeof start - 1, sizeof length);
    ck_assert_uint_eq(le64toh(length), strlen("x\nPRIORITY=0"));
    ck_assert_str_eq(text + sizeof start - 1 + sizeof length, "x\nPRIORITY=0\n");
    ck_assert_uint_eq(n, sizeof start - 1 + sizeof length + strlen("x\nPRIORITY=0\n"));
}
END_TEST

/* The journal drops an entry whose field begins with anything but a letter. */
START_TEST(only_names_that_the_journal_takes_are_sent) {
    char text[4096];
    ck_assert(sw_journal_open(path));
    sw_log(SW_LOG_INFO, "news", "_private=1 1st=2 a.b-c=3");
    (void)receive(text, sizeof text);
    ck_assert_str_eq(strstr(text, "EVENT="), "EVENT=news\nA_B_C=3\n");
}
END_TEST

START_TEST(long_lines_fit) {
    char text[8192], value[1200];
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = 0;
    ck_assert(sw_journal_open(path));
    sw_log(SW_LOG_INFO, "long", "a=%s", value);
    ck_assert_uint_lt(receive(text, sizeof text), 2000);
    ck_assert_uint_eq(printed(), 0);
}
END_TEST

START_TEST(lines_go_to_stderr_if_the_journal_is_gone) {
    ck_assert(sw_journal_open(path));
    (void)close(journal);
    sw_log(SW_LOG_INFO, "news", "n=1");
    ck_assert_uint_eq(printed(), strlen("time=2026-01-31T12:34:56.789Z level=info event=news n=1\n"));
}
END_TEST

/* A slow journal is not waited for, neither at its socket nor at stderr, which also ends there. */
START_TEST(a_journal_that_stalls) {
    enum { N = 3000 };
    char text[4096], last[64];
    unsigned n = 0;
    ck_assert(sw_journal_open(path));
    for (int i = 0; i < N; i++)
        sw_log(SW_LOG_INFO, "news", "n=%d", i);
    ck_assert_uint_eq(printed(), 0);
    for (; recv(journal, text, sizeof text, 0) > 0; n++)
        ck_assert_ptr_nonnull(strstr(text, "MESSAGE=news n="));
    ck_assert_uint_gt(n, 0);
    ck_assert_uint_lt(n, N);
    sw_log(SW_LOG_INFO, "news", "n=last");
    (void)receive(text, sizeof text);
    (void)snprintf(last, sizeof last, "MESSAGE=log.dropped lines=%u ", N - n);
    ck_assert_msg(strstr(text, last) != NULL, "%s", text);
    ck_assert_ptr_nonnull(strstr(text, "PRIORITY=4\n"));
    (void)receive(text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "MESSAGE=news n=last\n"));
    ck_assert_uint_eq(printed(), 0);
}
END_TEST

START_TEST(stderr_without_a_journal) {
    static const char *const streams[] = {"", "0:0", "nonsense", "8:"};
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        ck_assert_int_eq(setenv("JOURNAL_STREAM", streams[i], 1), 0);
        ck_assert(!sw_journal_open(path));
    }
    ck_assert_int_eq(unsetenv("JOURNAL_STREAM"), 0);
    ck_assert(!sw_journal_open(path));
    name_stderr();
    const unsigned before = sw_count_fds();
    ck_assert(!sw_journal_open("/nonexistent/socket"));
    ck_assert_uint_eq(sw_count_fds(), before);
    sw_log(SW_LOG_INFO, "news", "n=1");
    ck_assert_uint_gt(printed(), 0);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("journal");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, fields_reach_the_journal);
    tcase_add_test(tests, lines_in_a_value_do_not_make_fields);
    tcase_add_test(tests, only_names_that_the_journal_takes_are_sent);
    tcase_add_test(tests, long_lines_fit);
    tcase_add_test(tests, lines_go_to_stderr_if_the_journal_is_gone);
    tcase_add_test(tests, a_journal_that_stalls);
    tcase_add_test(tests, stderr_without_a_journal);
    Suite *suite = suite_create("journal");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

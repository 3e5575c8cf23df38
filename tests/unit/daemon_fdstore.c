/* What the service tells its service manager, and the descriptors that it gets from it. */
#include "base/log.h"
#include "daemon/fdstore.h"
#include "daemon/listener.h"
#include "daemon/notify.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char folder[SW_TEST_PATH_BYTES];
static unsigned n_fds;

static void setup(void) {
    sw_test_folder(folder);
    n_fds = sw_count_fds();
    sw_log_set_level(SW_LOG_ERROR);
}

static void teardown(void) {
    ck_assert_uint_eq(sw_count_fds(), n_fds);
    sw_test_remove(folder);
}

/* A socket that is bound to a name in the folder. */
static int bound(const char *name, int type) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", folder, name);
    const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* ---- the manager ------------------------------------------------------------------------------------------------- */

static struct {
    int socket;
    char told[8][64];
    bool had_fd[8];
    unsigned n;
} manager;

static void begin(void) {
    char path[SW_TEST_PATH_BYTES + 8];
    (void)snprintf(path, sizeof path, "%s/notify", folder);
    manager.socket = bound("notify", SOCK_DGRAM);
    ck_assert_int_eq(setenv("NOTIFY_SOCKET", path, 1), 0);
}

/* Takes in what was told so far, or waits for one message. Closes what comes with it. */
static void listen_to_it(int flags) {
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec text = {.iov_base = manager.told[manager.n], .iov_len = sizeof manager.told[0] - 1};
    struct msghdr message = {
        .msg_iov = &text, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int fd;
    while (manager.n < 8 && recvmsg(manager.socket, &message, flags | MSG_CMSG_CLOEXEC) >= 0) {
        const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        manager.had_fd[manager.n++] = header != NULL;
        if (header) {
            memcpy(&fd, CMSG_DATA(header), sizeof fd);
            (void)close(fd);
        }
        text.iov_base = manager.told[manager.n];
        message.msg_controllen = sizeof control;
        if (!flags)
            return;
    }
}

static void *listen_twice(void *arg) {
    listen_to_it(0);
    listen_to_it(0);
    return arg;
}

/* It is kept when the manager has taken in all that was told before, which the barrier shows. */
START_TEST(what_is_kept_is_told_first) {
    pthread_t thread;
    begin();
    ck_assert_int_eq(pthread_create(&thread, NULL, listen_twice, NULL), 0);
    ck_assert(sw_fdstore_keep("a name", STDIN_FILENO));
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_uint_eq(manager.n, 2);
    ck_assert(strcmp(manager.told[0], "FDSTORE=1\nFDNAME=a name") == 0 && manager.had_fd[0]);
    ck_assert(strcmp(manager.told[1], "BARRIER=1") == 0 && manager.had_fd[1]);
    sw_fdstore_forget("a name");
    listen_to_it(MSG_DONTWAIT);
    ck_assert(manager.n == 3 && strcmp(manager.told[2], "FDSTOREREMOVE=1\nFDNAME=a name") == 0);
    (void)close(manager.socket);
}
END_TEST

static unsigned n_failures;

static void count_failures(enum sw_log_level level, const char *line, void *arg) {
    (void)level;
    (void)arg;
    n_failures += strstr(line, "event=fdstore.failed") != NULL;
}

/* Without a manager nothing is said. One that has gone, or cannot be reached, keeps nothing. */
START_TEST(nothing_is_kept_without_a_manager) {
    char path[SW_TEST_PATH_BYTES + 128];
    sw_log_set_tap(count_failures, NULL);
    ck_assert(!sw_fdstore_keep("a name", STDIN_FILENO) && n_failures == 0);
    begin();
    (void)close(manager.socket);
    ck_assert(!sw_fdstore_keep("a name", STDIN_FILENO) && n_failures == 1);
    (void)snprintf(path, sizeof path, "%s/%0*d", folder, 108, 0);
    ck_assert_int_eq(setenv("NOTIFY_SOCKET", path, 1), 0);
    ck_assert_int_eq(sw_notify("READY=1"), EINVAL);
    ck_assert(!sw_fdstore_keep("a name", STDIN_FILENO) && n_failures == 2);
    sw_log_set_tap(NULL, NULL);
}
END_TEST

/* A name that begins with an @ is one without a file. No other is an address. */
START_TEST(the_manager_has_an_address) {
    static const char *const mistakes[] = {"", "/", "@", "notify", "./notify"};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[64];
    const int n = snprintf(name, sizeof name, "@spillway-test-%d", (int)getpid());
    memcpy(address.sun_path + 1, name + 1, (size_t)n - 1);
    manager.socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(manager.socket, (const struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n)),
                     0);
    ck_assert_int_eq(setenv("NOTIFY_SOCKET", name, 1), 0);
    ck_assert_int_eq(sw_notify("READY=1"), 0);
    listen_to_it(MSG_DONTWAIT);
    ck_assert(manager.n == 1 && strcmp(manager.told[0], "READY=1") == 0 && !manager.had_fd[0]);
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        ck_assert_int_eq(setenv("NOTIFY_SOCKET", mistakes[i], 1), 0);
        ck_assert_int_eq(sw_notify("READY=1"), EINVAL);
    }
    ck_assert_int_eq(unsetenv("NOTIFY_SOCKET"), 0);
    ck_assert(!sw_notify_is_heard() && sw_notify("READY=1") == 0 && sw_notify_barrier(1) == 0);
    (void)close(manager.socket);
}
END_TEST

/* A manager that hangs does not hang the service: what it did not take in time is not kept. */
START_TEST(a_barrier_is_not_waited_for_without_end) {
    begin();
    ck_assert_int_eq(sw_notify_barrier(20), ETIMEDOUT);
    listen_to_it(MSG_DONTWAIT); /* now it has taken it, and closes the descriptor */
    ck_assert(manager.n == 1 && strcmp(manager.told[0], "BARRIER=1") == 0 && manager.had_fd[0]);
    (void)close(manager.socket);
}
END_TEST

/* Another process's watchdog, which this one has inherited the variables of, is not its own. */
START_TEST(the_watchdog_is_this_process_own) {
    char pid[24];
    ck_assert(unsetenv("WATCHDOG_USEC") == 0 && unsetenv("WATCHDOG_PID") == 0);
    ck_assert_uint_eq(sw_notify_watchdog_us(), 0);
    ck_assert_int_eq(setenv("WATCHDOG_USEC", "5000000", 1), 0);
    ck_assert_uint_eq(sw_notify_watchdog_us(), 5000000); /* of nobody else */
    (void)snprintf(pid, sizeof pid, "%d", (int)getpid());
    ck_assert_int_eq(setenv("WATCHDOG_PID", pid, 1), 0);
    ck_assert_uint_eq(sw_notify_watchdog_us(), 5000000);
    (void)snprintf(pid, sizeof pid, "%d", (int)getpid() + 1);
    ck_assert_int_eq(setenv("WATCHDOG_PID", pid, 1), 0);
    ck_assert_uint_eq(sw_notify_watchdog_us(), 0);
}
END_TEST

START_TEST(the_manager_says_how_many_it_keeps) {
    ck_assert_int_eq(unsetenv("FDSTORE"), 0);
    ck_assert_uint_eq(sw_fdstore_limit(), 4104); /* as in spillwayd.service */
    ck_assert_int_eq(setenv("FDSTORE", "7", 1), 0);
    ck_assert_uint_eq(sw_fdstore_limit(), 7);
    ck_assert_int_eq(setenv("FDSTORE", "99999999999", 1), 0);
    ck_assert_uint_eq(sw_fdstore_limit(), 1 << 16);
}
END_TEST

/* ---- a predecessor's descriptors --------------------------------------------------------------------------------- */

static int occupant; /* of the place that the manager's first has; -1: none */

/* The process gets this one, as the manager's first. fd: moved. Check may have that place itself, so that it can report
 * nothing until close_store(). */
static struct sw_fdstore *store_of(int fd, const char *name) {
    struct sw_fdstore *ret = NULL;
    char pid[24];
    (void)snprintf(pid, sizeof pid, "%d", (int)getpid());
    occupant = fcntl(3, F_DUPFD_CLOEXEC, 10);
    ck_assert_int_eq(dup2(fd, 3), 3);
    ck_assert(setenv("LISTEN_PID", pid, 1) == 0 && setenv("LISTEN_FDS", "1", 1) == 0);
    ck_assert_int_eq(setenv("LISTEN_FDNAMES", name, 1), 0);
    ck_assert_int_eq(sw_fdstore_open(&ret, NULL), 0);
    if (fd != 3)
        (void)close(fd);
    return ret;
}

static void close_store(struct sw_fdstore *store) {
    sw_fdstore_close(store);
    if (occupant >= 0)
        ck_assert(dup2(occupant, 3) == 3 && close(occupant) == 0);
}

/* It is told, so that it does not hand them over for ever. */
START_TEST(what_nobody_takes_is_forgotten) {
    begin();
    struct sw_fdstore *store = store_of(dup(STDIN_FILENO), "strange");
    sw_fdstore_forget_rest(store);
    listen_to_it(MSG_DONTWAIT);
    close_store(store);
    ck_assert(manager.n == 1 && strcmp(manager.told[0], "FDSTOREREMOVE=1\nFDNAME=strange") == 0);
    (void)close(manager.socket);
}
END_TEST

/* A listening socket is taken by its path and kind, under whatever name. Loop: the right one; not listening; of another
 * kind; at another path. */
START_TEST(a_listener_is_taken_by_its_path) {
    const char *name = NULL;
    char path[SW_TEST_PATH_BYTES + 8];
    const int other = bound("other", SOCK_STREAM), fd = bound("path", _i == 2 ? SOCK_SEQPACKET : SOCK_STREAM);
    ck_assert(_i == 1 || listen(fd, 1) == 0);
    (void)snprintf(path, sizeof path, "%s/%s", folder, _i == 3 ? "other" : "path");
    struct sw_fdstore *store = store_of(fd, "a name");
    const int taken = sw_fdstore_take_listener(store, SOCK_STREAM, path, &name);
    const bool is_named = name && strcmp(name, "a name") == 0;
    if (taken >= 0)
        (void)close(taken);
    close_store(store);
    ck_assert(taken == (_i == 0 ? 3 : -1) && is_named == (_i == 0));
    (void)close(other);
}
END_TEST

static void *listen_four_times(void *arg) {
    for (unsigned i = 0; i < 4; i++)
        listen_to_it(0);
    return arg;
}

/* A predecessor's socket is used as it is now configured, and stays. Loop: it is at the path, or at an older one; then
 * the new one is kept in its place. */
START_TEST(a_listener_is_used_by_the_next_process) {
    char file[SW_TEST_PATH_BYTES + 8];
    struct sw_listener listener;
    struct sw_err err;
    struct stat found;
    pthread_t thread;
    begin();
    const int fd = bound(_i ? "old" : "path", SOCK_STREAM);
    ck_assert_int_eq(listen(fd, 1), 0);
    (void)snprintf(file, sizeof file, "%s/path", folder);
    struct sw_fdstore *store = store_of(fd, "data");
    const struct sw_listener_config config = {.option = "data_socket",
                                              .path = file,
                                              .mode = 0640,
                                              .type = SOCK_STREAM,
                                              .gid = SW_LISTENER_ANY_GROUP,
                                              .fdstore = store,
                                              .keep_as = "data"};
    if (_i)
        ck_assert_int_eq(pthread_create(&thread, NULL, listen_four_times, NULL), 0);
    const int rc = sw_listener_open(&listener, &config, &err);
    const bool is_blocking = rc == 0 && !(fcntl(listener.socket, F_GETFL) & O_NONBLOCK);
    if (rc == 0)
        sw_listener_close(&listener);
    close_store(store);
    (void)sw_notify("END");
    ck_assert(!_i || pthread_join(thread, NULL) == 0);
    ck_assert(rc == 0 && !is_blocking && lstat(file, &found) == 0 && (found.st_mode & 0777) == 0640);
    if (_i) {
        ck_assert_str_eq(manager.told[0], "FDSTOREREMOVE=1\nFDNAME=data");
        ck_assert(strcmp(manager.told[1], "FDSTORE=1\nFDNAME=data") == 0 && manager.had_fd[1]);
        ck_assert_str_eq(manager.told[3], "END");
    }
    (void)close(manager.socket);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("daemon_fdstore");
    TCase *tests = tcase_create("all");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, what_is_kept_is_told_first);
    tcase_add_test(tests, nothing_is_kept_without_a_manager);
    tcase_add_test(tests, the_manager_has_an_address);
    tcase_add_test(tests, a_barrier_is_not_waited_for_without_end);
    tcase_add_test(tests, the_watchdog_is_this_process_own);
    tcase_add_test(tests, the_manager_says_how_many_it_keeps);
    tcase_add_test(tests, what_nobody_takes_is_forgotten);
    tcase_add_loop_test(tests, a_listener_is_taken_by_its_path, 0, 4);
    tcase_add_loop_test(tests, a_listener_is_used_by_the_next_process, 0, 2);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

/* The file of a listening socket: whichever call fails, nothing is left. And how connections are taken from it. */
#include "base/log.h"
#include "daemon/acceptor.h"
#include "daemon/fdstore.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- calls that fail --------------------------------------------------------------------------------------------- */

static int n_calls; /* until one fails; 0: none does */

static bool call_fails(void) {
    if (n_calls == 0 || --n_calls > 0)
        return false;
    errno = EPERM;
    return true;
}

#define FAILING(call, parameters, arguments)                                                                           \
    int __real_##call parameters;                                                                                      \
    int __wrap_##call parameters;                                                                                      \
    int __wrap_##call parameters {                                                                                     \
        return call_fails() ? -1 : __real_##call arguments;                                                            \
    }
FAILING(socket, (int family, int type, int protocol), (family, type, protocol))
FAILING(bind, (int fd, const struct sockaddr *address, socklen_t bytes), (fd, address, bytes))
FAILING(listen, (int fd, int backlog), (fd, backlog))
FAILING(lchown, (const char *path, uid_t uid, gid_t gid), (path, uid, gid))
FAILING(lstat, (const char *path, struct stat *ret), (path, ret))
FAILING(flock, (int fd, int operation), (fd, operation))

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static char folder[SW_TEST_PATH_BYTES], path[SW_TEST_PATH_BYTES + 8];

static void setup(void) {
    sw_test_folder(folder);
    (void)snprintf(path, sizeof path, "%s/s", folder);
}

static void teardown(void) {
    sw_test_remove(folder);
}

static struct sw_listener_config config(void) {
    return (struct sw_listener_config){
        .option = "data_socket", .path = path, .mode = 0660, .type = SOCK_STREAM, .gid = getegid()};
}

/* A daemon that is too busy to take a connection is a daemon. */
START_TEST(a_busy_daemon_is_not_displaced) {
    const struct sw_listener_config own = config();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct sw_listener listener;
    struct stat found;
    (void)strcpy(address.sun_path, path);
    const int busy = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(busy, (const struct sockaddr *)(const void *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(busy, 0), 0);
    int clients[2], rc;
    for (unsigned i = 0; i < 2; i++) {
        clients[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        rc = connect(clients[i], (const struct sockaddr *)(const void *)&address, sizeof address);
    }
    ck_assert(rc < 0 && errno == EAGAIN); /* as it will be for the listener */
    ck_assert_int_eq(sw_listener_open(&listener, &own, NULL), -SW_EEXIST);
    ck_assert_int_eq(lstat(path, &found), 0);
    for (unsigned i = 0; i < 2; i++)
        (void)close(clients[i]);
    (void)close(busy);
}
END_TEST

/* What is no socket is somebody's file. */
START_TEST(another_file_is_not_displaced) {
    const struct sw_listener_config own = config();
    struct sw_listener listener;
    struct stat found;
    struct sw_err err;
    const int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert(file >= 0 && close(file) == 0);
    ck_assert_int_eq(sw_listener_open(&listener, &own, &err), -SW_EEXIST);
    ck_assert(lstat(path, &found) == 0 && S_ISREG(found.st_mode));
}
END_TEST

/* Of two daemons that start at the same time, one gives up: both might have found the same stale file. */
START_TEST(only_one_daemon_starts_at_a_time) {
    const struct sw_listener_config own = config();
    const unsigned fds = sw_count_fds();
    struct sw_listener listener = {.socket = -1};
    struct stat found;
    struct sw_err err;
    const int other = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(flock(other, LOCK_EX), 0);
    ck_assert_int_eq(sw_listener_open(&listener, &own, &err), -SW_EBUSY);
    ck_assert_ptr_nonnull(strstr(err.msg, "another daemon is starting here"));
    ck_assert_int_lt(lstat(path, &found), 0);
    ck_assert_int_eq(listener.socket, -1);
    sw_listener_close(&listener); /* it was not opened */
    ck_assert_int_eq(flock(other, LOCK_UN), 0);
    ck_assert_int_eq(sw_listener_open(&listener, &own, &err), 0);
    ck_assert_int_eq(flock(other, LOCK_EX | LOCK_NB), 0); /* it has begun */
    sw_listener_close(&listener);
    sw_listener_close(&listener);
    (void)close(other);
    ck_assert_uint_eq(sw_count_fds(), fds);
}
END_TEST

/* The folder is made for all, the socket as it is configured, and files that are made later as before. */
START_TEST(the_folder_is_made) {
    char deep[SW_TEST_PATH_BYTES + 16];
    struct sw_listener_config own = config();
    struct sw_listener listener;
    struct stat found;
    struct sw_err err;
    (void)snprintf(deep, sizeof deep, "%s/new/s", folder);
    own.path = deep;
    const mode_t before = umask(027);
    ck_assert_int_eq(sw_listener_open(&listener, &own, &err), 0);
    ck_assert(lstat(deep, &found) == 0 && (found.st_mode & 0777) == 0660);
    sw_listener_close(&listener);
    ck_assert_uint_eq(umask(before), 027);
    *strrchr(deep, '/') = 0;
    ck_assert(lstat(deep, &found) == 0 && (found.st_mode & 0777) == 0750);
}
END_TEST

/* A file that has taken the place of its own stays when it is closed. */
START_TEST(the_file_of_another_stays) {
    const struct sw_listener_config own = config();
    struct sw_listener first, second;
    struct stat found;
    ck_assert_int_eq(sw_listener_open(&first, &own, NULL), 0);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(sw_listener_open(&second, &own, NULL), 0);
    sw_listener_close(&first);
    ck_assert_int_eq(lstat(path, &found), 0);
    sw_listener_close(&second);
    ck_assert_int_lt(lstat(path, &found), 0);
}
END_TEST

/* The file of a socket that the service manager keeps is the next process's. */
START_TEST(the_file_of_a_kept_socket_stays) {
    const struct sw_listener_config own = config();
    struct sw_listener listener;
    struct stat found;
    ck_assert_int_eq(sw_listener_open(&listener, &own, NULL), 0);
    listener.is_kept = true;
    sw_listener_close(&listener);
    ck_assert_int_eq(lstat(path, &found), 0);
}
END_TEST

/* A path has as many bytes as an address, with its zero. */
START_TEST(a_path_is_no_longer_than_an_address) {
    struct sw_listener listener;
    char name[sizeof listener.path + 1];
    struct sw_listener_config own = config();
    own.path = name;
    ck_assert_int_eq(chdir(folder), 0);
    memset(name, 'a', sizeof name);
    name[sizeof listener.path] = 0;
    ck_assert_int_eq(sw_listener_open(&listener, &own, NULL), -SW_ERANGE);
    name[sizeof listener.path - 1] = 0;
    ck_assert_int_eq(sw_listener_open(&listener, &own, NULL), 0);
    sw_listener_close(&listener);
}
END_TEST

/* Without the group that is configured, others would have its rights, or nobody. */
START_TEST(each_call_that_fails_is_an_error_and_leaves_nothing) {
    const struct sw_listener_config wanted = config();
    const unsigned fds = sw_count_fds();
    struct sw_listener listener;
    struct sw_err err;
    struct stat found;
    int rc = -1, n = 0;
    while (rc < 0) {
        n_calls = ++n;
        rc = sw_listener_open(&listener, &wanted, &err);
        const bool has_failed = n_calls == 0;
        n_calls = 0;
        ck_assert_msg((rc < 0) == has_failed, "call %d: %d", n, rc);
        if (rc == 0)
            break;
        ck_assert_int_eq(rc, sw_err_from_errno(EPERM));
        ck_assert_msg(stat(path, &found) < 0 && errno == ENOENT, "call %d leaves a file", n);
        ck_assert_uint_eq(sw_count_fds(), fds);
    }
    ck_assert_int_eq(n, 8);
    ck_assert(stat(path, &found) == 0 && (found.st_mode & 0777) == 0660 && found.st_gid == getegid());
    sw_listener_close(&listener);
    ck_assert_int_lt(stat(path, &found), 0);
    ck_assert_uint_eq(sw_count_fds(), fds);
}
END_TEST

/* ---- connections ------------------------------------------------------------------------------------------------- */

static int failure;        /* errno of the next accept4(); 0: it succeeds */
static unsigned n_allowed; /* connections until it is full */
static unsigned n_accepted, n_failures_logged;

int __real_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags) {
    errno = failure;
    failure = 0;
    return errno ? -1 : __real_accept4(fd, address, bytes, flags);
}

static void accepted(int socket, void *arg) {
    ck_assert_ptr_eq(arg, &n_accepted);
    n_accepted++;
    (void)close(socket);
}

/* It has room again when it is asked for the second time. */
static bool is_full(void *arg) {
    (void)arg;
    if (n_accepted < n_allowed)
        return false;
    n_allowed++;
    return true;
}

static void closed(void *arg) {
    (void)arg;
}

static void count_failures(enum sw_log_level level, const char *line, void *arg) {
    (void)level;
    (void)arg;
    n_failures_logged += strstr(line, "accept.failed") != NULL;
}

static int connect_to_path(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert(fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

/* Whatever holds one of them up, all connections are taken. Only a failure that lasts is a pause, and is logged. */
START_TEST(all_connections_are_taken) {
    static const struct {
        int failure;
        unsigned n_allowed, n_logged;
    } cases[] = {{0, 100, 0}, {EINTR, 100, 0}, {ECONNABORTED, 100, 0}, {EMFILE, 100, 1}, {0, 1, 0}};
    const struct sw_listener_config wanted = config();
    struct sw_acceptor acceptor;
    struct sw_err err;
    uv_loop_t loop;
    int peers[2];
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    const unsigned fds = sw_count_fds();
    ck_assert_int_eq(sw_acceptor_open(&acceptor, &loop, &wanted, accepted, &n_accepted, &err), 0);
    acceptor.is_full = is_full;
    sw_log_set_tap(count_failures, NULL);
    failure = cases[_i].failure;
    n_allowed = cases[_i].n_allowed;
    for (int i = 0; i < 2; i++)
        peers[i] = connect_to_path();
    while (n_accepted < 2)
        (void)uv_run(&loop, UV_RUN_ONCE);
    ck_assert_uint_eq(n_failures_logged, cases[_i].n_logged);
    ck_assert_uint_gt(n_allowed, 1); /* if it was full, it was asked */
    sw_log_set_tap(NULL, NULL);
    sw_acceptor_close(&acceptor, closed);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    for (int i = 0; i < 2; i++)
        (void)close(peers[i]);
    ck_assert_uint_eq(sw_count_fds(), fds);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

/* A service manager says for which process its descriptors are; a child may inherit the variables. */
START_TEST(descriptors_of_another_process_are_left_alone) {
    struct sw_fdstore *store = NULL;
    char parent[24];
    (void)snprintf(parent, sizeof parent, "%d", (int)getppid());
    ck_assert(setenv("LISTEN_PID", parent, 1) == 0 && setenv("LISTEN_FDS", "1", 1) == 0);
    ck_assert_int_eq(sw_fdstore_open(&store, NULL), 0);
    ck_assert_uint_eq(sw_fdstore_count(store), 0);
    sw_fdstore_close(store);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("daemon_listener");
    TCase *tests = tcase_create("all");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_busy_daemon_is_not_displaced);
    tcase_add_test(tests, another_file_is_not_displaced);
    tcase_add_test(tests, only_one_daemon_starts_at_a_time);
    tcase_add_test(tests, the_folder_is_made);
    tcase_add_test(tests, the_file_of_another_stays);
    tcase_add_test(tests, the_file_of_a_kept_socket_stays);
    tcase_add_test(tests, a_path_is_no_longer_than_an_address);
    tcase_add_test(tests, each_call_that_fails_is_an_error_and_leaves_nothing);
    tcase_add_loop_test(tests, all_connections_are_taken, 0, 5);
    tcase_add_test(tests, descriptors_of_another_process_are_left_alone);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

/* The file of a listening socket: whichever call fails, nothing is left. */
#include "daemon/listener.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

int main(void) {
    Suite *suite = suite_create("daemon_listener");
    TCase *tests = tcase_create("all");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, each_call_that_fails_is_an_error_and_leaves_nothing);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

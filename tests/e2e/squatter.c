/* Another user has taken the path of the service's socket: neither the library nor spillwayctl sends it anything. The
 * same user is served if it owns the folder, or is named. */
#include "base/assert.h"
#include "ipc/spillway.h"
#include "tests/lib/child.h"
#include "tests/lib/control.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"

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
#include <unistd.h>

enum { SQUATTER = 1001, CLIENT = 1002 };

static char folder[SW_TEST_PATH_BYTES];
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int type;

static void become(uid_t uid) {
    SW_ASSERT(setgroups(0, NULL) == 0 && setgid((gid_t)uid) == 0 && setuid(uid) == 0);
}

/* Takes one connection, and reports how many bytes came before its end. */
static void squat(unsigned i, int test) {
    char bytes[4096];
    (void)i;
    become(SQUATTER);
    const int listener = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    SW_ASSERT(listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    SW_ASSERT(chmod(address.sun_path, 0666) == 0 && listen(listener, 8) == 0);
    SW_ASSERT(send(test, "x", 1, 0) == 1);
    const int client = accept(listener, NULL, NULL);
    const ssize_t n = recv(client, bytes, sizeof bytes, 0);
    SW_ASSERT(n >= 0 && send(test, &n, sizeof n, 0) == sizeof n);
    _exit(0);
}

static int connect_library(void) {
    struct spillway *connection = NULL;
    struct spillway_error error;
    const int rc = spillway_open(&connection, SW_OPTIONS(.socket_path = address.sun_path), &error);
    spillway_close(connection);
    return rc;
}

static int connect_operator(void) {
    struct sw_ctl *ctl = NULL;
    struct sw_err err;
    json_t *answer = NULL;
    int rc = sw_ctl_open(&ctl, address.sun_path, &err);
    if (rc == 0)
        rc = sw_ctl_call(ctl, "status", NULL, &answer, &err);
    json_decref(answer);
    sw_ctl_close(ctl);
    return rc;
}

static void be_client(unsigned i, int test) {
    (void)i;
    become(CLIENT);
    const int rc = (type == SOCK_SEQPACKET ? connect_library : connect_operator)();
    SW_ASSERT(send(test, &rc, sizeof rc, 0) == sizeof rc);
    _exit(0);
}

/* The error that the client gets, and the bytes that the squatter gets. */
static int attempt(ssize_t *ret_bytes) {
    char ready;
    int rc;
    struct sw_child squatter = sw_child_begin(squat, 0);
    sw_child_hear(&squatter, &ready, 1, "squatter");
    struct sw_child client = sw_child_begin(be_client, 0);
    sw_child_hear(&client, &rc, sizeof rc, "client");
    sw_child_hear(&squatter, ret_bytes, sizeof *ret_bytes, "squatter");
    sw_child_end(&client, "client");
    sw_child_end(&squatter, "squatter");
    ck_assert_int_eq(unlink(address.sun_path), 0);
    return rc;
}

START_TEST(a_squatter_gets_no_data) {
    static const int types[] = {SOCK_SEQPACKET, SOCK_STREAM};
    ssize_t bytes;
    type = types[_i];
    sw_test_folder(folder);
    ck_assert_int_eq(chmod(folder, 01777), 0);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s/s", folder);
    ck_assert_int_eq(attempt(&bytes), -SW_EUNTRUSTED);
    ck_assert_int_eq(bytes, 0);
    /* Below /tmp the folder may be the squatter's, too. */
    ck_assert(chmod(folder, 0755) == 0 && chown(folder, SQUATTER, SQUATTER) == 0);
    ck_assert_int_eq(attempt(&bytes), -SW_EUNTRUSTED);
    ck_assert_int_eq(bytes, 0);
    /* One that is named gets the first request, and hangs up. */
    ck_assert_int_eq(setenv("SPILLWAY_SERVICE_UID", "1001", 1), 0);
    ck_assert_int_eq(attempt(&bytes), -SW_ECONN);
    ck_assert_int_gt(bytes, 0);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

int main(void) {
    if (getuid() != 0) {
        (void)printf("skipped: only root can be several users\n");
        return 77;
    }
    TCase *tests = tcase_create("squatter");
    tcase_add_loop_test(tests, a_squatter_gets_no_data, 0, 2);
    Suite *suite = suite_create("squatter");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

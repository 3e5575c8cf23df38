/* A service in a user namespace, as in a rootless container: users that it does not map are refused on both sockets, or
 * are one tenant if the configuration says so; never is one taken for another. */
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
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REGION_BYTES = 100000, ONE_USER = 1001, ANOTHER_USER = 1002 };

static struct sw_test_daemon daemon_;
static char script[SW_TEST_PATH_BYTES];

/* ---- the service ---- */

/* Starts the service in a namespace with these options of unshare(1). */
static void start(const char *how, const char *unmapped_users) {
    const char *options[] = {"data_socket_mode=0666", "control_socket_mode=0666", unmapped_users, NULL};
    char command[80];
    (void)snprintf(command, sizeof command, "exec unshare --user %s setpriv --pdeathsig KILL", how);
    sw_test_daemon_script(script, command, SW_SPILLWAYD_PATH);
    sw_test_daemon_start(&daemon_, script, options);
    ck_assert_int_eq(chmod(daemon_.folder, 0755), 0);
}

static void stop(void) {
    ck_assert_int_eq(sw_test_daemon_stop(&daemon_, SIGTERM), 0);
    sw_test_daemon_clean(&daemon_);
    ck_assert_int_eq(unlink(script), 0);
}

/* ---- its clients ---- */

enum deed { CONNECT, CONTROL, STORE, ADOPT };
struct outcome {
    int code;
    char text[256];
};
static enum deed deed;

static int on_memory(struct spillway *connection, struct spillway_error *error) {
    struct spillway_ticket *ticket = NULL;
    const int fd = memfd_create("secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    SW_ASSERT(fd >= 0 && ftruncate(fd, REGION_BYTES) == 0);
    void *memory = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    SW_ASSERT(memory != MAP_FAILED);
    int rc = spillway_spill(connection, SW_REQUEST(SW_ONE(memory, REGION_BYTES), .name = "secret"), 1, &ticket, error);
    return rc ? rc : spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, error);
}

static void be_client(struct outcome *ret) {
    struct spillway *connection = NULL;
    struct spillway_region region;
    struct spillway_error error = {0};
    int rc = spillway_open(&connection, SW_OPTIONS(.socket_path = daemon_.socket), &error);
    if (rc == 0 && deed == STORE)
        rc = on_memory(connection, &error);
    if (rc == 0 && deed == ADOPT)
        rc = spillway_adopt(connection, "secret", &region, &error);
    spillway_close(connection);
    ret->code = rc;
    (void)snprintf(ret->text, sizeof ret->text, "%s", error.text);
}

static void be_operator(struct outcome *ret) {
    struct sw_ctl *ctl = NULL;
    struct sw_err err = {0};
    json_t *answer = NULL;
    int rc = sw_ctl_open(&ctl, daemon_.control, &err);
    if (rc == 0)
        rc = sw_ctl_call(ctl, "status", NULL, &answer, &err);
    json_decref(answer);
    sw_ctl_close(ctl);
    ret->code = rc;
    (void)snprintf(ret->text, sizeof ret->text, "%s", err.msg);
}

static void live(unsigned uid, int socket) {
    struct outcome outcome = {0};
    if (uid != getuid())
        SW_ASSERT(setgroups(0, NULL) == 0 && setgid((gid_t)uid) == 0 && setuid((uid_t)uid) == 0);
    (deed == CONTROL ? be_operator : be_client)(&outcome);
    SW_ASSERT(send(socket, &outcome, sizeof outcome, 0) == sizeof outcome);
    _exit(0); /* a leak checker could not look into a process that has changed its user */
}

static int as(unsigned uid, enum deed what) {
    struct outcome outcome;
    deed = what;
    struct sw_child child = sw_child_begin(live, uid);
    sw_child_hear(&child, &outcome, sizeof outcome, "client");
    sw_child_end(&child, "client");
    if (outcome.code == -SW_EUNMAPPED)
        ck_assert_msg(strstr(outcome.text, "unmapped_users"), "%s", outcome.text);
    return outcome.code;
}

/* ---- tests ---- */

START_TEST(users_that_are_not_mapped_are_refused) {
    start("--map-root-user", NULL);
    ck_assert_uint_eq(sw_test_daemon_logged(&daemon_, "event=users.unmapped uid="), 1);
    ck_assert_int_eq(as(ONE_USER, STORE), -SW_EUNMAPPED);
    ck_assert_int_eq(as(ANOTHER_USER, ADOPT), -SW_EUNMAPPED);
    ck_assert_int_eq(as(ONE_USER, CONTROL), -SW_EUNMAPPED);
    ck_assert_int_eq(as(getuid(), STORE), 0);
    ck_assert_int_eq(as(getuid(), ADOPT), 0);
    ck_assert_int_eq(as(getuid(), CONTROL), 0);
    stop();
}
END_TEST

START_TEST(unmapped_users_can_be_one_tenant) {
    start("--map-root-user", "unmapped_users=one_tenant");
    ck_assert_uint_eq(sw_test_daemon_logged(&daemon_, "are one tenant (unmapped_users)"), 1);
    ck_assert_int_eq(as(ONE_USER, STORE), 0);
    ck_assert_int_eq(as(ANOTHER_USER, ADOPT), 0);
    ck_assert_int_eq(as(getuid(), ADOPT), -SW_ENOENT);
    ck_assert_int_eq(as(ONE_USER, CONTROL), -SW_EACCES);
    stop();
}
END_TEST

/* The service's own uid is then as much any user's as the client's is. */
START_TEST(an_unmapped_service_takes_no_client_for_its_own_user) {
    start("", NULL);
    ck_assert_int_eq(as(getuid(), CONNECT), -SW_EUNMAPPED);
    ck_assert_int_eq(as(getuid(), CONTROL), -SW_EUNMAPPED);
    stop();
    start("", "unmapped_users=one_tenant");
    ck_assert_int_eq(as(getuid(), CONNECT), 0);
    ck_assert_int_eq(as(getuid(), CONTROL), -SW_EACCES);
    stop();
}
END_TEST

/* ---- the other way round: a client in a namespace that does not map the service's user ---- */

static int run_in_namespace(const char *environment) {
    char command[512];
    (void)snprintf(command, sizeof command, "%s unshare --user '%s' --socket %s status >%s/out 2>&1", environment,
                   SW_SPILLWAYCTL_PATH, daemon_.control, daemon_.folder);
    return WEXITSTATUS(system(command));
}

START_TEST(a_client_must_name_an_unmapped_service_user) {
    sw_test_daemon_start(&daemon_, SW_SPILLWAYD_PATH, NULL);
    ck_assert_int_eq(run_in_namespace(""), 3);
    ck_assert_int_eq(run_in_namespace("SPILLWAY_SERVICE_UID=12345"), 3);
    ck_assert_int_eq(run_in_namespace("SPILLWAY_SERVICE_UID=$(cat /proc/sys/kernel/overflowuid)"), 0);
    ck_assert_int_eq(sw_test_daemon_stop(&daemon_, SIGTERM), 0);
    sw_test_daemon_clean(&daemon_);
}
END_TEST

int main(void) {
    if (system("unshare --user --map-root-user setpriv --pdeathsig KILL true >/dev/null 2>&1") != 0) {
        (void)printf("skipped: this user may not make user namespaces here (unshare --user)\n");
        return 77;
    }
    TCase *tests = tcase_create("userns");
    tcase_add_test(tests, an_unmapped_service_takes_no_client_for_its_own_user);
    tcase_add_test(tests, a_client_must_name_an_unmapped_service_user);
    if (getuid() == 0) {
        tcase_add_test(tests, users_that_are_not_mapped_are_refused);
        tcase_add_test(tests, unmapped_users_can_be_one_tenant);
    } else {
        (void)printf("left out: only root can be several users\n");
    }
    Suite *suite = suite_create("userns");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}

/* Permissions, which root does not see: a service that runs as a user of its own, that user and others on its sockets,
 * foreign folders and files, a live process of another user. Needs root, to become those users. */
#include "base/assert.h"
#include "base/process.h"
#include "ipc/spillway.h"
#include "spill/tier/nvme/tier_nvme.h"
#include "tests/lib/child.h"
#include "tests/lib/control.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SERVICE = 1001, ONE_USER = 1002, ANOTHER_USER = 1003, SKIPPED = 77 };
#define MIB ((uint64_t)1 << 20)

/* ---- something done as a user ---- */

struct outcome {
    int code;
    char text[256];
};
static void (*deed)(struct outcome *ret);

static void live(unsigned uid, int socket) {
    struct outcome outcome = {0};
    SW_ASSERT(setgroups(0, NULL) == 0 && setgid((gid_t)uid) == 0 && setuid((uid_t)uid) == 0);
    deed(&outcome);
    SW_ASSERT(send(socket, &outcome, sizeof outcome, 0) == sizeof outcome);
    _exit(0); /* a leak checker could not look into a process that has changed its user */
}

static struct outcome as(unsigned uid, void (*what)(struct outcome *ret)) {
    struct outcome outcome;
    deed = what;
    struct sw_child child = sw_child_begin(live, uid);
    sw_child_hear(&child, &outcome, sizeof outcome, "user");
    sw_child_end(&child, "user");
    return outcome;
}

static void note(struct outcome *ret, int code, const char *text) {
    ret->code = code;
    (void)snprintf(ret->text, sizeof ret->text, "%s", text);
}

/* ---- the service ---- */

static struct sw_test_daemon daemon_;
static char script[SW_TEST_PATH_BYTES];

static void prepare(mode_t mode) {
    char command[120];
    memset(&daemon_, 0, sizeof daemon_);
    sw_test_folder(daemon_.folder);
    (void)snprintf(daemon_.socket, sizeof daemon_.socket, "%s/data.sock", daemon_.folder);
    (void)snprintf(daemon_.control, sizeof daemon_.control, "%s/control.sock", daemon_.folder);
    (void)snprintf(daemon_.log, sizeof daemon_.log, "%s/log", daemon_.folder);
    ck_assert(chown(daemon_.folder, SERVICE, SERVICE) == 0 && chmod(daemon_.folder, mode) == 0);
    (void)snprintf(command, sizeof command, "exec setpriv --reuid %d --regid %d --clear-groups --pdeathsig KILL",
                   SERVICE, SERVICE);
    sw_test_daemon_script(script, command, SW_SPILLWAYD_PATH);
}

/* In /tmp any user can have made the folder. Its owner is trusted because clients name it. */
static void start(mode_t mode, const char *option) {
    const char *options[] = {"data_socket_mode=0666", "control_socket_mode=0666", option, NULL};
    int exit_code;
    prepare(mode);
    ck_assert_int_eq(setenv("SPILLWAY_SERVICE_UID", "1001", 1), 0);
    ck_assert(sw_test_daemon_try(&daemon_, script, options, &exit_code));
}

static void clean(void) {
    sw_test_daemon_clean(&daemon_);
    ck_assert_int_eq(unlink(script), 0);
}

static void stop(void) {
    ck_assert_int_eq(sw_test_daemon_stop(&daemon_, SIGTERM), 0);
    clean();
}

static void ask(struct outcome *ret, const char *method, const char *params) {
    struct sw_ctl *ctl = NULL;
    struct sw_err err = {0};
    json_t *answer = NULL, *arguments = params ? json_loads(params, 0, NULL) : NULL;
    int rc = sw_ctl_open(&ctl, daemon_.control, &err);
    if (rc == 0)
        rc = sw_ctl_call(ctl, method, arguments, &answer, &err);
    json_decref(answer);
    sw_ctl_close(ctl);
    note(ret, rc, err.msg);
}

static void ask_status(struct outcome *ret) {
    ask(ret, "status", NULL);
}

/* The code: what the command exits with. */
static void run_status(struct outcome *ret) {
    char command[512];
    (void)snprintf(command, sizeof command, "'%s' --socket '%s' status 2>&1", SW_SPILLWAYCTL_PATH, daemon_.control);
    FILE *program = popen(command, "r"); // NOLINT(cert-env33-c): a path of the test's own
    SW_ASSERT(program);
    ret->text[fread(ret->text, 1, sizeof ret->text - 1, program)] = 0;
    const int status = pclose(program);
    ret->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void begin_drain(struct outcome *ret) {
    ask(ret, "drain", "{\"mode\": \"on\"}");
}

static void greet(struct outcome *ret) {
    struct spillway *connection = NULL;
    struct spillway_error error = {0};
    const int rc = spillway_open(&connection, SW_OPTIONS(.socket_path = daemon_.socket), &error);
    spillway_close(connection);
    note(ret, rc, error.text);
}

/* ---- sockets ---- */

START_TEST(the_services_own_user_and_root_may_do_everything) {
    start(0755, NULL);
    ck_assert_int_eq(as(SERVICE, ask_status).code, 0);
    ck_assert_int_eq(as(0, ask_status).code, 0);
    const struct outcome refused = as(ONE_USER, ask_status);
    ck_assert_int_eq(refused.code, -SW_EACCES);
    ck_assert_msg(strstr(refused.text, "user 1002 may not use the control socket"), "%s", refused.text);
    ck_assert_int_eq(as(ONE_USER, run_status).code, 1);
    ck_assert_int_eq(as(SERVICE, run_status).code, 0);
    ck_assert_int_eq(as(ONE_USER, begin_drain).code, -SW_EACCES);
    ck_assert_int_eq(as(ONE_USER, greet).code, 0);
    stop();
}
END_TEST

START_TEST(only_listed_users_are_served) {
    start(0755, "allowed_uids=1002");
    ck_assert_int_eq(as(ONE_USER, greet).code, 0);
    const struct outcome refused = as(ANOTHER_USER, greet);
    ck_assert_int_eq(refused.code, -SW_EACCES);
    ck_assert_msg(strstr(refused.text, "1003"), "%s", refused.text);
    stop();
}
END_TEST

START_TEST(a_service_of_an_unnamed_user_is_not_trusted) {
    start(0755, NULL);
    ck_assert_int_eq(unsetenv("SPILLWAY_SERVICE_UID"), 0);
    ck_assert_int_eq(as(SERVICE, greet).code, 0);
    ck_assert_int_eq(as(ONE_USER, greet).code, -SW_EUNTRUSTED);
    ck_assert_int_eq(as(ONE_USER, ask_status).code, -SW_EUNTRUSTED);
    stop();
}
END_TEST

/* The error is not "no service listens on the socket", because that is unknown. */
START_TEST(a_user_without_access_to_the_socket_gets_an_error) {
    start(0700, NULL);
    ck_assert_int_eq(as(SERVICE, greet).code, 0);
    ck_assert_int_eq(as(ONE_USER, greet).code, -SW_EACCES);
    ck_assert_int_eq(as(ONE_USER, ask_status).code, -SW_EACCES);
    const struct outcome refused = as(ONE_USER, run_status);
    ck_assert_msg(refused.code == 1 && strstr(refused.text, "EACCES: "), "%d: %s", refused.code, refused.text);
    ck_assert_int_eq(chmod(daemon_.folder, 0755), 0);
    ck_assert_int_eq(chmod(daemon_.socket, 0600), 0);
    ck_assert_int_eq(as(ONE_USER, greet).code, -SW_EACCES);
    stop();
}
END_TEST

/* A stale socket that the service may not remove is left, and the start fails and names it. */
START_TEST(a_socket_of_another_user_is_left_alone) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat before, after;
    int exit_code = 0;
    prepare(0755);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", daemon_.socket);
    const int stale = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(stale, (const struct sockaddr *)&address, sizeof address), 0);
    (void)close(stale);
    ck_assert(lchown(daemon_.socket, ONE_USER, ONE_USER) == 0 && chown(daemon_.folder, 0, 0) == 0 &&
              chmod(daemon_.folder, 01777) == 0 && lstat(daemon_.socket, &before) == 0);
    ck_assert(!sw_test_daemon_try(&daemon_, script, NULL, &exit_code));
    ck_assert_int_gt(exit_code, 0);
    ck_assert_uint_gt(sw_test_daemon_logged(&daemon_, daemon_.socket), 0);
    ck_assert(lstat(daemon_.socket, &after) == 0 && after.st_ino == before.st_ino);
    clean();
}
END_TEST

/* ---- folders of the NVMe tier ---- */

static char folder[SW_TEST_PATH_BYTES];

static void open_tier(struct outcome *ret) {
    const struct sw_tier_nvme_config config = {.directory = folder,
                                               .capacity_bytes = 2 * MIB,
                                               .file_bytes = MIB,
                                               .queue_depth = 1,
                                               .method = SW_TIER_NVME_THREADS};
    struct sw_tier *tier = NULL;
    struct sw_err err = {0};
    const int rc = sw_tier_nvme_open(&tier, &config, &err);
    if (rc == 0)
        tier->ops->close(tier);
    note(ret, rc, err.msg);
}

static void own_folder(unsigned uid, mode_t mode) {
    ck_assert(chown(folder, uid, uid) == 0 && chmod(folder, mode) == 0);
}

static unsigned files_in(const char *name) {
    char command[100];
    (void)snprintf(command, sizeof command, "exit $(find '%s' -name '%s' | wc -l)", folder, name);
    return (unsigned)WEXITSTATUS(system(command)); // NOLINT(cert-env33-c): a path of the test's own
}

START_TEST(folders_of_others_are_refused) {
    static const struct {
        unsigned owner;
        mode_t mode;
        const char *text; /* NULL: taken */
    } cases[] = {{ONE_USER, 0700, NULL},
                 {ANOTHER_USER, 0755, "belongs to another user: give it to user 1002 (chown)"},
                 {ANOTHER_USER, 0777, "may be written to by others"},
                 {ANOTHER_USER, 0700, "Permission denied"},
                 {0, 0755, "Permission denied"},
                 {0, 0775, "may be written to by others"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sw_test_folder(folder);
        own_folder(cases[i].owner, cases[i].mode);
        const struct outcome outcome = as(ONE_USER, open_tier);
        ck_assert_int_eq(outcome.code, cases[i].text ? -SW_EACCES : 0);
        ck_assert_msg(!cases[i].text || strstr(outcome.text, cases[i].text), "%zu: %s", i, outcome.text);
        ck_assert_uint_eq(files_in("*") > 1, !cases[i].text);
        sw_test_remove(folder);
    }
}
END_TEST

/* The service runs as another user now. Its old files belong to the former user, and are neither read nor replaced. */
START_TEST(files_of_others_stay_unchanged) {
    static const char *const names[] = {"lock", "manifest", "data-0000"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[SW_TEST_PATH_BYTES + 16];
        struct stat before, after;
        sw_test_folder(folder);
        own_folder(ONE_USER, 0700);
        ck_assert_int_eq(as(ONE_USER, open_tier).code, 0);
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        ck_assert(chown(path, ANOTHER_USER, ANOTHER_USER) == 0 && stat(path, &before) == 0);
        const struct outcome outcome = as(ONE_USER, open_tier);
        ck_assert_msg(outcome.code == -SW_EACCES && strstr(outcome.text, "Permission denied"), "%s: %d %s", names[i],
                      outcome.code, outcome.text);
        ck_assert(stat(path, &after) == 0 && after.st_ino == before.st_ino && after.st_size == before.st_size);
        ck_assert(after.st_mtim.tv_sec == before.st_mtim.tv_sec && after.st_mtim.tv_nsec == before.st_mtim.tv_nsec);
        ck_assert_int_eq(chown(path, ONE_USER, ONE_USER), 0);
        ck_assert_int_eq(as(ONE_USER, open_tier).code, 0);
        sw_test_remove(folder);
    }
}
END_TEST

/* ---- processes of others ---- */

static struct sw_process process;

static void look_at_process(struct outcome *ret) {
    note(ret, sw_process_has_ended(&process), "");
}

/* A service must not free regions of another user's client while that runs. */
START_TEST(a_live_process_of_another_user_has_not_ended) {
    const pid_t pid = fork();
    if (pid == 0) {
        SW_ASSERT(setuid(ANOTHER_USER) == 0);
        for (;;)
            (void)pause();
    }
    const int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    for (int known = 0; known < 2; known++) {
        sw_process_identify(&process, pid, known ? pidfd : -1);
        ck_assert_int_eq(as(ONE_USER, look_at_process).code, 0);
        ck_assert_int_eq(as(ANOTHER_USER, look_at_process).code, 0);
    }
    ck_assert(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    ck_assert_int_eq(as(ONE_USER, look_at_process).code, 1);
    (void)close(pidfd);
}
END_TEST

int main(void) {
    if (geteuid() != 0) {
        (void)puts("needs root, to become other users");
        return SKIPPED;
    }
    Suite *suite = suite_create("ordinary_user");
    TCase *tcase = tcase_create("ordinary_user");
    tcase_add_test(tcase, the_services_own_user_and_root_may_do_everything);
    tcase_add_test(tcase, only_listed_users_are_served);
    tcase_add_test(tcase, a_service_of_an_unnamed_user_is_not_trusted);
    tcase_add_test(tcase, a_user_without_access_to_the_socket_gets_an_error);
    tcase_add_test(tcase, a_socket_of_another_user_is_left_alone);
    tcase_add_test(tcase, folders_of_others_are_refused);
    tcase_add_test(tcase, files_of_others_stay_unchanged);
    tcase_add_test(tcase, a_live_process_of_another_user_has_not_ended);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

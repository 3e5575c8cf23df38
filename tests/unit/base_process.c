/* Whether a process has ended: running and ended children, reused pids, and processes that are not visible. And streams
 * that are closed when a program begins. */
#include "base/process.h"

#include "base/assert.h"
#include "base/descriptors.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

/* A kernel before 6.9, whose pidfds have one inode together: its files are of another file system. */
static bool is_old;

int __wrap_fstatfs(int fd, struct statfs *ret);
int __real_fstatfs(int fd, struct statfs *ret);

int __wrap_fstatfs(int fd, struct statfs *ret) {
    const int rc = __real_fstatfs(fd, ret);
    if (is_old)
        ret->f_type = ANON_INODE_FS_MAGIC;
    return rc;
}

static void be_old(void) {
    is_old = true;
}

static pid_t begin_child(void) {
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        SW_ASSERT(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        for (;;)
            (void)pause();
    }
    return pid;
}

static void end_child(pid_t pid) {
    ck_assert(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
}

/* Identifies a process as the daemon does: by a pidfd where there is one. */
static struct sw_process identify(pid_t pid, bool by_pidfd) {
    struct sw_process process;
    const int pidfd = by_pidfd ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    sw_process_identify(&process, pid, pidfd);
    if (pidfd >= 0)
        (void)close(pidfd);
    return process;
}

START_TEST(an_ended_process_has_ended) {
    const pid_t pid = begin_child();
    const struct sw_process process = identify(pid, _i);
    ck_assert_uint_eq(process.pid, (uint64_t)pid);
    ck_assert_uint_gt(process.start_time, 0);
    ck_assert_uint_gt(process.name_space, 0);
    ck_assert(!sw_process_has_ended(&process));
    siginfo_t info;
    ck_assert(kill(pid, SIGKILL) == 0 && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
    ck_assert(sw_process_has_ended(&process)); /* a zombie */
    if (_i)
        ck_assert_uint_eq(identify(pid, true).start_time, 0); /* its pid may be another's soon */
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert(sw_process_has_ended(&process));
}
END_TEST

START_TEST(a_reused_pid_counts_as_ended) {
    const pid_t pid = begin_child();
    struct sw_process process = identify(pid, false), other;
    ck_assert_uint_eq(process.pidfd_inode, 0);
    other = process;
    other.start_time--;
    ck_assert(sw_process_has_ended(&other));
    process = other = identify(pid, true);
    other.pidfd_inode--;
    if (process.pidfd_inode) /* Linux 6.9 */
        ck_assert(sw_process_has_ended(&other));
    ck_assert(!sw_process_has_ended(&process));
    end_child(pid);
}
END_TEST

static int go[2];

static void *wait_for_go(void *arg) {
    char byte;
    *(pid_t *)arg = (pid_t)syscall(SYS_gettid);
    (void)!write(go[1], "x", 1);
    while (read(go[0], &byte, 1) == 1 && byte != 'y')
        (void)sched_yield();
    return NULL;
}

START_TEST(a_pid_reused_by_a_thread_counts_as_ended) {
    pthread_t thread;
    pid_t tid = 0;
    char byte;
    int ready[2], back[2];
    ck_assert(pipe(ready) == 0 && pipe(back) == 0);
    go[0] = back[0];
    go[1] = ready[1];
    ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_go, &tid), 0);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    struct sw_process process = identify(getpid(), true);
    process.pid = (uint64_t)tid;
    ck_assert(sw_process_has_ended(&process));
    ck_assert_int_eq(write(back[1], "y", 1), 1);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

START_TEST(an_unknown_process_counts_as_running) {
    const pid_t pid = begin_child();
    const struct sw_process process = identify(pid, true);
    struct sw_process unseen, alone = process;
    sw_process_identify(&unseen, 0, -1);
    alone.start_time = alone.pidfd_inode = 0;
    ck_assert(!sw_process_has_ended(&alone)); /* some process has the pid */
    end_child(pid);
    ck_assert(sw_process_has_ended(&process) && sw_process_has_ended(&alone));
    ck_assert(!sw_process_has_ended(&unseen));
    ck_assert(!sw_process_has_ended(&(struct sw_process){.pid = (uint64_t)pid})); /* version 1 of the catalogue */
    struct sw_process elsewhere = process;
    elsewhere.name_space++;
    ck_assert(!sw_process_has_ended(&elsewhere));
    elsewhere = process;
    elsewhere.pid = UINT64_C(1) << 32 | process.pid;
    ck_assert(!sw_process_has_ended(&elsewhere));
}
END_TEST

/* Runs in its own pid namespace: names itself and a child, as a service there would name its client. */
static void live_elsewhere(int socket) {
    struct sw_process names[2];
    const pid_t pid = fork();
    if (pid == 0)
        for (;;)
            (void)pause();
    sw_process_identify(&names[0], getpid(), -1);
    sw_process_identify(&names[1], pid, -1);
    SW_ASSERT(!sw_process_has_ended(&names[1]));
    SW_ASSERT(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    SW_ASSERT(names[1].name_space == 0 || sw_process_has_ended(&names[1]));
    SW_ASSERT(write(socket, names, sizeof names) == sizeof names);
    _exit(0);
}

/* proc: the namespace has its own /proc. If not, it sees the outer namespace's /proc, where the same pid is another
 * process. */
static void look_elsewhere(struct sw_process ret[2], bool proc) {
    int ends[2], status;
    ck_assert_int_eq(pipe(ends), 0);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        SW_ASSERT(unshare(CLONE_NEWPID | CLONE_NEWNS) == 0);
        const pid_t init = fork();
        if (init == 0) {
            if (proc)
                SW_ASSERT(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                          mount("proc", "/proc", "proc", 0, NULL) == 0);
            live_elsewhere(ends[1]);
        }
        SW_ASSERT(waitpid(init, &status, 0) == init && status == 0);
        _exit(0);
    }
    ck_assert_int_eq(read(ends[0], ret, 2 * sizeof *ret), 2 * (ssize_t)sizeof *ret);
    ck_assert(waitpid(pid, &status, 0) == pid && status == 0);
}

START_TEST(processes_of_another_namespace_are_unknown) {
    struct sw_process names[2], later[2];
    look_elsewhere(names, _i);
    look_elsewhere(later, _i); /* most likely a namespace of the same number */
    ck_assert_uint_eq(names[0].pid, 1);
    ck_assert(!sw_process_has_ended(&names[0]) && !sw_process_has_ended(&names[1])); /* though they have */
    ck_assert(names[0].name_space != later[0].name_space || names[0].name_space == 0);
    for (int i = 0; i < 2 && !_i; i++) /* the outer /proc speaks of others */
        ck_assert_uint_eq(names[i].start_time, 0);
}
END_TEST

/* Whichever of the standard streams are closed (the bits of _i), no file gets their numbers. */
START_TEST(standard_streams_are_not_files) {
    char byte = 0;
    for (int fd = 0; fd < 3; fd++)
        if (_i >> fd & 1)
            (void)close(fd);
    sw_descriptors_begin();
    for (int fd = 0; fd < 3; fd++)
        ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
    ck_assert(!(_i & 1) || read(STDIN_FILENO, &byte, 1) < 0);
    ck_assert(!(_i & 2) || write(STDOUT_FILENO, &byte, 1) < 0);
    ck_assert(!(_i & 4) || write(STDERR_FILENO, &byte, 1) < 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("process");
    const bool may_have_namespaces = system("unshare --pid --fork --mount-proc true >/dev/null 2>&1") == 0;
    for (int old = 0; old < 2; old++) {
        TCase *tests = tcase_create(old ? "before 6.9" : "this kernel");
        tcase_add_checked_fixture(tests, old ? be_old : NULL, NULL);
        tcase_add_loop_test(tests, an_ended_process_has_ended, 0, 2);
        tcase_add_test(tests, a_reused_pid_counts_as_ended);
        tcase_add_test(tests, a_pid_reused_by_a_thread_counts_as_ended);
        tcase_add_test(tests, an_unknown_process_counts_as_running);
        if (may_have_namespaces)
            tcase_add_loop_test(tests, processes_of_another_namespace_are_unknown, 0, 2);
        suite_add_tcase(suite, tests);
    }
    TCase *streams = tcase_create("standard streams");
    tcase_add_loop_test(streams, standard_streams_are_not_files, 0, 8);
    suite_add_tcase(suite, streams);
    if (!may_have_namespaces)
        (void)printf("left out: this user may not make pid namespaces (unshare --pid)\n");
    return sw_test_run(suite, CK_FORK);
}

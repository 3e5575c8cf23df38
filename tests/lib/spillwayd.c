#include "tests/lib/spillwayd.h"

#include "base/assert.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_OPTIONS = 16, START_MS = 60000, STOP_MS = 60000, STEP_MS = 5 };

static void sleep_ms(long ms) {
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&time, NULL);
}

static void set_number(const char *name, unsigned long value) {
    char text[24];
    (void)snprintf(text, sizeof text, "%lu", value);
    SW_ASSERT(setenv(name, text, 1) == 0);
}

unsigned sw_test_hand_over(const struct sw_test_handover *h) {
    int high[SW_TEST_MAX_KEPT];
    for (unsigned i = 0; i < h->n; i++) /* out of the way of descriptors that will be put there */
        SW_ASSERT((high[i] = fcntl(h->fds[i], F_DUPFD_CLOEXEC, 3 + SW_TEST_MAX_KEPT)) >= 0);
    for (unsigned i = 0; i < h->n; i++)
        SW_ASSERT(dup2(high[i], 3 + (int)i) >= 0);
    SW_ASSERT(setenv("NOTIFY_SOCKET", h->notify, 1) == 0 && setenv("LISTEN_FDNAMES", h->names, 1) == 0);
    set_number("LISTEN_PID", (unsigned long)getpid());
    set_number("LISTEN_FDS", h->n);
    if (h->watchdog_ms)
        set_number("WATCHDOG_USEC", h->watchdog_ms * 1000ul);
    if (h->store_limit)
        set_number("FDSTORE", h->store_limit);
    return h->n;
}

static __attribute__((noreturn)) void become_daemon(const struct sw_test_daemon *daemon, const char *program,
                                                    const char *const *options, pid_t parent) {
    char socket[128], *arguments[2 * (MAX_OPTIONS + 6) + 2];
    int n = 0;
    (void)snprintf(socket, sizeof socket, "data_socket=%s", daemon->socket);
    const char *const own[] = {
        socket,
        "device=host",
        "slots=2",
        "scratch_bytes=64 MiB",
        "host_tier_bytes=64 MiB",
        "host_tier_slab_bytes=4 MiB",
        "host_tier_initial_bytes=64 MiB", /* all of it, so that a spill's time has no allocation of memory in it */
        NULL};
    const char *const *const sets[] = {own, options};
    arguments[n++] = (char *)program;
    for (int set = 0; set < 2; set++)
        for (const char *const *at = sets[set]; at && *at; at++) {
            SW_ASSERT(n + 3 < (int)(sizeof arguments / sizeof arguments[0]));
            arguments[n++] = "--set";
            arguments[n++] = (char *)*at;
        }
    arguments[n] = NULL;
    const int log = open(daemon->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    SW_ASSERT(log >= 0 && dup2(log, STDERR_FILENO) >= 0);
    SW_ASSERT(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent);
    /* Nothing of the test's may leak into the process whose descriptors are counted. */
    const unsigned n_kept = daemon->handover ? sw_test_hand_over(daemon->handover) : 0;
    for (int fd = 3 + (int)n_kept; fd < 512; fd++)
        (void)close(fd);
    (void)execv(program, arguments);
    _exit(127);
}

unsigned sw_test_daemon_logged(const struct sw_test_daemon *daemon, const char *text) {
    char line[1100];
    unsigned n = 0;
    FILE *log = fopen(daemon->log, "re");
    while (log && fgets(line, sizeof line, log))
        n += strstr(line, text) != NULL;
    if (log)
        (void)fclose(log);
    return n;
}

static int exit_of(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void sw_test_daemon_script(char ret[SW_TEST_PATH_BYTES], const char *command, const char *program) {
    const int fd = sw_test_file(ret);
    SW_ASSERT(dprintf(fd, "#!/bin/sh\n%s '%s' \"$@\"\n", command, program) > 0);
    SW_ASSERT(fchmod(fd, 0700) == 0 && close(fd) == 0);
}

void sw_test_daemon_fork(struct sw_test_daemon *daemon, const char *program, const char *const *options) {
    const pid_t parent = getpid();
    if (!daemon->folder[0]) {
        sw_test_folder(daemon->folder);
        (void)snprintf(daemon->socket, sizeof daemon->socket, "%s/data.sock", daemon->folder);
        (void)snprintf(daemon->control, sizeof daemon->control, "%s/control.sock", daemon->folder);
        (void)snprintf(daemon->log, sizeof daemon->log, "%s/log", daemon->folder);
    }
    daemon->pid = fork();
    SW_ASSERT(daemon->pid >= 0);
    if (daemon->pid == 0)
        become_daemon(daemon, program, options, parent);
}

bool sw_test_daemon_try(struct sw_test_daemon *daemon, const char *program, const char *const *options, int *ret_exit) {
    const unsigned ready_before = sw_test_daemon_logged(daemon, "event=service.ready ");
    const unsigned backed_before = sw_test_daemon_logged(daemon, "event=tier.ready ");
    sw_test_daemon_fork(daemon, program, options);
    for (int waited = 0; waited < START_MS; waited += STEP_MS) {
        int status;
        if (sw_test_daemon_logged(daemon, "event=service.ready ") > ready_before &&
            sw_test_daemon_logged(daemon, "event=tier.ready ") > backed_before)
            return true;
        if (waitpid(daemon->pid, &status, WNOHANG) == daemon->pid) {
            daemon->pid = 0;
            *ret_exit = exit_of(status);
            return false;
        }
        sleep_ms(STEP_MS);
    }
    SW_ASSERT(false && "spillwayd neither became ready nor exited");
    return false;
}

void sw_test_daemon_start(struct sw_test_daemon *daemon, const char *program, const char *const *options) {
    int exit_code = 0;
    memset(daemon, 0, sizeof *daemon);
    if (!sw_test_daemon_try(daemon, program, options, &exit_code)) {
        (void)fprintf(stderr, "%s exited with %d, see %s\n", program, exit_code, daemon->log);
        SW_ASSERT(false && "spillwayd did not start");
    }
}

int sw_test_daemon_stop(struct sw_test_daemon *daemon, int signal) {
    SW_ASSERT(daemon->pid > 0);
    if (signal)
        (void)kill(daemon->pid, signal);
    for (int waited = 0; waited < STOP_MS; waited += STEP_MS) {
        int status;
        if (waitpid(daemon->pid, &status, WNOHANG) == daemon->pid) {
            daemon->pid = 0;
            return exit_of(status);
        }
        sleep_ms(STEP_MS);
    }
    return -1000;
}

static void remove_files(const char *folder) {
    DIR *dir = opendir(folder);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));)
        (void)unlinkat(dirfd(dir), entry->d_name, 0);
    (void)closedir(dir);
}

void sw_test_daemon_clean(struct sw_test_daemon *daemon) {
    remove_files(daemon->folder);
    (void)rmdir(daemon->folder);
    memset(daemon, 0, sizeof *daemon);
}

unsigned sw_test_daemon_fds(const struct sw_test_daemon *daemon) {
    char path[64];
    unsigned n = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)daemon->pid);
    DIR *dir = opendir(path);
    SW_ASSERT(dir);
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n;
}

long sw_test_daemon_anonymous_kib(const struct sw_test_daemon *daemon) {
    char path[64], line[256];
    long kib = -1;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)daemon->pid);
    FILE *status = fopen(path, "re");
    SW_ASSERT(status);
    while (kib < 0 && fgets(line, sizeof line, status))
        (void)sscanf(line, "RssAnon: %ld kB", &kib);
    (void)fclose(status);
    SW_ASSERT(kib >= 0);
    return kib;
}

/* "T" in the status of each of the process' threads. */
static bool stands_still(pid_t pid) {
    char path[64];
    struct dirent *entry;
    bool all = true;
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    SW_ASSERT(tasks);
    while ((entry = readdir(tasks))) {
        char line[256] = "", status[sizeof path + sizeof entry->d_name + 8];
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(status, sizeof status, "%s/%s/stat", path, entry->d_name);
        FILE *file = fopen(status, "re");
        const char *state = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
        all &= !state || state[2] == 'T';
        if (file)
            (void)fclose(file);
    }
    (void)closedir(tasks);
    return all;
}

void sw_test_daemon_pause(const struct sw_test_daemon *daemon) {
    SW_ASSERT(kill(daemon->pid, SIGSTOP) == 0);
    while (!stands_still(daemon->pid))
        (void)usleep(1000);
}

double sw_test_daemon_cpu_s(const struct sw_test_daemon *daemon) {
    clockid_t clock;
    struct timespec time;
    SW_ASSERT(clock_getcpuclockid(daemon->pid, &clock) == 0 && clock_gettime(clock, &time) == 0);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

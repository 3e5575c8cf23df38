/* spillwayd.h - a real spillwayd process for a test: started in a folder of its own, watched, stopped, counted.
 *
 * What cannot be set up aborts the test. The process dies with the thread that started it, so a test that crashes
 * leaves none behind. thread: the one that started it. */
#ifndef SW_TEST_SPILLWAYD_H
#define SW_TEST_SPILLWAYD_H

#include "tests/lib/scratch.h"

#include <stdbool.h>
#include <sys/types.h>

enum { SW_TEST_MAX_KEPT = 64 };

/* The descriptors and the environment that a service manager gives a process; supervisor.h is one. */
struct sw_test_handover {
    char notify[SW_TEST_PATH_BYTES + 16]; /* $NOTIFY_SOCKET */
    unsigned watchdog_ms;                 /* 0: none */
    unsigned store_limit;                 /* $FDSTORE; 0: not set */
    unsigned n;
    int fds[SW_TEST_MAX_KEPT]; /* borrowed */
    char names[SW_TEST_MAX_KEPT * 64];
};

/* Puts the kept descriptors where the protocol has them, from 3 on, replacing others, and sets the environment. Call it
 * in the process that will be the service. Returns their number. */
unsigned sw_test_hand_over(const struct sw_test_handover *handover);

struct sw_test_daemon {
    pid_t pid;                               /* 0: not running */
    const struct sw_test_handover *handover; /* NULL: no service manager */
    char folder[SW_TEST_PATH_BYTES], socket[96], control[96], log[96];
};

/* Starts `program` on the host device with a small tier and NULL-terminated options "name=value"; a folder in *daemon
 * that is not empty is used again. Returns true when it is ready and has the
 * memory that it takes at the start, false when it has exited (status in *ret_exit). */
bool sw_test_daemon_try(struct sw_test_daemon *daemon, const char *program, const char *const *options, int *ret_exit);
/* Makes a program of it that a shell runs by the command, as "exec env A=B". owns: the caller, until unlink(). */
void sw_test_daemon_script(char ret[SW_TEST_PATH_BYTES], const char *command, const char *program);
/* Only begins to start it; the folder is made if there is none. */
void sw_test_daemon_fork(struct sw_test_daemon *daemon, const char *program, const char *const *options);
/* Does sw_test_daemon_try() in a new folder; the daemon must become ready. */
void sw_test_daemon_start(struct sw_test_daemon *daemon, const char *program, const char *const *options);
/* Sends the signal (0: none) and waits; returns the exit code, or -signal if one ended it; -1000 if it hangs. */
int sw_test_daemon_stop(struct sw_test_daemon *daemon, int signal);
/* Removes the folder. */
void sw_test_daemon_clean(struct sw_test_daemon *daemon);
/* Has every thread of the process stand still, until it is sent SIGCONT: the signal alone only begins that. */
void sw_test_daemon_pause(const struct sw_test_daemon *daemon);
/* Descriptors that the process has open. */
unsigned sw_test_daemon_fds(const struct sw_test_daemon *daemon);
/* Memory of its heap and stacks: a tier's pages are shared memory. */
long sw_test_daemon_anonymous_kib(const struct sw_test_daemon *daemon);
/* CPU time of the process so far. */
double sw_test_daemon_cpu_s(const struct sw_test_daemon *daemon);
/* Counts lines of the log that contain the text. */
unsigned sw_test_daemon_logged(const struct sw_test_daemon *daemon, const char *text);

#endif

/* supervisor.h - a service manager for one spillwayd: notification socket, descriptor store, restarts. It does without
 * systemd what systemd does for Type=notify.
 *
 * A thread takes in what the service says: READY, STOPPING, WATCHDOG, FDSTORE, FDSTOREREMOVE, BARRIER. Stored
 * descriptors are handed over to the next process. A set-up that fails aborts the test. thread: one, except for the
 * counters. */
#ifndef SW_TEST_SUPERVISOR_H
#define SW_TEST_SUPERVISOR_H

#include "tests/lib/spillwayd.h"

#include <pthread.h>
#include <semaphore.h>

struct sw_supervisor {
    struct sw_test_daemon daemon;
    struct sw_test_handover handover;
    const char *program;
    const char *const *options;
    int socket;
    pthread_t thread;
    sem_t listens;        /* the thread does */
    pthread_mutex_t lock; /* guards all below */
    bool stop;
    unsigned n_ready, n_stopping, n_watchdog, n_reloading;
    unsigned n_messages;
    unsigned kill_at;  /* the service is killed when that many messages have come; 0: never */
    bool kills_before; /* and the last one is not carried out */
    unsigned n_stored;
    struct {
        int fd;
        char name[64];
    } stored[SW_TEST_MAX_KEPT];
};

/* Starts the service and waits until it is ready. program, options: borrowed until the end. */
void sw_supervisor_start(struct sw_supervisor *ret, const char *program, const char *const *options);
/* The same without starting it. */
void sw_supervisor_init(struct sw_supervisor *ret, const char *program, const char *const *options);
/* Adds a descriptor (moved) to those that are handed over, as a socket unit does. */
void sw_supervisor_store(struct sw_supervisor *s, const char *name, int fd);
/* Takes a descriptor out of the store; -1: there is none of that name. */
int sw_supervisor_take(struct sw_supervisor *s, const char *name);
/* Counts messages anew, and kills the service at the nth one (0: at none), before or after it is carried out. */
void sw_supervisor_kill_at(struct sw_supervisor *s, unsigned nth, bool before);
/* Fills `handover` for the next process, for a test that forks it itself. */
void sw_supervisor_prepare(struct sw_supervisor *s);
/* Starts it (again), with all that it has stored. False: it did not become ready, and has ended. */
bool sw_supervisor_spawn(struct sw_supervisor *s);
/* Sends the signal and waits for the end; returns as sw_test_daemon_stop(). */
int sw_supervisor_stop(struct sw_supervisor *s, int signal);
/* Descriptors that are stored now. */
unsigned sw_supervisor_n_stored(struct sw_supervisor *s);
/* Forgets the stored descriptors, as a restart of the machine does. */
void sw_supervisor_forget(struct sw_supervisor *s);
/* The service must have ended; its folder goes, too. */
void sw_supervisor_end(struct sw_supervisor *s);

#endif

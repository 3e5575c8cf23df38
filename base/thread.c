#include "base/thread.h"

#include <signal.h>

int sw_thread_start(pthread_t *ret, void *(*main)(void *arg), void *arg) {
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* inherited by the new thread */
    int rc = pthread_create(ret, NULL, main, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

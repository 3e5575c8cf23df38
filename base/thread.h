/* thread.h - starts threads that get no signals: those are the event loop's.
 *
 * So a write beyond a limit (SIGXFSZ) or to a closed pipe is an error code in them, too. thread: any. */
#ifndef SW_BASE_THREAD_H
#define SW_BASE_THREAD_H

#include <pthread.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As pthread_create() with default attributes, return value (0 or a positive errno value) included. */
int sw_thread_start(pthread_t *ret, void *(*main)(void *arg), void *arg);

#ifdef __cplusplus
}
#endif
#endif

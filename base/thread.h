/* thread.h - starts threads that get no signals: those are the event loop's. And whose stack does not depend on
 * RLIMIT_STACK (ulimit -s), which may be less than a codec needs.
 *
 * So a write beyond a limit (SIGXFSZ) or to a closed pipe is an error code in them, too. thread: any. */
#ifndef SW_BASE_THREAD_H
#define SW_BASE_THREAD_H

#include <pthread.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of each thread. Codecs take 170 KiB, the service's loop 600 KiB for JSON that is nested as deeply as the parser goes
 * (tests/e2e/small_stack.c measures both), sanitizers several times as much. Stacks of 2 MiB, aligned, could be backed
 * by huge pages: 2 MiB of memory for each thread. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SW_THREAD_STACK_BYTES = 7 << 20 };
#else
enum { SW_THREAD_STACK_BYTES = 1 << 20 };
#endif

/* As pthread_create(), return value (0 or a positive errno value) included, with that stack. */
int sw_thread_start(pthread_t *ret, void *(*main)(void *arg), void *arg);

/* What main() of a program does first: runs the program in a thread with that stack, and returns what it returns. The
 * thread gets signals as the caller does (SIGPIPE, say). Threads that libraries start have at least that stack, too,
 * from now on. Where no thread can be had the program runs in the caller's. */
int sw_thread_run(int (*program)(int argc, char **argv), int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif

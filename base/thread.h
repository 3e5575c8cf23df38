/* thread.h - starts threads that get no signals, and whose stack does not depend on RLIMIT_STACK (ulimit -s).
 *
 * Signals belong to the event loop's thread. In the other threads a write beyond a file size limit (SIGXFSZ) or to a
 * closed pipe (SIGPIPE) is therefore an error code. RLIMIT_STACK may be less than a codec needs. thread: any. */
#ifndef SW_BASE_THREAD_H
#define SW_BASE_THREAD_H

#include <pthread.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The stack of each thread. Codecs need 170 KiB. The service's loop needs 600 KiB for JSON that is nested as deeply as
 * the parser allows (tests/e2e/small_stack.c measures both). Sanitizers need several times as much. A stack of 2 MiB is
 * avoided: if it is aligned, the kernel may back it by a huge page, and then each thread takes 2 MiB of memory. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SW_THREAD_STACK_BYTES = 7 << 20 };
#else
enum { SW_THREAD_STACK_BYTES = 1 << 20 };
#endif

/* Starts a thread. It returns as pthread_create() does: 0 or a positive errno value. */
int sw_thread_start(pthread_t *ret, void *(*main)(void *arg), void *arg);

/* Returns how many threads a task should have: one for each processor, but at least `least` and at most `most`. */
unsigned sw_thread_cpus(unsigned least, unsigned most);

/* Runs a program in a thread with such a stack, and returns its exit code. main() calls it first. The thread gets the
 * same signals as the caller, such as SIGPIPE. From now on, threads that libraries start have at least this stack, too.
 * If no thread can be started, the program runs in the caller's thread. */
int sw_thread_run(int (*program)(int argc, char **argv), int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif

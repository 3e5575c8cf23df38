/* run.h - runs a suite, the last thing that a test program does. */
#ifndef SW_TEST_RUN_H
#define SW_TEST_RUN_H

#include <check.h>

/* A sanitizer makes everything several times slower: of very many cases that are alike every tenth is enough there. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SW_TEST_EVERY 10
#else
#define SW_TEST_EVERY 1
#endif

/* Runs and frees the suite. fork: CK_FORK (a process per test; $CK_FORK may say otherwise), or CK_NOFORK for tests that
 * share a CUDA context. $CK_VERBOSITY holds, and $CK_DEFAULT_TIMEOUT, which is 120 s if unset. Returns the program's
 * exit code. */
int sw_test_run(Suite *suite, enum fork_status fork);

#endif

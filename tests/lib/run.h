/* run.h - runs a suite, the last thing that a test program does. */
#ifndef SW_TEST_RUN_H
#define SW_TEST_RUN_H

#include <check.h>

/* Runs and frees the suite. fork: CK_FORK (a process per test; $CK_FORK may say otherwise), or CK_NOFORK for tests that
 * share a CUDA context. $CK_VERBOSITY holds. Returns the program's exit code. */
int sw_test_run(Suite *suite, enum fork_status fork);

#endif

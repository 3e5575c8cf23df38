/* run.h - runs a suite, the last thing that a test program does. */
#ifndef SW_TEST_RUN_H
#define SW_TEST_RUN_H

#include <check.h>

/* A sanitizer makes everything several times slower: of very many similar cases, each tenth is tried there. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SW_TEST_EVERY 10
#else
#define SW_TEST_EVERY 1
#endif

/* How much longer a test may take than without a sanitizer. */
#if defined(__SANITIZE_THREAD__)
enum { SW_TEST_SLOWER = 3 };
#elif defined(__SANITIZE_ADDRESS__)
enum { SW_TEST_SLOWER = 2 };
#else
enum { SW_TEST_SLOWER = 1 };
#endif

/* The limit of a wait. It is less than a test's limit (below), so that the line that waits says what did not come;
 * "Test timeout expired" says nothing. */
enum { SW_TEST_WAIT_MS = 30000 * SW_TEST_SLOWER };

/* Runs and frees the suite. fork: CK_FORK (a process per test; $CK_FORK may say otherwise), or CK_NOFORK for tests that
 * share a CUDA context. $CK_VERBOSITY and $CK_DEFAULT_TIMEOUT apply. If the latter is unset, a test has 45 s, or the
 * time of sw_test_slow(), 2 times as long under AddressSanitizer, 3 times under ThreadSanitizer. So a lost wake-up
 * costs no minutes, and on two busy processors a test may take ten times as long as alone. Returns the program's exit
 * code. */
int sw_test_run(Suite *suite, enum fork_status fork);
/* Seconds, without a sanitizer, for each test of a case with a test that takes more than 6 on a busy machine. */
void sw_test_slow(TCase *tcase, unsigned seconds);

#endif

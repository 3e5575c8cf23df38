#include "tests/lib/run.h"

#include "tests/lib/scratch.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { DEFAULT_S = 45 };
_Static_assert(SW_TEST_WAIT_MS < 1000 * DEFAULT_S * SW_TEST_SLOWER, "who waits is heard before the test ends");

/* Check gives a test 4 s, which one that takes one of them does not keep on a busy machine. It reads this when a case
 * is made, so before main() has made any. */
__attribute__((constructor)) static void set_default_timeout(void) {
    char text[16];
    (void)snprintf(text, sizeof text, "%d", DEFAULT_S * SW_TEST_SLOWER);
    (void)setenv("CK_DEFAULT_TIMEOUT", text, 0);
}

void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line);

/* Check writes the place of each check that holds to a file, so that it can say after which one a test died. The system
 * call takes longer than most checks, of which some tests have millions. One place in each tick of the clock is enough.
 */
void __wrap__mark_point(const char *file, int line) {
    static _Atomic long marked_ns;
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    if (atomic_exchange_explicit(&marked_ns, now.tv_nsec, memory_order_relaxed) != now.tv_nsec)
        __real__mark_point(file, line);
}

void sw_test_slow(TCase *tcase, unsigned seconds) {
    tcase_set_timeout(tcase, (double)seconds * SW_TEST_SLOWER);
}

int sw_test_run(Suite *suite, enum fork_status fork) {
    SRunner *runner = srunner_create(suite);
    if (fork == CK_NOFORK)
        srunner_set_fork_status(runner, CK_NOFORK);
    sw_test_scratch_begin();
    srunner_run_all(runner, CK_ENV);
    sw_test_scratch_end();
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

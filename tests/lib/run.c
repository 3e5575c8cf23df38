#include "tests/lib/run.h"

#include "tests/lib/scratch.h"

#include <stdlib.h>

/* Check gives a test 4 s, which one that takes one of them does not keep under a sanitizer beside others. It reads this
 * when a case is made, so before main() has made any. */
__attribute__((constructor)) static void set_default_timeout(void) {
    (void)setenv("CK_DEFAULT_TIMEOUT", "120", 0);
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

/* runner.h - runs a suite of a program that is linked without tests/lib. */
#ifndef SW_TEST_MOVER_RUNNER_H
#define SW_TEST_MOVER_RUNNER_H

#include <check.h>
#include <stdlib.h>

/* Returns the program's exit status. owns: the suite. */
static inline int run_suite(Suite *suite) {
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif

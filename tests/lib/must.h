/* must.h - for client processes of a test, which have no Check: a condition that does not hold ends the process with
 * the reason. */
#ifndef SW_TEST_MUST_H
#define SW_TEST_MUST_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* error: filled by the call in the condition, a struct spillway_error or alike. */
#define MUST(condition, error)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            (void)fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #condition, (error)->name,                \
                          (error)->text);                                                                              \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline void sleep_us(uint64_t us) {
    const struct timespec time = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
    (void)nanosleep(&time, NULL);
}

#endif

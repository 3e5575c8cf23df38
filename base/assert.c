#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

void sw_assert_failed(const char *condition, const char *file, int line) {
    (void)fprintf(stderr, "spillway: assertion failed: %s (%s:%d)\n", condition, file, line);
    abort();
}

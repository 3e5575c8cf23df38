#include "base/clock.h"

#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

typedef uint64_t clock_function(void);

static _Atomic(clock_function *) replacement;

uint64_t sw_clock_us(void) {
    clock_function *replaced = atomic_load_explicit(&replacement, memory_order_relaxed);
    struct timespec now;
    if (replaced)
        return replaced();
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

void sw_clock_set(uint64_t (*now_us)(void)) {
    atomic_store_explicit(&replacement, now_us, memory_order_relaxed);
}

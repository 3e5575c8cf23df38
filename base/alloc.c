#include "base/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static atomic_ulong fail_countdown;
static atomic_long live_blocks;

static bool must_fail(void) {
    /* The common case is one relaxed load: the hook is off. */
    if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) == 0)
        return false;
    return atomic_fetch_sub(&fail_countdown, 1) == 1;
}

void *sw_alloc(size_t bytes) {
    return sw_alloc_array(1, bytes);
}

void *sw_alloc_array(size_t count, size_t bytes) {
    if (must_fail())
        return NULL;
    void *block = calloc(count ? count : 1, bytes ? bytes : 1); /* calloc checks the product for overflow */
    if (block)
        atomic_fetch_add_explicit(&live_blocks, 1, memory_order_relaxed);
    return block;
}

void *sw_realloc(void *block, size_t bytes) {
    if (must_fail())
        return NULL;
    void *grown = realloc(block, bytes ? bytes : 1);
    if (grown && !block)
        atomic_fetch_add_explicit(&live_blocks, 1, memory_order_relaxed);
    return grown;
}

void sw_free(void *block) {
    if (block)
        atomic_fetch_sub_explicit(&live_blocks, 1, memory_order_relaxed);
    free(block);
}

void sw_alloc_fail_nth(unsigned long n) {
    atomic_store(&fail_countdown, n);
}

long sw_alloc_live(void) {
    return atomic_load(&live_blocks);
}

/* guard.h - memory that faults on the first byte outside it, for tests of code that must stay inside its buffers.
 *
 * The block lies between two pages without access and touches one of them: choose the end for overruns, the start for
 * underruns. owns: the caller, until sw_guard_free(). errors: the calls abort the test without memory. thread: any. */
#ifndef SW_TEST_GUARD_H
#define SW_TEST_GUARD_H

#include <stddef.h>
#include <stdint.h>

enum sw_guard_side { SW_GUARD_AT_END, SW_GUARD_AT_START };

struct sw_guard {
    uint8_t *data; /* `bytes` bytes, zeroed */
    size_t bytes;
    void *mapping;
    size_t mapping_bytes;
};

struct sw_guard sw_guard_new(size_t bytes, enum sw_guard_side side);
void sw_guard_free(struct sw_guard *guard);

#endif

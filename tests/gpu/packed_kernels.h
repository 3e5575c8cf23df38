/* packed_kernels.h - what spillway_device.cuh reads of a packed region, in the host's memory, for the test to compare.
 * What fails ends the process. thread: one at a time. */
#ifndef SW_TEST_PACKED_KERNELS_H
#define SW_TEST_PACKED_KERNELS_H

#include "spillway_packed.h"
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum sw_packed_way {
    SW_PACKED_TILES,
    SW_PACKED_VECTORS, /* values of 4 and 8 bytes only: such kernels take long to compile */
    SW_PACKED_VALUES,
    SW_PACKED_WAYS
};

/* Returns the codecs whose single values can be read: a bit for each. */
uint32_t sw_packed_values_codecs(void);

/* Reads all values of value_bytes each into ret, which has room for `bytes`; *ret_values: how many could be read.
 * False: the column is refused. */
bool sw_packed_read(const void *d_data, const struct spillway_packed_chunk *chunks, uint32_t n, unsigned value_bytes,
                    enum sw_packed_way way, void *ret, size_t bytes, uint64_t *ret_values);

#ifdef __cplusplus
}
#endif
#endif

/* parallel_fill.h - columns of benchmarks: made on all processors, so that gigabytes take seconds.
 *
 * thread: any; starts threads of its own that have ended when it returns. */
#ifndef SW_TEST_PARALLEL_FILL_H
#define SW_TEST_PARALLEL_FILL_H

#include "base/err.h"
#include <stdint.h>

/* column: "tpch" (generated l_comment), the name of a string column of TPC-H's tables (its characters at scale factor
 * 1, repeated), "random", or the path of a file, which is repeated until ret is full. errors: those of opening the
 * file, -SW_EIO, -SW_EINVAL (an empty file), -SW_ENOMEM (no thread). */
int sw_parallel_fill(uint8_t *ret, uint64_t bytes, const char *column);

#endif

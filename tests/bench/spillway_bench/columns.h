/* columns.h - what is spilled: bytes that lie where the regions will, so that filling a region is a plain copy. */
#ifndef SW_BENCH_COLUMNS_H
#define SW_BENCH_COLUMNS_H

#include "ipc/spillway.h"
#include "tests/lib/buffer.h"
#include <stdint.h>

/* A region starts anywhere in the first of these bytes, so that not all are the same. */
#define SW_BENCH_COLUMN_SLACK ((uint64_t)1 << 20)

/* Returns the type with which a column of this name is spilled, and the bytes of a value. Regions hold whole values. */
enum spillway_value_type sw_bench_column_type(const char *name);
unsigned sw_bench_column_value_bytes(const char *name);

/* Makes a column of `bytes` and the slack in *ret (owned by the caller), in memory of the host for SW_BUFFER_MEMFD,
 * else on the GPU. name: as in --column. errors: -SW_ENOENT (neither a column nor a file) and others of opening it,
 * -SW_EINVAL (a directory, or empty), -SW_ENOMEM, -SW_EGPU.
 */
int sw_bench_column_new(struct sw_buffer **ret, const char *name, uint64_t bytes, enum sw_buffer_kind kind,
                        struct sw_err *err);

#endif

/* packed_filter.h - an example of a query on columns that stay packed: how many rows were shipped before a day, and the
 * sum of their quantities. packed_filter.cu shows what an engine does for it, with Spillway's public headers only.
 * thread: one per column at a time. */
#ifndef PACKED_FILTER_H
#define PACKED_FILTER_H

#include <spillway.h>

#ifdef __cplusplus
extern "C" {
#endif

struct packed_filter_result {
    unsigned long long sum, selected, rows; /* rows: that could be read */
};

enum packed_filter_role {
    PACKED_SHIPDATE, /* int32, days; of the codecs raw, for and rfor */
    PACKED_QUANTITY  /* int64; of the codecs raw, for and dict */
};

/* A packed region of numbers on the current GPU, for kernels. It may be neither unpacked nor dropped while one runs.
 * owns: the caller. NULL: it cannot be read where it lies (*error says why): unpack it. */
struct packed_column *packed_column_new(struct spillway *connection, struct spillway_region region, const void *d_data,
                                        enum packed_filter_role role, struct spillway_error *error);
void packed_column_free(struct packed_column *column);

/* Queue the query on packed columns, and the same on plain ones, and write to device memory. Return
 * a cudaError_t. */
int packed_filter(const struct packed_column *shipdate, const struct packed_column *quantity, int32_t before,
                  struct packed_filter_result *d_ret, struct CUstream_st *stream);
int plain_filter(const int32_t *d_shipdate, const int64_t *d_quantity, uint64_t rows, int32_t before,
                 struct packed_filter_result *d_ret, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
#endif

/* packed_launch.cuh - the kernels of packed_kernels.cu, a specialization for each length of values; CUDA C++.
 *
 * Queued on the default stream; what cudaGetLastError() says is the caller's to look at. */
#ifndef SW_TEST_PACKED_LAUNCH_CUH
#define SW_TEST_PACKED_LAUNCH_CUH

#include "tests/gpu/packed_kernels.h"

#include <spillway_device.cuh>

/* Reads all values of the column in that way to d_to, which has room for `bytes`, and adds how many could be read. */
template <unsigned VALUE_BYTES>
void sw_packed_launch(const spillway_column &column, sw_packed_way way, void *d_to, size_t bytes,
                      unsigned long long *d_n_read);

template <> void sw_packed_launch<1>(const spillway_column &, sw_packed_way, void *, size_t, unsigned long long *);
template <> void sw_packed_launch<2>(const spillway_column &, sw_packed_way, void *, size_t, unsigned long long *);
template <> void sw_packed_launch<4>(const spillway_column &, sw_packed_way, void *, size_t, unsigned long long *);
template <> void sw_packed_launch<8>(const spillway_column &, sw_packed_way, void *, size_t, unsigned long long *);

#endif

/* endless.h - a kernel that does not end by itself, for orders.c. Plain C. */
#ifndef SW_TEST_ENDLESS_H
#define SW_TEST_ENDLESS_H

#include <cuda_runtime.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queues a kernel that ends once *flag is not 0; flag: page-locked memory of the host. fills: it occupies the whole
 * GPU; else it has one small block. */
cudaError_t sw_test_launch_endless(volatile uint32_t *flag, bool fills, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif

/* endless.h - a kernel that does not end by itself, for orders.c. Plain C. */
#ifndef SW_TEST_ENDLESS_H
#define SW_TEST_ENDLESS_H

#include <cuda_runtime.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queues a kernel of one block that ends once *flag is not 0; flag: page-locked memory of the host. */
cudaError_t sw_test_launch_endless(volatile uint32_t *flag, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif

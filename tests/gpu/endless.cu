#include "tests/gpu/endless.h"

static __global__ void endless(volatile uint32_t *flag) {
    while (*flag == 0)
        __nanosleep(1000);
}

cudaError_t sw_test_launch_endless(volatile uint32_t *flag, cudaStream_t stream) {
    endless<<<1, 32, 0, stream>>>(flag);
    return cudaGetLastError();
}

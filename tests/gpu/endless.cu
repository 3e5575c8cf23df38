#include "tests/gpu/endless.h"

static __global__ void endless(volatile uint32_t *flag) {
    while (*flag == 0)
        __nanosleep(1000);
}

cudaError_t sw_test_launch_endless(volatile uint32_t *flag, bool fills, cudaStream_t stream) {
    constexpr int THREADS = 256;
    int processors = 0, blocks = 0;
    cudaError_t e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    if (e == cudaSuccess)
        e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, endless, THREADS, 0);
    if (e != cudaSuccess)
        return e;
    endless<<<fills ? processors * blocks : 1, fills ? THREADS : 32, 0, stream>>>(flag);
    return cudaGetLastError();
}

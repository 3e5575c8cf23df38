/* spillway_device/warp.cuh - sums and the like over the lanes of a warp. No part of the API. */
#ifndef SPILLWAY_DEVICE_WARP_CUH
#define SPILLWAY_DEVICE_WARP_CUH

#include <cuda_runtime.h>
#include <stdint.h>

constexpr int SW_WARP = 32;

/* Reductions over all lanes of a warp; T: int or uint32_t. GPUs before sm_80 have no instruction for them. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define SW_WARP_REDUCE(instruction, operation)                                                                         \
    for (int d = SW_WARP / 2; d; d /= 2) {                                                                             \
        const T other = __shfl_xor_sync(0xFFFFFFFFu, v, d);                                                            \
        v = operation;                                                                                                 \
    }                                                                                                                  \
    return v
#else
#define SW_WARP_REDUCE(instruction, operation) return instruction(0xFFFFFFFFu, v)
#endif
__device__ inline uint32_t sw_warp_sum(uint32_t v) {
    using T = uint32_t;
    SW_WARP_REDUCE(__reduce_add_sync, v + other);
}
template <class T> __device__ inline T sw_warp_min(T v) {
    SW_WARP_REDUCE(__reduce_min_sync, min(v, other));
}
template <class T> __device__ inline T sw_warp_max(T v) {
    SW_WARP_REDUCE(__reduce_max_sync, max(v, other));
}
__device__ inline uint32_t sw_warp_or(uint32_t v) {
    using T = uint32_t;
    SW_WARP_REDUCE(__reduce_or_sync, v | other);
}
#undef SW_WARP_REDUCE

/* T: uint32_t or uint64_t. */
template <class T> __device__ inline T sw_warp_exclusive_sum(T v, uint32_t lane) {
    T sum = v;
#pragma unroll
    for (int d = 1; d < SW_WARP; d *= 2) {
        const T up = __shfl_up_sync(0xFFFFFFFFu, sum, d);
        if (lane >= (uint32_t)d)
            sum += up;
    }
    return sum - v;
}

#endif

/* exceptions_gpu.cuh - a vector's exceptions (exceptions.h) on the GPU. Each lane handles its own exceptions. Lanes
 * hold units by turns (vectors.cuh). Internal to codec/. */
#ifndef SW_ALP_EXCEPTIONS_GPU_CUH
#define SW_ALP_EXCEPTIONS_GPU_CUH

#include "codec/alp/alp_core.h"
#include "codec/bitpack/numbers_gpu.cuh"

/* Returns the lane's sampled value. */
template <unsigned BITS> __device__ __forceinline__ uint64_t sw_sampled_value(const uint32_t *x, uint32_t lane) {
    const uint32_t mine = sw_alp_sampled(BITS, lane);
    uint64_t v = sw_get_value<BITS>(x, 0);
#pragma unroll
    for (unsigned i = 1; i < 32; i++) {
        const uint64_t other = sw_get_value<BITS>(x, i);
        if (i % 8 < 128 / BITS)
            v = mine == i ? other : v;
    }
    return v;
}

/* Exceptions being written. */
template <unsigned STORED> struct sw_gpu_exceptions {
    uint8_t *value;
    uint16_t *place;
    uint32_t n, n_before; /* n_before: exceptions written so far */

    __device__ inline sw_gpu_exceptions(uint8_t *at, uint32_t number)
        : value(at), place((uint16_t *)(at + number * (STORED / 8))), n(number), n_before(0) {}

    /* Writes the exceptions of one unit of each lane. i: the unit's first value in the lane; units must come in
     * ascending order. Bit k of `which`: value k of the unit is an exception, stored as get(k). */
    template <unsigned BITS, class F>
    __device__ __forceinline__ void put(unsigned i, uint32_t which, uint32_t lane, F get) {
        uint32_t at = n_before;
#pragma unroll
        for (unsigned k = 0; k < 128 / BITS; k++) {
            const uint32_t lanes = __ballot_sync(0xFFFFFFFFu, which >> k & 1);
            at += __popc(lanes & sw_low_bits(lane));
            n_before += __popc(lanes);
        }
#pragma unroll
        for (unsigned k = 0; k < 128 / BITS; k++)
            if (which >> k & 1) {
                sw_store_value<STORED>(value, at, get(k));
                place[at++] = (uint16_t)sw_value_place(BITS, i + k, lane);
            }
    }

    /* Writes all exceptions of a vector whose values are in a row. Bit i of `which`: the lane's value i is one. */
    template <unsigned BITS>
    __device__ __forceinline__ void put_in_order(uint32_t which, uint32_t lane, const uint32_t *x) {
        uint32_t at = sw_warp_exclusive_sum((uint32_t)__popc(which), lane);
#pragma unroll
        for (unsigned i = 0; i < 32; i++)
            if (which >> i & 1) {
                sw_store_value<STORED>(value, at, sw_get_value<BITS>(x, i));
                place[at++] = (uint16_t)(32 * lane + i);
            }
    }

    /* Ends the exceptions: writes zeros up to the vector's end. */
    __device__ inline void pad(const uint8_t *end, uint32_t lane) {
        uint16_t *at = place + n + lane;
        if ((const uint8_t *)at < end)
            *at = 0;
    }
};

#endif

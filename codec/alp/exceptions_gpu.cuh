/* exceptions_gpu.cuh - what a packed vector of floats has besides numbers (exceptions.h), on the GPU: no lane looks at
 * another's. Lanes hold values as units by turns. Internal to codec/. */
#ifndef SW_ALP_EXCEPTIONS_GPU_CUH
#define SW_ALP_EXCEPTIONS_GPU_CUH

#include "codec/alp/alp_core.h"
#include "codec/bitpack/numbers_gpu.cuh"

/* A lane's value of those that a vector's encoder tries things with. */
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

/* n of them that are being written. */
template <unsigned STORED> struct sw_gpu_exceptions {
    uint8_t *value;
    uint16_t *place;
    uint32_t n, n_before; /* n_before: those that have been put */

    __device__ inline sw_gpu_exceptions(uint8_t *at, uint32_t number)
        : value(at), place((uint16_t *)(at + number * (STORED / 8))), n(number), n_before(0) {}

    /* Those of a unit of each lane, whose first value is number i of the lane's; bit k of `which`: the unit's value k,
     * of which get(k) is to be stored. In the order of i. */
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

    /* When all have been put: zeros up to the vector's end. */
    __device__ inline void pad(const uint8_t *end, uint32_t lane) {
        uint16_t *at = place + n + lane;
        if ((const uint8_t *)at < end)
            *at = 0;
    }
};

#endif

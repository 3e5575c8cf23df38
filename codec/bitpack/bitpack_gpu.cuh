/* bitpack_gpu.cuh - measures and packs vectors of numbers in a warp's registers. See bitpack_core.h;
 * spillway_device/vectors.cuh unpacks them. Internal to codec/. */
#ifndef SW_BITPACK_GPU_CUH
#define SW_BITPACK_GPU_CUH

#include "codec/bitpack/bitpack_core.h"
#include "codec/codec_gpu.cuh"

template <unsigned W> __device__ __forceinline__ void sw_store_rows(uint8_t *to, uint32_t lane, const uint32_t *p) {
#pragma unroll
    for (unsigned i = 0; i + 4 <= W; i += 4)
        ((uint4 *)(to + i * SW_WARP * 4))[lane] = make_uint4(p[i], p[i + 1], p[i + 2], p[i + 3]);
    if constexpr (W % 4 >= 2)
        ((uint2 *)(to + W / 4 * 4 * SW_WARP * 4))[lane] = make_uint2(p[W / 4 * 4], p[W / 4 * 4 + 1]);
    if constexpr (W % 2)
        ((uint32_t *)(to + (W - 1) * SW_WARP * 4))[lane] = p[W - 1];
}

template <unsigned BITS, unsigned STEP, unsigned MOST>
__device__ __forceinline__ void sw_pack_rows(unsigned width, const uint32_t *x, uint8_t *to, uint32_t lane) {
    sw_with_width<0, MOST>(width, [&](auto w) {
        constexpr unsigned W = decltype(w)::value;
        uint32_t p[W + 2] = {};
#pragma unroll
        for (unsigned i = 0; i < BITS; i++) {
            const unsigned at = sw_row_word(BITS, W, i);
            p[at] |= sw_pack_row(BITS, W, i, x[i * STEP]);
            if (sw_row_is_split(BITS, W, i))
                p[at + 1] |= sw_pack_row_rest(BITS, W, i, x[i * STEP]);
        }
        sw_store_rows<W>(to, lane, p);
    });
}

template <unsigned BITS, unsigned MOST = BITS - 1>
__device__ __forceinline__ void sw_pack_vector(unsigned width, const uint32_t *x, uint8_t *to, uint32_t lane) {
    if constexpr (BITS < 64) {
        sw_pack_rows<BITS, 1, MOST>(width, x, to, lane);
    } else {
        const unsigned low = min(width, 32u);
        sw_pack_rows<32, 2, 32>(low, x, to, lane);
        sw_pack_rows<32, 2, MOST - 32>(width - low, x + 1, to + low * SW_WARP * 4, lane);
    }
}

template <unsigned BITS, unsigned WORDS> __device__ __forceinline__ void sw_subtract_base(uint32_t *x, uint64_t base) {
    if constexpr (BITS == 64) {
        sw_add_base<BITS, WORDS>(x, 0 - base);
    } else {
        const uint32_t fields = sw_spread(BITS, (uint32_t)base);
#pragma unroll
        for (unsigned i = 0; i < WORDS; i++)
            x[i] = sw_subtract_fields(BITS, x[i], fields);
    }
}

/* ---- measuring ---- */

__device__ inline uint64_t sw_warp_min64(uint64_t v) {
#pragma unroll
    for (int d = SW_WARP / 2; d; d /= 2)
        v = min(v, (uint64_t)__shfl_xor_sync(0xFFFFFFFFu, (unsigned long long)v, d));
    return v;
}

/* Returns the smallest of the lanes' signed numbers, which fit into 32 bits if BITS is less than 64. */
template <unsigned BITS> __device__ inline int64_t sw_warp_min_signed(int64_t v) {
    if constexpr (BITS == 64)
        return (int64_t)(sw_warp_min64((uint64_t)v ^ 1ull << 63) ^ 1ull << 63);
    return sw_warp_min((int)v);
}

struct sw_gpu_range {
    uint64_t base, range;
};

/* Returns a vector's smallest value, and the difference between the largest and the smallest. flip: the sign bit of
 * signed types, which orders their values like unsigned ones. */
template <unsigned BITS> __device__ __forceinline__ sw_gpu_range sw_vector_range(const uint32_t *x, uint64_t flip) {
    constexpr unsigned WORDS = SW_VECTOR_VALUES / 32 / SW_WARP * BITS;
    if constexpr (BITS == 64) {
        uint64_t least = ~0ull, most = 0;
#pragma unroll
        for (unsigned i = 0; i < WORDS; i += 2) {
            const uint64_t v = ((uint64_t)x[i + 1] << 32 | x[i]) ^ flip;
            least = min(least, v);
            most = max(most, v);
        }
        least = sw_warp_min64(least);
        most = ~sw_warp_min64(~most);
        return {least ^ flip, most - least};
    } else {
        const uint32_t flips = sw_spread(BITS, (uint32_t)flip);
        uint32_t least = ~0u, most = 0;
#pragma unroll
        for (unsigned i = 0; i < WORDS; i++) {
            const uint32_t v = x[i] ^ flips;
            least = BITS == 8 ? __vminu4(least, v) : BITS == 16 ? __vminu2(least, v) : min(least, v);
            most = BITS == 8 ? __vmaxu4(most, v) : BITS == 16 ? __vmaxu2(most, v) : max(most, v);
        }
        uint32_t low = ~0u, high = 0;
#pragma unroll
        for (unsigned at = 0; at < 32; at += BITS) {
            low = min(low, least >> at & sw_low_bits(BITS));
            high = max(high, most >> at & sw_low_bits(BITS));
        }
        low = sw_warp_min(low);
        high = sw_warp_max(high);
        return {low ^ (uint32_t)flip, high - low};
    }
}

#endif

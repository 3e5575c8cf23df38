/* bitpack_gpu.cuh - vectors of numbers in a warp's registers: read, hashed, packed, and back. See bitpack_core.h.
 *
 * x[i] is word i of the lane. A *block* is 4 KiB of a tile, the unit of the hash by rows: four vectors of 8-bit values,
 * two of 16, one of 32; a vector of 64-bit values is two blocks, whose lower halves are the even words. All functions
 * but those that say otherwise are for a whole warp. Widths are the same in all lanes; code for each of them is
 * unrolled, so that every shift is a constant and every word stays in a register. Internal to codec/. */
#ifndef SW_BITPACK_GPU_CUH
#define SW_BITPACK_GPU_CUH

#include "codec/bitpack/bitpack_core.h"
#include "codec/v5t/v5t_gpu.cuh"

/* A warp's share of a tile: a block, or a vector of 64-bit values. */
template <unsigned BITS> struct sw_share {
    static constexpr uint32_t BLOCKS = BITS == 64 ? 2 : 1;
    static constexpr uint32_t BYTES = BLOCKS * SW_HASH_BLOCK_BYTES;
    static constexpr uint32_t WORDS = BYTES / 4 / SW_WARP; /* of a lane */
    static constexpr uint32_t UNITS = WORDS / SW_UNIT_WORDS;
    static constexpr uint32_t VECTORS = BYTES / (SW_VECTOR_VALUES / 8 * BITS);
    static constexpr uint32_t VECTOR_WORDS = WORDS / VECTORS;
    static constexpr uint32_t PER_TILE = SW_NUMBERS_TILE_BYTES / BYTES;
    static constexpr uint32_t TILE_VECTORS = PER_TILE * VECTORS;
};

/* Calls use(integral_constant) with FROM <= width <= TO. */
template <unsigned FROM, unsigned TO, class F> __device__ __forceinline__ void sw_with_width(unsigned width, F use) {
    if constexpr (FROM == TO) {
        use(std::integral_constant<unsigned, FROM>());
    } else {
        constexpr unsigned MIDDLE = (FROM + TO) / 2;
        if (width <= MIDDLE)
            sw_with_width<FROM, MIDDLE>(width, use);
        else
            sw_with_width<MIDDLE + 1, TO>(width, use);
    }
}

/* W rows of packed words: units of 16 bytes, then one of 8, then one of 4. */
template <unsigned W> __device__ __forceinline__ void sw_load_rows(const uint8_t *from, uint32_t lane, uint32_t *p) {
#pragma unroll
    for (unsigned i = 0; i + 4 <= W; i += 4) {
        const uint4 v = __ldg((const uint4 *)(from + i * SW_WARP * 4) + lane);
        p[i] = v.x, p[i + 1] = v.y, p[i + 2] = v.z, p[i + 3] = v.w;
    }
    if constexpr (W % 4 >= 2) {
        const uint2 v = __ldg((const uint2 *)(from + W / 4 * 4 * SW_WARP * 4) + lane);
        p[W / 4 * 4] = v.x, p[W / 4 * 4 + 1] = v.y;
    }
    if constexpr (W % 2)
        p[W - 1] = __ldg((const uint32_t *)(from + (W - 1) * SW_WARP * 4) + lane);
}

template <unsigned W> __device__ __forceinline__ void sw_store_rows(uint8_t *to, uint32_t lane, const uint32_t *p) {
#pragma unroll
    for (unsigned i = 0; i + 4 <= W; i += 4)
        ((uint4 *)(to + i * SW_WARP * 4))[lane] = make_uint4(p[i], p[i + 1], p[i + 2], p[i + 3]);
    if constexpr (W % 4 >= 2)
        ((uint2 *)(to + W / 4 * 4 * SW_WARP * 4))[lane] = make_uint2(p[W / 4 * 4], p[W / 4 * 4 + 1]);
    if constexpr (W % 2)
        ((uint32_t *)(to + (W - 1) * SW_WARP * 4))[lane] = p[W - 1];
}

/* Rows of fields of BITS, as many as a field has bits, to and from x[0], x[STEP], ....
 * MOST: the greatest width. */
template <unsigned BITS, unsigned STEP, unsigned MOST>
__device__ __forceinline__ void sw_unpack_rows(unsigned width, const uint8_t *from, uint32_t lane, uint32_t *x) {
    sw_with_width<0, MOST>(width, [&](auto w) {
        constexpr unsigned W = decltype(w)::value;
        uint32_t p[W + 2];
        sw_load_rows<W>(from, lane, p);
        p[W] = p[W + 1] = 0; /* behind the last row nothing is needed */
#pragma unroll
        for (unsigned i = 0; i < BITS; i++) {
            const unsigned at = sw_row_word(BITS, W, i);
            x[i * STEP] = sw_unpack_row(BITS, W, i, p[at], p[at + 1]);
        }
    });
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

/* One vector in x[0 ... VECTOR_WORDS), whose values keep `width` bits. Of 64 bits: the lower halves, and behind them
 * what is left of the upper ones. All of a vector that keeps all its bits is stored as it is (sw_load_content). */
template <unsigned BITS, unsigned MOST = BITS - 1>
__device__ __forceinline__ void sw_unpack_vector(unsigned width, const uint8_t *from, uint32_t lane, uint32_t *x) {
    if constexpr (BITS < 64) {
        sw_unpack_rows<BITS, 1, MOST>(width, from, lane, x);
    } else {
        const unsigned low = min(width, 32u);
        sw_unpack_rows<32, 2, 32>(low, from, lane, x);
        sw_unpack_rows<32, 2, MOST - 32>(width - low, from + low * SW_WARP * 4, lane, x + 1);
    }
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

template <unsigned BITS, unsigned WORDS> __device__ __forceinline__ void sw_add_base(uint32_t *x, uint64_t base) {
    const uint32_t fields = BITS < 64 ? sw_spread(BITS, (uint32_t)base) : 0;
#pragma unroll
    for (unsigned i = 0; i < WORDS; i += BITS == 64 ? 2 : 1) {
        if constexpr (BITS < 64) {
            x[i] = sw_add_fields(BITS, x[i], fields);
        } else {
            const uint64_t v = ((uint64_t)x[i + 1] << 32 | x[i]) + base;
            x[i] = (uint32_t)v;
            x[i + 1] = (uint32_t)(v >> 32);
        }
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

/* ---- content ---- */

/* UNITS rows of content, of which `bytes` are there; zeros behind them. */
template <int ALIGN, unsigned UNITS>
__device__ __forceinline__ void sw_load_units(const uint8_t *from, uint32_t bytes, uint32_t lane, uint32_t *x) {
#pragma unroll
    for (unsigned u = 0; u < UNITS; u++) {
        const uint32_t at = u * SW_HASH_ROW_BYTES + lane * SW_UNIT_BYTES;
        const uint4 v = sw_load_unit<ALIGN>(from, at, bytes);
        x[4 * u] = v.x, x[4 * u + 1] = v.y, x[4 * u + 2] = v.z, x[4 * u + 3] = v.w;
    }
}

/* Any alignment. */
template <unsigned UNITS>
__device__ __forceinline__ void sw_load_content(const uint8_t *from, uint32_t bytes, uint32_t lane, uint32_t *x) {
    const uintptr_t address = (uintptr_t)from;
    if (address % 16 == 0 && bytes == UNITS * SW_HASH_ROW_BYTES) {
#pragma unroll
        for (unsigned u = 0; u < UNITS; u++) {
            const uint4 v = __ldg((const uint4 *)from + u * SW_WARP + lane);
            x[4 * u] = v.x, x[4 * u + 1] = v.y, x[4 * u + 2] = v.z, x[4 * u + 3] = v.w;
        }
    } else if (address % 4 == 0) {
        sw_load_units<4, UNITS>(from, bytes, lane, x);
    } else {
        sw_load_units<1, UNITS>(from, bytes, lane, x);
    }
}

template <unsigned UNITS>
__device__ __forceinline__ void sw_store_content(uint8_t *to, uint32_t bytes, uint32_t lane, const uint32_t *x) {
    const bool is_aligned = (uintptr_t)to % 16 == 0;
#pragma unroll
    for (unsigned u = 0; u < UNITS; u++) {
        const uint4 v = make_uint4(x[4 * u], x[4 * u + 1], x[4 * u + 2], x[4 * u + 3]);
        const uint32_t at = u * SW_HASH_ROW_BYTES + lane * SW_UNIT_BYTES;
        if (is_aligned && at + SW_UNIT_BYTES <= bytes)
            *(uint4 *)(to + at) = v;
        else if (at + SW_UNIT_BYTES <= bytes)
            sw_store_unit<1>(to + at, v);
        else if (at < bytes)
            sw_store_tail(to + at, v, bytes - at);
    }
}

/* Puts `fill`, a value as words, where the content has no more values: from byte `bytes` of x on. */
template <unsigned BITS, unsigned WORDS>
__device__ __forceinline__ void sw_fill_tail(uint32_t *x, uint32_t bytes, uint32_t lane, uint64_t fill) {
#pragma unroll
    for (unsigned i = 0; i < WORDS; i++) {
        const uint32_t at = i / 4 * SW_HASH_ROW_BYTES + lane * SW_UNIT_BYTES + i % 4 * 4;
        const uint32_t word = BITS == 64 ? (uint32_t)(i % 2 ? fill >> 32 : fill) : sw_spread(BITS, (uint32_t)fill);
        const uint32_t kept = at >= bytes ? 0 : min(4u, bytes - at);
        x[i] = (x[i] & sw_low_bits(8 * kept)) | (word & ~sw_low_bits(8 * kept));
    }
}

/* Sum over lanes of the hashes of blocks [block, block + BLOCKS), of which `bytes` are there; zeros are in x behind
 * them. */
template <unsigned BLOCKS>
__device__ __forceinline__ uint32_t sw_hash_blocks(const uint32_t *x, uint32_t block, uint32_t bytes, uint32_t lane) {
    constexpr unsigned WORDS = SW_HASH_BLOCK_BYTES / 4 / SW_WARP;
    uint32_t sum = 0;
#pragma unroll
    for (unsigned b = 0; b < BLOCKS; b++) {
        uint32_t h = sw_hash_segment_seed(block + b, lane);
#pragma unroll
        for (unsigned i = 0; i < WORDS; i++)
            h = sw_hash_word(h, x[b * WORDS + i]);
        sum += b * SW_HASH_BLOCK_BYTES < bytes ? sw_hash_finish(h) : 0;
    }
    return sw_warp_sum(sum);
}

/* ---- what a vector needs ---- */

__device__ inline uint64_t sw_warp_min64(uint64_t v) {
#pragma unroll
    for (int d = SW_WARP / 2; d; d /= 2)
        v = min(v, (uint64_t)__shfl_xor_sync(0xFFFFFFFFu, (unsigned long long)v, d));
    return v;
}

/* Least of the lanes' signed numbers, which fit into 32 bits if BITS is less than 64. */
template <unsigned BITS> __device__ inline int64_t sw_warp_min_signed(int64_t v) {
    if constexpr (BITS == 64)
        return (int64_t)(sw_warp_min64((uint64_t)v ^ 1ull << 63) ^ 1ull << 63);
    return __reduce_min_sync(0xFFFFFFFFu, (int)v);
}

struct sw_gpu_range {
    uint64_t base, range;
};

/* Least value of a vector and the greatest less the least. `flip`: the sign bit of signed types, which puts their
 * values in the order of unsigned ones. */
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
        low = __reduce_min_sync(0xFFFFFFFFu, low);
        high = __reduce_max_sync(0xFFFFFFFFu, high);
        return {low ^ (uint32_t)flip, high - low};
    }
}

#endif

/* alprd_gpu.cu - floats in two parts, on the GPU. */
#include "codec/alp/exceptions_gpu.cuh"
#include "codec/alprd/alprd_core.h"

namespace {

/* A dictionary being made. */
struct dictionary : sw_alprd_entries {
    __device__ inline void set(uint32_t k, uint32_t left) {
        (k < 4 ? low : high) |= (uint64_t)left << k % 4 * 16;
    }
    /* Returns the code of a left part; SW_ALPRD_ENTRIES: it has none. */
    __device__ __forceinline__ uint32_t find(uint32_t left) const {
        uint32_t code = SW_ALPRD_ENTRIES;
#pragma unroll
        for (int k = SW_ALPRD_ENTRIES - 1; k >= 0; k--)
            code = left == entry((uint32_t)k) ? (uint32_t)k : code;
        return code;
    }
};

/* The most frequent left parts of the lanes' values; on a tie, the part of the lowest lane. */
struct ranking {
    /* This lane's part. key: its count and rank; 0: another lane stands for the same part, or it has been taken. */
    uint32_t part, key;

    __device__ inline ranking(uint32_t left, uint32_t lane) : part(left) {
        const uint32_t same = __match_any_sync(0xFFFFFFFFu, part);
        key = same & sw_low_bits(lane) ? 0 : __popc(same) << 5 | (SW_WARP - 1 - lane);
    }
    /* Takes the next part and returns its count. When all have been taken: 0, and the first lane's part, as on the
     * host. */
    __device__ inline uint32_t take(uint32_t *ret_part) {
        const uint32_t best = sw_warp_max(key);
        *ret_part = __shfl_sync(0xFFFFFFFFu, part, best ? SW_WARP - 1 - best % SW_WARP : 0);
        key = key == best ? 0 : key;
        return best >> 5;
    }
};

template <unsigned BITS>
__device__ inline sw_alprd_cut choose(const uint32_t *x, uint32_t lane, dictionary *ret_entries) {
    const uint64_t v = sw_sampled_value<BITS>(x, lane);
    sw_alprd_cut c = {0, 0, ~0u};
    uint32_t part, first = 0;
#pragma unroll 1
    for (uint32_t left = 1; left <= SW_ALPRD_MAX_LEFT; left++) {
        ranking r((uint32_t)(v >> (BITS - left)), lane);
        uint32_t exceptions = SW_WARP;
#pragma unroll
        for (uint32_t k = 0; k < SW_ALPRD_ENTRIES; k++) {
            exceptions -= r.take(&part);
            sw_alprd_consider(&c, BITS, left, k + 1, exceptions);
        }
    }
    ranking r((uint32_t)(v >> (BITS - c.left)), lane);
    *ret_entries = {0, 0};
#pragma unroll
    for (uint32_t k = 0; k < SW_ALPRD_ENTRIES; k++) { /* unused entries repeat the first one */
        (void)r.take(&part);
        first = k ? first : part;
        ret_entries->set(k, k >> c.code_width ? first : part);
    }
    return c;
}

template <unsigned BITS> __device__ __forceinline__ uint32_t left_of(const uint32_t *x, unsigned i, uint32_t width) {
    return BITS == 64 ? x[2 * i + 1] >> (width - 32) : x[i] >> width;
}

/* Packs right parts. Those of 64-bit values have all bits of the lower halves, and some of the upper halves. */
template <unsigned BITS>
__device__ __forceinline__ void pack_right(uint32_t width, const uint32_t *x, uint8_t *to, uint32_t lane) {
    if constexpr (BITS == 64) {
        sw_pack_rows<32, 2, 32>(32, x, to, lane);
        sw_pack_rows<32, 2, 31>(width - 32, x + 1, to + 32 * SW_WARP * 4, lane);
    } else {
        sw_pack_rows<32, 1, 31>(width, x, to, lane);
    }
}

struct codec_alprd : sw_alprd_decoder {
    /* Measures a vector. The head's bases carry the dictionary from here to store(). */
    template <unsigned BITS>
    __device__ static __forceinline__ sw_gpu_head measure(const uint32_t *x, const sw_gpu_content &content,
                                                          uint32_t lane) {
        dictionary entries;
        const sw_alprd_cut c = choose<BITS>(x, lane, &entries);
        const uint32_t width = BITS - c.left;
        uint32_t n = 0;
#pragma unroll
        for (unsigned i = 0; i < 32; i++)
            n += sw_value_place(BITS, i, lane) < content.n_values &&
                 entries.find(left_of<BITS>(x, i, width)) == SW_ALPRD_ENTRIES;
        const uint32_t tag = sw_alprd_tag(c.code_width, sw_warp_sum(n));
        return {entries.low, entries.high, width, sw_alprd_units(BITS, width, tag), tag};
    }

    template <unsigned BITS>
    __device__ static __forceinline__ void store(uint32_t *x, const sw_gpu_head &head, const sw_gpu_content &content,
                                                 uint8_t *to, sw_stage<BITS> &, uint32_t lane) {
        constexpr unsigned PER_UNIT = 128 / BITS;
        const uint32_t code_width = sw_alprd_code_width(head.tag);
        const dictionary entries = {head.base, head.step};
        uint8_t *codes_at = to + head.width * SW_WARP * 4, *entries_at = codes_at + code_width * SW_WARP * 4;
        sw_gpu_exceptions<16> rest(entries_at + sw_alprd_entries::BYTES, sw_alp_exceptions(head.tag));
        uint32_t codes[32];
#pragma unroll
        for (unsigned i = 0; i < 32; i += PER_UNIT) {
            uint32_t left[PER_UNIT], which = 0;
#pragma unroll
            for (unsigned k = 0; k < PER_UNIT; k++) {
                left[k] = left_of<BITS>(x, i + k, head.width);
                const uint32_t code = entries.find(left[k]);
                const bool is_there = sw_value_place(BITS, i + k, lane) < content.n_values;
                which |= (uint32_t)(is_there && code == SW_ALPRD_ENTRIES) << k;
                codes[i + k] = code % SW_ALPRD_ENTRIES;
                set_left<BITS>(x, i + k, head.width, 0);
            }
            if (rest.n)
                rest.template put<BITS>(i, which, lane, [&](unsigned k) { return left[k]; });
        }
        rest.pad(to + head.units * SW_UNIT_BYTES, lane);
        if (lane < 2)
            ((uint64_t *)entries_at)[lane] = lane ? head.step : head.base;
        pack_right<BITS>(head.width, x, to, lane);
        sw_pack_rows<32, 1, SW_ALPRD_MAX_CODE_WIDTH>(code_width, codes, codes_at, lane);
    }
};

} // namespace

SW_NUMBERS_LAUNCHERS(alprd, codec_alprd);

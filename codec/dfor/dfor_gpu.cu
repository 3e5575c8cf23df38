/* dfor_gpu.cu - delta and frame of reference on the GPU: a lane adds up 32 values in a row, the warp their sums. */
#include "codec/bitpack/numbers_gpu.cuh"

namespace {

/* Differences as they are packed: of values up to 32 bits in a word each. */
template <unsigned BITS> struct packed {
    static constexpr unsigned AS = BITS == 64 ? 64 : 32;
    static constexpr unsigned WORDS = AS;
};

template <unsigned BITS> __device__ inline int64_t sign_extend(uint64_t v) {
    return BITS == 64 ? (int64_t)v : (int64_t)(int32_t)((uint32_t)v << (32 - BITS)) >> (32 - BITS);
}

template <unsigned BITS> __device__ inline uint64_t truncate(uint64_t v) {
    return BITS == 64 ? v : (uint32_t)v & sw_low_bits(BITS);
}

struct codec_dfor : sw_integer_codec {
    static constexpr uint32_t KINDS = 2;
    static constexpr bool HAS_SIZES = false, IN_ORDER = true, HAS_STAGE = true;
    static constexpr uint32_t DECODE_BLOCKS = 6;

    template <unsigned BITS>
    __device__ static __forceinline__ sw_gpu_head measure(const uint32_t *x, const sw_gpu_content &content,
                                                          uint32_t lane) {
        using number = std::conditional_t<BITS == 64, int64_t, int32_t>;
        number least = std::is_same<number, int64_t>::value ? (number)INT64_MAX : (number)INT32_MAX, most = ~least;
        uint64_t before = sw_value_before<BITS>(x);
#pragma unroll
        for (unsigned i = 0; i < 32; i++) {
            const uint64_t now = sw_get_value<BITS>(x, i);
            const number delta = (number)sign_extend<BITS>(now - before);
            if ((i || lane) && lane * 32 + i < content.n_values) {
                least = min(least, delta);
                most = max(most, delta);
            }
            before = now;
        }
        int64_t low = sw_warp_min_signed<BITS>(least), high = ~sw_warp_min_signed<BITS>(~(int64_t)most);
        if (content.n_values == 1)
            low = high = 0;
        const uint32_t width = sw_width_of((uint64_t)high - (uint64_t)low);
        const uint64_t first = BITS == 64 ? __shfl_sync(0xFFFFFFFFu, (unsigned long long)sw_get_value<BITS>(x, 0), 0)
                                          : __shfl_sync(0xFFFFFFFFu, (uint32_t)sw_get_value<BITS>(x, 0), 0);
        return {first - (uint64_t)low, (uint64_t)low, width, sw_packed_units(BITS, width, content.bytes), 0};
    }

    template <unsigned BITS>
    __device__ static __forceinline__ void store(uint32_t *x, const sw_gpu_head &head, const sw_gpu_content &content,
                                                 uint8_t *to, sw_stage<BITS> &, uint32_t lane) {
        uint32_t rest[packed<BITS>::WORDS];
        uint64_t before = sw_value_before<BITS>(x);
#pragma unroll
        for (unsigned i = 0; i < 32; i++) {
            const uint64_t now = sw_get_value<BITS>(x, i);
            const bool is_there = (i || lane) && lane * 32 + i < content.n_values;
            sw_set_value<packed<BITS>::AS>(rest, i, is_there ? truncate<BITS>(now - before - head.step) : 0);
            before = now;
        }
        sw_pack_vector<packed<BITS>::AS, BITS - 1>(head.width, rest, to, lane);
    }

    template <unsigned BITS>
    __device__ static __forceinline__ bool decode(const sw_gpu_head &head, const uint8_t *from, sw_stage<BITS> &stage,
                                                  uint32_t lane, uint32_t *x) {
        constexpr unsigned AS = packed<BITS>::AS;
        uint32_t sums[packed<BITS>::WORDS];
        uint64_t sum = 0;
        sw_unpack_vector<AS, BITS - 1>(head.width, from, lane, sums);
#pragma unroll
        for (unsigned i = 0; i < 32; i++) {
            sum += sw_get_value<AS>(sums, i) + head.step;
            sw_set_value<AS>(sums, i, sum);
        }
        using word = std::conditional_t<BITS == 64, uint64_t, uint32_t>;
        const uint64_t start = head.base + sw_warp_exclusive_sum((word)sum, lane);
#pragma unroll
        for (unsigned i = 0; i < 32; i++)
            sw_set_value<BITS>(x, i, start + sw_get_value<AS>(sums, i));
        sw_put_by_turns<BITS>(x, stage, lane);
        return true;
    }
};

} // namespace

SW_NUMBERS_LAUNCHERS(dfor, codec_dfor);

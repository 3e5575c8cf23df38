/* dfor_gpu.cu - delta and frame of reference on the GPU: a lane adds up 32 values in a row, and the warp the lanes'
 * sums. */
#include "codec/bitpack/numbers_gpu.cuh"

namespace {

template <unsigned BITS> __device__ inline int64_t sign_extend(uint64_t v) {
    return BITS == 64 ? (int64_t)v : (int64_t)(int32_t)((uint32_t)v << (32 - BITS)) >> (32 - BITS);
}

template <unsigned BITS> __device__ inline uint64_t truncate(uint64_t v) {
    return BITS == 64 ? v : (uint32_t)v & sw_low_bits(BITS);
}

struct codec_dfor : sw_dfor_decoder {
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
        uint32_t rest[sw_dfor_packed<BITS>::WORDS];
        uint64_t before = sw_value_before<BITS>(x);
#pragma unroll
        for (unsigned i = 0; i < 32; i++) {
            const uint64_t now = sw_get_value<BITS>(x, i);
            const bool is_there = (i || lane) && lane * 32 + i < content.n_values;
            sw_set_value<sw_dfor_packed<BITS>::AS>(rest, i, is_there ? truncate<BITS>(now - before - head.step) : 0);
            before = now;
        }
        sw_pack_vector<sw_dfor_packed<BITS>::AS, BITS - 1>(head.width, rest, to, lane);
    }
};

} // namespace

SW_NUMBERS_LAUNCHERS(dfor, codec_dfor);

/* radix_gpu.cu - a dictionary whose codes are digits to a base, on the GPU. finder_gpu.cuh says how codes are found. */
#include "codec/radix/digits_gpu.cuh"

namespace {

struct codec_radix : sw_codec_of_codes<sw_radix_codec> {
    template <unsigned BITS>
    __device__ static __forceinline__ sw_gpu_head measure(const uint32_t *x, const sw_gpu_content &content,
                                                          uint32_t lane) {
        return sw_head_of_codes<codec_radix, BITS>(sw_find_codes_of_values<BITS>(x, content, lane));
    }

    template <unsigned BITS>
    __device__ static __forceinline__ void store(const uint32_t *x, const sw_gpu_head &head,
                                                 const sw_gpu_content &content, uint8_t *to, sw_stage<BITS> &,
                                                 uint32_t lane) {
        constexpr unsigned PER_UNIT = 128 / BITS;
        sw_gpu_exceptions<BITS> rest = sw_begin_rest<BITS>(head, to);
        sw_store_digits<BITS>(sw_radix_base(head.tag), content.vector, to, lane);
        if (!rest.n)
            return;
#pragma unroll
        for (unsigned i = 0; i < 32; i += PER_UNIT)
            rest.template put<BITS>(i, sw_without_code<BITS>(content.vector, i, PER_UNIT, lane), lane,
                                    [&](unsigned k) { return sw_get_value<BITS>(x, i + k); });
        rest.pad(to + head.units * SW_UNIT_BYTES, lane);
    }
};

} // namespace

SW_NUMBERS_LAUNCHERS(radix, codec_radix);

/* dradix_gpu.cu - differences of neighbors by a dictionary, whose codes are digits to a base, on the GPU. */
#include "codec/radix/digits_gpu.cuh"

namespace {

struct codec_dradix : sw_codec_of_codes<sw_dradix_codec> {
    template <unsigned BITS>
    __device__ static __forceinline__ sw_gpu_head measure(const uint32_t *x, const sw_gpu_content &content,
                                                          uint32_t lane) {
        const uint64_t before = sw_value_before<BITS>(x);
        const sw_gpu_codes codes = sw_find_codes<BITS>(content, lane, [&](unsigned i, uint64_t *ret) {
            *ret = sw_get_value<BITS>(x, i) - (i ? sw_get_value<BITS>(x, i - 1) : before);
            return (i || lane) && 32 * lane + i < content.n_values; /* the vector's first value has no difference */
        });
        sw_gpu_head head = sw_head_of_codes<codec_dradix, BITS>(codes);
        head.base = sw_get_value<BITS>(x, 0); /* the vector's in lane 0, whose head is used */
        return head;
    }

    template <unsigned BITS>
    __device__ static __forceinline__ void store(uint32_t *x, const sw_gpu_head &head, const sw_gpu_content &content,
                                                 uint8_t *to, sw_stage<BITS> &, uint32_t lane) {
        sw_gpu_exceptions<BITS> rest = sw_begin_rest<BITS>(head, to);
        sw_store_digits<BITS>(sw_radix_base(head.tag), content.vector, to, lane);
        if (!rest.n)
            return;
        const uint64_t before = sw_value_before<BITS>(x);
#pragma unroll
        for (int i = 31; i >= 0; i--) /* from the last one on, because each needs the value before it */
            sw_set_value<BITS>(x, i, sw_get_value<BITS>(x, i) - (i ? sw_get_value<BITS>(x, i - 1) : before));
        rest.template put_in_order<BITS>(sw_without_code<BITS>(content.vector, 0, 32, lane), lane, x);
        rest.pad(to + head.units * SW_UNIT_BYTES, lane);
    }
};

} // namespace

SW_NUMBERS_LAUNCHERS(dradix, codec_dradix);

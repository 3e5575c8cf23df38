/* pdfor_gpu.cu - differences of neighbors, and frame of reference with exceptions, on the GPU. */
#include "codec/pfor/patched_gpu.cuh"

namespace {

template <unsigned BITS> constexpr sw_gpu_number<BITS> SIGN_BIT = (sw_gpu_number<BITS>)1 << (BITS - 1);

constexpr uint32_t DIFFERENCES = SW_VECTOR_VALUES - 1;

struct codec_pdfor : sw_pdfor_decoder {
    template <unsigned BITS>
    __device__ static __forceinline__ sw_gpu_head measure(const uint32_t *x, const sw_gpu_content &, uint32_t lane) {
        using word = sw_gpu_number<BITS>;
        const word before = (word)sw_value_before<BITS>(x);
        const auto number = [&](unsigned i, word *ret) {
            const word previous = i ? (word)sw_get_value<BITS>(x, i - 1) : before;
            *ret = ((word)sw_get_value<BITS>(x, i) - previous) ^ SIGN_BIT<BITS>;
            return i || lane; /* the vector's first value has no difference */
        };
        const sw_gpu_patched p = sw_choose_patched<BITS>(DIFFERENCES, SIGN_BIT<BITS>, number);
        const word step = p.n_packed ? (word)p.window.from ^ SIGN_BIT<BITS> : 0;
        const word first = (word)sw_get_value<BITS>(x, 0); /* the vector's in lane 0, whose head is used */
        sw_gpu_head head = {(word)(first - step), step, p.width, 0, DIFFERENCES - p.n_packed};
        head.tag |= step ? SW_PATCHED_HAS_STEP : 0;
        head.units = units(BITS, head);
        return head;
    }

    template <unsigned BITS>
    __device__ static __forceinline__ void store(uint32_t *x, const sw_gpu_head &head, const sw_gpu_content &,
                                                 uint8_t *to, sw_stage<BITS> &, uint32_t lane) {
        using word = sw_gpu_number<BITS>;
        const word before = (word)sw_value_before<BITS>(x), last = (word)sw_patched_last(head.width);
        uint8_t *at = to + head.width * SW_WARP * 4;
        sw_gpu_exceptions<BITS> more(at + sw_patched_step_bytes(BITS, head.tag), sw_alp_exceptions(head.tag));
        uint32_t bad = 0;
        if (head.tag & SW_PATCHED_HAS_STEP && lane == 0)
            sw_store_value<BITS>(at, 0, head.step);
#pragma unroll
        for (int i = 31; i >= 0; i--) { /* from the last one on, because each needs the value before it */
            const word previous = i ? (word)sw_get_value<BITS>(x, i - 1) : before;
            const word rest = (word)sw_get_value<BITS>(x, i) - previous - (word)head.step;
            bad |= (uint32_t)((i || lane) && rest > last) << i;
            sw_set_value<BITS>(x, i, i || lane ? rest : 0);
        }
        if (more.n) {
            more.template put_in_order<BITS>(bad, lane, x);
#pragma unroll
            for (unsigned i = 0; i < 32; i++)
                if (bad >> i & 1)
                    sw_set_value<BITS>(x, i, 0);
        }
        more.pad(to + head.units * SW_UNIT_BYTES, lane);
        sw_pack_vector<BITS>(head.width, x, to, lane);
    }
};

} // namespace

SW_NUMBERS_LAUNCHERS(pdfor, codec_pdfor);

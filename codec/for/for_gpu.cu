/* for_gpu.cu - frame of reference on the GPU. */
#include "codec/for/for_gpu.cuh"

namespace {

struct codec_for : sw_for_decoder {
    template <unsigned BITS>
    __device__ static __forceinline__ sw_gpu_head measure(const uint32_t *x, const sw_gpu_content &content, uint32_t) {
        return sw_for_measure<BITS>(x, content);
    }

    template <unsigned BITS>
    __device__ static __forceinline__ void store(uint32_t *x, const sw_gpu_head &head, const sw_gpu_content &,
                                                 uint8_t *to, sw_stage<BITS> &, uint32_t lane) {
        sw_for_store<BITS>(x, head, to, lane);
    }
};

} // namespace

SW_NUMBERS_LAUNCHERS(for, codec_for);

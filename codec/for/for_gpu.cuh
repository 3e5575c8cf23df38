/* for_gpu.cuh - frame of reference for a vector in a warp's registers, units by turns. Internal to codec/. */
#ifndef SW_FOR_GPU_CUH
#define SW_FOR_GPU_CUH

#include "codec/bitpack/numbers_gpu.cuh"

/* The order of the values does not matter. */
template <unsigned BITS>
__device__ __forceinline__ sw_gpu_head sw_for_measure(const uint32_t *x, const sw_gpu_content &content) {
    const sw_gpu_range range = sw_vector_range<BITS>(x, content.flip);
    const uint32_t width = sw_width_of(range.range);
    return {range.base, 0, width, sw_packed_units(BITS, width, content.bytes), 0};
}

template <unsigned BITS>
__device__ __forceinline__ void sw_for_store(uint32_t *x, const sw_gpu_head &head, uint8_t *to, uint32_t lane) {
    sw_subtract_base<BITS, sw_share<BITS>::VECTOR_WORDS>(x, head.base);
    sw_pack_vector<BITS>(head.width, x, to, lane);
}

#endif

/* digits_gpu.cuh - numbers of digits on the GPU (FORMAT.md). The digits are the codes that sw_find_codes() has kept.
 * Internal to codec/. */
#ifndef SW_RADIX_DIGITS_GPU_CUH
#define SW_RADIX_DIGITS_GPU_CUH

#include "codec/dict/finder_gpu.cuh"

/* Returns the number of a word's four digits. */
__device__ inline uint32_t sw_number_of(uint32_t codes, uint32_t base) {
    uint32_t number = 0;
#pragma unroll
    for (unsigned k = 4; k-- > 0;) {
        const uint32_t code = codes >> 8 * k & 0xFF;
        number = number * base + (code == SW_NO_CODE ? 0 : code);
    }
    return number;
}

/* Writes numbers of `width` bits, one of each lane, to `width` words. */
__device__ inline void sw_store_row(uint32_t number, uint32_t width, uint32_t *to, uint32_t lane) {
    const uint32_t from = 32 * lane / max(width, 1u); /* the lane whose number has word `lane`'s lowest bit */
    const uint32_t shift = 32 * lane - from * width;  /* the bits of it that are in the word before */
    uint32_t word = 0;
    for (uint32_t k = 0; k * width < 32 + width && width; k++) { /* the same number of rounds in all lanes */
        const uint32_t other = __shfl_sync(0xFFFFFFFFu, number, from + k);
        if (k == 0)
            word = other >> shift;
        else if (k * width - shift < 32 && from + k < SW_WARP)
            word |= other << (k * width - shift);
    }
    if (lane < width)
        to[lane] = word;
}

/* Writes the numbers of a vector. */
template <unsigned BITS>
__device__ __forceinline__ void sw_store_digits(uint32_t base, uint32_t vector, uint8_t *to, uint32_t lane) {
    const uint32_t width = sw_radix_width(base), fourth = base * base * base * base;
    const auto number = [&](unsigned w) { return sw_number_of(sw_codes<BITS>(vector, w, lane), base); };
    for (unsigned row = 0; row < 32 / sw_radix_digits(base); row++)
        sw_store_row(base < 16 ? number(2 * row + 1) * fourth + number(2 * row) : number(row), width,
                     (uint32_t *)to + row * width, lane);
}

/* Returns a vector's head without its base. */
template <class CODEC, unsigned BITS> __device__ inline sw_gpu_head sw_head_of_codes(const sw_gpu_codes &codes) {
    sw_gpu_head head = {};
    if (codes.n_exceptions <= SW_RADIX_MAX_EXCEPTIONS)
        head.tag = codes.n_exceptions << 8 | (codes.most + 1);
    head.units = CODEC::units(BITS, head);
    return head;
}

/* Returns which of a lane's `n` values from value `i` on have no code: bit k stands for value i + k. */
template <unsigned BITS>
__device__ __forceinline__ uint32_t sw_without_code(uint32_t vector, unsigned i, unsigned n, uint32_t lane) {
    uint32_t which = 0;
#pragma unroll
    for (unsigned k = 0; k < n; k++)
        which |= (uint32_t)((sw_codes<BITS>(vector, (i + k) / 4, lane) >> (i + k) % 4 * 8 & 0xFF) == SW_NO_CODE) << k;
    return which;
}

/* Begins a vector's exceptions. */
template <unsigned BITS> __device__ inline sw_gpu_exceptions<BITS> sw_begin_rest(const sw_gpu_head &head, uint8_t *to) {
    return {to + sw_radix_packed_units(sw_radix_base(head.tag)) * SW_UNIT_BYTES, sw_radix_exceptions(head.tag)};
}

#endif

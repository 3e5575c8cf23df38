/* runs_gpu.cuh - where the runs of a vector begin, as words, and numbers of any width in a row, on the GPU: each lane
 * holds 32 values in a row. Internal to codec/. */
#ifndef SW_RUNS_GPU_CUH
#define SW_RUNS_GPU_CUH

#include "codec/bitpack/numbers_gpu.cuh"

/* Where the runs of a lane's 32 values in a row begin, and how many begin in lanes before it. */
struct sw_gpu_starts {
    uint32_t bits, first_run;
    uint32_t mask;   /* of the lanes in which runs begin */
    uint32_t n_runs; /* of the vector */
};

__device__ inline sw_gpu_starts sw_count_starts(uint32_t bits, uint32_t lane) {
    const uint32_t n = __popc(bits);
    return {bits, sw_warp_exclusive_sum(n, lane), __ballot_sync(0xFFFFFFFFu, bits != 0), sw_warp_sum(n)};
}

/* Of runs in which each value is the one before it plus STEP. */
template <unsigned BITS, unsigned STEP>
__device__ __forceinline__ sw_gpu_starts sw_find_starts(const uint32_t *x, uint32_t n_values, uint32_t lane) {
    uint64_t before = sw_value_before<BITS>(x);
    uint32_t bits = 0;
#pragma unroll
    for (unsigned i = 0; i < 32; i++) {
        const uint64_t now = sw_get_value<BITS>(x, i);
        bits |= (uint32_t)(now != ((before + STEP) & (~0ull >> (64 - BITS)))) << i;
        before = now;
    }
    const uint32_t there = n_values > lane * 32 ? sw_low_bits(min(32u, n_values - lane * 32)) : 0;
    return sw_count_starts(lane ? bits & there : (bits & there) | 1, lane);
}

__device__ inline uint32_t sw_run_value_words(uint32_t n_runs, uint32_t width) {
    return (n_runs * width + 31) / 32;
}

__device__ inline uint32_t sw_run_words(const sw_gpu_starts &s, uint32_t width) {
    return 1 + __popc(s.mask) + sw_run_value_words(s.n_runs, width);
}

__device__ inline uint32_t sw_lanes_before(uint32_t mask, uint32_t lane) {
    return __popc(mask & sw_low_bits(lane));
}

/* Number `run` of a stream of numbers of `width` bits. */
template <unsigned BITS> __device__ inline uint64_t sw_load_bits(const uint32_t *words, uint32_t run, uint32_t width) {
    if (!width)
        return 0; /* there may be nothing to read */
    const uint32_t at = run * width, shift = at % 32;
    const uint32_t *from = words + at / 32;
    const uint32_t a = __ldg(from), b = shift + width > 32 ? __ldg(from + 1) : 0;
    const uint32_t low = __funnelshift_r(a, b, shift);
    if constexpr (BITS < 64)
        return low & sw_low_bits(width);
    const uint32_t c = shift + width > 64 ? __ldg(from + 2) : 0;
    const uint64_t v = (uint64_t)__funnelshift_r(b, c, shift) << 32 | low;
    return width < 64 ? v & ((1ull << width) - 1) : v;
}

/* Word `i` of a stream of n numbers of `width` bits. */
template <unsigned BITS>
__device__ inline uint32_t sw_make_word(const uint8_t *table, uint32_t n, uint32_t width, uint32_t i) {
    uint32_t word = 0;
    for (uint32_t run = 32 * i / width; run < n && run * width < 32 * i + 32; run++) {
        const uint64_t v = sw_load_value<BITS>(table, run);
        const int shift = (int)(run * width) - (int)(32 * i);
        word |= (uint32_t)(shift < 0 ? v >> -shift : v << shift);
    }
    return word;
}

#endif

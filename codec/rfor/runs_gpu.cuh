/* runs_gpu.cuh - the beginnings of a vector's runs, as words, and sequences of numbers of any width, on the GPU. Each
 * lane holds 32 values in a row. The part for decoders is in spillway_device/for.cuh. Internal to codec/. */
#ifndef SW_RUNS_GPU_CUH
#define SW_RUNS_GPU_CUH

#include "codec/bitpack/numbers_gpu.cuh"

/* Finds the runs in which each value is the value before it plus STEP. */
template <unsigned BITS, unsigned STEP>
__device__ __forceinline__ sw_run_starts sw_find_starts(const uint32_t *x, uint32_t n_values, uint32_t lane) {
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

__device__ inline uint32_t sw_run_words(const sw_run_starts &s, uint32_t width) {
    return 1 + __popc(s.mask) + sw_run_value_words(s.n_runs, width);
}

/* Returns word `i` of a stream of n numbers of `width` bits. */
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

/* pairs_gpu.cuh - a table's symbols of two bytes, in a block's shared memory: as they are looked up on GPUs whose
 * blocks have no room for an array of 64 KiB (sm_75). */
#ifndef SW_V5T_PAIRS_GPU_CUH
#define SW_V5T_PAIRS_GPU_CUH

#include "codec/codec_gpu.cuh"

struct sw_v5t_pairs {
    static constexpr uint32_t NONE = 255, WORDS = 65536 / 32;
    uint32_t bits[WORDS];   /* a bit of each pair: it is a symbol */
    uint8_t before[WORDS];  /* symbols in earlier words */
    uint8_t code[NONE + 1]; /* in the order of the pairs */

    __device__ inline uint32_t rank(uint32_t pair) const {
        return before[pair / 32] + __popc(bits[pair / 32] & ((1u << pair % 32) - 1));
    }
    /* Returns the pair's code, or NONE. */
    __device__ inline uint32_t find(uint32_t pair) const {
        return bits[pair / 32] >> pair % 32 & 1 ? code[rank(pair)] : NONE;
    }

    /* All threads of the block call it; the caller synchronizes. */
    __device__ void build(const sw_params &table, uint32_t threads) {
        for (uint32_t i = threadIdx.x; i < WORDS; i += threads)
            bits[i] = 0;
        __syncthreads();
        for (uint32_t c = threadIdx.x; c < table.n_symbols; c += threads)
            if (table.length[c] == 2)
                atomicOr(&bits[table.value[c] / 32], 1u << table.value[c] % 32);
        __syncthreads();
        if (threadIdx.x < SW_WARP)
            for (uint32_t from = 0, sum = 0; from < WORDS; from += SW_WARP) {
                const uint32_t n = __popc(bits[from + threadIdx.x]);
                before[from + threadIdx.x] = (uint8_t)(sum + sw_warp_exclusive_sum(n, threadIdx.x));
                sum += sw_warp_sum(n);
            }
        __syncthreads();
        for (uint32_t c = threadIdx.x; c < table.n_symbols; c += threads)
            if (table.length[c] == 2)
                code[rank((uint32_t)table.value[c])] = (uint8_t)c;
    }
};

#endif

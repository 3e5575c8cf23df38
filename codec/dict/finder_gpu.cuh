/* finder_gpu.cuh - the dictionary of a frame on the GPU, for encoders and decoders. Internal to codec/.
 *
 * Encoding: the dictionary is in shared memory as a balanced search tree, level after level. All lanes read the upper
 * levels at the same time; of 32-bit values the first six levels have no bank conflicts. A lane walks all levels, with
 * one load, one comparison and two other instructions for each, and compares at the end. With 255 values that is about
 * 45 instructions per value. At 1500 GB/s, 132 multiprocessors have 158 instructions for a value of 64 bits, and 79 for
 * one of 32 bits. The search runs only once: sw_find_codes() keeps the codes in shared memory for store(), a byte each,
 * SW_NO_CODE for values without a code. */
#ifndef SW_DICT_FINDER_GPU_CUH
#define SW_DICT_FINDER_GPU_CUH

#include "codec/alp/exceptions_gpu.cuh"
#include "codec/dict/dict_core.h"

constexpr uint32_t SW_NO_CODE = SW_DICT_MAX_VALUES;

/* The dictionary of a frame being encoded, and its tile's codes. */
template <unsigned BITS> struct sw_finder {
    sw_value_of<BITS> node[256]; /* from 1 on: the children of k are 2k and 2k + 1 */
    uint32_t n, levels;
    uint32_t codes[SW_NUMBERS_TILE_BYTES / BITS * 8 / 4]; /* a word has four codes of a lane; lanes take turns */

    /* Builds the tree. All threads of the block call it. */
    __device__ inline void init(const uint64_t *values, uint32_t n_values) {
        const uint32_t n_codes = min(n_values, min(1u << sw_dict_max_width(BITS), SW_NO_CODE));
        const uint32_t n_levels = sw_width_of(n_codes);
        if (threadIdx.x == 0) {
            n = n_codes;
            levels = n_levels;
        }
        for (uint32_t k = 1 + threadIdx.x; k >> n_levels == 0; k += sw_share<BITS>::PER_TILE * SW_WARP) {
            const uint32_t depth = 31 - __clz((int)k), above = 1u << depth;
            const uint32_t rank = ((2 * (k - above) + 1) << (n_levels - 1 - depth)) - 1;
            node[k] = rank < n_codes ? (sw_value_of<BITS>)values[rank] : (sw_value_of<BITS>)~0ull;
        }
    }

    __device__ inline uint32_t code(uint64_t value) const {
        const sw_value_of<BITS> v = (sw_value_of<BITS>)value;
        uint32_t k = 1;
        for (uint32_t level = 0; level < levels; level++)
            k = 2 * k + (node[k] < v);
        const uint32_t rank = k - (1u << levels);
        const uint32_t last = k >> __ffs((int)~k); /* the node where the walk last went to the left */
        return rank < n && node[last] == v ? rank : SW_NO_CODE;
    }
};

/* Each kernel has its own. */
template <unsigned BITS> __device__ inline sw_finder<BITS> &sw_shared_finder() {
    __shared__ sw_finder<BITS> f;
    return f;
}

/* The values of the frame being decoded. */
template <unsigned BITS> __device__ inline sw_value_of<BITS> *sw_shared_values() {
    __shared__ sw_value_of<BITS> values[256];
    return values;
}
struct sw_shared_dictionary {
    static constexpr bool IS_STAGED = false;

    template <unsigned BITS>
    __device__ static inline const sw_value_of<BITS> *by_code(sw_stage<BITS> &, uint32_t, uint32_t) {
        return sw_shared_values<BITS>();
    }
};

/* The preparations of codecs of codes before they encode and decode. */
template <class BASE> struct sw_codec_of_codes : BASE {
    template <unsigned BITS> __device__ static inline void begin_encode(const uint64_t *values, uint32_t n_values) {
        sw_shared_finder<BITS>().init(values, n_values);
        __syncthreads();
    }

    template <unsigned BITS> __device__ static inline void begin_decode(const uint64_t *values, uint32_t n_values) {
        for (uint32_t i = threadIdx.x; i < 256; i += SW_DECODE_WARPS * SW_WARP)
            sw_shared_values<BITS>()[i] = i < n_values ? (sw_value_of<BITS>)values[i] : (sw_value_of<BITS>)~0ull;
        __syncthreads();
    }

    template <unsigned BITS>
    __device__ static __forceinline__ bool decode(const sw_gpu_head &head, const uint8_t *from, sw_stage<BITS> &stage,
                                                  uint32_t lane, uint32_t *x) {
        return BASE::template decode_by<BITS>(sw_shared_dictionary(), head, from, stage, lane, x);
    }
};

/* Returns a lane's codes of a vector: word w has the codes of its values 4w ... 4w + 3. */
template <unsigned BITS> __device__ inline uint32_t &sw_codes(uint32_t vector, unsigned w, uint32_t lane) {
    return sw_shared_finder<BITS>().codes[(vector * (32 / 4) + w) * SW_WARP + lane];
}

/* What a vector's codes need. */
struct sw_gpu_codes {
    uint32_t most, n_exceptions; /* most: the largest code */
};

/* Finds the codes of a vector and keeps them. get(i, &value): gets the lane's value i; false: it is missing, and has
 * code 0. */
template <unsigned BITS, class F>
__device__ __forceinline__ sw_gpu_codes sw_find_codes(const sw_gpu_content &content, uint32_t lane, F get) {
    const sw_finder<BITS> &f = sw_shared_finder<BITS>();
    uint32_t most = 0, n = 0;
#pragma unroll
    for (unsigned w = 0; w < 32 / 4; w++) {
        uint32_t word = 0;
#pragma unroll
        for (unsigned k = 0; k < 4; k++) {
            uint64_t value;
            const uint32_t code = get(4 * w + k, &value) ? f.code(value) : 0;
            most = max(most, code < SW_NO_CODE ? code : 0);
            n += code == SW_NO_CODE;
            word |= code << 8 * k;
        }
        sw_codes<BITS>(content.vector, w, lane) = word;
    }
    return {sw_warp_max(most), sw_warp_sum(n)};
}

/* The same for the values themselves. */
template <unsigned BITS>
__device__ __forceinline__ sw_gpu_codes sw_find_codes_of_values(const uint32_t *x, const sw_gpu_content &content,
                                                                uint32_t lane) {
    return sw_find_codes<BITS>(content, lane, [&](unsigned i, uint64_t *ret) {
        *ret = sw_get_value<BITS>(x, i);
        return sw_value_place(BITS, i, lane) < content.n_values;
    });
}

#endif

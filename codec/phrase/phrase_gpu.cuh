/* phrase_gpu.cuh - expands a table's phrases in a block's shared memory, for encoder and decoder. */
#ifndef SW_PHRASE_GPU_CUH
#define SW_PHRASE_GPU_CUH

#include "codec/codec_gpu.cuh"
#include "codec/phrase/phrase_core.h"

/* phrase_decode.cu, for the row. */
cudaError_t sw_phrase_gpu_init_decoder();
size_t sw_phrase_gpu_decoder_bytes(size_t limit);
template <class ITEMS> void sw_phrase_gpu_decode(const sw_gpu_decode_job<ITEMS> *job);

/* Returns whether all parts of a phrase have been expanded and have `length` together. Values and lengths are not
 * trusted. */
__device__ inline bool sw_phrase_has_parts(const uint8_t *written, uint64_t value, uint32_t length) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < SW_PHRASE_MAX_PARTS && at < length; i++) {
        const uint32_t bytes = written[value >> 8 * i & 0xFF];
        if (bytes == 0 || bytes >= length)
            return false;
        at += bytes;
    }
    return at == length;
}

/* Expands all phrases: writes their texts, padded with zeros, to word[c][0 … 7], and their lengths to written[c]; 0: no
 * phrase, or an invalid one. All threads of the block call it; the caller synchronizes. Each round expands the phrases
 * whose parts were expanded in earlier rounds. It ends, because the parts of a phrase are shorter than the phrase. */
template <uint32_t THREADS>
__device__ void sw_phrase_write_out(uint64_t (*word)[SW_PHRASE_STRIDE], uint8_t *written, const uint64_t *value,
                                    const uint8_t *length, uint32_t n) {
    constexpr uint32_t EACH = (256 + THREADS - 1) / THREADS;
    static_assert(EACH <= 32, "a bit for each phrase of a thread");
    /* This thread's values. `volatile` makes sure that they are read only once: the client can still write to the
     * memory of a packed frame, but the values that are used must be the values that were checked. */
    uint64_t own_value[EACH];
    uint32_t own_length[EACH];
#pragma unroll
    for (uint32_t k = 0; k < EACH; k++) {
        const uint32_t c = threadIdx.x + k * THREADS;
        const bool is_there = c < n && c < 256;
        own_value[k] = is_there ? ((const volatile uint64_t *)value)[c] : 0;
        own_length[k] = is_there ? ((const volatile uint8_t *)length)[c] : 0;
        if (c >= 256)
            continue;
        const bool is_text = own_length[k] - 1 < 8; /* 1 … 8 */
        for (uint32_t i = 0; i < SW_PHRASE_WORDS; i++)
            word[c][i] = 0;
        if (is_text)
            word[c][0] = own_value[k] & ~0ull >> (64 - 8 * own_length[k]);
        written[c] = is_text ? (uint8_t)own_length[k] : 0;
    }
    __syncthreads();
    uint32_t ready; /* a bit for each phrase of this thread */
    do {
        ready = 0;
#pragma unroll
        for (uint32_t k = 0; k < EACH; k++) {
            const uint32_t c = threadIdx.x + k * THREADS;
            if (own_length[k] > 8 && own_length[k] <= SW_PHRASE_MAX_BYTES && !written[c] &&
                sw_phrase_has_parts(written, own_value[k], own_length[k]))
                ready |= 1u << k;
        }
        __syncthreads();
#pragma unroll
        for (uint32_t k = 0; k < EACH; k++) {
            const uint32_t c = threadIdx.x + k * THREADS;
            if (!(ready >> k & 1))
                continue;
            uint8_t *to = (uint8_t *)word[c];
            for (uint32_t i = 0, at = 0; at < own_length[k]; i++) {
                const uint32_t part = own_value[k] >> 8 * i & 0xFF, bytes = written[part];
                for (uint32_t b = 0; b < bytes; b++)
                    to[at + b] = ((const uint8_t *)word[part])[b];
                at += bytes;
            }
            written[c] = own_length[k];
        }
    } while (__syncthreads_or(ready));
}

#endif

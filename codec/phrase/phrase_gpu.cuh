/* phrase_gpu.cuh - a table's phrases, written out in a block's shared memory: what encoder and decoder share. */
#ifndef SW_PHRASE_GPU_CUH
#define SW_PHRASE_GPU_CUH

#include "codec/phrase/phrase_core.h"

/* Whether all parts of a phrase of `length` have been written out and make it up; values and lengths are not trusted.
 */
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

/* Writes text, as its bytes lie in memory and zero behind, to word[c][0 … 7] of all c, and its length to written[c]; 0
 * where there is no phrase, or none that could be made up. All threads of the block; the caller synchronises. Phrases
 * are made up of shorter ones, so there is an end: a round writes those whose parts were written in the rounds before.
 */
template <uint32_t THREADS>
__device__ void sw_phrase_write_out(uint64_t (*word)[SW_PHRASE_STRIDE], uint8_t *written, const uint64_t *value,
                                    const uint8_t *length, uint32_t n) {
    constexpr uint32_t EACH = (256 + THREADS - 1) / THREADS;
    static_assert(EACH <= 32, "a bit for each phrase of a thread");
    for (uint32_t c = threadIdx.x; c < 256; c += THREADS) {
        const uint32_t bytes = c < n ? length[c] : 0;
        const bool is_text = bytes - 1 < 8; /* 1 … 8 */
        for (uint32_t i = 0; i < SW_PHRASE_WORDS; i++)
            word[c][i] = 0;
        if (is_text)
            word[c][0] = value[c] & ~0ull >> (64 - 8 * bytes);
        written[c] = is_text ? (uint8_t)bytes : 0;
    }
    __syncthreads();
    uint32_t ready; /* a bit for each phrase of this thread */
    do {
        ready = 0;
        for (uint32_t k = 0, c = threadIdx.x; k < EACH && c < n; k++, c += THREADS)
            if (!written[c] && length[c] > 8 && length[c] <= SW_PHRASE_MAX_BYTES &&
                sw_phrase_has_parts(written, value[c], length[c]))
                ready |= 1u << k;
        __syncthreads();
        for (uint32_t k = 0, c = threadIdx.x; k < EACH && c < n; k++, c += THREADS) {
            if (!(ready >> k & 1))
                continue;
            uint8_t *to = (uint8_t *)word[c];
            for (uint32_t i = 0, at = 0; at < length[c]; i++) {
                const uint32_t part = value[c] >> 8 * i & 0xFF, bytes = written[part];
                for (uint32_t b = 0; b < bytes; b++)
                    to[at + b] = ((const uint8_t *)word[part])[b];
                at += bytes;
            }
            written[c] = length[c];
        }
    } while (__syncthreads_or(ready));
}

#endif

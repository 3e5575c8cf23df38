#include "codec/checksum.h"

#include <stdbool.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

uint32_t sw_hash_update(uint32_t h, const void *data, size_t bytes) {
    const uint8_t *p = data;
    uint32_t word;
    for (; bytes >= 4; bytes -= 4, p += 4) {
        memcpy(&word, p, 4);
        h = sw_hash_word(h, word);
    }
    if (bytes) {
        word = 0;
        memcpy(&word, p, bytes);
        h = sw_hash_word(h, word);
    }
    return h;
}

/* A hash is one chain of dependent steps. Hashing LANES segments at a time keeps the multiplier busy. */
#define LANES 4

/* Returns the sum of the hashes of LANES whole segments. segment: the number of the first one. */
static uint32_t hash_lanes(const uint8_t *p, size_t segment_bytes, uint32_t tile, uint32_t segment) {
    uint32_t h[LANES], sum = 0;
    for (uint32_t i = 0; i < LANES; i++)
        h[i] = sw_hash_segment_seed(tile, segment + i);
    for (size_t at = 0; at < segment_bytes; at += 4) {
#pragma GCC unroll 4
        for (size_t i = 0; i < LANES; i++) {
            uint32_t word;
            memcpy(&word, p + i * segment_bytes + at, 4);
            h[i] = sw_hash_word(h[i], word);
        }
    }
    for (uint32_t i = 0; i < LANES; i++)
        sum += sw_hash_finish(h[i]);
    return sum;
}

#ifdef __x86_64__

/* A whole tile is hashed at once: 32 segments in four vectors of eight lanes. Four vectors hide the latency of a
 * multiplication, which takes as long as four steps. */
enum { VECTORS = 4, VECTOR_LANES = 8, TILE_LANES = VECTORS * VECTOR_LANES };

/* Prefetches the memory behind a tile step by step, which mostly is the next tile. The processor's own prefetcher
 * cannot follow 32 streams of one segment each; from memory this is half as fast again. Prefetching unmapped memory
 * does nothing. */
static inline void prefetch_next(const uint8_t *tile, size_t segment_bytes, size_t at) {
    const char *next = (const char *)tile + TILE_LANES * (segment_bytes + at);
    for (size_t i = 0; i < TILE_LANES * sizeof(__m256i); i += 64)
        _mm_prefetch(next + i, _MM_HINT_T0);
}

/* Transposes 8 x 8 words: row i holds 8 words of segment i before, and word i of 8 segments afterwards. */
__attribute__((target("avx2"))) static inline void transpose(__m256i row[VECTOR_LANES]) {
    __m256i pair[VECTOR_LANES], quad[VECTOR_LANES];
    for (int i = 0; i < VECTOR_LANES; i += 2) {
        pair[i] = _mm256_unpacklo_epi32(row[i], row[i + 1]);
        pair[i + 1] = _mm256_unpackhi_epi32(row[i], row[i + 1]);
    }
    for (int i = 0; i < VECTOR_LANES; i += 4)
        for (int k = 0; k < 2; k++) {
            quad[i + 2 * k] = _mm256_unpacklo_epi64(pair[i + k], pair[i + k + 2]);
            quad[i + 2 * k + 1] = _mm256_unpackhi_epi64(pair[i + k], pair[i + k + 2]);
        }
    for (int i = 0; i < 4; i++) {
        row[i] = _mm256_permute2x128_si256(quad[i], quad[i + 4], 0x20);
        row[i + 4] = _mm256_permute2x128_si256(quad[i], quad[i + 4], 0x31);
    }
}

__attribute__((target("avx2"))) static inline __m256i hash_words(__m256i h, __m256i words) {
    const __m256i rotated = _mm256_or_si256(_mm256_slli_epi32(h, 13), _mm256_srli_epi32(h, 19));
    return _mm256_add_epi32(_mm256_mullo_epi32(rotated, _mm256_set1_epi32((int)0x9E3779B1u)), words);
}

__attribute__((target("avx2"))) static uint32_t hash_whole_tile(const uint8_t *p, size_t segment_bytes, uint32_t tile,
                                                                bool is_last) {
    uint32_t lane[TILE_LANES], sum = 0;
    __m256i h[VECTORS], words[VECTORS][VECTOR_LANES];
    for (uint32_t i = 0; i < TILE_LANES; i++)
        lane[i] = sw_hash_segment_seed(tile, i);
    for (size_t v = 0; v < VECTORS; v++)
        h[v] = _mm256_loadu_si256((const __m256i *)(lane + v * VECTOR_LANES));
    for (size_t at = 0; at < segment_bytes; at += sizeof(__m256i)) {
        if (!is_last)
            prefetch_next(p, segment_bytes, at);
        for (size_t v = 0; v < VECTORS; v++) {
            for (size_t i = 0; i < VECTOR_LANES; i++)
                words[v][i] = _mm256_loadu_si256((const __m256i *)(p + (v * VECTOR_LANES + i) * segment_bytes + at));
            transpose(words[v]);
        }
        for (size_t i = 0; i < VECTOR_LANES; i++)
            for (size_t v = 0; v < VECTORS; v++)
                h[v] = hash_words(h[v], words[v][i]);
    }
    for (size_t v = 0; v < VECTORS; v++)
        _mm256_storeu_si256((__m256i *)(lane + v * VECTOR_LANES), h[v]);
    for (uint32_t i = 0; i < TILE_LANES; i++)
        sum += sw_hash_finish(lane[i]);
    return sum;
}

static bool can_hash_whole_tiles(void) {
    return __builtin_cpu_supports("avx2");
}

#endif

static uint32_t hash_tile(const void *data, size_t bytes, unsigned segment_log2, uint32_t tile, bool is_last) {
    const uint8_t *p = data;
    const size_t segment_bytes = (size_t)1 << segment_log2;
    uint32_t sum = 0, s = 0;
#ifdef __x86_64__
    if (bytes == TILE_LANES * segment_bytes && segment_bytes >= sizeof(__m256i) && can_hash_whole_tiles())
        return hash_whole_tile(p, segment_bytes, tile, is_last);
#else
    (void)is_last;
#endif
    for (; bytes >= LANES * segment_bytes; s += LANES) {
        sum += hash_lanes(p, segment_bytes, tile, s);
        p += LANES * segment_bytes;
        bytes -= LANES * segment_bytes;
    }
    for (; bytes; s++) {
        size_t n = bytes < segment_bytes ? bytes : segment_bytes;
        sum += sw_hash_finish(sw_hash_update(sw_hash_segment_seed(tile, s), p, n));
        p += n;
        bytes -= n;
    }
    return sum;
}

uint32_t sw_hash_tile(const void *data, size_t bytes, unsigned segment_log2, uint32_t tile) {
    return hash_tile(data, bytes, segment_log2, tile, false);
}

uint32_t sw_hash_last_tile(const void *data, size_t bytes, unsigned segment_log2, uint32_t tile) {
    return hash_tile(data, bytes, segment_log2, tile, true);
}

/* ---- by rows ---- */

enum { ROW_LANES = 32, UNIT_WORDS = 4, BLOCK_WORDS = SW_HASH_BLOCK_BYTES / 4 };

static inline __attribute__((always_inline)) uint32_t hash_rows(const uint32_t words[BLOCK_WORDS], uint32_t block) {
    uint32_t h[ROW_LANES], sum = 0;
    for (uint32_t lane = 0; lane < ROW_LANES; lane++)
        h[lane] = sw_hash_segment_seed(block, lane);
    for (size_t row = 0; row < SW_HASH_BLOCK_ROWS; row++, words += (size_t)ROW_LANES * UNIT_WORDS)
        for (size_t lane = 0; lane < ROW_LANES; lane++)
            for (size_t i = 0; i < UNIT_WORDS; i++)
                h[lane] = sw_hash_word(h[lane], words[UNIT_WORDS * lane + i]);
    for (uint32_t lane = 0; lane < ROW_LANES; lane++)
        sum += sw_hash_finish(h[lane]);
    return sum;
}

static uint32_t hash_block(const uint32_t words[BLOCK_WORDS], uint32_t block) {
    return hash_rows(words, block);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static uint32_t hash_block_avx2(const uint32_t words[BLOCK_WORDS], uint32_t block) {
    return hash_rows(words, block);
}
#endif

uint32_t sw_hash_tile_rows(const void *data, size_t bytes, unsigned segment_log2, uint32_t tile) {
    (void)segment_log2;
    uint32_t (*hash)(const uint32_t *, uint32_t) = hash_block;
    uint32_t sum = 0, words[BLOCK_WORDS], block = tile * SW_HASH_TILE_BLOCKS;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2"))
        hash = hash_block_avx2;
#endif
    for (size_t at = 0; at < bytes; at += sizeof words, block++) {
        const size_t n = bytes - at < sizeof words ? bytes - at : sizeof words;
        memset((uint8_t *)words + n, 0, sizeof words - n);
        memcpy(words, (const uint8_t *)data + at, n);
        sum += hash(words, block);
    }
    return sum;
}

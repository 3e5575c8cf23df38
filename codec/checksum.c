#include "codec/checksum.h"

#include <string.h>

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

/* A hash is one chain of dependent steps; LANES segments side by side keep the multiplier busy. */
#define LANES 4

/* Sum of the hashes of LANES whole segments, `segment` being the first one's number. */
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

uint32_t sw_hash_tile(const void *data, size_t bytes, unsigned segment_log2, uint32_t tile) {
    const uint8_t *p = data;
    const size_t segment_bytes = (size_t)1 << segment_log2;
    uint32_t sum = 0, s = 0;
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

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

uint32_t sw_hash_tile(const void *data, size_t bytes, unsigned segment_log2, uint32_t tile) {
    const uint8_t *p = data;
    const size_t segment_bytes = (size_t)1 << segment_log2;
    uint32_t sum = 0;
    for (uint32_t s = 0; bytes; s++) {
        size_t n = bytes < segment_bytes ? bytes : segment_bytes;
        sum += sw_hash_finish(sw_hash_update(sw_hash_segment_seed(tile, s), p, n));
        p += n;
        bytes -= n;
    }
    return sum;
}

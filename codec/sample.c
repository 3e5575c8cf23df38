#include "codec/codec.h"

#include <string.h>

/* splitmix64's finalizer (public domain, S. Vigna): spreads the piece number over 64 bits. */
static uint64_t mix64(uint64_t x) {
    x = (x + 1) * 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

unsigned sw_sample_pieces(uint64_t raw_bytes) {
    if (raw_bytes >= SW_SAMPLE_MAX_BYTES)
        return SW_SAMPLE_PIECES;
    return (unsigned)((raw_bytes + SW_SAMPLE_PIECE_BYTES - 1) / SW_SAMPLE_PIECE_BYTES);
}

uint64_t sw_sample_offset(uint64_t raw_bytes, unsigned piece) {
    if (raw_bytes <= SW_SAMPLE_MAX_BYTES)
        return (uint64_t)piece * SW_SAMPLE_PIECE_BYTES;
    /* One piece in each of equal strata, at a place that no period of the column can follow, but where a number of any
     * type begins. */
    uint64_t stratum = raw_bytes / SW_SAMPLE_PIECES;
    return (stratum * piece + mix64(piece) % (stratum - SW_SAMPLE_PIECE_BYTES + 1)) / 8 * 8;
}

size_t sw_sample_gather(void *ret, const void *region, uint64_t raw_bytes) {
    const uint8_t *from = region;
    uint8_t *to = ret;
    if (raw_bytes <= SW_SAMPLE_MAX_BYTES) {
        if (raw_bytes) /* an empty region may be NULL */
            memcpy(to, from, raw_bytes);
        return raw_bytes;
    }
    for (unsigned i = 0; i < SW_SAMPLE_PIECES; i++)
        memcpy(to + (size_t)i * SW_SAMPLE_PIECE_BYTES, from + sw_sample_offset(raw_bytes, i), SW_SAMPLE_PIECE_BYTES);
    return SW_SAMPLE_MAX_BYTES;
}

#include "codec/sample.h"

#include <string.h>

/* The finalizer of splitmix64 (public domain, S. Vigna) spreads the piece number over 64 bits. */
static uint64_t mix64(uint64_t x) {
    x = (x + 1) * 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

unsigned sw_sample_pieces(uint64_t raw_bytes, unsigned piece_bytes) {
    const size_t bytes = sw_sample_bytes(raw_bytes);
    return (unsigned)((bytes + piece_bytes - 1) / piece_bytes);
}

uint64_t sw_sample_offset(uint64_t raw_bytes, unsigned piece_bytes, unsigned piece) {
    if (raw_bytes <= SW_SAMPLE_MAX_BYTES)
        return (uint64_t)piece * piece_bytes;
    /* Take one piece from each of equal strata, at a pseudo-random place, so that no period in the column can hide from
     * the sample. A value of any type begins at a long piece, and one of up to 64 bits at a short one. */
    const uint64_t stratum = raw_bytes / (SW_SAMPLE_MAX_BYTES / piece_bytes);
    const uint64_t align = piece_bytes == SW_SAMPLE_LONG_PIECE_BYTES ? 16 : 8;
    return (stratum * piece + mix64(piece) % (stratum - piece_bytes + 1)) / align * align;
}

/* Of text, a dictionary of 256 KB of samples takes 25 KB more than one of 64 KB, and 2 to 10 % off what it codes
 * (onpair/TUNING.md). */
#define PART_BYTES ((uint64_t)16 << 20)

unsigned sw_sample_parts(uint64_t raw_bytes, unsigned most) {
    const uint64_t n = raw_bytes / PART_BYTES;
    return n < 1 ? 1 : n < most ? (unsigned)n : most;
}

struct sw_sample_part sw_sample_part(uint64_t raw_bytes, unsigned n_parts, unsigned part) {
    const uint64_t each = raw_bytes / n_parts / 16 * 16, offset = each * part;
    return (struct sw_sample_part){.offset = offset, .bytes = part + 1 < n_parts ? each : raw_bytes - offset};
}

size_t sw_sample_gather(void *ret, const void *region, uint64_t raw_bytes, unsigned piece_bytes) {
    const uint8_t *from = region;
    uint8_t *to = ret;
    if (raw_bytes <= SW_SAMPLE_MAX_BYTES) {
        if (raw_bytes) /* an empty region may be NULL */
            memcpy(to, from, raw_bytes);
        return raw_bytes;
    }
    const unsigned n = sw_sample_pieces(raw_bytes, piece_bytes);
    for (unsigned i = 0; i < n; i++)
        memcpy(to + (size_t)i * piece_bytes, from + sw_sample_offset(raw_bytes, piece_bytes, i), piece_bytes);
    return SW_SAMPLE_MAX_BYTES;
}

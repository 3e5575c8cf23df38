#include "codec/pfor/grid.h"

#include "codec/bitpack/bitpack_core.h"
#include "codec/sample.h"

#include <string.h>

#define MAX_PIECES (SW_SAMPLE_MAX_BYTES / SW_SAMPLE_LONG_PIECE_BYTES)
/* A grid that at least 7 of 8 pieces lie on is worth it. The other values become exceptions. */
#define MOST_OFF(n) ((n) / 8)

void sw_grid_init(struct sw_grid *ret, const uint32_t own[SW_PARAMS_OWN], unsigned bits) {
    memcpy(&ret->divisor, &own[0], sizeof ret->divisor);
    memcpy(&ret->residue, &own[2], sizeof ret->residue);
    if (!ret->divisor)
        ret->divisor = 1;
    ret->zeros = (unsigned)__builtin_ctzll(ret->divisor);
    ret->most = (UINT64_MAX >> (64 - bits)) / ret->divisor;
    const uint64_t odd = ret->divisor >> ret->zeros;
    ret->inverse = odd; /* right in the lowest three bits; each step doubles their number */
    for (int i = 0; i < 5; i++)
        ret->inverse *= 2 - odd * ret->inverse;
}

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b) {
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Reads value i as an unsigned one of the same order. */
static uint64_t value_at(const uint8_t *sample, size_t i, enum sw_value_type type) {
    const unsigned bits = sw_value_bits(type) < 64 ? sw_value_bits(type) : 64; /* longer ones have no grid */
    uint64_t v = 0;
    memcpy(&v, sample + i * (bits / 8), bits / 8);
    return v ^ (uint64_t)sw_value_is_signed(type) << (bits - 1);
}

/* A piece: its first value, and the greatest common divisor of its differences. */
struct piece {
    uint64_t first, divisor;
};

static struct piece piece_of(const uint8_t *from, size_t n, enum sw_value_type type) {
    struct piece p = {value_at(from, 0, type), 0};
    uint64_t before = p.first;
    for (size_t i = 1; i < n && p.divisor != 1; i++) {
        const uint64_t v = value_at(from, i, type);
        p.divisor = greatest_common_divisor(v > before ? v - before : before - v, p.divisor);
        before = v;
    }
    return p;
}

static bool is_on(const struct piece *p, uint64_t divisor, uint64_t residue) {
    return p->divisor % divisor == 0 && p->first % divisor == residue;
}

static bool are_most_on(const struct piece *pieces, size_t n, uint64_t divisor, uint64_t residue) {
    size_t off = 0;
    for (size_t i = 0; i < n && off <= MOST_OFF(n); i++)
        off += !is_on(&pieces[i], divisor, residue);
    return off <= MOST_OFF(n);
}

/* The greatest divisor that most pieces are on is one of the pieces' own. */
void sw_grid_learn(struct sw_params *ret, const void *sample, size_t sample_bytes, enum sw_value_type type) {
    const size_t value_bytes = sw_value_bits(type) / 8, whole = sample_bytes / value_bytes * value_bytes;
    struct piece pieces[MAX_PIECES];
    uint64_t best = 1, residue = 0;
    size_t n = 0;
    for (size_t at = 0; at < whole && n < MAX_PIECES; at += SW_SAMPLE_LONG_PIECE_BYTES) {
        const size_t left = whole - at, bytes = left < SW_SAMPLE_LONG_PIECE_BYTES ? left : SW_SAMPLE_LONG_PIECE_BYTES;
        pieces[n++] = piece_of((const uint8_t *)sample + at, bytes / value_bytes, type);
    }
    for (size_t i = 0; i < n; i++) {
        const uint64_t divisor = pieces[i].divisor;
        if (divisor <= best || !are_most_on(pieces, n, divisor, pieces[i].first % divisor))
            continue;
        best = divisor;
        residue = pieces[i].first % divisor;
    }
    memcpy(&ret->own[0], &best, sizeof best);
    memcpy(&ret->own[2], &residue, sizeof residue);
}

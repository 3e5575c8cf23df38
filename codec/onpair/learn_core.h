/* learn_core.h - what learning does alike on host and device, so that both learn the same symbols from a sample.
 *
 * Symbols are kept by rank, which no two texts share but by chance: so the order in which they were found does not
 * matter. */
#ifndef SW_ONPAIR_LEARN_CORE_H
#define SW_ONPAIR_LEARN_CORE_H

#include "codec/onpair/onpair_core.h"

/* Measured on the nine columns of TUNING.md: eight rounds reach all but 0.5 % of twelve. */
#define SW_ONPAIR_MOST_SAMPLE (1u << 20)
#define SW_ONPAIR_ROUNDS 10
#define SW_ONPAIR_LEAST_COUNT 2
#define SW_ONPAIR_LAST_PASSES 2
/* While it learns, bytes that are no symbols have a number, too. */
#define SW_ONPAIR_MOST_NUMBERS (SW_ONPAIR_MAX_SYMBOLS + 256)
#define SW_ONPAIR_MOST_GAIN 0xFFFFu /* greater gains count as this one */

struct sw_onpair_symbol {
    uint64_t text[2]; /* padded with zero bytes */
    uint32_t bytes, count;
};

/* What was learned: symbols in any order, with their counts in the sample. */
struct sw_onpair_learned {
    uint32_t n, reserved;
    struct sw_onpair_symbol symbol[SW_ONPAIR_MOST_NUMBERS];
};

/* Returns a text's first `bytes` bytes. */
SW_HOST_DEVICE static inline struct sw_onpair_symbol sw_onpair_cut(uint64_t low, uint64_t high, uint32_t bytes) {
    struct sw_onpair_symbol s;
    s.text[0] = low & (bytes >= 8 ? ~(uint64_t)0 : ~(~(uint64_t)0 << 8 * bytes));
    s.text[1] = high & (bytes >= 16 ? ~(uint64_t)0 : bytes <= 8 ? 0 : ~(~(uint64_t)0 << (8 * bytes - 64)));
    s.bytes = bytes;
    s.count = 0;
    return s;
}

SW_HOST_DEVICE static inline bool sw_onpair_is_same(const struct sw_onpair_symbol *a,
                                                    const struct sw_onpair_symbol *b) {
    return a->bytes == b->bytes && a->text[0] == b->text[0] && a->text[1] == b->text[1];
}

/* Returns a hash of a text. */
SW_HOST_DEVICE static inline uint64_t sw_onpair_print(const struct sw_onpair_symbol *s) {
    uint64_t h = (s->text[0] ^ s->text[1] * 0x9E3779B97F4A7C15u) + s->bytes * 0xD6E8FEB86659FD93u;
    h = (h ^ h >> 32) * 0xBF58476D1CE4E5B9u;
    h = (h ^ h >> 29) * 0x94D049BB133111EBu;
    return h ^ h >> 32;
}

/* Joins two symbols, of which the first has fewer than SW_ONPAIR_MAX_BYTES bytes, and cuts what is too long. */
SW_HOST_DEVICE static inline struct sw_onpair_symbol sw_onpair_join(const struct sw_onpair_symbol *first,
                                                                    const struct sw_onpair_symbol *second) {
    const uint32_t bits = 8 * first->bytes, bytes = first->bytes + second->bytes;
    uint64_t low = first->text[0], high = first->text[1];
    if (bits < 64) {
        low |= second->text[0] << bits;
        high |= second->text[1] << bits | second->text[0] >> (64 - bits);
    } else {
        high |= second->text[0] << (bits - 64);
    }
    return sw_onpair_cut(low, high, bytes < SW_ONPAIR_MAX_BYTES ? bytes : SW_ONPAIR_MAX_BYTES);
}

/* Returns a symbol's rank: how many bytes of the sample it covers, and its text's hash. 0: it covers none. keeps_bytes:
 * symbols of one byte rank above all others, by their counts. */
SW_HOST_DEVICE static inline uint64_t sw_onpair_rank(const struct sw_onpair_symbol *s, bool keeps_bytes) {
    const uint64_t covered = (uint64_t)s->count * s->bytes, count = s->count < 1u << 24 ? s->count : (1u << 24) - 1,
                   gain = covered < SW_ONPAIR_MOST_GAIN - 1 ? covered : SW_ONPAIR_MOST_GAIN - 1;
    if (keeps_bytes && s->bytes == 1)
        return (uint64_t)SW_ONPAIR_MOST_GAIN << 48 | count << 24 | sw_onpair_print(s) >> 40;
    return gain ? gain << 48 | sw_onpair_print(s) >> 16 : 0;
}

#endif

/* runs.h - the beginnings of a vector's runs, as words (rfor/FORMAT.md), and sequences of numbers of any width, on the
 * host. thread: any. */
#ifndef SW_RUNS_H
#define SW_RUNS_H

#include "base/assert.h"
#include "codec/bitpack/numbers.h"

#define SW_START_WORDS (SW_VECTOR_VALUES / 32)

/* A bit for each value that begins a run. */
struct sw_starts {
    uint32_t word[SW_START_WORDS], mask; /* mask: a bit for each word that is not zero */
    unsigned n_words, n_runs;
};

static inline void sw_starts_count(struct sw_starts *s) {
    for (unsigned i = 0; i < SW_START_WORDS; i++) {
        s->mask |= (uint32_t)(s->word[i] != 0) << i;
        s->n_words += s->word[i] != 0;
        s->n_runs += (unsigned)__builtin_popcount(s->word[i]);
    }
}

static inline uint64_t sw_value_mask(unsigned bits) {
    return bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1;
}

/* Finds the runs in which each value is the value before it plus `step`. */
static inline struct sw_starts sw_starts_find(const struct sw_vector *v, const uint64_t value[SW_VECTOR_VALUES],
                                              unsigned step) {
    const uint64_t mask = sw_value_mask(v->bits);
    struct sw_starts s = {{1}, 0, 0, 0};
    for (unsigned i = 1; i < v->n_values; i++)
        s.word[i / 32] |= (uint32_t)(value[i] != ((value[i - 1] + step) & mask)) << i % 32;
    sw_starts_count(&s);
    return s;
}

static inline unsigned sw_starts_has(const struct sw_starts *s, unsigned i) {
    return s->word[i / 32] >> i % 32 & 1;
}

/* Returns the number of words that sw_starts_write() writes. */
static inline unsigned sw_starts_words(const struct sw_starts *s) {
    return 1 + s->n_words;
}

static inline void sw_starts_write(const struct sw_starts *s, uint32_t *words) {
    *words++ = s->mask;
    for (unsigned i = 0; i < SW_START_WORDS; i++)
        if (s->word[i])
            *words++ = s->word[i];
}

/* Reads the beginnings of runs. n_words: at least 1. errors: -SW_EFRAME: words are missing, or the first value begins
 * no run. */
static inline int sw_starts_read(struct sw_starts *ret, const uint32_t *words, unsigned n_words) {
    struct sw_starts s = {{0}, 0, 0, 0};
    unsigned next = 1;
    if (1 + (unsigned)__builtin_popcount(words[0]) > n_words || !(words[0] & words[1] & 1))
        return -SW_EFRAME;
    for (unsigned i = 0; i < SW_START_WORDS; i++)
        s.word[i] = words[0] >> i & 1 ? words[next++] : 0;
    s.mask = words[0];
    for (unsigned i = 0; i < SW_START_WORDS; i++)
        s.n_runs += (unsigned)__builtin_popcount(s.word[i]);
    s.n_words = next - 1; /* a damaged frame may have words that are zero */
    *ret = s;
    return 0;
}

/* Returns the number of words that n numbers of `width` bits take. */
static inline unsigned sw_bits_words(unsigned n, unsigned width) {
    return (n * width + 31) / 32;
}

/* Writes a number of `width` bits, at most 64, at bit `at`. */
static inline void sw_bits_put(uint32_t *words, unsigned at, unsigned width, uint64_t v) {
    SW_ASSERT(width <= 64);
    for (unsigned done = 0; done < width;) {
        const unsigned shift = (at + done) % 32;
        words[(at + done) / 32] |= (uint32_t)(v >> done) << shift;
        done += 32 - shift;
    }
}

static inline uint64_t sw_bits_get(const uint32_t *words, unsigned at, unsigned width) {
    uint64_t v = 0;
    for (unsigned done = 0; done < width;) {
        const unsigned shift = (at + done) % 32;
        v |= (uint64_t)(words[(at + done) / 32] >> shift) << done;
        done += 32 - shift;
    }
    return v & (width ? sw_value_mask(width) : 0);
}

#endif

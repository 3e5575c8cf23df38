/* learn.c - learns a dictionary from a sample.
 *
 * As FSST and OnPair do, it starts with single bytes. In each round it codes the sample, counts symbols and pairs of
 * neighbors, and keeps those that cover most bytes as the next round's symbols. Then symbols are sorted by count, and
 * cut into 16 classes of 2^k codes so that the sample's codes are as short as possible. */
#include "base/alloc.h"
#include "codec/onpair/onpair.h"
#include "codec/sample.h"

#include <stdlib.h>
#include <string.h>

/* Measured on the nine columns of TUNING.md: eight rounds reach all but 0.5 % of twelve. */
enum { ROUNDS = 10, LEAST_COUNT = 2 };
/* While it learns, bytes that are no symbols have a number, too. */
enum { MOST_NUMBERS = SW_ONPAIR_MAX_SYMBOLS + 256, NUMBER_SLOTS_LOG2 = 14 };
enum { GAINS = 1 << 16 }; /* greater gains count as the greatest */

struct symbol {
    uint64_t text[2]; /* padded with zero bytes */
    uint32_t bytes, count;
};

struct pair {
    uint32_t numbers, count; /* count 0: the place is free */
};

struct learner {
    const uint8_t *sample; /* SW_ONPAIR_MAX_BYTES more can be read */
    size_t sample_bytes, piece_bytes;
    uint32_t n, most_symbols;
    struct symbol symbol[MOST_NUMBERS];
    uint16_t slot[1 << NUMBER_SLOTS_LOG2]; /* 1 more than a symbol's number; 0: free */
    uint16_t lengths[1 << 16];             /* of the symbols that begin with two bytes: bit `bytes` - 1 */
    uint16_t one[256];                     /* 1 more than the number of a byte; 0: the sample has no such byte */
    bool is_there[256];                    /* the sample has the byte */

    struct pair *pair;
    uint32_t *candidate_slot; /* 1 more than a candidate's number; 0: free */
    struct symbol *candidate;
    uint32_t pairs_log2, n_pairs, n_candidates;
    uint32_t gains[GAINS];
    /* The classes: the least bits for the first symbols, by some classes; how the last class was chosen. */
    double least[SW_ONPAIR_CLASSES + 1][SW_ONPAIR_MAX_SYMBOLS + 2];
    uint16_t before[SW_ONPAIR_CLASSES + 1][SW_ONPAIR_MAX_SYMBOLS + 2];
    uint8_t raw_bits[SW_ONPAIR_CLASSES + 1][SW_ONPAIR_MAX_SYMBOLS + 2];
};

static uint32_t hash_of(const uint64_t text[2], uint32_t bytes, unsigned log2) {
    const uint64_t h = (text[0] ^ text[1] * 0x9E3779B97F4A7C15u ^ bytes) * 0xBF58476D1CE4E5B9u;
    return (uint32_t)((h ^ h >> 29) * 0x94D049BB133111EBu >> (64 - log2));
}

/* Returns a text's first `bytes` bytes. */
static struct symbol text_of(const uint8_t *from, uint32_t bytes) {
    struct symbol s = {.bytes = bytes};
    memcpy(s.text, from, sizeof s.text);
    s.text[0] &= bytes >= 8 ? UINT64_MAX : ~(UINT64_MAX << 8 * bytes);
    s.text[1] &= bytes >= 16 ? UINT64_MAX : bytes <= 8 ? 0 : ~(UINT64_MAX << (8 * bytes - 64));
    return s;
}

static bool is_same(const struct symbol *a, const struct symbol *b) {
    return a->bytes == b->bytes && a->text[0] == b->text[0] && a->text[1] == b->text[1];
}

static uint16_t *find_symbol(struct learner *l, const struct symbol *s) {
    uint32_t i = hash_of(s->text, s->bytes, NUMBER_SLOTS_LOG2);
    while (l->slot[i] && !is_same(&l->symbol[l->slot[i] - 1], s))
        i = (i + 1) % (1 << NUMBER_SLOTS_LOG2);
    return &l->slot[i];
}

/* Makes the first `n` symbols findable, and adds the bytes that are no symbols. */
static void index_symbols(struct learner *l, uint32_t n) {
    memset(l->slot, 0, sizeof l->slot);
    memset(l->lengths, 0, sizeof l->lengths);
    memset(l->one, 0, sizeof l->one);
    l->n = n;
    for (uint32_t i = 0; i < n; i++) {
        struct symbol *s = &l->symbol[i];
        s->count = 0;
        if (s->bytes == 1) {
            l->one[s->text[0]] = (uint16_t)(i + 1);
        } else {
            *find_symbol(l, s) = (uint16_t)(i + 1);
            l->lengths[s->text[0] & 0xFFFF] |= (uint16_t)(1u << (s->bytes - 1));
        }
    }
    for (uint32_t c = 0; c < 256; c++)
        if (l->is_there[c] && !l->one[c]) {
            l->symbol[l->n] = (struct symbol){.text = {c}, .bytes = 1};
            l->one[c] = (uint16_t)++l->n;
        }
}

/* Returns the number of the longest symbol at a place in the sample. */
static uint32_t find_longest(struct learner *l, const uint8_t *at, size_t left) {
    uint32_t lengths = left < 2 ? 0 : l->lengths[at[0] | at[1] << 8];
    if (left < SW_ONPAIR_MAX_BYTES)
        lengths &= (1u << left) - 1;
    while (lengths) {
        const uint32_t bytes = 32 - (uint32_t)__builtin_clz(lengths);
        const struct symbol text = text_of(at, bytes);
        const uint16_t *slot = find_symbol(l, &text);
        if (*slot)
            return *slot - 1u;
        lengths &= ~(1u << (bytes - 1));
    }
    return l->one[at[0]] - 1u;
}

/* Counts a pair. When the table is nearly full, new pairs are no longer counted. */
static void count_pair(struct learner *l, uint32_t numbers) {
    const uint32_t mask = (1u << l->pairs_log2) - 1;
    uint32_t i = numbers * 0x9E3779B1u >> (32 - l->pairs_log2);
    while (l->pair[i].count && l->pair[i].numbers != numbers)
        i = (i + 1) & mask;
    if (!l->pair[i].count && l->n_pairs > mask - mask / 8)
        return;
    l->n_pairs += !l->pair[i].count;
    l->pair[i].numbers = numbers;
    l->pair[i].count++;
}

/* Codes the sample, and counts its symbols, and pairs if asked. */
static void count_sample(struct learner *l, bool with_pairs) {
    if (with_pairs)
        memset(l->pair, 0, sizeof *l->pair << l->pairs_log2);
    l->n_pairs = 0;
    for (size_t at = 0; at < l->sample_bytes; at += l->piece_bytes) {
        const size_t end = l->sample_bytes - at < l->piece_bytes ? l->sample_bytes : at + l->piece_bytes;
        uint32_t before = MOST_NUMBERS;
        for (size_t i = at; i < end;) {
            const uint32_t number = find_longest(l, l->sample + i, end - i);
            l->symbol[number].count++;
            if (with_pairs && before < MOST_NUMBERS)
                count_pair(l, before << 13 | number);
            before = number;
            i += l->symbol[number].bytes;
        }
    }
}

/* Adds a candidate, or its count to the same candidate's. */
static void add_candidate(struct learner *l, const struct symbol *s) {
    const uint32_t mask = (1u << l->pairs_log2) - 1;
    uint32_t i = hash_of(s->text, s->bytes, l->pairs_log2);
    for (; l->candidate_slot[i]; i = (i + 1) & mask) {
        struct symbol *same = &l->candidate[l->candidate_slot[i] - 1];
        if (is_same(same, s)) {
            same->count += s->count;
            return;
        }
    }
    if (l->n_candidates > mask / 2)
        return;
    l->candidate[l->n_candidates] = *s;
    l->candidate_slot[i] = ++l->n_candidates;
}

static void gather_candidates(struct learner *l) {
    memset(l->candidate_slot, 0, sizeof *l->candidate_slot << l->pairs_log2);
    l->n_candidates = 0;
    for (uint32_t i = 0; i < l->n; i++)
        if (l->symbol[i].count >= LEAST_COUNT)
            add_candidate(l, &l->symbol[i]);
    for (uint32_t i = 0; i < 1u << l->pairs_log2; i++) {
        const struct pair *pair = &l->pair[i];
        if (pair->count < LEAST_COUNT)
            continue;
        const struct symbol *first = &l->symbol[pair->numbers >> 13], *second = &l->symbol[pair->numbers & 0x1FFF];
        uint8_t text[2 * SW_ONPAIR_MAX_BYTES];
        if (first->bytes == SW_ONPAIR_MAX_BYTES)
            continue;
        memcpy(text, first->text, sizeof first->text);
        memcpy(text + first->bytes, second->text, sizeof second->text);
        const uint32_t bytes = first->bytes + second->bytes;
        struct symbol both = text_of(text, bytes < SW_ONPAIR_MAX_BYTES ? bytes : SW_ONPAIR_MAX_BYTES);
        both.count = pair->count;
        add_candidate(l, &both);
    }
}

/* How many bytes of the sample a symbol covers. */
static uint32_t gain_of(const struct symbol *s) {
    const uint64_t gain = (uint64_t)s->count * s->bytes;
    return gain < GAINS ? (uint32_t)gain : GAINS - 1;
}

/* Moves the `most` of n symbols that gain most to `to`, which may be `from`; returns their number. If `keeps_bytes`,
 * symbols of one byte come first. Symbols without gain are never kept. */
static uint32_t keep_best(struct learner *l, struct symbol *to, const struct symbol *from, uint32_t n, uint32_t most,
                          bool keeps_bytes) {
    uint32_t kept = 0, left = most, gain = GAINS;
    memset(l->gains, 0, sizeof l->gains);
    for (uint32_t i = 0; i < n; i++) {
        if (keeps_bytes && from[i].bytes == 1)
            left -= left > 0;
        else
            l->gains[gain_of(&from[i])]++;
    }
    while (gain > 1 && l->gains[gain - 1] <= left)
        left -= l->gains[--gain]; /* all symbols of at least this gain, and `left` of the next smaller one */
    for (uint32_t i = 0; i < n && kept < most; i++) {
        const uint32_t own = gain_of(&from[i]);
        const bool is_last = own + 1 == gain && own > 0 && left > 0;
        if (!(keeps_bytes && from[i].bytes == 1) && own < gain && !is_last)
            continue;
        if (!(keeps_bytes && from[i].bytes == 1) && own < gain)
            left--;
        to[kept++] = from[i];
    }
    return kept;
}

static int by_count(const void *a, const void *b) {
    const struct symbol *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return x->text[0] != y->text[0] ? (x->text[0] < y->text[0] ? -1 : 1) : (int)x->bytes - (int)y->bytes;
}

/* Cuts the sorted symbols, and the escape behind them, into classes. ret: raw bits of each class. */
static void choose_classes(struct learner *l, uint8_t ret[SW_ONPAIR_CLASSES]) {
    const uint32_t n = l->n + 1;
    double sum[SW_ONPAIR_MAX_SYMBOLS + 2] = {0};
    for (uint32_t i = 0; i < n; i++) /* a symbol that the sample lacks may still come */
        sum[i + 1] = sum[i] + 0.25 + (i < l->n ? l->symbol[i].count : 0);
    for (unsigned c = 0; c <= SW_ONPAIR_CLASSES; c++)
        for (uint32_t i = 0; i <= n; i++)
            l->least[c][i] = c || i ? -1 : 0; /* less than 0: not possible */
    for (unsigned c = 0; c < SW_ONPAIR_CLASSES; c++)
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t bits = 0; l->least[c][i] >= 0 && bits <= SW_ONPAIR_MAX_RAW_BITS; bits++) {
                const uint32_t end = n - i < 1u << bits ? n : i + (1u << bits);
                const double cost = l->least[c][i] + (sum[end] - sum[i]) * bits;
                if (l->least[c + 1][end] >= 0 && l->least[c + 1][end] <= cost)
                    continue;
                l->least[c + 1][end] = cost;
                l->before[c + 1][end] = (uint16_t)i;
                l->raw_bits[c + 1][end] = (uint8_t)bits;
            }
    unsigned best = 1;
    for (unsigned c = 2; c <= SW_ONPAIR_CLASSES; c++)
        if (l->least[c][n] >= 0 && (l->least[best][n] < 0 || l->least[c][n] < l->least[best][n]))
            best = c;
    memset(ret, 0, SW_ONPAIR_CLASSES);
    for (uint32_t end = n; best > 0; best--) {
        ret[best - 1] = l->raw_bits[best][end];
        end = l->before[best][end];
    }
}

static void write_section(struct learner *l, struct sw_frame_dictionary *ret) {
    uint8_t raw_bits[SW_ONPAIR_CLASSES];
    const uint16_t n = (uint16_t)l->n;
    choose_classes(l, raw_bits);
    memset(ret, 0, sizeof *ret);
    memcpy(ret->data, &n, sizeof n);
    ret->data[2] = SW_ONPAIR_MAX_BYTES;
    for (unsigned c = 0; c < SW_ONPAIR_CLASSES; c++)
        ret->data[8 + c / 2] |= (uint8_t)(raw_bits[c] << 4 * (c % 2));
    uint32_t at = SW_ONPAIR_HEAD_BYTES + (n + 15u) / 16 * 16;
    for (uint32_t i = 0; i < n; i++) {
        ret->data[SW_ONPAIR_HEAD_BYTES + i] = (uint8_t)l->symbol[i].bytes;
        memcpy(ret->data + at, l->symbol[i].text, l->symbol[i].bytes);
        at += l->symbol[i].bytes;
    }
    ret->bytes = (at + SW_ONPAIR_MAX_BYTES + SW_FRAME_ALIGN - 1) / SW_FRAME_ALIGN * SW_FRAME_ALIGN;
}

static void learn(struct learner *l, struct sw_frame_dictionary *ret) {
    for (size_t i = 0; i < l->sample_bytes; i++)
        l->is_there[l->sample[i]] = true;
    index_symbols(l, 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        count_sample(l, true);
        gather_candidates(l);
        index_symbols(l, keep_best(l, l->symbol, l->candidate, l->n_candidates, l->most_symbols, false));
    }
    /* Then all bytes of the sample have a symbol, and symbols that are not used make room. */
    for (unsigned pass = 0; pass < 2; pass++) {
        count_sample(l, false);
        index_symbols(l, keep_best(l, l->symbol, l->symbol, l->n, l->most_symbols, true));
    }
    count_sample(l, false);
    l->n = l->n < l->most_symbols ? l->n : l->most_symbols; /* the rest are bytes for which there was no room */
    qsort(l->symbol, l->n, sizeof l->symbol[0], by_count);
    write_section(l, ret);
}

int sw_onpair_learn(struct sw_frame_dictionary *ret, const void *sample, size_t sample_bytes, size_t piece_bytes,
                    uint32_t most_symbols) {
    struct learner *l = sw_alloc_array(1, sizeof *l);
    uint8_t *padded = sw_alloc(sample_bytes + SW_ONPAIR_MAX_BYTES);
    int r = -SW_ENOMEM;
    if (l) {
        l->pairs_log2 = 14;
        while (l->pairs_log2 < 20 && (size_t)1 << l->pairs_log2 < sample_bytes)
            l->pairs_log2++;
        l->pair = sw_alloc(sizeof *l->pair << l->pairs_log2);
        l->candidate_slot = sw_alloc(sizeof *l->candidate_slot << l->pairs_log2);
        l->candidate = sw_alloc(sizeof *l->candidate << l->pairs_log2);
    }
    if (padded && l && l->pair && l->candidate_slot && l->candidate) {
        memcpy(padded, sample, sample_bytes);
        memset(padded + sample_bytes, 0, SW_ONPAIR_MAX_BYTES);
        l->sample = padded;
        l->sample_bytes = sample_bytes;
        l->piece_bytes = piece_bytes;
        l->most_symbols = most_symbols;
        learn(l, ret);
        r = 0;
    }
    if (l) {
        sw_free(l->candidate);
        sw_free(l->candidate_slot);
        sw_free(l->pair);
    }
    sw_free(padded);
    sw_free(l);
    return r;
}

int sw_onpair_plan(struct sw_plan *ret, struct sw_frame_dictionary *dictionary, const void *region,
                   uint64_t raw_bytes) {
    const size_t pieces = SW_ONPAIR_SAMPLE_BYTES / SW_ONPAIR_PIECE_BYTES;
    const size_t bytes = raw_bytes < SW_ONPAIR_SAMPLE_BYTES ? (size_t)raw_bytes : SW_ONPAIR_SAMPLE_BYTES;
    uint8_t *sample = sw_alloc(bytes);
    if (!sample)
        return -SW_ENOMEM;
    for (size_t i = 0; i * SW_ONPAIR_PIECE_BYTES < bytes; i++) {
        const size_t at = i * SW_ONPAIR_PIECE_BYTES, left = bytes - at;
        const uint64_t from = bytes == raw_bytes ? at : (raw_bytes - SW_ONPAIR_PIECE_BYTES) / (pieces - 1) * i;
        memcpy(sample + at, (const uint8_t *)region + from,
               left < SW_ONPAIR_PIECE_BYTES ? left : SW_ONPAIR_PIECE_BYTES);
    }
    sw_plan_init_raw(ret);
    ret->codec = SW_CODEC_ONPAIR;
    ret->raw_bytes = raw_bytes;
    ret->dictionary = dictionary;
    const int r = sw_onpair_learn(dictionary, sample, bytes, SW_ONPAIR_PIECE_BYTES, SW_ONPAIR_MAX_SYMBOLS);
    sw_free(sample);
    return r;
}

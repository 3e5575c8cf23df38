/* learn.c - learns a dictionary from a sample.
 *
 * As FSST and OnPair do, it starts with single bytes. In each round it codes the sample, counts symbols and pairs of
 * neighbors, and keeps those that cover most bytes as the next round's symbols. Then symbols are sorted by count, and
 * cut into 16 classes of 2^k codes so that the sample's codes are as short as possible. */
#include "base/alloc.h"
#include "codec/onpair/learn_core.h"
#include "codec/onpair/onpair.h"
#include "codec/sample.h"

#include <stdlib.h>
#include <string.h>

enum { NUMBER_SLOTS_LOG2 = 14 };

struct pair {
    uint32_t numbers, count; /* count 0: the place is free */
};

/* How symbols are cut into classes: the least bits for the first symbols, by some classes; how the last was chosen. */
struct classes {
    double least[SW_ONPAIR_CLASSES + 1][SW_ONPAIR_MAX_SYMBOLS + 2];
    uint16_t before[SW_ONPAIR_CLASSES + 1][SW_ONPAIR_MAX_SYMBOLS + 2];
    uint8_t raw_bits[SW_ONPAIR_CLASSES + 1][SW_ONPAIR_MAX_SYMBOLS + 2];
};

struct learner {
    const uint8_t *sample; /* SW_ONPAIR_MAX_BYTES more can be read */
    size_t sample_bytes, piece_bytes;
    uint32_t n, most_symbols;
    struct sw_onpair_symbol *symbol;       /* the caller's, of SW_ONPAIR_MOST_NUMBERS */
    uint16_t slot[1 << NUMBER_SLOTS_LOG2]; /* 1 more than a symbol's number; 0: free */
    uint16_t lengths[1 << 16];             /* of the symbols that begin with two bytes: bit `bytes` - 1 */
    uint16_t one[256];                     /* 1 more than the number of a byte; 0: the sample has no such byte */
    bool is_there[256];                    /* the sample has the byte */

    struct pair *pair;
    uint32_t *candidate_slot; /* 1 more than a candidate's number; 0: free */
    struct sw_onpair_symbol *candidate;
    uint64_t *ranks;
    uint32_t pairs_log2, n_pairs, n_candidates;
};

static uint16_t *find_symbol(struct learner *l, const struct sw_onpair_symbol *s) {
    uint32_t i = (uint32_t)(sw_onpair_print(s) >> (64 - NUMBER_SLOTS_LOG2));
    while (l->slot[i] && !sw_onpair_is_same(&l->symbol[l->slot[i] - 1], s))
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
        struct sw_onpair_symbol *s = &l->symbol[i];
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
            l->symbol[l->n] = (struct sw_onpair_symbol){.text = {c}, .bytes = 1};
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
        uint64_t text_words[2];
        memcpy(text_words, at, sizeof text_words);
        const struct sw_onpair_symbol text = sw_onpair_cut(text_words[0], text_words[1], bytes);
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
        uint32_t before = SW_ONPAIR_MOST_NUMBERS;
        for (size_t i = at; i < end;) {
            const uint32_t number = find_longest(l, l->sample + i, end - i);
            l->symbol[number].count++;
            if (with_pairs && before < SW_ONPAIR_MOST_NUMBERS)
                count_pair(l, before << 13 | number);
            before = number;
            i += l->symbol[number].bytes;
        }
    }
}

/* Adds a candidate, or its count to the same candidate's. */
static void add_candidate(struct learner *l, const struct sw_onpair_symbol *s) {
    const uint32_t mask = (1u << l->pairs_log2) - 1;
    uint32_t i = (uint32_t)(sw_onpair_print(s) >> (64 - l->pairs_log2));
    for (; l->candidate_slot[i]; i = (i + 1) & mask) {
        struct sw_onpair_symbol *same = &l->candidate[l->candidate_slot[i] - 1];
        if (sw_onpair_is_same(same, s)) {
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
        if (l->symbol[i].count >= SW_ONPAIR_LEAST_COUNT)
            add_candidate(l, &l->symbol[i]);
    for (uint32_t i = 0; i < 1u << l->pairs_log2; i++) {
        const struct pair *pair = &l->pair[i];
        if (pair->count < SW_ONPAIR_LEAST_COUNT)
            continue;
        const struct sw_onpair_symbol *first = &l->symbol[pair->numbers >> 13],
                                      *second = &l->symbol[pair->numbers & 0x1FFF];
        if (first->bytes == SW_ONPAIR_MAX_BYTES)
            continue;
        struct sw_onpair_symbol both = sw_onpair_join(first, second);
        both.count = pair->count;
        add_candidate(l, &both);
    }
}

/* Returns the k-th greatest of n ranks, from 1; changes their order (C. A. R. Hoare, "Find", 1961). */
static uint64_t kth_rank(uint64_t *rank, uint32_t n, uint32_t k) {
    int64_t first = 0, last = (int64_t)n - 1;
    while (first < last) {
        const uint64_t pivot = rank[(first + last) / 2];
        int64_t i = first, j = last;
        while (i <= j) {
            while (rank[i] > pivot)
                i++;
            while (rank[j] < pivot)
                j--;
            if (i <= j) {
                const uint64_t t = rank[i];
                rank[i++] = rank[j];
                rank[j--] = t;
            }
        }
        if ((int64_t)k - 1 <= j)
            last = j;
        else if ((int64_t)k - 1 >= i)
            first = i;
        else
            break;
    }
    return rank[k - 1];
}

/* Moves the `most` of n symbols of the highest rank to `to`, which may be `from`; returns their number. */
static uint32_t keep_best(struct learner *l, struct sw_onpair_symbol *to, const struct sw_onpair_symbol *from,
                          uint32_t n, uint32_t most, bool keeps_bytes) {
    uint32_t kept = 0;
    uint64_t least = 1;
    for (uint32_t i = 0; i < n; i++)
        l->ranks[i] = sw_onpair_rank(&from[i], keeps_bytes);
    if (n > most) {
        const uint64_t rank = kth_rank(l->ranks, n, most);
        least = rank > least ? rank : least;
    }
    for (uint32_t i = 0; i < n && kept < most; i++)
        if (sw_onpair_rank(&from[i], keeps_bytes) >= least)
            to[kept++] = from[i];
    return kept;
}

static int by_count(const void *a, const void *b) {
    const struct sw_onpair_symbol *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    for (int i = 0; i < 2; i++)
        if (x->text[i] != y->text[i])
            return x->text[i] < y->text[i] ? -1 : 1;
    return (int)x->bytes - (int)y->bytes;
}

/* Cuts n sorted symbols, and the escape behind them, into classes. ret: raw bits of each class. */
static void choose_classes(struct classes *c, const struct sw_onpair_symbol *symbol, uint32_t n_symbols,
                           uint8_t ret[SW_ONPAIR_CLASSES]) {
    const uint32_t n = n_symbols + 1;
    double sum[SW_ONPAIR_MAX_SYMBOLS + 2] = {0};
    for (uint32_t i = 0; i < n; i++) /* a symbol that the sample lacks may still come */
        sum[i + 1] = sum[i] + 0.25 + (i < n_symbols ? symbol[i].count : 0);
    for (unsigned k = 0; k <= SW_ONPAIR_CLASSES; k++)
        for (uint32_t i = 0; i <= n; i++)
            c->least[k][i] = k || i ? -1 : 0; /* less than 0: not possible */
    for (unsigned k = 0; k < SW_ONPAIR_CLASSES; k++)
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t bits = 0; c->least[k][i] >= 0 && bits <= SW_ONPAIR_MAX_RAW_BITS; bits++) {
                const uint32_t end = n - i < 1u << bits ? n : i + (1u << bits);
                const double cost = c->least[k][i] + (sum[end] - sum[i]) * bits;
                if (c->least[k + 1][end] >= 0 && c->least[k + 1][end] <= cost)
                    continue;
                c->least[k + 1][end] = cost;
                c->before[k + 1][end] = (uint16_t)i;
                c->raw_bits[k + 1][end] = (uint8_t)bits;
            }
    unsigned best = 1;
    for (unsigned k = 2; k <= SW_ONPAIR_CLASSES; k++)
        if (c->least[k][n] >= 0 && (c->least[best][n] < 0 || c->least[k][n] < c->least[best][n]))
            best = k;
    memset(ret, 0, SW_ONPAIR_CLASSES);
    for (uint32_t end = n; best > 0; best--) {
        ret[best - 1] = c->raw_bits[best][end];
        end = c->before[best][end];
    }
}

static void write_section(const struct sw_onpair_symbol *symbol, uint32_t n_symbols,
                          const uint8_t raw_bits[SW_ONPAIR_CLASSES], struct sw_frame_dictionary *ret) {
    const uint16_t n = (uint16_t)n_symbols;
    memset(ret, 0, sizeof *ret);
    memcpy(ret->data, &n, sizeof n);
    ret->data[2] = SW_ONPAIR_MAX_BYTES;
    for (unsigned c = 0; c < SW_ONPAIR_CLASSES; c++)
        ret->data[8 + c / 2] |= (uint8_t)(raw_bits[c] << 4 * (c % 2));
    uint32_t at = SW_ONPAIR_HEAD_BYTES + (n + 15u) / 16 * 16;
    for (uint32_t i = 0; i < n; i++) {
        ret->data[SW_ONPAIR_HEAD_BYTES + i] = (uint8_t)symbol[i].bytes;
        memcpy(ret->data + at, symbol[i].text, symbol[i].bytes);
        at += symbol[i].bytes;
    }
    ret->bytes = (at + SW_ONPAIR_MAX_BYTES + SW_FRAME_ALIGN - 1) / SW_FRAME_ALIGN * SW_FRAME_ALIGN;
}

int sw_onpair_write(struct sw_frame_dictionary *ret, struct sw_onpair_learned *learned, uint32_t most_symbols) {
    /* The rest are bytes for which there was no room. */
    const uint32_t n = learned->n < most_symbols ? learned->n : most_symbols;
    uint8_t raw_bits[SW_ONPAIR_CLASSES];
    struct classes *classes = sw_alloc(sizeof *classes);
    if (!classes)
        return -SW_ENOMEM;
    qsort(learned->symbol, n, sizeof learned->symbol[0], by_count);
    choose_classes(classes, learned->symbol, n, raw_bits);
    write_section(learned->symbol, n, raw_bits, ret);
    sw_free(classes);
    return 0;
}

static void learn(struct learner *l) {
    for (size_t i = 0; i < l->sample_bytes; i++)
        l->is_there[l->sample[i]] = true;
    index_symbols(l, 0);
    for (unsigned round = 0; round < SW_ONPAIR_ROUNDS; round++) {
        count_sample(l, true);
        gather_candidates(l);
        index_symbols(l, keep_best(l, l->symbol, l->candidate, l->n_candidates, l->most_symbols, false));
    }
    /* Then all bytes of the sample have a symbol, and symbols that are not used make room. */
    for (unsigned pass = 0; pass < SW_ONPAIR_LAST_PASSES; pass++) {
        count_sample(l, false);
        index_symbols(l, keep_best(l, l->symbol, l->symbol, l->n, l->most_symbols, true));
    }
    count_sample(l, false);
}

int sw_onpair_learn_symbols(struct sw_onpair_learned *ret, const void *sample, size_t sample_bytes, size_t piece_bytes,
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
        l->ranks = sw_alloc(sizeof *l->ranks << l->pairs_log2);
    }
    if (padded && l && l->pair && l->candidate_slot && l->candidate && l->ranks) {
        memcpy(padded, sample, sample_bytes);
        memset(padded + sample_bytes, 0, SW_ONPAIR_MAX_BYTES);
        l->sample = padded;
        l->sample_bytes = sample_bytes;
        l->piece_bytes = piece_bytes;
        l->most_symbols = most_symbols;
        l->symbol = ret->symbol;
        learn(l);
        ret->n = l->n;
        r = 0;
    }
    if (l) {
        sw_free(l->ranks);
        sw_free(l->candidate);
        sw_free(l->candidate_slot);
        sw_free(l->pair);
    }
    sw_free(padded);
    sw_free(l);
    return r;
}

int sw_onpair_learn(struct sw_frame_dictionary *ret, const void *sample, size_t sample_bytes, size_t piece_bytes,
                    uint32_t most_symbols) {
    struct sw_onpair_learned *learned = sw_alloc(sizeof *learned);
    int r = learned ? sw_onpair_learn_symbols(learned, sample, sample_bytes, piece_bytes, most_symbols) : -SW_ENOMEM;
    if (r == 0)
        r = sw_onpair_write(ret, learned, most_symbols);
    sw_free(learned);
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

/* learn.c - learns phrases from a sample.
 *
 * Learning works in rounds, as in FSST (Boncz, Neumann, Leis, PVLDB 13(11), 2020, section 4.3). A round parses the
 * sample greedily with the phrases of the previous round, and counts phrases and pairs. The best ones become the next
 * phrases. There are two differences:
 *
 *   - The gain of a phrase is the number of codes that it saves. A pair saves a code whenever it occurs. An existing
 *     phrase saves the codes that its text would take with other phrases. So a pair replaces its parts once these have
 *     become rare. The phrases approach those of a variable-to-fixed code (B. P. Tunstall, Synthesis of noiseless
 *     compression codes, 1967) whose letters are the column's values; the values need not be known.
 *   - A pair may be cut: phrase A is extended by phrase B, and also by the phrases that B begins with. Without this,
 *     phrases of two values could only become phrases of four. */
#include "base/alloc.h"
#include "codec/phrase/phrase_core.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 8
/* The first rounds, which have many short codes, use only every fourth piece, then every second piece. */
#define ROUNDS_OF_FOURTH 4
#define ROUNDS_OF_HALF 6
#define LONG_SAMPLE_BYTES 32768
/* Learning ends after a later round that gains less than a 128th. */
#define LEAST_GAIN 0.992
/* Bytes of the table for each phrase. A phrase must gain them in the region. */
#define SYMBOL_BYTES 9
#define NONE SW_PHRASE_MAX
#define MAP_LOG2 14
#define MAP_SLOTS (1u << MAP_LOG2)
#define MAX_CANDIDATES (MAP_SLOTS / 2)
/* Gain of one saved code. A cut phrase counts with a part of it. */
#define CODE_GAIN 64u
#define GAIN_SLOTS 4096u

struct phrase {
    uint8_t text[SW_PHRASE_MAX_BYTES];
    uint32_t length, gain;
};

struct learner {
    struct sw_phrase_book book; /* the phrases that parse the sample; in the end, the table's */
    struct sw_phrase_index index;
    struct phrase best[SW_PHRASE_MAX]; /* the best round's phrases, by gain */
    uint32_t n_best;
    uint32_t count1[256], literals[256]; /* occurrences of phrases, and of bytes without a phrase */
    uint16_t count2[256][256]; /* occurrences of pairs; row NONE: first in a piece, or after a byte without a phrase */
    uint32_t n_candidates;
    struct phrase candidates[MAX_CANDIDATES];
    uint16_t map[MAP_SLOTS]; /* 1 + index into candidates, or 0 */
    uint32_t of_gain[GAIN_SLOTS];
};

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

static int by_text(const void *left, const void *right) {
    const struct phrase *a = left, *b = right;
    const int order = memcmp(a->text, b->text, sizeof a->text);
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

static void make_book(struct learner *l, struct phrase *phrases, uint32_t n) {
    struct sw_phrase_book *ret = &l->book;
    qsort(phrases, n, sizeof *phrases, by_text);
    memset(ret->length, 0, sizeof ret->length);
    ret->n = n;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(ret->text[i], phrases[i].text, sizeof ret->text[i]);
        ret->length[i] = (uint8_t)phrases[i].length;
    }
    sw_phrase_index_init(&l->index, ret);
}

/* ---- a round ---- */

/* A piece being parsed. SW_PHRASE_MAX_BYTES after its end can be read. */
struct lane {
    const uint8_t *in;
    size_t left;
    uint32_t previous;
};

/* Counts a phrase, or a byte without one, at a lane's place, and moves on; returns the length of its code. */
static inline size_t count_one(struct learner *l, struct lane *lane, uint32_t phrase) {
    const size_t length = phrase == NONE ? 1 : l->book.length[phrase];
    if (phrase == NONE) {
        l->literals[*lane->in]++;
    } else {
        l->count1[phrase]++;
        l->count2[lane->previous][phrase]++;
    }
    lane->in += length;
    lane->left -= length;
    lane->previous = phrase;
    return phrase == NONE ? 2 : 1;
}

/* Counts every one_in-th piece, four at a time; returns the length of their codes. */
static size_t count_sample(struct learner *l, const uint8_t *sample, size_t sample_bytes, size_t piece_bytes,
                           unsigned one_in) {
    struct lane lanes[4] = {{0}};
    size_t coded = 0, at = 0;
    memset(l->count1, 0, sizeof l->count1);
    memset(l->literals, 0, sizeof l->literals);
    memset(l->count2, 0, sizeof l->count2);
    for (;;) {
        unsigned busy = 0;
        for (unsigned i = 0; i < 4; i++) {
            if (!lanes[i].left && at < sample_bytes) {
                lanes[i] = (struct lane){sample + at, least(sample_bytes - at, piece_bytes), NONE};
                at += one_in * piece_bytes;
            }
            busy += lanes[i].left > 0;
        }
        if (busy < 4)
            break;
        while (lanes[0].left && lanes[1].left && lanes[2].left && lanes[3].left) {
            const uint8_t *const in[4] = {lanes[0].in, lanes[1].in, lanes[2].in, lanes[3].in};
            const size_t left[4] = {lanes[0].left, lanes[1].left, lanes[2].left, lanes[3].left};
            uint32_t phrase[4];
            sw_phrase_find_four(&l->index, in, left, phrase);
            for (unsigned i = 0; i < 4; i++)
                coded += count_one(l, &lanes[i], phrase[i]);
        }
    }
    for (unsigned i = 0; i < 4; i++)
        while (lanes[i].left)
            coded += count_one(l, &lanes[i], sw_phrase_find_at(&l->index, lanes[i].in, lanes[i].left));
    return coded;
}

/* Returns how much a phrase has saved, compared with coding its text by other phrases. */
static uint32_t own_gain(const struct learner *l, uint32_t phrase) {
    const struct sw_phrase_book *book = &l->book;
    const uint32_t length = book->length[phrase];
    uint8_t text[2 * SW_PHRASE_MAX_BYTES] = {0};
    uint32_t codes = 0, at = 0, c = l->index.parent[phrase];
    memcpy(text, book->text[phrase], SW_PHRASE_MAX_BYTES);
    for (;; c = sw_phrase_find_at(&l->index, text + at, length - at)) {
        codes += c == NONE ? 2 : 1;
        at += c == NONE ? 1 : book->length[c];
        if (at >= length)
            return l->count1[phrase] * (codes - 1) * CODE_GAIN;
    }
}

/* Adds gain to a candidate. A new candidate is dropped if there is no room. text: zero after its length. */
static void add_candidate(struct learner *l, const uint8_t text[SW_PHRASE_MAX_BYTES], uint32_t length, uint32_t gain) {
    uint64_t key = length;
    for (unsigned i = 0; i < SW_PHRASE_MAX_BYTES; i += 8) {
        uint64_t word;
        memcpy(&word, text + i, 8);
        key = (key ^ word) * 0x9E3779B97F4A7C15u;
        key ^= key >> 29;
    }
    for (uint32_t slot = (uint32_t)(key % MAP_SLOTS);; slot = (slot + 1) % MAP_SLOTS) {
        struct phrase *c = l->map[slot] ? &l->candidates[l->map[slot] - 1] : NULL;
        if (c && (c->length != length || memcmp(c->text, text, SW_PHRASE_MAX_BYTES) != 0))
            continue;
        if (c) {
            c->gain += gain;
        } else if (l->n_candidates < MAX_CANDIDATES) {
            c = &l->candidates[l->n_candidates++];
            memcpy(c->text, text, SW_PHRASE_MAX_BYTES);
            c->length = length;
            c->gain = gain;
            l->map[slot] = (uint16_t)l->n_candidates;
        }
        return;
    }
}

/* Adds candidates: phrase `a` followed by phrase `b`, and by each phrase that `b` begins with. */
static void add_pairs(struct learner *l, uint32_t a, uint32_t b) {
    const struct sw_phrase_book *book = &l->book;
    const uint32_t a_bytes = book->length[a], b_bytes = book->length[b];
    for (uint32_t end = b; end != NONE; end = l->index.parent[end]) {
        const uint32_t end_bytes = book->length[end];
        uint8_t text[2 * SW_PHRASE_MAX_BYTES] = {0};
        if (a_bytes + end_bytes > SW_PHRASE_MAX_BYTES)
            continue;
        memcpy(text, book->text[a], SW_PHRASE_MAX_BYTES);
        memcpy(text + a_bytes, book->text[end], SW_PHRASE_MAX_BYTES);
        add_candidate(l, text, a_bytes + end_bytes, l->count2[a][b] * (CODE_GAIN * end_bytes / b_bytes));
    }
}

/* Gathers the candidates of the next round. Pairs and bytes that were found only once may be chance, and are left out.
 */
static void gather_candidates(struct learner *l) {
    const uint32_t n = l->book.n;
    l->n_candidates = 0;
    memset(l->map, 0, sizeof l->map);
    for (uint32_t c = 0; c < n; c++)
        if (l->count1[c])
            add_candidate(l, l->book.text[c], l->book.length[c], own_gain(l, c));
    for (uint32_t byte = 0; byte < 256; byte++) {
        const uint8_t text[SW_PHRASE_MAX_BYTES] = {(uint8_t)byte};
        if (l->literals[byte] > 1)
            add_candidate(l, text, 1, l->literals[byte] * CODE_GAIN);
    }
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = 0; b < n && l->count1[a] > 1; b++)
            if (l->count2[a][b] > 1)
                add_pairs(l, a, b);
}

static uint32_t gain_slot(uint32_t gain) {
    return gain / (CODE_GAIN / 4) < GAIN_SLOTS ? gain / (CODE_GAIN / 4) : GAIN_SLOTS - 1;
}

/* Moves up to n of the best candidates that gain enough to the front, and returns their number. On a tie, earlier
 * candidates win. */
static uint32_t choose(struct learner *l, uint32_t n, uint32_t least_gain) {
    uint32_t chosen = 0, above = 0, slot = GAIN_SLOTS;
    memset(l->of_gain, 0, sizeof l->of_gain);
    for (uint32_t i = 0; i < l->n_candidates; i++)
        l->of_gain[gain_slot(l->candidates[i].gain)] += l->candidates[i].gain >= least_gain;
    while (slot > 0 && above + l->of_gain[slot - 1] <= n)
        above += l->of_gain[--slot];
    for (uint32_t i = 0, spare = n - above; i < l->n_candidates; i++) {
        const uint32_t s = gain_slot(l->candidates[i].gain);
        if (l->candidates[i].gain < least_gain || (s < slot && (s + 1 != slot || spare == 0)))
            continue;
        spare -= s < slot;
        l->candidates[chosen++] = l->candidates[i];
    }
    return chosen;
}

/* ---- the table ---- */

static void keep_best(struct learner *l) {
    l->n_best = l->book.n;
    for (uint32_t c = 0; c < l->book.n; c++) {
        struct phrase *p = &l->best[c];
        memcpy(p->text, l->book.text[c], sizeof p->text);
        p->length = l->book.length[c];
        p->gain = own_gain(l, c);
    }
}

/* Splits a phrase into the fewest other phrases, at least two, and returns their number. *ret: their codes, the first
 * one lowest. */
static uint32_t find_parts(const struct learner *l, uint32_t phrase, uint64_t *ret) {
    const struct sw_phrase_book *book = &l->book;
    const uint32_t length = book->length[phrase];
    uint32_t parts[SW_PHRASE_MAX_BYTES + 1] = {0}, last[SW_PHRASE_MAX_BYTES + 1] = {0};
    uint8_t text[2 * SW_PHRASE_MAX_BYTES] = {0};
    memcpy(text, book->text[phrase], SW_PHRASE_MAX_BYTES);
    for (uint32_t i = 1; i <= length; i++)
        parts[i] = UINT32_MAX;
    for (uint32_t at = 0; at < length; at++) {
        if (parts[at] == UINT32_MAX)
            continue;
        uint32_t c = at ? sw_phrase_find_at(&l->index, text + at, length - at) : l->index.parent[phrase];
        for (; c != NONE; c = l->index.parent[c])
            if (parts[at] + 1 < parts[at + book->length[c]]) {
                parts[at + book->length[c]] = parts[at] + 1;
                last[at + book->length[c]] = c;
            }
    }
    *ret = 0;
    for (uint32_t at = length; parts[length] <= SW_PHRASE_MAX_PARTS && at > 0; at -= book->length[last[at]])
        *ret = *ret << 8 | last[at];
    return parts[length];
}

/* Adds pieces of 8 bytes to the list, from which any phrase can be built. */
static uint32_t add_pieces(const struct sw_phrase_book *book, uint32_t phrase, struct phrase *pieces, uint32_t n) {
    for (uint32_t at = 0; at < book->length[phrase]; at += 8) {
        struct phrase piece = {.length = book->length[phrase] - at < 8 ? book->length[phrase] - at : 8u};
        bool is_there = false;
        memcpy(piece.text, book->text[phrase] + at, piece.length);
        for (uint32_t i = 0; i < book->n && !is_there; i++)
            is_there = book->length[i] == piece.length && memcmp(book->text[i], piece.text, piece.length) == 0;
        for (uint32_t i = 0; i < n && !is_there; i++)
            is_there = by_text(&pieces[i], &piece) == 0;
        if (!is_there && n < SW_PHRASE_MAX)
            pieces[n++] = piece;
    }
    return n;
}

static void drop_worst(struct learner *l) {
    uint32_t worst = 0;
    for (uint32_t i = 1; i < l->n_best; i++)
        if (l->best[i].gain < l->best[worst].gain)
            worst = i;
    l->best[worst] = l->best[--l->n_best];
}

/* Makes every phrase storable. A phrase that cannot be split into few enough other phrases gets its pieces, and the
 * worst phrases are dropped for them. The result is in the book. */
static void make_storable(struct learner *l) {
    struct phrase pieces[SW_PHRASE_MAX], all[SW_PHRASE_MAX];
    uint32_t n_pieces = 0, n_before;
    uint64_t parts;
    do {
        while (l->n_best + n_pieces > SW_PHRASE_MAX)
            drop_worst(l);
        memcpy(all, l->best, l->n_best * sizeof *all);
        memcpy(all + l->n_best, pieces, n_pieces * sizeof *all);
        make_book(l, all, l->n_best + n_pieces);
        n_before = n_pieces;
        for (uint32_t c = 0; c < l->book.n; c++)
            if (l->book.length[c] > 8 && find_parts(l, c, &parts) > SW_PHRASE_MAX_PARTS)
                n_pieces = add_pieces(&l->book, c, pieces, n_pieces);
    } while (n_pieces > n_before);
}

static void write_table(const struct learner *l, struct sw_params *ret) {
    const struct sw_phrase_book *book = &l->book;
    ret->n_symbols = book->n;
    for (uint32_t c = 0; c < book->n; c++) {
        ret->length[c] = book->length[c];
        if (book->length[c] <= 8)
            memcpy(&ret->value[c], book->text[c], 8);
        else
            (void)find_parts(l, c, &ret->value[c]);
    }
}

static void learn(struct learner *l, const struct sw_params *symbols, const uint8_t *sample, size_t sample_bytes,
                  size_t piece_bytes, uint64_t raw_bytes) {
    const double samples = raw_bytes > sample_bytes ? (double)raw_bytes / (double)sample_bytes : 1;
    double best_bytes = 0;
    for (uint32_t c = 0; c < symbols->n_symbols; c++) {
        l->candidates[c] = (struct phrase){.length = symbols->length[c]};
        memcpy(l->candidates[c].text, &symbols->value[c], 8);
    }
    make_book(l, l->candidates, symbols->n_symbols);
    for (uint32_t round = 0;; round++) {
        const bool is_long = sample_bytes >= LONG_SAMPLE_BYTES;
        const unsigned one_in = is_long && round < ROUNDS_OF_FOURTH ? 4 : is_long && round < ROUNDS_OF_HALF ? 2 : 1;
        const size_t coded = count_sample(l, sample, sample_bytes, piece_bytes, one_in);
        const double bytes = (double)coded * samples + SYMBOL_BYTES * (double)l->book.n;
        const bool gains = best_bytes == 0 || bytes < LEAST_GAIN * best_bytes, is_last = one_in == 1 && !gains;
        if (one_in == 1 && (gains || bytes < best_bytes)) {
            best_bytes = bytes;
            keep_best(l);
        }
        if (is_last || round == ROUNDS)
            return;
        gather_candidates(l);
        make_book(l, l->candidates, choose(l, SW_PHRASE_MAX, (uint32_t)(SYMBOL_BYTES * CODE_GAIN / samples / one_in)));
    }
}

void sw_phrase_learn(struct sw_params *ret, const struct sw_params *symbols, const uint8_t *sample, size_t sample_bytes,
                     size_t piece_bytes, uint64_t raw_bytes) {
    memset(ret, 0, sizeof *ret);
    struct learner *l = sw_alloc(sizeof *l);
    uint8_t *padded = sw_alloc(sample_bytes + SW_PHRASE_MAX_BYTES);
    if (l && padded) {
        memcpy(padded, sample, sample_bytes);
        memset(padded + sample_bytes, 0, SW_PHRASE_MAX_BYTES);
        learn(l, symbols, padded, sample_bytes, piece_bytes, raw_bytes);
        make_storable(l);
        write_table(l, ret);
    }
    sw_free(padded);
    sw_free(l);
}

#include "codec/dict/dictionary.h"

#include "base/alloc.h"
#include "base/err.h"
#include "codec/sample.h"

#include <stdlib.h>
#include <string.h>

static uint64_t load_value(const uint8_t *from, unsigned bits) {
    uint64_t v = 0;
    memcpy(&v, from, bits / 8);
    return v;
}

/* ---- use ---- */

static unsigned least_of(unsigned a, unsigned b) {
    return a < b ? a : b;
}

void sw_dictionary_init(struct sw_dictionary *ret, const struct sw_params *table, unsigned bits) {
    memset(ret, 0xFF, sizeof *ret);
    ret->n = least_of(table->n_symbols, least_of(1u << sw_dict_max_width(bits), SW_DICT_MAX_VALUES));
    memcpy(ret->value, table->value, ret->n * sizeof ret->value[0]);
}

int sw_dictionary_read(struct sw_dictionary *ret, const void *section, uint32_t n_symbols, unsigned bits) {
    struct sw_params table;
    const int r = sw_params_read(&table, section, n_symbols, SW_FRAME_SYMBOL_BYTES);
    for (uint32_t i = 0; r == 0 && i < n_symbols; i++)
        if (table.length[i] != bits / 8)
            return -SW_EFRAME;
    if (r == 0)
        sw_dictionary_init(ret, &table, bits);
    return r;
}

unsigned sw_dictionary_find(const struct sw_dictionary *d, uint64_t value) {
    unsigned at = 0; /* all values before it are less than `value` */
    for (unsigned step = 128; step; step /= 2)
        at += d->value[at + step - 1] < value ? step : 0;
    return at < d->n && d->value[at] == value ? at : d->n;
}

/* ---- learning ---- */

/* If a sample has more different values than this, no dictionary is made. */
#define MAX_CANDIDATES 1024
#define SLOTS (4 * MAX_CANDIDATES)

struct candidate {
    uint64_t value;
    uint32_t count;
};

struct counting {
    uint16_t slot[SLOTS]; /* 1 + candidate's number, or 0 */
    struct candidate candidate[MAX_CANDIDATES];
    unsigned n;
};

/* Counts a value; false: there are too many different values. */
static bool count_value(struct counting *c, uint64_t value) {
    unsigned at = (unsigned)(value * 0x9E3779B97F4A7C15u >> 52) % SLOTS;
    while (c->slot[at] && c->candidate[c->slot[at] - 1].value != value)
        at = (at + 1) % SLOTS;
    if (!c->slot[at]) {
        if (c->n == MAX_CANDIDATES)
            return false;
        c->candidate[c->n++] = (struct candidate){value, 0};
        c->slot[at] = (uint16_t)c->n;
    }
    c->candidate[c->slot[at] - 1].count++;
    return true;
}

/* In a full sample only every second piece is counted; if values are short, only every fourth or eighth. So at most
 * 8192 values are counted. Counting starts at the second piece, so that it never uses a piece that the estimate uses
 * (numbers.c). A value that is frequent by chance would make the estimate too good. */
static size_t pieces_apart(size_t sample_bytes, size_t value_bytes) {
    return sample_bytes < SW_SAMPLE_MAX_BYTES ? 1 : value_bytes < 4 ? 8 / value_bytes : 2;
}

static bool count_piece(struct counting *c, const uint8_t *from, size_t bytes, unsigned bits, bool has_differences) {
    const size_t value_bytes = bits / 8, first = has_differences ? value_bytes : 0;
    bool good = true;
    for (size_t at = first; good && at + value_bytes <= bytes; at += value_bytes) {
        const uint64_t before = has_differences ? load_value(from + at - value_bytes, bits) : 0;
        good = count_value(c, (load_value(from + at, bits) - before) & (~(uint64_t)0 >> (64 - bits)));
    }
    return good;
}

static bool count_sample(struct counting *c, const uint8_t *sample, size_t sample_bytes, unsigned bits,
                         bool has_differences) {
    const size_t step = pieces_apart(sample_bytes, bits / 8) * SW_SAMPLE_LONG_PIECE_BYTES;
    bool good = true;
    for (size_t at = step > SW_SAMPLE_LONG_PIECE_BYTES ? SW_SAMPLE_LONG_PIECE_BYTES : 0; good && at < sample_bytes;
         at += step)
        good = count_piece(c, sample + at, least_of((unsigned)(sample_bytes - at), SW_SAMPLE_LONG_PIECE_BYTES), bits,
                           has_differences);
    return good;
}

/* Orders by falling frequency; on a tie, by rising value. */
static int by_count(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    return x->count != y->count ? (x->count < y->count) - (x->count > y->count)
                                : (x->value > y->value) - (x->value < y->value);
}

static int by_value(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

/* Returns how many of the most frequent candidates make the sample shortest. */
static unsigned choose(const struct counting *c, unsigned bits, const struct sw_dictionary_use *use) {
    const uint64_t exception_bits = sw_dict_stored_bits(bits) + 16;
    uint64_t total = 0, covered = 0, best_bits;
    unsigned best = 0;
    for (unsigned i = 0; i < c->n; i++)
        total += c->candidate[i].count;
    best_bits = 32 * total * bits;
    for (unsigned n = 1; n <= least_of(c->n, use->most); n++) {
        covered += c->candidate[n - 1].count;
        const uint64_t takes = total * use->code_bits(n) + 32 * (total - covered) * exception_bits;
        if (100 * covered < total * use->least_pct || takes >= best_bits)
            continue;
        best = n;
        best_bits = takes;
    }
    return best;
}

void sw_dictionary_learn(struct sw_params *ret, const uint8_t *sample, size_t sample_bytes, unsigned bits,
                         const struct sw_dictionary_use *use) {
    struct counting *c = sw_alloc(sizeof *c);
    memset(ret, 0, sizeof *ret);
    if (!c)
        return;
    memset(c, 0, sizeof *c);
    if (count_sample(c, sample, sample_bytes, bits, use->has_differences)) {
        qsort(c->candidate, c->n, sizeof c->candidate[0], by_count);
        ret->n_symbols = choose(c, bits, use);
        qsort(c->candidate, ret->n_symbols, sizeof c->candidate[0], by_value);
    }
    for (uint32_t i = 0; i < ret->n_symbols; i++) {
        ret->value[i] = c->candidate[i].value;
        ret->length[i] = (uint8_t)(bits / 8);
    }
    sw_free(c);
}

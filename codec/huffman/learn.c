/* learn.c - finds out from a sample which parts of the values are worth a code, and computes the codes. */
#include "codec/huffman/huffman.h"

#include <math.h>
#include <string.h>

#define PARTS SW_HUFFMAN_MAX_PARTS

struct sw_huffman_value sw_huffman_load(const uint8_t *from, size_t bytes, unsigned parts) {
    struct sw_huffman_value v = {0, 0};
    const size_t n = bytes < parts ? bytes : parts;
    memcpy(&v.low, from, n < 8 ? n : 8);
    if (n > 8)
        memcpy(&v.high, from + 8, n - 8);
    return v;
}

/* ---- codes ---- */

/* A tree in the making: nodes that have no parent yet, in the order of their counts, are in two queues. */
struct tree {
    uint64_t count[2 * SW_HUFFMAN_SYMBOLS];
    uint16_t parent[2 * SW_HUFFMAN_SYMBOLS];
    unsigned leaf, n_leaves, inner, n;
};

static unsigned take_least(struct tree *t) {
    if (t->inner == t->n || (t->leaf < t->n_leaves && t->count[t->leaf] <= t->count[t->inner]))
        return t->leaf++;
    return t->inner++;
}

/* Computes the depth of each leaf, which are sorted by their counts. Returns the depth of the first. */
static unsigned depths_of(struct tree *t, uint8_t depth[2 * SW_HUFFMAN_SYMBOLS]) {
    t->leaf = 0;
    t->inner = t->n = t->n_leaves;
    while (t->n < 2 * t->n_leaves - 1) {
        const unsigned a = take_least(t), b = take_least(t);
        t->count[t->n] = t->count[a] + t->count[b];
        t->parent[a] = t->parent[b] = (uint16_t)t->n++;
    }
    depth[t->n - 1] = 0;
    for (unsigned i = t->n - 1; i-- > 0;)
        depth[i] = (uint8_t)(depth[t->parent[i]] + 1);
    return depth[0];
}

/* The textbook's algorithm (D. A. Huffman, "A Method for the Construction of Minimum-Redundancy Codes", 1952). If a
 * code is too long, rare symbols count as more frequent ones. */
void sw_huffman_build(sw_huffman_lengths ret, const uint32_t counts[SW_HUFFMAN_SYMBOLS]) {
    struct tree t = {.n_leaves = 0};
    uint16_t symbol[SW_HUFFMAN_SYMBOLS];
    uint8_t depth[2 * SW_HUFFMAN_SYMBOLS];
    memset(ret, 0, SW_HUFFMAN_SYMBOLS);
    for (unsigned s = 0; s < SW_HUFFMAN_SYMBOLS; s++) {
        unsigned at = t.n_leaves;
        if (!counts[s])
            continue;
        for (; at > 0 && t.count[at - 1] > counts[s]; at--) {
            t.count[at] = t.count[at - 1];
            symbol[at] = symbol[at - 1];
        }
        t.count[at] = counts[s];
        symbol[at] = (uint16_t)s;
        t.n_leaves++;
    }
    if (t.n_leaves == 1)
        ret[symbol[0]] = 1;
    if (t.n_leaves < 2)
        return;
    while (depths_of(&t, depth) > SW_HUFFMAN_MAX_BITS)
        for (unsigned i = 0; i < t.n_leaves; i++)
            t.count[i] = t.count[i] / 2 + 1;
    for (unsigned i = 0; i < t.n_leaves; i++)
        ret[symbol[i]] = depth[i];
}

bool sw_huffman_read_table(sw_huffman_lengths ret, uint16_t ret_start[SW_HUFFMAN_SYMBOLS], const uint64_t *section,
                           uint32_t table, uint32_t escape_bits) {
    const uint64_t *words = section + SW_HUFFMAN_TABLES + (size_t)table * SW_HUFFMAN_TABLE_WORDS;
    uint32_t start = 0;
    for (unsigned s = 0; s < SW_HUFFMAN_ESCAPE; s++)
        ret[s] = (uint8_t)sw_huffman_length(words, s);
    ret[SW_HUFFMAN_ESCAPE] = (uint8_t)(table ? 0 : escape_bits);
    for (unsigned s = 0; s < SW_HUFFMAN_SYMBOLS; s++)
        if (ret[s] > SW_HUFFMAN_MAX_BITS)
            return false;
    for (unsigned length = 1; length <= SW_HUFFMAN_MAX_BITS; length++)
        for (unsigned s = 0; s < SW_HUFFMAN_SYMBOLS; s++)
            if (ret[s] == length) {
                ret_start[s] = (uint16_t)start;
                start += SW_HUFFMAN_ENTRIES >> length;
                if (start > SW_HUFFMAN_ENTRIES)
                    return false;
            }
    return true;
}

/* ---- learning ---- */

/* A sample's values in one form. */
struct view {
    unsigned parts, form;
    uint32_t n; /* values */
    struct sw_huffman_value base;
    uint32_t count[PARTS][256];
    double bits; /* of a value, if each part took its entropy */
};

/* The bits of n symbols, one of which occurs `count` times, for this symbol. */
static double bits_of(uint32_t count, uint32_t n) {
    return count ? count * log2((double)n / count) : 0;
}

static double entropy(const uint32_t count[256], uint32_t n) {
    double bits = 0;
    for (unsigned s = 0; s < 256; s++)
        bits += bits_of(count[s], n);
    return n ? bits / n : 8;
}

/* Returns the smallest value, as signed ones are ordered. */
static struct sw_huffman_value least_of(const uint8_t *sample, uint32_t n) {
    struct sw_huffman_value least = sw_huffman_load(sample, PARTS, PARTS);
    for (uint32_t i = 1; i < n; i++) {
        const struct sw_huffman_value v = sw_huffman_load(sample + (size_t)i * PARTS, PARTS, PARTS);
        if ((int64_t)v.high < (int64_t)least.high || (v.high == least.high && v.low < least.low))
            least = v;
    }
    return least;
}

static void look(struct view *ret, unsigned parts, unsigned form, const uint8_t *sample, size_t sample_bytes) {
    memset(ret, 0, sizeof *ret);
    ret->parts = parts;
    ret->form = form;
    ret->n = (uint32_t)(sample_bytes / parts);
    if (form == SW_HUFFMAN_ABOVE && ret->n)
        ret->base = least_of(sample, ret->n);
    const struct sw_huffman_shape shape = {.parts = (uint8_t)parts, .form = (uint8_t)form, .base = ret->base};
    for (uint32_t i = 0; i < ret->n; i++) {
        const struct sw_huffman_value v =
            sw_huffman_forward(&shape, sw_huffman_load(sample + (size_t)i * parts, parts, parts));
        for (unsigned part = 0; part < parts; part++)
            ret->count[part][sw_huffman_part(v, part)]++;
    }
    for (unsigned part = 0; part < parts; part++)
        ret->bits += entropy(ret->count[part], ret->n);
}

/* Bytes may be values of any length. Longer ones must make them this much shorter. */
#define LONGER_GAIN 1.03

/* Looks at the sample in each form that values of this type have, and keeps the best. */
static void look_best(struct view *ret, enum sw_value_type type, const uint8_t *sample, size_t sample_bytes) {
    struct view other;
    if (type != SW_VALUE_NONE) {
        const unsigned parts = sw_value_bits(type) / 8;
        look(ret, parts,
             parts == PARTS ? SW_HUFFMAN_ABOVE
             : parts > 1    ? SW_HUFFMAN_ROTATED
                            : SW_HUFFMAN_AS_IT_IS,
             sample, sample_bytes);
        return;
    }
    look(ret, 1, SW_HUFFMAN_AS_IT_IS, sample, sample_bytes);
    for (unsigned parts = 2; parts <= 8; parts *= 2)
        for (unsigned form = SW_HUFFMAN_AS_IT_IS; form <= SW_HUFFMAN_ROTATED; form++) {
            look(&other, parts, form, sample, sample_bytes);
            if (other.bits / parts * LONGER_GAIN < ret->bits / ret->parts)
                *ret = other;
        }
}

/* A part that may be coded. */
struct candidate {
    unsigned part;
    uint32_t count[SW_HUFFMAN_SYMBOLS]; /* of symbols that have a code, and of escapes */
    double bits;                        /* that the sample's values take for this part */
};

/* Symbols that occur less often than `least` have no code: their values are escapes. 0: all symbols have one. Outside
 * the sample, as many values have an unseen symbol as there are symbols that occur once in it (I. J. Good, "The
 * Population Frequencies of Species and the Estimation of Population Parameters", 1953). */
static void consider(struct candidate *ret, const struct view *view, unsigned part, uint32_t least) {
    sw_huffman_lengths length;
    uint32_t escapes = 0;
    for (unsigned s = 0; s < 256; s++) {
        const uint32_t count = view->count[part][s];
        const bool has_code = count >= least;
        ret->count[s] = has_code ? count + !count : 0;
        escapes += (has_code ? 0 : count) + (least && count == 1);
    }
    ret->part = part;
    ret->count[SW_HUFFMAN_ESCAPE] = escapes + 1;
    sw_huffman_build(length, ret->count);
    ret->bits = (double)escapes * (length[SW_HUFFMAN_ESCAPE] + 8 * view->parts);
    for (unsigned s = 0; s < 256; s++)
        if (view->count[part][s] >= least)
            ret->bits += (double)view->count[part][s] * length[s];
}

/* Chooses which symbols have a code. */
static void consider_all(struct candidate *ret, const struct view *view, unsigned part) {
    struct candidate other;
    consider(ret, view, part, 0);
    for (uint32_t least = 1; least <= 64; least *= 4) {
        consider(&other, view, part, least);
        if (other.bits < ret->bits)
            *ret = other;
    }
}

/* The parts that are coded: those with the largest gains. */
struct choice {
    struct candidate coded[SW_HUFFMAN_MAX_TABLES];
    unsigned n;
};

static void add(struct choice *c, const struct candidate *candidate) {
    unsigned at = c->n;
    if (c->n == SW_HUFFMAN_MAX_TABLES && c->coded[--at].bits <= candidate->bits)
        return;
    for (; at > 0 && c->coded[at - 1].bits > candidate->bits; at--)
        c->coded[at] = c->coded[at - 1];
    c->coded[at] = *candidate;
    c->n += c->n < SW_HUFFMAN_MAX_TABLES;
}

/* Returns a part's only value, or 256 if it has several. */
static unsigned only_value(const struct view *view, unsigned part) {
    for (unsigned s = 0; s < 256; s++)
        if (view->count[part][s])
            return view->count[part][s] == view->n ? s : 256;
    return 256;
}

/* A code must save this part of a byte. */
#define LEAST_GAIN 0.01

/* Escapes belong to a code. If no part is coded and some are constant, another part gets a code of 8 bits. */
static void add_carrier(struct choice *c, const struct view *view) {
    struct candidate carrier = {.part = 0};
    bool has_constant = false;
    for (unsigned part = 0; view->n && part < view->parts; part++) {
        const bool is_constant = only_value(view, part) < 256;
        has_constant |= is_constant;
        carrier.part = is_constant ? carrier.part : part;
    }
    if (!has_constant)
        return;
    if (only_value(view, carrier.part) < 256)
        consider(&carrier, view, carrier.part, 1);
    else
        for (unsigned s = 0; s < SW_HUFFMAN_SYMBOLS; s++)
            carrier.count[s] = 1;
    add(c, &carrier);
}

static void choose(struct choice *ret, const struct view *view) {
    struct candidate candidate;
    ret->n = 0;
    for (unsigned part = 0; view->n && part < view->parts; part++)
        if (only_value(view, part) == 256 && entropy(view->count[part], view->n) < 8 * (1 - LEAST_GAIN)) {
            consider_all(&candidate, view, part);
            if (candidate.bits < 8.0 * (1 - LEAST_GAIN) * view->n)
                add(ret, &candidate);
        }
    if (!ret->n)
        add_carrier(ret, view);
}

static void write_table(struct sw_params *ret, unsigned table, struct candidate *c) {
    uint64_t *words = ret->value + SW_HUFFMAN_TABLES + (size_t)table * SW_HUFFMAN_TABLE_WORDS;
    sw_huffman_lengths length;
    sw_huffman_build(length, c->count);
    for (unsigned s = 0; s < 256; s++)
        words[s / 16] |= (uint64_t)length[s] << s % 16 * 4;
    ret->value[0] |= (uint64_t)length[SW_HUFFMAN_ESCAPE] << 24;
}

void sw_huffman_learn(struct sw_params *ret, enum sw_value_type type, const uint8_t *sample, size_t sample_bytes) {
    struct view view;
    struct choice choice;
    uint8_t kind[SW_HUFFMAN_MAX_PARTS] = {0}, constant[SW_HUFFMAN_MAX_PARTS] = {0};
    memset(ret->value, 0, sizeof ret->value); /* and leaves what belongs to another codec */
    memset(ret->length, 0, sizeof ret->length);
    ret->n_symbols = 0;
    look_best(&view, type, sample, sample_bytes);
    choose(&choice, &view);
    if (!choice.n)
        return;
    for (unsigned part = 0; part < view.parts; part++) {
        const unsigned only = only_value(&view, part);
        kind[part] = only < 256 ? SW_HUFFMAN_CONSTANT : SW_HUFFMAN_RAW;
        constant[part] = (uint8_t)only;
    }
    for (unsigned table = 0; table < choice.n; table++)
        kind[choice.coded[table].part] = (uint8_t)table;
    for (unsigned table = 1; table < choice.n; table++) { /* all escapes are the first table's */
        choice.coded[0].count[SW_HUFFMAN_ESCAPE] += choice.coded[table].count[SW_HUFFMAN_ESCAPE];
        choice.coded[table].count[SW_HUFFMAN_ESCAPE] = 0;
    }
    for (unsigned table = 0; table < choice.n; table++)
        write_table(ret, table, &choice.coded[table]);
    ret->value[0] |= view.parts | view.form << 8 | choice.n << 16;
    memcpy(&ret->value[SW_HUFFMAN_KINDS], kind, sizeof kind);
    memcpy(&ret->value[SW_HUFFMAN_CONSTANTS], constant, sizeof constant);
    ret->value[SW_HUFFMAN_BASE] = view.base.low;
    ret->value[SW_HUFFMAN_BASE + 1] = view.base.high;
    ret->n_symbols = sw_huffman_section_symbols(choice.n);
}

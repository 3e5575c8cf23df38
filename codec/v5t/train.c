/* train.c - trains the symbol table. Each round parses the sample greedily with the previous round's table, and counts
 * symbols and adjacent pairs. The best ones by gain become the next table. The table that codes the sample shortest
 * wins. The measurements behind the constants are in TUNING.md. */
#include "base/alloc.h"
#include "codec/v5t/table.h"

#include <stdbool.h>
#include <string.h>

#define ROUNDS 12
#define NONE 255    /* no symbol; as a code it is the escape */
#define LITERAL 256 /* ids below are codes, LITERAL + b is byte b, escaped */
#define IDS 512
#define MAP_LOG2 16
#define MAP_SLOTS (1u << MAP_LOG2)
#define HASH3_SLOTS (1u << SW_V5T_HASH_LOG2)

struct candidate {
    uint64_t value, gain;
    uint32_t length;
};

struct trainer {
    struct sw_params table, best;
    uint8_t two[65536], one[256], long_slot[HASH3_SLOTS]; /* index of `table`: code or NONE */
    uint32_t count1[IDS], count2[IDS][IDS];
    uint32_t n_candidates;
    struct candidate candidate[MAP_SLOTS / 2]; /* once gains are complete, a binary heap */
    uint32_t map[MAP_SLOTS];                   /* 1 + index into candidate, or 0 */
};

static uint64_t length_mask(uint32_t length) {
    return length >= 8 ? ~(uint64_t)0 : ((uint64_t)1 << 8 * length) - 1;
}

static void build_index(struct trainer *t) {
    const struct sw_params *table = &t->table;
    memset(t->two, NONE, sizeof t->two);
    memset(t->one, NONE, sizeof t->one);
    memset(t->long_slot, NONE, sizeof t->long_slot);
    for (uint32_t c = 0; c < table->n_symbols; c++) {
        if (table->length[c] == 2)
            t->two[table->value[c]] = (uint8_t)c;
        else if (table->length[c] == 1)
            t->one[table->value[c]] = (uint8_t)c;
        else
            t->long_slot[sw_v5t_hash3((uint32_t)table->value[c])] = (uint8_t)c;
    }
}

/* Returns the id of the symbol that an encoder takes at p, `left` bytes before the end of the piece. */
static uint32_t match(const struct trainer *t, const uint8_t *p, size_t left, uint32_t *ret_length) {
    uint64_t window = 0;
    memcpy(&window, p, left < 8 ? left : 8);
    uint32_t c = t->long_slot[sw_v5t_hash3((uint32_t)window)];
    if (c != NONE) {
        uint32_t length = t->table.length[c];
        if (length <= left && ((window ^ t->table.value[c]) & length_mask(length)) == 0) {
            *ret_length = length;
            return c;
        }
    }
    c = t->two[window & 0xFFFF];
    if (c != NONE && left >= 2) {
        *ret_length = 2;
        return c;
    }
    c = t->one[window & 0xFF];
    *ret_length = 1;
    return c != NONE ? c : LITERAL + (uint32_t)(window & 0xFF);
}

static void count_pair(struct trainer *t, uint32_t previous, uint32_t id) {
    if (previous < IDS)
        t->count2[previous][id]++;
}

/* Parses one piece and counts its symbols and pairs; returns the length of its codes. */
static size_t count_piece(struct trainer *t, const uint8_t *p, size_t bytes) {
    uint32_t previous = IDS, length;
    size_t coded = 0;
    for (size_t at = 0; at < bytes; at += length) {
        uint32_t id = match(t, p + at, bytes - at, &length);
        t->count1[id]++;
        count_pair(t, previous, id);
        if (length > 1) { /* the symbol's first byte is also a candidate, alone and as an extension */
            t->count1[LITERAL + p[at]]++;
            count_pair(t, previous, LITERAL + p[at]);
        }
        coded += id < LITERAL ? 1 : 2;
        previous = id;
    }
    return coded;
}

static void id_symbol(const struct trainer *t, uint32_t id, uint64_t *ret_value, uint32_t *ret_length) {
    *ret_value = id < LITERAL ? t->table.value[id] : id - LITERAL;
    *ret_length = id < LITERAL ? t->table.length[id] : 1;
}

/* Adds gain to a candidate. A new candidate is dropped if there is no room, which happens only with very long samples.
 */
static void add_gain(struct trainer *t, uint64_t value, uint32_t length, uint64_t gain) {
    uint64_t key = (value ^ (uint64_t)length << 59) * 0x9E3779B97F4A7C15u;
    for (uint32_t slot = (uint32_t)(key >> (64 - MAP_LOG2));; slot = (slot + 1) % MAP_SLOTS) {
        uint32_t i = t->map[slot];
        if (i && (t->candidate[i - 1].value != value || t->candidate[i - 1].length != length))
            continue;
        if (i) {
            t->candidate[i - 1].gain += gain;
        } else if (t->n_candidates < MAP_SLOTS / 2) {
            t->candidate[t->n_candidates++] = (struct candidate){value, gain, length};
            t->map[slot] = t->n_candidates;
        }
        return;
    }
}

static void gather_candidates(struct trainer *t, uint32_t min_count) {
    t->n_candidates = 0;
    memset(t->map, 0, sizeof t->map);
    for (uint32_t a = 0; a < IDS; a++) {
        uint64_t va, vb;
        uint32_t la, lb;
        if (t->count1[a] < min_count)
            continue;
        id_symbol(t, a, &va, &la);
        add_gain(t, va, la, (uint64_t)t->count1[a] * la * (la == 1 ? 8 : 1));
        for (uint32_t b = 0; b < IDS && la < SW_V5T_MAX_SYMBOL_BYTES; b++) {
            uint64_t count = t->count2[a][b];
            if (count < min_count)
                continue;
            id_symbol(t, b, &vb, &lb);
            uint32_t length = la + lb < SW_V5T_MAX_SYMBOL_BYTES ? la + lb : SW_V5T_MAX_SYMBOL_BYTES;
            add_gain(t, (va | vb << 8 * la) & length_mask(length), length, count * length);
        }
    }
}

/* Puts whole rows before all other candidates, if the alphabet is small. For the first round, whose candidates are
 * single bytes and pairs. */
static void prefer_whole_rows(struct trainer *t) {
    struct sw_v5t_row row[256] = {0};
    bool is_whole[256];
    uint32_t n_rows = 0;
    for (uint32_t i = 0; i < t->n_candidates; i++) {
        const struct candidate *c = &t->candidate[i];
        if (c->length == 1) {
            row[c->value].count = t->count1[LITERAL + c->value];
            n_rows++;
        } else {
            row[c->value & 0xFF].n_pairs++;
        }
    }
    if (n_rows > SW_V5T_ROWS)
        return;
    for (uint32_t a = 0; a < 256; a++)
        is_whole[a] = sw_v5t_row_is_whole(row, a);
    for (uint32_t i = 0; i < t->n_candidates; i++) {
        struct candidate *c = &t->candidate[i];
        if (is_whole[c->value & 0xFF] == (c->length == 2))
            c->gain += SW_V5T_NEEDED_GAIN;
        else if (c->length == 1)
            c->gain = 0;
    }
}

/* A total order, so that the result does not depend on the candidates' order in memory. */
static bool is_better(const struct candidate *a, const struct candidate *b) {
    if (a->gain != b->gain)
        return a->gain > b->gain;
    return a->length != b->length ? a->length > b->length : a->value > b->value;
}

static void sift_down(struct candidate *heap, uint32_t n, uint32_t i) {
    struct candidate moved = heap[i];
    for (uint32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && is_better(&heap[child + 1], &heap[child]))
            child++;
        if (!is_better(&heap[child], &moved))
            break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

/* Makes a new table of the best candidates, by the rules of table.h. */
static void select_symbols(struct trainer *t) {
    struct candidate chosen[SW_FRAME_MAX_SYMBOLS], *heap = t->candidate;
    bool slot_taken[HASH3_SLOTS] = {false};
    uint32_t n = 0, left = t->n_candidates;
    for (uint32_t i = left / 2; i-- > 0;)
        sift_down(heap, left, i);
    for (; left && n < SW_FRAME_MAX_SYMBOLS; heap[0] = heap[--left], sift_down(heap, left, 0)) {
        bool *slot = &slot_taken[sw_v5t_hash3((uint32_t)heap[0].value)];
        if (heap[0].length > 2 && *slot)
            continue;
        if (heap[0].length > 2)
            *slot = true;
        chosen[n++] = heap[0];
    }

    struct sw_params *table = &t->table;
    memset(table, 0, sizeof *table);
    for (uint32_t group = 0; group < 3; group++) {
        for (uint32_t i = 0; i < n; i++) {
            if ((chosen[i].length == 2 ? 0 : chosen[i].length == 1 ? 1 : 2) != group)
                continue;
            table->value[table->n_symbols] = chosen[i].value;
            table->length[table->n_symbols++] = (uint8_t)chosen[i].length;
        }
        if (group == 0)
            table->own[SW_V5T_N2] = table->n_symbols;
        if (group == 1)
            table->own[SW_V5T_N1] = table->n_symbols - table->own[SW_V5T_N2];
    }
    build_index(t);
}

void sw_v5t_table_train(struct sw_params *ret, const uint8_t *sample, size_t sample_bytes, size_t piece_bytes) {
    memset(ret, 0, sizeof *ret);
    struct trainer *t = sw_alloc(sizeof *t);
    if (!t)
        return;
    size_t best_bytes = SIZE_MAX;
    build_index(t);
    for (uint32_t round = 0;; round++) {
        size_t coded = 0;
        memset(t->count1, 0, sizeof t->count1);
        memset(t->count2, 0, sizeof t->count2);
        for (size_t at = 0; at < sample_bytes; at += piece_bytes)
            coded += count_piece(t, sample + at, sample_bytes - at < piece_bytes ? sample_bytes - at : piece_bytes);
        if (coded < best_bytes) {
            best_bytes = coded;
            t->best = t->table;
        }
        if (round == ROUNDS)
            break;
        gather_candidates(t, 2 + 2 * round); /* rare symbols and pairs may be chance */
        if (round == 0)
            prefer_whole_rows(t);
        select_symbols(t);
    }
    *ret = t->best;
    sw_free(t);
}

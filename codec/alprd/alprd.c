/* alprd.c - floats in two parts, on the host (FORMAT.md). */
#include "codec/alp/exceptions.h"
#include "codec/alprd/alprd_core.h"
#include "codec/bitpack/numbers.h"

#define VALUES SW_VECTOR_VALUES
#define DICTIONARY_BYTES (SW_ALPRD_ENTRIES * sizeof(uint16_t))

/* The most frequent left parts of the sampled values; on a tie, the one that comes first. */
struct ranking {
    uint16_t left[SW_ALPRD_ENTRIES];
    unsigned count[SW_ALPRD_ENTRIES];
};

static struct ranking rank(const uint64_t sampled[SW_ALP_SAMPLED], unsigned right) {
    struct ranking r;
    unsigned count[SW_ALP_SAMPLED] = {0};
    for (unsigned i = 0; i < SW_ALP_SAMPLED; i++) {
        unsigned first = 0;
        while (sampled[first] >> right != sampled[i] >> right)
            first++;
        count[first]++;
    }
    for (unsigned k = 0; k < SW_ALPRD_ENTRIES; k++) {
        unsigned best = 0;
        for (unsigned i = 1; i < SW_ALP_SAMPLED; i++)
            best = count[i] > count[best] ? i : best;
        r.left[k] = (uint16_t)(sampled[best] >> right);
        r.count[k] = count[best];
        count[best] = 0;
    }
    return r;
}

/* Chooses the cut and makes its dictionary. Unused entries repeat the first one. */
static struct sw_alprd_cut choose(const uint64_t value[VALUES], unsigned bits, uint16_t entry[SW_ALPRD_ENTRIES]) {
    uint64_t sampled[SW_ALP_SAMPLED];
    struct sw_alprd_cut c = {.cost = ~0u};
    for (unsigned lane = 0; lane < SW_ALP_SAMPLED; lane++)
        sampled[lane] = value[sw_value_place(bits, sw_alp_sampled(bits, lane), lane)];
    for (unsigned left = 1; left <= SW_ALPRD_MAX_LEFT; left++) {
        const struct ranking r = rank(sampled, bits - left);
        unsigned exceptions = SW_ALP_SAMPLED;
        for (unsigned k = 0; k < SW_ALPRD_ENTRIES; k++) {
            exceptions -= r.count[k];
            sw_alprd_consider(&c, bits, left, k + 1, exceptions);
        }
    }
    const struct ranking r = rank(sampled, bits - c.left);
    for (unsigned k = 0; k < SW_ALPRD_ENTRIES; k++)
        entry[k] = r.left[k >> c.code_width ? 0 : k];
    return c;
}

/* Returns the code of a left part; SW_ALPRD_ENTRIES: it has none. */
static unsigned find(const uint16_t entry[SW_ALPRD_ENTRIES], uint64_t left) {
    unsigned code = 0;
    while (code < SW_ALPRD_ENTRIES && entry[code] != left)
        code++;
    return code;
}

static unsigned units(const struct sw_vector_head *head, unsigned bits) {
    return sw_alprd_units(bits, head->width, head->tag);
}

/* Measures a vector. The head's bases carry the dictionary from here to store(). */
static void measure(const struct sw_vector *v, struct sw_vector_head *ret) {
    uint64_t value[VALUES];
    uint16_t entry[SW_ALPRD_ENTRIES];
    unsigned exceptions = 0;
    sw_values_load(value, v->content, v->bits, SW_VECTOR_VALUES);
    const struct sw_alprd_cut c = choose(value, v->bits, entry);
    for (unsigned i = 0; i < v->n_values; i++)
        exceptions += find(entry, value[i] >> (v->bits - c.left)) == SW_ALPRD_ENTRIES;
    *ret = (struct sw_vector_head){.width = v->bits - c.left, .tag = sw_alprd_tag(c.code_width, exceptions)};
    memcpy(ret->base, entry, sizeof entry);
    ret->units = units(ret, v->bits);
}

/* Returns the place of a value's code. A lane has the codes of its own values. */
static uint32_t *code_at(struct sw_rows *codes, unsigned bits, unsigned i) {
    const unsigned in_unit = SW_UNIT_BYTES * 8 / bits, unit = i / in_unit;
    return &codes->row[unit / SW_VECTOR_LANES * in_unit + i % in_unit][unit % SW_VECTOR_LANES];
}

static size_t rows_bytes(unsigned width) {
    return (size_t)SW_ALPRD_ROW_UNITS * SW_UNIT_BYTES * width;
}

static void store(const struct sw_vector *v, const struct sw_vector_head *head, uint8_t *out) {
    uint64_t value[VALUES];
    uint16_t entry[SW_ALPRD_ENTRIES];
    uint8_t room[SW_VECTOR_MAX_BYTES];
    struct sw_rows rows, codes;
    const unsigned code_width = sw_alprd_code_width(head->tag);
    uint8_t *dictionary = out + rows_bytes(head->width) + rows_bytes(code_width);
    struct sw_exceptions_writer rest =
        sw_exceptions_begin(dictionary + DICTIONARY_BYTES, sw_alp_exceptions(head->tag), sizeof entry[0]);
    memcpy(entry, head->base, sizeof entry);
    memcpy(dictionary, entry, sizeof entry);
    sw_values_load(value, v->content, v->bits, SW_VECTOR_VALUES);
    for (unsigned i = 0; i < VALUES; i++) {
        const uint16_t left = (uint16_t)(value[i] >> head->width);
        const unsigned code = find(entry, left);
        *code_at(&codes, v->bits, i) = code < SW_ALPRD_ENTRIES ? code : 0;
        if (code == SW_ALPRD_ENTRIES && i < v->n_values)
            sw_exceptions_put(&rest, &left, i);
        value[i] &= ((uint64_t)1 << head->width) - 1;
    }
    sw_exceptions_end(&rest, out + (size_t)head->units * SW_UNIT_BYTES);
    sw_values_store(value, room, v->bits);
    sw_rows_load(&rows, room, v->bits);
    sw_rows_pack(&rows, v->bits, head->width, out);
    sw_rows_pack(&codes, 32, code_width, out + rows_bytes(head->width));
}

static int decode(const struct sw_vector_head *head, unsigned bits, const uint8_t *from, uint8_t *out) {
    uint64_t value[VALUES];
    uint16_t entry[SW_ALPRD_ENTRIES], left;
    struct sw_rows rows, codes;
    const unsigned code_width = sw_alprd_code_width(head->tag), n = sw_alp_exceptions(head->tag);
    const uint8_t *dictionary = from + rows_bytes(head->width) + rows_bytes(code_width);
    const uint8_t *rest = dictionary + DICTIONARY_BYTES;
    memcpy(entry, dictionary, sizeof entry);
    sw_rows_unpack(&rows, bits, head->width, from);
    sw_rows_unpack(&codes, 32, code_width, from + rows_bytes(head->width));
    sw_rows_store(&rows, out, bits);
    sw_values_load(value, out, bits, SW_VECTOR_VALUES);
    for (unsigned i = 0; i < VALUES; i++)
        value[i] |= (uint64_t)entry[*code_at(&codes, bits, i)] << head->width;
    for (unsigned i = 0; i < n; i++) {
        const unsigned place = sw_exceptions_place(rest, n, sizeof left, i);
        if (place >= VALUES)
            return -SW_EFRAME;
        memcpy(&left, rest + i * sizeof left, sizeof left);
        value[place] = (value[place] & (((uint64_t)1 << head->width) - 1)) | (uint64_t)left << head->width;
    }
    sw_values_store(value, out, bits);
    return 0;
}

static const struct sw_numbers_codec sw_numbers_alprd = {.max_vectors = SW_TILE_MAX_FLOAT_VECTORS,
                                                         .units = units,
                                                         .chooses_by_vector = true,
                                                         .measure = measure,
                                                         .store = store,
                                                         .decode = decode};
SW_NUMBERS_OPS(alprd, .saved_bits = SW_ALPRD_MAX_LEFT);

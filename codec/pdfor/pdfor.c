/* pdfor.c - differences of neighbors, and frame of reference with exceptions, on the host (FORMAT.md). */
#include "codec/pfor/patched.h"

#define VALUES SW_VECTOR_VALUES

/* Numbers are differences with the sign bit inverted, so that they can be compared as unsigned numbers. */
static uint64_t turned(uint64_t v, unsigned bits) {
    return (v ^ (uint64_t)1 << (bits - 1)) & sw_patched_last(bits);
}

static void number(struct sw_patched_numbers *ret, const struct sw_vector *v) {
    uint64_t value[VALUES];
    sw_values_load(value, v->content, v->bits, VALUES);
    ret->bits = v->bits;
    ret->n = VALUES - 1; /* the first value has no difference */
    ret->is_in_order = true;
    ret->best = turned(0, v->bits); /* a step of 0 need not be stored */
    for (unsigned i = 0; i < VALUES; i++) {
        ret->number[i] = i ? turned(value[i] - value[i - 1], v->bits) : 0;
        ret->is_there[i] = i > 0;
    }
}

static void measure(const struct sw_vector *v, struct sw_vector_head *ret) {
    struct sw_patched_numbers numbers;
    uint64_t first = 0;
    number(&numbers, v);
    const struct sw_patched patched = sw_patched_choose(&numbers);
    const uint64_t step = patched.n_packed ? turned(patched.window.from, v->bits) : 0;
    memcpy(&first, v->content, v->bits / 8);
    *ret = (struct sw_vector_head){.base = {(first - step) & sw_patched_last(v->bits), step},
                                   .width = patched.width,
                                   .tag = numbers.n - patched.n_packed};
    ret->tag |= step ? SW_PATCHED_HAS_STEP : 0;
    ret->units = sw_patched_head_units(ret, v->bits);
}

/* Puts a rest to its place in the rows: rest 32 l + i is rest i of lane l. */
static void put_rest(struct sw_rows *rows, unsigned bits, unsigned at, uint64_t rest) {
    const size_t lane = at / 32, i = at % 32;
    if (bits == 64) {
        rows->row[2 * i][lane] = (uint32_t)rest;
        rows->row[2 * i + 1][lane] = (uint32_t)(rest >> 32);
    } else {
        rows->row[i][lane] = (uint32_t)rest;
    }
}

static uint64_t get_rest(const struct sw_rows *rows, unsigned bits, unsigned at) {
    const size_t lane = at / 32, i = at % 32;
    return bits == 64 ? (uint64_t)rows->row[2 * i + 1][lane] << 32 | rows->row[2 * i][lane] : rows->row[i][lane];
}

static void store(const struct sw_vector *v, const struct sw_vector_head *head, uint8_t *out) {
    struct sw_patched_numbers numbers;
    struct sw_rows rows;
    const struct sw_patched_window window = {turned(head->base[1], v->bits), sw_patched_last(head->width)};
    struct sw_exceptions_writer more = sw_patched_begin(head, v->bits, out);
    number(&numbers, v);
    for (unsigned i = 0; i < VALUES; i++) {
        const bool is_packed = sw_patched_is_packed(&numbers, i, window);
        const uint64_t rest = (numbers.number[i] - window.from) & sw_patched_last(v->bits);
        if (!is_packed && i)
            sw_exceptions_put(&more, &rest, i);
        put_rest(&rows, v->bits, i, is_packed ? rest : 0);
    }
    sw_exceptions_end(&more, out + (size_t)head->units * SW_UNIT_BYTES);
    sw_rows_pack(&rows, v->bits, head->width, out);
}

static int decode(const struct sw_vector_head *head, unsigned bits, const uint8_t *from, uint8_t *out) {
    const struct sw_patched_rest more = sw_patched_rest_of(head, bits, from, 0);
    uint64_t value[VALUES], sum = head->base[0], rest;
    struct sw_rows rows;
    sw_rows_unpack(&rows, bits, head->width, from);
    for (unsigned i = 0; i < more.n; i++) {
        const unsigned place = sw_patched_exception(&more, i, &rest);
        if (place >= VALUES)
            return -SW_EFRAME;
        put_rest(&rows, bits, place, rest);
    }
    for (unsigned i = 0; i < VALUES; i++)
        value[i] = sum += get_rest(&rows, bits, i) + more.step;
    sw_values_store(value, out, bits);
    return 0;
}

static const struct sw_numbers_codec sw_numbers_pdfor = {.n_bases = 1,
                                                         .max_vectors = SW_TILE_MAX_FLOAT_VECTORS,
                                                         .units = sw_patched_head_units,
                                                         .chooses_by_vector = true,
                                                         .measure = measure,
                                                         .store = store,
                                                         .decode = decode};
SW_NUMBERS_OPS(pdfor, .least_gain = 1.02);

/* pfor.c - frame of reference with exceptions and a divisor, on the host (FORMAT.md). */
#include "codec/pfor/patched.h"

#define VALUES SW_VECTOR_VALUES

static const struct sw_grid every_number = {.divisor = 1, .inverse = 1, .most = UINT64_MAX};

static uint64_t sign_bit(const struct sw_vector *v) {
    return (uint64_t)sw_value_is_signed(v->type) << (v->bits - 1);
}

static void number(struct sw_patched_numbers *ret, const struct sw_vector *v, const struct sw_grid *grid) {
    sw_values_load(ret->number, v->content, v->bits, VALUES);
    ret->bits = v->bits;
    ret->n = VALUES;
    ret->is_in_order = false;
    ret->best = 0;
    for (unsigned i = 0; i < VALUES; i++) {
        const uint64_t value = ret->number[i] ^ sign_bit(v);
        ret->is_there[i] = sw_grid_find(grid, v->bits, value, &ret->number[i]);
    }
}

static struct sw_vector_head head_of(const struct sw_vector *v, const struct sw_grid *grid) {
    struct sw_patched_numbers numbers;
    number(&numbers, v, grid);
    const struct sw_patched patched = sw_patched_choose(&numbers);
    const uint64_t first = patched.window.from * grid->divisor + grid->residue;
    struct sw_vector_head head = {.base = {(first ^ sign_bit(v)) & sw_patched_last(v->bits), grid->divisor},
                                  .width = patched.width,
                                  .tag = VALUES - patched.n_packed};
    head.tag |= grid->divisor > 1 ? SW_PATCHED_HAS_STEP : 0;
    head.units = sw_patched_head_units(&head, v->bits);
    return head;
}

static void measure(const struct sw_vector *v, struct sw_vector_head *ret) {
    *ret = head_of(v, v->grid);
    if (v->grid->divisor == 1 || sw_alp_exceptions(ret->tag) <= SW_PFOR_FEW_EXCEPTIONS)
        return;
    const struct sw_vector_head plain = head_of(v, &every_number);
    if (plain.units < ret->units)
        *ret = plain;
}

static void store(const struct sw_vector *v, const struct sw_vector_head *head, uint8_t *out) {
    const struct sw_grid *grid = head->base[1] == 1 ? &every_number : v->grid;
    const size_t value_bytes = v->bits / 8;
    struct sw_patched_numbers numbers;
    struct sw_patched_window window = {0, sw_patched_last(head->width)};
    uint8_t room[SW_VECTOR_MAX_BYTES];
    struct sw_rows rows;
    struct sw_exceptions_writer rest = sw_patched_begin(head, v->bits, out);
    number(&numbers, v, grid);
    (void)sw_grid_find(grid, v->bits, head->base[0] ^ sign_bit(v), &window.from);
    for (unsigned i = 0; i < VALUES; i++) {
        const bool is_packed = sw_patched_is_packed(&numbers, i, window);
        if (!is_packed)
            sw_exceptions_put(&rest, v->content + i * value_bytes, i);
        numbers.number[i] = is_packed ? numbers.number[i] - window.from : 0;
    }
    sw_exceptions_end(&rest, out + (size_t)head->units * SW_UNIT_BYTES);
    sw_values_store(numbers.number, room, v->bits);
    sw_rows_load(&rows, room, v->bits);
    sw_rows_pack(&rows, v->bits, head->width, out);
}

static int decode(const struct sw_vector_head *head, unsigned bits, const uint8_t *from, uint8_t *out) {
    const struct sw_patched_rest rest = sw_patched_rest_of(head, bits, from, 1);
    uint64_t value[VALUES], exception;
    struct sw_rows rows;
    sw_rows_unpack(&rows, bits, head->width, from);
    sw_rows_store(&rows, out, bits);
    sw_values_load(value, out, bits, VALUES);
    for (unsigned i = 0; i < VALUES; i++)
        value[i] = head->base[0] + value[i] * rest.step;
    for (unsigned i = 0; i < rest.n; i++) {
        const unsigned place = sw_patched_exception(&rest, i, &exception);
        if (place >= VALUES)
            return -SW_EFRAME;
        value[place] = exception;
    }
    sw_values_store(value, out, bits);
    return 0;
}

static void learn(struct sw_plan *plan, const void *sample, size_t sample_bytes) {
    sw_grid_learn(&plan->params, sample, sample_bytes, plan->value_type);
}

static const struct sw_numbers_codec sw_numbers_pfor = {.n_bases = 1,
                                                        .max_vectors = SW_TILE_MAX_FLOAT_VECTORS,
                                                        .units = sw_patched_head_units,
                                                        .chooses_by_vector = true,
                                                        .compares_lanes = true,
                                                        .measure = measure,
                                                        .store = store,
                                                        .decode = decode};
SW_NUMBERS_OPS(pfor, .learn = learn, .least_gain = 1.02);

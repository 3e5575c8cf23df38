/* for.c - frame of reference on the host: packs a vector's values less the smallest one (FORMAT.md). */
#include "codec/for/for.h"

static void measure(const struct sw_vector *v, struct sw_vector_head *ret) {
    const struct sw_range range = sw_vector_range(v->content, v->n_values, v->type);
    const unsigned width = sw_width_of(range.range);
    *ret = (struct sw_vector_head){
        .base = {range.base}, .width = width, .units = sw_packed_units(v->bits, width, (unsigned)v->bytes)};
}

static void store(const struct sw_vector *v, const struct sw_vector_head *head, uint8_t *out) {
    struct sw_rows rows;
    sw_rows_load(&rows, v->content, v->bits);
    sw_rows_subtract(&rows, v->bits, head->base[0]);
    sw_rows_pack(&rows, v->bits, head->width, out);
}

static int decode(const struct sw_vector_head *head, unsigned bits, const uint8_t *from, uint8_t *out) {
    struct sw_rows rows;
    sw_rows_unpack(&rows, bits, head->width, from);
    sw_rows_add(&rows, bits, head->base[0]);
    sw_rows_store(&rows, out, bits);
    return 0;
}

const struct sw_numbers_codec sw_numbers_for = {
    .n_bases = 1, .max_vectors = SW_TILE_MAX_VECTORS, .measure = measure, .store = store, .decode = decode};
SW_NUMBERS_OPS(for);

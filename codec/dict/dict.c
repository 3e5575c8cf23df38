/* dict.c - dictionary on the host: packs codes, and stores values without a code as exceptions (FORMAT.md). */
#include "codec/alp/exceptions.h"
#include "codec/bitpack/numbers.h"
#include "codec/dict/dictionary.h"

#define VALUES SW_VECTOR_VALUES

static unsigned units(const struct sw_vector_head *head, unsigned bits) {
    return sw_dict_units(bits, head->width, head->tag);
}

static void measure(const struct sw_vector *v, struct sw_vector_head *ret) {
    const struct sw_dictionary *d = v->dictionary;
    uint64_t value[VALUES];
    unsigned all = 0;
    sw_values_load(value, v->content, v->bits, v->n_values);
    *ret = (struct sw_vector_head){.units = 0};
    for (unsigned i = 0; i < v->n_values; i++) {
        const unsigned code = sw_dictionary_find(d, value[i]);
        all |= code < d->n ? code : 0;
        ret->tag += code == d->n;
    }
    ret->width = sw_width_of(all);
    ret->units = units(ret, v->bits);
}

static void store(const struct sw_vector *v, const struct sw_vector_head *head, uint8_t *out) {
    const struct sw_dictionary *d = v->dictionary;
    const size_t stored_bytes = sw_dict_stored_bits(v->bits) / 8;
    uint64_t value[VALUES];
    uint8_t room[SW_VECTOR_MAX_BYTES];
    struct sw_rows rows;
    struct sw_exceptions_writer rest = sw_exceptions_begin(
        out + (size_t)sw_packed_units(v->bits, head->width, 0) * SW_UNIT_BYTES, head->tag, stored_bytes);
    sw_values_load(value, v->content, v->bits, SW_VECTOR_VALUES);
    for (unsigned i = 0; i < VALUES; i++) {
        const unsigned code = sw_dictionary_find(d, value[i]);
        if (code == d->n && i < v->n_values)
            sw_exceptions_put(&rest, &value[i], i);
        value[i] = code < d->n && i < v->n_values ? code : 0;
    }
    sw_exceptions_end(&rest, out + (size_t)head->units * SW_UNIT_BYTES);
    sw_values_store(value, room, v->bits);
    sw_rows_load(&rows, room, v->bits);
    sw_rows_pack(&rows, v->bits, head->width, out);
}

static int decode(const struct sw_vector_head *head, unsigned bits, const uint8_t *from, uint8_t *out) {
    const struct sw_dictionary *d = head->dictionary;
    const size_t stored_bytes = sw_dict_stored_bits(bits) / 8;
    const uint8_t *rest = from + (size_t)sw_packed_units(bits, head->width, 0) * SW_UNIT_BYTES;
    uint64_t value[VALUES];
    struct sw_rows rows;
    sw_rows_unpack(&rows, bits, head->width, from);
    sw_rows_store(&rows, out, bits);
    sw_values_load(value, out, bits, SW_VECTOR_VALUES);
    for (unsigned i = 0; i < VALUES; i++)
        value[i] = d->value[value[i]]; /* the index is below 256: a code has at most 8 bits */
    if (!sw_exceptions_replace(rest, head->tag, stored_bytes, value))
        return -SW_EFRAME;
    sw_values_store(value, out, bits);
    return 0;
}

static unsigned code_bits(unsigned n) {
    return 32 * sw_width_of(n - 1);
}

static void learn(struct sw_plan *plan, const void *sample, size_t sample_bytes) {
    const unsigned bits = sw_value_bits(plan->value_type), most = 1u << sw_dict_max_width(bits);
    const struct sw_dictionary_use use = {code_bits, most < SW_DICT_MAX_VALUES ? most : SW_DICT_MAX_VALUES, false, 0};
    sw_dictionary_learn(&plan->params, sample, sample_bytes, bits, &use);
}

static const struct sw_numbers_codec sw_numbers_dict = {
    .max_vectors = SW_TILE_MAX_VECTORS, .units = units, .measure = measure, .store = store, .decode = decode};
SW_NUMBERS_OPS(dict, .learn = learn, .least_gain = 1.05);

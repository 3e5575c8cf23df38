/* radix.c - a dictionary whose codes are digits to a base, on the host (FORMAT.md). */
#include "codec/alp/exceptions.h"
#include "codec/bitpack/numbers.h"
#include "codec/dict/dictionary.h"
#include "codec/radix/digits.h"

#define VALUES SW_VECTOR_VALUES

static unsigned units(const struct sw_vector_head *head, unsigned bits) {
    return sw_radix_units(bits, head->tag);
}

static void measure(const struct sw_vector *v, struct sw_vector_head *ret) {
    const struct sw_dictionary *d = v->dictionary;
    uint64_t value[VALUES];
    unsigned most = 0, n_exceptions = 0;
    sw_values_load(value, v->content, v->bits, v->n_values);
    for (unsigned i = 0; i < v->n_values; i++) {
        const unsigned code = sw_dictionary_find(d, value[i]);
        most = code < d->n && code > most ? code : most;
        n_exceptions += code == d->n;
    }
    const bool can_be = n_exceptions <= SW_RADIX_MAX_EXCEPTIONS;
    *ret = (struct sw_vector_head){.tag = can_be ? n_exceptions << 8 | (most + 1) : 0};
    ret->units = units(ret, v->bits);
}

/* Returns the place of a value among those of all lanes, lane after lane. */
static unsigned in_lane(unsigned i, unsigned bits) {
    const unsigned in_unit = SW_UNIT_BYTES * 8 / bits, unit = i / in_unit;
    return unit % SW_VECTOR_LANES * 32 + unit / SW_VECTOR_LANES * in_unit + i % in_unit;
}

static void store(const struct sw_vector *v, const struct sw_vector_head *head, uint8_t *out) {
    const struct sw_dictionary *d = v->dictionary;
    const unsigned base = sw_radix_base(head->tag);
    const size_t packed_bytes = (size_t)sw_radix_packed_units(base) * SW_UNIT_BYTES;
    uint64_t value[VALUES];
    uint8_t digit[VALUES] = {0};
    struct sw_exceptions_writer rest =
        sw_exceptions_begin(out + packed_bytes, sw_radix_exceptions(head->tag), v->bits / 8);
    sw_values_load(value, v->content, v->bits, VALUES);
    for (unsigned i = 0; i < v->n_values; i++) {
        const unsigned code = sw_dictionary_find(d, value[i]);
        if (code == d->n)
            sw_exceptions_put(&rest, &value[i], i);
        else
            digit[in_lane(i, v->bits)] = (uint8_t)code;
    }
    sw_exceptions_end(&rest, out + (size_t)head->units * SW_UNIT_BYTES);
    sw_digits_pack(digit, base, out);
}

static int decode(const struct sw_vector_head *head, unsigned bits, const uint8_t *from, uint8_t *out) {
    const struct sw_dictionary *d = head->dictionary;
    const unsigned base = sw_radix_base(head->tag), n = sw_radix_exceptions(head->tag);
    const uint8_t *rest = from + (size_t)sw_radix_packed_units(base) * SW_UNIT_BYTES;
    uint64_t value[VALUES];
    uint8_t digit[VALUES];
    if (!sw_digits_unpack(from, base, digit))
        return -SW_EFRAME;
    for (unsigned i = 0; i < VALUES; i++)
        value[i] = d->value[digit[in_lane(i, bits)]];
    if (!sw_exceptions_replace(rest, n, bits / 8, value))
        return -SW_EFRAME;
    sw_values_store(value, out, bits);
    return 0;
}

static void learn(struct sw_plan *plan, const void *sample, size_t sample_bytes) {
    static const struct sw_dictionary_use use = {sw_digits_bits, SW_DICT_MAX_VALUES, false, 0};
    sw_dictionary_learn(&plan->params, sample, sample_bytes, sw_value_bits(plan->value_type), &use);
}

static const struct sw_numbers_codec sw_numbers_radix = {.max_vectors = SW_TILE_MAX_FLOAT_VECTORS,
                                                         .units = units,
                                                         .tags_alone = true,
                                                         .measure = measure,
                                                         .store = store,
                                                         .decode = decode};
SW_NUMBERS_OPS(radix, .learn = learn, .least_gain = 1.05);

/* dradix.c - differences of neighbors by a dictionary, whose codes are digits to a base, on the host (FORMAT.md). */
#include "codec/alp/exceptions.h"
#include "codec/bitpack/numbers.h"
#include "codec/dict/dictionary.h"
#include "codec/radix/digits.h"

#define VALUES SW_VECTOR_VALUES

/* For more differences pdfor is as good, and for runs and sequences with more exceptions rfor and sfor are. The
 * estimates of these are too high, so they would lose. */
#define MOST_DIFFERENCES 64
#define LEAST_PCT 99

static unsigned units(const struct sw_vector_head *head, unsigned bits) {
    return sw_radix_units(bits, head->tag);
}

/* Loads the differences of a vector's values that are not missing, and returns its first value. */
static uint64_t differences(const struct sw_vector *v, uint64_t ret[VALUES]) {
    const uint64_t mask = ~(uint64_t)0 >> (64 - v->bits);
    sw_values_load(ret, v->content, v->bits, v->n_values);
    const uint64_t first = ret[0];
    for (unsigned i = v->n_values - 1; i > 0; i--)
        ret[i] = (ret[i] - ret[i - 1]) & mask;
    ret[0] = 0;
    return first;
}

static void measure(const struct sw_vector *v, struct sw_vector_head *ret) {
    const struct sw_dictionary *d = v->dictionary;
    uint64_t value[VALUES];
    unsigned most = 0, n_exceptions = 0;
    *ret = (struct sw_vector_head){.base = {differences(v, value)}};
    for (unsigned i = 1; i < v->n_values; i++) {
        const unsigned code = sw_dictionary_find(d, value[i]);
        most = code < d->n && code > most ? code : most;
        n_exceptions += code == d->n;
    }
    if (n_exceptions <= SW_RADIX_MAX_EXCEPTIONS)
        ret->tag = n_exceptions << 8 | (most + 1);
    ret->units = units(ret, v->bits);
}

static void store(const struct sw_vector *v, const struct sw_vector_head *head, uint8_t *out) {
    const struct sw_dictionary *d = v->dictionary;
    const unsigned base = sw_radix_base(head->tag);
    uint64_t value[VALUES];
    uint8_t digit[VALUES] = {0};
    struct sw_exceptions_writer rest = sw_exceptions_begin(out + (size_t)sw_radix_packed_units(base) * SW_UNIT_BYTES,
                                                           sw_radix_exceptions(head->tag), v->bits / 8);
    (void)differences(v, value);
    for (unsigned i = 1; i < v->n_values; i++) {
        const unsigned code = sw_dictionary_find(d, value[i]);
        if (code == d->n)
            sw_exceptions_put(&rest, &value[i], i);
        else
            digit[i] = (uint8_t)code;
    }
    sw_exceptions_end(&rest, out + (size_t)head->units * SW_UNIT_BYTES);
    sw_digits_pack(digit, base, out);
}

static int decode(const struct sw_vector_head *head, unsigned bits, const uint8_t *from, uint8_t *out) {
    const unsigned base = sw_radix_base(head->tag), n = sw_radix_exceptions(head->tag);
    const uint8_t *rest = from + (size_t)sw_radix_packed_units(base) * SW_UNIT_BYTES;
    uint64_t value[VALUES], sum = head->base[0];
    uint8_t digit[VALUES];
    if (!sw_digits_unpack(from, base, digit))
        return -SW_EFRAME;
    value[0] = 0;
    for (unsigned i = 1; i < VALUES; i++)
        value[i] = head->dictionary->value[digit[i]];
    if (!sw_exceptions_replace(rest, n, bits / 8, value))
        return -SW_EFRAME;
    for (unsigned i = 0; i < VALUES; i++)
        value[i] = sum += value[i];
    sw_values_store(value, out, bits);
    return 0;
}

static void learn(struct sw_plan *plan, const void *sample, size_t sample_bytes) {
    static const struct sw_dictionary_use use = {sw_digits_bits, MOST_DIFFERENCES, true, LEAST_PCT};
    sw_dictionary_learn(&plan->params, sample, sample_bytes, sw_value_bits(plan->value_type), &use);
}

static const struct sw_numbers_codec sw_numbers_dradix = {.n_bases = 1,
                                                          .max_vectors = SW_TILE_MAX_FLOAT_VECTORS,
                                                          .units = units,
                                                          .tags_alone = true,
                                                          .measure = measure,
                                                          .store = store,
                                                          .decode = decode};
SW_NUMBERS_OPS(dradix, .learn = learn, .least_gain = 1.1);

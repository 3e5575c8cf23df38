/* radix.c - a dictionary whose codes are digits to a base, on the host (FORMAT.md). */
#include "codec/alp/exceptions.h"
#include "codec/bitpack/numbers.h"
#include "codec/dict/dictionary.h"

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

/* Writes the numbers of a vector's digits. `out` is zero before. */
static void pack(uint8_t *out, const uint8_t digit[VALUES], unsigned bits, unsigned base) {
    const unsigned digits = sw_radix_digits(base), width = sw_radix_width(base);
    for (unsigned at = 0; at < VALUES * width / digits; at += width) {
        const unsigned number = at / width, lane = number % SW_VECTOR_LANES, first = number / SW_VECTOR_LANES * digits;
        uint64_t v = 0;
        for (unsigned i = digits; i-- > 0;)
            v = v * base + digit[sw_value_place(bits, first + i, lane)];
        v <<= at % 8;
        for (unsigned byte = at / 8; v; byte++, v >>= 8)
            out[byte] |= (uint8_t)v;
    }
}

/* Reads the digits of a vector; false: a number is too large. */
static bool unpack(uint8_t digit[VALUES], const uint8_t *from, unsigned bits, unsigned base) {
    const unsigned digits = sw_radix_digits(base), width = sw_radix_width(base);
    for (unsigned number = 0; number < VALUES / digits; number++) {
        const unsigned lane = number % SW_VECTOR_LANES, first = number / SW_VECTOR_LANES * digits;
        const unsigned at = number * width, bytes = (at + width + 7) / 8 - at / 8;
        uint64_t v = 0;
        memcpy(&v, from + at / 8, bytes);
        v = v >> at % 8 & (((uint64_t)1 << width) - 1);
        for (unsigned i = 0; i < digits; i++, v /= base)
            digit[sw_value_place(bits, first + i, lane)] = (uint8_t)(v % base);
        if (v)
            return false;
    }
    return true;
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
            digit[i] = (uint8_t)code;
    }
    sw_exceptions_end(&rest, out + (size_t)head->units * SW_UNIT_BYTES);
    memset(out, 0, packed_bytes);
    pack(out, digit, v->bits, base);
}

static int decode(const struct sw_vector_head *head, unsigned bits, const uint8_t *from, uint8_t *out) {
    const struct sw_dictionary *d = head->dictionary;
    const unsigned base = sw_radix_base(head->tag), n = sw_radix_exceptions(head->tag);
    const uint8_t *rest = from + (size_t)sw_radix_packed_units(base) * SW_UNIT_BYTES;
    uint64_t value[VALUES];
    uint8_t digit[VALUES];
    if (!unpack(digit, from, bits, base))
        return -SW_EFRAME;
    for (unsigned i = 0; i < VALUES; i++)
        value[i] = d->value[digit[i]];
    for (unsigned i = 0; i < n; i++) {
        const unsigned place = sw_exceptions_place(rest, n, bits / 8, i);
        if (place >= VALUES)
            return -SW_EFRAME;
        memcpy(&value[place], rest + i * (bits / 8), bits / 8);
    }
    sw_values_store(value, out, bits);
    return 0;
}

static unsigned code_bits(unsigned n) {
    return 32 / sw_radix_digits(n) * sw_radix_width(n);
}

static void learn(struct sw_plan *plan, const void *sample, size_t sample_bytes) {
    sw_dictionary_learn(&plan->params, sample, sample_bytes, sw_value_bits(plan->value_type), code_bits,
                        SW_DICT_MAX_VALUES);
}

static const struct sw_numbers_codec sw_numbers_radix = {.max_vectors = SW_TILE_MAX_FLOAT_VECTORS,
                                                         .units = units,
                                                         .tags_alone = true,
                                                         .chooses_by_vector = true,
                                                         .measure = measure,
                                                         .store = store,
                                                         .decode = decode};
SW_NUMBERS_OPS(radix, .learn = learn, .least_gain = 1.05);

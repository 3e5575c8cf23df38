/* sfor.c - sequences and frame of reference on the host: stores the beginnings of sequences, and packs their first
 * values (FORMAT.md). */
#include "codec/rfor/runs.h"

#include <string.h>

static unsigned first_words(unsigned bits) {
    return bits == 64 ? 2 : 1;
}

static unsigned all_words(const struct sw_starts *s, unsigned bits, unsigned width) {
    return sw_starts_words(s) + first_words(bits) + sw_bits_words(s->n_runs - 1, width);
}

/* The tag is a vector's length. */
static unsigned units(const struct sw_vector_head *head, unsigned bits) {
    (void)bits;
    return head->tag;
}

static void measure(const struct sw_vector *v, struct sw_vector_head *ret) {
    const uint64_t flip = sw_value_is_signed(v->type) ? (uint64_t)1 << (v->bits - 1) : 0;
    uint64_t value[SW_VECTOR_VALUES], least = ~(uint64_t)0, most = 0;
    sw_values_load(value, v->content, v->bits, v->n_values);
    const struct sw_starts s = sw_starts_find(v, value, 1);
    for (unsigned i = 1; i < v->n_values; i++)
        if (sw_starts_has(&s, i)) {
            const uint64_t in_order = value[i] ^ flip;
            least = in_order < least ? in_order : least;
            most = in_order > most ? in_order : most;
        }
    *ret = (struct sw_vector_head){.units = 0};
    if (s.n_runs > 1) {
        ret->base[0] = least ^ flip;
        ret->width = sw_width_of(most - least);
    }
    ret->tag = ret->units = (all_words(&s, v->bits, ret->width) + 3) / 4;
    if (ret->width == v->bits) /* this width means that the content is stored */
        ret->units = ~0u;
}

static void store(const struct sw_vector *v, const struct sw_vector_head *head, uint8_t *out) {
    uint64_t value[SW_VECTOR_VALUES];
    uint32_t words[SW_VECTOR_MAX_BYTES / 4] = {0};
    unsigned run = 0;
    sw_values_load(value, v->content, v->bits, SW_VECTOR_VALUES);
    const struct sw_starts s = sw_starts_find(v, value, 1);
    uint32_t *const first = words + sw_starts_words(&s), *const rest = first + first_words(v->bits);
    sw_starts_write(&s, words);
    sw_bits_put(first, 0, v->bits, value[0]);
    for (unsigned i = 1; i < SW_VECTOR_VALUES; i++)
        if (sw_starts_has(&s, i))
            sw_bits_put(rest, run++ * head->width, head->width, (value[i] - head->base[0]) & sw_value_mask(v->bits));
    memcpy(out, words, (size_t)head->units * SW_UNIT_BYTES);
}

static int decode(const struct sw_vector_head *head, unsigned bits, const uint8_t *from, uint8_t *out) {
    uint32_t words[SW_VECTOR_MAX_BYTES / 4 + 1] = {0};
    uint64_t value[SW_VECTOR_VALUES], now;
    struct sw_starts s;
    unsigned run = 0;
    memcpy(words, from, (size_t)head->units * SW_UNIT_BYTES);
    const int r = sw_starts_read(&s, words, head->units * 4);
    if (r < 0 || all_words(&s, bits, head->width) > head->units * 4)
        return -SW_EFRAME;
    const uint32_t *const first = words + sw_starts_words(&s), *const rest = first + first_words(bits);
    now = sw_bits_get(first, 0, bits);
    for (unsigned i = 0; i < SW_VECTOR_VALUES; i++, now++) {
        if (i && sw_starts_has(&s, i))
            now = head->base[0] + sw_bits_get(rest, run++ * head->width, head->width);
        value[i] = now;
    }
    sw_values_store(value, out, bits);
    return 0;
}

static const struct sw_numbers_codec sw_numbers_sfor = {.n_bases = 1,
                                                        .max_vectors = SW_TILE_MAX_VECTORS,
                                                        .has_runs = true,
                                                        .units = units,
                                                        .measure = measure,
                                                        .store = store,
                                                        .decode = decode};
SW_NUMBERS_OPS(sfor);

/* rfor.c - runs and frame of reference on the host: stores the beginnings of runs, and packs their values (FORMAT.md).
 */
#include "codec/for/for.h"
#include "codec/rfor/runs.h"

#include <string.h>

static unsigned run_units(const struct sw_starts *s, unsigned width) {
    return (sw_starts_words(s) + sw_bits_words(s->n_runs, width) + 3) / 4;
}

static void measure(const struct sw_vector *v, struct sw_vector_head *ret) {
    uint64_t value[SW_VECTOR_VALUES];
    sw_values_load(value, v->content, v->bits, v->n_values);
    const struct sw_starts s = sw_starts_find(v, value, 0);
    sw_numbers_for.measure(v, ret);
    const unsigned units = run_units(&s, ret->width);
    ret->units = units < ret->units ? units : ret->units;
}

/* Returns whether a vector is stored as runs. It is only if runs take fewer bytes than packing by `for` and than its
 * content. */
static bool is_runs(const struct sw_vector_head *head, unsigned bits) {
    return head->width == bits || head->units < sw_packed_units(bits, head->width, 0);
}

static void store(const struct sw_vector *v, const struct sw_vector_head *head, uint8_t *out) {
    uint64_t value[SW_VECTOR_VALUES];
    uint32_t words[SW_VECTOR_MAX_BYTES / 4] = {0};
    unsigned run = 0;
    if (!is_runs(head, v->bits)) {
        sw_numbers_for.store(v, head, out);
        return;
    }
    sw_values_load(value, v->content, v->bits, SW_VECTOR_VALUES);
    const struct sw_starts s = sw_starts_find(v, value, 0);
    sw_starts_write(&s, words);
    for (unsigned i = 0; i < SW_VECTOR_VALUES; i++)
        if (sw_starts_has(&s, i))
            sw_bits_put(words + sw_starts_words(&s), run++ * head->width, head->width,
                        (value[i] - head->base[0]) & sw_value_mask(v->bits));
    memcpy(out, words, (size_t)head->units * SW_UNIT_BYTES);
}

static int decode_runs(const struct sw_vector_head *head, unsigned bits, const uint32_t *words, uint8_t *out) {
    uint64_t value[SW_VECTOR_VALUES], now = 0;
    struct sw_starts s;
    unsigned run = 0;
    const int r = sw_starts_read(&s, words, head->units * 4);
    if (r < 0 || sw_starts_words(&s) + sw_bits_words(s.n_runs, head->width) > head->units * 4)
        return -SW_EFRAME;
    for (unsigned i = 0; i < SW_VECTOR_VALUES; i++) {
        if (sw_starts_has(&s, i))
            now = head->base[0] + sw_bits_get(words + sw_starts_words(&s), run++ * head->width, head->width);
        value[i] = now;
    }
    sw_values_store(value, out, bits);
    return 0;
}

static int decode(const struct sw_vector_head *head, unsigned bits, const uint8_t *from, uint8_t *out) {
    uint32_t words[SW_VECTOR_MAX_BYTES / 4 + 1] = {0};
    if (!is_runs(head, bits))
        return sw_numbers_for.decode(head, bits, from, out);
    memcpy(words, from, (size_t)head->units * SW_UNIT_BYTES);
    return decode_runs(head, bits, words, out);
}

static const struct sw_numbers_codec sw_numbers_rfor = {.n_bases = 1,
                                                        .max_vectors = SW_TILE_MAX_VECTORS,
                                                        .has_sizes = true,
                                                        .has_runs = true,
                                                        .measure = measure,
                                                        .store = store,
                                                        .decode = decode};
SW_NUMBERS_OPS(rfor);

/* rfor.c - run lengths and frame of reference on the host: where runs begin, and their values, packed (FORMAT.md). */
#include "base/alloc.h"
#include "codec/bitpack/numbers.h"

#include <string.h>

#define START_WORDS (SW_VECTOR_VALUES / 32)

/* A bit for each value that is not the one before it. */
struct starts {
    uint32_t word[START_WORDS], mask; /* mask: of the words that are not zero */
    unsigned n_words, n_runs;
};

static struct starts find_starts(const struct sw_vector *v, const uint64_t value[SW_VECTOR_VALUES]) {
    struct starts s = {{1}, 0, 0, 0};
    for (unsigned i = 1; i < v->n_values; i++)
        s.word[i / 32] |= (uint32_t)(value[i] != value[i - 1]) << i % 32;
    for (unsigned i = 0; i < START_WORDS; i++) {
        s.mask |= (uint32_t)(s.word[i] != 0) << i;
        s.n_words += s.word[i] != 0;
        s.n_runs += (unsigned)__builtin_popcount(s.word[i]);
    }
    return s;
}

static unsigned value_words(unsigned n_runs, unsigned width) {
    return (n_runs * width + 31) / 32;
}

static unsigned run_units(const struct starts *s, unsigned width) {
    return (1 + s->n_words + value_words(s->n_runs, width) + 3) / 4;
}

static void measure(const struct sw_vector *v, struct sw_vector_head *ret) {
    uint64_t value[SW_VECTOR_VALUES];
    sw_values_load(value, v->content, v->bits);
    const struct starts s = find_starts(v, value);
    sw_numbers_for.measure(v, ret);
    const unsigned units = run_units(&s, ret->width);
    ret->units = units < ret->units ? units : ret->units;
}

/* Whether a vector is stored as runs: only those that then take less than packed by `for`, or as they are. */
static bool is_runs(const struct sw_vector_head *head, unsigned bits) {
    return head->width == bits || head->units < sw_packed_units(bits, head->width, 0);
}

static void put_bits(uint32_t *words, unsigned at, unsigned width, uint64_t v) {
    for (unsigned done = 0; done < width;) {
        const unsigned shift = (at + done) % 32;
        words[(at + done) / 32] |= (uint32_t)(v >> done) << shift;
        done += 32 - shift;
    }
}

static uint64_t get_bits(const uint32_t *words, unsigned at, unsigned width) {
    uint64_t v = 0;
    for (unsigned done = 0; done < width;) {
        const unsigned shift = (at + done) % 32;
        v |= (uint64_t)(words[(at + done) / 32] >> shift) << done;
        done += 32 - shift;
    }
    return width == 64 ? v : v & (((uint64_t)1 << width) - 1);
}

static void store(const struct sw_vector *v, const struct sw_vector_head *head, uint8_t *out) {
    uint64_t value[SW_VECTOR_VALUES];
    uint32_t words[SW_VECTOR_MAX_BYTES / 4] = {0};
    unsigned n = 1, run = 0;
    if (!is_runs(head, v->bits)) {
        sw_numbers_for.store(v, head, out);
        return;
    }
    sw_values_load(value, v->content, v->bits);
    const struct starts s = find_starts(v, value);
    words[0] = s.mask;
    for (unsigned i = 0; i < START_WORDS; i++)
        if (s.word[i])
            words[n++] = s.word[i];
    const uint64_t mask = v->bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << v->bits) - 1;
    for (unsigned i = 0; i < SW_VECTOR_VALUES; i++)
        if (s.word[i / 32] >> i % 32 & 1)
            put_bits(words + n, run++ * head->width, head->width, (value[i] - head->base[0]) & mask);
    memcpy(out, words, (size_t)head->units * SW_UNIT_BYTES);
}

static int decode_runs(const struct sw_vector_head *head, unsigned bits, const uint32_t *words, uint8_t *out) {
    uint64_t value[SW_VECTOR_VALUES], now = 0;
    const unsigned n_words = head->units * 4;
    unsigned n_starts = (unsigned)__builtin_popcount(words[0]), runs = 0, run = 0, next = 1;
    if (1 + n_starts > n_words)
        return -SW_EFRAME;
    for (unsigned i = 0; i < n_starts; i++)
        runs += (unsigned)__builtin_popcount(words[1 + i]);
    if (1 + n_starts + value_words(runs, head->width) > n_words || !(words[0] & words[1] & 1))
        return -SW_EFRAME;
    for (unsigned i = 0; i < START_WORDS; i++) {
        const uint32_t starts = words[0] >> i & 1 ? words[next++] : 0;
        for (unsigned k = 0; k < 32; k++) {
            if (starts >> k & 1)
                now = head->base[0] + get_bits(words + 1 + n_starts, run++ * head->width, head->width);
            value[32 * i + k] = now;
        }
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

const struct sw_numbers_codec sw_numbers_rfor = {.n_bases = 1,
                                                 .max_vectors = SW_TILE_MAX_VECTORS,
                                                 .has_sizes = true,
                                                 .measure = measure,
                                                 .store = store,
                                                 .decode = decode};
SW_NUMBERS_OPS(rfor, SW_NUMBERS_COUNT_BYTES(1, true), false);

/* alp.c - floats as decimals on the host (FORMAT.md).
 *
 * The GPU rounds every multiplication and addition, so this code must do so, too: it is compiled without fused
 * multiply-add. */
#include "codec/alp/alp_core.h"
#include "codec/alp/exceptions.h"
#include "codec/bitpack/numbers.h"

#include <string.h>

#define VALUES SW_VECTOR_VALUES

/* A vector's values as numbers, for one choice of decimal places, and whether each number gives back its value. */
struct digits {
    int64_t number[VALUES];
    bool is_exact[VALUES];
};

/* number = value * up, rounded; value = number * times / by. Either times or by is 1. */
struct scale {
    double up, times, by;
};

static struct scale scale_of(unsigned choice) {
    static const double power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8, 1e9,
                                   1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};
    const int places = SW_ALP_LEAST_PLACES + (int)choice;
    return places < 0 ? (struct scale){1 / power[-places], power[-places], 1}
                      : (struct scale){power[places], 1, power[places]};
}

static uint64_t bits_of(double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static double f64_of(uint64_t bits) {
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static float f32_of(uint32_t bits) {
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static uint32_t bits_of_f32(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static uint64_t value64(int64_t number, struct scale s) {
    return bits_of((f64_of((uint64_t)number + SW_ALP_ROUND_BITS) - SW_ALP_ROUND) * s.times / s.by);
}

static uint32_t value32(int32_t number, struct scale s) {
    return bits_of_f32((float)number * (float)s.times / (float)s.by);
}

static bool digits64(uint64_t value, struct scale s, int64_t *ret) {
    const uint64_t rounded = bits_of(f64_of(value) * s.up + SW_ALP_ROUND);
    *ret = (int64_t)(rounded - SW_ALP_ROUND_BITS);
    return (rounded >> 52 == SW_ALP_ROUND_TOP) & (value64(*ret, s) == value);
}

static bool digits32(uint32_t value, struct scale s, int64_t *ret) {
    const uint64_t rounded = bits_of((double)f32_of(value) * s.up + SW_ALP_ROUND);
    const uint64_t number = rounded - SW_ALP_ROUND_BITS;
    const bool fits = number + ((uint64_t)1 << 31) < (uint64_t)1 << 32;
    *ret = fits ? (int64_t)number : 0;
    return fits & (value32((int32_t)*ret, s) == value);
}

static bool digits_of(unsigned bits, uint64_t value, struct scale s, int64_t *ret) {
    return bits == 64 ? digits64(value, s, ret) : digits32((uint32_t)value, s, ret);
}

static void make_digits(struct digits *ret, const uint64_t value[VALUES], unsigned bits, unsigned choice) {
    const struct scale s = scale_of(choice);
    if (bits == 64)
        for (unsigned i = 0; i < VALUES; i++)
            ret->is_exact[i] = digits64(value[i], s, &ret->number[i]);
    else
        for (unsigned i = 0; i < VALUES; i++)
            ret->is_exact[i] = digits32((uint32_t)value[i], s, &ret->number[i]);
}

/* The result of a choice for the sampled values. */
struct trial {
    unsigned exceptions;
    int64_t least, most;
};

static struct trial try_out(const uint64_t value[VALUES], unsigned bits, unsigned choice) {
    const struct scale s = scale_of(choice);
    struct trial t = {0, INT64_MAX, INT64_MIN};
    for (unsigned lane = 0; lane < SW_ALP_SAMPLED; lane++) {
        const unsigned at = sw_value_place(bits, sw_alp_sampled(bits, lane), lane);
        int64_t number;
        if (digits_of(bits, value[at], s, &number)) {
            t.least = number < t.least ? number : t.least;
            t.most = number > t.most ? number : t.most;
        } else {
            t.exceptions++;
        }
    }
    return t;
}

/* Returns the choice with the lowest cost for the sampled values; on a tie, the one with the fewest places. */
static unsigned choose(const uint64_t value[VALUES], unsigned bits) {
    unsigned best = 0, best_cost = ~0u;
    for (unsigned choice = 0; choice < sw_alp_choices(bits); choice++) {
        const struct trial t = try_out(value, bits, choice);
        const float range = t.exceptions < SW_ALP_SAMPLED ? (float)t.most - (float)t.least : 0;
        const unsigned cost = sw_alp_cost(bits, t.exceptions, bits_of_f32(range));
        best = cost < best_cost ? choice : best;
        best_cost = cost < best_cost ? cost : best_cost;
    }
    return best;
}

static unsigned units(const struct sw_vector_head *head, unsigned bits) {
    return sw_alp_units(bits, head->width, head->tag);
}

/* Makes the head of a vector whose numbers in a window are packed; the others are exceptions. */
static struct sw_vector_head head_of(const struct sw_vector *v, const struct digits *d, unsigned choice,
                                     struct sw_alp_window in) {
    struct sw_vector_head head = {.units = 0};
    int64_t least = INT64_MAX, most = INT64_MIN;
    unsigned exceptions = 0;
    for (unsigned i = 0; i < v->n_values; i++) {
        const bool is_kept = d->is_exact[i] && sw_alp_is_in(in, d->number[i]);
        least = is_kept && d->number[i] < least ? d->number[i] : least;
        most = is_kept && d->number[i] > most ? d->number[i] : most;
        exceptions += !is_kept;
    }
    if (exceptions < v->n_values) {
        const struct sw_alp_window packed = sw_alp_window_of(in, least, most);
        head.base[0] = (uint64_t)packed.from;
        head.width = packed.width;
    }
    head.tag = sw_alp_tag(choice, exceptions);
    head.units = units(&head, v->bits);
    return head;
}

static void measure(const struct sw_vector *v, struct sw_vector_head *ret) {
    static const struct sw_alp_window all = {-((int64_t)1 << 52), 54};
    uint64_t value[VALUES];
    struct digits d;
    sw_values_load(value, v->content, v->bits, SW_VECTOR_VALUES);
    const unsigned choice = choose(value, v->bits);
    const struct trial t = try_out(value, v->bits, choice);
    make_digits(&d, value, v->bits, choice);
    *ret = head_of(v, &d, choice, all);
    if (t.exceptions == SW_ALP_SAMPLED || ret->width < sw_alp_window_around(t.least, t.most).width)
        return;
    const struct sw_vector_head narrow = head_of(v, &d, choice, sw_alp_window_around(t.least, t.most));
    if (narrow.units < ret->units)
        *ret = narrow;
}

static void store(const struct sw_vector *v, const struct sw_vector_head *head, uint8_t *out) {
    uint64_t value[VALUES];
    uint8_t room[SW_VECTOR_MAX_BYTES];
    struct digits d;
    struct sw_rows rows;
    const struct sw_alp_window packed = {(int64_t)head->base[0], head->width};
    const size_t value_bytes = v->bits / 8;
    struct sw_exceptions_writer rest =
        sw_exceptions_begin(out + (size_t)sw_packed_units(v->bits, head->width, 0) * SW_UNIT_BYTES,
                            sw_alp_exceptions(head->tag), value_bytes);
    sw_values_load(value, v->content, v->bits, SW_VECTOR_VALUES);
    make_digits(&d, value, v->bits, sw_alp_choice(head->tag));
    for (unsigned i = 0; i < VALUES; i++) {
        const bool is_kept = d.is_exact[i] && sw_alp_is_in(packed, d.number[i]);
        value[i] = is_kept && i < v->n_values ? (uint64_t)(d.number[i] - packed.from) : 0;
        if (!is_kept && i < v->n_values)
            sw_exceptions_put(&rest, v->content + i * value_bytes, i);
    }
    sw_exceptions_end(&rest, out + (size_t)head->units * SW_UNIT_BYTES);
    sw_values_store(value, room, v->bits);
    sw_rows_load(&rows, room, v->bits);
    sw_rows_pack(&rows, v->bits, head->width, out);
}

static int decode(const struct sw_vector_head *head, unsigned bits, const uint8_t *from, uint8_t *out) {
    uint64_t value[VALUES];
    struct sw_rows rows;
    const struct scale s = scale_of(sw_alp_choice(head->tag));
    const size_t value_bytes = bits / 8;
    const unsigned n = sw_alp_exceptions(head->tag);
    const uint8_t *rest = from + (size_t)sw_packed_units(bits, head->width, 0) * SW_UNIT_BYTES;
    sw_rows_unpack(&rows, bits, head->width, from);
    sw_rows_add(&rows, bits, head->base[0]);
    sw_rows_store(&rows, out, bits);
    sw_values_load(value, out, bits, SW_VECTOR_VALUES);
    for (unsigned i = 0; i < VALUES; i++)
        value[i] = bits == 64 ? value64((int64_t)value[i], s) : value32((int32_t)(uint32_t)value[i], s);
    sw_values_store(value, out, bits);
    for (unsigned i = 0; i < n; i++) {
        const unsigned place = sw_exceptions_place(rest, n, value_bytes, i);
        if (place >= VALUES)
            return -SW_EFRAME;
        memcpy(out + place * value_bytes, rest + i * value_bytes, value_bytes);
    }
    return 0;
}

static const struct sw_numbers_codec sw_numbers_alp = {.n_bases = 1,
                                                       .max_vectors = SW_TILE_MAX_FLOAT_VECTORS,
                                                       .units = units,
                                                       .chooses_by_vector = true,
                                                       .measure = measure,
                                                       .store = store,
                                                       .decode = decode};
SW_NUMBERS_OPS(alp);

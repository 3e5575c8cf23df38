/* dfor.c - delta and frame of reference on the host: packs the differences of neighbors, less the smallest difference
 * (FORMAT.md). */
#include "codec/bitpack/numbers.h"

/* Differences are packed as values of 32 bits; differences of 64-bit values, as values of 64 bits. */
static unsigned packed_bits(unsigned bits) {
    return bits == 64 ? 64 : 32;
}

static int64_t sign_extend(uint64_t v, unsigned bits) {
    return (int64_t)(v << (64 - bits)) >> (64 - bits);
}

static void measure(const struct sw_vector *v, struct sw_vector_head *ret) {
    uint64_t value[SW_VECTOR_VALUES];
    int64_t least = INT64_MAX, most = INT64_MIN;
    sw_values_load(value, v->content, v->bits, v->n_values);
    for (unsigned i = 1; i < v->n_values; i++) {
        const int64_t delta = sign_extend(value[i] - value[i - 1], v->bits);
        least = delta < least ? delta : least;
        most = delta > most ? delta : most;
    }
    if (v->n_values == 1)
        least = most = 0;
    const unsigned width = sw_width_of((uint64_t)most - (uint64_t)least);
    *ret = (struct sw_vector_head){.base = {value[0] - (uint64_t)least, (uint64_t)least},
                                   .width = width,
                                   .units = sw_packed_units(v->bits, width, (unsigned)v->bytes)};
}

/* Stores a vector. Value i of lane l is value 32 l + i of the vector. */
static void store(const struct sw_vector *v, const struct sw_vector_head *head, uint8_t *out) {
    uint64_t value[SW_VECTOR_VALUES];
    struct sw_rows rows;
    const uint64_t mask = v->bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << v->bits) - 1;
    sw_values_load(value, v->content, v->bits, SW_VECTOR_VALUES);
    for (unsigned at = 0; at < SW_VECTOR_VALUES; at++) {
        const size_t lane = at / 32, i = at % 32;
        const bool is_there = at > 0 && at < v->n_values;
        const uint64_t rest = is_there ? (value[at] - value[at - 1] - head->base[1]) & mask : 0;
        if (v->bits == 64) {
            rows.row[2 * i][lane] = (uint32_t)rest;
            rows.row[2 * i + 1][lane] = (uint32_t)(rest >> 32);
        } else {
            rows.row[i][lane] = (uint32_t)rest;
        }
    }
    sw_rows_pack(&rows, packed_bits(v->bits), head->width, out);
}

static int decode(const struct sw_vector_head *head, unsigned bits, const uint8_t *from, uint8_t *out) {
    uint64_t value[SW_VECTOR_VALUES], sum = head->base[0];
    struct sw_rows rows;
    sw_rows_unpack(&rows, packed_bits(bits), head->width, from);
    for (unsigned at = 0; at < SW_VECTOR_VALUES; at++) {
        const size_t lane = at / 32, i = at % 32;
        const uint64_t rest = bits == 64 ? (uint64_t)rows.row[2 * i + 1][lane] << 32 | rows.row[2 * i][lane]
                                         : (uint64_t)rows.row[i][lane];
        sum += rest + head->base[1];
        value[at] = sum;
    }
    sw_values_store(value, out, bits);
    return 0;
}

static const struct sw_numbers_codec sw_numbers_dfor = {
    .n_bases = 2, .max_vectors = SW_TILE_MAX_VECTORS, .measure = measure, .store = store, .decode = decode};
SW_NUMBERS_OPS(dfor);

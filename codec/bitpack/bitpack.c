#include "codec/bitpack/bitpack.h"

#include "base/assert.h"

#include <string.h>

/* Loops over lanes are innermost and free of branches, so that the compiler vectorizes them. */
#define LANES SW_VECTOR_LANES

unsigned sw_tile_vectors(unsigned value_bits, size_t tile_bytes) {
    const size_t bytes = sw_vector_bytes(value_bits);
    return (unsigned)((tile_bytes + bytes - 1) / bytes);
}

size_t sw_tile_vector_bytes(unsigned value_bits, size_t tile_bytes, unsigned vector) {
    const size_t bytes = sw_vector_bytes(value_bits), left = tile_bytes - vector * bytes;
    return left < bytes ? left : bytes;
}

/* Stores rows [0, n): four at a time as units of 16 bytes, lane after lane, then two as units of 8 bytes, then one. */
static void rows_to_memory(const uint32_t rows[][LANES], unsigned n, uint8_t *to) {
    uint32_t words[4 * LANES];
    for (; n >= 4; n -= 4, rows += 4, to += sizeof words) {
        for (unsigned lane = 0; lane < LANES; lane++)
            for (unsigned i = 0; i < 4; i++)
                words[4 * lane + i] = rows[i][lane];
        memcpy(to, words, sizeof words);
    }
    if (n >= 2) {
        for (unsigned lane = 0; lane < LANES; lane++)
            for (unsigned i = 0; i < 2; i++)
                words[2 * lane + i] = rows[i][lane];
        memcpy(to, words, sizeof words / 2);
        n -= 2, rows += 2, to += sizeof words / 2;
    }
    if (n)
        memcpy(to, rows[0], sizeof rows[0]);
}

static void rows_from_memory(uint32_t rows[][LANES], unsigned n, const uint8_t *from) {
    uint32_t words[4 * LANES];
    for (; n >= 4; n -= 4, rows += 4, from += sizeof words) {
        memcpy(words, from, sizeof words);
        for (unsigned lane = 0; lane < LANES; lane++)
            for (unsigned i = 0; i < 4; i++)
                rows[i][lane] = words[4 * lane + i];
    }
    if (n >= 2) {
        memcpy(words, from, sizeof words / 2);
        for (unsigned lane = 0; lane < LANES; lane++)
            for (unsigned i = 0; i < 2; i++)
                rows[i][lane] = words[2 * lane + i];
        n -= 2, rows += 2, from += sizeof words / 2;
    }
    if (n)
        memcpy(rows[0], from, sizeof rows[0]);
}

void sw_rows_load(struct sw_rows *ret, const uint8_t *content, unsigned value_bits) {
    rows_from_memory(ret->row, value_bits, content);
}

void sw_rows_store(const struct sw_rows *rows, uint8_t *content, unsigned value_bits) {
    rows_to_memory(rows->row, value_bits, content);
}

void sw_rows_subtract(struct sw_rows *rows, unsigned value_bits, uint64_t base) {
    if (value_bits == 64) {
        sw_rows_add(rows, value_bits, 0 - base);
        return;
    }
    const uint32_t fields = sw_spread(value_bits, (uint32_t)base);
    for (unsigned i = 0; i < value_bits; i++)
        for (unsigned lane = 0; lane < LANES; lane++)
            rows->row[i][lane] = sw_subtract_fields(value_bits, rows->row[i][lane], fields);
}

void sw_rows_add(struct sw_rows *rows, unsigned value_bits, uint64_t base) {
    const uint32_t fields = sw_spread(value_bits, (uint32_t)base);
    if (value_bits < 64) {
        for (unsigned i = 0; i < value_bits; i++)
            for (unsigned lane = 0; lane < LANES; lane++)
                rows->row[i][lane] = sw_add_fields(value_bits, rows->row[i][lane], fields);
        return;
    }
    for (unsigned i = 0; i < value_bits; i += 2)
        for (unsigned lane = 0; lane < LANES; lane++) {
            const uint64_t v = ((uint64_t)rows->row[i + 1][lane] << 32 | rows->row[i][lane]) + base;
            rows->row[i][lane] = (uint32_t)v;
            rows->row[i + 1][lane] = (uint32_t)(v >> 32);
        }
}

/* Packs `bits` rows of fields of `bits` bits: rows 0, step, 2 * step, ... */
static void pack(const uint32_t rows[][LANES], unsigned step, unsigned bits, unsigned width, uint8_t *to) {
    uint32_t words[32 + 1][LANES] = {{0}};
    for (unsigned i = 0; i < bits; i++) {
        uint32_t *word = words[sw_row_word(bits, width, i)], *next = word + LANES;
        const uint32_t *row = rows[(size_t)step * i];
        for (unsigned lane = 0; lane < LANES; lane++)
            word[lane] |= sw_pack_row(bits, width, i, row[lane]);
        if (!sw_row_is_split(bits, width, i))
            continue;
        for (unsigned lane = 0; lane < LANES; lane++)
            next[lane] |= sw_pack_row_rest(bits, width, i, row[lane]);
    }
    rows_to_memory(words, width, to);
}

static void unpack(uint32_t rows[][LANES], unsigned step, unsigned bits, unsigned width, const uint8_t *from) {
    uint32_t words[32 + 1][LANES];
    memset(words[width], 0, sizeof words[width]);
    rows_from_memory(words, width, from);
    for (unsigned i = 0; i < bits; i++) {
        const uint32_t *word = words[sw_row_word(bits, width, i)], *next = word + LANES;
        uint32_t *row = rows[(size_t)step * i];
        for (unsigned lane = 0; lane < LANES; lane++)
            row[lane] = sw_unpack_row(bits, width, i, word[lane], next[lane]);
    }
}

/* 64-bit values are packed in two parts: first their lower halves, then the rest of their upper halves. */
void sw_rows_pack(const struct sw_rows *rows, unsigned value_bits, unsigned width, uint8_t *packed) {
    SW_ASSERT(width < value_bits);
    if (value_bits < 64) {
        pack(rows->row, 1, value_bits, width, packed);
        return;
    }
    const unsigned low = width < 32 ? width : 32;
    pack(rows->row, 2, 32, low, packed);
    pack(rows->row + 1, 2, 32, width - low, packed + (size_t)low * sizeof rows->row[0]);
}

void sw_rows_unpack(struct sw_rows *ret, unsigned value_bits, unsigned width, const uint8_t *packed) {
    SW_ASSERT(width < value_bits);
    if (value_bits < 64) {
        unpack(ret->row, 1, value_bits, width, packed);
        return;
    }
    const unsigned low = width < 32 ? width : 32;
    unpack(ret->row, 2, 32, low, packed);
    unpack(ret->row + 1, 2, 32, width - low, packed + (size_t)low * sizeof ret->row[0]);
}

/* Defines the same function for each type. */
#define DEFINE_RANGE(type, unsigned_type)                                                                              \
    static struct sw_range range_##type(const uint8_t *content, unsigned n) {                                          \
        type value[SW_VECTOR_VALUES], least, most;                                                                     \
        memcpy(value, content, n * sizeof value[0]);                                                                   \
        least = most = value[0];                                                                                       \
        for (unsigned i = 0; i < n; i++) {                                                                             \
            least = value[i] < least ? value[i] : least;                                                               \
            most = value[i] > most ? value[i] : most;                                                                  \
        }                                                                                                              \
        return (struct sw_range){(unsigned_type)least, (unsigned_type)((unsigned_type)most - (unsigned_type)least)};   \
    }
DEFINE_RANGE(uint8_t, uint8_t)
DEFINE_RANGE(uint16_t, uint16_t)
DEFINE_RANGE(uint32_t, uint32_t)
DEFINE_RANGE(uint64_t, uint64_t)
DEFINE_RANGE(int8_t, uint8_t)
DEFINE_RANGE(int16_t, uint16_t)
DEFINE_RANGE(int32_t, uint32_t)
DEFINE_RANGE(int64_t, uint64_t)

struct sw_range sw_vector_range(const uint8_t *content, unsigned n, enum sw_value_type type) {
    static struct sw_range (*const range[SW_VALUE_NR])(const uint8_t *, unsigned) = {
        [SW_VALUE_U8] = range_uint8_t,   [SW_VALUE_U16] = range_uint16_t,  [SW_VALUE_U32] = range_uint32_t,
        [SW_VALUE_U64] = range_uint64_t, [SW_VALUE_I8] = range_int8_t,     [SW_VALUE_I16] = range_int16_t,
        [SW_VALUE_I32] = range_int32_t,  [SW_VALUE_I64] = range_int64_t,   [SW_VALUE_F32] = range_uint32_t,
        [SW_VALUE_F64] = range_uint64_t, [SW_VALUE_BF16] = range_uint16_t, [SW_VALUE_F16] = range_uint16_t,
        [SW_VALUE_F8] = range_uint8_t,
    };
    SW_ASSERT(type > SW_VALUE_NONE && type < SW_VALUE_NR && range[type]);
    return range[type](content, n);
}

#include "tests/lib/content.h"

#include <stdbool.h>
#include <string.h>

uint64_t sw_random(uint64_t *state) {
    uint64_t x = *state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static void fill_random(uint8_t *ret, size_t bytes, size_t first, size_t every, uint64_t *state) {
    for (size_t i = first; i < bytes; i += every)
        ret[i] = (uint8_t)(sw_random(state) >> 56);
}

static void fill_text(uint8_t *ret, size_t bytes, uint64_t *state) {
    static const char *const words[] = {"region ", "spill ",  "a ",          "of ",    "restoring ", "\n",
                                        "the ",    "memory ", "tier\nhost ", "0.25, ", "tiers.\n",   "compression "};
    for (size_t at = 0; at < bytes;) {
        const char *word = words[sw_random(state) % (sizeof words / sizeof words[0])];
        for (; *word && at < bytes; at++)
            ret[at] = (uint8_t)*word++;
    }
}

static void fill_hex(uint8_t *ret, size_t bytes, uint64_t *state) {
    for (size_t i = 0; i < bytes; i++)
        ret[i] = i % 9 == 8 ? '\n' : (uint8_t) "0123456789ABCDEF"[sw_random(state) % 16];
}

static void fill_mixed(uint8_t *ret, size_t bytes, uint64_t *state) {
    for (size_t at = 0; at < bytes;) {
        size_t stretch = 1 + sw_random(state) % 3000;
        if (stretch > bytes - at)
            stretch = bytes - at;
        const uint64_t seed = sw_random(state); /* drawn first: compilers differ in the order of arguments */
        sw_content_fill(ret + at, stretch, (enum sw_content)(sw_random(state) % SW_CONTENT_MIXED), seed);
        at += stretch;
    }
}

void sw_content_fill(uint8_t *ret, size_t bytes, enum sw_content kind, uint64_t seed) {
    uint64_t state = seed;
    switch (kind) {
    case SW_CONTENT_RANDOM:
        fill_random(ret, bytes, 0, 1, &state);
        break;
    case SW_CONTENT_ZEROS:
        memset(ret, 0, bytes);
        break;
    case SW_CONTENT_ONES:
        memset(ret, 0xFF, bytes);
        break;
    case SW_CONTENT_ALL_VALUES:
        for (size_t i = 0; i < bytes; i++)
            ret[i] = (uint8_t)i;
        break;
    case SW_CONTENT_TEXT:
        fill_text(ret, bytes, &state);
        break;
    case SW_CONTENT_ALTERNATING:
        fill_text(ret, bytes, &state);
        fill_random(ret, bytes, 1, 2, &state);
        break;
    case SW_CONTENT_MIXED:
        fill_mixed(ret, bytes, &state);
        break;
    case SW_CONTENT_HEX:
        fill_hex(ret, bytes, &state);
        break;
    case SW_CONTENT_NR:
        break;
    }
}

void sw_content_fill_symbols(uint8_t *ret, size_t bytes, const struct sw_params *table, uint64_t seed) {
    uint64_t state = seed;
    for (size_t at = 0; at < bytes;) {
        uint64_t draw = sw_random(&state);
        uint32_t code = (uint32_t)(draw >> 8) % table->n_symbols;
        bool is_stray = draw % 64 == 0;
        size_t length = is_stray ? 1 : table->length[code];
        uint64_t value = is_stray ? draw >> 56 : table->value[code];
        if (length > bytes - at)
            length = bytes - at;
        memcpy(ret + at, &value, length);
        at += length;
    }
}

static bool is_allowed(const struct sw_params *table, uint64_t value, unsigned length) {
    for (uint32_t c = 0; c < table->n_symbols; c++) {
        if (table->length[c] == length && table->value[c] == value)
            return false;
        if (table->length[c] > 2 && length > 2 &&
            sw_v5t_hash3((uint32_t)table->value[c]) == sw_v5t_hash3((uint32_t)value))
            return false;
    }
    return true;
}

/* Adds up to n symbols of one length; gives up when the alphabet has no more. */
static void add_symbols(struct sw_params *table, unsigned length, unsigned n, unsigned letters, uint64_t *state) {
    for (unsigned tries = 0; n && tries < 1000 && table->n_symbols < SW_FRAME_MAX_SYMBOLS; tries++) {
        uint64_t value = 0;
        for (unsigned i = 0; i < length; i++)
            value |= (sw_random(state) % letters) << 8 * i;
        if (!is_allowed(table, value, length))
            continue;
        table->value[table->n_symbols] = value;
        table->length[table->n_symbols++] = (uint8_t)length;
        n--;
    }
}

void sw_content_table(struct sw_params *ret, unsigned letters, uint64_t seed) {
    uint64_t state = seed;
    memset(ret, 0, sizeof *ret);
    add_symbols(ret, 2, 40, letters, &state);
    ret->own[SW_V5T_N2] = ret->n_symbols;
    add_symbols(ret, 1, 30, letters, &state);
    ret->own[SW_V5T_N1] = ret->n_symbols - ret->own[SW_V5T_N2];
    for (unsigned length = 3; length <= SW_V5T_MAX_SYMBOL_BYTES; length++)
        add_symbols(ret, length, 40, letters, &state);
}

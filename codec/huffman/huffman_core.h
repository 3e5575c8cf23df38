/* huffman_core.h - the shape of coded values (FORMAT.md), for host and device.
 *
 * A value's bytes are its *parts*. The lowest byte is part 0. thread: any. */
#ifndef SW_HUFFMAN_CORE_H
#define SW_HUFFMAN_CORE_H

#include "codec/params.h"

#define SW_HUFFMAN_MAX_BITS 11u /* of a code */
#define SW_HUFFMAN_ENTRIES (1u << SW_HUFFMAN_MAX_BITS)
#define SW_HUFFMAN_MAX_PARTS 16u
#define SW_HUFFMAN_MAX_TABLES 4u
#define SW_HUFFMAN_ESCAPE 256u /* the number of the first table's escape; in other tables it has no code */
#define SW_HUFFMAN_SYMBOLS 257u

/* The section's words: 8 bytes of shape, a byte for each part, constants, base; then the tables' lengths of codes, half
 * a byte each. */
enum { SW_HUFFMAN_KINDS = 1, SW_HUFFMAN_CONSTANTS = 3, SW_HUFFMAN_BASE = 5, SW_HUFFMAN_TABLES = 7 };
#define SW_HUFFMAN_TABLE_WORDS 16u

/* The kinds of parts; those below SW_HUFFMAN_MAX_TABLES are coded, by the table of this number. */
enum { SW_HUFFMAN_RAW = SW_HUFFMAN_MAX_TABLES, SW_HUFFMAN_CONSTANT };

/* How a value is changed before it is coded. */
enum { SW_HUFFMAN_AS_IT_IS, SW_HUFFMAN_ROTATED, SW_HUFFMAN_ABOVE, SW_HUFFMAN_FORMS };

/* A value. Bits that its type does not have are zero. */
struct sw_huffman_value {
    uint64_t low, high;
};

/* Adjacent raw parts, which are stored together: up to 4, all of them in the same half of the value. */
struct sw_huffman_run {
    uint8_t first, parts;
};

struct sw_huffman_shape {
    struct sw_huffman_value constant, is_constant; /* is_constant: all bits of constant parts */
    struct sw_huffman_value base;
    uint8_t parts; /* of a value; 0: nothing has been learned, and no segment is coded */
    uint8_t form, n_tables, n_runs;
    uint8_t escape_bits; /* the length of the escape's code */
    /* Packed, a byte for each, so that a GPU's thread has them in registers: */
    uint32_t coded; /* the part of each table */
    uint64_t runs;  /* a run's first part in the lower half, its parts in the upper half */
};

/* Returns the part that a table codes. */
SW_HOST_DEVICE static inline uint32_t sw_huffman_coded_part(const struct sw_huffman_shape *s, uint32_t table) {
    return s->coded >> 8 * table & 0xFF;
}

SW_HOST_DEVICE static inline struct sw_huffman_run sw_huffman_run_of(const struct sw_huffman_shape *s, uint32_t i) {
    struct sw_huffman_run run;
    run.first = (uint8_t)(s->runs >> 8 * i & 15);
    run.parts = (uint8_t)(s->runs >> (8 * i + 4) & 15);
    return run;
}

/* Returns the number of symbols, of 9 bytes each, that the section of so many tables has. */
SW_HOST_DEVICE static inline uint32_t sw_huffman_section_symbols(uint32_t n_tables) {
    return SW_HUFFMAN_TABLES + n_tables * SW_HUFFMAN_TABLE_WORDS;
}

/* Returns the length of a symbol's code, one of 0 … 255, in a table; 0: it has none. words: the table's. */
SW_HOST_DEVICE static inline uint32_t sw_huffman_length(const uint64_t *words, uint32_t symbol) {
    return (uint32_t)(words[symbol / 16] >> symbol % 16 * 4) & 15;
}

SW_HOST_DEVICE static inline uint32_t sw_huffman_part(struct sw_huffman_value v, uint32_t part) {
    return (uint32_t)((part < 8 ? v.low : v.high) >> part % 8 * 8) & 0xFF;
}

SW_HOST_DEVICE static inline void sw_huffman_add_part(struct sw_huffman_value *v, uint32_t part, uint64_t bits) {
    if (part < 8)
        v->low |= bits << part * 8;
    else
        v->high |= bits << (part - 8) * 8;
}

/* Returns a run's bits. */
SW_HOST_DEVICE static inline uint32_t sw_huffman_run_bits(struct sw_huffman_value v, struct sw_huffman_run run) {
    const uint64_t half = run.first < 8 ? v.low : v.high;
    return (uint32_t)(half >> run.first % 8 * 8) & (0xFFFFFFFFu >> (32 - 8 * run.parts));
}

/* Rotates a value of up to 64 bits by one bit, so that its exponent's highest bits are a part, and the sign is in the
 * lowest one. */
SW_HOST_DEVICE static inline uint64_t sw_huffman_rotate(uint64_t v, uint32_t bits, uint32_t by) {
    return (v << by | v >> (bits - by)) & ~(uint64_t)0 >> (64 - bits);
}

SW_HOST_DEVICE static inline struct sw_huffman_value sw_huffman_forward(const struct sw_huffman_shape *s,
                                                                        struct sw_huffman_value v) {
    if (s->form == SW_HUFFMAN_ROTATED)
        v.low = sw_huffman_rotate(v.low, 8u * s->parts, 1);
    if (s->form == SW_HUFFMAN_ABOVE) {
        v.high -= s->base.high + (v.low < s->base.low);
        v.low -= s->base.low;
    }
    return v;
}

SW_HOST_DEVICE static inline struct sw_huffman_value sw_huffman_backward(const struct sw_huffman_shape *s,
                                                                         struct sw_huffman_value v) {
    if (s->form == SW_HUFFMAN_ROTATED)
        v.low = sw_huffman_rotate(v.low, 8u * s->parts, 8u * s->parts - 1);
    if (s->form == SW_HUFFMAN_ABOVE) {
        v.low += s->base.low;
        v.high += s->base.high + (v.low < s->base.low);
    }
    return v;
}

/* Adds a raw part to the runs. */
SW_HOST_DEVICE static inline void sw_huffman_add_raw(struct sw_huffman_shape *s, uint32_t part) {
    const struct sw_huffman_run last = sw_huffman_run_of(s, s->n_runs ? s->n_runs - 1u : 0);
    if (s->n_runs && last.first + last.parts == part && last.parts < 4 && part != 8)
        s->runs += (uint64_t)16 << 8 * (s->n_runs - 1);
    else
        s->runs |= (uint64_t)(part | 16) << 8 * s->n_runs++;
}

SW_HOST_DEVICE static inline int sw_huffman_has_parts(uint32_t parts, uint32_t form) {
    return parts && parts <= SW_HUFFMAN_MAX_PARTS && !(parts & (parts - 1)) &&
           (form == SW_HUFFMAN_AS_IT_IS || (form == SW_HUFFMAN_ROTATED && parts > 1 && parts <= 8) ||
            (form == SW_HUFFMAN_ABOVE && parts == SW_HUFFMAN_MAX_PARTS));
}

/* Reads the shape from a section's first SW_HUFFMAN_TABLES words, which are not trusted. 0: there is none. */
SW_HOST_DEVICE static inline int sw_huffman_shape_read(struct sw_huffman_shape *ret, const uint64_t *words,
                                                       uint32_t n_symbols) {
    const struct sw_huffman_value kinds = {words[SW_HUFFMAN_KINDS], words[SW_HUFFMAN_KINDS + 1]},
                                  constants = {words[SW_HUFFMAN_CONSTANTS], words[SW_HUFFMAN_CONSTANTS + 1]};
    struct sw_huffman_shape s;
    s.constant.low = s.constant.high = s.is_constant.low = s.is_constant.high = 0;
    s.base.low = words[SW_HUFFMAN_BASE];
    s.base.high = words[SW_HUFFMAN_BASE + 1];
    s.parts = (uint8_t)words[0];
    s.form = (uint8_t)(words[0] >> 8);
    s.n_tables = (uint8_t)(words[0] >> 16);
    s.escape_bits = (uint8_t)(words[0] >> 24);
    s.n_runs = 0;
    s.coded = 0;
    s.runs = 0;
    uint32_t coded = 0;
    if (!sw_huffman_has_parts(s.parts, s.form) || !s.n_tables || s.n_tables > SW_HUFFMAN_MAX_TABLES || !s.escape_bits ||
        s.escape_bits > SW_HUFFMAN_MAX_BITS || n_symbols != sw_huffman_section_symbols(s.n_tables))
        return 0;
    for (uint32_t part = 0; part < s.parts; part++) {
        const uint32_t kind = sw_huffman_part(kinds, part);
        if (kind < s.n_tables && !(coded >> kind & 1)) {
            coded |= 1u << kind;
            s.coded |= part << 8 * kind;
        } else if (kind == SW_HUFFMAN_RAW) {
            sw_huffman_add_raw(&s, part);
        } else if (kind == SW_HUFFMAN_CONSTANT) {
            sw_huffman_add_part(&s.constant, part, sw_huffman_part(constants, part));
            sw_huffman_add_part(&s.is_constant, part, 0xFF);
        } else {
            return 0;
        }
    }
    *ret = s;
    return coded == (1u << s.n_tables) - 1;
}

/* Returns the order of a code among all codes of SW_HUFFMAN_MAX_BITS bits: codes are numbered by their length, then by
 * their symbol. Returns its bits in the order of a stream, which begins at the lowest bit. */
SW_HOST_DEVICE static inline uint32_t sw_huffman_bits(uint32_t start, uint32_t length) {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < length; i++)
        bits |= (start >> (SW_HUFFMAN_MAX_BITS - 1 - i) & 1) << i;
    return bits;
}

/* An entry of a decoder's table: symbol, and length of the code from bit 8 on; 0: there is no such code. */
#define SW_HUFFMAN_IS_ESCAPE (1u << 12)
SW_HOST_DEVICE static inline uint16_t sw_huffman_entry(uint32_t symbol, uint32_t length) {
    return (uint16_t)((symbol == SW_HUFFMAN_ESCAPE ? SW_HUFFMAN_IS_ESCAPE : symbol) | length << 8);
}

/* A code of an encoder's table: its bits, and its length from bit 12 on; 0: the symbol has none. */
SW_HOST_DEVICE static inline uint16_t sw_huffman_code(uint32_t start, uint32_t length) {
    return (uint16_t)(sw_huffman_bits(start, length) | length << 12);
}

#endif

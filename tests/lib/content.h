/* content.h - seeded test input of kinds that matter to codecs, and the generator behind it.
 *
 * Deterministic: same kind, seed and length, same bytes on every machine. thread: any (state is the caller's). */
#ifndef SW_TEST_CONTENT_H
#define SW_TEST_CONTENT_H

#include "codec/v5t/table.h"
#include <stddef.h>
#include <stdint.h>

enum sw_content {
    SW_CONTENT_RANDOM,      /* incompressible */
    SW_CONTENT_ZEROS,       /* all 0x00 */
    SW_CONTENT_ONES,        /* all 0xFF: the escape's own value */
    SW_CONTENT_ALL_VALUES,  /* 0, 1, ... 255, again and again */
    SW_CONTENT_TEXT,        /* words of a small vocabulary */
    SW_CONTENT_ALTERNATING, /* text bytes and random ones in turn: every second one needs an escape */
    SW_CONTENT_MIXED,       /* stretches of all of these, shorter than a tile */
    SW_CONTENT_HEX,         /* lines of eight hexadecimal digits: a small alphabet, all pairs alike */
    SW_CONTENT_NR
};

/* splitmix64: next value of the generator. */
uint64_t sw_random(uint64_t *state);

void sw_content_fill(uint8_t *ret, size_t bytes, enum sw_content kind, uint64_t seed);

/* Concatenates random symbols of a table (with a stray byte now and then), so that symbols of every length occur and
 * segment ends cut them at every place. */
void sw_content_fill_symbols(uint8_t *ret, size_t bytes, const struct sw_params *table, uint64_t seed);

/* A valid table by the rules of table.h: 255 random symbols of all lengths 1 ... 8 over an alphabet of `letters`. */
void sw_content_table(struct sw_params *ret, unsigned letters, uint64_t seed);

#endif

/* phrases.h - tables of phrases that no training would make, and content of them.
 *
 * Deterministic: same arguments, same bytes on every machine. thread: any. */
#ifndef SW_TEST_PHRASES_H
#define SW_TEST_PHRASES_H

#include "codec/phrase/phrase.h"

/* A valid table by the rules of phrase.h, of up to n random phrases of all lengths 1 … 64 over an alphabet of
 * `letters`; long ones are made up of 2 to 8 others, and some begin with many others. */
void sw_phrases_table(struct sw_params *ret, unsigned n, unsigned letters, uint64_t seed);

/* Concatenates random phrases (with a stray byte now and then), so that segment ends cut them at every place. */
void sw_phrases_fill(uint8_t *ret, size_t bytes, const struct sw_params *table, uint64_t seed);

/* The table that is learnt from data (at most a sample's bytes of it), after one of v5t. */
void sw_phrases_learn(struct sw_params *ret, const uint8_t *data, size_t bytes);

#endif

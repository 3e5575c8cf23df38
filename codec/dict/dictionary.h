/* dictionary.h - the dictionary on the host: learns it from a sample, reads it from a frame, and looks up values.
 *
 * Values are bit patterns, whatever their type. thread: any. */
#ifndef SW_DICTIONARY_H
#define SW_DICTIONARY_H

#include "codec/dict/dict_core.h"
#include "codec/params.h"
#include <stdbool.h>
#include <stddef.h>

struct sw_dictionary {
    unsigned n;
    uint64_t value[256]; /* ascending; entries after the last value have all bits set, so that lookups pass them */
};

/* Makes a dictionary from a table of sw_dictionary_learn(). */
void sw_dictionary_init(struct sw_dictionary *ret, const struct sw_params *table, unsigned bits);
/* Makes a dictionary from a frame's symbol table section, for decoding only. errors: -SW_EFRAME. */
int sw_dictionary_read(struct sw_dictionary *ret, const void *section, uint32_t n_symbols, unsigned bits);

/* Returns a value's code; d->n: it has none. */
unsigned sw_dictionary_find(const struct sw_dictionary *d, uint64_t value);

/* How a codec uses a dictionary. */
struct sw_dictionary_use {
    unsigned (*code_bits)(unsigned n); /* returns the bits of 32 codes of a dictionary of n values */
    unsigned most;                     /* the largest n */
    bool has_differences;              /* of neighbors, in place of values */
    unsigned least_pct;                /* the part of a sample that must have codes */
};

/* Learns a table from a sample: the number of most frequent values that makes the sample shortest. The table is empty
 * if no dictionary makes the sample shorter, if the sample has too many different values, or if memory is out.
 */
void sw_dictionary_learn(struct sw_params *ret, const uint8_t *sample, size_t sample_bytes, unsigned bits,
                         const struct sw_dictionary_use *use);

#endif

/* dictionary.h - the values that codes stand for, on the host: learnt from a sample, looked up, read from a frame.
 * Values are bit patterns, whatever the type. thread: any. */
#ifndef SW_DICTIONARY_H
#define SW_DICTIONARY_H

#include "codec/dict/dict_core.h"
#include "codec/params.h"
#include <stddef.h>

struct sw_dictionary {
    unsigned n;
    uint64_t value[256]; /* ascending, to be looked up; what is behind the last one is greater than none */
};

/* Of a table that sw_dictionary_learn() made. */
void sw_dictionary_init(struct sw_dictionary *ret, const struct sw_params *table, unsigned bits);
/* Of a frame's symbol table section, for decoding only. errors: -SW_EFRAME. */
int sw_dictionary_read(struct sw_dictionary *ret, const void *section, uint32_t n_symbols, unsigned bits);

/* The value's code; the number of values if it has none. */
unsigned sw_dictionary_find(const struct sw_dictionary *d, uint64_t value);

/* As many of the sample's values, the most frequent ones, as make it shortest, each as a symbol; none if that does not
 * make it shorter, or if the sample has too many different ones. */
void sw_dictionary_learn(struct sw_params *ret, const uint8_t *sample, size_t sample_bytes, unsigned bits);

#endif

/* huffman.h - codes of a value's parts on the host (FORMAT.md). thread: any. */
#ifndef SW_HUFFMAN_H
#define SW_HUFFMAN_H

#include "codec/huffman/huffman_core.h"

/* Lengths of a table's codes; those of 0 … 255 and of the escape. 0: the symbol has none. */
typedef uint8_t sw_huffman_lengths[SW_HUFFMAN_SYMBOLS];

/* Computes the lengths for symbols that occur so often; one that does not occur has no code. */
void sw_huffman_build(sw_huffman_lengths ret, const uint32_t counts[SW_HUFFMAN_SYMBOLS]);
/* Reads the lengths of a table from a section, and where each code begins among all codes of SW_HUFFMAN_MAX_BITS bits.
 * False: the lengths are those of no table. */
bool sw_huffman_read_table(sw_huffman_lengths ret, uint16_t ret_start[SW_HUFFMAN_SYMBOLS], const uint64_t *section,
                           uint32_t table, uint32_t escape_bits);

/* Loads the value at `from`, of which `bytes` exist; the rest is zero. parts: 1 … 16. */
struct sw_huffman_value sw_huffman_load(const uint8_t *from, size_t bytes, unsigned parts);

/* Learns shape and tables from a sample, whose pieces begin at whole values of up to 8 bytes. Without a gain, n_symbols
 * is 0. */
void sw_huffman_learn(struct sw_params *ret, enum sw_value_type type, const uint8_t *sample, size_t sample_bytes);

#endif

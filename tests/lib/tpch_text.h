/* tpch_text.h - a TPC-H l_comment column of any length, one value per line.
 *
 * The text follows the grammar and the word lists of the TPC-H specification (clauses 4.2.2.10, 4.2.2.13 and 4.2.2.14),
 * words weighted as in its reference generator; a value is a piece of 10 to 43 characters of that text. It is not
 * byte for byte what the reference generator writes. The column of a seed is infinite and made of blocks that are
 * generated independently, so that several threads can make a part each. Deterministic: same seed and range, same bytes
 * on every machine. thread: any. */
#ifndef SW_TEST_TPCH_TEXT_H
#define SW_TEST_TPCH_TEXT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every block ends with the end of a value. */
#define SW_TPCH_TEXT_BLOCK_BYTES 65536
#define SW_TPCH_TEXT_MIN_VALUE_BYTES 10
#define SW_TPCH_TEXT_MAX_VALUE_BYTES 43

/* Writes bytes [offset, offset + bytes) of the column. */
void sw_tpch_text_fill(void *ret, uint64_t offset, size_t bytes, uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif

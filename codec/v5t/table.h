/* table.h - the symbol table: up to 255 symbols of 1 to 8 bytes, and how one is trained from a sample.
 *
 * Training follows FSST (Boncz, Neumann, Leis, PVLDB 13(11) 2020, section 4: rounds of greedy parse, count symbols and
 * adjacent pairs, keep the best by gain), but for the first table of small alphabets. Two rules are ours, because
 * encoders rely on them:
 *   - codes are ordered: first the symbols of 2 bytes, then those of 1 byte, then the longer ones;
 *   - no two symbols of 3 or more bytes have the same sw_v5t_hash3() of their first three bytes. */
#ifndef SW_V5T_TABLE_H
#define SW_V5T_TABLE_H

#include "codec/params.h"
#include "codec/public/spillway_device/bits.h"
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SW_V5T_MAX_SYMBOL_BYTES 8
#define SW_V5T_HASH_LOG2 11

/* Of a trained table's params.own: codes [0, n2) have 2 bytes, [n2, n2 + n1) have 1, the rest 3 or more. */
enum { SW_V5T_N2, SW_V5T_N1 };

/* The low three bytes of `window`, mixed by a bijection of 24 bits (multiplication by an odd number): the upper 11 bits
 * choose the slot, and slot and the lower 13 bits (the tag) together identify the three bytes exactly, so that an
 * encoder's table entry needs to hold only the tag. Bits 24 and up of the result are noise. */
SW_HOST_DEVICE static inline uint32_t sw_v5t_mix3(uint32_t window) {
    return window * 0x9E3779B1u;
}

#define SW_V5T_TAG_BITS (24 - SW_V5T_HASH_LOG2)

/* Slot of a symbol of 3 or more bytes; uses the low three bytes of `window`. */
SW_HOST_DEVICE static inline uint32_t sw_v5t_hash3(uint32_t window) {
    return sw_v5t_mix3(window) >> SW_V5T_TAG_BITS & ((1u << SW_V5T_HASH_LOG2) - 1);
}

/* Whole rows, for small alphabets, of which hexadecimal digits are the common one: 256 pairs of them, 32 with the line
 * end and 17 single bytes are too many for 255 codes. The row of a byte is the pairs that it begins. A byte whose row
 * is in the table as a whole needs no code of its own: a greedy parse never stands at it without a pair to take, but
 * for the end of a segment. So the first table of a training prefers, over the most frequent pairs of all rows, whole
 * rows, those first whose pairs are most frequent on average. */
#define SW_V5T_ROWS 31 /* bytes of an alphabet, at most: with their pairs fewer than 1024 candidates */
#define SW_V5T_NEEDED_GAIN (1u << 24)

struct sw_v5t_row {
    uint32_t count, n_pairs; /* how often the byte occurs, different pairs that it begins; 0, 0: not in the alphabet */
};

/* True if the row of byte `a` is to be in the table as a whole: all rows before it are, and the codes suffice for it
 * and for a code for each byte behind it. row: of all 256 bytes. */
SW_HOST_DEVICE static inline int sw_v5t_row_is_whole(const struct sw_v5t_row *row, uint32_t a) {
    uint32_t n_codes = row[a].n_pairs;
    for (uint32_t b = 0; b < 256; b++) {
        const uint64_t here = (uint64_t)row[a].count * row[b].n_pairs, there = (uint64_t)row[b].count * row[a].n_pairs;
        if (b != a && row[b].count)
            n_codes += there > here || (there == here && b < a) ? row[b].n_pairs : 1;
    }
    return row[a].n_pairs > 0 && n_codes <= SW_FRAME_MAX_SYMBOLS;
}

/* Trains on sample[0..sample_bytes), which consists of pieces of piece_bytes (the last may be short) that are not
 * adjacent in the column: no symbol is learnt across a seam. Deterministic; without memory for the training the table
 * is empty, which codes any input, but does not shrink it. thread: any. */
void sw_v5t_table_train(struct sw_params *ret, const uint8_t *sample, size_t sample_bytes, size_t piece_bytes);

#ifdef __cplusplus
}
#endif
#endif

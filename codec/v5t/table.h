/* table.h - the symbol table: up to 255 symbols of 1 to 8 bytes, trained from a sample.
 *
 * Training follows FSST (Boncz, Neumann, Leis, PVLDB 13(11) 2020, section 4): each round parses the sample greedily,
 * counts symbols and adjacent pairs, and keeps the best ones by gain. Only the first table of small alphabets is made
 * differently. Two rules are our own, because encoders rely on them:
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

/* Indices of a trained table's params.own: codes [0, n2) have 2 bytes, [n2, n2 + n1) have 1, the rest 3 or more. */
enum { SW_V5T_N2, SW_V5T_N1 };

/* Mixes the low three bytes of `window` by a bijection of 24 bits, a multiplication by an odd number. The upper 11 bits
 * of these are the slot, the lower 13 bits the tag. Slot and tag together identify the three bytes exactly, so an
 * encoder's table entry needs only the tag. Bits 24 and up of the result are noise. */
SW_HOST_DEVICE static inline uint32_t sw_v5t_mix3(uint32_t window) {
    return window * 0x9E3779B1u;
}

#define SW_V5T_TAG_BITS (24 - SW_V5T_HASH_LOG2)

/* Returns the slot of a symbol of 3 or more bytes, from the low three bytes of `window`. */
SW_HOST_DEVICE static inline uint32_t sw_v5t_hash3(uint32_t window) {
    return sw_v5t_mix3(window) >> SW_V5T_TAG_BITS & ((1u << SW_V5T_HASH_LOG2) - 1);
}

/* Small alphabets, such as hexadecimal digits, get whole rows of pairs. The row of a byte is the set of pairs that it
 * begins. Hexadecimal digits have 256 pairs, 32 pairs with the line end, and 17 single bytes: too many for 255 codes.
 * But if the table has a byte's whole row, the byte needs no code of its own: except at the end of a segment, a greedy
 * parse always finds a pair. So the first table of a training takes whole rows before the most frequent pairs of other
 * rows. Rows whose pairs are most frequent on average come first. */
#define SW_V5T_ROWS 31 /* bytes of an alphabet, at most: with their pairs fewer than 1024 candidates */
#define SW_V5T_NEEDED_GAIN (1u << 24)

struct sw_v5t_row {
    uint32_t count, n_pairs; /* occurrences of the byte, different pairs that it begins; 0, 0: not in the alphabet */
};

/* Returns whether the table takes the whole row of byte `a`: it takes all rows that come first, and has enough codes
 * for this row and a code for each byte that comes later. row: the rows of all 256 bytes. */
SW_HOST_DEVICE static inline int sw_v5t_row_is_whole(const struct sw_v5t_row *row, uint32_t a) {
    uint32_t n_codes = row[a].n_pairs;
    for (uint32_t b = 0; b < 256; b++) {
        const uint64_t here = (uint64_t)row[a].count * row[b].n_pairs, there = (uint64_t)row[b].count * row[a].n_pairs;
        if (b != a && row[b].count)
            n_codes += there > here || (there == here && b < a) ? row[b].n_pairs : 1;
    }
    return row[a].n_pairs > 0 && n_codes <= SW_FRAME_MAX_SYMBOLS;
}

/* Trains a table on a sample. The sample consists of pieces of piece_bytes (the last may be short), which are not
 * adjacent in the column, so no symbol is learned across a seam. Deterministic. If memory is out the table is empty: it
 * can encode any input, but does not shrink it. thread: any. */
void sw_v5t_table_train(struct sw_params *ret, const uint8_t *sample, size_t sample_bytes, size_t piece_bytes);

#ifdef __cplusplus
}
#endif
#endif

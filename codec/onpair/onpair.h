/* onpair.h - a dictionary of up to 4095 symbols of up to 16 bytes, learned from a sample (FORMAT.md).
 *
 * Frames carry the dictionary as their dictionary section. Planning chooses this codec only if its caller has room for
 * a dictionary (plan/planning.h). thread: any. */
#ifndef SW_ONPAIR_H
#define SW_ONPAIR_H

#include "codec/onpair/learn_core.h"
#include "codec/onpair/onpair_core.h"
#include "codec/params.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A sample of this length is enough; a longer one takes more time and gains little. Pieces of it are contiguous in the
 * region. */
#define SW_ONPAIR_SAMPLE_BYTES ((size_t)1 << 20)
#define SW_ONPAIR_PIECE_BYTES 512

/* Learns a dictionary from a sample of pieces of piece_bytes each, which takes about 0.5 us a byte. most_symbols: 1 …
 * SW_ONPAIR_MAX_SYMBOLS; each takes about 10 bytes of every frame. errors: -SW_ENOMEM; *ret is undefined. */
int sw_onpair_learn(struct sw_frame_dictionary *ret, const void *sample, size_t sample_bytes, size_t piece_bytes,
                    uint32_t most_symbols);

/* The two parts of sw_onpair_learn(): the symbols, for which a GPU can do the same (codec/gpu.h), and the section,
 * which takes less than a millisecond. sw_onpair_write() sorts the symbols. errors: -SW_ENOMEM. */
int sw_onpair_learn_symbols(struct sw_onpair_learned *ret, const void *sample, size_t sample_bytes, size_t piece_bytes,
                            uint32_t most_symbols);
int sw_onpair_write(struct sw_frame_dictionary *ret, struct sw_onpair_learned *learned, uint32_t most_symbols);

/* Learns a dictionary for the chunks of a region in host memory, and makes the plan. *dictionary: the plan's. errors:
 * -SW_ENOMEM. */
int sw_onpair_plan(struct sw_plan *ret, struct sw_frame_dictionary *dictionary, const void *region, uint64_t raw_bytes);

/* A dictionary section that has been read. Borrows the section for the symbols' texts. */
struct sw_onpair_table {
    const uint8_t *text;
    uint32_t n;                          /* symbols; the escape's number */
    uint8_t raw_bits[SW_ONPAIR_CLASSES]; /* of a class */
    uint32_t first[SW_ONPAIR_CLASSES];   /* the number of a class's first symbol */
    uint16_t at[SW_ONPAIR_MAX_SYMBOLS];  /* where a symbol's text begins; 16 bytes can be read from there */
    uint8_t length[SW_ONPAIR_MAX_SYMBOLS];
};

/* Reads a dictionary section. errors: -SW_EFRAME. */
int sw_onpair_table_read(struct sw_onpair_table *ret, const uint8_t *section, size_t section_bytes);

/* Makes the index for encoders, in one block of sw_onpair_index_bytes(ret->log2) bytes at ret->text, which can be
 * copied to a device. errors: -SW_EFRAME (the dictionary), -SW_ENOMEM. owns: the caller, until sw_onpair_index_free().
 */
int sw_onpair_index_new(struct sw_onpair_index *ret, const struct sw_frame_dictionary *dictionary);
void sw_onpair_index_free(struct sw_onpair_index *index);

#ifdef __cplusplus
}
#endif
#endif

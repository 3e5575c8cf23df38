/* phrase.h - phrases are up to 255 texts of 1 to 64 bytes. These functions learn, store and find them.
 *
 * Phrases are stored in the same table as v5t's symbols (in plan, frame and device memory). The table holds the bytes
 * of a phrase of up to 8 bytes. For a longer phrase it holds the codes of the shorter phrases that it consists of. So
 * the table needs no more room than v5t's. A *book* is the table with all texts expanded. Plain data. thread: any. */
#ifndef SW_PHRASE_H
#define SW_PHRASE_H

#include "codec/params.h"
#include "codec/public/spillway_device/bits.h"

#define SW_PHRASE_MAX 255 /* the number of phrases; as a code: the escape; as a phrase's number: no phrase */
#define SW_PHRASE_MAX_BYTES 64
#define SW_PHRASE_MAX_PARTS 8

struct sw_phrase_book {
    uint8_t text[256][SW_PHRASE_MAX_BYTES]; /* zero above the length */
    uint8_t length[256];                    /* 0: no phrase */
    uint32_t n;
};

/* Expands the texts of a table. errors: -SW_EFRAME: a phrase does not consist of shorter ones. */
int sw_phrase_book_read(struct sw_phrase_book *ret, const struct sw_params *table);

/* An index of a book, for encoders (phrase_core.h). Learned phrases are sorted by their bytes, padded with zeros, and
 * then by their length. All phrases that a text begins with are found from the last phrase that is not greater than the
 * text: they are this phrase, its parent, the parent's parent, and so on. */
struct sw_phrase_index;
/* Makes the index of a book. */
void sw_phrase_index_init(struct sw_phrase_index *ret, const struct sw_phrase_book *book);

/* Finds the longest phrase that `in` begins with and that is not longer than `left`; SW_PHRASE_MAX: there is none. It
 * reads SW_PHRASE_MAX_BYTES of `in`; bytes after `left` do not change the result. */
uint32_t sw_phrase_find_at(const struct sw_phrase_index *index, const uint8_t *in, size_t left);
/* Does sw_phrase_find_at() at four places at once, which is faster than four calls. */
void sw_phrase_find_four(const struct sw_phrase_index *index, const uint8_t *const in[4], const size_t left[4],
                         uint32_t ret[4]);

/* Learns phrases from a sample, whose pieces of piece_bytes are not adjacent in the column. It begins with the symbols
 * that v5t has learned from the sample. raw_bytes: the region's length; short regions get small tables. Deterministic;
 * if memory is out, the table is empty. */
void sw_phrase_learn(struct sw_params *ret, const struct sw_params *symbols, const uint8_t *sample, size_t sample_bytes,
                     size_t piece_bytes, uint64_t raw_bytes);

#endif

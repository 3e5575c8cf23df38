/* phrase.h - phrases: up to 255 texts of 1 to 64 bytes, how they are learnt, stored and found.
 *
 * They travel in the same table as v5t's symbols (plan, frame, device memory): a phrase of up to 8 bytes as its bytes,
 * a longer one as the codes of shorter ones that make it up. So the table needs no more room than v5t's, whatever the
 * phrases' length. A *book* is the table with all texts written out. Plain data. thread: any. */
#ifndef SW_PHRASE_H
#define SW_PHRASE_H

#include "codec/params.h"
#include "codec/public/spillway_device/bits.h"

#define SW_PHRASE_MAX 255 /* phrases; as a code the escape, in a book: no phrase */
#define SW_PHRASE_MAX_BYTES 64
#define SW_PHRASE_MAX_PARTS 8

struct sw_phrase_book {
    uint8_t text[256][SW_PHRASE_MAX_BYTES]; /* zero above the length */
    uint8_t length[256];                    /* 0: no phrase */
    uint32_t n;
};

/* Writes out the texts of a table. errors: -SW_EFRAME: a phrase is not made up of shorter ones. */
int sw_phrase_book_read(struct sw_phrase_book *ret, const struct sw_params *table);

/* For encoders (phrase_core.h). Phrases that were learnt ascend by their bytes, padded with zeros, and then by their
 * length. So all those that a text begins with are found from the last one that is not greater than the text: it, its
 * parent, the parent's parent ... */
struct sw_phrase_index;
void sw_phrase_index_init(struct sw_phrase_index *ret, const struct sw_phrase_book *book);

/* The longest phrase that `in` begins with and that is not longer than `left`, or SW_PHRASE_MAX. SW_PHRASE_MAX_BYTES of
 * `in` are looked at; what they are behind `left` makes no difference. */
uint32_t sw_phrase_find_at(const struct sw_phrase_index *index, const uint8_t *in, size_t left);
/* The same at four places, in less time than one after the other. */
void sw_phrase_find_four(const struct sw_phrase_index *index, const uint8_t *const in[4], const size_t left[4],
                         uint32_t ret[4]);

/* Learns phrases from a sample whose pieces of piece_bytes are not adjacent in the column, beginning with the symbols
 * that v5t has learnt from it. raw_bytes: of the region, of which short ones are given
 * small tables. Deterministic; without memory the table is empty. */
void sw_phrase_learn(struct sw_params *ret, const struct sw_params *symbols, const uint8_t *sample, size_t sample_bytes,
                     size_t piece_bytes, uint64_t raw_bytes);

#endif

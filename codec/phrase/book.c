/* book.c - expands a table's phrases and indexes them. */
#include "base/err.h"
#include "codec/phrase/phrase_core.h"

#include <string.h>

/* Expands a phrase. Its parts, which are shorter, have been expanded before. */
static int join_parts(struct sw_phrase_book *book, const struct sw_params *table, uint32_t phrase) {
    const uint32_t length = table->length[phrase];
    uint32_t at = 0;
    for (unsigned i = 0; i < SW_PHRASE_MAX_PARTS && at < length; i++) {
        const uint8_t part = (uint8_t)(table->value[phrase] >> 8 * i);
        const uint32_t bytes = table->length[part]; /* 0: there is no such phrase */
        if (bytes == 0 || bytes >= length || bytes > length - at)
            return -SW_EFRAME;
        memcpy(book->text[phrase] + at, book->text[part], bytes);
        at += bytes;
    }
    return at == length ? 0 : -SW_EFRAME;
}

int sw_phrase_book_read(struct sw_phrase_book *ret, const struct sw_params *table) {
    memset(ret, 0, sizeof *ret);
    ret->n = table->n_symbols;
    for (uint32_t c = 0; c < ret->n; c++) {
        if (table->length[c] <= 8)
            memcpy(ret->text[c], &table->value[c], table->length[c]);
        ret->length[c] = table->length[c];
    }
    for (uint32_t length = 9; length <= SW_PHRASE_MAX_BYTES; length++)
        for (uint32_t c = 0; c < ret->n; c++)
            if (table->length[c] == length && join_parts(ret, table, c) < 0)
                return -SW_EFRAME;
    return 0;
}

/* Returns a word that is ordered like its bytes. */
static inline uint64_t word_at(const void *p, uint32_t i) {
    uint64_t v;
    memcpy(&v, (const uint8_t *)p + (size_t)8 * i, 8);
    return __builtin_bswap64(v);
}

void sw_phrase_index_init(struct sw_phrase_index *ret, const struct sw_phrase_book *book) {
    ret->n = book->n;
    for (uint32_t c = 0; c < 256; c++) {
        ret->length[c] = book->length[c];
        for (uint32_t i = 0; i < SW_PHRASE_WORDS; i++)
            ret->word[c][i] = c < book->n ? word_at(book->text[c], i) : UINT64_MAX;
    }
    for (uint32_t c = 0; c < book->n; c++)
        sw_phrase_index_one(ret, c);
}

/* The steps of one search depend on each other. Four searches at a time keep the processor busy. */
void sw_phrase_find_four(const struct sw_phrase_index *index, const uint8_t *const in[4], const size_t left[4],
                         uint32_t ret[4]) {
    uint64_t word[4];
    uint32_t n[4] = {0};
    for (unsigned i = 0; i < 4; i++)
        word[i] = word_at(in[i], 0);
    for (uint32_t step = 128; step > 0; step /= 2)
        for (unsigned i = 0; i < 4; i++)
            n[i] += -(uint32_t)(index->word[n[i] + step - 1][0] <= word[i]) & step;
    for (unsigned i = 0; i < 4; i++)
        ret[i] = sw_phrase_settle(index, (n[i] < index->n ? n[i] : index->n) - 1, word[i], word_at, in[i],
                                  left[i] < SW_PHRASE_MAX_BYTES ? (uint32_t)left[i] : SW_PHRASE_MAX_BYTES);
}

uint32_t sw_phrase_find_at(const struct sw_phrase_index *index, const uint8_t *in, size_t left) {
    return sw_phrase_find(index, word_at, in, left < SW_PHRASE_MAX_BYTES ? (uint32_t)left : SW_PHRASE_MAX_BYTES);
}

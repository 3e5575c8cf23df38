/* book.c - a table's phrases, written out, and the search for the longest at a place. */
#include "base/err.h"
#include "codec/phrase/phrase.h"

#include <string.h>

#define WORDS (SW_PHRASE_MAX_BYTES / 8)
#define NONE SW_PHRASE_MAX

/* Writes out a phrase whose parts, which are shorter, have been. */
static int join_parts(struct sw_phrase_book *book, const struct sw_v5t_table *table, uint32_t phrase) {
    const uint32_t length = table->length[phrase];
    uint32_t at = 0;
    for (unsigned i = 0; i < SW_PHRASE_MAX_PARTS && at < length; i++) {
        const uint8_t part = (uint8_t)(table->value[phrase] >> 8 * i);
        const uint32_t bytes = table->length[part]; /* 0 of what is no phrase */
        if (bytes == 0 || bytes >= length || bytes > length - at)
            return -SW_EFRAME;
        memcpy(book->text[phrase] + at, book->text[part], bytes);
        at += bytes;
    }
    return at == length ? 0 : -SW_EFRAME;
}

int sw_phrase_book_read(struct sw_phrase_book *ret, const struct sw_v5t_table *table) {
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

/* Compares as the bytes do. */
static inline uint64_t word_at(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return __builtin_bswap64(v);
}

void sw_phrase_book_index(struct sw_phrase_book *book) {
    for (uint32_t c = 0; c < 256; c++) {
        uint32_t parent = c ? c - 1 : NONE;
        book->head[c] = UINT64_MAX;
        if (c >= book->n)
            continue;
        while (parent != NONE && memcmp(book->text[parent], book->text[c], book->length[parent]) != 0)
            parent = book->parent[parent];
        book->parent[c] = (uint8_t)parent;
        book->head[c] = word_at(book->text[c]);
        book->group[c] = c && book->head[c - 1] == book->head[c] ? book->group[c - 1] : (uint8_t)c;
    }
}

/* The last phrase whose first eight bytes are not greater than `word`, or NONE. Without a branch: which way it goes is
 * as good as random. */
static inline uint32_t find_head(const struct sw_phrase_book *book, uint64_t word) {
    uint32_t n = 0;
#pragma GCC unroll 8
    for (uint32_t step = 128; step > 0; step /= 2)
        n += -(uint32_t)(book->head[n + step - 1] <= word) & step;
    return (n < book->n ? n : book->n) - 1;
}

/* Of the phrases from `low` to before `high`, which all begin as `in` does with eight bytes: the last one that is not
 * greater, or low - 1. ret: words that it has in common with `in`, if it is one of them. */
static uint32_t find_in_group(const struct sw_phrase_book *book, uint32_t low, uint32_t high, const uint8_t *in,
                              uint32_t *ret) {
    /* Of the last one before `low` and of that at `high`; all between have the fewer of them, too. */
    uint32_t low_words = 1, high_words = 1;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        uint32_t words = low_words < high_words ? low_words : high_words;
        uint64_t phrase_word = 0, word = 0;
        for (; words < WORDS && phrase_word == word; words++) {
            phrase_word = word_at(book->text[middle] + 8 * words);
            word = word_at(in + 8 * words);
        }
        words -= phrase_word != word;
        if (phrase_word <= word) {
            low = middle + 1;
            low_words = words;
        } else {
            high = middle;
            high_words = words;
        }
    }
    *ret = low_words;
    return low - 1;
}

uint32_t sw_phrase_find(const struct sw_phrase_book *book, const uint8_t *in, size_t left) {
    const uint64_t word = word_at(in);
    uint32_t phrase = find_head(book, word), words = 0;
    if (phrase < book->n && book->head[phrase] == word) {
        const uint32_t begin = book->group[phrase];
        phrase = find_in_group(book, begin, phrase + 1, in, &words);
        if (phrase + 1 == begin)
            words = 0;
    }
    if (phrase >= book->n)
        return NONE;
    size_t same = (size_t)8 * words;
    if (words < WORDS) /* they differ there */
        same += (size_t)__builtin_clzll(word_at(book->text[phrase] + same) ^ word_at(in + same)) / 8;
    same = same < left ? same : left;
    while (phrase != NONE && book->length[phrase] > same)
        phrase = book->parent[phrase];
    return phrase;
}

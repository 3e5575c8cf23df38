/* phrase_core.h - finds the longest phrase at a place, for host and device.
 *
 * An *index* holds the phrases as words that are ordered like their bytes. thread: any. */
#ifndef SW_PHRASE_CORE_H
#define SW_PHRASE_CORE_H

#include "codec/phrase/phrase.h"

#define SW_PHRASE_WORDS (SW_PHRASE_MAX_BYTES / 8)
/* Words from one phrase to the next. The number is odd, so that lanes that read the same word of different phrases have
 * few bank conflicts in shared memory. */
#define SW_PHRASE_STRIDE (SW_PHRASE_WORDS + 1)

struct sw_phrase_index {
    uint64_t word[256][SW_PHRASE_STRIDE]; /* text, the first byte highest; if there is no phrase, all bits are set */
    uint8_t length[256];
    uint8_t group[256];  /* the first phrase with the same first word */
    uint8_t parent[256]; /* the longest other phrase that the phrase begins with, or SW_PHRASE_MAX */
    uint32_t n;
};

/* Returns whether a phrase begins with another one. */
SW_HOST_DEVICE static inline int sw_phrase_begins_with(const struct sw_phrase_index *index, uint32_t phrase,
                                                       uint32_t other) {
    const uint32_t length = index->length[other], full = length / 8, rest = length % 8;
    for (uint32_t i = 0; i < full; i++)
        if (index->word[phrase][i] != index->word[other][i])
            return 0;
    return length <= index->length[phrase] &&
           (!rest || (index->word[phrase][full] ^ index->word[other][full]) >> (64 - 8 * rest) == 0);
}

/* Finds group and parent of one phrase, from words and lengths only. */
SW_HOST_DEVICE static inline void sw_phrase_index_one(struct sw_phrase_index *index, uint32_t phrase) {
    const uint64_t word = index->word[phrase][0];
    uint32_t group = phrase, parent = phrase;
    while (group > 0 && index->word[group - 1][0] == word)
        group--;
    /* A parent begins with the same byte, so the search ends at another byte. */
    while (parent > 0 && index->word[parent - 1][0] >> 56 == word >> 56 &&
           !sw_phrase_begins_with(index, phrase, parent - 1))
        parent--;
    const int has_parent = parent > 0 && index->word[parent - 1][0] >> 56 == word >> 56;
    index->group[phrase] = (uint8_t)group;
    index->parent[phrase] = (uint8_t)(has_parent ? parent - 1 : SW_PHRASE_MAX);
}

/* Finds the last phrase whose first word is not greater than `word`; UINT32_MAX: there is none. It has no branch,
 * because a branch could not be predicted. */
SW_HOST_DEVICE static inline uint32_t sw_phrase_find_word(const struct sw_phrase_index *index, uint64_t word) {
    uint32_t n = 0;
    for (uint32_t step = 128; step > 0; step /= 2)
        n += -(uint32_t)(index->word[n + step - 1][0] <= word) & step;
    return (n < index->n ? n : index->n) - 1;
}

/* Returns word i of the text to be coded, the first byte highest. */
typedef uint64_t sw_phrase_window(const void *window, uint32_t i);

/* Finds the last of the phrases `low` … `high` - 1 that is not greater than the window; low - 1: there is none. They
 * all begin with the window's first word. *ret: the number of words that the found phrase has in common with the
 * window. */
SW_HOST_DEVICE static inline uint32_t sw_phrase_find_in_group(const struct sw_phrase_index *index, uint32_t low,
                                                              uint32_t high, sw_phrase_window *word_at,
                                                              const void *window, uint32_t *ret) {
    /* Words that the window has in common with phrase `low` - 1 and with phrase `high`. All phrases between share at
     * least the smaller number. */
    uint32_t low_words = 1, high_words = 1;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        uint32_t words = low_words < high_words ? low_words : high_words;
        uint64_t phrase_word = 0, word = 0;
        for (; words < SW_PHRASE_WORDS && phrase_word == word; words++) {
            phrase_word = index->word[middle][words];
            word = word_at(window, words);
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

SW_HOST_DEVICE static inline uint32_t sw_phrase_leading_zeros(uint64_t v) {
#ifdef __CUDA_ARCH__
    return (uint32_t)__clzll((long long)v);
#else
    return (uint32_t)__builtin_clzll(v);
#endif
}

/* Second step of the search, after sw_phrase_find_word(). Finds the longest phrase that the window begins with and that
 * is not longer than `left`; SW_PHRASE_MAX: there is none. phrase: the result of sw_phrase_find_word() for `word`, the
 * window's first word. The window's bytes after `left` do not change the result. */
SW_HOST_DEVICE static inline uint32_t sw_phrase_settle(const struct sw_phrase_index *index, uint32_t phrase,
                                                       uint64_t word, sw_phrase_window *word_at, const void *window,
                                                       uint32_t left) {
    uint32_t words = 0;
    if (phrase < index->n && index->word[phrase][0] == word) {
        const uint32_t begin = index->group[phrase];
        phrase = sw_phrase_find_in_group(index, begin, phrase + 1, word_at, window, &words);
        if (phrase + 1 == begin)
            words = 0;
    }
    if (phrase >= index->n)
        return SW_PHRASE_MAX;
    uint32_t same = 8 * words;
    if (words < SW_PHRASE_WORDS) { /* phrase and window differ in this word */
        if (words)
            word = word_at(window, words);
        same += sw_phrase_leading_zeros(index->word[phrase][words] ^ word) / 8;
    }
    same = same < left ? same : left;
    while (phrase != SW_PHRASE_MAX && index->length[phrase] > same)
        phrase = index->parent[phrase];
    return phrase;
}

/* Finds the longest phrase that the window begins with and that is not longer than `left`; SW_PHRASE_MAX: none. */
SW_HOST_DEVICE static inline uint32_t sw_phrase_find(const struct sw_phrase_index *index, sw_phrase_window *word_at,
                                                     const void *window, uint32_t left) {
    const uint64_t word = word_at(window, 0);
    return sw_phrase_settle(index, sw_phrase_find_word(index, word), word, word_at, window, left);
}

#endif

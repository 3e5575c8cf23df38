/* phrase_core.h - the search for the longest phrase at a place, the same for host and device.
 *
 * An *index* holds the phrases as words that compare as their bytes do. thread: any. */
#ifndef SW_PHRASE_CORE_H
#define SW_PHRASE_CORE_H

#include "codec/phrase/phrase.h"

#define SW_PHRASE_WORDS (SW_PHRASE_MAX_BYTES / 8)
/* Of words, from one phrase to the next: an odd number, so that lanes which read the same word of different phrases
 * meet in few banks of shared memory. */
#define SW_PHRASE_STRIDE (SW_PHRASE_WORDS + 1)

struct sw_phrase_index {
    uint64_t word[256][SW_PHRASE_STRIDE]; /* text, the first byte highest; if there is no phrase, the first: all bits */
    uint8_t length[256];
    uint8_t group[256];  /* the first phrase with the same first word */
    uint8_t parent[256]; /* the longest other phrase that it begins with, or SW_PHRASE_MAX */
    uint32_t n;
};

SW_HOST_DEVICE static inline int sw_phrase_begins_with(const struct sw_phrase_index *index, uint32_t phrase,
                                                       uint32_t other) {
    const uint32_t length = index->length[other], full = length / 8, rest = length % 8;
    for (uint32_t i = 0; i < full; i++)
        if (index->word[phrase][i] != index->word[other][i])
            return 0;
    return length <= index->length[phrase] &&
           (!rest || (index->word[phrase][full] ^ index->word[other][full]) >> (64 - 8 * rest) == 0);
}

/* Fills group and parent of one phrase; looks at words and lengths only. */
SW_HOST_DEVICE static inline void sw_phrase_index_one(struct sw_phrase_index *index, uint32_t phrase) {
    const uint64_t word = index->word[phrase][0];
    uint32_t group = phrase, parent = phrase;
    while (group > 0 && index->word[group - 1][0] == word)
        group--;
    /* Those that begin with another byte are not looked at. */
    while (parent > 0 && index->word[parent - 1][0] >> 56 == word >> 56 &&
           !sw_phrase_begins_with(index, phrase, parent - 1))
        parent--;
    const int has_parent = parent > 0 && index->word[parent - 1][0] >> 56 == word >> 56;
    index->group[phrase] = (uint8_t)group;
    index->parent[phrase] = (uint8_t)(has_parent ? parent - 1 : SW_PHRASE_MAX);
}

/* The last phrase whose first word is not greater, or UINT32_MAX. Without a branch: which way it goes is as good as
 * random. */
SW_HOST_DEVICE static inline uint32_t sw_phrase_find_word(const struct sw_phrase_index *index, uint64_t word) {
    uint32_t n = 0;
    for (uint32_t step = 128; step > 0; step /= 2)
        n += -(uint32_t)(index->word[n + step - 1][0] <= word) & step;
    return (n < index->n ? n : index->n) - 1;
}

/* What is to be coded: word i from there on, the first byte highest. */
typedef uint64_t sw_phrase_window(const void *window, uint32_t i);

/* Of the phrases `low` … `high` - 1, which all begin with the window's first word: the last one that is not greater, or
 * low - 1. ret: words that it has in common with the window, if it is one of them. */
SW_HOST_DEVICE static inline uint32_t sw_phrase_find_in_group(const struct sw_phrase_index *index, uint32_t low,
                                                              uint32_t high, sw_phrase_window *word_at,
                                                              const void *window, uint32_t *ret) {
    /* Of the last one before `low` and of that at `high`; all between have the fewer of them, too. */
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

/* What follows sw_phrase_find_word(): from the phrase that it found for `word`, the window's first, to the longest that
 * the window begins with and that is not longer than `left`, or SW_PHRASE_MAX. What the window holds behind `left`
 * makes no difference. */
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
    if (words < SW_PHRASE_WORDS) { /* they differ there */
        if (words)
            word = word_at(window, words);
        same += sw_phrase_leading_zeros(index->word[phrase][words] ^ word) / 8;
    }
    same = same < left ? same : left;
    while (phrase != SW_PHRASE_MAX && index->length[phrase] > same)
        phrase = index->parent[phrase];
    return phrase;
}

SW_HOST_DEVICE static inline uint32_t sw_phrase_find(const struct sw_phrase_index *index, sw_phrase_window *word_at,
                                                     const void *window, uint32_t left) {
    const uint64_t word = word_at(window, 0);
    return sw_phrase_settle(index, sw_phrase_find_word(index, word), word, word_at, window, left);
}

#endif

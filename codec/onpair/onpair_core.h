/* onpair_core.h - the search for the longest symbol, for host and device alike, so that both choose the same codes.
 *
 * The search is a binary search on the length (Waldvogel, Varghese, Turner, Plattner, SIGCOMM 1997). A hash table has
 * each symbol of two and more bytes, and *markers*: beginnings of symbols at the lengths where the search for them
 * passes. Each entry names the longest symbol that its text begins with. So every search takes four probes, in step in
 * all lanes of a warp. An entry has only 19 bits of its text's hash. The text of the symbol that is found is compared,
 * so a wrong entry costs bytes, but is never an error. */
#ifndef SW_ONPAIR_CORE_H
#define SW_ONPAIR_CORE_H

#include "codec/public/spillway_device/bits.h"
#include <stdbool.h>
#include <stddef.h>

#define SW_ONPAIR_MAX_BYTES 16
#define SW_ONPAIR_MAX_SYMBOLS 4095 /* and the escape */
#define SW_ONPAIR_CLASSES 16
#define SW_ONPAIR_CLASS_BITS 4
#define SW_ONPAIR_MAX_RAW_BITS 12
/* The dictionary section: head, lengths of a byte each, texts. */
#define SW_ONPAIR_HEAD_BYTES 16

/* The hash table: buckets of two entries. A text is in one of two buckets, so it can be full to four fifths and more.
 * An entry: a symbol's number in 13 bits, the hash's low bits. */
#define SW_ONPAIR_NUMBER_BITS 13
#define SW_ONPAIR_NONE 8190u       /* in an entry: its text begins with no symbol of two or more bytes */
#define SW_ONPAIR_FREE 0xFFFFFFFFu /* an entry that matches no text */
#define SW_ONPAIR_NOT_FOUND 8191u  /* this and all greater numbers are no match */

/* An index of up to 2^log2 symbols, the escape included; its parts are one behind the other. */
#define SW_ONPAIR_MIN_LOG2 11u
#define SW_ONPAIR_MAX_LOG2 12u
struct sw_onpair_index {
    uint32_t (*text)[4];   /* of 2^log2 symbols, padded with zero bytes */
    uint32_t (*bucket)[2]; /* twice as many */
    uint32_t *code; /* of 2^log2 symbols: the code, at bit 16 its length, at bit 21 the symbol's; the escape's: 0 */
    uint16_t *one;  /* of 256 bytes: the symbol of one byte, or the escape */
    uint32_t log2;
};

/* Returns the length of an index. */
SW_HOST_DEVICE static inline uint32_t sw_onpair_index_bytes(uint32_t log2) {
    return ((16u + 16u + 4u) << log2) + 512u;
}

/* Finds the parts of an index in memory that is aligned to 16. */
SW_HOST_DEVICE static inline struct sw_onpair_index sw_onpair_index_at(void *memory, uint32_t log2) {
    struct sw_onpair_index ret;
    uint8_t *p = (uint8_t *)memory;
    ret.text = (uint32_t(*)[4])p;
    ret.bucket = (uint32_t(*)[2])(p + ((size_t)16 << log2));
    ret.code = (uint32_t *)(p + ((size_t)32 << log2));
    ret.one = (uint16_t *)(p + ((size_t)36 << log2));
    ret.log2 = log2;
    return ret;
}

SW_HOST_DEVICE static inline uint32_t sw_onpair_code_bits(uint32_t code) {
    return code >> 16 & 31;
}

SW_HOST_DEVICE static inline uint32_t sw_onpair_symbol_bytes(uint32_t code) {
    return code >> 21;
}

/* A text's hash is a sum over its words, so that the search adds only what it has not added yet. */
#define SW_ONPAIR_MIX0 0x9E3779B1u
#define SW_ONPAIR_MIX1 0x85EBCA77u
#define SW_ONPAIR_MIX2 0xC2B2AE3Du
#define SW_ONPAIR_MIX3 0x27D4EB2Fu
#define SW_ONPAIR_MIX_LENGTH 0x165667B1u

SW_HOST_DEVICE static inline uint32_t sw_onpair_mix(uint32_t sum, uint32_t bytes) {
    uint32_t h = sum + bytes * SW_ONPAIR_MIX_LENGTH;
    h = (h ^ h >> 15) * 0x2C1B3C6Du;
    return h ^ h >> 16;
}

SW_HOST_DEVICE static inline uint32_t sw_onpair_bucket(const struct sw_onpair_index *index, uint32_t hash,
                                                       unsigned which) {
    return (which ? hash * 0x297A2D39u : hash) >> (31 - index->log2);
}

SW_HOST_DEVICE static inline uint32_t sw_onpair_entry(uint32_t hash, uint32_t number) {
    return hash << SW_ONPAIR_NUMBER_BITS | number;
}

SW_HOST_DEVICE static inline uint32_t sw_onpair_least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Loads that are one instruction on a device. */
struct sw_onpair_words {
    uint32_t word[4];
};

SW_HOST_DEVICE static inline struct sw_onpair_words sw_onpair_load4(const uint32_t *from) {
#ifdef __CUDA_ARCH__
    const uint4 v = *(const uint4 *)from;
    return {{v.x, v.y, v.z, v.w}};
#else
    const struct sw_onpair_words ret = {{from[0], from[1], from[2], from[3]}};
    return ret;
#endif
}

/* Returns the lesser of a bucket's entries, compared with a tag. */
SW_HOST_DEVICE static inline uint32_t sw_onpair_compare(const uint32_t bucket[2], uint32_t tag) {
#ifdef __CUDA_ARCH__
    const uint2 v = *(const uint2 *)bucket;
    return min(v.x ^ tag, v.y ^ tag);
#else
    return sw_onpair_least(bucket[0] ^ tag, bucket[1] ^ tag);
#endif
}

/* Looks a text up by its hash: a symbol's number, SW_ONPAIR_NONE, or a number from SW_ONPAIR_NOT_FOUND on. */
SW_HOST_DEVICE static inline uint32_t sw_onpair_look_up(const struct sw_onpair_index *index, uint32_t hash) {
    const uint32_t tag = sw_onpair_entry(hash, 0);
    return sw_onpair_least(sw_onpair_compare(index->bucket[sw_onpair_bucket(index, hash, 0)], tag),
                           sw_onpair_compare(index->bucket[sw_onpair_bucket(index, hash, 1)], tag));
}

/* The state of a search: the longest known beginning, and the longest symbol in it. */
struct sw_onpair_search {
    uint32_t bytes, number, left;
};

/* Takes a probe of the first `bytes` bytes, whose sum is given; true: it is in the table. */
SW_HOST_DEVICE static inline bool sw_onpair_probe(const struct sw_onpair_index *index, struct sw_onpair_search *s,
                                                  uint32_t sum, uint32_t bytes) {
    const uint32_t number = sw_onpair_look_up(index, sw_onpair_mix(sum, bytes));
    const bool hit = number < SW_ONPAIR_NOT_FOUND && bytes <= s->left;
    s->bytes = hit ? bytes : s->bytes;
    s->number = hit ? number : s->number;
    return hit;
}

/* Returns whether a text's first `bytes` bytes are a symbol's text. */
SW_HOST_DEVICE static inline bool sw_onpair_is_text(const uint32_t symbol[4], const uint32_t text[4], uint32_t bytes) {
    const struct sw_onpair_words s = sw_onpair_load4(symbol);
    const uint64_t low = (uint64_t)(s.word[1] ^ text[1]) << 32 | (s.word[0] ^ text[0]);
    const uint64_t high = (uint64_t)(s.word[3] ^ text[3]) << 32 | (s.word[2] ^ text[2]);
    const uint64_t low_mask = bytes >= 8 ? ~0ull : ~(~0ull << 8 * bytes);
    const uint64_t high_mask = bytes >= 16 ? ~0ull : bytes <= 8 ? 0 : ~(~0ull << 8 * (bytes - 8));
    return !((low & low_mask) | (high & high_mask));
}

/* Finds the longest symbol that a text begins with: its entry of index->code, or the escape's. text: its next 16 bytes,
 * of which `left` (1 and more) belong to the segment. */
SW_HOST_DEVICE static inline uint32_t sw_onpair_find(const struct sw_onpair_index *index, const uint32_t text[4],
                                                     uint32_t left) {
    struct sw_onpair_search s = {1, SW_ONPAIR_NONE, left};
    const uint32_t sum1 = text[0] * SW_ONPAIR_MIX0, sum2 = sum1 + text[1] * SW_ONPAIR_MIX1;
    bool hit = sw_onpair_probe(index, &s, sum2 + (text[2] & 0xFF) * SW_ONPAIR_MIX2, 9);
    /* The half of the text that the search goes on in, and the sum before it. */
    uint32_t word = hit ? text[2] : text[0], mix = hit ? SW_ONPAIR_MIX2 : SW_ONPAIR_MIX0, sum = hit ? sum2 : 0;
    const uint32_t next_word = hit ? text[3] : text[1], next_mix = hit ? SW_ONPAIR_MIX3 : SW_ONPAIR_MIX1;
    const uint32_t next_sum = sum + word * mix;
    hit = sw_onpair_probe(index, &s, next_sum + (next_word & 0xFF) * next_mix, s.bytes + 4);
    word = hit ? next_word : word;
    mix = hit ? next_mix : mix;
    sum = hit ? next_sum : sum;
    hit = sw_onpair_probe(index, &s, sum + (word & 0xFFFFFF) * mix, s.bytes + 2);
    (void)sw_onpair_probe(index, &s, sum + (hit ? word : word & 0xFFFF) * mix, s.bytes + 1);
    if (s.number < SW_ONPAIR_NONE) {
        const uint32_t code = index->code[s.number];
        if (sw_onpair_is_text(index->text[s.number], text, sw_onpair_symbol_bytes(code)))
            return code;
    }
    return index->code[index->one[text[0] & 0xFF]];
}

#endif

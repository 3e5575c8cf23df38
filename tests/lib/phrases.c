#include "tests/lib/phrases.h"

#include "base/assert.h"
#include "codec/plan/plan.h"
#include "tests/lib/content.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct phrase {
    uint8_t text[SW_PHRASE_MAX_BYTES];
    uint32_t length, number; /* by which others name it as a part */
    uint32_t parts[SW_PHRASE_MAX_PARTS];
};

static int by_text(const void *left, const void *right) {
    const struct phrase *a = left, *b = right;
    const int order = memcmp(a->text, b->text, sizeof a->text);
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

static struct phrase draw_text(unsigned letters, uint64_t *state) {
    struct phrase p = {.length = 1 + (uint32_t)(sw_random(state) % 8)};
    for (uint32_t i = 0; i < p.length; i++)
        p.text[i] = (uint8_t)(sw_random(state) % letters);
    return p;
}

/* Returns a phrase of existing ones; shorter than 9 bytes if they do not fit. */
static struct phrase draw_parts(const struct phrase *phrases, uint32_t n, uint64_t *state) {
    struct phrase p = {.length = 0};
    const uint32_t n_parts = 2 + (uint32_t)(sw_random(state) % (SW_PHRASE_MAX_PARTS - 1));
    for (uint32_t i = 0; i < n_parts; i++) {
        const struct phrase *part = &phrases[sw_random(state) % n];
        if (p.length + part->length > SW_PHRASE_MAX_BYTES)
            break;
        memcpy(p.text + p.length, part->text, part->length);
        p.parts[i] = part->number;
        p.length += part->length;
    }
    return p;
}

void sw_phrases_table(struct sw_params *ret, unsigned n, unsigned letters, uint64_t seed) {
    struct phrase phrases[SW_PHRASE_MAX];
    uint32_t code_of[SW_PHRASE_MAX], n_phrases = 0;
    uint64_t state = seed;
    SW_ASSERT(n <= SW_PHRASE_MAX);
    for (unsigned tries = 0; n_phrases < n && tries < 2000; tries++) {
        const bool is_text = n_phrases < n / 4 || sw_random(&state) % 8 == 0;
        struct phrase p = is_text || !n_phrases ? draw_text(letters, &state) : draw_parts(phrases, n_phrases, &state);
        bool is_new = is_text || p.length > 8;
        for (uint32_t i = 0; i < n_phrases && is_new; i++)
            is_new = by_text(&phrases[i], &p) != 0;
        p.number = n_phrases;
        if (is_new)
            phrases[n_phrases++] = p;
    }
    qsort(phrases, n_phrases, sizeof *phrases, by_text);
    for (uint32_t c = 0; c < n_phrases; c++)
        code_of[phrases[c].number] = c;
    memset(ret, 0, sizeof *ret);
    ret->n_symbols = n_phrases;
    for (uint32_t c = 0; c < n_phrases; c++) {
        ret->length[c] = (uint8_t)phrases[c].length;
        if (phrases[c].length <= 8)
            memcpy(&ret->value[c], phrases[c].text, 8);
        for (unsigned i = 0; phrases[c].length > 8 && i < SW_PHRASE_MAX_PARTS; i++)
            ret->value[c] |= (uint64_t)code_of[phrases[c].parts[i]] << 8 * i;
    }
}

void sw_phrases_fill(uint8_t *ret, size_t bytes, const struct sw_params *table, uint64_t seed) {
    struct sw_phrase_book book;
    uint64_t state = seed;
    SW_ASSERT(sw_phrase_book_read(&book, table) == 0);
    for (size_t at = 0; at < bytes;) {
        const uint64_t draw = sw_random(&state);
        const uint32_t c = (uint32_t)(draw >> 8) % book.n;
        const bool is_stray = draw % 64 == 0;
        const size_t length = is_stray ? 1 : book.length[c], left = bytes - at;
        if (is_stray)
            ret[at] = (uint8_t)(draw >> 56);
        else
            memcpy(ret + at, book.text[c], length < left ? length : left);
        at += length;
    }
}

void sw_phrases_learn(struct sw_params *ret, const uint8_t *data, size_t bytes) {
    const size_t sample_bytes = bytes < SW_SAMPLE_MAX_BYTES ? bytes : SW_SAMPLE_MAX_BYTES;
    struct sw_params symbols;
    sw_v5t_table_train(&symbols, data, sample_bytes, SW_SAMPLE_SHORT_PIECE_BYTES);
    sw_phrase_learn(ret, &symbols, data, sample_bytes, SW_SAMPLE_LONG_PIECE_BYTES, bytes);
}

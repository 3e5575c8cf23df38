/* v5t_decode_host.c - codes back to bytes.
 *
 * Everything that addresses is checked before it is used: the room before a run of unchecked stores, every code against
 * the table. */
#include "codec/v5t/streams.h"
#include "codec/v5t/v5t_host.h"

#include <stdbool.h>
#include <string.h>

void sw_v5t_decoder_init(struct sw_v5t_decoder *ret, const struct sw_v5t_table *table) {
    memcpy(ret->value, table->value, sizeof ret->value);
    memcpy(ret->length, table->length, sizeof ret->length);
    ret->has_all_codes = table->n_symbols == SW_V5T_MAX_SYMBOLS;
}

static inline uint32_t load32(const uint8_t *p) {
    uint32_t word;
    memcpy(&word, p, 4);
    return word;
}

static inline bool has_escape(uint32_t word) {
    return (~word - 0x01010101u) & word & 0x80808080u;
}

/* One code byte, with all checks. */
static inline void put_code(const struct sw_v5t_decoder *d, struct sw_sink *s, uint8_t code) {
    size_t left = (size_t)(s->end - s->to), length = d->length[code];
    if (s->in_escape) {
        s->in_escape = false;
        *s->to++ = code;
    } else if (code == SW_V5T_ESCAPE) {
        s->in_escape = true;
    } else if (length == 0 || length > left) {
        s->is_bad = true;
    } else {
        memcpy(s->to, &d->value[code], left >= 8 ? 8 : length);
        s->to += length;
    }
}

/* Four codes, none an escape, with room for four times 8 bytes; returns false for a code that is not in the table. */
static inline bool put_word(const struct sw_v5t_decoder *d, uint8_t **to, uint32_t word, bool has_all_codes) {
    bool are_known = true;
#pragma GCC unroll 4
    for (unsigned i = 0; i < 4; i++) {
        uint8_t code = (uint8_t)(word >> 8 * i);
        memcpy(*to, &d->value[code], 8);
        *to += d->length[code];
        are_known &= has_all_codes || d->length[code] != 0;
    }
    return are_known;
}

/* Words as long as they can be decoded by put_word(); moves `run` on. */
static inline __attribute__((always_inline)) void put_plain_words(const struct sw_v5t_decoder *d, struct sw_sink *s,
                                                                  struct sw_run *run, bool has_all_codes) {
    const uint8_t *words = run->words;
    uint8_t *to = s->to;
    uint32_t n = run->n;
    for (; n && s->end - to >= 32; n--, words += run->stride) {
        uint32_t word = load32(words);
        if (has_escape(word))
            break;
        if (!put_word(d, &to, word, has_all_codes)) {
            s->is_bad = true;
            break;
        }
    }
    s->to = to;
    run->words = words;
    run->n = n;
}

static void put_run(const void *decoder, struct sw_sink *s, struct sw_run run) {
    const struct sw_v5t_decoder *d = decoder;
    while (run.n && s->to < s->end && !s->is_bad) {
        if (!s->in_escape) {
            if (d->has_all_codes)
                put_plain_words(d, s, &run, true);
            else
                put_plain_words(d, s, &run, false);
            if (!run.n)
                return;
        }
        uint32_t word = load32(run.words);
        for (unsigned i = 0; i < 4 && s->to < s->end && !s->is_bad; i++)
            put_code(d, s, (uint8_t)(word >> 8 * i));
        run.words += run.stride;
        run.n--;
    }
}

int sw_v5t_decode_tile(const struct sw_v5t_decoder *decoder, const uint8_t *data, size_t data_bytes,
                       const uint8_t counts[SW_TILE_SEGMENTS], unsigned segment_log2, uint8_t *out, size_t out_bytes) {
    return sw_streams_decode_tile(put_run, decoder, data, data_bytes, counts, segment_log2, out, out_bytes);
}

int sw_v5t_decode_segment(const struct sw_v5t_decoder *decoder, const uint8_t *data, size_t data_bytes,
                          const uint8_t counts[SW_TILE_SEGMENTS], unsigned segment_log2, size_t tile_bytes,
                          unsigned segment, uint8_t *out, size_t *ret_bytes) {
    return sw_streams_decode_segment(put_run, decoder, data, data_bytes, counts, segment_log2, tile_bytes, segment, out,
                                     ret_bytes);
}

/* v5t_decode_host.c - decodes codes on the host.
 *
 * Every code is checked against the table, and the room is checked before a run of unchecked stores. */
#include "codec/streams/streams.h"
#include "codec/v5t/v5t_host.h"

#include <stdbool.h>
#include <string.h>

void sw_v5t_decoder_init(struct sw_v5t_decoder *ret, const struct sw_params *table) {
    memcpy(ret->value, table->value, sizeof table->value);
    memcpy(ret->length, table->length, sizeof table->length);
    for (unsigned literal = 0; literal < 256; literal++) {
        ret->value[SW_V5T_LITERALS + literal] = literal;
        ret->length[SW_V5T_LITERALS + literal] = 1;
    }
    ret->has_all_codes = table->n_symbols == SW_FRAME_MAX_SYMBOLS;
}

enum { STEP = 8, STEP_BYTES = STEP * SW_V5T_MAX_SYMBOL_BYTES }; /* code bytes that are loaded as one word, their room */

static inline uint64_t load_step(const uint8_t *codes) {
    uint64_t step;
    memcpy(&step, codes, STEP);
    return step;
}

/* Decodes any step, up to the sink's end. Needs room for a step. It has no branch, because a branch could not be
 * predicted. */
static __attribute__((noinline)) void put_any(const struct sw_v5t_decoder *d, struct sw_sink *s, const uint8_t *codes) {
    const uint8_t *const end = s->end;
    uint8_t *to = s->to;
    uint32_t in_escape = s->in_escape, are_known = true;
#pragma GCC unroll 8
    for (unsigned i = 0; i < STEP; i++) {
        const uint32_t row = in_escape * SW_V5T_LITERALS + codes[i], is_wanted = to < end;
        memcpy(to, &d->value[row], 8);
        in_escape = is_wanted & (row == SW_STREAMS_ESCAPE);
        are_known &= (is_wanted ^ 1) | in_escape | (d->length[row] != 0);
        to += is_wanted * d->length[row];
    }
    s->to = to;
    s->in_escape = in_escape;
    s->is_bad = !are_known;
}

/* Decodes steps without an escape, except for the last step; returns the first code that is left. */
static inline __attribute__((always_inline)) const uint8_t *put_plain(const struct sw_v5t_decoder *d, struct sw_sink *s,
                                                                      const uint8_t *codes, const uint8_t *codes_end,
                                                                      bool has_all_codes) {
    const uint8_t *const end = s->end;
    uint8_t *to = s->to;
    for (; codes_end - codes > STEP && s->limit - to >= STEP_BYTES; codes += STEP) {
        const uint64_t step = load_step(codes);
        uint8_t *next = to;
        bool are_known = true;
        if (sw_streams_has_escape(step))
            break;
#pragma GCC unroll 8
        for (unsigned i = 0; i < STEP; i++) {
            const uint8_t code = (uint8_t)(step >> 8 * i);
            memcpy(next, &d->value[code], 8);
            next += d->length[code];
            are_known &= has_all_codes || d->length[code] != 0;
        }
        if (next > end || !are_known) /* padding, or invalid codes: put_any() finds out which */
            break;
        to = next;
    }
    s->to = to;
    return codes;
}

/* Decodes one code byte, with all checks. */
static inline void put_code(const struct sw_v5t_decoder *d, struct sw_sink *s, uint8_t code) {
    const uint32_t row = s->in_escape * SW_V5T_LITERALS + code;
    const size_t length = d->length[row];
    s->in_escape = row == SW_STREAMS_ESCAPE;
    s->is_bad = length > (size_t)(s->end - s->to) || (length == 0 && !s->in_escape);
    if (s->is_bad)
        return;
    memcpy(s->to, &d->value[row], length);
    s->to += length;
}

static void put_stream(const void *decoder, struct sw_sink *s, const uint8_t *codes, uint32_t n_words) {
    const struct sw_v5t_decoder *d = decoder;
    const uint8_t *const end = codes + (size_t)4 * n_words;
    for (;; codes += STEP) {
        if (!s->in_escape)
            codes = d->has_all_codes ? put_plain(d, s, codes, end, true) : put_plain(d, s, codes, end, false);
        if (end - codes < STEP || s->limit - s->to < STEP_BYTES || s->to >= s->end || s->is_bad)
            break;
        put_any(d, s, codes);
    }
    for (; codes < end && s->to < s->end && !s->is_bad; codes++)
        put_code(d, s, *codes);
}

int sw_v5t_decode_tile(const struct sw_v5t_decoder *decoder, const uint8_t *data, size_t data_bytes,
                       const uint8_t counts[SW_TILE_SEGMENTS], unsigned segment_log2, uint8_t *out, size_t out_bytes) {
    return sw_streams_decode_tile(put_stream, decoder, data, data_bytes, counts, segment_log2, out, out_bytes);
}

int sw_v5t_decode_segment(const struct sw_v5t_decoder *decoder, const uint8_t *data, size_t data_bytes,
                          const uint8_t counts[SW_TILE_SEGMENTS], unsigned segment_log2, size_t tile_bytes,
                          unsigned segment, uint8_t *out, size_t *ret_bytes) {
    return sw_streams_decode_segment(put_stream, decoder, data, data_bytes, counts, segment_log2, tile_bytes, segment,
                                     out, ret_bytes);
}

/* The host decoder of v5t against one that takes a code at a time, on tiles made by hand: good ones, and ones in which
 * a code is unknown or passes the segment's end, or the stream ends early or goes on. */
#include "base/err.h"
#include "codec/streams/streams.h"
#include "codec/v5t/v5t_host.h"
#include "tests/lib/guard.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { SEGMENT_LOG2 = 8, SEGMENT_BYTES = 1 << SEGMENT_LOG2, MOST_CODES = 4 * (SEGMENT_BYTES / 4 - 1), N_TILES = 300 };
enum flaw { NO_FLAW, UNKNOWN, TOO_LONG, ENDS_EARLY, ENDS_ESCAPED, GOES_ON, N_FLAWS };

/* A code stream, padded to words. */
struct stream {
    uint8_t codes[MOST_CODES];
    size_t n;
};

struct tile {
    struct sw_params table;
    unsigned escapes_in_64; /* of 64 codes */
    unsigned n_segments;
    struct stream streams[SW_TILE_SEGMENTS];
};

static unsigned below(unsigned n) {
    return (unsigned)rand() % n;
}

static void table_init(struct sw_params *ret, unsigned n_symbols) {
    memset(ret, 0, sizeof *ret);
    ret->n_symbols = n_symbols;
    for (unsigned c = 0; c < n_symbols; c++) {
        ret->length[c] = (uint8_t)(1 + c % 8);
        for (unsigned i = 0; i < ret->length[c]; i++)
            ret->value[c] |= (uint64_t)(uint8_t)(c + 31 * i + 1) << 8 * i;
    }
}

/* Codes of exactly that many bytes; false: they are too many to be stored. */
static bool fill(const struct tile *tile, struct stream *s, size_t bytes) {
    for (s->n = 0; bytes > 0;) {
        if (s->n + 2 > MOST_CODES)
            return false;
        uint8_t code = (uint8_t)below(tile->table.n_symbols);
        if (below(64) < tile->escapes_in_64 || tile->table.length[code] > bytes) {
            s->codes[s->n++] = SW_STREAMS_ESCAPE;
            s->codes[s->n++] = below(4) ? (uint8_t)below(256) : SW_STREAMS_ESCAPE;
            bytes--;
        } else {
            s->codes[s->n++] = code;
            bytes -= tile->table.length[code];
        }
    }
    return true;
}

static void spoil(const struct tile *tile, struct stream *s, enum flaw flaw) {
    const size_t at = below((unsigned)s->n);
    switch (flaw) {
    case UNKNOWN:
        s->codes[at] = (uint8_t)tile->table.n_symbols; /* in a full table the escape */
        break;
    case TOO_LONG:
        s->codes[s->n - 1] = (uint8_t)(tile->table.n_symbols - 1);
        break;
    case ENDS_EARLY:
        s->n -= 1 + below(s->n < 9 ? (unsigned)s->n - 1 : 8);
        break;
    case ENDS_ESCAPED:
        s->codes[s->n - 1] = SW_STREAMS_ESCAPE;
        break;
    case GOES_ON:
        for (unsigned more = 1 + below(12); more > 0 && s->n < MOST_CODES; more--)
            s->codes[s->n++] = (uint8_t)below(256);
        break;
    default:
        break;
    }
}

static void pad(struct stream *s) {
    while (s->n % 4)
        s->codes[s->n++] = 0;
}

/* FORMAT.md, word by word. */
static int decode_by_one(const struct sw_params *table, const struct stream *s, uint8_t *out) {
    size_t at = 0;
    bool in_escape = false;
    for (size_t i = 0; i < s->n && at < SEGMENT_BYTES; i++) {
        const uint8_t code = s->codes[i];
        if (in_escape) {
            out[at++] = code;
            in_escape = false;
        } else if (code == SW_STREAMS_ESCAPE) {
            in_escape = true;
        } else if (code >= table->n_symbols || at + table->length[code] > SEGMENT_BYTES) {
            return -SW_EFRAME;
        } else {
            memcpy(out + at, &table->value[code], table->length[code]);
            at += table->length[code];
        }
    }
    return at == SEGMENT_BYTES ? 0 : -SW_EFRAME;
}

/* Rows and tails; returns their bytes. */
static size_t store(const struct tile *tile, uint8_t *to, uint8_t counts[SW_TILE_SEGMENTS]) {
    size_t rows = MOST_CODES, used = 0;
    memset(counts, 0, SW_TILE_SEGMENTS);
    for (unsigned i = 0; i < tile->n_segments; i++) {
        counts[i] = (uint8_t)(tile->streams[i].n / 4);
        rows = counts[i] < rows ? counts[i] : rows;
    }
    for (size_t r = 0; r < rows; r++)
        for (unsigned i = 0; i < tile->n_segments; i++, used += 4)
            memcpy(to + used, tile->streams[i].codes + 4 * r, 4);
    for (unsigned i = 0; i < tile->n_segments; i++) {
        memcpy(to + used, tile->streams[i].codes + 4 * rows, tile->streams[i].n - 4 * rows);
        used += tile->streams[i].n - 4 * rows;
    }
    return used;
}

static void check_tile(const struct tile *tile) {
    static uint8_t stored[SW_TILE_SEGMENTS * MOST_CODES], expected[SW_TILE_SEGMENTS * SEGMENT_BYTES];
    const size_t bytes = (size_t)tile->n_segments << SEGMENT_LOG2;
    uint8_t counts[SW_TILE_SEGMENTS];
    const size_t data_bytes = store(tile, stored, counts);
    struct sw_guard data = sw_guard_new(data_bytes, SW_GUARD_AT_END), out = sw_guard_new(bytes, SW_GUARD_AT_END),
                    segment = sw_guard_new(SEGMENT_BYTES, SW_GUARD_AT_END);
    struct sw_v5t_decoder decoder;
    int all = 0;
    memcpy(data.data, stored, data_bytes);
    sw_v5t_decoder_init(&decoder, &tile->table);
    for (unsigned i = 0; i < tile->n_segments; i++) {
        uint8_t *want = expected + ((size_t)i << SEGMENT_LOG2);
        size_t got = 0;
        const int r = decode_by_one(&tile->table, &tile->streams[i], want);
        all = r < 0 ? r : all;
        ck_assert_int_eq(
            sw_v5t_decode_segment(&decoder, data.data, data_bytes, counts, SEGMENT_LOG2, bytes, i, segment.data, &got),
            r);
        ck_assert(r < 0 || (got == SEGMENT_BYTES && memcmp(segment.data, want, got) == 0));
    }
    ck_assert_int_eq(sw_v5t_decode_tile(&decoder, data.data, data_bytes, counts, SEGMENT_LOG2, out.data, bytes), all);
    ck_assert(all < 0 || memcmp(out.data, expected, bytes) == 0);
    sw_guard_free(&data);
    sw_guard_free(&out);
    sw_guard_free(&segment);
}

static const unsigned symbols[] = {8, 40, 254, 255};

START_TEST(test_tiles_are_decoded_as_by_one_code_at_a_time) {
    static const unsigned escapes_in_64[] = {0, 2, 24};
    static struct tile tile;
    srand((unsigned)_i + 1);
    table_init(&tile.table, symbols[_i]);
    for (unsigned n = 0; n < N_TILES; n++) {
        const enum flaw flaw = (enum flaw)(n % N_FLAWS);
        tile.escapes_in_64 = escapes_in_64[below(3)];
        tile.n_segments = n % 3 ? 1 + below(SW_TILE_SEGMENTS) : SW_TILE_SEGMENTS;
        const unsigned spoilt = below(tile.n_segments);
        for (unsigned i = 0; i < tile.n_segments; i++) {
            while (!fill(&tile, &tile.streams[i], SEGMENT_BYTES))
                tile.escapes_in_64 /= 2;
            if (i == spoilt)
                spoil(&tile, &tile.streams[i], flaw);
            pad(&tile.streams[i]);
        }
        check_tile(&tile);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codec_v5t_decode");
    TCase *tcase = tcase_create("codec_v5t_decode");
    tcase_add_loop_test(tcase, test_tiles_are_decoded_as_by_one_code_at_a_time, 0,
                        (int)(sizeof symbols / sizeof symbols[0]));
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

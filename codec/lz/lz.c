/* lz.c - LZSS on the host (FORMAT.md): finds greedy matches by chains of equal symbols, and stores blocks. */
#include "codec/lz/lz.h"

#include "base/alloc.h"
#include "codec/checksum.h"
#include "codec/codec_ops.h"
#include "codec/lz/lz_core.h"

#include <string.h>

struct encoder {
    unsigned symbol_bytes, window;
};

struct symbols {
    uint32_t value[SW_LZ_MAX_SYMBOLS];
    unsigned n, bytes; /* bytes: a symbol's length */
};

/* A block as tokens. distance: a match's distance, at the match's first symbol. */
struct tokens {
    uint32_t begins[SW_LZ_MAX_MASKS], matches[SW_LZ_MAX_MASKS]; /* a bit for each symbol */
    uint8_t distance[SW_LZ_MAX_SYMBOLS];
    unsigned n, n_matches;
};

static void load_symbols(struct symbols *ret, const uint8_t *in, size_t bytes, unsigned symbol_bytes) {
    memset(ret->value, 0, sizeof ret->value);
    ret->bytes = symbol_bytes;
    ret->n = (unsigned)((bytes + symbol_bytes - 1) / symbol_bytes);
    for (unsigned i = 0; i < ret->n; i++) {
        const size_t at = (size_t)i * symbol_bytes, left = bytes - at;
        memcpy(&ret->value[i], in + at, left < symbol_bytes ? left : symbol_bytes);
    }
}

/* Chains of symbols that may be equal: the last symbol of each chain, and for each symbol the one before it. */
#define HASH_LOG2 10
struct chains {
    uint16_t last[1 << HASH_LOG2], before[SW_LZ_MAX_SYMBOLS]; /* 1 more than the symbol's number; 0: none */
};

static void chain_symbol(struct chains *c, uint32_t value, unsigned i) {
    uint16_t *last = &c->last[value * 0x9E3779B1u >> (32 - HASH_LOG2)];
    c->before[i] = *last;
    *last = (uint16_t)(i + 1);
}

static unsigned run_length(const struct symbols *s, unsigned at, unsigned distance, unsigned most) {
    unsigned n = 0;
    while (n < most && at + n < s->n && s->value[at + n] == s->value[at + n - distance])
        n++;
    return n;
}

/* Returns the length of the best match at symbol `at`, at most SW_LZ_SEARCH, and its distance. */
static unsigned find_match(const struct symbols *s, const struct chains *c, unsigned at, unsigned window,
                           unsigned *ret_distance) {
    unsigned best = 0;
    for (unsigned from = c->before[at]; from && best < SW_LZ_SEARCH; from = c->before[from - 1]) {
        const unsigned distance = at - (from - 1);
        if (distance > window)
            break;
        const unsigned n = run_length(s, at, distance, SW_LZ_SEARCH);
        if (n > best) {
            best = n;
            *ret_distance = distance;
        }
    }
    return best;
}

static void find_tokens(struct tokens *ret, const struct symbols *s, unsigned window) {
    struct chains chains;
    memset(chains.last, 0, sizeof chains.last);
    for (unsigned i = 0; i < s->n; i++)
        chain_symbol(&chains, s->value[i], i);
    memset(ret, 0, sizeof *ret);
    for (unsigned at = 0, step = 1; at < s->n; at += step, ret->n++) {
        unsigned distance = 0, n = find_match(s, &chains, at, window, &distance);
        ret->begins[at / 32] |= 1u << at % 32;
        step = 1;
        if (n < sw_lz_least_match(s->bytes))
            continue;
        step = n < SW_LZ_SEARCH ? n : run_length(s, at, distance, s->n);
        ret->matches[at / 32] |= 1u << at % 32;
        ret->distance[at] = (uint8_t)distance;
        ret->n_matches++;
    }
}

static unsigned count_masks(const struct tokens *t) {
    unsigned n = 0;
    for (unsigned i = 0; i < SW_LZ_MAX_MASKS; i++)
        n += t->begins[i] != 0;
    return n;
}

static void put_masks(const struct tokens *t, unsigned groups, uint8_t *out) {
    uint32_t words[SW_LZ_MAX_MASKS + 4] = {0};
    unsigned n = groups;
    for (unsigned i = 0; i < 32 * groups; i++)
        if (t->begins[i]) {
            words[i / 32] |= 1u << i % 32;
            words[n++] = t->begins[i];
        }
    memcpy(out, words, n * sizeof words[0]);
}

static void put_tokens(const struct tokens *t, const struct symbols *s, const struct sw_lz_parts *p, uint8_t *out) {
    uint8_t *distances = out + p->distances, *literals = out + p->literals;
    unsigned token = 0;
    for (unsigned i = 0; i < s->n; i++) {
        const uint32_t bit = 1u << i % 32;
        if (!(t->begins[i / 32] & bit))
            continue;
        if (t->matches[i / 32] & bit) {
            out[p->kinds + token / 8] |= (uint8_t)(1u << token % 8);
            *distances++ = t->distance[i];
        } else {
            memcpy(literals, &s->value[i], s->bytes);
            literals += s->bytes;
        }
        token++;
    }
}

/* Stores a block of `bytes` of content; returns its length in units. */
static unsigned encode_block(const struct encoder *e, const uint8_t *in, size_t bytes, uint8_t *out) {
    struct symbols symbols;
    struct tokens tokens;
    const unsigned whole = sw_lz_units((unsigned)bytes);
    load_symbols(&symbols, in, bytes, e->symbol_bytes);
    find_tokens(&tokens, &symbols, e->window);
    const struct sw_lz_parts parts = sw_lz_parts_of(e->symbol_bytes, count_masks(&tokens), tokens.n, tokens.n_matches);
    const unsigned units = sw_lz_units(parts.end);
    memset(out, 0, (size_t)(units < whole ? units : whole) * SW_UNIT_BYTES);
    if (units >= whole) {
        memcpy(out, in, bytes);
        return whole;
    }
    put_masks(&tokens, sw_lz_groups(e->symbol_bytes), out);
    put_tokens(&tokens, &symbols, &parts, out);
    return units;
}

static size_t block_bytes(size_t tile_bytes, unsigned block) {
    const size_t at = (size_t)block * SW_LZ_BLOCK_BYTES;
    return at >= tile_bytes ? 0 : tile_bytes - at < SW_LZ_BLOCK_BYTES ? tile_bytes - at : SW_LZ_BLOCK_BYTES;
}

static void *encoder_new(const struct sw_plan *plan) {
    struct encoder *e = sw_alloc(sizeof *e);
    const unsigned symbol_bytes = sw_lz_symbol_bytes(plan->value_type);
    if (e)
        *e = (struct encoder){symbol_bytes, sw_lz_window(plan->params.own[SW_LZ_WINDOW], symbol_bytes)};
    return e;
}

/* Longer windows take longer, so each has to gain this much. */
#define WINDOW_GAIN 0.97

/* Chooses the window by encoding the sample. */
static void learn(struct sw_plan *plan, const void *sample, size_t sample_bytes) {
    static const uint32_t windows[] = {SW_LZ_MIN_WINDOW, 64, 128, SW_LZ_MAX_DISTANCE};
    const uint8_t *in = sample;
    uint8_t out[SW_LZ_BLOCK_BYTES];
    double least = 0;
    for (unsigned w = 0; w < sizeof windows / sizeof windows[0]; w++) {
        const struct encoder e = {sw_lz_symbol_bytes(plan->value_type), windows[w]};
        double units = 0;
        for (size_t at = 0; at < sample_bytes; at += SW_LZ_BLOCK_BYTES)
            units += encode_block(&e, in + at,
                                  sample_bytes - at < SW_LZ_BLOCK_BYTES ? sample_bytes - at : SW_LZ_BLOCK_BYTES, out);
        if (w > 0 && units > WINDOW_GAIN * least)
            continue;
        least = units;
        plan->params.own[SW_LZ_WINDOW] = windows[w];
    }
}

static size_t encode_tile(const void *encoder, const uint8_t *in, size_t in_bytes, unsigned segment_log2, uint8_t *out,
                          uint8_t *counts) {
    uint16_t units[SW_LZ_TILE_BLOCKS] = {0};
    size_t at = 0;
    (void)segment_log2;
    for (unsigned i = 0; i < SW_LZ_TILE_BLOCKS && block_bytes(in_bytes, i); i++) {
        units[i] =
            (uint16_t)encode_block(encoder, in + (size_t)i * SW_LZ_BLOCK_BYTES, block_bytes(in_bytes, i), out + at);
        at += (size_t)units[i] * SW_UNIT_BYTES;
    }
    memcpy(counts, units, sizeof units);
    return at;
}

/* ---- decoding ---- */

/* A stored block: its words, padded with zeros, and the positions of its parts. */
struct stored {
    uint32_t words[SW_LZ_BLOCK_BYTES / 4];
    uint32_t begins[SW_LZ_MAX_MASKS];
    struct sw_lz_parts parts;
};

static uint32_t kind_word(const struct stored *s, unsigned token, unsigned n_tokens) {
    const unsigned left = n_tokens - token;
    return s->words[s->parts.kinds / 4 + token / 32] & sw_low_bits(left);
}

/* Reads the masks and finds the parts. errors: -SW_EFRAME. */
static int open_block(struct stored *ret, const uint8_t *from, unsigned bytes, unsigned symbol_bytes) {
    const unsigned groups = sw_lz_groups(symbol_bytes);
    unsigned n_masks = 0, n_tokens = 0, n_matches = 0;
    memset(ret->words, 0, sizeof ret->words);
    memcpy(ret->words, from, bytes);
    for (unsigned i = 0; i < 32 * groups; i++) {
        const bool is_there = ret->words[i / 32] >> i % 32 & 1;
        if (is_there && 4 * (groups + n_masks) >= bytes)
            return -SW_EFRAME;
        ret->begins[i] = is_there ? ret->words[groups + n_masks++] : 0;
        n_tokens += (unsigned)__builtin_popcount(ret->begins[i]);
    }
    ret->parts = sw_lz_parts_of(symbol_bytes, n_masks, n_tokens, 0);
    if (ret->parts.distances > bytes)
        return -SW_EFRAME;
    for (unsigned i = 0; i < n_tokens; i += 32)
        n_matches += (unsigned)__builtin_popcount(kind_word(ret, i, n_tokens));
    ret->parts = sw_lz_parts_of(symbol_bytes, n_masks, n_tokens, n_matches);
    return ret->parts.end <= bytes ? 0 : -SW_EFRAME;
}

/* Writes the block's n symbols. errors: -SW_EFRAME. */
static int copy_tokens(const struct stored *s, unsigned n, unsigned symbol_bytes, uint8_t *out) {
    const uint8_t *words = (const uint8_t *)s->words;
    const uint8_t *distances = words + s->parts.distances, *literals = words + s->parts.literals;
    unsigned token = 0, distance = 0; /* distance 0: a literal */
    for (unsigned i = 0; i < n; i++) {
        if (s->begins[i / 32] >> i % 32 & 1) {
            const bool is_match = words[s->parts.kinds + token / 8] >> token % 8 & 1;
            distance = is_match ? *distances++ : 0;
            if (is_match && (distance == 0 || distance > i))
                return -SW_EFRAME;
            token++;
        } else if (distance == 0) {
            return -SW_EFRAME;
        }
        uint8_t *to = out + (size_t)i * symbol_bytes;
        memcpy(to, distance ? to - (size_t)distance * symbol_bytes : literals, symbol_bytes);
        literals += distance ? 0 : symbol_bytes;
    }
    return 0;
}

/* Decodes a block into `out`, which has room for `bytes`, the length of its content. errors: -SW_EFRAME. */
static int decode_block(const uint8_t *from, unsigned units, unsigned symbol_bytes, uint8_t *out, size_t bytes) {
    struct stored stored;
    uint8_t room[SW_LZ_BLOCK_BYTES];
    if (units == sw_lz_units((unsigned)bytes)) {
        memcpy(out, from, bytes);
        return 0;
    }
    int r = open_block(&stored, from, units * SW_UNIT_BYTES, symbol_bytes);
    if (r == 0)
        r = copy_tokens(&stored, (unsigned)((bytes + symbol_bytes - 1) / symbol_bytes), symbol_bytes, room);
    if (r == 0)
        memcpy(out, room, bytes);
    return r;
}

/* Finds a block of a tile at *at, the end of the block before it, and moves *at to its end. errors: -SW_EFRAME. */
static int next_block(const struct sw_tile_view *tile, unsigned block, size_t *at, const uint8_t **ret_from,
                      unsigned *ret_units) {
    uint16_t units;
    memcpy(&units, tile->counts + sizeof units * block, sizeof units);
    if (units > sw_lz_units((unsigned)block_bytes(tile->tile_bytes, block)) ||
        (size_t)units * SW_UNIT_BYTES > tile->data_bytes - *at)
        return -SW_EFRAME;
    *ret_from = tile->data + *at;
    *ret_units = units;
    *at += (size_t)units * SW_UNIT_BYTES;
    return 0;
}

struct decoder {
    unsigned symbol_bytes;
};
SW_CHECK_DECODER(struct decoder);

static int decoder_init(void *ret, const struct sw_frame_layout *layout, const uint8_t *frame) {
    (void)frame;
    *(struct decoder *)ret = (struct decoder){sw_lz_symbol_bytes(layout->value_type)};
    return 0;
}

static int decode_tile(const void *decoder, const struct sw_tile_view *tile, uint8_t *out) {
    const unsigned symbol_bytes = ((const struct decoder *)decoder)->symbol_bytes;
    const uint8_t *from;
    unsigned units;
    size_t at = 0;
    int r = 0;
    for (unsigned i = 0; r == 0 && i < SW_LZ_TILE_BLOCKS && block_bytes(tile->tile_bytes, i); i++) {
        r = next_block(tile, i, &at, &from, &units);
        if (r == 0)
            r = decode_block(from, units, symbol_bytes, out + (size_t)i * SW_LZ_BLOCK_BYTES,
                             block_bytes(tile->tile_bytes, i));
    }
    return r;
}

static int decode_segment(const void *decoder, const struct sw_tile_view *tile, unsigned segment, uint8_t *out,
                          size_t *ret_bytes) {
    const size_t segment_bytes = (size_t)1 << tile->segment_log2, start = segment * segment_bytes;
    const size_t left = tile->tile_bytes - start;
    const unsigned block = (unsigned)(start / SW_LZ_BLOCK_BYTES);
    const unsigned symbol_bytes = ((const struct decoder *)decoder)->symbol_bytes;
    uint8_t room[SW_LZ_BLOCK_BYTES];
    const uint8_t *from = tile->data;
    unsigned units = 0;
    size_t at = 0;
    int r = 0;
    for (unsigned i = 0; r == 0 && i <= block; i++)
        r = next_block(tile, i, &at, &from, &units);
    if (r == 0)
        r = decode_block(from, units, symbol_bytes, room, block_bytes(tile->tile_bytes, block));
    if (r < 0)
        return r;
    *ret_bytes = left < segment_bytes ? left : segment_bytes;
    memcpy(out, room + start % SW_LZ_BLOCK_BYTES, *ret_bytes);
    return 0;
}

void sw_plan_init_lz(struct sw_plan *ret, enum sw_value_type type, unsigned window) {
    *ret = (struct sw_plan){.codec = SW_CODEC_LZ,
                            .segment_log2 = SW_NUMBERS_SEGMENT_LOG2,
                            .value_type = type,
                            .expected_ratio = 1,
                            .params.own[SW_LZ_WINDOW] = window};
}

const struct sw_codec_ops sw_lz_ops = {
    .hash_tile = sw_hash_tile_rows,
    .learn = learn,
    .least_gain = 1.1,
    .is_slow = true,
    .encoder_new = encoder_new,
    .encoder_free = sw_free,
    .encode_tile = encode_tile,
    .decoder_init = decoder_init,
    .decode_tile = decode_tile,
    .decode_segment = decode_segment,
};

/* v5t_encode_host.c - encodes a tile on the host.
 *
 * A step encodes one symbol of one segment. Its latency (window, hash, entry, compare, advance) is several times its
 * work, so LANES independent segments are stepped in turn. A step has no branches. */
#include "base/alloc.h"
#include "codec/streams/streams.h"
#include "codec/v5t/v5t_host.h"

#include <stdbool.h>
#include <string.h>

#define LANES 4
#define HASH3_SLOTS (1u << SW_V5T_HASH_LOG2)

/* A match: code in bits 0-7, bytes taken in bits 8-11, bytes written in bits 12-15. */
#define STEP(code, length, written) ((uint16_t)((code) | (length) << 8 | (written) << 12))
#define STEP_ESCAPE STEP(SW_STREAMS_ESCAPE, 1, 2)

struct long_entry {
    uint64_t value;
    uint16_t step;
    uint8_t shift; /* 64 - 8 * length: drops the window's bytes after the symbol */
};

struct sw_v5t_encoder {
    struct long_entry longs[HASH3_SLOTS];
    uint16_t shorts[65536]; /* step for the next two bytes: 2-byte symbol, else 1-byte symbol, else escape */
    uint16_t ones[256];     /* step if only one byte is left */
};

static void add_symbol(struct sw_v5t_encoder *e, uint64_t value, unsigned length, uint32_t code) {
    if (length == 1) {
        e->ones[value] = STEP(code, 1, 1);
    } else if (length > 2) {
        struct long_entry *entry = &e->longs[sw_v5t_hash3((uint32_t)value)];
        entry->value = value;
        entry->step = STEP(code, length, 1);
        entry->shift = (uint8_t)(64 - 8 * length);
    }
}

struct sw_v5t_encoder *sw_v5t_encoder_new(const struct sw_params *table) {
    struct sw_v5t_encoder *e = sw_alloc(sizeof *e);
    if (!e)
        return NULL;
    /* An empty slot holds the value of another slot, so that no window that maps to this slot matches it. */
    for (uint32_t slot = 0; slot < HASH3_SLOTS; slot++)
        e->longs[slot].value = sw_v5t_hash3(0) == slot;
    for (uint32_t b = 0; b < 256; b++)
        e->ones[b] = STEP_ESCAPE;
    for (uint32_t c = 0; c < table->n_symbols; c++)
        add_symbol(e, table->value[c], table->length[c], c);
    for (uint32_t pair = 0; pair < 65536; pair++)
        e->shorts[pair] = e->ones[pair & 0xFF];
    for (uint32_t c = 0; c < table->n_symbols; c++)
        if (table->length[c] == 2)
            e->shorts[table->value[c]] = STEP(c, 2, 1);
    return e;
}

void sw_v5t_encoder_free(struct sw_v5t_encoder *encoder) {
    sw_free(encoder);
}

/* A segment being encoded: the next byte to read, the segment's end, the next byte to write. */
struct lane {
    const uint8_t *from, *end;
    uint8_t *to;
    unsigned segment;
};

static inline uint16_t longest_step(const struct sw_v5t_encoder *e, uint64_t window) {
    const struct long_entry *entry = &e->longs[sw_v5t_hash3((uint32_t)window)];
    uint32_t hit = -(uint32_t)(((window ^ entry->value) << entry->shift) == 0);
    uint32_t step = e->shorts[window & 0xFFFF];
    return (uint16_t)(step ^ ((step ^ entry->step) & hit)); /* no branch: it could not be predicted */
}

static inline void put_step(uint8_t **to, uint16_t step, uint64_t window) {
    uint16_t pair = (uint16_t)((step & 0xFF) | (window & 0xFF) << 8); /* the second byte matters only after an escape */
    memcpy(*to, &pair, 2);
    *to += step >> 12;
}

#define STEP_LANE(i)                                                                                                   \
    do {                                                                                                               \
        uint64_t window;                                                                                               \
        memcpy(&window, from##i, 8);                                                                                   \
        uint16_t step = longest_step(e, window);                                                                       \
        put_step(&to##i, step, window);                                                                                \
        from##i += step >> 8 & 15;                                                                                     \
    } while (0)

/* Steps all lanes until one of them has fewer than 8 bytes left. At the beginning, all have at least 8. */
static void run_lanes(const struct sw_v5t_encoder *e, struct lane lane[LANES]) {
    const uint8_t *from0 = lane[0].from, *from1 = lane[1].from, *from2 = lane[2].from, *from3 = lane[3].from;
    const uint8_t *stop0 = lane[0].end - 8, *stop1 = lane[1].end - 8, *stop2 = lane[2].end - 8,
                  *stop3 = lane[3].end - 8;
    uint8_t *to0 = lane[0].to, *to1 = lane[1].to, *to2 = lane[2].to, *to3 = lane[3].to;
    while ((from0 <= stop0) & (from1 <= stop1) & (from2 <= stop2) & (from3 <= stop3)) {
        STEP_LANE(0);
        STEP_LANE(1);
        STEP_LANE(2);
        STEP_LANE(3);
    }
    lane[0].from = from0, lane[1].from = from1, lane[2].from = from2, lane[3].from = from3;
    lane[0].to = to0, lane[1].to = to1, lane[2].to = to2, lane[3].to = to3;
}

/* Encodes one lane to the end of its segment, which no symbol may pass. */
static void finish_lane(const struct sw_v5t_encoder *e, struct lane *lane) {
    const uint8_t *from0 = lane->from;
    uint8_t *to0 = lane->to;
    while (lane->end - from0 >= 8)
        STEP_LANE(0);
    for (size_t left; (left = (size_t)(lane->end - from0)) > 0;) {
        uint64_t window = 0;
        memcpy(&window, from0, left);
        uint16_t step = longest_step(e, window);
        if ((step >> 8 & 15u) > left) /* matched the zeros after the end */
            step = e->shorts[window & 0xFFFF];
        if ((step >> 8 & 15u) > left)
            step = e->ones[window & 0xFF];
        put_step(&to0, step, window);
        from0 += step >> 8 & 15;
    }
    lane->from = from0;
    lane->to = to0;
}

static struct lane start_lane(struct sw_streams *t, unsigned segment) {
    const uint8_t *from = t->in + ((size_t)segment << t->segment_log2);
    const size_t bytes = sw_streams_segment_bytes(t->in_bytes, t->segment_log2, segment);
    return (struct lane){from, from + bytes, t->stream[segment], segment};
}

/* Finishes a lane that is near its segment's end, and closes its stream. */
static void close_lane(const struct sw_v5t_encoder *e, struct sw_streams *t, struct lane *lane) {
    finish_lane(e, lane);
    sw_streams_close(t, lane->segment, (size_t)(lane->to - t->stream[lane->segment]));
}

static void encode_segments(const struct sw_v5t_encoder *e, struct sw_streams *t) {
    const unsigned full = (unsigned)(t->in_bytes >> t->segment_log2);
    unsigned next = 0, busy = 0;
    struct lane lane[LANES];
    if (full >= LANES)
        for (; busy < LANES; busy++)
            lane[busy] = start_lane(t, next++);
    while (busy) {
        run_lanes(e, lane);
        for (unsigned i = 0; i < LANES; i++) {
            if (lane[i].end - lane[i].from >= 8)
                continue;
            if (lane[i].segment < SW_TILE_SEGMENTS) {
                close_lane(e, t, &lane[i]);
                busy--;
            }
            if (next < full) {
                lane[i] = start_lane(t, next++);
                busy++;
            } else { /* no segment is left: the lane does useless work until the others are done */
                lane[i] = start_lane(t, 0);
                lane[i].segment = SW_TILE_SEGMENTS;
                lane[i].to = t->stream[SW_TILE_SEGMENTS];
            }
        }
    }
    for (; (size_t)next << t->segment_log2 < t->in_bytes; next++) {
        lane[0] = start_lane(t, next);
        close_lane(e, t, &lane[0]);
    }
}

size_t sw_v5t_encode_tile(const struct sw_v5t_encoder *encoder, const uint8_t *in, size_t in_bytes,
                          unsigned segment_log2, uint8_t *out, uint8_t counts[SW_TILE_SEGMENTS]) {
    struct sw_streams streams;
    sw_streams_init(&streams, in, in_bytes, segment_log2, counts);
    encode_segments(encoder, &streams);
    return sw_streams_put(&streams, out);
}

/* params.h - plans as data: how the chunks of a region are encoded, and what the codec has learned for it.
 *
 * A *plan* is plain data, the same in host and device memory. Copy it freely, and use it from several threads at once.
 * The frame layer writes the params' symbols to each frame's table section. Only the codec knows what they mean.
 * thread: any. */
#ifndef SW_CODEC_PARAMS_H
#define SW_CODEC_PARAMS_H

#include "codec/frame.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SW_PARAMS_OWN = 5 };

struct sw_params {
    uint64_t value[256]; /* the symbols' bytes: the first byte is the lowest, unused bytes are zero */
    uint8_t length[256]; /* the symbols' lengths, as the codec defines them; 0 from n_symbols on */
    uint32_t n_symbols;
    uint32_t
        own[SW_PARAMS_OWN]; /* private to an encoder, and not in frames: v5t's, or pfor's grid; the last: lz's window */
};

/* Writes the table section of a frame: align16(9 * n_symbols) bytes. */
void sw_params_write(const struct sw_params *params, void *section);
/* Reads the symbols from a table section. `own` is zeroed, so the params can only decode. errors: -SW_EFRAME: a length
 * is not 1 … max_length. */
int sw_params_read(struct sw_params *ret, const void *section, uint32_t n_symbols, unsigned max_length);

/* The largest index of a dictionary, and its index_log2. */
#define SW_DICTIONARY_INDEX_BYTES (145u << 10)
#define SW_DICTIONARY_INDEX_LOG2 12u

/* What a codec has learned that is too long for params. Frames carry it whole, as their dictionary section: only the
 * codec knows what it means. Encoders may need an index of it, which is not in frames. */
struct sw_frame_dictionary {
    uint32_t bytes; /* a multiple of 16 */
    uint8_t data[SW_FRAME_MAX_DICTIONARY_BYTES];
    uint32_t index_bytes, index_log2; /* index_bytes 0: no index was made; then encoders on the host make their own */
    uint8_t index[SW_DICTIONARY_INDEX_BYTES] __attribute__((aligned(16)));
};

struct sw_plan {
    enum sw_codec_id codec;
    unsigned segment_log2;         /* segment length of the frames */
    enum sw_value_type value_type; /* codecs of numbers only */
    uint64_t raw_bytes;            /* length of the region that it was made for; 0: of no region */
    double expected_ratio;         /* raw bytes per frame byte of that region, estimated from the sample; 1 for raw */
    double ratios[SW_CODEC_NR];    /* the expected ratio of each suitable codec of numbers; 0: it is not suitable */
    struct sw_params params;       /* for `codec`, or for a codec in `ratios` that has learned something */
    /* For codecs with a dictionary; else NULL. Borrowed: it must live until the last encode by the plan. */
    const struct sw_frame_dictionary *dictionary;
};

/* Makes the plan that stores bytes raw. */
void sw_plan_init_raw(struct sw_plan *ret);
/* Returns the ratio that a plan expects for the data sections alone. expected_ratio includes header and table, whose
 * part depends on the region's length. */
double sw_plan_data_ratio(const struct sw_plan *plan);
/* Returns the bytes of a plan's frames before their data, per byte of content. Each frame carries the dictionary, if
 * there is one, and a region may have several frames. So this assumes frames of at most 4 MiB of content then. */
double sw_plan_head_part(const struct sw_plan *plan);
/* Returns the number of symbols in a plan's frames. */
uint32_t sw_plan_symbols(const struct sw_plan *plan);

#ifdef __cplusplus
}
#endif
#endif

/* params.h - plans as data: how the chunks of a region are encoded, and what the codec has learnt, or was told, for it.
 *
 * A *plan* is copied freely and used from several threads at once. Of its params the frame layer writes the symbols
 * into each frame's table section and looks at nothing else: what they mean is the codec's business. Plain data, the
 * same in host and device memory. thread: any. */
#ifndef SW_CODEC_PARAMS_H
#define SW_CODEC_PARAMS_H

#include "codec/frame.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SW_PARAMS_OWN = 3 };

struct sw_params {
    uint64_t value[256]; /* symbols: their bytes, the first one lowest, zero above */
    uint8_t length[256]; /* the codec's measure of each; 0 from n_symbols on */
    uint32_t n_symbols;
    uint32_t own[SW_PARAMS_OWN]; /* what only the codec's encoder needs; not in frames */
};

/* Writes the table section of a frame: align16(9 * n_symbols) bytes. */
void sw_params_write(const struct sw_params *params, void *section);
/* Reads the symbols of a table section; `own` is zeroed, so they serve for decoding only.
 * errors: -SW_EFRAME: a length is not 1 … max_length. */
int sw_params_read(struct sw_params *ret, const void *section, uint32_t n_symbols, unsigned max_length);

struct sw_plan {
    enum sw_codec_id codec;
    unsigned segment_log2;         /* segment length of the frames */
    enum sw_value_type value_type; /* codecs of numbers only */
    uint64_t raw_bytes;            /* of the region that it was made for; 0: for none */
    double expected_ratio;         /* raw bytes per frame byte of that one, estimated from the sample; 1 for raw */
    double ratios[SW_CODEC_NR];    /* the same of each codec of numbers that would do; 0: it would not */
    struct sw_params params;       /* the codec's, or of a codec in `ratios` which learns something */
};

/* The plan that stores bytes as they are. */
void sw_plan_init_raw(struct sw_plan *ret);
/* What a plan promises of the data sections alone: the table and the header, which are part of expected_ratio, weigh
 * differently in regions of other lengths. */
double sw_plan_data_ratio(const struct sw_plan *plan);
/* Symbols in the frames of a plan. */
uint32_t sw_plan_symbols(const struct sw_plan *plan);

#ifdef __cplusplus
}
#endif
#endif

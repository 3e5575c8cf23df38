/* params.h - what a codec has learnt, or was told, for the encoding of a region: the inside of a plan.
 *
 * The frame layer writes the symbols into each frame's table section and looks at nothing else: what they mean is the
 * codec's business. Plain data, the same in host and device memory. thread: any. */
#ifndef SW_CODEC_PARAMS_H
#define SW_CODEC_PARAMS_H

#include <stddef.h>
#include <stdint.h>

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

#ifdef __cplusplus
}
#endif
#endif

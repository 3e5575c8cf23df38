/* rates.h - how fast each codec is on one GPU, for estimates where nothing was measured on the device at hand.
 *
 * All of one NVIDIA H200, in bytes of content a second, headers and hashes included. thread: any. */
#ifndef SW_CODEC_RATES_H
#define SW_CODEC_RATES_H

#include "codec/frame.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sw_codec_rates {
    double encode, decode; /* 0: not measured */
    const char *content;   /* that was measured */
};

/* Returns a codec's rates. */
const struct sw_codec_rates *sw_codec_rates_of(enum sw_codec_id codec);

#ifdef __cplusplus
}
#endif
#endif

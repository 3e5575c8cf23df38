#include "codec/plan/rates.h"

/* From tests/bench/RESULTS.md ("The codec, alone"), lz/TUNING.md and onpair/TUNING.md. */
static const struct sw_codec_rates rates[SW_CODEC_NR] = {
    [SW_CODEC_RAW] = {1572e9, 1571e9, "random bytes, 2 GB"},
    [SW_CODEC_V5T] = {720e9, 1134e9, "l_comment, 0.5 GB"},
    [SW_CODEC_FOR] = {2811e9, 2712e9, "16 of 32 bits, 2 GB"},
    [SW_CODEC_DFOR] = {3276e9, 3423e9, "gaps of 4 bits, 2 GB"},
    [SW_CODEC_RFOR] = {2544e9, 3068e9, "runs of 16, 2 GB"},
    [SW_CODEC_SFOR] = {2136e9, 1684e9, "runs that ascend by one, 2 GB"},
    [SW_CODEC_DICT] = {632e9, 3328e9, "64 values, 2 GB"},
    [SW_CODEC_ALP] = {1099e9, 2884e9, "float64, 1 % exceptions, 2 GB"},
    [SW_CODEC_ALPRD] = {869e9, 1855e9, "float64, no decimals, 2 GB"},
    [SW_CODEC_LZ] = {258e9, 942e9, "order keys of 32 bits, 1 GB"},
    [SW_CODEC_HUFFMAN] = {311e9, 300e9, "weights in bfloat16, 1 GB"},
    [SW_CODEC_ONPAIR] = {360e9, 575e9, "l_comment, 64 MiB"},
};

const struct sw_codec_rates *sw_codec_rates_of(enum sw_codec_id codec) {
    return &rates[codec];
}

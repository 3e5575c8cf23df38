/* spillway_packed.h - where the bytes of a packed region lie, for who reads them where they are.
 *
 * A region is cut into chunks, all but the last of one length, which is a multiple of 32 KiB: chunk i holds the bytes
 * from i * chunks[0].raw_bytes on. Each lies in the region's memory as one piece, encoded by itself
 * (codec/FORMAT.md); spillway_device.cuh reads it. Installed beside spillway.h; must stay free of other includes. */
#ifndef SPILLWAY_PACKED_H
#define SPILLWAY_PACKED_H

#include <stdint.h>

/* What memory holds. Numbers have codecs of their own, which store them in fewer bits, or as differences or runs. */
enum spillway_value_type {
    SPILLWAY_BYTES, /* anything, text first of all */
    SPILLWAY_U8,
    SPILLWAY_U16,
    SPILLWAY_U32,
    SPILLWAY_U64,
    SPILLWAY_I8,
    SPILLWAY_I16,
    SPILLWAY_I32, /* dates are such */
    SPILLWAY_I64, /* and decimals */
    SPILLWAY_F32, /* IEEE 754 */
    SPILLWAY_F64
};

/* How a chunk is encoded. There are more than these, and will be: what is not known here can only be unpacked. */
enum spillway_codec {
    SPILLWAY_CODEC_RAW = 0,         /* as it was */
    SPILLWAY_CODEC_FOR = 2,         /* frame of reference */
    SPILLWAY_CODEC_DFOR = 3,        /* differences */
    SPILLWAY_CODEC_RFOR = 4,        /* runs */
    SPILLWAY_CODEC_ALP = 5,         /* floats as decimals */
    SPILLWAY_CODEC_ALPRD = 6,       /* floats in two parts, the left ones by a dictionary */
    SPILLWAY_CODEC_DICT = 8,        /* codes for the values of a dictionary */
    SPILLWAY_CODEC_SFOR = 9,        /* sequences that ascend by one */
    SPILLWAY_CODEC_ELSEWHERE = 0xFF /* a part of it is not in the region's memory: it would not have fitted */
};

struct spillway_packed_chunk {
    uint64_t offset; /* from the region's first byte; a multiple of 128 */
    uint64_t bytes;  /* that it takes there */
    uint64_t raw_bytes;
    uint32_t codec;     /* enum spillway_codec */
    uint16_t type;      /* enum spillway_value_type; RAW: 0 */
    uint16_t n_symbols; /* that stand before its tiles; DICT: values of its dictionary */
};

#endif

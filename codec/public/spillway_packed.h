/* spillway_packed.h - the directory of a packed region, for programs that read its bytes in place.
 *
 * A region is cut into chunks. All chunks except the last have the same length, a multiple of 32 KiB: chunk i holds the
 * bytes from i * chunks[0].raw_bytes on. A chunk is encoded by itself (codec/FORMAT.md), and is contiguous in the
 * region's memory. spillway_device.cuh reads it. The file is installed beside spillway.h and must not include others.
 */
#ifndef SPILLWAY_PACKED_H
#define SPILLWAY_PACKED_H

#include <stdint.h>

/* The type of the values in memory. Numbers have their own codecs, which store fewer bits, differences or runs. */
enum spillway_value_type {
    SPILLWAY_BYTES, /* anything, text above all */
    SPILLWAY_U8,
    SPILLWAY_U16,
    SPILLWAY_U32,
    SPILLWAY_U64,
    SPILLWAY_I8,
    SPILLWAY_I16,
    SPILLWAY_I32, /* also dates */
    SPILLWAY_I64, /* also decimals */
    SPILLWAY_F32, /* IEEE 754 */
    SPILLWAY_F64,
    SPILLWAY_BF16,  /* the upper half of an F32 */
    SPILLWAY_F16,   /* IEEE 754 */
    SPILLWAY_F8,    /* of any format */
    SPILLWAY_DEC128 /* decimals of 128 bits: signed whole numbers, little endian */
};

/* The codec of a chunk. There are more codecs than these. A chunk of another codec can only be unpacked. */
enum spillway_codec {
    SPILLWAY_CODEC_RAW = 0,         /* unchanged */
    SPILLWAY_CODEC_FOR = 2,         /* frame of reference */
    SPILLWAY_CODEC_DFOR = 3,        /* differences */
    SPILLWAY_CODEC_RFOR = 4,        /* runs */
    SPILLWAY_CODEC_ALP = 5,         /* floats as decimals */
    SPILLWAY_CODEC_ALPRD = 6,       /* floats in two parts, the left ones by a dictionary */
    SPILLWAY_CODEC_DICT = 8,        /* codes for the values of a dictionary */
    SPILLWAY_CODEC_SFOR = 9,        /* sequences that ascend by one */
    SPILLWAY_CODEC_PFOR = 11,       /* frame of reference with exceptions and a divisor */
    SPILLWAY_CODEC_PDFOR = 12,      /* differences with exceptions */
    SPILLWAY_CODEC_RADIX = 15,      /* the same as DICT, as digits to a base */
    SPILLWAY_CODEC_DRADIX = 16,     /* the same, of differences */
    SPILLWAY_CODEC_ELSEWHERE = 0xFF /* a part of the chunk did not fit into the region's memory */
};

struct spillway_packed_chunk {
    uint64_t offset; /* from the region's first byte; a multiple of 128 */
    uint64_t bytes;  /* in the region's memory */
    uint64_t raw_bytes;
    uint32_t codec;     /* enum spillway_codec */
    uint16_t type;      /* enum spillway_value_type; RAW: 0 */
    uint16_t n_symbols; /* symbols before its tiles; DICT, RADIX, DRADIX: those of the dictionary */
};

#endif

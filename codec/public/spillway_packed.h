/* spillway_packed.h - where the bytes of a packed region lie, for who reads them where they are.
 *
 * A region is cut into chunks, all but the last of one length, which is a multiple of 32 KiB: chunk i holds the bytes
 * from i * chunks[0].raw_bytes on. Each lies in the region's memory as one piece, encoded by itself
 * (codec/FORMAT.md); spillway_device.cuh reads it. Installed beside spillway.h; must stay free of other includes. */
#ifndef SPILLWAY_PACKED_H
#define SPILLWAY_PACKED_H

#include <stdint.h>

/* How a chunk is encoded. There are more than these, and will be: what is not known here can only be unpacked. */
enum spillway_codec {
    SPILLWAY_CODEC_RAW = 0,         /* as it was */
    SPILLWAY_CODEC_FOR = 2,         /* frame of reference */
    SPILLWAY_CODEC_DFOR = 3,        /* differences */
    SPILLWAY_CODEC_RFOR = 4,        /* runs */
    SPILLWAY_CODEC_ALP = 5,         /* floats as decimals */
    SPILLWAY_CODEC_ELSEWHERE = 0xFF /* a part of it is not in the region's memory: it would not have fitted */
};

struct spillway_packed_chunk {
    uint64_t offset; /* from the region's first byte; a multiple of 128 but for RAW */
    uint64_t bytes;  /* that it takes there */
    uint64_t raw_bytes;
    uint32_t codec; /* enum spillway_codec */
    uint32_t type;  /* enum spillway_value_type; RAW: 0 */
};

#endif

/* frame.h - the container of codec/FORMAT.md: header, its checks, where the sections lie, and the worst case.
 *
 * Nothing here trusts a frame: sw_frame_parse() accepts only headers whose sections fit into the given length, and what
 * it returns can be used for addressing without further checks. Tile offsets and counts are checked where used. */
#ifndef SW_CODEC_FRAME_H
#define SW_CODEC_FRAME_H

#include "base/err.h"
#include "codec/public/spillway_device/bits.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SW_FRAME_MAGIC 0x46575053u
#define SW_FRAME_VERSION 1
/* Header and the largest symbol table: what must be at hand to call sw_frame_parse(). */
#define SW_FRAME_HEAD_MAX_BYTES (SW_FRAME_HEADER_BYTES + 2304)
#define SW_FRAME_MAX_RAW_BYTES ((uint64_t)1 << 36)
#define SW_RAW_SEGMENT_LOG2 10
#define SW_FRAME_MIN_SEGMENT_LOG2 8 /* of all codecs */
/* Of the table section. */
#define SW_FRAME_MAX_SYMBOLS 255
#define SW_FRAME_SYMBOL_BYTES 8

enum sw_codec_id {
#define SW_CODEC(id, NAME, ...) SW_CODEC_##NAME = (id),
#include "codec/codecs.def"
    SW_CODEC_NR
};

/* What a chunk's bytes are, for codecs of numbers. The numbers are stored. */
enum sw_value_type {
    SW_VALUE_NONE, /* bytes */
    SW_VALUE_U8,
    SW_VALUE_U16,
    SW_VALUE_U32,
    SW_VALUE_U64,
    SW_VALUE_I8,
    SW_VALUE_I16,
    SW_VALUE_I32,
    SW_VALUE_I64,
    SW_VALUE_F32, /* IEEE 754 */
    SW_VALUE_F64,
    SW_VALUE_NR
};

/* Which value types the frames of a codec have. */
enum sw_codec_values { SW_TAKES_BYTES, SW_TAKES_NUMBERS, SW_TAKES_FLOATS };

/* What frames of a codec look like: its row in codecs.def. */
struct sw_codec_format {
    const char *name;
    enum sw_codec_values takes;
    unsigned min_segment_log2, max_segment_log2;
    uint32_t max_symbols;
    uint32_t count_bytes; /* per tile, in the counts section; 0: a frame's length follows from raw_bytes */
};

/* NULL for a number that is no codec. */
const struct sw_codec_format *sw_codec_format_of(unsigned codec);

struct sw_frame_header {
    uint32_t magic;
    uint16_t version;
    uint8_t codec, segment_log2;
    uint64_t raw_bytes, frame_bytes;
    uint32_t n_tiles, n_symbols;
    uint8_t value_type; /* 0 but for codecs of numbers */
    uint8_t reserved[27];
    uint32_t header_hash;
};

/* A parsed header and the byte offsets of the sections in the frame. */
struct sw_frame_layout {
    enum sw_codec_id codec;
    unsigned segment_log2;
    uint32_t n_tiles, n_symbols;
    enum sw_value_type value_type;
    uint32_t count_bytes; /* per tile, in the counts section */
    uint64_t raw_bytes, frame_bytes;
    uint64_t records_offset, counts_offset, data_offset; /* the symbol table is at SW_FRAME_HEADER_BYTES */
};

/* Most bytes that a frame of raw_bytes takes with any codec and content; below 1.005 * raw_bytes + 4096. */
uint64_t sw_frame_bound_bytes(uint64_t raw_bytes);
/* Of these, what comes before the counts. */
uint64_t sw_frame_head_bound_bytes(uint64_t raw_bytes);

/* Fewest bytes that frames of raw_bytes take, with any codec and content and however many they are: what describes the
 * tiles is there even if the content takes no room at all. A 1365th of raw_bytes. units: bytes; any raw_bytes. */
uint64_t sw_frame_least_bytes(uint64_t raw_bytes);

/* Layout of a new frame of bytes; frame_bytes is left 0 where it is known only when encoded. For a codec of numbers the
 * caller then sets value_type, on which nothing else depends. units: bytes, symbols. */
void sw_frame_layout_init(struct sw_frame_layout *ret, enum sw_codec_id codec, unsigned segment_log2,
                          uint64_t raw_bytes, uint32_t n_symbols);

/* The header for a layout whose frame_bytes is final; table: the symbol table section, align16(9 * n_symbols) bytes. */
void sw_frame_header_init(struct sw_frame_header *ret, const struct sw_frame_layout *layout, const void *table);

/* Checks a header and its table. head: the frame's first min(frame_bytes, SW_FRAME_HEAD_MAX_BYTES) bytes or more,
 * any alignment; head_bytes: how many are there; frame_bytes: how long the whole frame is.
 * errors: -SW_EFRAME (not a frame, cut, sections do not fit), -SW_EVERSION, -SW_ECHECKSUM (header hash);
 * *ret is then unchanged. */
int sw_frame_parse(struct sw_frame_layout *ret, const void *head, size_t head_bytes, uint64_t frame_bytes,
                   struct sw_err *err);

/* "u8" ... "f64", "none". _find: SW_VALUE_NONE for a name that is no type. */
const char *sw_value_type_name(enum sw_value_type type);
enum sw_value_type sw_value_type_find(const char *name);
/* Of one value; SW_VALUE_NONE: 1. */
unsigned sw_value_type_bytes(enum sw_value_type type);

/* As in codecs.def; "unknown" for a number that is no codec. */
const char *sw_codec_name(enum sw_codec_id codec);

/* Whether its frames may have a symbol table. */
bool sw_codec_has_symbols(enum sw_codec_id codec);

/* Whether its frames' segments may have one of several lengths: short ones for inputs that have few. */
bool sw_codec_has_segments(enum sw_codec_id codec);

/* Whether a codec's frames may have this value type; SW_VALUE_NONE: whether they have none. */
bool sw_codec_takes(enum sw_codec_id codec, enum sw_value_type type);

#ifdef __cplusplus
}
#endif
#endif

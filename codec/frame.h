/* frame.h - the frame format of codec/FORMAT.md: header, checks, positions of the sections, worst-case length.
 *
 * Nothing here trusts a frame. sw_frame_parse() accepts only headers whose sections fit into the given length, so its
 * result can be used for addressing without further checks. Tile offsets and counts are checked where they are used. */
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
/* Header and the largest symbol table. sw_frame_parse() never needs more. */
#define SW_FRAME_HEAD_MAX_BYTES (SW_FRAME_HEADER_BYTES + 2304)
#define SW_FRAME_MAX_RAW_BYTES ((uint64_t)1 << 36)
#define SW_RAW_SEGMENT_LOG2 10
#define SW_FRAME_MIN_SEGMENT_LOG2 8 /* the least of all codecs */
/* Bounds of the symbol table. */
#define SW_FRAME_MAX_SYMBOLS 255
#define SW_FRAME_SYMBOL_BYTES 8
/* The longest dictionary section. */
#define SW_FRAME_MAX_DICTIONARY_BYTES (69u << 10)

enum sw_codec_id {
#define SW_CODEC(id, NAME, ...) SW_CODEC_##NAME = (id),
#include "codec/codecs.def"
    SW_CODEC_NR
};

/* The type of a chunk's values, for codecs of numbers. These enumerators are stored: never change them. */
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
    SW_VALUE_BF16,   /* the upper half of an F32 */
    SW_VALUE_F16,    /* IEEE 754 */
    SW_VALUE_F8,     /* of any format */
    SW_VALUE_DEC128, /* signed whole numbers of 128 bits */
    SW_VALUE_NR
};

/* The value types that a codec's frames may have. */
enum sw_codec_values {
    SW_TAKES_BYTES,
    SW_TAKES_NUMBERS,      /* of up to 64 bits */
    SW_TAKES_LONG_NUMBERS, /* of 32 and 64 bits */
    SW_TAKES_FLOATS,       /* of 32 and 64 bits */
    SW_TAKES_PARTS         /* values whose bytes are worth a look of their own: floats, decimals, and bytes */
};

/* The frame format of a codec: its row in codecs.def. */
struct sw_codec_format {
    const char *name;
    enum sw_codec_values takes;
    unsigned min_segment_log2, max_segment_log2;
    uint32_t max_symbols;
    uint32_t count_bytes; /* per tile, in the counts section; 0: a frame's length follows from raw_bytes */
    uint32_t max_dictionary_bytes;
};

/* Returns a codec's frame format; NULL: there is no such codec. */
const struct sw_codec_format *sw_codec_format_of(unsigned codec);

struct sw_frame_header {
    uint32_t magic;
    uint16_t version;
    uint8_t codec, segment_log2;
    uint64_t raw_bytes, frame_bytes;
    uint32_t n_tiles, n_symbols;
    uint8_t value_type; /* codecs of numbers; else 0 */
    uint8_t reserved;
    uint16_t dictionary16; /* length of the dictionary section in units of 16 bytes */
    uint8_t more_reserved[24];
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
    uint64_t dictionary_offset, dictionary_bytes;        /* 0 bytes: there is no such section */
};

/* Returns the largest possible length of a frame of raw_bytes, for any codec and content. It is less than
 * 1.005 * raw_bytes + 4096. */
uint64_t sw_frame_bound_bytes(uint64_t raw_bytes);
/* Returns the largest possible length of the sections before the counts. */
uint64_t sw_frame_head_bound_bytes(uint64_t raw_bytes);

/* Returns the smallest possible length of all frames that hold raw_bytes together, for any codec, content and number of
 * frames. Records and counts of tiles are stored even if the content takes no room at all: a 1365th of raw_bytes. */
uint64_t sw_frame_least_bytes(uint64_t raw_bytes);

/* Computes the layout of a new frame. frame_bytes is 0 if it is known only after encoding. value_type is SW_VALUE_NONE:
 * for a codec of numbers the caller sets it. Nothing else in the layout depends on it. */
void sw_frame_layout_init(struct sw_frame_layout *ret, enum sw_codec_id codec, unsigned segment_log2,
                          uint64_t raw_bytes, uint32_t n_symbols);
/* Adds a dictionary section to a layout without one. bytes: a multiple of 16, at most the codec's maximum. */
void sw_frame_layout_add_dictionary(struct sw_frame_layout *layout, uint32_t bytes);

/* Makes the header for a layout whose frame_bytes is final. table: the symbol table section, align16(9 * n_symbols)
 * bytes. */
void sw_frame_header_init(struct sw_frame_header *ret, const struct sw_frame_layout *layout, const void *table);

/* Checks a header and its symbol table, and computes the layout. head: at least the frame's first min(frame_bytes,
 * SW_FRAME_HEAD_MAX_BYTES) bytes, of any alignment; head_bytes: their number; frame_bytes: the whole frame's length.
 * errors: -SW_EFRAME (not a frame, cut, sections do not fit), -SW_EVERSION, -SW_ECHECKSUM (header hash); on an error
 * *ret is unchanged. */
int sw_frame_parse(struct sw_frame_layout *ret, const void *head, size_t head_bytes, uint64_t frame_bytes,
                   struct sw_err *err);

/* Returns a type's name: "u8" ... "f64", "none". */
const char *sw_value_type_name(enum sw_value_type type);
/* Finds a type by its name; SW_VALUE_NONE: there is no such type. */
enum sw_value_type sw_value_type_find(const char *name);
/* Returns the length of a value; for SW_VALUE_NONE, 1. */
unsigned sw_value_type_bytes(enum sw_value_type type);

/* Returns a codec's name as in codecs.def; "unknown": there is no such codec. */
const char *sw_codec_name(enum sw_codec_id codec);

/* Returns whether a codec's frames may have a symbol table. */
bool sw_codec_has_symbols(enum sw_codec_id codec);

/* Returns whether a codec's frames have a dictionary section. */
bool sw_codec_has_dictionary(enum sw_codec_id codec);

/* Returns whether a codec supports several segment lengths; short segments suit short inputs. */
bool sw_codec_has_segments(enum sw_codec_id codec);

/* Returns whether a codec's frames may have this value type; SW_VALUE_NONE: whether the codec stores bytes. */
bool sw_codec_takes(enum sw_codec_id codec, enum sw_value_type type);

#ifdef __cplusplus
}
#endif
#endif

#include "codec/frame.h"

#include "codec/checksum.h"

#include <string.h>

_Static_assert(sizeof(struct sw_frame_header) == SW_FRAME_HEADER_BYTES, "header layout is the format");
_Static_assert(sizeof(struct sw_tile_record) == 8, "tile record layout is the format");

static const struct sw_codec_format formats[SW_CODEC_NR] = {
#define SW_CODEC(id, NAME, name, ...) [id] = {#name, __VA_ARGS__},
#include "codec/codecs.def"
};

/* Rows must be in the order of their ids, without gaps: arrays that C++ code makes from them need this. */
enum row {
#define SW_CODEC(id, NAME, ...) ROW_##NAME,
#include "codec/codecs.def"
};
#define SW_CODEC(id, NAME, ...) _Static_assert((int)ROW_##NAME == (id), "codecs.def is sorted by id");
#include "codec/codecs.def"

const struct sw_codec_format *sw_codec_format_of(unsigned codec) {
    return codec < SW_CODEC_NR ? &formats[codec] : NULL;
}

static uint64_t align_to(uint64_t bytes, uint64_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

static uint64_t align16(uint64_t bytes) {
    return align_to(bytes, SW_FRAME_ALIGN);
}

static uint64_t tiles_of(uint64_t raw_bytes, unsigned segment_log2) {
    uint64_t tile_bytes = (uint64_t)SW_TILE_SEGMENTS << segment_log2;
    return raw_bytes / tile_bytes + (raw_bytes % tile_bytes != 0);
}

/* Counts of a tile with a dictionary (32 KiB or less), less the counts of a tile with the shortest segments. */
#define FIRST_TILE_EXTRA_BYTES (SW_NUMBERS_COUNT_BYTES(0, true) - SW_TILE_SEGMENTS)

/* The bounds below hold only for codecs whose counts are at most this long. */
#define SW_CODEC(id, NAME, name, takes, least_log2, most_log2, symbols, counts, dictionary)                            \
    _Static_assert((counts) <= SW_TILE_SEGMENTS << ((least_log2)-SW_FRAME_MIN_SEGMENT_LOG2) &&                         \
                       (!(symbols) || (counts) <= SW_TILE_SEGMENTS + FIRST_TILE_EXTRA_BYTES),                          \
                   #name " has longer counts than sw_frame_bound_bytes() assumes");
#include "codec/codecs.def"

/* Frames with the shortest segments have the most metadata. */
uint64_t sw_frame_head_bound_bytes(uint64_t raw_bytes) {
    const uint64_t tiles = tiles_of(raw_bytes, SW_FRAME_MIN_SEGMENT_LOG2);
    return SW_FRAME_HEAD_MAX_BYTES + align16(sizeof(struct sw_tile_record) * tiles);
}

/* A segment is never stored in more bytes than its content has. */
uint64_t sw_frame_bound_bytes(uint64_t raw_bytes) {
    const uint64_t tiles = tiles_of(raw_bytes, SW_FRAME_MIN_SEGMENT_LOG2);
    return align_to(sw_frame_head_bound_bytes(raw_bytes) + SW_TILE_SEGMENTS * tiles + FIRST_TILE_EXTRA_BYTES,
                    SW_FRAME_DATA_ALIGN) +
           align16(raw_bytes);
}

uint64_t sw_frame_least_bytes(uint64_t raw_bytes) {
    uint64_t least = UINT64_MAX;
    for (int codec = 0; codec < SW_CODEC_NR; codec++) {
        const struct sw_codec_format *format = &formats[codec];
        const uint64_t tiles = tiles_of(raw_bytes, format->max_segment_log2);
        const uint64_t bytes = SW_FRAME_HEADER_BYTES + tiles * (sizeof(struct sw_tile_record) + format->count_bytes) +
                               (format->count_bytes ? 0 : raw_bytes - raw_bytes % SW_FRAME_ALIGN);
        least = bytes < least ? bytes : least;
    }
    return least;
}

void sw_frame_layout_init(struct sw_frame_layout *ret, enum sw_codec_id codec, unsigned segment_log2,
                          uint64_t raw_bytes, uint32_t n_symbols) {
    const uint32_t count_bytes = formats[codec].count_bytes;
    const uint64_t tiles = tiles_of(raw_bytes, segment_log2);
    *ret = (struct sw_frame_layout){
        .codec = codec,
        .segment_log2 = segment_log2,
        .n_tiles = (uint32_t)tiles,
        .n_symbols = n_symbols,
        .count_bytes = count_bytes,
        .raw_bytes = raw_bytes,
    };
    ret->records_offset = sw_frame_records_offset(n_symbols);
    ret->counts_offset = sw_frame_counts_offset(ret->records_offset, tiles);
    ret->data_offset = sw_frame_data_offset(ret->counts_offset, count_bytes, tiles);
    ret->dictionary_offset = ret->data_offset;
    if (!count_bytes)
        ret->frame_bytes = ret->data_offset + align16(raw_bytes);
}

void sw_frame_layout_add_dictionary(struct sw_frame_layout *layout, uint32_t bytes) {
    layout->dictionary_bytes = bytes;
    layout->data_offset = align_to(layout->dictionary_offset + bytes, SW_FRAME_DATA_ALIGN);
}

static uint32_t header_hash(const void *header, const void *table, uint32_t n_symbols) {
    uint32_t h = sw_hash_update(0, header, offsetof(struct sw_frame_header, header_hash));
    return sw_hash_finish(sw_hash_update(h, table, sw_frame_table_bytes(n_symbols)));
}

void sw_frame_header_init(struct sw_frame_header *ret, const struct sw_frame_layout *layout, const void *table) {
    *ret = (struct sw_frame_header){
        .magic = SW_FRAME_MAGIC,
        .version = SW_FRAME_VERSION,
        .codec = (uint8_t)layout->codec,
        .segment_log2 = (uint8_t)layout->segment_log2,
        .raw_bytes = layout->raw_bytes,
        .frame_bytes = layout->frame_bytes,
        .n_tiles = layout->n_tiles,
        .n_symbols = layout->n_symbols,
        .value_type = (uint8_t)layout->value_type,
        .dictionary16 = (uint16_t)(layout->dictionary_bytes / SW_FRAME_ALIGN),
    };
    ret->header_hash = header_hash(ret, table, layout->n_symbols);
}

/* Checks the header's fields. After these checks the sizes of the sections are small enough to be added without
 * overflow.
 */
static int check_fields(const struct sw_frame_header *h, struct sw_err *err) {
    static const uint8_t zeros[sizeof h->more_reserved];
    const struct sw_codec_format *format = sw_codec_format_of(h->codec);
    if (!format)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "the frame's codec %u is unknown", h->codec);
    if (h->segment_log2 < format->min_segment_log2 || h->segment_log2 > format->max_segment_log2)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "frame has invalid segments of 2^%u bytes",
                          h->segment_log2);
    if (h->raw_bytes > SW_FRAME_MAX_RAW_BYTES)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "frame claims too many raw bytes: %llu",
                          (unsigned long long)h->raw_bytes);
    if (h->n_tiles != tiles_of(h->raw_bytes, h->segment_log2))
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "frame has a wrong number of tiles: %u for %llu bytes",
                          h->n_tiles, (unsigned long long)h->raw_bytes);
    if (h->n_symbols > format->max_symbols)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "%s frame has too many symbols: %u", format->name,
                          h->n_symbols);
    if (!sw_codec_takes((enum sw_codec_id)h->codec, (enum sw_value_type)h->value_type))
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "%s frame has values of the wrong type %u", format->name,
                          h->value_type);
    if (h->reserved || memcmp(h->more_reserved, zeros, sizeof zeros) != 0)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "reserved header bytes are not zero");
    if (h->dictionary16 > format->max_dictionary_bytes / SW_FRAME_ALIGN)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "%s frame has too long a dictionary: %u units",
                          format->name, h->dictionary16);
    return 0;
}

int sw_frame_parse(struct sw_frame_layout *ret, const void *head, size_t head_bytes, uint64_t frame_bytes,
                   struct sw_err *err) {
    struct sw_frame_header h;
    if (head_bytes < sizeof h)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "frame is cut in its header");
    memcpy(&h, head, sizeof h);
    if (h.magic != SW_FRAME_MAGIC)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "not a frame");
    if (h.version != SW_FRAME_VERSION)
        return sw_err_set(err, -SW_EVERSION, SW_SCOPE_REQUEST, "frame has version %u, but only version %d is known",
                          h.version, SW_FRAME_VERSION);
    if (h.n_symbols > SW_FRAME_MAX_SYMBOLS)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "frame has too many symbols: %u", h.n_symbols);
    uint64_t table_end = sw_frame_records_offset(h.n_symbols);
    if (table_end > head_bytes || table_end > frame_bytes)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "frame is cut in its symbol table");
    if (header_hash(head, (const uint8_t *)head + SW_FRAME_HEADER_BYTES, h.n_symbols) != h.header_hash)
        return sw_err_set(err, -SW_ECHECKSUM, SW_SCOPE_REQUEST, "frame header is damaged");
    int r = check_fields(&h, err);
    if (r < 0)
        return r;

    struct sw_frame_layout layout;
    sw_frame_layout_init(&layout, (enum sw_codec_id)h.codec, h.segment_log2, h.raw_bytes, h.n_symbols);
    sw_frame_layout_add_dictionary(&layout, (uint32_t)SW_FRAME_ALIGN * h.dictionary16);
    bool fits = layout.frame_bytes ? h.frame_bytes == layout.frame_bytes : h.frame_bytes >= layout.data_offset;
    if (!fits || h.frame_bytes % SW_FRAME_ALIGN)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "frame's sections do not fit into its %llu bytes",
                          (unsigned long long)h.frame_bytes);
    if (h.frame_bytes != frame_bytes)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "frame says that it has %llu bytes, but it has %llu",
                          (unsigned long long)h.frame_bytes, (unsigned long long)frame_bytes);
    layout.frame_bytes = h.frame_bytes;
    layout.value_type = (enum sw_value_type)h.value_type;
    *ret = layout;
    return 0;
}

static const char *const value_types[SW_VALUE_NR] = {"none", "u8",  "u16", "u32",  "u64", "i8", "i16",   "i32",
                                                     "i64",  "f32", "f64", "bf16", "f16", "f8", "dec128"};

const char *sw_codec_name(enum sw_codec_id codec) {
    const struct sw_codec_format *format = sw_codec_format_of((unsigned)codec);
    return format ? format->name : "unknown";
}

bool sw_codec_takes(enum sw_codec_id codec, enum sw_value_type type) {
    const struct sw_codec_format *format = sw_codec_format_of((unsigned)codec);
    if (!format || type >= SW_VALUE_NR)
        return false;
    switch (format->takes) {
    case SW_TAKES_BYTES:
        return type == SW_VALUE_NONE;
    case SW_TAKES_NUMBERS:
        return type >= SW_VALUE_U8 && sw_value_bits(type) <= 64;
    case SW_TAKES_LONG_NUMBERS:
        return type >= SW_VALUE_U8 && (sw_value_bits(type) == 32 || sw_value_bits(type) == 64);
    case SW_TAKES_FLOATS:
        return type == SW_VALUE_F32 || type == SW_VALUE_F64;
    case SW_TAKES_PARTS:
        return type == SW_VALUE_NONE || type >= SW_VALUE_F32;
    }
    return false;
}

bool sw_codec_has_symbols(enum sw_codec_id codec) {
    const struct sw_codec_format *format = sw_codec_format_of((unsigned)codec);
    return format && format->max_symbols;
}

bool sw_codec_has_dictionary(enum sw_codec_id codec) {
    const struct sw_codec_format *format = sw_codec_format_of((unsigned)codec);
    return format && format->max_dictionary_bytes;
}

bool sw_codec_has_segments(enum sw_codec_id codec) {
    const struct sw_codec_format *format = sw_codec_format_of((unsigned)codec);
    return format && format->min_segment_log2 < format->max_segment_log2;
}

const char *sw_value_type_name(enum sw_value_type type) {
    return type < SW_VALUE_NR ? value_types[type] : "unknown";
}

unsigned sw_value_type_bytes(enum sw_value_type type) {
    return type == SW_VALUE_NONE ? 1 : sw_value_bits(type) / 8;
}

enum sw_value_type sw_value_type_find(const char *name) {
    int type = SW_VALUE_NR - 1;
    while (type > SW_VALUE_NONE && strcmp(name, value_types[type]) != 0)
        type--;
    return (enum sw_value_type)type;
}

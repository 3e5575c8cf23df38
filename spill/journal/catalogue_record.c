/* catalogue_record.c - the bodies of versions 2 and 3, and the parts of a region's content that all versions share. */
#include "spill/journal/catalogue_format.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

/* Reserved bytes are zero; otherwise the record is of an unknown version. */
struct session_body {
    uint64_t number;
    uint32_t uid, zero;
    uint8_t token[SW_TOKEN_BYTES];
    struct sw_process process;
    uint64_t zeros[4];
};
_Static_assert(sizeof(struct sw_process) == 32, "the format");
_Static_assert(sizeof(struct session_body) == 96, "the format");

struct region_body {
    struct sw_region_key key;
    uint64_t stored_bytes, batch;
    uint32_t n_chunks, request, batch_index;
    uint16_t n_buffers; /* 0: one buffer */
    uint8_t codec, reason;
    uint8_t has;
    uint8_t zeros[7];
};
_Static_assert(sizeof(struct region_body) == 80, "the format: with three chunks of an extent each it fills a cell");
/* A region that IS_PACKED and has no frames was packed by its client. */
enum { HAS_FRAMES = 1, HAS_NAME = 2, IS_PACKED = 4, IS_CLIENTS = 8 };

struct batch_body { /* since version 3 */
    uint64_t number;
    uint64_t zeros[3];
};

struct name_body { /* version 1, too */
    uint32_t uid;
    char name[SW_REGION_NAME_BYTES];
};

struct buffer_body { /* also in version 1 */
    uint64_t raw_bytes, chunk_bytes;
};

struct chunk_body {
    uint64_t frame_bytes, identity;
    uint32_t n_extents, n_symbols;
    uint8_t codec, tier, value_type, segment_log2;
    uint8_t has; /* IS_PACKED; since version 3: IS_CLIENTS */
    uint8_t zero;
    uint16_t dictionary16; /* the frame's; 0 for all codecs that there were before onpair */
};
_Static_assert(sizeof(struct chunk_body) == 32, "the format");

enum { LEAST_CHUNK_BYTES = 16 }; /* least length of a chunk's body, in any version */

struct range_body { /* also in version 1 */
    uint64_t offset, bytes;
};

/* ---- writing ---- */

int sw_catalogue_add(struct sw_catalogue_content *content, const void *data, size_t bytes) {
    if (content->n + bytes > content->cap) {
        const size_t cap = 2 * (content->n + bytes) + 1024;
        uint8_t *grown = sw_realloc(content->bytes, cap);
        if (!grown)
            return -SW_ENOMEM;
        content->bytes = grown;
        content->cap = cap;
    }
    memcpy(content->bytes + content->n, data, bytes);
    content->n += bytes;
    return 0;
}

int sw_catalogue_add_session(struct sw_catalogue_content *content, const struct sw_catalogue_session *session) {
    struct session_body body = {.number = session->number, .uid = session->uid, .process = session->process};
    memcpy(body.token, session->token, sizeof body.token);
    return sw_catalogue_add(content, &body, sizeof body);
}

int sw_catalogue_add_batch(struct sw_catalogue_content *content, uint64_t batch) {
    const struct batch_body body = {.number = batch};
    return sw_catalogue_add(content, &body, sizeof body);
}

/* Returns the frame's tier, also if the frame was found and no tier has claimed it yet. */
static uint8_t tier_of(const struct sw_stored *stored) {
    return stored->tier ? stored->tier->kind->id : stored->awaits;
}

static int add_chunk(struct sw_catalogue_content *content, const struct sw_frames *frames, size_t i) {
    const struct sw_stored *stored = &frames->stored[i];
    const struct sw_frame_layout *layout = &frames->layouts[i];
    const struct sw_packed_chunk *packed = frames->packed ? &frames->packed[i] : NULL;
    const struct chunk_body body = {
        .frame_bytes = layout->frame_bytes,
        .identity = frames->identities[i],
        .n_extents = stored->n_extents,
        .n_symbols = layout->n_symbols,
        .codec = (uint8_t)layout->codec,
        .tier = tier_of(stored),
        .value_type = (uint8_t)layout->value_type,
        .segment_log2 = (uint8_t)layout->segment_log2,
        .dictionary16 = (uint16_t)(layout->dictionary_bytes / SW_FRAME_ALIGN),
        .has = (uint8_t)((packed && packed->is_packed ? IS_PACKED : 0) | (frames->are_clients[i] ? IS_CLIENTS : 0))};
    int rc = sw_catalogue_add(content, &body, sizeof body);
    for (unsigned e = 0; !rc && e < stored->n_extents; e++) {
        const struct range_body extent = {stored->extents[e].offset, stored->extents[e].bytes};
        rc = sw_catalogue_add(content, &extent, sizeof extent);
    }
    if (!rc && packed) {
        const struct range_body range = {packed->offset, packed->bytes};
        rc = sw_catalogue_add(content, &range, sizeof range);
    }
    return rc;
}

static int add_name(struct sw_catalogue_content *content, const struct sw_catalogue_region *r) {
    struct name_body body = {.uid = r->uid};
    (void)snprintf(body.name, sizeof body.name, "%s", r->name);
    return sw_catalogue_add(content, &body, sizeof body);
}

static int add_buffers(struct sw_catalogue_content *content, const struct sw_frames *frames) {
    int rc = 0;
    for (unsigned i = 0; !rc && i < frames->n_buffers; i++) {
        const struct buffer_body buffer = {frames->buffers[i].raw_bytes, frames->buffers[i].chunk_bytes};
        rc = sw_catalogue_add(content, &buffer, sizeof buffer);
    }
    return rc;
}

int sw_catalogue_add_region(struct sw_catalogue_content *content, const struct sw_catalogue_region *r,
                            uint64_t sequence) {
    const bool is_held = r->frames && sw_frames_are_held(r->frames);
    const struct sw_frames *frames = is_held ? NULL : r->frames;
    const struct region_body body = {
        .key = {.sequence = sequence,
                .session = r->session,
                .slot = r->slot,
                .gen = r->gen,
                .raw_bytes = r->raw_bytes,
                .chunk_bytes = frames ? frames->chunk_bytes : 0},
        .stored_bytes = r->stored_bytes,
        .batch = r->batch,
        .n_chunks = frames ? (uint32_t)frames->n_chunks : 0,
        .request = r->request,
        .batch_index = r->batch_index,
        .n_buffers = frames ? (uint16_t)frames->n_buffers : 0,
        .codec = r->codec,
        .reason = r->reason,
        .has = (uint8_t)((frames ? HAS_FRAMES : 0) | (r->name ? HAS_NAME : 0) |
                         (is_held || (frames && frames->packed) ? IS_PACKED : 0)),
    };
    int rc = sw_catalogue_add(content, &body, sizeof body);
    if (!rc && r->name)
        rc = add_name(content, r);
    if (!rc && frames)
        rc = add_buffers(content, frames);
    for (size_t i = 0; !rc && frames && i < frames->n_chunks; i++)
        rc = add_chunk(content, frames, i);
    return rc;
}

/* ---- reading bodies ---- */

bool sw_catalogue_take(struct sw_catalogue_reader *r, void *ret, size_t bytes) {
    if (r->left < bytes)
        return false;
    memcpy(ret, r->at, bytes);
    r->at += bytes;
    r->left -= bytes;
    return true;
}

static bool are_zeros(const void *data, size_t bytes) {
    const uint8_t *p = data;
    while (bytes > 0 && !p[bytes - 1])
        bytes--;
    return bytes == 0;
}

static bool take_session(struct sw_catalogue_reader *r, struct sw_catalogue_session *ret) {
    struct session_body body;
    if (!sw_catalogue_take(r, &body, sizeof body) || body.zero || !are_zeros(body.zeros, sizeof body.zeros))
        return false;
    *ret = (struct sw_catalogue_session){.number = body.number, .uid = body.uid, .process = body.process};
    memcpy(ret->token, body.token, sizeof ret->token);
    return true;
}

static bool take_region(struct sw_catalogue_reader *r, struct sw_region_head *ret) {
    struct region_body body;
    if (!sw_catalogue_take(r, &body, sizeof body) || !are_zeros(body.zeros, sizeof body.zeros) ||
        body.has & ~(HAS_FRAMES | HAS_NAME | IS_PACKED))
        return false;
    *ret = (struct sw_region_head){.key = body.key,
                                   .stored_bytes = body.stored_bytes,
                                   .batch = body.batch,
                                   .n_chunks = body.n_chunks,
                                   .request = body.request,
                                   .batch_index = body.batch_index,
                                   .n_buffers = body.n_buffers,
                                   .codec = body.codec,
                                   .reason = body.reason,
                                   .has_frames = body.has & HAS_FRAMES,
                                   .has_name = body.has & HAS_NAME,
                                   .is_packed = body.has & IS_PACKED,
                                   .is_held = (body.has & (IS_PACKED | HAS_FRAMES)) == IS_PACKED};
    return true;
}

static bool take_chunk_3(struct sw_catalogue_reader *r, struct sw_chunk_head *ret) {
    struct chunk_body body;
    if (!sw_catalogue_take(r, &body, sizeof body) || body.zero || body.has & ~(IS_PACKED | IS_CLIENTS))
        return false;
    *ret = (struct sw_chunk_head){.frame_bytes = body.frame_bytes,
                                  .identity = body.identity,
                                  .n_extents = body.n_extents,
                                  .n_symbols = body.n_symbols,
                                  .codec = body.codec,
                                  .tier = body.tier,
                                  .value_type = body.value_type,
                                  .segment_log2 = body.segment_log2,
                                  .dictionary_bytes = SW_FRAME_ALIGN * (uint32_t)body.dictionary16,
                                  .is_packed = body.has & IS_PACKED,
                                  .is_clients = body.has & IS_CLIENTS};
    return true;
}

static bool take_chunk(struct sw_catalogue_reader *r, struct sw_chunk_head *ret) {
    return take_chunk_3(r, ret) && !ret->is_clients;
}

static bool take_batch(struct sw_catalogue_reader *r, uint64_t *ret) {
    struct batch_body body;
    if (!sw_catalogue_take(r, &body, sizeof body) || body.number == 0 || !are_zeros(body.zeros, sizeof body.zeros))
        return false;
    *ret = body.number;
    return true;
}

const struct sw_catalogue_format sw_catalogue_v2 = {.version = 2,
                                                    .cell_bytes = 256,
                                                    .region_bytes = sizeof(struct region_body),
                                                    .take_session = take_session,
                                                    .take_region = take_region,
                                                    .take_chunk = take_chunk};

const struct sw_catalogue_format sw_catalogue_v3 = {.version = 3,
                                                    .cell_bytes = 256,
                                                    .region_bytes = sizeof(struct region_body),
                                                    .take_session = take_session,
                                                    .take_region = take_region,
                                                    .take_chunk = take_chunk_3,
                                                    .take_batch = take_batch};
_Static_assert(SW_CATALOGUE_VERSION == 3, "the last one is written");

/* ---- reading a region ---- */

static bool makes_sense(const struct sw_chunk_head *head) {
    return head->codec < SW_CODEC_NR && head->value_type < SW_VALUE_NR && head->n_symbols < 1u << 16 &&
           head->segment_log2 < 32 && head->dictionary_bytes <= sw_codec_format_of(head->codec)->max_dictionary_bytes &&
           sw_codec_takes((enum sw_codec_id)head->codec, (enum sw_value_type)head->value_type) &&
           (head->tier || head->n_extents == 0);
}

static int read_extents(struct sw_catalogue_reader *r, const struct sw_chunk_head *head, struct sw_stored *ret) {
    struct range_body range;
    ret->awaits = head->tier;
    ret->bytes = head->tier ? head->frame_bytes : 0; /* version 1 did not record all extents */
    if (head->n_extents > r->left / sizeof range)
        return -SW_EFRAME;
    if (head->n_extents > 0 && !(ret->extents = sw_alloc_array(head->n_extents, sizeof ret->extents[0])))
        return -SW_ENOMEM;
    ret->n_extents = head->n_extents;
    uint64_t bytes = 0;
    for (unsigned e = 0; e < head->n_extents; e++) {
        uint64_t end;
        (void)sw_catalogue_take(r, &range, sizeof range);
        if (__builtin_add_overflow(range.offset, range.bytes, &end) ||
            __builtin_add_overflow(bytes, range.bytes, &bytes))
            return -SW_EFRAME;
        ret->extents[e] = (struct sw_extent){.offset = range.offset, .bytes = range.bytes};
    }
    if (head->n_extents > 0) /* only the beginning of a packed region's frame is in a tier */
        ret->bytes = bytes;
    return 0;
}

/* Returns true if a frame lies in its extents whole, and is no longer than a frame of the chunk can be. A packed
 * region's frame may lie there only in part. */
static bool fits(const struct sw_frames *frames, size_t i) {
    const struct sw_stored *stored = &frames->stored[i];
    const uint64_t frame_bytes = frames->layouts[i].frame_bytes;
    return frame_bytes <= sw_frame_bound_bytes(frames->layouts[i].raw_bytes) &&
           (frames->packed ? stored->bytes <= frame_bytes : stored->bytes == frame_bytes);
}

/* Returns true if the range of a packed chunk lies inside the region. */
static bool is_inside(const struct range_body *range, uint64_t raw_bytes) {
    return range->offset <= raw_bytes && range->bytes <= raw_bytes - range->offset;
}

static int read_chunk(const struct sw_catalogue_format *format, struct sw_catalogue_reader *r, struct sw_frames *frames,
                      size_t i) {
    struct sw_chunk_head head;
    struct range_body range;
    if (!format->take_chunk(r, &head) || !makes_sense(&head))
        return -SW_EFRAME;
    sw_frame_layout_init(&frames->layouts[i], (enum sw_codec_id)head.codec, head.segment_log2,
                         sw_frames_chunk_bytes(frames, i), head.n_symbols);
    sw_frame_layout_add_dictionary(&frames->layouts[i], head.dictionary_bytes);
    frames->layouts[i].value_type = (enum sw_value_type)head.value_type;
    frames->layouts[i].frame_bytes = head.frame_bytes;
    frames->identities[i] = head.identity;
    frames->are_clients[i] = head.is_clients;
    const int rc = read_extents(r, &head, &frames->stored[i]);
    if (rc)
        return rc;
    if (!fits(frames, i))
        return -SW_EFRAME;
    if (!frames->packed)
        return head.tier ? 0 : -SW_EFRAME;
    if (!sw_catalogue_take(r, &range, sizeof range) || !is_inside(&range, frames->raw_bytes))
        return -SW_EFRAME;
    frames->packed[i] = (struct sw_packed_chunk){range.offset, range.bytes, head.is_packed};
    return 0;
}

/* Returns the number of a buffer's chunks; 0 if it has none, or makes no sense. */
static uint64_t count_chunks(uint64_t raw_bytes, uint64_t chunk_bytes) {
    return chunk_bytes ? raw_bytes / chunk_bytes + (raw_bytes % chunk_bytes != 0) : 0;
}

/* Allocates nothing that the record has no content for. */
static int new_frames(struct sw_catalogue_reader *r, const struct sw_region_head *head, struct sw_frames **ret) {
    struct sw_frames_buffer buffers[SW_FRAMES_MAX_BUFFERS];
    const struct sw_region_key *key = &head->key;
    uint64_t n = head->n_buffers ? 0 : count_chunks(key->raw_bytes, key->chunk_bytes);
    uint64_t raw_bytes = 0;
    bool good =
        head->n_buffers <= SW_FRAMES_MAX_BUFFERS && key->chunk_bytes > 0 && !(head->n_buffers && head->is_packed);
    for (unsigned i = 0; good && i < head->n_buffers; i++) {
        struct buffer_body buffer;
        good = sw_catalogue_take(r, &buffer, sizeof buffer) && buffer.chunk_bytes > 0 &&
               !__builtin_add_overflow(raw_bytes, buffer.raw_bytes, &raw_bytes);
        if (good)
            buffers[i] = (struct sw_frames_buffer){
                .raw_bytes = buffer.raw_bytes, .chunk_bytes = buffer.chunk_bytes, .reason = head->reason};
        const uint64_t more = good ? count_chunks(buffer.raw_bytes, buffer.chunk_bytes) : 0;
        good = good && more <= head->n_chunks;
        n += more;
    }
    if (!good || n != head->n_chunks || n > r->left / LEAST_CHUNK_BYTES)
        return -SW_EFRAME;
    *ret = head->n_buffers ? sw_frames_new_buffers(buffers, head->n_buffers)
                           : sw_frames_new(key->raw_bytes, key->chunk_bytes, head->is_packed);
    return *ret ? 0 : -SW_ENOMEM;
}

void sw_catalogue_free_unclaimed(struct sw_frames *frames) {
    for (size_t i = 0; frames && i < frames->n_chunks; i++)
        if (!frames->stored[i].tier) {
            sw_free(frames->stored[i].extents);
            frames->stored[i] = (struct sw_stored){0};
        }
}

void sw_catalogue_frames_free(struct sw_frames *frames) {
    sw_catalogue_free_unclaimed(frames);
    sw_frames_free(frames);
}

static int read_frames(const struct sw_catalogue_format *format, struct sw_catalogue_reader *r,
                       const struct sw_region_head *head, struct sw_frames **ret) {
    struct sw_frames *frames = NULL;
    int rc = new_frames(r, head, &frames);
    if (rc)
        return rc;
    rc = frames->raw_bytes == head->key.raw_bytes ? 0 : -SW_EFRAME;
    for (size_t i = 0; !rc && i < frames->n_chunks; i++)
        rc = read_chunk(format, r, frames, i);
    if (!rc && r->left)
        rc = -SW_EFRAME;
    if (rc)
        sw_catalogue_frames_free(frames);
    else
        *ret = frames;
    return rc;
}

static int read_held(const struct sw_region_head *head, struct sw_frames **ret) {
    const struct sw_region_key *key = &head->key;
    if (!key->raw_bytes || head->stored_bytes > key->raw_bytes || head->codec >= SW_CODEC_NR)
        return -SW_EFRAME;
    *ret = sw_frames_new_held(key->raw_bytes, head->stored_bytes, (enum sw_codec_id)head->codec);
    return *ret ? 0 : -SW_ENOMEM;
}

int sw_catalogue_read_region(const struct sw_catalogue_format *format, const void *content, size_t bytes,
                             struct sw_catalogue_region *ret, char ret_name[SW_REGION_NAME_BYTES]) {
    struct sw_catalogue_reader reader = {content, bytes};
    struct sw_region_head head;
    struct name_body name = {0};
    if (!format->take_region(&reader, &head) ||
        (head.has_name && (!sw_catalogue_take(&reader, &name, sizeof name) || name.name[sizeof name.name - 1])))
        return -SW_EFRAME;
    memcpy(ret_name, name.name, SW_REGION_NAME_BYTES);
    *ret = (struct sw_catalogue_region){.session = head.key.session,
                                        .slot = head.key.slot,
                                        .gen = head.key.gen,
                                        .request = head.request,
                                        .batch_index = head.batch_index,
                                        .batch = head.batch,
                                        .raw_bytes = head.key.raw_bytes,
                                        .stored_bytes = head.stored_bytes,
                                        .codec = head.codec,
                                        .reason = head.reason,
                                        .name = head.has_name ? ret_name : NULL,
                                        .uid = name.uid};
    if (!head.has_frames && reader.left)
        return -SW_EFRAME;
    if (!head.has_frames)
        return head.is_held ? read_held(&head, &ret->frames) : 0;
    return read_frames(format, &reader, &head, &ret->frames);
}

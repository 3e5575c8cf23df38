/* catalogue_v1.c - the bodies of version 1, which are only read. They have no identities, and no extents of frames on
 * the disk. */
#include "spill/journal/catalogue_format.h"

#include <string.h>

struct session_body {
    uint64_t number;
    uint32_t uid;
    uint8_t token[SW_TOKEN_BYTES];
    uint32_t pid;
};
_Static_assert(sizeof(struct session_body) == 32, "as version 1 has recorded it");

struct region_body {
    struct sw_region_key key;
    uint64_t stored_bytes;
    uint32_t n_chunks, request, batch_index;
    uint8_t codec, reason;
    uint8_t shape; /* SHAPE_PACKED, or the number of buffers if there are several */
    uint8_t has;
};
_Static_assert(sizeof(struct region_body) == 64, "as version 1 has recorded it");
enum { HAS_FRAMES = 1, HAS_NAME = 2, SHAPE_PACKED = 1 };
enum { IN_NO_TIER, IN_HOST_TIER, IN_NVME_TIER }; /* as in later versions */

struct chunk_body {
    uint64_t frame_bytes;
    uint32_t n_extents;
    uint16_t symbols_type; /* number of symbols, value type << 12 */
    uint8_t segment_log2;
    uint8_t codec_tier; /* codec, tier << 4, packed << 7 */
};
_Static_assert(sizeof(struct chunk_body) == 16, "as version 1 has recorded it");

static bool take_session(struct sw_catalogue_reader *r, struct sw_catalogue_session *ret) {
    struct session_body body;
    if (!sw_catalogue_take(r, &body, sizeof body))
        return false;
    *ret = (struct sw_catalogue_session){.number = body.number, .uid = body.uid, .process = {.pid = body.pid}};
    memcpy(ret->token, body.token, sizeof ret->token);
    return true;
}

static bool take_region(struct sw_catalogue_reader *r, struct sw_region_head *ret) {
    struct region_body body;
    if (!sw_catalogue_take(r, &body, sizeof body))
        return false;
    *ret = (struct sw_region_head){.key = body.key,
                                   .stored_bytes = body.stored_bytes,
                                   .n_chunks = body.n_chunks,
                                   .request = body.request,
                                   .batch_index = body.batch_index,
                                   .n_buffers = body.shape > SHAPE_PACKED ? body.shape : 0,
                                   .codec = body.codec,
                                   .reason = body.reason,
                                   .has_frames = body.has & HAS_FRAMES,
                                   .has_name = body.has & HAS_NAME,
                                   .is_packed = body.shape == SHAPE_PACKED};
    return true;
}

static bool take_chunk(struct sw_catalogue_reader *r, struct sw_chunk_head *ret) {
    struct chunk_body body;
    if (!sw_catalogue_take(r, &body, sizeof body))
        return false;
    *ret = (struct sw_chunk_head){.frame_bytes = body.frame_bytes,
                                  .n_extents = body.n_extents,
                                  .n_symbols = body.symbols_type & 0xFFFu,
                                  .codec = body.codec_tier & 15u,
                                  .tier = (uint8_t)(body.codec_tier >> 4 & 7u),
                                  .value_type = body.symbols_type >> 12,
                                  .segment_log2 = body.segment_log2,
                                  .is_packed = body.codec_tier >> 7};
    return ret->tier <= IN_NVME_TIER && (ret->tier == IN_HOST_TIER) == (ret->n_extents > 0);
}

const struct sw_catalogue_format sw_catalogue_v1 = {.version = 1,
                                                    .cell_bytes = 128,
                                                    .region_bytes = sizeof(struct region_body),
                                                    .take_session = take_session,
                                                    .take_region = take_region,
                                                    .take_chunk = take_chunk};

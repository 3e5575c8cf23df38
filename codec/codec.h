/* codec.h - encodes and decodes chunks on the host.
 *
 * A *plan* says how the chunks of one region are encoded: its codec, and what the codec has learned from a sample
 * (plan/plan.h). It is plain data: copy it freely, and use it from several threads at once. Only encoding needs a plan;
 * a frame carries everything that is needed to decode it. All functions: thread any, no hidden state, the caller owns
 * all buffers.
 *
 * Input must not change while it is encoded, or the hashes will not match the codes. If it may change, copy it first.
 */
#ifndef SW_CODEC_CODEC_H
#define SW_CODEC_CODEC_H

#include "codec/params.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Encodes in[0..in_bytes) into one frame. If the codec's frame is not smaller than the raw frame, the raw frame is
 * stored. out_cap_bytes: at least sw_frame_bound_bytes(in_bytes). `in` may have any alignment; `out` must be aligned to
 * 16. errors: -SW_ETOOSMALL (out unchanged), -SW_EINVAL (in_bytes above SW_FRAME_MAX_RAW_BYTES, unknown codec),
 * -SW_ENOMEM. */
int sw_codec_encode(const struct sw_plan *plan, const void *in, uint64_t in_bytes, void *out, uint64_t out_cap_bytes,
                    uint64_t *ret_frame_bytes, struct sw_err *err);

/* Decodes a whole frame and verifies every tile. It never reads outside frame[0..frame_bytes) and never writes outside
 * out[0..out_cap_bytes), whatever the frame holds. Both may have any alignment.
 * errors: -SW_ETOOSMALL (out unchanged); -SW_EFRAME, -SW_EVERSION, -SW_ECHECKSUM: out's content is undefined. */
int sw_codec_decode(const void *frame, uint64_t frame_bytes, void *out, uint64_t out_cap_bytes, uint64_t *ret_raw_bytes,
                    struct sw_err *err);

/* Decodes and verifies every tile of a frame, and keeps none of its bytes. errors: as sw_codec_decode(), and -SW_ENOMEM
 * (for one tile). */
int sw_codec_verify(const void *frame, uint64_t frame_bytes, struct sw_err *err);

/* Decodes only segment number `segment` into out, which has room for 1 << segment_log2 bytes. It does not read the
 * codes of other segments. It does not verify the bytes, because hashes cover whole tiles. errors: as
 * sw_codec_decode(), and -SW_ERANGE: the frame has no such segment. */
int sw_codec_decode_segment(const void *frame, uint64_t frame_bytes, uint64_t segment, void *out,
                            uint64_t out_cap_bytes, size_t *ret_bytes, struct sw_err *err);

/* Decodes only tile number `tile` (32 segments) and verifies its hash. errors: as sw_codec_decode_segment(). */
int sw_codec_decode_tile(const void *frame, uint64_t frame_bytes, uint32_t tile, void *out, uint64_t out_cap_bytes,
                         size_t *ret_bytes, struct sw_err *err);

#ifdef __cplusplus
}
#endif
#endif

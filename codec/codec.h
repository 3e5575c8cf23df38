/* codec.h - encode and decode chunks on the host.
 *
 * A *plan* says how the chunks of one region are encoded: by which codec, and with what that has learnt. It is made
 * from a sample (plan/plan.h) and is plain data: copy it freely, use it from several threads at once. Every frame
 * carries what is needed to decode it, so a plan is needed for encoding only. All functions: thread any, no hidden
 * state, caller owns all buffers.
 *
 * Must not be used for input that changes while it is read (the checksum would not match the codes): snapshot it first.
 */
#ifndef SW_CODEC_CODEC_H
#define SW_CODEC_CODEC_H

#include "codec/params.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Encodes in[0..in_bytes) into one frame. What would not be smaller than the raw frame, by whichever codec, is stored
 * raw. out_cap_bytes: at least sw_frame_bound_bytes(in_bytes). units: bytes; any alignment of `in`, `out` aligned
 * to 16. errors: -SW_ETOOSMALL (out untouched), -SW_EINVAL (in_bytes above SW_FRAME_MAX_RAW_BYTES, unknown codec),
 * -SW_ENOMEM.
 */
int sw_codec_encode(const struct sw_plan *plan, const void *in, uint64_t in_bytes, void *out, uint64_t out_cap_bytes,
                    uint64_t *ret_frame_bytes, struct sw_err *err);

/* Decodes a whole frame and verifies every tile. Never reads outside frame[0..frame_bytes) nor writes outside
 * out[0..out_cap_bytes), whatever the frame holds; any alignment of both.
 * errors: -SW_EFRAME, -SW_EVERSION, -SW_ECHECKSUM, -SW_ETOOSMALL (out untouched); out's content is undefined else. */
int sw_codec_decode(const void *frame, uint64_t frame_bytes, void *out, uint64_t out_cap_bytes, uint64_t *ret_raw_bytes,
                    struct sw_err *err);

/* Random access: decodes segment number `segment` alone into out (1 << segment_log2 bytes of room) without reading
 * other segments' codes. Its bytes are checked for shape only: the hash covers whole tiles.
 * errors: as sw_codec_decode, and -SW_ERANGE for a segment that is not there. */
int sw_codec_decode_segment(const void *frame, uint64_t frame_bytes, uint64_t segment, void *out,
                            uint64_t out_cap_bytes, size_t *ret_bytes, struct sw_err *err);

/* Random access with proof: decodes tile number `tile` (32 segments) and verifies its hash. errors: as above. */
int sw_codec_decode_tile(const void *frame, uint64_t frame_bytes, uint32_t tile, void *out, uint64_t out_cap_bytes,
                         size_t *ret_bytes, struct sw_err *err);

#ifdef __cplusplus
}
#endif
#endif

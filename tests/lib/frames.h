/* frames.h - chunks through the codec and back, in buffers that touch pages without access.
 *
 * The calls fail the running test (Check) where something is not as it should be. thread: any. */
#ifndef SW_TEST_FRAMES_H
#define SW_TEST_FRAMES_H

#include "codec/codec.h"
#include "spillway_packed.h"
#include "tests/lib/guard.h"

/* Encodes a chunk by a plan, decodes it and compares; the frame depends on nothing else. Returns the frame, cut to its
 * length; the caller frees it. */
struct sw_guard sw_frame_encode_decode(const struct sw_plan *plan, const uint8_t *data, size_t bytes);
/* Encodes a chunk by a plan, and decodes it whole, by tiles and by segments. Returns the frame's bytes. */
uint64_t sw_frame_round_trip(const struct sw_plan *plan, const uint8_t *data, size_t bytes);

/* Proves where chunks of a packed region are said to lie: all but those that are ELSEWHERE decode to their part of
 * original[0 ... bytes), and none leaves the packed_bytes at the region's front. Returns the bytes that decoded. */
uint64_t sw_packed_ck(const uint8_t *region, uint64_t packed_bytes, const struct spillway_packed_chunk *chunks,
                      size_t n_chunks, const uint8_t *original, uint64_t bytes);

#endif

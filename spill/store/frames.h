/* frames.h - releases frames (mover/frames.h) that lie in tiers, and finds their main tier; the frames of regions that
 * their clients have packed. */
#ifndef SW_SPILL_FRAMES_H
#define SW_SPILL_FRAMES_H

#include "spill/mover/frames.h"
#include "spill/tier/tiers.h"

/* Releases every frame, and frees the array. NULL is a no-op. */
void sw_frames_free(struct sw_frames *frames);
/* Frees the array, but leaves frames in durable tiers to a successor, which owns them from now on. Nothing may be
 * reserved in a tier after this. */
void sw_frames_leave(struct sw_frames *frames);
/* Returns the tier that has most of the stored bytes. NULL: no tier has any. ret_bytes: the bytes in each tier, by
 * rank. */
struct sw_tier *sw_frames_tier(const struct sw_frames *frames, uint64_t ret_bytes[SW_TIERS_MAX]);

/* Makes the frames of a region that its client has packed, and whose directory only the client has. One packed chunk,
 * the client's, stands for all. NULL: out of memory. raw_bytes > 0. */
struct sw_frames *sw_frames_new_held(uint64_t raw_bytes, uint64_t stored_bytes, enum sw_codec_id codec);
bool sw_frames_are_held(const struct sw_frames *frames);

#endif

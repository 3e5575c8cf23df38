/* frames.h - frames (mover/frames.h) that lie in tiers. */
#ifndef SW_SPILL_FRAMES_H
#define SW_SPILL_FRAMES_H

#include "spill/mover/frames.h"
#include "spill/tier/tiers.h"

/* Releases every frame and the array. NULL is a no-op. */
void sw_frames_free(struct sw_frames *frames);
/* Frees the array, but leaves the frames where they are for a successor, whose they are from now on. Nothing may be
 * reserved in a tier after this. */
void sw_frames_leave(struct sw_frames *frames);
/* The tier that has most of the stored bytes; NULL if no tier has any. ret_bytes: those in each tier, by rank. */
struct sw_tier *sw_frames_tier(const struct sw_frames *frames, uint64_t ret_bytes[SW_TIERS_MAX]);

#endif

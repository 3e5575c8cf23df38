/* frame_key.h - what durable tiers know a frame by, and what tells it from any other. thread: any. */
#ifndef SW_SPILL_FRAME_KEY_H
#define SW_SPILL_FRAME_KEY_H

#include "codec/frame.h"
#include "spill/tier/tier.h"

/* What finds a frame of a durable tier again: whose region, which chunk. The tier outlives the catalogue that ids are
 * unique in, so the key also says which one that is. */
struct sw_tier_key {
    uint32_t slot, gen;
    uint64_t chunk; /* sw_frames_key() */
    uint64_t check; /* below */
    uint64_t epoch; /* sw_catalogue_epoch() */
};
_Static_assert(sizeof(struct sw_tier_key) == SW_TIER_KEY_BYTES, "the tier keeps so many bytes");

/* Tells a frame from any other that may lie in its place on the disk, because a write was lost or went elsewhere, by a
 * hash of its beginning, where the hashes of all its content are. Bit 63 is set, below it is the hashed length, and in
 * the lower half the hash. The first versions of the program have the region's length there, with which nothing is
 * checked. A region whose directory has the frame's identity goes by that, which has 64 bits.
 */
uint64_t sw_tier_key_check(const struct sw_stored *in_memory, const struct sw_frame_layout *layout);
/* Whether a frame with this check can be told from others. */
bool sw_tier_key_is_told(uint64_t check);
/* Whether that frame, with this check, is what lies in memory. */
bool sw_tier_key_fits(const struct sw_stored *in_memory, uint64_t check);

#endif

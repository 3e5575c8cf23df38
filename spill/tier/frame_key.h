/* frame_key.h - the key under which durable tiers store a frame, and the check that recognises the frame. thread: any.
 */
#ifndef SW_SPILL_FRAME_KEY_H
#define SW_SPILL_FRAME_KEY_H

#include "codec/frame.h"
#include "spill/tier/tier.h"

/* Finds a frame in a durable tier again: its region and its chunk. Region ids are unique in one catalogue only, and the
 * tier outlives it, so the key also names the catalogue. */
struct sw_tier_key {
    uint32_t slot, gen;
    uint64_t chunk; /* sw_frames_key() */
    uint64_t check; /* below */
    uint64_t epoch; /* sw_catalogue_epoch() */
};
_Static_assert(sizeof(struct sw_tier_key) == SW_TIER_KEY_BYTES, "the tier keeps so many bytes");

/* Returns a check that recognises the frame, in case another frame lies in its place on the disk because a write was
 * lost or misdirected. It is a hash of the frame's beginning, which holds the hashes of all its content. Bit 63 is set;
 * below it is the hashed length, and in the lower half the hash. The first versions of the program stored the region's
 * length here, which checks nothing. If a region's directory has the frame's identity, this is used instead, with its
 * 64 bits. */
uint64_t sw_tier_key_check(const struct sw_stored *in_memory, const struct sw_frame_layout *layout);
/* Returns whether the key holds such a check. */
bool sw_tier_key_has_check(uint64_t check);
/* Returns whether the bytes in memory are the frame of this check. Without a check: true. */
bool sw_tier_key_matches(const struct sw_stored *in_memory, uint64_t check);

#endif

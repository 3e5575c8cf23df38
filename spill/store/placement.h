/* placement.h - decides which tier a frame goes to, and reserves room there.
 *
 * A frame at rest goes to the first tier that is below its limit; the last tier takes frames up to its capacity. The
 * addressable tier's room above its limit is for frames in transit between a device and a tier behind it: one half for
 * frames going out, one half for frames coming in. So neither direction can block the other. If a predecessor had a
 * higher limit, more than the limit may be at rest. Then frames in transit wait until demotions have made room. All
 * workers share one placement. */
#ifndef SW_SPILL_PLACEMENT_H
#define SW_SPILL_PLACEMENT_H

#include "spill/store/tier_share.h"
#include <stdatomic.h>

struct sw_placement {
    struct sw_tiers tiers;
    uint64_t capacity_bytes;            /* of all tiers together: nothing longer will ever fit */
    uint64_t limit_bytes[SW_TIERS_MAX]; /* for frames at rest, in each tier */
    uint64_t transit_bytes;             /* limit for frames in transit, in each direction */
    uint64_t chunk_bytes;               /* longest chunk of which a frame fits there whatever it holds */
    atomic_ullong out_bytes, in_bytes;  /* in transit now */
    struct sw_tier_share share;         /* limits requests to the tiers behind memory */
    uint64_t epoch;                     /* in the keys of frames in durable tiers (frame_key.h); 0 until it is set */
    atomic_uint n_demotions;            /* from the addressable tier that are under way */
    atomic_ullong demoted_us;           /* when they last got on */
};

/* Initialises a placement. tiers: settled; copied. staging_bytes: room in the addressable tier for frames in transit;
 * unused if there is no other tier. */
void sw_placement_init(struct sw_placement *ret, const struct sw_tiers *tiers, uint64_t staging_bytes);

/* Returns the addressable tier. thread: any. */
static inline struct sw_tier *sw_placement_memory(const struct sw_placement *place) {
    return place->tiers.at[0];
}

/* Returns true if a frame of this length cannot rest in the addressable tier, but may rest in one behind it. thread:
 * any. */
bool sw_placement_goes_out(struct sw_placement *place, uint64_t bytes);

/* Returns how many bytes may come to rest in a tier now. An eighth of the addressable tier is left out, because other
 * frames are being placed at the same time. thread: any. */
uint64_t sw_placement_room_bytes(const struct sw_placement *place, unsigned rank);

/* Returns the tier behind this one that a frame of this length would go to now. NULL: there is none. thread: any. */
const struct sw_tier *sw_placement_next_behind(const struct sw_placement *place, const struct sw_tier *tier,
                                               uint64_t bytes);

/* Reserves room for a frame at rest in a tier behind this one. errors: those of reserve(). thread: any. */
int sw_placement_reserve_behind(const struct sw_placement *place, const struct sw_tier *tier, uint64_t bytes,
                                struct sw_stored *ret, struct sw_err *err);

/* Reserves memory for a frame in transit; sw_placement_arrived() releases it. -SW_EAGAIN: try again when another frame
 * in transit has arrived, or when a demotion has moved a chunk. A frame going out does not wait for frames coming in:
 * they wait for slots, and it may occupy the last slot. errors: -SW_EAGAIN, those of reserve(). thread: any. */
int sw_placement_stage(struct sw_placement *place, enum sw_tier_io_kind kind, uint64_t bytes, struct sw_stored *ret,
                       struct sw_err *err);
void sw_placement_arrived(struct sw_placement *place, struct sw_stored *staged);

/* Note that a demotion from the addressable tier begins, that one of its chunks has left the tier, and that it has
 * ended. Before the last call its room must be free, and the next demotion must have begun. thread: any. */
void sw_placement_demotion_begins(struct sw_placement *place);
void sw_placement_demotion_gets_on(struct sw_placement *place);
void sw_placement_demotion_ended(struct sw_placement *place);

#endif

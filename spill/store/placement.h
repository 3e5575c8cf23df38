/* placement.h - what of the tiers of an engine may be used for what.
 *
 * Frames rest in the first tier that is below its limit, and in the last one up to its capacity. What is left of the
 * addressable tier above its limit is for frames on their way between a device and a tier behind: one half for those
 * that go out, one for those that come in, so that neither can keep the other from moving. What rests may be more than
 * the limit, where a predecessor had a larger one; then frames on their way wait for demotions to make room. Shared by
 * all workers. */
#ifndef SW_SPILL_PLACEMENT_H
#define SW_SPILL_PLACEMENT_H

#include "spill/store/tier_share.h"
#include <stdatomic.h>

struct sw_placement {
    struct sw_tiers tiers;
    uint64_t capacity_bytes;            /* of all tiers: what is longer will never fit */
    uint64_t limit_bytes[SW_TIERS_MAX]; /* frames at rest, in each tier */
    uint64_t transit_bytes;             /* frames on their way, in each direction */
    uint64_t chunk_bytes;               /* longest chunk of which a frame fits there whatever it holds */
    atomic_ullong out_bytes, in_bytes;  /* on their way now */
    struct sw_tier_share share;         /* what the tiers behind memory are asked for */
    uint64_t epoch;                     /* in the keys of frames in durable tiers (frame_key.h); 0 until it is set */
    atomic_uint n_demotions;            /* from the addressable tier that are under way */
    atomic_ullong demoted_us;           /* when they last got on */
};

/* tiers: settled; copied. staging_bytes: of the addressable tier, for frames on their way; unused if it is the only
 * one.
 */
void sw_placement_init(struct sw_placement *ret, const struct sw_tiers *tiers, uint64_t staging_bytes);

/* The addressable tier. thread: any. */
static inline struct sw_tier *sw_placement_memory(const struct sw_placement *place) {
    return place->tiers.at[0];
}

/* True if a frame of so many bytes has no place at rest in the addressable tier, but may have one behind it. thread:
 * any. */
bool sw_placement_goes_out(struct sw_placement *place, uint64_t bytes);

/* How much may come to rest in a tier now. An eighth of the addressable one is left out, for frames that are judged at
 * the same moment. thread: any. */
uint64_t sw_placement_room_bytes(const struct sw_placement *place, unsigned rank);

/* The tier behind this one that a frame of so many bytes would go to now; NULL: there is none behind. thread: any. */
const struct sw_tier *sw_placement_next_behind(const struct sw_placement *place, const struct sw_tier *tier,
                                               uint64_t bytes);

/* Room for a frame at rest in a tier behind this one. errors: those of reserve. thread: any. */
int sw_placement_reserve_behind(const struct sw_placement *place, const struct sw_tier *tier, uint64_t bytes,
                                struct sw_stored *ret, struct sw_err *err);

/* Memory for a frame on its way. -SW_EAGAIN: others on their way have it, try again when one of them has arrived;
 * or demotions, which get on, are making room. A frame on its way out does not wait for those that come in: they wait
 * for slots, and it may have the last one.
 * errors: those of reserve. sw_placement_arrived() gives it back. thread: any. */
int sw_placement_stage(struct sw_placement *place, enum sw_tier_io_kind kind, uint64_t bytes, struct sw_stored *ret,
                       struct sw_err *err);
void sw_placement_arrived(struct sw_placement *place, struct sw_stored *staged);

/* A demotion from the addressable tier begins; one of its chunks has left it; it has ended, what room it made is there,
 * and others that follow it have begun. thread: any. */
void sw_placement_demotion_begins(struct sw_placement *place);
void sw_placement_demotion_gets_on(struct sw_placement *place);
void sw_placement_demotion_ended(struct sw_placement *place);

#endif

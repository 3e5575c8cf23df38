/* placement.h - the tiers of one engine, and what of them may be used for what.
 *
 * Frames rest in the host tier up to its limit; beyond it they go on to the NVMe tier, by way of host memory. What is
 * left of the host tier above the limit is for frames on their way between a device and the disk: one half for those
 * that go out, one for those that come in, so that neither can keep the other from moving. What rests may be more than
 * the limit, where a predecessor had a larger one; then frames on their way wait for demotions to make room. Shared by
 * all workers. */
#ifndef SW_SPILL_PLACEMENT_H
#define SW_SPILL_PLACEMENT_H

#include "spill/tier/tier.h"
#include <stdatomic.h>

struct sw_placement {
    struct sw_tier *host;
    struct sw_tier *nvme;              /* NULL: there is none, and all of the host tier is for frames at rest */
    uint64_t capacity_bytes;           /* of all tiers: what is longer will never fit */
    uint64_t host_limit_bytes;         /* frames at rest */
    uint64_t way_bytes;                /* frames on their way, in each direction */
    uint64_t chunk_bytes;              /* longest chunk of which a frame fits there whatever it holds */
    atomic_ullong out_bytes, in_bytes; /* on their way now */
    uint64_t epoch;                    /* in the keys of frames in the NVMe tier (transfer.h); 0 until it is set */
    atomic_uint n_demotions;           /* that are under way */
    atomic_ullong demoted_us;          /* when they last got on */
};

/* staging_bytes: of the host tier, for frames on their way; 0 without an NVMe tier. */
void sw_placement_init(struct sw_placement *ret, struct sw_tier *host, struct sw_tier *nvme, uint64_t staging_bytes);

/* True if a frame of so many bytes has no place at rest in the host tier, but may have one in the NVMe tier. thread:
 * any. */
bool sw_placement_goes_out(struct sw_placement *place, uint64_t bytes);

/* Where a region's frames would come to rest. An eighth of the host tier is left out, for those that are judged at the
 * same moment. thread: any. */
enum sw_placement_room { SW_ROOM_NONE, SW_ROOM_HOST, SW_ROOM_DISK };
enum sw_placement_room sw_placement_room(const struct sw_placement *place, uint64_t bytes);

/* Host memory for a frame on its way. -SW_EAGAIN: others on their way have it, try again when one of them has arrived;
 * or demotions, which get on, are making room. A frame on its way out does not wait for those that come in: they wait
 * for slots, and it may have the last one.
 * errors: those of reserve. sw_placement_arrived() gives it back. thread: any. */
int sw_placement_stage(struct sw_placement *place, enum sw_tier_io_kind kind, uint64_t bytes, struct sw_stored *ret,
                       struct sw_err *err);
void sw_placement_arrived(struct sw_placement *place, enum sw_tier_io_kind kind, struct sw_stored *staged);

/* A demotion begins; one of its chunks has come to the disk; it has ended, what room it made is there, and others that
 * follow it have begun. thread: any. */
void sw_placement_demotion_begins(struct sw_placement *place);
void sw_placement_demotion_gets_on(struct sw_placement *place);
void sw_placement_demotion_ended(struct sw_placement *place);

#endif

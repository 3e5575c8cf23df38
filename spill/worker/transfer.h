/* transfer.h - the daemon's frame sink: tiers; and frames between memory and the tiers behind it, chunk by chunk.
 *
 *   out    a slot has copied a frame to memory -> written to a tier behind, at its turn -> the chunk is done
 *   in     read ahead into memory, at its turn -> ready -> a slot takes it from there
 *   move   a frame at rest in memory -> written to a tier behind -> its memory is free (demotion), or the reverse
 *          (promotion); between two tiers behind it is read into memory in transit
 *
 * Transfers belong to their job, which cannot end before its last transfer has. Every run here is a job's (job.h). */
#ifndef SW_SPILL_TRANSFER_H
#define SW_SPILL_TRANSFER_H

#include "spill/mover/frame_sink.h"
#include "spill/worker/transit.h"
#include <pthread.h>

/* The sink of one mover, with the jobs of its worker. */
struct sw_tier_sink {
    struct sw_frame_sink sink;
    struct sw_placement *place;
    struct sw_transit transit;             /* the turns of the worker's jobs */
    uint64_t asked_bytes[SW_TIERS_MAX][2]; /* the worker's: bytes that tiers were asked for, by rank and kind */
    void (*arrived)(void *arg);
    void *arg;
    unsigned n_transfers;  /* the worker's */
    pthread_mutex_t lock;  /* guards the list; arrived() is called under it */
    struct sw_list ended;  /* struct sw_transfer: their tiers have finished them */
    atomic_bool has_ended; /* the list may have some */
};

/* Initialises a sink. Borrows the placement. arrived(): sw_mover_step() has work. thread: any. */
void sw_tier_sink_init(struct sw_tier_sink *sink, struct sw_placement *place, void (*arrived)(void *arg), void *arg);
/* Ends a sink whose mover was freed. */
void sw_tier_sink_fini(struct sw_tier_sink *sink);

#endif

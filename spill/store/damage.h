/* damage.h - what is told of stored bytes that were found bad, so that it can be said which disk or memory is to be
 * looked at. thread: loop. */
#ifndef SW_SPILL_DAMAGE_H
#define SW_SPILL_DAMAGE_H

#include "base/err.h"
#include "spill/store/ids.h"
#include "spill/tier/tier.h"

struct sw_frames;
struct sw_run_outcome;

/* A frame that a restore or a move has found bad, or has not been able to read. */
struct sw_bad_frame {
    struct sw_region_id region;
    size_t chunk, n_chunks; /* n_chunks > 1: one of these */
    const char *tier;
    char file[SW_TIER_FILE_BYTES]; /* and where the (first) frame begins */
    uint64_t offset, bytes;
    const struct sw_err *err;
};

/* A region that a restart has not found whole. */
struct sw_lost_region {
    struct sw_region_id region;
    uint64_t session; /* that made it */
    uint32_t uid;
    const char *name; /* NULL: it has none */
    uint64_t raw_bytes;
    /* Chunks; of these the ones that were not where they should be, and that may lie in a durable tier which was not
     * opened, or was another one. Both 0: it was lost before, or was being packed or unpacked. */
    size_t n_chunks, n_gone, n_away;
};

/* Hears of what is damaged, for the log; each may be NULL. Called on the loop, and must not call the engine. */
struct sw_observer {
    void (*bad_frame)(const struct sw_bad_frame *frame, void *arg);
    void (*lost_region)(const struct sw_lost_region *region, void *arg); /* by a recovery */
    void *arg;
};

/* Tells the observer where a frame lies at which a run has failed, if it has failed because of one. */
void sw_damage_report(const struct sw_observer *observer, struct sw_region_id id, const struct sw_frames *frames,
                      const struct sw_run_outcome *outcome);

#endif

/* damage.h - reports of stored bytes that were found bad. They say which disk or memory to examine. thread: loop. */
#ifndef SW_SPILL_DAMAGE_H
#define SW_SPILL_DAMAGE_H

#include "base/err.h"
#include "spill/store/ids.h"
#include "spill/tier/tier.h"

struct sw_frames;
struct sw_run_outcome;

/* A frame that a restore or a move found bad, or could not read. */
struct sw_bad_frame {
    struct sw_region_id region;
    size_t chunk, n_chunks; /* n_chunks > 1: one of these chunks is bad */
    const char *tier;
    char file[SW_TIER_FILE_BYTES]; /* where the first frame begins, with `offset` */
    uint64_t offset, bytes;
    const struct sw_err *err;
};

/* A region that a restart did not find whole. */
struct sw_lost_region {
    struct sw_region_id region;
    uint64_t session; /* the session that made it */
    uint32_t uid;
    const char *name; /* NULL: it has no name */
    uint64_t raw_bytes;
    /* n_gone: chunks that were not in their recorded place. n_away: chunks that may lie in a durable tier which is not
     * open now, or in another one. Both 0: the region was lost before, or was being packed or unpacked. */
    size_t n_chunks, n_gone, n_away;
};

/* Receives the reports, for the log. Each function may be NULL. They are called on the loop, and must not call the
 * engine. */
struct sw_observer {
    void (*bad_frame)(const struct sw_bad_frame *frame, void *arg);
    void (*lost_region)(const struct sw_lost_region *region, void *arg); /* by a recovery */
    void *arg;
};

/* Reports where the bad frame lies, if a run has failed because of one. */
void sw_damage_report(const struct sw_observer *observer, struct sw_region_id id, const struct sw_frames *frames,
                      const struct sw_run_outcome *outcome);

#endif

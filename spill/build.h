/* build.h - regions that come to be by several appends, possibly of several memories.
 *
 * A build begins with the lengths of its buffers. Each append is an operation that stores bytes of one or more of the
 * buffers: its memory is the client's again when it calls back. The commit makes a region of all that was appended.
 * Until then nobody finds the region by its number, and a successor of this process frees what was stored.
 *
 * Invariant: a build that fails, is aborted, or ends with its owner leaves nothing stored. A build counts as a region
 * of its owner from its begin on. Its frames count as the tenant's stored bytes from when they have their places, and
 * the records of its chunks as memory that is kept for the tenant.
 *
 * All functions: thread loop. As in engine.h, what was accepted calls back once, never from inside the call. */
#ifndef SW_SPILL_BUILD_H
#define SW_SPILL_BUILD_H

#include "spill/engine.h"

struct sw_build;

/* OPEN: chunks are stored as they come. SEALED: committed, and waits for its appends, and for the other builds of its
 * batch. FAILED: nothing is stored once its appends have ended; it waits for a commit or an abort. */
enum sw_build_state { SW_BUILD_OPEN, SW_BUILD_SEALED, SW_BUILD_FAILED };

enum {
    SW_BUILD_CHUNK_STEP_BYTES = 32 << 10, /* lengths of chunks are multiples of it */
    SW_BUILD_MAX_RANGES = 256,            /* of one append */
};

struct sw_build_buffer_config {
    uint64_t raw_bytes;
    /* The length of each stored chunk but the last: a multiple of SW_BUILD_CHUNK_STEP_BYTES, at most
     * sw_engine_chunk_bytes(), and no longer than the device's. 0: the device's choice; the buffer is then appended as
     * a whole. */
    uint64_t chunk_bytes;
    enum sw_value_type type;
};

struct sw_build_config {
    const struct sw_build_buffer_config *buffers; /* copied, like all of this */
    unsigned n_buffers;                           /* 1 to SW_FRAMES_MAX_BUFFERS */
    const char *name;                             /* makes the region durable; NULL: it is not */
    uint8_t priority;                             /* as SW_ADVISE_PRIORITY */
};

/* Takes a region's number and checks all limits. *ret is valid until the callback of sw_build_commit() or
 * sw_build_abort(), or until its owner is closed. errors: those of sw_engine_spill_buffers() at once, but no limit of
 * operations. */
int sw_build_begin(struct sw_owner *owner, const struct sw_build_config *config, struct sw_build **ret,
                   struct sw_err *err);

/* Stores n ranges (1 to SW_BUILD_MAX_RANGES), each as the next bytes of range->buffer: range->at is where the last
 * append of the buffer ended. A range is as long as a whole number of the buffer's chunks, unless it ends with the
 * buffer. Of a range only mem, offset, bytes, frame_bytes, order, buffer and at count. Several ranges need memories
 * that stay open. A frame (frame_bytes) needs a buffer whose chunk_bytes is given. What is stored is checked, as
 * -SW_EFRAME in outcome says: a frame of just these raw bytes, and of bytes or of the buffer's type. The outcome's
 * lengths are those of this append; its region is not there before the commit. An append that fails later makes the
 * build fail. errors: -SW_EINVAL (also: the build is committed), -SW_EFRAME (no frame is so short or so long),
 * -SW_ERANGE, -SW_ELIMIT, -SW_EBUSY, -SW_ENOMEM, -SW_ETENANTMEMORY, -SW_ESHUTDOWN: the build is as before; of a build
 * that has failed, its error. Later in outcome: as a spill's. */
int sw_build_append(struct sw_build *build, const struct sw_range *ranges, unsigned n, sw_outcome_cb *done, void *arg,
                    struct sw_err *err);

/* Makes the region visible once all appends have ended well. request, index: by which sw_engine_find_by_request() finds
 * it. done: the region is recorded, and OUT; or the build's error, and nothing is stored. A build that has failed is
 * accepted, too. errors: -SW_EINVAL (bytes are missing, or it is committed): the build is as before. */
int sw_build_commit(struct sw_build *build, uint32_t request, uint32_t index, sw_outcome_cb *done, void *arg,
                    struct sw_err *err);

/* Why a commit would fail, or be refused: -SW_EINVAL, or the error of a build that has failed; 0: nothing is known. */
int sw_build_check(const struct sw_build *build, struct sw_err *err);

/* Commits n builds of one owner (1 to SW_SERIES_MAX_BATCH), all or none: their regions are there from the same moment
 * on, also for a successor of this process. done is called for each with its own outcome. If one fails, all fail with
 * its error. errors: those of sw_build_commit(), also -SW_EINVAL (a build is there twice), -SW_ENOMEM,
 * -SW_ETENANTMEMORY: all are as before. */
struct sw_build_end {
    struct sw_build *build;
    uint32_t index;
    void *arg;
};
int sw_build_commit_batch(const struct sw_build_end *ends, unsigned n, uint32_t request, sw_outcome_cb *done,
                          struct sw_err *err);

/* Ends a build that is not committed: done gets the build's error, or -SW_ECANCELED, when nothing of it is left. Of a
 * build that is committed: -SW_EINVAL, see sw_build_fail(). */
int sw_build_abort(struct sw_build *build, sw_outcome_cb *done, void *arg, struct sw_err *err);

/* Makes a build fail, because it has expired, or is not wanted any more. Its appends are canceled. Of a committed
 * build, the commit's callback gets this error, unless the region is there already. Of one that has failed: no-op. */
void sw_build_fail(struct sw_build *build, const struct sw_err *cause);

enum sw_build_state sw_build_state(const struct sw_build *build);
/* Since when no append is under way; 0: some are. */
uint64_t sw_build_idle_since_us(const struct sw_build *build);

#endif

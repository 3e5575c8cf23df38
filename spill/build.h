/* build.h - stores a region by several appends, possibly from several memories.
 *
 * A build begins with the lengths of its buffers. Each append is an operation that stores bytes of one or more buffers.
 * When it calls back, its memory belongs to the client again. The commit makes a region of all appended bytes. Before
 * the commit the region cannot be found by its id, and the next process frees what was stored.
 *
 * Invariant: a build that fails, is aborted, or ends with its owner leaves nothing stored. A build counts as a region
 * of its owner from the beginning. Its frames count as the tenant's stored bytes once they have their places, and the
 * records of its chunks as memory kept for the tenant.
 *
 * All functions: thread loop. As in engine.h, an accepted operation calls back once, never from inside the call. */
#ifndef SW_SPILL_BUILD_H
#define SW_SPILL_BUILD_H

#include "spill/engine.h"

struct sw_build;

/* OPEN: takes appends. SEALED: committed, and waits for its appends and the other builds of its batch. FAILED: nothing
 * is stored once its appends have ended; it waits for a commit or an abort. */
enum sw_build_state { SW_BUILD_OPEN, SW_BUILD_SEALED, SW_BUILD_FAILED };

enum {
    SW_BUILD_CHUNK_STEP_BYTES = 32 << 10, /* lengths of chunks are multiples of it */
    SW_BUILD_MAX_RANGES = 256,            /* of one append */
};

struct sw_build_buffer_config {
    uint64_t raw_bytes;
    /* The length of each stored chunk but the last: a multiple of SW_BUILD_CHUNK_STEP_BYTES, at most
     * sw_engine_chunk_bytes() and the device's. 0: the device chooses; the buffer is then appended as a whole. */
    uint64_t chunk_bytes;
    enum sw_value_type type;
};

struct sw_build_config {
    const struct sw_build_buffer_config *buffers; /* copied, like all of this */
    unsigned n_buffers;                           /* 1 to SW_FRAMES_MAX_BUFFERS */
    const char *name;                             /* of a durable region; NULL: it is not durable */
    enum sw_durability durability;                /* that a durable region has to reach */
    uint8_t priority;                             /* as SW_ADVISE_PRIORITY */
    enum sw_prefer prefer;                        /* as in struct sw_transfer */
};

/* Begins a build: takes a region's id and checks all limits. *ret is valid until the callback of sw_build_commit() or
 * sw_build_abort(), or until its owner is closed. errors: those of sw_engine_spill(). */
int sw_build_begin(struct sw_owner *owner, const struct sw_build_config *config, struct sw_build **ret,
                   struct sw_err *err);

/* Appends n ranges (1 to SW_BUILD_MAX_RANGES), each as the next bytes of range->buffer: range->at is where the buffer's
 * last append ended. A range holds whole chunks, unless it ends with the buffer. Only mem, offset, bytes, frame_bytes,
 * order, buffer and at of a range count. Several ranges need memories that stay open. The outcome's lengths are those
 * of this append. An append that fails later makes the build fail. A frame (frame_bytes) needs a buffer with
 * chunk_bytes. The stored copy's header is checked: it must be a frame of the range's raw bytes, as bytes or as values
 * of the buffer's type (-SW_EFRAME in outcome). errors: -SW_EINVAL (also: the build is committed), -SW_EFRAME (no frame
 * has this length), -SW_ERANGE, -SW_EBUSY, -SW_ENOMEM, -SW_ETENANTMEMORY, -SW_ESHUTDOWN: the build is as before. After
 * a failure of the build: its error. Later in outcome: as a spill's. */
int sw_build_append(struct sw_build *build, const struct sw_range *ranges, unsigned n, sw_outcome_cb *done, void *arg,
                    struct sw_err *err);

/* Makes the region visible once all appends have ended well. sw_engine_find_by_request() finds it by request and index.
 * done: the region is recorded and OUT; or the build's error, and nothing is stored. A failed build is accepted, too.
 * errors: -SW_EINVAL (bytes are missing, or it is committed): the build is as before. */
int sw_build_commit(struct sw_build *build, uint32_t request, uint32_t index, sw_outcome_cb *done, void *arg,
                    struct sw_err *err);

/* Checks whether a commit would fail or be refused now. errors: -SW_EINVAL, or the error of a failed build. */
int sw_build_check(const struct sw_build *build, struct sw_err *err);

/* Commits n builds of one owner (1 to SW_SERIES_MAX_BATCH), all or none: all regions become visible at the same moment,
 * also for the next process. done is called for each with its own outcome. If one fails, all fail with its error.
 * errors: as sw_build_commit(), also -SW_EINVAL (a build is given twice), -SW_ENOMEM, -SW_ETENANTMEMORY. After an error
 * all builds are unchanged. */
struct sw_build_end {
    struct sw_build *build;
    uint32_t index;
    void *arg;
};
int sw_build_commit_batch(const struct sw_build_end *ends, unsigned n, uint32_t request, sw_outcome_cb *done,
                          struct sw_err *err);

/* Ends a build that is not committed. done gets the build's error, or -SW_ECANCELED, when nothing of it is left.
 * errors: -SW_EINVAL (it is committed; see sw_build_fail()). */
int sw_build_abort(struct sw_build *build, sw_outcome_cb *done, void *arg, struct sw_err *err);

/* Makes a build fail, and cancels its appends. If the build is committed, the commit's callback gets this error, unless
 * the region is visible already. Does nothing to a failed build. */
void sw_build_fail(struct sw_build *build, const struct sw_err *cause);

enum sw_build_state sw_build_state(const struct sw_build *build);
/* Returns the time when the last append ended; 0: appends are in flight. */
uint64_t sw_build_idle_since_us(const struct sw_build *build);

#endif

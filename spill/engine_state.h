/* engine_state.h - state and functions that the files of this folder share. Not for other rooms. thread: loop. */
#ifndef SW_SPILL_ENGINE_STATE_H
#define SW_SPILL_ENGINE_STATE_H

#include "spill/balance/balance.h"
#include "spill/build.h"
#include "spill/engine.h"
#include "spill/journal/keeper.h"
#include "spill/journal/record.h"
#include "spill/read.h"
#include "spill/statistics.h"
#include "spill/store/owner.h"

/* One spill or restore, from its admission to its callback. */
struct sw_op {
    struct sw_request request;      /* does not change once the operation is submitted */
    struct sw_run_outcome *outcome; /* sum of its runs, once the last job has come back; one run: its own */
    struct sw_frames *frames;       /* spill: of all buffers, once the last job has come back; restore: the region's */
    uint64_t charged_bytes;         /* to the owner's quota, once the last job has come back */
    unsigned n_left;                /* jobs that have not come back */
    struct sw_list node;            /* of the owner's operations */
    struct sw_owner *owner;
    struct sw_region *region;
    struct sw_series *series; /* NULL: the operation belongs to no series */
    uint64_t raw_bytes;       /* of all buffers */
    uint64_t kept_bytes;      /* taken from request.kept */
    bool keep;                /* restore */
    struct sw_tier *tier;     /* after success: the region's; NULL: none */
    sw_outcome_cb *done;
    void *arg;
    uint64_t submitted_us;
    struct sw_buffer *buffers; /* [request.n_buffers], and so are its jobs */
    struct sw_job jobs[];      /* one for each buffer; they come back from the worker */
};

/* A buffer of a build. */
struct sw_build_buffer {
    uint64_t raw_bytes, chunk_bytes; /* chunk_bytes 0: unknown until its only append has ended */
    uint64_t end_bytes;              /* appended, or being appended */
    enum sw_value_type type;
    struct sw_frames *frames; /* of all its chunks; NULL: chunk_bytes is unknown */
    enum sw_cost_reason reason;
    uint64_t most; /* largest sw_run_weight() so far; the reason is this run's */
};

struct sw_series;

/* The differences between a build and a read. */
struct sw_series_kind {
    const char *name;           /* "a build", for errors */
    const char *what, *op_what; /* for errors of the series, "build of", and of one of its operations, "append to" */
    enum sw_operation operation;
    /* Checks whether a series that has not failed may end now. errors: -SW_EINVAL. */
    int (*check_end)(const struct sw_series *series, struct sw_err *err);
    /* Completes the regions of one series or a batch, whose ends were asked for and whose operations have ended. The
     * regions leave their series. After an error all of them have failed. */
    int (*complete)(struct sw_series *const *all, unsigned n, struct sw_err *err);
    /* Begins what has to come before that: sw_series_kept() is due then. Returns 1; 0: there is nothing. NULL: there is
     * never anything. errors: as complete(). */
    int (*keep)(struct sw_series *const *all, unsigned n, struct sw_err *err);
    /* Puts the region of a failed series, whose operations have ended, back to what it was before. */
    void (*give_up)(struct sw_series *series);
};

/* Series that end together, or not at all. */
struct sw_batch {
    struct sw_budget *kept;
    uint64_t kept_bytes;
    unsigned n;
    struct sw_series *all[];
};

/* A series of operations on one region, first in a build or a read. */
struct sw_series {
    const struct sw_series_kind *kind;
    struct sw_list node; /* of the owner's series, or of the engine's, once it has ended */
    struct sw_owner *owner;
    struct sw_region_id id;
    struct sw_region *region; /* NULL: it has left the series */
    unsigned n_ops;           /* in flight */
    struct sw_batch *batch;   /* the series that end together with it; NULL: it ends alone */
    bool has_failed;
    bool is_ending;            /* its end was asked for */
    bool is_keeping;           /* a tier was asked to keep its region: it cannot fail for other reasons any more */
    bool has_ended;            /* its last callback is due */
    bool is_dropped;           /* its owner is closed: it gets no last callback */
    struct sw_run_outcome sum; /* of its operations; the error is the cause of its failure */
    uint64_t submitted_us;     /* the first operation; 0: there was none */
    uint64_t idle_us;          /* when the last operation ended */
    uint64_t kept_bytes;       /* taken from the quota for this record */
    sw_outcome_cb *done;
    void *arg;
    struct sw_outcome outcome; /* once it has ended */
};

struct sw_build {
    struct sw_series series;
    uint64_t most;            /* largest sw_run_weight() so far; the sum's reason is this run's */
    struct sw_frames *joined; /* of all buffers, while a tier is asked to keep the region */
    unsigned n_buffers;
    struct sw_build_buffer buffers[];
};

/* A region's restore, chunk by chunk. */
struct sw_read {
    struct sw_series series;
    bool keep;
    bool is_lost; /* a chunk has proved the stored bytes bad; the error may come from another read of its batch */
    bool may_fill_holes;
    uint64_t raw_bytes, stored_bytes; /* of the chunks restored; a chunk restored twice counts twice */
    size_t n_asked;                   /* chunks that were restored, or are being restored */
    size_t n_raw;                     /* how often one was asked for as raw bytes, which the daemon decodes */
    uint64_t was_asked[];             /* bit i: chunk i is one of them */
};

struct sw_mem {
    struct sw_list node; /* of the owner's memories */
    struct sw_owner *owner;
    struct sw_worker *worker;
    struct sw_run_memory memory; /* belongs to the worker while a job is out */
    struct sw_job job;           /* maps it, later unmaps it; embedded, so that closing cannot fail */
    uint64_t bytes;
    uint64_t kept_bytes; /* of the owner's quota */
    unsigned n_ops;      /* operations that use it, and its mapping */
    unsigned n_in_place; /* packs and unpacks among them */
    bool used, closing;
    void (*mapped)(const struct sw_err *err, void *arg);
    void *mapped_arg;
    void (*closed)(void *arg);
    void *arg;
};

/* A worker's sign of life. */
struct sw_canary {
    struct sw_job job; /* comes back from the worker */
    bool is_out;
    uint64_t given_us;
};

/* RUNNING -> CLOSING -> STOPPING -> STOPPED */
enum sw_engine_state {
    SW_ENGINE_RUNNING,
    SW_ENGINE_CLOSING,  /* waits for the last owners and moves */
    SW_ENGINE_STOPPING, /* waits for the workers */
    SW_ENGINE_STOPPED   /* closes its handles; then it is freed */
};

struct sw_engine {
    uv_async_t async;
    uv_idle_t spin; /* active: the loop does not sleep */
    uint64_t spin_until_us;
    uint64_t now_us;  /* while many operations begin or end at once: their time; 0: otherwise */
    unsigned poll_us; /* the most of all devices' */
    struct sw_engine_config config;
    struct sw_store store;
    struct sw_balance balance;
    struct sw_keeper keeper;
    struct sw_worker **workers; /* [config.n_devices] */
    struct sw_canary *canaries; /* the same */
    unsigned n_mems, n_ops;
    struct sw_list ended_series; /* their last callbacks are due */
    uint64_t last_op_number;     /* of the last operation on several buffers */
    enum sw_engine_state state;
    void (*closed)(void *arg);
    void *arg;
    struct sw_engine_stats counters; /* only the totals are kept here */
    struct sw_op_statistics statistics;
};

enum { SW_OP_MAX_BUFFERS = SW_BUILD_MAX_RANGES };
_Static_assert((int)SW_OP_MAX_BUFFERS >= (int)SW_READ_MAX_RANGES &&
                   (int)SW_OP_MAX_BUFFERS >= (int)SW_FRAMES_MAX_BUFFERS,
               "room for all ranges of a call");

static inline struct sw_mem *sw_mem_of(const struct sw_buffer *buffer) {
    return SW_CONTAINER_OF(buffer->memory, struct sw_mem, memory);
}

static inline struct sw_engine *sw_engine_of(const struct sw_owner *owner) {
    return SW_CONTAINER_OF(owner->store, struct sw_engine, store);
}

/* An operation that was admitted. */
struct sw_admission {
    enum sw_operation operation;
    struct sw_owner *owner;
    struct sw_series *series; /* NULL: it belongs to no series */
    struct sw_frames *frames; /* restore, unpack: the region's; NULL: it encodes */
    bool may_fill_holes;      /* as in struct sw_request */
    const struct sw_range *ranges;
    unsigned n;
    struct sw_buffer buffers[SW_OP_MAX_BUFFERS]; /* [n] made of the ranges */
};

/* ---- op.c ---- */

/* Makes an operation that is not submitted. errors: -SW_ENOMEM, -SW_ETENANTMEMORY. */
int sw_op_new(struct sw_op **ret, const struct sw_admission *admission, struct sw_err *err);
/* Frees the operation, and the frames that its jobs still have. */
void sw_op_free(struct sw_op *op);
/* Accepts the operation: it will call back. */
void sw_op_submit(struct sw_op *op, struct sw_region *region, sw_outcome_cb *done, void *arg);
/* Takes an operation that has ended off its owner and its memories. */
void sw_op_end(struct sw_op *op);
/* Hands the operation's jobs to their workers. */
void sw_op_post(struct sw_op *op);
void sw_op_cancel(struct sw_op *op);
/* Returns the earliest phase of the operation's jobs. */
int sw_op_phase(const struct sw_op *op);
/* Takes a job that has come back. If it is its operation's last, returns the operation, whose outcome sums up all
 * jobs. */
struct sw_op *sw_op_job_ended(const struct sw_job *job);
/* Returns how much a run's reason counts in a sum: by its bytes; least if the client has encoded them. */
uint64_t sw_run_weight(const struct sw_run *run);
/* Adds a run's outcome to a sum. The sum takes its reason from the run that counts most. */
void sw_run_outcome_add(struct sw_run_outcome *sum, const struct sw_run *run, uint64_t *most);

/* ---- lifecycle.c ---- */

/* The facts about a region that are known at its start. */
struct sw_region_start {
    uint64_t raw_bytes;
    uint32_t request, batch_index;
    bool in_place;
    bool is_packed;   /* in place, by its client, already */
    const char *name; /* NULL: it is not durable */
    enum sw_durability durability;
    enum sw_prefer prefer;
};
/* Makes a region that is STAGING, and was admitted. errors: -SW_ETENANTMEMORY, -SW_ENOMEM, those of recording. */
int sw_region_begin(struct sw_owner *owner, const struct sw_region_start *start, struct sw_region **ret,
                    struct sw_err *err);
/* Forgets a region whose spill has failed. */
void sw_region_give_up(struct sw_region *region);
/* Moves n regions of one owner (1 to SW_SERIES_MAX_BATCH) to OUT and records them. Their frames are moved, also on
 * error. errors: those of recording; all of
 * them are then forgotten. */
int sw_regions_complete(const struct sw_completion *all, unsigned n, struct sw_err *err);

/* ---- outcome.c ---- */

/* An operation or a series that has ended. */
struct sw_ended {
    struct sw_engine *engine;
    enum sw_operation operation;
    const char *what;               /* "spill of": how an error's text begins */
    const struct sw_region *region; /* perhaps forgotten; NULL: the outcome has its id only */
    struct sw_region_id id;
    const struct sw_tier *tier; /* the region's; NULL: none */
    const struct sw_run_outcome *sum;
    uint64_t submitted_us;
};
static inline const char *sw_coder_name(bool is_client) {
    return is_client ? "client" : "daemon";
}
void sw_outcome_fill(const struct sw_ended *ended, struct sw_outcome *ret);
/* Counts an operation or series that has ended well. */
void sw_outcome_note(const struct sw_ended *ended, const struct sw_outcome *outcome);

/* ---- series.c ---- */

/* Makes a series, first in a record of this length, whose rest is zero. Returns NULL after an error. errors:
 * -SW_ENOMEM, -SW_ETENANTMEMORY. */
void *sw_series_new(struct sw_owner *owner, uint64_t bytes, const struct sw_series_kind *kind, struct sw_err *err);
/* Frees a series that has no region and no operations. */
void sw_series_free(struct sw_series *series);
/* Lets a region belong to the series, until it leaves it. */
void sw_series_take_region(struct sw_series *series, struct sw_region *region);
struct sw_region *sw_series_leave_region(struct sw_series *series);
/* Checks whether an operation may begin. errors: -SW_EINVAL (the series is ended), or the cause of its failure. */
int sw_series_check(const struct sw_series *series, struct sw_err *err);
/* Hands the operations, which have waited for the end of the region's move, to their workers. */
void sw_series_post(struct sw_series *series);
void sw_series_submit(struct sw_series *series, struct sw_op *op, sw_outcome_cb *done, void *arg);
/* End an operation that has come back; call these in this order. The first lets the series fail with the operation, or
 * the operation with the series. The second fills the operation's outcome. With the third the series continues. */
void sw_series_note_failure(struct sw_series *series, struct sw_op *op);
void sw_series_fill_op(const struct sw_op *op, struct sw_outcome *ret);
void sw_series_op_ended(struct sw_series *series);
/* Makes a series fail, and cancels its operations. The other series of its batch fail, too. */
void sw_series_fail(struct sw_series *series, const struct sw_err *cause);
/* Makes a series fail, too, unless it has failed or ended. Its operations may all have ended. */
void sw_series_expire(struct sw_series *series, const struct sw_err *cause);
/* Asks for the end of a series, and for its last callback. */
void sw_series_end(struct sw_series *series, sw_outcome_cb *done, void *arg);
int sw_series_check_number(unsigned n, struct sw_err *err);
/* Asks for the end of n series, all or none. If one has failed, all fail. errors: -SW_EINVAL, -SW_ENOMEM,
 * -SW_ETENANTMEMORY: all are as before. */
int sw_series_end_all(struct sw_series *const *all, void *const *args, unsigned n, sw_outcome_cb *done,
                      struct sw_err *err);
/* Ends or completes the series, if this is due and no operation is in flight. */
void sw_series_look(struct sw_series *series);
/* Fills the outcome of a series. region: what it has completed; NULL: nothing. */
void sw_series_fill(struct sw_series *series, const struct sw_region *region);
/* Counts a series that has ended well. */
void sw_series_note(const struct sw_series *series, const struct sw_region *region);
uint64_t sw_series_idle_since_us(const struct sw_series *series);
/* Makes all series of an owner fail that is closed or left. */
void sw_series_close(struct sw_owner *owner);
/* Notes that a tier keeps the regions of these series, or could not. */
void sw_series_kept(const struct sw_err *err, void *series);
/* Calls the last callbacks that are due. */
void sw_series_call_back(struct sw_engine *engine);

/* ---- build.c, read.c ---- */

/* Take an operation that has come back, and fill its outcome. */
void sw_build_append_ended(struct sw_op *op, struct sw_outcome *ret);
void sw_read_chunks_ended(struct sw_op *op, struct sw_outcome *ret);

/* ---- lifecycle.c: restores ---- */

/* Returns true if the error says that the stored bytes are bad. */
bool sw_restore_proves_loss(int code);
/* Widens such an error's scope to the region: one bad frame makes all of it useless. */
void sw_restore_widen(struct sw_err *err);
/* Ends a failed restore: the region is OUT, or LOST. */
void sw_region_stay_out(struct sw_region *region, bool is_lost);
/* Ends a successful restore: the region is kept, or it ends. */
void sw_region_come_back(struct sw_region *region, bool keep);

/* ---- query.c ---- */

/* Finds a region, as sw_region_find(), and updates its state. */
int sw_engine_find(struct sw_owner *owner, struct sw_region_id id, struct sw_region **ret, struct sw_err *err);
/* Finds a region that has no operation. errors: also -SW_EBUSY. */
int sw_engine_find_idle(struct sw_owner *owner, struct sw_region_id id, struct sw_region **ret, struct sw_err *err);
/* Updates the region's state to the phase of its operation. */
void sw_op_follow_phase(struct sw_op *op);

/* ---- admission.c ---- */

/* Admit an operation, or refuse it: nothing else decides this. Each makes an operation that is not submitted, with
 * buffers made of the caller's ranges. errors: of the operation, and of sw_op_new(). */
int sw_admit_spill(struct sw_owner *owner, const struct sw_transfer *transfer, struct sw_op **ret, struct sw_err *err);
int sw_admit_append(struct sw_build *build, const struct sw_range *ranges, unsigned n, struct sw_op **ret,
                    struct sw_err *err);
int sw_admit_packed(const struct sw_owner *owner, const struct sw_packed *packed, struct sw_err *err);
/* Admit a restore, an unpack, or the chunks of a read. ret_region: the region that the operation restores or unpacks.
 */
int sw_admit_restore(struct sw_owner *owner, struct sw_region_id id, const struct sw_transfer *transfer,
                     struct sw_op **ret, struct sw_region **ret_region, struct sw_err *err);
int sw_admit_chunks(struct sw_read *read, const struct sw_range *ranges, unsigned n, struct sw_op **ret,
                    struct sw_err *err);
/* Admit a build (ret_bytes: of all buffers), a read, and the takeover of a durable region. */
int sw_admit_build(const struct sw_owner *owner, const struct sw_build_config *config, uint64_t *ret_bytes,
                   struct sw_err *err);
int sw_admit_read(struct sw_owner *owner, struct sw_region_id id, struct sw_region **ret, struct sw_err *err);
int sw_admit_adopt(const struct sw_owner *owner, const char *name, struct sw_region **ret, struct sw_err *err);

/* ---- mem.c ---- */

/* Takes an operation that has ended off its memory. Unmaps a closing memory after its last operation. */
void sw_mem_op_ended(struct sw_mem *mem);
/* Takes a job that has mapped the memory, or could not, and calls back. */
void sw_mem_mapped(struct sw_mem *mem);
/* Takes a job that has unmapped the memory, frees the memory and calls back. */
void sw_mem_unmapped(struct sw_mem *mem);
/* ---- workers.c ---- */

/* Returns the time, which is the same for all operations that begin or end at once: reading the clock for each takes as
 * long as much of their work. */
uint64_t sw_engine_now_us(const struct sw_engine *engine);
/* Keeps the loop from sleeping for a while: an operation has begun or ended, or will end soon. */
void sw_engine_keep_awake(struct sw_engine *engine);
/* Takes a sign of life that has come back. */
void sw_canary_ended(struct sw_job *job);
/* ---- request_index.c ---- */

/* Frees the index; the next question builds a new one. */
void sw_owner_free_request_index(struct sw_owner *owner);

#endif

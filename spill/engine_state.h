/* engine_state.h - what the engine's own files share. The loop thread owns all of it. Not for other rooms. */
#ifndef SW_SPILL_ENGINE_STATE_H
#define SW_SPILL_ENGINE_STATE_H

#include "spill/balance/balance.h"
#include "spill/build.h"
#include "spill/engine.h"
#include "spill/journal/record.h"
#include "spill/read.h"
#include "spill/statistics.h"
#include "spill/store/owner.h"

/* One spill or restore, from its admission to its callback. */
struct sw_op {
    struct sw_request request;     /* does not change once the operation is submitted */
    struct sw_run_outcome outcome; /* of all its runs, once the last one has come back */
    struct sw_frames *frames;      /* spill: of all buffers, then; restore: the region's */
    uint64_t charged_bytes;        /* the same, to the owner's quota */
    unsigned n_left;               /* jobs that have not come back */
    struct sw_list node;           /* of the owner's operations */
    struct sw_owner *owner;
    struct sw_region *region;
    struct sw_series *series; /* that it is a part of; NULL: it stands alone */
    uint64_t raw_bytes;       /* of all buffers */
    uint64_t kept_bytes;      /* of request.kept */
    bool keep;                /* restore */
    struct sw_tier *tier;     /* ended well: where the region was or is; NULL: nowhere */
    sw_outcome_cb *done;
    void *arg;
    uint64_t submitted_us;
    struct sw_buffer *buffers; /* [request.n_buffers], and so are its jobs */
    struct sw_job jobs[];      /* one for each buffer; they come back from the worker */
};

/* A buffer of a build. */
struct sw_build_buffer {
    uint64_t raw_bytes, chunk_bytes; /* chunk_bytes 0: known when its only append ends */
    uint64_t end_bytes;              /* appended, or being appended */
    enum sw_value_type type;
    struct sw_frames *frames; /* of all its chunks; NULL: chunk_bytes is not known */
    enum sw_cost_reason reason;
    uint64_t most; /* sw_run_weight() of the append that the reason is of */
};

struct sw_series;

/* What differs between a build and a read. */
struct sw_series_kind {
    const char *name; /* "a build", for errors */
    const char *what; /* "build of": of the whole series; of one operation: "append to" */
    const char *op_what;
    enum sw_operation operation;
    /* Whether it may be ended now; it has not failed. errors: -SW_EINVAL. */
    int (*check_end)(const struct sw_series *series, struct sw_err *err);
    /* These (several: a batch) were ended, and nothing is under way: each region is what its series was for, and no
     * longer its. Returns an error if they have failed, all of them. */
    int (*complete)(struct sw_series *const *all, unsigned n, struct sw_err *err);
    /* It has failed, and nothing is under way: the region is as before the series. */
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
    struct sw_list node; /* of the owner's series, or, once it has ended, of the engine's */
    struct sw_owner *owner;
    struct sw_region_id id;
    struct sw_region *region; /* NULL: it has ended, or has failed and is given up */
    unsigned n_ops;           /* under way */
    struct sw_batch *batch;   /* that it waits for; NULL: it ends alone */
    bool has_failed;
    bool is_ending;            /* its last callback is asked for */
    bool has_ended;            /* and due */
    bool is_dropped;           /* nobody waits for its end: its owner is closed */
    struct sw_run_outcome sum; /* of its operations; the error is why the series has failed */
    uint64_t submitted_us;     /* the first operation; 0: there was none */
    uint64_t idle_us;          /* since when nothing is under way */
    uint64_t kept_bytes;       /* of the quota, for this record */
    sw_outcome_cb *done;
    void *arg;
    struct sw_outcome outcome; /* once it has ended */
};

struct sw_build {
    struct sw_series series;
    uint64_t most; /* sw_run_weight() of the range that the sum's reason is of */
    unsigned n_buffers;
    struct sw_build_buffer buffers[];
};

/* Chunks of a region that come back one by one. */
struct sw_read {
    struct sw_series series;
    bool keep;
    bool is_lost; /* a chunk has proved that the stored bytes are bad; the error may be another read's of its batch */
    bool may_fill_holes;
    uint64_t raw_bytes, stored_bytes; /* of the chunks that have come, again if they were asked for again */
    size_t n_asked;                   /* chunks that have come, or are under way */
    size_t n_raw;                     /* of these, how often one was asked for as raw bytes, which we decode */
    uint64_t was_asked[];             /* bit i: chunk i is one of these */
};

struct sw_mem {
    struct sw_list node; /* of the owner's memories */
    struct sw_owner *owner;
    struct sw_worker *worker;
    struct sw_run_memory memory; /* the worker's while a job is out */
    struct sw_job job;           /* maps it, later unmaps it; embedded, so that closing cannot fail */
    uint64_t bytes;
    uint64_t kept_bytes; /* of the owner's quota */
    unsigned n_ops;      /* that use it, and the mapping */
    unsigned n_in_place; /* of these: packs and unpacks */
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
    SW_ENGINE_STOPPING, /* and then for the workers, which have been told to end */
    SW_ENGINE_STOPPED   /* its handles are being closed; then it is freed */
};

struct sw_engine {
    uv_async_t async;
    uv_idle_t spin; /* active: the loop does not sleep */
    uint64_t spin_until_us;
    unsigned poll_us; /* the most of all devices' */
    struct sw_engine_config config;
    struct sw_store store;
    struct sw_balance balance;
    struct sw_worker **workers; /* [config.n_devices] */
    struct sw_canary *canaries; /* the same */
    unsigned n_mems, n_ops;
    struct sw_list ended_series; /* whose callback is due */
    uint64_t last_op_number;     /* of an operation on several buffers */
    enum sw_engine_state state;
    void (*closed)(void *arg);
    void *arg;
    struct sw_engine_stats counters; /* only the totals are kept here */
    struct sw_op_statistics statistics;
};

/* Of one operation: as many as of an append, of a call for chunks, and more than a region has. */
enum { SW_OP_MAX_BUFFERS = SW_BUILD_MAX_RANGES };
_Static_assert((int)SW_OP_MAX_BUFFERS >= (int)SW_READ_MAX_RANGES &&
                   (int)SW_OP_MAX_BUFFERS >= (int)SW_FRAMES_MAX_BUFFERS,
               "room for all ranges of a call");

/* The memory that a buffer lies in. */
static inline struct sw_mem *sw_mem_of(const struct sw_buffer *buffer) {
    return SW_CONTAINER_OF(buffer->memory, struct sw_mem, memory);
}

static inline struct sw_engine *sw_engine_of(const struct sw_owner *owner) {
    return SW_CONTAINER_OF(owner->store, struct sw_engine, store);
}

/* What an operation is to do, once it is admitted. */
struct sw_admission {
    enum sw_operation operation;
    struct sw_owner *owner;
    struct sw_series *series; /* that it is a part of; NULL: of none */
    struct sw_frames *frames; /* restore, unpack: what it reads; NULL: a spill or pack */
    bool may_fill_holes;      /* as in struct sw_request */
    const struct sw_range *ranges;
    unsigned n;
    struct sw_buffer buffers[SW_OP_MAX_BUFFERS]; /* [n] the ranges, as the mover takes them */
};
/* op.c: makes an operation that is not submitted. errors: -SW_ENOMEM, -SW_ETENANTMEMORY. */
int sw_op_new(struct sw_op **ret, const struct sw_admission *admission, struct sw_err *err);
/* With what frames its jobs still have. */
void sw_op_free(struct sw_op *op);
/* From here on nothing can fail: the operation is accepted. */
void sw_op_submit(struct sw_op *op, struct sw_region *region, sw_outcome_cb *done, void *arg);
/* It has ended: its memories are not in use any more, and it is its owner's no longer. */
void sw_op_end(struct sw_op *op);
/* Hands its jobs to their workers. */
void sw_op_post(struct sw_op *op);
void sw_op_cancel(struct sw_op *op);
/* That of the job that is least far. */
int sw_op_phase(const struct sw_op *op);
/* One of its jobs has come back. Returns the operation if it was the last: op->outcome says what became of all. */
struct sw_op *sw_op_job_ended(const struct sw_job *job);
/* Adds what became of a run to what became of others. The reason is that of the run that counts most, which has the
 * most bytes; those that the client has encoded count less than all others. */
uint64_t sw_run_weight(const struct sw_run *run);
void sw_run_outcome_add(struct sw_run_outcome *sum, const struct sw_run *run, uint64_t *most);

/* workers.c: something has begun or ended, or will end soon. */
void sw_engine_keep_awake(struct sw_engine *engine);

/* lifecycle.c: what is known of a region from the start. */
struct sw_region_start {
    uint64_t raw_bytes;
    uint32_t request, batch_index;
    bool in_place;
    const char *name; /* NULL: it is not durable */
};
/* A region that is STAGING. errors: -SW_ETENANTMEMORY, -SW_ELIMIT, -SW_ENOMEM, those of recording. */
int sw_region_begin(struct sw_owner *owner, const struct sw_region_start *start, struct sw_region **ret,
                    struct sw_err *err);
/* Its spill has failed: it is forgotten. */
void sw_region_give_up(struct sw_region *region);
struct sw_completion {
    struct sw_region *region;
    struct sw_frames *frames; /* all that it has; moved, also on error */
    const struct sw_run_outcome *sum;
};
/* n regions of one owner (1 to SW_SERIES_MAX_BATCH) are OUT, and recorded, or none of them. errors: those of recording:
 * all are forgotten. */
int sw_regions_complete(const struct sw_completion *all, unsigned n, struct sw_err *err);

/* outcome.c: what has ended, an operation or a build. */
struct sw_ended {
    struct sw_engine *engine;
    enum sw_operation operation;
    const char *what;               /* "spill of": the beginning of an error's text */
    const struct sw_region *region; /* perhaps forgotten; NULL: nothing is told of it but its id */
    struct sw_region_id id;
    const struct sw_tier *tier; /* where it is or was; NULL: nowhere */
    const struct sw_run_outcome *sum;
    uint64_t submitted_us;
};
void sw_outcome_fill(const struct sw_ended *ended, struct sw_outcome *ret);
static inline const char *sw_coder_name(bool is_client) {
    return is_client ? "client" : "daemon";
}
/* Counts it, if it has ended well. */
void sw_outcome_note(const struct sw_ended *ended, const struct sw_outcome *outcome);

/* series.c: a series, all zero but for its own part, first in a record of so many bytes. NULL: -SW_ENOMEM,
 * -SW_ETENANTMEMORY. */
void *sw_series_new(struct sw_owner *owner, uint64_t bytes, const struct sw_series_kind *kind, struct sw_err *err);
/* It has no region, and nothing is under way. */
void sw_series_free(struct sw_series *series);
/* The region is the series's, until it leaves it. */
void sw_series_take_region(struct sw_series *series, struct sw_region *region);
struct sw_region *sw_series_leave_region(struct sw_series *series);
/* Whether an operation may begin. errors: -SW_EINVAL (it is ended), or why it has failed. */
int sw_series_check(const struct sw_series *series, struct sw_err *err);
/* Hands its operations, which have waited for the region's move, to their workers. */
void sw_series_post(struct sw_series *series);
void sw_series_submit(struct sw_series *series, struct sw_op *op, sw_outcome_cb *done, void *arg);
/* An operation of a series has come back, in this order: the series fails with it, or it with the series; what is told
 * of it; the series goes on. */
void sw_series_note_failure(struct sw_series *series, struct sw_op *op);
void sw_series_fill_op(const struct sw_op *op, struct sw_outcome *ret);
void sw_series_op_ended(struct sw_series *series);
/* Cancels its operations. */
void sw_series_fail(struct sw_series *series, const struct sw_err *cause);
/* The same from outside, unless it has failed or ended. */
void sw_series_expire(struct sw_series *series, const struct sw_err *cause);
/* Its callback is asked for. */
void sw_series_end(struct sw_series *series, sw_outcome_cb *done, void *arg);
/* The same for n series, all or none; also for those that have failed, which then make the others fail. errors:
 * -SW_EINVAL, -SW_ENOMEM, -SW_ETENANTMEMORY: all are as before. */
int sw_series_check_number(unsigned n, struct sw_err *err);
int sw_series_end_all(struct sw_series *const *all, void *const *args, unsigned n, sw_outcome_cb *done,
                      struct sw_err *err);
/* Does what is due once nothing is under way. */
void sw_series_look(struct sw_series *series);
/* What is told of it, when its region (NULL: nothing is left, or it stays as it was) is what it is to be. */
void sw_series_fill(struct sw_series *series, const struct sw_region *region);
/* Counts it; it has ended well. */
void sw_series_note(const struct sw_series *series, const struct sw_region *region);
uint64_t sw_series_idle_since_us(const struct sw_series *series);
/* The owner is closed, or left. */
void sw_series_close(struct sw_owner *owner);
/* Calls back for those that have ended. */
void sw_series_call_back(struct sw_engine *engine);

/* build.c, read.c: an operation has come back. */
void sw_build_append_ended(struct sw_op *op, struct sw_outcome *ret);
void sw_read_chunks_ended(struct sw_op *op, struct sw_outcome *ret);

/* lifecycle.c: what a restore leaves. True: the error says that the stored bytes are bad. */
bool sw_restore_proves_loss(int code);
/* It is the region that is of no more use then, although only a frame was seen. */
void sw_restore_widen(struct sw_err *err);
/* It is not restored: OUT, or LOST. */
void sw_region_stay_out(struct sw_region *region, bool is_lost);
/* All its bytes are back: it is OUT, or it ends. */
void sw_region_come_back(struct sw_region *region, bool keep);

/* query.c: sw_region_find(), and the region's state is that of now. */
int sw_engine_find(struct sw_owner *owner, struct sw_region_id id, struct sw_region **ret, struct sw_err *err);
/* The same of a region that no operation is on. errors: also -SW_EBUSY. */
int sw_engine_find_idle(struct sw_owner *owner, struct sw_region_id id, struct sw_region **ret, struct sw_err *err);
/* Lets the region's state follow the workers: when somebody looks, and in the end. */
void sw_op_follow_phase(struct sw_op *op);

/* admission.c: the only place that says whether an operation may begin, and that makes buffers of a caller's ranges.
 * Each call that is admitted returns an operation that is not submitted. errors: those of the operation. */
int sw_admit_spill(struct sw_owner *owner, const struct sw_range *ranges, unsigned n, struct sw_op **ret,
                   struct sw_err *err);
int sw_admit_append(struct sw_build *build, const struct sw_range *ranges, unsigned n, struct sw_op **ret,
                    struct sw_err *err);
/* A restore or an unpack of *ret_region. */
int sw_admit_restore(struct sw_owner *owner, struct sw_region_id id, const struct sw_range *ranges, unsigned n,
                     bool keep, struct sw_op **ret, struct sw_region **ret_region, struct sw_err *err);
int sw_admit_chunks(struct sw_read *read, const struct sw_range *ranges, unsigned n, struct sw_op **ret,
                    struct sw_err *err);
/* A build of *ret_bytes; a read of a region; a durable region that another owner takes over. */
int sw_admit_build(const struct sw_owner *owner, const struct sw_build_config *config, uint64_t *ret_bytes,
                   struct sw_err *err);
int sw_admit_read(struct sw_owner *owner, struct sw_region_id id, struct sw_region **ret, struct sw_err *err);
int sw_admit_adopt(const struct sw_owner *owner, const char *name, struct sw_region **ret, struct sw_err *err);

/* mem.c: an operation on mem has ended; unmaps it if it is closing and this was the last. */
void sw_mem_op_ended(struct sw_mem *mem);
/* The worker has mapped it, or could not: calls back. */
void sw_mem_mapped(struct sw_mem *mem);
/* The worker has unmapped it: forgets it and calls back. */
void sw_mem_unmapped(struct sw_mem *mem);
/* workers.c: back from the worker. */
void sw_canary_ended(struct sw_job *job);
/* request_index.c: frees the index; the next question builds a new one. */
void sw_owner_free_request_index(struct sw_owner *owner);

#endif

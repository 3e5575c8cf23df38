/* engine_state.h - what the engine's own files share. The loop thread owns all of it. Not for other rooms. */
#ifndef SW_SPILL_ENGINE_STATE_H
#define SW_SPILL_ENGINE_STATE_H

#include "spill/engine.h"
#include "spill/figures.h"
#include "spill/store/placement.h"
#include "spill/store/region.h"
#include "spill/worker/worker.h"

/* One buffer of an operation. */
struct sw_op_part {
    struct sw_job job; /* comes back from the worker */
    struct sw_mem *mem;
};

/* One spill or restore, from acceptance to its callback. */
struct sw_op {
    struct sw_request request;
    struct sw_run_outcome outcome; /* of all its runs, once the last one has come back */
    struct sw_frames *frames;      /* spill: of all buffers, then; restore: the region's */
    uint64_t charged_bytes;        /* the same, to the owner's quota */
    unsigned n_left;               /* jobs that have not come back */
    struct sw_list node;           /* of the owner's operations */
    struct sw_owner *owner;
    struct sw_region *region;
    uint64_t kept_bytes;  /* of request.kept */
    bool keep;            /* restore */
    struct sw_tier *tier; /* ended well: where the region was or is; NULL: nowhere */
    sw_outcome_cb *done;
    void *arg;
    uint64_t submitted_us;
    struct sw_buffer *buffers; /* [request.n_buffers], and so are its parts */
    struct sw_op_part parts[];
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

/*   OPEN -> CLOSING -> CLOSED: freed
 *        -> LEAVING -> LEFT: freed with the engine
 *   UNCLAIMED -> OPEN, or as OPEN
 *
 * An owner of whom nothing is recorded is closed where others would be left. */
enum sw_owner_state {
    SW_OWNER_OPEN,
    SW_OWNER_UNCLAIMED, /* of a predecessor, and nobody has asked for it */
    SW_OWNER_CLOSING,   /* its operations are canceled; they, its memories and regions go */
    SW_OWNER_LEAVING,   /* the same, but what is recorded stays */
    SW_OWNER_CLOSED,    /* nothing is left of it; its `closed` is due */
    SW_OWNER_LEFT       /* nothing but regions for a successor; the same */
};

struct sw_owner {
    struct sw_list node; /* of engine->owners; CLOSED, LEFT: of engine->settled, then, if LEFT, of engine->left */
    struct sw_engine *engine;
    uint64_t number; /* from 1, never reused */
    struct sw_quota *quota;
    uint64_t kept_bytes; /* of the quota, for the owner itself */
    struct sw_list ops, mems, regions;
    struct sw_list beside; /* regions that are IN and whose slots have newer regions; they count nowhere */
    unsigned n_ops, n_mems, n_regions, n_moves;
    enum sw_owner_state state;
    uint32_t record;   /* in the catalogue, 0: has no name */
    uint32_t consumed; /* list of records of regions that the client may not know to be restored */
    uint32_t uid;
    struct sw_process process; /* the client's */
    uint8_t token[SW_TOKEN_BYTES];
    struct sw_owner *heir; /* of its durable regions; NULL: has none */
    bool is_heir;
    struct sw_list names; /* of an heir: durable regions, its own and those of whose heir it is */
    unsigned n_names;
    struct sw_made *made; /* its regions by request, from the first question about one on; NULL: nobody has asked */
    size_t n_made;
    void *tag;                        /* sw_owner_set_tag() */
    uint64_t raw_bytes, stored_bytes; /* of regions that have frames */
    void (*closed)(void *arg);
    void *arg;
};

/* Nothing begins with it any more. */
static inline bool sw_owner_is_ending(const struct sw_owner *owner) {
    return owner->state != SW_OWNER_OPEN && owner->state != SW_OWNER_UNCLAIMED;
}

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
    struct sw_placement place;
    struct sw_worker **workers; /* [config.n_devices] */
    struct sw_canary *canaries; /* the same */
    unsigned n_moves;
    uint64_t room_bytes; /* that an operator wants to leave the first tier, and that have not been started on */
    bool is_demoting[SW_TIERS_MAX]; /* regions leave a tier until it is down at the low watermark */
    struct sw_region_table regions;
    struct sw_list owners;
    struct sw_list settled; /* owners that have nothing left; their `closed` is due */
    struct sw_list left;    /* owners whose regions are left to a successor, until the end */
    unsigned n_owners, n_mems, n_ops;
    uint64_t last_owner;     /* number of the newest */
    uint64_t last_op_number; /* of an operation on several buffers */
    enum sw_engine_state state;
    void (*closed)(void *arg);
    void *arg;
    struct sw_engine_stats counters; /* only the totals are kept here */
    struct sw_figures figures;
};

/* op.c: an operation on n buffers (ranges), not submitted. errors: -SW_ENOMEM, -SW_ETENANTMEMORY. */
int sw_op_new(struct sw_op **ret, struct sw_owner *owner, enum sw_operation operation, const struct sw_range *ranges,
              unsigned n, struct sw_err *err);
/* With what frames its jobs still have. */
void sw_op_free(struct sw_op *op);
/* Restore, unpack: what its jobs read. errors: -SW_ENOMEM, -SW_ETENANTMEMORY. */
int sw_op_set_frames(struct sw_op *op, struct sw_frames *frames, struct sw_err *err);
/* It has a region now: its memories are in use until sw_op_end(). */
void sw_op_begin(struct sw_op *op);
void sw_op_end(struct sw_op *op);
/* Hands its jobs to their workers. */
void sw_op_post(struct sw_op *op);
void sw_op_cancel(struct sw_op *op);
/* That of the job that is least far. */
int sw_op_phase(const struct sw_op *op);
/* One of its jobs has come back. Returns the operation if it was the last: op->outcome says what became of all. */
struct sw_op *sw_op_job_ended(const struct sw_job *job);

/* sw_region_find(), and the region's state is that of now. */
int sw_engine_find(struct sw_owner *owner, struct sw_region_id id, struct sw_region **ret, struct sw_err *err);
/* The same of a region that no operation is on. errors: also -SW_EBUSY. */
int sw_engine_find_idle(struct sw_owner *owner, struct sw_region_id id, struct sw_region **ret, struct sw_err *err);
/* admission.c: whether a spill of these ranges may begin; *ret_bytes: of all. errors: those of the spill. */
int sw_admit_spill(const struct sw_owner *owner, const struct sw_range *ranges, unsigned n, uint64_t *ret_bytes,
                   struct sw_err *err);
/* The same of a restore or an unpack; and the region. errors: those of the restore. */
int sw_admit_restore(struct sw_owner *owner, struct sw_region_id id, const struct sw_range *ranges, unsigned n,
                     bool keep, struct sw_region **ret, struct sw_err *err);
/* mem.c: an operation on mem has ended; unmaps it if it is closing and this was the last. */
void sw_mem_op_ended(struct sw_mem *mem);
/* The worker has mapped it, or could not: calls back. */
void sw_mem_mapped(struct sw_mem *mem);
/* The worker has unmapped it: forgets it and calls back. */
void sw_mem_unmapped(struct sw_mem *mem);
/* canary.c: back from the worker. */
void sw_canary_ended(struct sw_job *job);
/* damage.c: tells the observer where a frame lies at which a run has failed, if it has failed because of one. */
void sw_engine_report_bad_frame(const struct sw_owner *owner, struct sw_region_id id, const struct sw_frames *frames,
                                const struct sw_run_outcome *outcome);
/* balance.c: looks whether regions have to leave a tier. */
void sw_engine_balance(struct sw_engine *engine);
void sw_move_cancel(struct sw_move *move);
/* Its region has another owner now. */
void sw_move_follow(struct sw_move *move);
/* Its region is dropped: the move keeps the frames until it has ended, and frees them. */
void sw_move_orphan(struct sw_region *region);
/* Back from the worker. */
void sw_move_ended(struct sw_job *job);
/* made.c: no client asks any more what its requests have made. */
void sw_owner_forget_made(struct sw_owner *owner);
/* owner.c: if a closing owner has nothing left, its `closed` becomes due. */
void sw_owner_settle(struct sw_owner *owner);
/* Frees the region's frames and ends its id. */
void sw_owner_forget(struct sw_owner *owner, struct sw_region *region);
/* The same of one whose bytes are back. */
void sw_owner_consume(struct sw_owner *owner, struct sw_region *region);

/* durable.c: gives a region a name; errors: -SW_EINVAL, -SW_ENOTSUP, -SW_EEXIST, -SW_ETENANTREGIONS, -SW_ENOMEM. */
int sw_region_check_name(const struct sw_owner *owner, const struct sw_range *range, struct sw_err *err);
int sw_region_set_name(struct sw_region *region, const char *name);
void sw_region_unname(struct sw_region *region);
/* Its owner is closed: to the heir, if it is durable, else it is forgotten. */
void sw_region_let_go(struct sw_region *region);

/* recovery.c: records a region as it is now, in place of what was recorded before; nothing if its owner has no name.
 * errors: -SW_ENOMEM, -SW_ELIMIT: the old record stands. */
int sw_region_record(struct sw_region *region, struct sw_err *err);
/* Records what is known about its future, and whether its bytes are whole. */
void sw_region_record_hints(const struct sw_region *region);
/* The engine is at its end: forgets what is left to a successor. */
void sw_engine_forget_left(struct sw_engine *engine);

#endif

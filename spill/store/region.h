/* region.h - the table of regions: slots, generations, and the one function that moves a state.
 *
 * Invariant: an id names at most one region ever; a slot's generation rises when the slot is reused. Not thread safe:
 * the loop's. */
#ifndef SW_SPILL_REGION_H
#define SW_SPILL_REGION_H

#include "base/list.h"
#include "spill/planner/cost.h"
#include "spill/store/frames.h"
#include "spill/store/ids.h"

struct sw_op;
struct sw_owner;
struct sw_series;

/* What the store knows of a move of a region's frames between tiers, which is a part of the mover's own record. */
struct sw_move {
    struct sw_owner *owner;               /* which counts it */
    struct sw_region *region;             /* NULL: dropped meanwhile, the frames are the move's */
    void (*cancel)(struct sw_move *move); /* ends it early, not at once; what has been moved stays moved */
};

struct sw_region {
    struct sw_region_id id; /* gen 0: the slot was never used */
    enum sw_region_state state;
    struct sw_owner *owner;   /* NULL: free */
    uint64_t holder;          /* number of the owner that has it, or had it last; 0: not known */
    struct sw_list node;      /* of the owner's regions */
    struct sw_op *op;         /* the operation that is moving it, or NULL */
    struct sw_series *series; /* the build or read that has it, or NULL */
    struct sw_move *move;     /* that takes its frames to another tier, or NULL */
    struct sw_tier *tier;     /* that has most of it; NULL until OUT, and for packed ones */
    uint8_t priority;         /* among those that may have to leave their tier */
    bool pinned;              /* does not leave it */
    bool may_fill_holes;      /* once: see journal/recovery.c */
    bool in_place;            /* packed, or being packed: its bytes are in its client's memory */
    uint64_t used_us;         /* when it was spilled, or restored and kept */
    uint64_t raw_bytes, stored_bytes;
    uint64_t tier_bytes[SW_TIERS_MAX]; /* of stored_bytes, those in each tier when it last came to rest */
    uint64_t charged_bytes;            /* to the owner's quota */
    uint64_t kept_bytes;               /* the same, of memory: its own and that of its frames' records */
    enum sw_codec_id codec;
    enum sw_cost_reason reason;
    struct sw_frames *frames;      /* owned; NULL until OUT, and where a restart has found none */
    uint32_t record;               /* in the catalogue, 0: none */
    bool is_detached;              /* not in the table: IN, and its slot has a newer region */
    char *name;                    /* durable: it outlives its session; NULL: it does not */
    struct sw_list named;          /* durable: of its tenant owner's names */
    uint32_t request, batch_index; /* of its session's, that made it; request 0: not known, or forgotten */
    uint32_t next_free;            /* slot */
};

/* Its bytes are on their way. */
static inline bool sw_region_is_busy(const struct sw_region *region) {
    return region->op || region->series;
}

/* Memory that is kept for a region, beside its frames': its slot in the table, its place among its session's requests,
 * a cell of the catalogue, and its name. */
enum { SW_REGION_KEPT_BYTES = sizeof(struct sw_region) + 16 + 128 + SW_REGION_NAME_BYTES };

struct sw_region_table {
    struct sw_region *regions;
    unsigned max;                    /* regions; more only where a predecessor has left them */
    unsigned cap, n_used, n_touched; /* slots from n_touched on were never used */
    uint32_t first_gen;              /* of slots that were never used: no id before had a higher one */
    uint32_t first_free, last_free;  /* queue of used slots, so that generations rise slowly */
};

/* n_slots: of a predecessor, which may have had more regions. errors: -SW_ENOMEM. */
int sw_region_table_init(struct sw_region_table *ret, unsigned max_regions, unsigned n_slots, uint32_t first_gen);
/* All regions must have been released. */
void sw_region_table_fini(struct sw_region_table *table);

/* A region in state IN with a new id, or NULL if the table is full. */
struct sw_region *sw_region_acquire(struct sw_region_table *table, struct sw_owner *owner);
/* Of a table that has given out nothing yet: a region that a predecessor left, with its id; NULL if the slot is not
 * there or not free. sw_region_table_settle() then makes the table ready for new ones. */
struct sw_region *sw_region_adopt(struct sw_region_table *table, struct sw_owner *owner, struct sw_region_id id,
                                  enum sw_region_state state);
void sw_region_table_settle(struct sw_region_table *table);
/* Of one that is IN and whose slot is taken: beside the table, in memory of its own. NULL: there is none. */
struct sw_region *sw_region_new_detached(struct sw_owner *owner, struct sw_region_id id);
void sw_region_free_detached(struct sw_region *region);
/* Ends an id. The region is IN, OUT or LOST, without an operation and without frames. */
void sw_region_release(struct sw_region_table *table, struct sw_region *region);

/* errors: -SW_ESTALE (dead, and this owner had the slot last), -SW_ENOENT (never given out, or another owner's, dead or
 * alive: a caller cannot tell which). */
int sw_region_find(const struct sw_region_table *table, const struct sw_owner *owner, struct sw_region_id id,
                   struct sw_region **ret, struct sw_err *err);

/* The same for operators, who see the regions of all owners. errors: -SW_ENOENT (never given out), -SW_ESTALE. */
int sw_region_find_any(const struct sw_region_table *table, struct sw_region_id id, struct sw_region **ret,
                       struct sw_err *err);

/* The only place that changes a state. Asserts that the move is one of engine.h's picture; logs it at debug. */
void sw_region_move(struct sw_region *region, enum sw_region_state to);

#endif

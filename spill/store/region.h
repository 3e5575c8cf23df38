/* region.h - the table of regions, and the only function that changes a region's state.
 *
 * Invariant: an id never names two regions. An id is an index in the table and a generation, which rises when the
 * index is used again. thread: loop. */
#ifndef SW_SPILL_REGION_H
#define SW_SPILL_REGION_H

#include "base/list.h"
#include "spill/planner/cost.h"
#include "spill/store/frames.h"
#include "spill/store/ids.h"
#include <stdatomic.h>

struct sw_op;
struct sw_owner;
struct sw_series;

/* A move of a region's frames between tiers, as far as the store knows it. It is embedded in a larger record
 * (balance/balance.c). */
struct sw_move {
    struct sw_owner *owner;               /* counts it in n_moves */
    struct sw_region *region;             /* NULL: the region was dropped meanwhile, and the move owns the frames */
    void (*cancel)(struct sw_move *move); /* asks it to end early; chunks that have moved stay where they are */
    const atomic_ullong *moved_bytes;     /* stored bytes that have moved so far */
};

struct sw_region {
    struct sw_region_id id; /* gen 0: this table entry was never used */
    enum sw_region_state state;
    struct sw_owner *owner;   /* NULL: free */
    uint64_t holder;          /* number of the owner that has it, or had it last; 0: not known */
    struct sw_list node;      /* in the owner's `regions`, or `detached` */
    struct sw_op *op;         /* the operation that is moving it, or NULL */
    struct sw_series *series; /* the build or read that uses it, or NULL */
    struct sw_move *move;     /* the move that takes its frames to another tier, or NULL */
    struct sw_tier *tier;     /* the tier that has most of it; NULL until OUT, and if it is packed */
    uint8_t priority;         /* regions of low priority leave a full tier first */
    bool pinned;              /* it stays in its tier */
    bool may_fill_holes;      /* for one restore: see journal/recovery.c */
    bool in_place;            /* packed, or being packed: its bytes are in its client's memory */
    uint64_t used_us;         /* when it was spilled, or restored and kept */
    uint64_t raw_bytes, stored_bytes;
    uint64_t tier_bytes[SW_TIERS_MAX]; /* the stored bytes in each tier, by rank, at the end of the last operation */
    uint64_t charged_bytes;            /* stored bytes that count in the owner's quota */
    uint64_t kept_bytes;               /* memory that counts there: of the region and of its frames' records */
    enum sw_codec_id codec;
    enum sw_cost_reason reason;
    struct sw_frames *frames;      /* owned; NULL until OUT, and if a restart has found none */
    uint32_t record;               /* in the catalogue, 0: none */
    bool is_detached;              /* not in the table: it is IN, and a newer region uses its table entry */
    enum sw_durability durability; /* that its spill asked for */
    enum sw_prefer prefer;         /* what its spill wants it to be compressed for */
    uint64_t kept;                 /* its record in the tier `keeper`; 0: none */
    struct sw_tier *keeper;
    char *name;                    /* of a durable region, which outlives its session; NULL: not durable */
    struct sw_list named;          /* durable: in the tenant owner's `names` */
    uint32_t request, batch_index; /* the session's request that made it; request 0: not known, or forgotten */
    uint32_t next_free;            /* index of the next free table entry */
};

/* Returns the durability that a region has reached. */
static inline enum sw_durability sw_region_durability(const struct sw_region *region) {
    return region->kept ? region->keeper->kind->durability : SW_DURABILITY_SERVICE;
}

/* Returns true while an operation moves its bytes. */
static inline bool sw_region_is_busy(const struct sw_region *region) {
    return region->op || region->series;
}

/* Memory that a region takes without its frames: its table entry, its entry in the request index, a cell of the
 * catalogue, and its name. */
enum { SW_REGION_KEPT_BYTES = sizeof(struct sw_region) + 16 + 128 + SW_REGION_NAME_BYTES };

struct sw_region_table {
    struct sw_region *regions;
    unsigned max;                    /* regions; a predecessor may have left more */
    unsigned cap, n_used, n_touched; /* entries from n_touched on were never used */
    uint32_t first_gen;              /* generation of unused entries; no earlier id has a higher one */
    uint32_t first_free, last_free;  /* queue of entries that were used: generations then rise slowly */
};

/* Initialises a table. n_entries: entries of a predecessor's table, which may have had more regions. errors:
 * -SW_ENOMEM. */
int sw_region_table_init(struct sw_region_table *ret, unsigned max_regions, unsigned n_entries, uint32_t first_gen);
/* Frees the table. All regions must have been released. */
void sw_region_table_fini(struct sw_region_table *table);

/* Returns a region in state IN with a new id. NULL: the table is full. */
struct sw_region *sw_region_acquire(struct sw_region_table *table, struct sw_owner *owner);
/* Returns a region that a predecessor left, under its id. Only for a table that has no new regions yet. NULL: the id's
 * table entry does not exist, or is not free. After all have been adopted, sw_region_table_settle() makes the table
 * ready for new regions. */
struct sw_region *sw_region_adopt(struct sw_region_table *table, struct sw_owner *owner, struct sw_region_id id,
                                  enum sw_region_state state);
void sw_region_table_settle(struct sw_region_table *table);
/* Allocates a region that is IN, and whose table entry another region uses. NULL: no memory. */
struct sw_region *sw_region_new_detached(struct sw_owner *owner, struct sw_region_id id);
void sw_region_free_detached(struct sw_region *region);
/* Ends an id. The region must be IN, OUT or LOST, and have no operation and no frames. */
void sw_region_release(struct sw_region_table *table, struct sw_region *region);

/* Finds an owner's region. errors: -SW_ESTALE (the region has ended, and this owner was the last to use its table
 * entry), -SW_ENOENT (the id was never given out, or belongs or belonged to another owner: a caller cannot tell
 * which). */
int sw_region_find(const struct sw_region_table *table, const struct sw_owner *owner, struct sw_region_id id,
                   struct sw_region **ret, struct sw_err *err);

/* Finds a region of any owner, for operators. errors: -SW_ENOENT (never given out), -SW_ESTALE. */
int sw_region_find_any(const struct sw_region_table *table, struct sw_region_id id, struct sw_region **ret,
                       struct sw_err *err);

/* Changes a region's state; nothing else does. Asserts that the change is allowed (ids.h), and logs it at debug. */
void sw_region_move(struct sw_region *region, enum sw_region_state to);

#endif

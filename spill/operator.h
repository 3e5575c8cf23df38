/* operator.h - what operators may do with an engine, across all owners: look at regions, move them, change limits.
 *
 * For the control socket, which has checked the operator's rights. Not for clients: they reach their own regions only,
 * by engine.h. thread: loop. */
#ifndef SW_SPILL_OPERATOR_H
#define SW_SPILL_OPERATOR_H

#include "spill/engine.h"
#include "spill/statistics.h"

/* Sets the caller's own pointer for an owner; borrowed until it is set anew, or the owner is closed. */
void sw_owner_set_tag(struct sw_owner *owner, void *tag);
struct sw_owner_stats {
    unsigned n_regions, n_mems, n_ops;
    uint64_t raw_bytes, stored_bytes; /* of regions that are stored */
};
void sw_owner_stats(const struct sw_owner *owner, struct sw_owner_stats *ret);

struct sw_region_view {
    struct sw_region_id id;
    void *tag; /* the owner's; NULL: the session has ended, or has not come back after a restart */
    struct sw_region_info info;
    uint64_t used_us; /* time of its spill, or of its last restore */
    unsigned priority;
    bool pinned, is_moving; /* is_moving: between tiers */
    uint64_t moved_bytes;   /* of stored_bytes, by the move under way */
    const char *name;       /* of a durable region, borrowed for the call; else NULL */
    uint32_t uid;           /* of the owner; UINT32_MAX: unknown */
};
/* Visits the regions in the order of their ids' slots, from the slot `from` on, until `visit` returns false or
 * max_slots slots were looked at. Returns the slot to continue with, or UINT32_MAX behind the last. `visit` must not
 * change the engine. */
uint32_t sw_engine_visit(struct sw_engine *engine, uint32_t from, unsigned max_slots,
                         bool (*visit)(const struct sw_region_view *view, void *arg), void *arg);

/* Returns the region's owner. errors: -SW_ENOENT, -SW_ESTALE. */
int sw_engine_owner(struct sw_engine *engine, struct sw_region_id id, struct sw_owner **ret, struct sw_err *err);

/* Finds a durable region by its name. uid: of its tenant; UINT32_MAX: any, if only one tenant has a region of this
 * name. errors: -SW_ENOENT, -SW_EINVAL (several tenants have one). */
int sw_engine_find_name(struct sw_engine *engine, const char *name, uint32_t uid, struct sw_region_id *ret,
                        struct sw_err *err);
/* Returns the stored bytes that sw_engine_make_room() has still to begin to move. */
uint64_t sw_engine_room_bytes(const struct sw_engine *engine);

/* Begins to demote regions from the first tier, in the usual order, until about this number of stored bytes has left
 * it, or nothing can leave it. errors: -SW_ENOTSUP (there is no tier behind). */
int sw_engine_make_room(struct sw_engine *engine, uint64_t bytes, struct sw_err *err);

struct sw_engine_drain {
    const struct sw_tier *to; /* NULL: none is under way */
    uint64_t left_bytes;      /* stored bytes in the tiers before */
    struct sw_err err;        /* the last one has ended early; code 0: it has not */
};
/* Begins to move all regions from the tiers before this one to it, or one behind it. name NULL: ends that. errors:
 * -SW_ENOTSUP (there is no such tier, or none before it). */
int sw_engine_drain(struct sw_engine *engine, const char *name, struct sw_err *err);
void sw_engine_drain_state(const struct sw_engine *engine, struct sw_engine_drain *ret);

/* Changes the watermarks and the limit of regions per owner. Existing regions stay. */
void sw_engine_set_limits(struct sw_engine *engine, unsigned high_pct, unsigned low_pct, unsigned max_owner_regions);

/* Returns the statistics of operations (borrowed). They change with every operation that ends. */
const struct sw_op_statistics *sw_engine_op_statistics(const struct sw_engine *engine);
/* Returns the tiers (borrowed). */
const struct sw_tiers *sw_engine_tiers(const struct sw_engine *engine);
/* Returns the bytes of a tier in which frames may rest. The watermarks are parts of them. */
uint64_t sw_engine_limit_bytes(const struct sw_engine *engine, unsigned rank);
struct sw_engine_marks {
    uint64_t high_bytes, low_bytes;
};
struct sw_engine_marks sw_engine_marks(const struct sw_engine *engine, unsigned rank);

#endif

/* operator.h - what whoever runs the service may ask of an engine, across all owners: look at regions, move and drop
 * them, change limits.
 *
 * For the control socket, which has checked who asks. Not for clients: they reach their own regions only, by engine.h.
 * thread: loop. */
#ifndef SW_SPILL_OPERATOR_H
#define SW_SPILL_OPERATOR_H

#include "spill/engine.h"
#include "spill/statistics.h"

/* Whatever the caller knows an owner by; borrowed until it is set anew, or the owner is closed. */
void sw_owner_set_tag(struct sw_owner *owner, void *tag);
struct sw_owner_stats {
    unsigned n_regions, n_mems, n_ops;
    uint64_t raw_bytes, stored_bytes; /* of regions that are stored */
};
void sw_owner_stats(const struct sw_owner *owner, struct sw_owner_stats *ret);

struct sw_region_view {
    struct sw_region_id id;
    void *tag; /* its owner's; NULL: its session has ended, or has yet to come back after a restart */
    struct sw_region_info info;
    uint64_t used_us; /* when it was spilled, or restored and kept */
    unsigned priority;
    bool pinned, is_moving; /* moving: between tiers */
    const char *name;       /* durable: borrowed for the call; else NULL */
    uint32_t uid;           /* whose it is, where the owner has no tag; UINT32_MAX: it has no name */
};
/* Shows regions of slots from `from` on, in order, until `visit` returns false or max_slots have been looked at.
 * Returns the slot to go on from, UINT32_MAX behind the last. `visit` must not change the engine. */
uint32_t sw_engine_visit(struct sw_engine *engine, uint32_t from, unsigned max_slots,
                         bool (*visit)(const struct sw_region_view *view, void *arg), void *arg);

/* Whose region it is. errors: -SW_ENOENT, -SW_ESTALE. */
int sw_engine_owner(struct sw_engine *engine, struct sw_region_id id, struct sw_owner **ret, struct sw_err *err);

/* Begins to move regions from the first tier to one behind, in the order in which they would leave it by themselves,
 * until about so many stored bytes have left or nothing is left to move. errors: -SW_ENOTSUP (there is none behind). */
int sw_engine_make_room(struct sw_engine *engine, uint64_t bytes, struct sw_err *err);

/* Takes other watermarks and another bound of regions per owner; regions that are there stay. */
void sw_engine_set_limits(struct sw_engine *engine, unsigned high_pct, unsigned low_pct, unsigned max_owner_regions);

/* Borrowed; changes with every operation that ends. */
const struct sw_op_statistics *sw_engine_op_statistics(const struct sw_engine *engine);
/* Borrowed. */
const struct sw_tiers *sw_engine_tiers(const struct sw_engine *engine);
/* Bytes of a tier that frames may rest in: the watermarks are parts of it. */
uint64_t sw_engine_limit_bytes(const struct sw_engine *engine, unsigned rank);
struct sw_engine_marks {
    uint64_t high_bytes, low_bytes;
};
struct sw_engine_marks sw_engine_marks(const struct sw_engine *engine, unsigned rank);

#endif

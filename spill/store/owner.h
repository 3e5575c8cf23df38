/* owner.h - what one session owns, and how it goes away once nothing of it is left. Not for other rooms.
 *
 * One record for all layers: the lists of operations, series and memories, and what their requests have made, are those
 * of the operations; `record` and `consumed` the journal's. thread: loop. */
#ifndef SW_SPILL_OWNER_H
#define SW_SPILL_OWNER_H

#include "base/list.h"
#include "base/process.h"
#include "spill/store/store.h"

/*   OPEN -> CLOSING -> CLOSED: freed
 *        -> LEAVING -> LEFT: freed with the store
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
    struct sw_list node; /* of store->owners; CLOSED, LEFT: of store->settled, then, if LEFT, of store->left */
    struct sw_store *store;
    uint64_t number; /* from 1, never reused */
    struct sw_quota *quota;
    uint64_t kept_bytes; /* of the quota, for the owner itself */
    struct sw_list ops, mems, regions;
    struct sw_list series;   /* builds and reads that have not ended */
    struct sw_list detached; /* regions that are IN and whose slots have newer regions; they count nowhere */
    unsigned n_ops, n_mems, n_regions, n_moves;
    unsigned n_series; /* with those that have ended, and whose callback is due */
    enum sw_owner_state state;
    uint32_t record;   /* in the catalogue, 0: has no name */
    uint32_t consumed; /* list of records of regions that the client may not know to be restored */
    uint32_t uid;
    struct sw_process process; /* the client's */
    uint8_t token[SW_TOKEN_BYTES];
    struct sw_owner *tenant_owner; /* of its durable regions; NULL: has none */
    bool is_tenant_owner;
    struct sw_list names; /* of a tenant owner: durable regions, its own and those of whose tenant owner it is */
    unsigned n_names;
    struct sw_request_entry *request_index; /* its regions by request; NULL: no client has asked yet */
    size_t n_request_index;
    void *tag;                        /* sw_owner_set_tag() */
    uint64_t raw_bytes, stored_bytes; /* of regions that have frames */
    void (*closed)(void *arg);
    void *arg;
};

/* Nothing begins with it any more. */
static inline bool sw_owner_is_ending(const struct sw_owner *owner) {
    return owner->state != SW_OWNER_OPEN && owner->state != SW_OWNER_UNCLAIMED;
}

/* An owner that is OPEN. NULL: no memory. */
struct sw_owner *sw_owner_new(struct sw_store *store);
/* If a closing owner has nothing left, its `closed` becomes due: the store's owner_settled() is told. */
void sw_owner_settle(struct sw_owner *owner);
/* Frees the region's frames, or leaves them to the move that is at work on them, and ends its id. Its record is gone.
 */
void sw_region_end(struct sw_region *region);

#endif

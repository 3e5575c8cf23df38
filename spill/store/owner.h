/* owner.h - what one session owns, and how an owner ends. Not for other rooms.
 *
 * All layers share this record. The operations use the lists of operations, series and memories, and the request index.
 * The journal uses `record` and `consumed`. thread: loop. */
#ifndef SW_SPILL_OWNER_H
#define SW_SPILL_OWNER_H

#include "base/list.h"
#include "base/process.h"
#include "spill/store/store.h"

/*   OPEN -> CLOSING -> CLOSED: freed
 *        -> LEAVING -> LEFT: freed with the store
 *   UNCLAIMED -> OPEN, or as OPEN
 *
 * An owner without a record is closed instead of left. */
enum sw_owner_state {
    SW_OWNER_OPEN,
    SW_OWNER_UNCLAIMED, /* a predecessor left it, and no client has resumed it */
    SW_OWNER_CLOSING,   /* its operations are canceled; its memories and regions are released when they have ended */
    SW_OWNER_LEAVING,   /* the same, but recorded regions stay */
    SW_OWNER_CLOSED,    /* it has nothing left; its `closed` is due */
    SW_OWNER_LEFT       /* it has only regions for a successor; its `closed` is due */
};

struct sw_owner {
    struct sw_list node; /* in store->owners; CLOSED, LEFT: in store->settled; then, if LEFT, in store->left */
    struct sw_store *store;
    uint64_t number; /* from 1, never reused */
    struct sw_quota *quota;
    uint64_t kept_bytes; /* memory of the owner itself that counts in the quota */
    struct sw_list ops, mems, regions;
    struct sw_list series;   /* builds and reads that have not ended */
    struct sw_list detached; /* regions that are IN, but no longer in the table; they are not counted */
    unsigned n_ops, n_mems, n_regions, n_moves;
    unsigned n_series; /* includes ended ones whose callback is due */
    enum sw_owner_state state;
    uint32_t record;   /* in the catalogue; 0: the owner has no record */
    uint32_t consumed; /* list of the records of restored regions whose client may not have been informed */
    uint32_t uid;
    struct sw_process process; /* the client's */
    uint8_t token[SW_TOKEN_BYTES];
    struct sw_owner *tenant_owner; /* of its durable regions; NULL: has none */
    bool is_tenant_owner;
    struct sw_list names; /* of a tenant owner: all durable regions of the tenant */
    unsigned n_names;
    struct sw_request_entry *request_index; /* its regions by request; NULL: no client has asked yet */
    size_t n_request_index;
    void *tag;                        /* sw_owner_set_tag() */
    uint64_t raw_bytes, stored_bytes; /* of regions that have frames */
    void (*closed)(void *arg);
    void *arg;
};

/* Returns true if no operation may begin with it any more. */
static inline bool sw_owner_is_ending(const struct sw_owner *owner) {
    return owner->state != SW_OWNER_OPEN && owner->state != SW_OWNER_UNCLAIMED;
}

/* Creates an OPEN owner. NULL: no memory. */
struct sw_owner *sw_owner_new(struct sw_store *store);
/* If a closing owner has nothing left, makes its `closed` due, and calls the store's owner_settled(). */
void sw_owner_settle(struct sw_owner *owner);
/* Ends a region and its id. Frees its frames, or leaves them to the move that uses them. Its record must be gone. */
void sw_region_end(struct sw_region *region);
/* Ends a region, and returns its frames to the caller. NULL: a move has them, or there are none. */
struct sw_frames *sw_region_end_without_frames(struct sw_region *region);

#endif

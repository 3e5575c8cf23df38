/* store.h - all that is stored: regions by id, owners, and the tiers where frames rest.
 *
 * The store is the lowest layer of the engine. It reports to the layers above by callback. Not for other rooms.
 * thread: loop. */
#ifndef SW_SPILL_STORE_H
#define SW_SPILL_STORE_H

#include "spill/store/damage.h"
#include "spill/store/placement.h"
#include "spill/store/region.h"

struct sw_store {
    struct sw_placement place;
    struct sw_region_table regions;
    struct sw_list owners;
    struct sw_list settled; /* owners that have nothing left; their `closed` is due */
    struct sw_list left;    /* owners whose regions a successor takes over; they stay until the store ends */
    unsigned n_owners;      /* in `owners` and `settled` */
    uint64_t last_owner;    /* number of the newest owner */
    struct sw_observer observer;
    struct sw_keeper *keeper; /* the journal's */
    /* An owner has been added to `settled`. */
    void (*owner_settled)(struct sw_owner *owner);
};

struct sw_store_config {
    struct sw_tiers tiers; /* settled; borrowed */
    uint64_t staging_bytes;
    unsigned max_regions;
    /* Left by a predecessor, perhaps: the size of its region table, its highest generation, and the epoch in the keys
     * of frames in durable tiers. */
    unsigned n_entries;
    uint32_t first_gen;
    uint64_t epoch;
    struct sw_observer observer;
    void (*owner_settled)(struct sw_owner *owner);
};

/* Initialises a store. errors: -SW_ENOMEM. */
int sw_store_init(struct sw_store *ret, const struct sw_store_config *config);
/* Frees what the store has allocated. All owners and regions must be gone. Also to be called if init has failed. */
void sw_store_fini(struct sw_store *store);

#endif

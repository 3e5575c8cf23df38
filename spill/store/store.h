/* store.h - all that is stored: regions by id, owners, and the tiers where frames rest. The lowest layer of the engine:
 * what is above hears of it by callback. Not for other rooms. thread: loop. */
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
    struct sw_list left;    /* owners whose regions are left to a successor, until the end */
    unsigned n_owners;      /* of both lists before */
    uint64_t last_owner;    /* number of the newest */
    struct sw_observer observer;
    /* An owner has come to the list of those that are settled. */
    void (*owner_settled)(struct sw_owner *owner);
};

struct sw_store_config {
    struct sw_tiers tiers; /* settled; borrowed */
    uint64_t staging_bytes;
    unsigned max_regions;
    /* What a predecessor may have left: its slots, its highest generation, whose frames durable tiers have. */
    unsigned n_slots;
    uint32_t first_gen;
    uint64_t epoch;
    struct sw_observer observer;
    void (*owner_settled)(struct sw_owner *owner);
};

/* errors: -SW_ENOMEM. */
int sw_store_init(struct sw_store *ret, const struct sw_store_config *config);
/* All owners and regions are gone. After an init that failed, too. */
void sw_store_fini(struct sw_store *store);

#endif

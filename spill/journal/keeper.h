/* keeper.h - has tiers keep regions, and forget them. The tiers answer on their own threads; the answers are taken on
 * the loop.
 *
 * Order: a region is kept after its frames are committed, and before the catalogue has it. It is forgotten before its
 * frames are released: until then the catalogue's record stays, marked as IN, so that a successor goes on forgetting
 * it. thread: loop, all calls; wake() is called on any thread. */
#ifndef SW_SPILL_KEEPER_H
#define SW_SPILL_KEEPER_H

#include "spill/journal/catalogue.h"
#include "spill/mover/request.h"
#include "spill/store/region.h"

#include <pthread.h>

enum { SW_KEEPER_MAX = 256 }; /* regions that are kept together */

struct sw_keeper {
    struct sw_catalogue *catalogue; /* borrowed */
    const struct sw_store *store;
    void (*wake)(void *arg); /* sw_keeper_take() is due */
    void *arg;
    unsigned n_changes;   /* under way */
    pthread_mutex_t lock; /* guards `ended` */
    struct sw_list ended; /* sw_tier_change.node */
};

void sw_keeper_init(struct sw_keeper *ret, const struct sw_store *store, struct sw_catalogue *catalogue,
                    void (*wake)(void *arg), void *arg);
/* Nothing may be under way. */
void sw_keeper_fini(struct sw_keeper *keeper);

/* A region whose frames are all committed. */
struct sw_completion {
    struct sw_region *region;
    struct sw_frames *frames; /* of all its chunks */
    const struct sw_run_outcome *sum;
};

/* Has a tier keep n regions of one durability, all or none. On success each region's `kept` is set. They, and `frames`,
 * must stay until ended() runs, from sw_keeper_take(). errors: -SW_ENOMEM; later -SW_EIO, -SW_ENOSPACE. */
int sw_keeper_keep(struct sw_keeper *keeper, const struct sw_completion *all, unsigned n,
                   void (*ended)(const struct sw_err *err, void *arg), void *arg, struct sw_err *err);
/* Has another tier keep a region whose frames have been moved there, as sw_keeper_keep(). The last tier's record stays:
 * forget it afterwards. */
int sw_keeper_move(struct sw_keeper *keeper, struct sw_region *region, struct sw_tier *to,
                   void (*ended)(const struct sw_err *err, void *arg), void *arg, struct sw_err *err);
/* Has the tier forget a region that it keeps, and then frees its frames (moved; NULL: none) and the catalogue's record
 * (moved; 0: none). If this fails, the region comes back with the next process. */
void sw_keeper_forget(struct sw_keeper *keeper, struct sw_tier *tier, uint64_t kept, struct sw_frames *frames,
                      uint32_t record);
/* Takes the answers that have come. */
void sw_keeper_take(struct sw_keeper *keeper);

#endif

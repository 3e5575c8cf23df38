/* recovery.h - finds a predecessor's sessions and regions, which its catalogue names, and their frames in the tiers.
 * README.md says what survives, and why nothing is found that was not committed. thread: loop. */
#ifndef SW_SPILL_RECOVERY_H
#define SW_SPILL_RECOVERY_H

#include "spill/journal/catalogue.h"

struct sw_store;

/* The result of a recovery. */
struct sw_recovered {
    unsigned n_sessions, n_regions; /* everything that was found, the lost regions below included */
    unsigned n_lost;                /* regions that were not whole: ELOST */
    unsigned n_damaged;             /* records that made no sense */
    unsigned n_released;            /* frames in durable tiers that no record names */
    uint64_t raw_bytes;
};

/* Finds sessions, regions and frames, once, before the first owner is made; releases all other frames. Without a
 * catalogue it only releases the frames that durable tiers have found. Regions that are not whole are reported to the
 * store's observer. errors: -SW_ENOMEM. */
int sw_recovery_run(struct sw_store *store, struct sw_catalogue *catalogue, struct sw_recovered *ret,
                    struct sw_err *err);
/* At the end of the process: forgets what is left to a successor. */
void sw_recovery_forget_left(struct sw_store *store);

#endif

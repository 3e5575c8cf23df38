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

/* Finds sessions, regions and frames, and releases all other frames. Call it once, before the first owner is made.
 * Without a catalogue it only releases the frames that durable tiers have found. It reports regions that are not whole
 * to the store's observer. errors: -SW_ENOMEM. */
int sw_recovery_run(struct sw_store *store, struct sw_catalogue *catalogue, struct sw_recovered *ret,
                    struct sw_err *err);
/* Frees the records of regions that are left to a successor, at the end of the process. */
void sw_recovery_forget_left(struct sw_store *store);

#endif

/* recovery.h - what of a predecessor is there again: sessions and regions that its catalogue names, and their frames in
 * the tiers. README.md says what survives, and why nothing is found that was not committed. thread: loop. */
#ifndef SW_SPILL_RECOVERY_H
#define SW_SPILL_RECOVERY_H

#include "spill/journal/catalogue.h"

struct sw_store;

/* What a predecessor left, found by a recovery. */
struct sw_recovered {
    unsigned n_sessions, n_regions; /* all that are there again, those below included */
    unsigned n_lost;                /* regions that were not whole: ELOST */
    unsigned n_damaged;             /* records that made no sense */
    unsigned n_released;            /* frames in durable tiers that no record names */
    uint64_t raw_bytes;
};

/* Finds it, once, before the first owner is made; releases the rest. Without a catalogue only what durable tiers have
 * found is to be released. Regions that are not whole are told to the store's observer. errors: -SW_ENOMEM. */
int sw_recovery_run(struct sw_store *store, struct sw_catalogue *catalogue, struct sw_recovered *ret,
                    struct sw_err *err);
/* The process is at its end: forgets what is left to a successor. */
void sw_recovery_forget_left(struct sw_store *store);

#endif

/* tiers.h - the configured tiers of the table (tiers.def), where regions are stored, and the catalogue of their
 * content. This room hands what the service manager keeps for the next process to it, and takes it back (fdstore.h).
 *
 * Opened in this order: catalogue, devices, tiers. The tiers are closed before the devices, with which their memory is
 * pinned. After an error the caller closes; closing skips what is not open. thread: loop. */
#ifndef SW_DAEMON_TIERS_TIERS_H
#define SW_DAEMON_TIERS_TIERS_H

#include "base/err.h"
#include "spill/engine.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct sw_config;
struct sw_service;

/* Opens the predecessor's catalogue, or an empty one; none if there is no manager to keep it. The service's fdstore
 * must be open.
 *
 * - A catalogue of an earlier version is copied. The manager keeps the copy before this returns, and the old one until
 *   sw_tiers_forget_old_catalogues(). So a successor finds one of them whenever this process is killed.
 * - A damaged catalogue is given up, which is logged.
 * - errors: -SW_EVERSION (a later version of the program has left a catalogue), -SW_ELIMIT (the copy cannot be kept):
 *   the caller must not start, and everything stays stored. -SW_ENOMEM and others of sw_catalogue_open(). */
int sw_tiers_open_catalogue(struct sw_service *service, struct sw_err *err);
/* Has the manager forget catalogues of earlier versions. Call it when the start has succeeded, before a client is
 * served.
 */
void sw_tiers_forget_old_catalogues(struct sw_service *service);
/* Closes the catalogue. Without one a no-op. */
void sw_tiers_close_catalogue(struct sw_service *service);

/* Opens the tiers with what was kept of a predecessor's. errors: those of the tiers. */
int sw_tiers_open(struct sw_service *service, struct sw_err *err);
/* Closes the open tiers. */
void sw_tiers_close(struct sw_service *service);

/* Returns the room in the first tier for frames on their way to and from the tiers behind it: for each GPU's slots in
 * both directions, and for read-ahead; at most half of the tier. 0 if there is no tier behind it. */
uint64_t sw_tiers_staging_bytes(const struct sw_service *service);

/* ---- configuration ---- */

/* Return the configured size of all tiers together, the host memory that they take beside it, and the descriptors that
 * they keep open. */
uint64_t sw_tiers_bytes(const struct sw_config *config);
uint64_t sw_tiers_buffer_bytes(const struct sw_config *config);
uint64_t sw_tiers_descriptors(const struct sw_config *config);
/* Percentages of a tier's limit: above high, regions leave it for a tier behind, until low is reached. */
struct sw_tiers_marks {
    unsigned high_pct, low_pct;
};
struct sw_tiers_marks sw_tiers_marks(const struct sw_config *config);

/* ---- statistics ---- */

/* One kind of tier, in the table's order; the last one stands for packed regions, which are in no tier. */
struct sw_tier_shown {
    const char *name;
    const struct sw_tier *tier; /* NULL: it does not exist, and its statistics are 0 */
    struct sw_tier_stats stats;
    bool has_store; /* it is of a kind in a store behind a network, with the next statistics */
    struct sw_tier_store_stats store;
    unsigned flows; /* index into the flows of struct sw_op_statistics; SW_STATISTICS_TIER_NR: there are none */
};
/* Gets the i-th; returns false after the last one. */
bool sw_tiers_show(const struct sw_service *service, unsigned i, struct sw_tier_shown *ret);

/* Checks the content of the tiers that can be read without a service, and prints a line for each fault. errors:
 * -SW_ECONFIG (there is no such tier), those of the tier's check. */
int sw_tiers_check(const struct sw_config *config, FILE *out, bool *ret_good, struct sw_err *err);

#endif

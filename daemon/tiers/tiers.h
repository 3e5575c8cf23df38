/* tiers.h - where stored regions lie: the tiers of the table (tiers.def) that are configured; and the catalogue that
 * says what is in them. What of these the service manager keeps for the next process is handed to it, and taken from
 * it, here (fdstore.h).
 *
 * Opened in this order: catalogue, devices, tiers. The tiers are closed before the devices, with which their memory is
 * pinned. After an error the caller closes, which leaves out what is not open. thread: loop. */
#ifndef SW_DAEMON_TIERS_TIERS_H
#define SW_DAEMON_TIERS_TIERS_H

#include "base/err.h"
#include "spill/engine.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct sw_config;
struct sw_service;

/* The predecessor's, or an empty one; none where nobody keeps it. The service's fdstore is open.
 *
 * One of an earlier version is copied; the copy is kept under a name of its own before this returns, and the old one
 * until sw_tiers_forget_old_catalogues(): whenever the process is killed, a successor finds one of them. A damaged one
 * is given up, which is logged. errors: -SW_EVERSION: a later version of the program has left one. All that it has left
 * stays where it is; the caller must not start. -SW_ELIMIT: a copy cannot be kept; the same. -SW_ENOMEM and others of
 * sw_catalogue_open(). */
int sw_tiers_open_catalogue(struct sw_service *service, struct sw_err *err);
/* Once the start has succeeded, and before anybody is served: catalogues of earlier versions are no longer kept. */
void sw_tiers_forget_old_catalogues(struct sw_service *service);
/* No catalogue: a no-op. */
void sw_tiers_close_catalogue(struct sw_service *service);

/* With what was kept of a predecessor's. errors: those of the tiers. */
int sw_tiers_open(struct sw_service *service, struct sw_err *err);
/* What is open of them. */
void sw_tiers_close(struct sw_service *service);

/* Room in the first tier for frames on their way to those behind it and back: for each GPU's slots in both directions,
 * and what is read ahead; at most half of the tier. 0 where there is none behind. */
uint64_t sw_tiers_staging_bytes(const struct sw_service *service);

/* ---- what is configured ---- */

/* The bounds of all tiers together, and the descriptors that they keep open. */
uint64_t sw_tiers_bytes(const struct sw_config *config);
uint64_t sw_tiers_descriptors(const struct sw_config *config);
/* Percentages of a tier's limit: above high, regions leave it for one behind, until low is reached. */
struct sw_tiers_marks {
    unsigned high_pct, low_pct;
};
struct sw_tiers_marks sw_tiers_marks(const struct sw_config *config);

/* ---- what is shown ---- */

/* Of each kind that there can be, in order, and last of packed regions, which are in no tier. */
struct sw_tier_shown {
    const char *name;
    const struct sw_tier *tier; /* NULL: it is not there, its figures are 0 */
    struct sw_tier_stats stats;
    unsigned flows; /* index into the flows of struct sw_figures; SW_FIGURES_TIER_NR: there are none */
};
/* The i-th; false behind the last. */
bool sw_tiers_show(const struct sw_service *service, unsigned i, struct sw_tier_shown *ret);

/* Checks what lies in the tiers that can be looked at without a service, and writes what it has found, a line for each
 * fault. errors: -SW_ECONFIG (there is no such tier), those of the tier's check. */
int sw_tiers_check(const struct sw_config *config, FILE *out, bool *ret_good, struct sw_err *err);

#endif

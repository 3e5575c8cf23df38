/* tiers.h - where stored regions lie: the arena in host memory, and the disk if there is one; and the catalogue that
 * says what is in them. What of these the service manager keeps for the next process is handed to it, and taken from
 * it, here (fdstore.h).
 *
 * Opened in this order: catalogue, devices, tiers. The tiers are closed before the devices, with which their memory is
 * pinned. After an error the caller closes, which leaves out what is not open. thread: loop. */
#ifndef SW_DAEMON_TIERS_H
#define SW_DAEMON_TIERS_H

#include "base/err.h"
#include <stdint.h>

struct sw_service;

/* The predecessor's, or an empty one; none where nobody keeps it. The service's fdstore is open.
 *
 * One of an earlier version is copied; the copy is kept under a name of its own before this returns, and the old one
 * until sw_tiers_forget_old_catalogue(): whenever the process is killed, a successor finds one of them. A damaged one
 * is given up, which is logged. errors: -SW_EVERSION: a later version of the program has left one. All that it has left
 * stays where it is; the caller must not start. -SW_ELIMIT: a copy cannot be kept; the same. -SW_ENOMEM and others of
 * sw_catalogue_open(). */
int sw_tiers_open_catalogue(struct sw_service *service, struct sw_err *err);
/* Once the start has succeeded, and before anybody is served: the catalogue of an earlier version, if there is one, is
 * no longer kept. */
void sw_tiers_forget_old_catalogue(struct sw_service *service);
/* No catalogue: a no-op. */
void sw_tiers_close_catalogue(struct sw_service *service);

/* Both tiers, with what was kept of a predecessor's. errors: those of sw_tier_host_open(), sw_tier_nvme_open() and of
 * the key. */
int sw_tiers_open(struct sw_service *service, struct sw_err *err);
/* What is open of them, and the key. */
void sw_tiers_close(struct sw_service *service);

/* Room for frames on their way to the NVMe tier and back: for each GPU's slots in both directions, and what is read
 * ahead; at most half of the host tier. 0 without an NVMe tier. */
uint64_t sw_tiers_staging_bytes(const struct sw_service *service);

#endif

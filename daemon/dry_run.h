/* dry_run.h - which regions of a snapshot would leave the host tier, by the policy that the service itself asks; starts
 * nothing. thread: any, no state. */
#ifndef SW_DAEMON_DRY_RUN_H
#define SW_DAEMON_DRY_RUN_H

#include "config/config.h"

#include <stdio.h>

/* Reads a snapshot (snapshot.h; path "-": standard input) and writes a table: the regions that would be moved to the
 * NVMe tier, in order, then those that stay, each with the reason. A disk without room for them is not considered.
 * errors: those of sw_snapshot_load(); nothing is written then. */
int sw_dry_run(const struct sw_config *config, const char *path, FILE *out, struct sw_err *err);

#endif

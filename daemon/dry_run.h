/* dry_run.h - which regions of a snapshot would leave the host tier, by the service's own policy; starts nothing.
 * thread: any, no state. */
#ifndef SW_DAEMON_DRY_RUN_H
#define SW_DAEMON_DRY_RUN_H

#include "config/config.h"

#include <stdio.h>

/* Reads a snapshot (snapshot.h; path "-": standard input) and prints a table: the regions that would be moved to the
 * NVMe tier, in order, then the regions that stay, each with the reason. Room on the disk is not considered. errors:
 * sw_snapshot_load()'s; nothing is printed then. */
int sw_dry_run(const struct sw_config *config, const char *path, FILE *out, struct sw_err *err);

#endif

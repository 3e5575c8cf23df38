/* snapshot.h - the state of a service as a file: its regions, and how full the host tier is.
 *
 * The file is one JSON object. A key that is not listed here, or a value that does not fit the description, is refused
 * with an error that names both. Sizes are bytes. Times are microseconds of any single clock: only their order counts.
 *
 *   {"host_tier": {"used_bytes": 7900000000,        bytes that frames occupy
 *                  "capacity_bytes": 8589934592,    if omitted: host_tier_bytes of the configuration
 *                  "staging_bytes": 536870912},     part of it for frames on their way to a disk; 0 if omitted:
 *                                                   the service logs its own with event=service.ready
 *    "regions": [{"region": "7:3",                  printable characters, no spaces
 *                 "stored_bytes": 268435456,
 *                 "used_us": 1200,                  when it was spilled, or restored and kept
 *                 "tier": "host",                   a tier, or "device" (packed)
 *                 "priority": 0,                    0 to 255; 0 if omitted
 *                 "pinned": false}]}                false if omitted
 *
 * spillwayctl snapshot writes such a file. Do not use it to ask about a running service: the service itself is more
 * accurate. thread: any. */
#ifndef SW_DAEMON_SNAPSHOT_H
#define SW_DAEMON_SNAPSHOT_H

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sw_snapshot_region {
    char region[32], tier[16];
    uint64_t stored_bytes, used_us, priority;
    bool pinned;
};

struct sw_snapshot {
    struct {
        uint64_t used_bytes, capacity_bytes, staging_bytes;
    } first;                            /* the host tier */
    struct sw_snapshot_region *regions; /* [n_regions]; owned */
    size_t n_regions;
};

/* Loads a snapshot. path "-": standard input. capacity_bytes: used if the file has none for the first tier. errors:
 * -SW_ECONFIG, -SW_EIO, -SW_ENOMEM; *ret is then empty. */
int sw_snapshot_load(struct sw_snapshot *ret, const char *path, uint64_t capacity_bytes, struct sw_err *err);
/* Empties a snapshot. */
void sw_snapshot_fini(struct sw_snapshot *snapshot);

#endif

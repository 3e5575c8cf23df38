/* memory.h - what the service may take for clients of the memory that it can have (base/memory.h).
 *
 * Clients fill what they are given, and a process that exceeds its group's limit is killed, which costs all of them.
 * thread: any, no state. */
#ifndef SW_DAEMON_MEMORY_H
#define SW_DAEMON_MEMORY_H

#include "config/config.h"
#include <stdbool.h>
#include <stdint.h>

/* Returns how much of memory_bytes (0 and UINT64_MAX: not known) the service may have for the bookkeeping of all
 * clients. UINT64_MAX: any amount. */
uint64_t sw_memory_for_bookkeeping(const struct sw_config *config, uint64_t memory_bytes);
/* Lowers the host tier's options, so that the tier fits into memory_bytes with all else that the service has there.
 * Returns whether it had to. */
bool sw_memory_fit_tier(struct sw_config *config, uint64_t memory_bytes);

#endif

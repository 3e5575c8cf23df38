/* memory.h - how much memory this process can have, by the machine and by its control groups: for a warning, not for a
 * bound, since others need some of it. thread: any, no state. */
#ifndef SW_DAEMON_MEMORY_H
#define SW_DAEMON_MEMORY_H

#include <stdint.h>

/* The least of MemTotal and of the limits of the process's control groups and those above them, of version 2
 * (memory.max) and 1 (memory.limit_in_bytes). units: bytes; UINT64_MAX: the system does not say. root: "", or a folder
 * with another /proc and /sys. */
uint64_t sw_memory_bytes(const char *root);

#endif

/* memory.h - how much memory this process can have, by the machine and by its control groups: for a warning, not for a
 * bound, since others need some of it. thread: any, no state. */
#ifndef SW_DAEMON_MEMORY_H
#define SW_DAEMON_MEMORY_H

#include <stdint.h>

/* The least of MemTotal and of memory.max (cgroups of version 2) of the process's group and those above it. units:
 * bytes; UINT64_MAX: the system does not say. root: "", or a folder with another /proc and /sys. */
uint64_t sw_memory_bytes(const char *root);

#endif

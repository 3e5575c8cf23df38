/* memory.h - how much memory this process can have, by the machine and by its control groups. thread: any, no state. */
#ifndef SW_BASE_MEMORY_H
#define SW_BASE_MEMORY_H

#include <stdint.h>

/* Returns the least of MemTotal and the limits of the process's control groups and their parents, of version 2
 * (memory.max) and 1 (memory.limit_in_bytes). units: bytes; UINT64_MAX: not known. root: "", or a folder with another
 * /proc and /sys. */
uint64_t sw_memory_bytes(const char *root);

#endif

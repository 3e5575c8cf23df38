#include "daemon/memory.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The first line of a file that fits the format, which reads one value. */
static uint64_t read_number(const char *root, const char *path, const char *format) {
    char whole[2 * PATH_MAX], line[256];
    uint64_t number = UINT64_MAX, found;
    (void)snprintf(whole, sizeof whole, "%s%s", root, path);
    FILE *file = fopen(whole, "re");
    while (file && number == UINT64_MAX && fgets(line, sizeof line, file))
        if (sscanf(line, format, &found) == 1)
            number = found;
    if (file)
        (void)fclose(file);
    return number;
}

/* Its path below the mount point, "" for the root's. False: there is none of version 2. */
static bool read_group(const char *root, char ret[PATH_MAX]) {
    char path[PATH_MAX];
    bool found = false;
    (void)snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(ret, PATH_MAX, file))
        found = strncmp(ret, "0::/", 4) == 0;
    if (file)
        (void)fclose(file);
    if (!found)
        return false;
    ret[strcspn(ret, "\n")] = 0;
    memmove(ret, ret + 3, strlen(ret + 3) + 1);
    return true;
}

uint64_t sw_memory_bytes(const char *root) {
    char group[PATH_MAX], path[PATH_MAX + 64];
    const uint64_t kib = read_number(root, "/proc/meminfo", "MemTotal: %" SCNu64 " kB");
    uint64_t least = kib <= UINT64_MAX / 1024 ? kib * 1024 : UINT64_MAX;
    if (!read_group(root, group))
        return least;
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = 0;
        (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", group);
        const uint64_t most = read_number(root, path, "%" SCNu64); /* or the word "max" */
        least = most < least ? most : least;
    }
    return least;
}

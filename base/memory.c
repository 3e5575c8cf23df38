#include "base/memory.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Returns the value in the first line of a file that matches the format, which reads one value. */
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

/* A hierarchy of control groups: its lines of /proc/self/cgroup, where it is mounted, and its limit. */
struct hierarchy {
    const char *controllers, *mount, *limit;
};
static const struct hierarchy hierarchies[] = {{"", "/sys/fs/cgroup", "memory.max"},                          /* v2 */
                                               {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"}}; /* v1 */

static bool names(const char *list, const char *controller) {
    const size_t length = strlen(controller);
    for (;; list += strcspn(list, ",") + 1) {
        if (strcspn(list, ",") == length && strncmp(list, controller, length) == 0)
            return true;
        if (!list[strcspn(list, ",")])
            return false;
    }
}

/* Gets the path, below the mount point, of the process's group in a hierarchy, "" for the root. Returns false if there
 * is none. */
static bool read_group(const char *root, const struct hierarchy *h, char ret[PATH_MAX]) {
    char path[PATH_MAX];
    bool found = false;
    (void)snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(ret, PATH_MAX, file)) { /* number:controllers:path */
        char *controllers = strchr(ret, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group || group[1] != '/')
            continue;
        *group++ = 0;
        group[strcspn(group, "\n")] = 0;
        found = names(controllers + 1, h->controllers);
        if (found)
            memmove(ret, group, strlen(group) + 1);
    }
    if (file)
        (void)fclose(file);
    return found;
}

static uint64_t least_limit(const char *root, const struct hierarchy *h) {
    char group[PATH_MAX], path[PATH_MAX + 64];
    uint64_t least = UINT64_MAX;
    if (!read_group(root, h, group))
        return least;
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = 0;
        (void)snprintf(path, sizeof path, "%s%s/%s", h->mount, group, h->limit);
        const uint64_t most = read_number(root, path, "%" SCNu64); /* or the word "max" */
        least = most < least ? most : least;
    }
    return least;
}

uint64_t sw_memory_bytes(const char *root) {
    const uint64_t kib = read_number(root, "/proc/meminfo", "MemTotal: %" SCNu64 " kB");
    uint64_t least = kib <= UINT64_MAX / 1024 ? kib * 1024 : UINT64_MAX;
    for (size_t i = 0; i < sizeof hierarchies / sizeof hierarchies[0]; i++) {
        const uint64_t most = least_limit(root, &hierarchies[i]);
        least = most < least ? most : least;
    }
    return least;
}

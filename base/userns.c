#include "base/userns.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

enum { DEFAULT_OVERFLOW_ID = 65534, MAX_PATH_BYTES = 256 };

static FILE *open_below(const char *root, const char *path) {
    char whole[MAX_PATH_BYTES];
    (void)snprintf(whole, sizeof whole, "%s%s", root, path);
    return fopen(whole, "re");
}

static bool exists_below(const char *root, const char *path) {
    char whole[MAX_PATH_BYTES];
    (void)snprintf(whole, sizeof whole, "%s%s", root, path);
    return access(whole, F_OK) == 0;
}

/* Returns whether a namespace maps all ids: the lengths of its ranges then add up to the number of all ids, because
 * ranges do not overlap. A kernel without user namespaces has no such file, and maps all ids. */
static bool maps_all(const char *root, const char *path) {
    FILE *map = open_below(root, path);
    if (!map)
        return errno == ENOENT && exists_below(root, "/proc/self/status");
    uint64_t n = 0, length;
    while (fscanf(map, "%*u %*u %" SCNu64, &length) == 1)
        n += length;
    (void)fclose(map);
    return n == UINT32_MAX;
}

static uint32_t overflow_id(const char *root, const char *path) {
    uint32_t id = DEFAULT_OVERFLOW_ID;
    FILE *file = open_below(root, path);
    if (!file)
        return id;
    if (fscanf(file, "%" SCNu32, &id) != 1)
        id = DEFAULT_OVERFLOW_ID;
    (void)fclose(file);
    return id;
}

void sw_userns_read(struct sw_userns *ret, const char *root) {
    *ret = (struct sw_userns){.overflow_uid = overflow_id(root, "/proc/sys/kernel/overflowuid"),
                              .overflow_gid = overflow_id(root, "/proc/sys/kernel/overflowgid"),
                              .maps_all_uids = maps_all(root, "/proc/self/uid_map"),
                              .maps_all_gids = maps_all(root, "/proc/self/gid_map")};
}

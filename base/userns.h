/* userns.h - tells whether a uid or gid from the kernel stands for one user or group.
 *
 * A user namespace may map only some of the host's users, as in a rootless container. The kernel then shows all other
 * users as the same number, the overflow uid. This number stands for many users: never compare it with another uid, and
 * never look it up. If all users are mapped, it is a user like any other ("nobody"). The same holds for groups.
 * thread: any, no state. */
#ifndef SW_BASE_USERNS_H
#define SW_BASE_USERNS_H

#include <stdbool.h>
#include <sys/types.h>

struct sw_userns {
    uid_t overflow_uid;
    gid_t overflow_gid;
    bool maps_all_uids, maps_all_gids;
};

/* Reads from /proc about this process's namespace. root: a prefix of the paths for tests, else "". If /proc does not
 * tell, it is assumed that not all ids are mapped, and that the overflow ids are the kernel's defaults. */
void sw_userns_read(struct sw_userns *ret, const char *root);

/* Returns whether a uid stands for one user. */
static inline bool sw_userns_is_user(const struct sw_userns *ns, uid_t uid) {
    return ns->maps_all_uids || uid != ns->overflow_uid;
}
/* Returns whether a gid stands for one group. */
static inline bool sw_userns_is_group(const struct sw_userns *ns, gid_t gid) {
    return ns->maps_all_gids || gid != ns->overflow_gid;
}

#endif

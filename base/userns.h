/* userns.h - whether a uid or gid that the kernel names is somebody's.
 *
 * In a user namespace that maps only some of the host's users, as a rootless container is, the kernel shows every other
 * one as the same number, the overflow uid. This number is many users: it is never to be compared with another uid, or
 * looked up. Where all users are mapped it is a user as any other ("nobody"). Groups likewise. thread: any, no state.
 */
#ifndef SW_BASE_USERNS_H
#define SW_BASE_USERNS_H

#include <stdbool.h>
#include <sys/types.h>

struct sw_userns {
    uid_t overflow_uid;
    gid_t overflow_gid;
    bool maps_all_uids, maps_all_gids;
};

/* Reads what /proc says of this process's namespace. root: put before the paths, for tests; "" as a rule. Where /proc
 * does not say, not all are taken to be mapped, and the overflow ids to be the kernel's defaults. */
void sw_userns_read(struct sw_userns *ret, const char *root);

/* Whether the number stands for one user, or one group. */
static inline bool sw_userns_is_user(const struct sw_userns *ns, uid_t uid) {
    return ns->maps_all_uids || uid != ns->overflow_uid;
}
static inline bool sw_userns_is_group(const struct sw_userns *ns, gid_t gid) {
    return ns->maps_all_gids || gid != ns->overflow_gid;
}

#endif

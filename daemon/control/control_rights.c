#include "daemon/control/control_rights.h"

#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int find_group(gid_t *ret, const char *option, const char *group, const struct sw_userns *userns,
                      struct sw_err *err) {
    char *end;
    *ret = SW_CONTROL_NO_GROUP;
    if (strcmp(group, "none") == 0)
        return 0;
    const struct group *found = getgrnam(group);
    const unsigned long number = strtoul(group, &end, 10);
    if (!found && (*end || group[0] < '0' || group[0] > '9' || number >= UINT32_MAX))
        return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON, "%s: there is no group %.48s", option, group);
    *ret = found ? found->gr_gid : (gid_t)number;
    if (!sw_userns_is_group(userns, *ret))
        return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON,
                          "%s: group %u stands for all groups that this user namespace does not map", option,
                          (unsigned)*ret);
    return 0;
}

int sw_control_groups(struct sw_control_groups *ret, const struct sw_config *config, const struct sw_userns *userns,
                      struct sw_err *err) {
    *ret = (struct sw_control_groups){.all = SW_CONTROL_NO_GROUP, .read = SW_CONTROL_NO_GROUP};
    if (strcmp(config->control_socket, "none") == 0)
        return 0;
    const int rc = find_group(&ret->all, "control_group", config->control_group, userns, err);
    return rc ? rc : find_group(&ret->read, "control_read_group", config->control_read_group, userns, err);
}

/* Returns whether the peer's process had the group when it connected. */
static bool is_member(int socket, gid_t own, gid_t group) {
    return group != SW_CONTROL_NO_GROUP && (own == group || sw_peer_in_group(socket, group));
}

enum sw_control_right sw_control_right(int socket, const struct sw_peer *peer, const struct sw_control_groups *groups,
                                       const struct sw_userns *userns) {
    const bool is_user = sw_userns_is_user(userns, peer->uid);
    if ((is_user && (peer->uid == 0 || peer->uid == geteuid())) || is_member(socket, peer->gid, groups->all))
        return SW_CONTROL_ALL;
    return is_member(socket, peer->gid, groups->read) ? SW_CONTROL_READ : SW_CONTROL_NOTHING;
}

#include "daemon/control/control_rights.h"

#include "ipc/peer.h"
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int sw_control_group(gid_t *ret, const char *option, const char *group, struct sw_err *err) {
    char *end;
    *ret = SW_CONTROL_NO_GROUP;
    if (strcmp(group, "none") == 0)
        return 0;
    const struct group *found = getgrnam(group);
    const unsigned long number = strtoul(group, &end, 10);
    if (!found && (*end || group[0] < '0' || group[0] > '9' || number >= UINT32_MAX))
        return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON, "%s: there is no group %.48s", option, group);
    *ret = found ? found->gr_gid : (gid_t)number;
    return 0;
}

int sw_control_groups(gid_t *ret_all, gid_t *ret_read, const struct sw_config *config, struct sw_err *err) {
    *ret_all = *ret_read = SW_CONTROL_NO_GROUP;
    if (strcmp(config->control_socket, "none") == 0)
        return 0;
    const int rc = sw_control_group(ret_all, "control_group", config->control_group, err);
    return rc ? rc : sw_control_group(ret_read, "control_read_group", config->control_read_group, err);
}

/* Whether the peer's process had the group when it connected. */
static bool is_member(int socket, gid_t own, gid_t group) {
    return group != SW_CONTROL_NO_GROUP && (own == group || sw_peer_in_group(socket, group));
}

enum sw_control_right sw_control_right(int socket, uid_t uid, gid_t gid, gid_t all, gid_t read) {
    if (uid == 0 || uid == geteuid() || is_member(socket, gid, all))
        return SW_CONTROL_ALL;
    return is_member(socket, gid, read) ? SW_CONTROL_READ : SW_CONTROL_NOTHING;
}

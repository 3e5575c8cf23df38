#include "daemon/users.h"

#include "base/log.h"
#include <string.h>

static bool are_one_tenant(const struct sw_service *service) {
    return strcmp(service->config->unmapped_users, "one_tenant") == 0;
}

void sw_users_read(struct sw_service *service) {
    struct sw_userns *userns = &service->userns;
    sw_userns_read(userns, "");
    if (userns->maps_all_uids && userns->maps_all_gids)
        return;
    sw_log(SW_LOG_WARNING, "users.unmapped",
           "uid=%u gid=%u why=\"/proc/self/uid_map and gid_map do not map all users and groups\" then=\"%s\"",
           (unsigned)userns->overflow_uid, (unsigned)userns->overflow_gid,
           are_one_tenant(service) ? "unmapped users are one tenant (unmapped_users)"
                                   : "unmapped users are refused (unmapped_users)");
}

int sw_users_check(const struct sw_service *service, uid_t uid, struct sw_err *err) {
    if (sw_userns_is_user(&service->userns, uid) || are_one_tenant(service))
        return 0;
    return sw_err_set(
        err, -SW_EUNMAPPED, SW_SCOPE_SESSION,
        "uid %u stands for every user that the service's user namespace does not map: map it, or set unmapped_users",
        (unsigned)uid);
}

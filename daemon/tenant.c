#include "daemon/tenant.h"

#include "base/alloc.h"
#include "base/assert.h"
#include <stdbool.h>

static bool has_id(const struct sw_config_ids *ids, uint32_t id) {
    for (uint32_t i = 0; i < ids->n; i++)
        if (ids->ids[i] == id)
            return true;
    return false;
}

int sw_tenant_allowed(const struct sw_config *config, const struct sw_peer *peer, int socket, struct sw_err *err) {
    const struct sw_config_ids *uids = &config->allowed_uids, *gids = &config->allowed_gids;
    if ((uids->n == 0 && gids->n == 0) || has_id(uids, peer->uid) || has_id(gids, peer->gid))
        return 0;
    for (uint32_t i = 0; i < gids->n; i++)
        if (sw_peer_in_group(socket, gids->ids[i]))
            return 0;
    return sw_err_set(err, -SW_EACCES, SW_SCOPE_SESSION, "uid %u is not allowed (allowed_uids, allowed_gids)",
                      (unsigned)peer->uid);
}

static struct sw_tenant *find(const struct sw_service *service, uid_t uid) {
    for (struct sw_list *at = service->tenants.next; at != &service->tenants; at = at->next) {
        struct sw_tenant *tenant = SW_CONTAINER_OF(at, struct sw_tenant, node);
        if (tenant->uid == uid)
            return tenant;
    }
    return NULL;
}

static struct sw_tenant *tenant_new(struct sw_service *service, uid_t uid) {
    struct sw_tenant *tenant = sw_alloc(sizeof *tenant);
    if (!tenant)
        return NULL;
    tenant->uid = uid;
    tenant->quota.max_bytes = service->config->tenant_bytes;
    tenant->quota.max_regions = (unsigned)service->config->tenant_regions;
    sw_list_append(&service->tenants, &tenant->node);
    return tenant;
}

int sw_tenant_join(struct sw_service *service, uid_t uid, struct sw_tenant **ret, struct sw_err *err) {
    const uint64_t most = service->config->tenant_sessions;
    struct sw_tenant *tenant = find(service, uid);
    if (tenant && most && tenant->n_sessions >= most)
        return sw_err_set(err, -SW_ETENANTSESSIONS, SW_SCOPE_SESSION, "uid %u has %u sessions (tenant_sessions)",
                          (unsigned)uid, tenant->n_sessions);
    if (!tenant)
        tenant = tenant_new(service, uid);
    if (!tenant)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_SESSION, "no memory for a tenant");
    tenant->n_sessions++;
    *ret = tenant;
    return 0;
}

void sw_tenant_leave(struct sw_tenant *tenant) {
    if (!tenant || --tenant->n_sessions > 0)
        return;
    SW_ASSERT(tenant->n_operations == 0 && tenant->quota.n_regions == 0 && atomic_load(&tenant->quota.bytes) == 0);
    sw_list_remove(&tenant->node);
    sw_free(tenant);
}

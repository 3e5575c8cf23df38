#include "daemon/session/quotas.h"

#include "daemon/session/session.h"
#include "daemon/session/tenant.h"

static void find_row(struct sw_service *service, struct sw_tenant *tenant) {
    unsigned row = sw_tenant_row(service, tenant->uid, NULL, -1);
    for (const struct sw_list *at = service->sessions ? service->sessions->next : NULL; at && at != service->sessions;
         at = at->next) {
        const struct sw_session *session = SW_CONTAINER_OF(at, struct sw_session, node);
        if (session->tenant != tenant || session->closing)
            continue;
        const unsigned its = sw_tenant_row(service, tenant->uid, &session->peer, session->socket);
        row = its < row ? its : row;
    }
    tenant->row = row;
}

void sw_quotas_apply(struct sw_service *service) {
    for (struct sw_list *at = service->tenants.next; at != &service->tenants; at = at->next)
        find_row(service, SW_CONTAINER_OF(at, struct sw_tenant, node));
    sw_tenants_set_limits(service);
}

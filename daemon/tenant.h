/* tenant.h - who clients count for: the uid that the kernel names. Limits and use of all its sessions together.
 *
 * A tenant is known while it has a session. thread: loop. */
#ifndef SW_DAEMON_TENANT_H
#define SW_DAEMON_TENANT_H

#include "daemon/service.h"
#include "ipc/peer.h"

struct sw_tenant {
    struct sw_list node; /* of the service's tenants */
    uid_t uid;
    unsigned n_sessions, n_operations;
    struct sw_quota quota; /* bytes and regions */
};

/* Whether allowed_uids or allowed_gids name the peer, or are empty both. errors: -SW_EACCES. */
int sw_tenant_allowed(const struct sw_config *config, const struct sw_peer *peer, int socket, struct sw_err *err);

/* Counts a session of uid's. owns: the caller, until sw_tenant_leave(). errors: -SW_ETENANTSESSIONS, -SW_ENOMEM. */
int sw_tenant_join(struct sw_service *service, uid_t uid, struct sw_tenant **ret, struct sw_err *err);
/* The session has nothing left that counts. NULL is a no-op. */
void sw_tenant_leave(struct sw_tenant *tenant);

#endif

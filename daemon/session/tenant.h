/* tenant.h - who clients count for: the uid that the kernel names. Limits and use of all its sessions together, and
 * what stays when they have gone.
 *
 * A tenant is known while it has a session, or one of a predecessor of this process that may come back, or durable
 * regions. thread: loop. */
#ifndef SW_DAEMON_TENANT_H
#define SW_DAEMON_TENANT_H

#include "base/log_limit.h"
#include "daemon/descriptors.h"
#include "daemon/service.h"
#include "ipc/peer.h"

/* A tenant's lines in the log, which it can cause as fast as it likes. */
enum sw_tenant_lines { SW_LINES_FAILED, SW_LINES_OTHER, SW_LINES_NR };

struct sw_tenant {
    struct sw_list node; /* of the service's tenants */
    uid_t uid;
    unsigned n_sessions, n_operations;
    unsigned n_owners;     /* of the engine, without a session, that still use the quota */
    struct sw_quota quota; /* bytes and regions */
    struct sw_fd_share fds;
    struct sw_log_limit lines[SW_LINES_NR];
    struct sw_owner *heir; /* has durable regions that are no session's; NULL: none was ever asked for */
};

/* Whether the peer is served: its uid is one user's, or unmapped_users makes one tenant of all that are not mapped; and
 * allowed_uids or allowed_gids name it, or are empty both. errors: -SW_EUNMAPPED, -SW_EACCES. */
int sw_tenant_allowed(const struct sw_service *service, const struct sw_peer *peer, int socket, struct sw_err *err);

/* Whether a line about the tenant may be written; tells first how many were left out (event=log.left_out). */
bool sw_tenant_may_log(struct sw_tenant *tenant, enum sw_tenant_lines kind);

/* What follows for the tenants from bookkeeping_bytes and tenant_bookkeeping_bytes, which may have changed. */
void sw_tenants_set_budgets(struct sw_service *service);

/* Counts a session of uid's. owns: the caller, until sw_tenant_leave(). errors: -SW_ETENANTSESSIONS, -SW_ENOMEM. */
int sw_tenant_join(struct sw_service *service, uid_t uid, struct sw_tenant **ret, struct sw_err *err);
/* The session has nothing left that counts. NULL is a no-op. */
void sw_tenant_leave(struct sw_tenant *tenant);

/* Has what a session of the tenant makes durable go to the tenant in the end. errors: -SW_ENOMEM, -SW_ESHUTDOWN. */
int sw_tenant_inherit(struct sw_service *service, struct sw_tenant *tenant, struct sw_owner *owner, struct sw_err *err);

/* Of the regions that a predecessor has left, all count from the start, also those of sessions that are not back yet.
 * errors: -SW_ENOMEM. */
int sw_tenants_recover(struct sw_service *service, struct sw_err *err);
/* A session has come back for its owner. */
void sw_tenant_resume(struct sw_tenant *tenant);
/* Closes owners that no session has come back for, or leaves them to the next process. Returns how many. */
unsigned sw_tenants_expire(struct sw_service *service, bool leave);
/* Closes those of them whose client's process has ended. *ret_running: how many are left. */
unsigned sw_tenants_expire_ended(struct sw_service *service, unsigned *ret_running);
/* A tenant's request (enum sw_msg_type) has failed with that code: closes overdue ones if it may be for what they hold,
 * where the tenant's limits or names are short the tenant's own. */
void sw_tenants_give_way(struct sw_service *service, const struct sw_tenant *tenant, unsigned request, int code);
/* Forgets tenants that have nothing left: after an operator has dropped a region. */
void sw_tenants_forget_idle(struct sw_service *service);
/* The end, when no session is left: leaves durable regions to the next process, if anything survives this one. */
void sw_tenants_close(struct sw_service *service);

#endif

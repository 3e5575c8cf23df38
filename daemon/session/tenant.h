/* tenant.h - a tenant: one user (uid), with all of its sessions, their limits, and its durable regions.
 *
 * A tenant exists while it has a session, a session of a predecessor that may be resumed, or durable regions. thread:
 * loop. */
#ifndef SW_DAEMON_TENANT_H
#define SW_DAEMON_TENANT_H

#include "base/log_limit.h"
#include "daemon/descriptors.h"
#include "daemon/service.h"
#include "ipc/peer.h"

/* Kinds of log lines, each with a limit, because a client can cause them at any rate. */
enum sw_tenant_lines { SW_LINES_FAILED, SW_LINES_OTHER, SW_LINES_NR };

struct sw_tenant {
    struct sw_list node; /* of the service's tenants */
    uid_t uid;
    unsigned n_sessions, n_operations;
    struct sw_frame_grants grants; /* of all its sessions */
    uint64_t disputed_us;          /* when frames were last verified, because a client disputed them */
    unsigned n_owners;             /* owners of the engine without a session that use the quota */
    struct sw_quota quota;         /* bytes and regions */
    unsigned row;                  /* of the option `quotas`; SW_QUOTA_ROWS: none applies */
    uint64_t limits[SW_LIMIT_NR];  /* in force */
    struct sw_fd_share fds;
    struct sw_log_limit lines[SW_LINES_NR];
    struct sw_owner *owner; /* the tenant owner: owns the durable regions that no session has; NULL: not needed yet */
};

/* Checks whether the peer is served.
 *
 * - Its uid must stand for one user, unless unmapped_users makes all unmapped users one tenant (-SW_EUNMAPPED).
 * - allowed_uids or allowed_gids must name it, or both must be empty (-SW_EACCES). */
int sw_tenant_allowed(const struct sw_service *service, const struct sw_peer *peer, int socket, struct sw_err *err);

/* Returns whether a line about the tenant may be logged. Logs first how many were left out (event=log.left_out). */
bool sw_tenant_may_log(struct sw_tenant *tenant, enum sw_tenant_lines kind);

/* Sets the limits of all tenants from the configuration, which may have changed; each keeps its row of `quotas`. */
void sw_tenants_set_limits(struct sw_service *service);
/* Returns the first row of `quotas` that fits a uid or the groups of a connection; SW_QUOTA_ROWS: none does. peer:
 * NULL: no connection. */
unsigned sw_tenant_row(const struct sw_service *service, uid_t uid, const struct sw_peer *peer, int socket);

/* Counts a session of the peer's uid until sw_tenant_leave(). The first row of `quotas` that fits one of the tenant's
 * sessions applies to all of them. errors: -SW_ETENANTSESSIONS, -SW_ENOMEM. */
int sw_tenant_join(struct sw_service *service, const struct sw_peer *peer, int socket, struct sw_tenant **ret,
                   struct sw_err *err);
/* Ends the counting of a session, when it has released everything. NULL: no-op. */
void sw_tenant_leave(struct sw_tenant *tenant);

/* Enables durable regions for a session's owner: at the session's end they go to the tenant owner. errors: -SW_ENOMEM,
 * -SW_ESHUTDOWN. */
int sw_tenant_enable_durable(struct sw_service *service, struct sw_tenant *tenant, struct sw_owner *owner,
                             struct sw_err *err);

/* Counts of what a tenant has now, in all its sessions. */
enum sw_tenant_stat {
    SW_TENANT_BYTES, /* stored */
    SW_TENANT_REGIONS,
    SW_TENANT_DURABLE,
    SW_TENANT_SESSIONS,
    SW_TENANT_OPERATIONS,
    SW_TENANT_BOOKKEEPING, /* bytes */
    SW_TENANT_STATS_NR
};
void sw_tenant_stats(const struct sw_tenant *tenant, uint64_t ret[SW_TENANT_STATS_NR]);

/* Counts the regions that a predecessor has left, also of sessions that are not resumed yet. errors: -SW_ENOMEM. */
int sw_tenants_recover(struct sw_service *service, struct sw_err *err);
/* Notes that a session was resumed, which counts now instead of its owner. */
void sw_tenant_resume(struct sw_tenant *tenant);
/* Closes the owners that no session has resumed; with leave: leaves them to the next process. Returns how many. */
unsigned sw_tenants_expire(struct sw_service *service, bool leave);
/* Closes the ones whose client process has ended. Returns how many. *ret_running: how many are left. */
unsigned sw_tenants_expire_ended(struct sw_service *service, unsigned *ret_running);
/* Adopts as sw_engine_adopt(), also from an owner that no session has resumed, if its client process has ended. */
int sw_tenant_adopt(struct sw_service *service, struct sw_tenant *tenant, struct sw_owner *owner, const char *name,
                    struct sw_region_id *ret, struct sw_err *err);
/* Closes overdue owners if a request failed for lack of resources that they hold. request: enum sw_msg_type. code: of
 * the failure. If a limit or a name of the tenant is the cause, it closes only the tenant's own owners. */
void sw_tenants_reclaim(struct sw_service *service, const struct sw_tenant *tenant, unsigned request, int code);
/* Frees tenants without sessions and regions. Call it after an operator has dropped a region. */
void sw_tenants_forget_idle(struct sw_service *service);
/* Closes the tenant owners, when no session is left. Durable regions are left to the next process, if there can be one.
 */
void sw_tenants_close(struct sw_service *service);

#endif

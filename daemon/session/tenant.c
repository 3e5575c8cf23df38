#include "daemon/session/tenant.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"
#include "daemon/memory.h"
#include "daemon/tiers/tiers.h"
#include "daemon/users.h"
#include "ipc/proto.h"
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

static bool has_id(const struct sw_config_ids *ids, uint32_t id) {
    for (uint32_t i = 0; i < ids->n; i++)
        if (ids->ids[i] == id)
            return true;
    return false;
}

static bool is_in_group(const struct sw_service *service, const struct sw_peer *peer, int socket, uint32_t gid) {
    return sw_userns_is_group(&service->userns, gid) && (peer->gid == gid || sw_peer_in_group(socket, gid));
}

static bool is_in_allowed_group(const struct sw_service *service, const struct sw_peer *peer, int socket) {
    const struct sw_config_ids *gids = &service->config->allowed_gids;
    for (uint32_t i = 0; i < gids->n; i++)
        if (is_in_group(service, peer, socket, gids->ids[i]))
            return true;
    return false;
}

int sw_tenant_allowed(const struct sw_service *service, const struct sw_peer *peer, int socket, struct sw_err *err) {
    const struct sw_config_ids *uids = &service->config->allowed_uids, *gids = &service->config->allowed_gids;
    const int rc = sw_users_check(service, peer->uid, err);
    if (rc < 0)
        return rc;
    if ((uids->n == 0 && gids->n == 0) || has_id(uids, peer->uid) || is_in_allowed_group(service, peer, socket))
        return 0;
    return sw_err_set(err, -SW_EACCES, SW_SCOPE_SESSION,
                      "uid %u is not allowed: see the options allowed_uids and allowed_gids", (unsigned)peer->uid);
}

static struct sw_tenant *find(const struct sw_service *service, uid_t uid) {
    for (struct sw_list *at = service->tenants.next; at != &service->tenants; at = at->next) {
        struct sw_tenant *tenant = SW_CONTAINER_OF(at, struct sw_tenant, node);
        if (tenant->uid == uid)
            return tenant;
    }
    return NULL;
}

bool sw_tenant_may_log(struct sw_tenant *tenant, enum sw_tenant_lines kind) {
    static const struct {
        const char *name;
        unsigned most;
    } kinds[SW_LINES_NR] = {[SW_LINES_FAILED] = {"failures", 10}, [SW_LINES_OTHER] = {"other", 10000}};
    unsigned left_out;
    const bool may = sw_log_limit_allows(&tenant->lines[kind], kinds[kind].most, &left_out);
    if (left_out)
        sw_log(SW_LOG_INFO, "log.left_out", "uid=%u lines=%u kind=%s", (unsigned)tenant->uid, left_out,
               kinds[kind].name);
    return may;
}

/* Budget in parts of the tiers' size. The records of regions that fill the tiers with frames of 1.5 MB take half of it.
 */
enum { TIERS_PART = 4096 };

unsigned sw_tenant_row(const struct sw_service *service, uid_t uid, const struct sw_peer *peer, int socket) {
    const struct sw_quota_table *table = &service->config->quotas;
    for (unsigned i = 0; i < table->n; i++) {
        const struct sw_quota_row *row = &table->rows[i];
        if (row->is_group ? peer && is_in_group(service, peer, socket, row->id) : row->id == (uint32_t)uid)
            return i;
    }
    return SW_QUOTA_ROWS;
}

/* Returns a limit of the tenants to which the i-th row applies. */
static uint64_t limit_of(const struct sw_service *service, unsigned i, enum sw_limit limit) {
    const struct sw_quota_table *table = &service->config->quotas;
    return sw_config_limit(service->config, i < table->n ? &table->rows[i] : NULL, limit);
}

static void set_limits(const struct sw_service *service, struct sw_tenant *tenant) {
    for (unsigned i = 0; i < SW_LIMIT_NR; i++)
        tenant->limits[i] = limit_of(service, tenant->row, (enum sw_limit)i);
    atomic_store(&tenant->quota.max_bytes, tenant->limits[SW_LIMIT_BYTES]);
    tenant->quota.max_regions = (unsigned)tenant->limits[SW_LIMIT_REGIONS];
    tenant->quota.max_durable = (unsigned)tenant->limits[SW_LIMIT_DURABLE_REGIONS];
    atomic_store(&tenant->quota.prefer, (unsigned)tenant->limits[SW_LIMIT_PREFER]);
    atomic_store(&tenant->quota.kept.limit_bytes, tenant->limits[SW_LIMIT_BOOKKEEPING_BYTES]);
}

void sw_tenants_set_limits(struct sw_service *service) {
    const struct sw_config *config = service->config;
    const uint64_t wanted = config->bookkeeping_bytes + sw_tiers_bytes(config) / TIERS_PART,
                   most = sw_memory_for_bookkeeping(config, service->memory_bytes);
    atomic_store(&service->kept.limit_bytes, wanted < most ? wanted : most);
    for (struct sw_list *at = service->tenants.next; at != &service->tenants; at = at->next)
        set_limits(service, SW_CONTAINER_OF(at, struct sw_tenant, node));
}

static struct sw_tenant *tenant_new(struct sw_service *service, uid_t uid) {
    struct sw_tenant *tenant = sw_alloc(sizeof *tenant);
    if (!tenant)
        return NULL;
    tenant->uid = uid;
    tenant->fds.uid = (uint32_t)uid;
    tenant->quota.kept.pool = &service->kept;
    tenant->row = sw_tenant_row(service, uid, NULL, -1);
    set_limits(service, tenant);
    sw_list_append(&service->tenants, &tenant->node);
    return tenant;
}

static int find_or_new(struct sw_service *service, uid_t uid, struct sw_tenant **ret, struct sw_err *err) {
    *ret = find(service, uid);
    if (!*ret)
        *ret = tenant_new(service, uid);
    return *ret ? 0 : sw_err_set(err, -SW_ENOMEM, SW_SCOPE_SESSION, "out of memory for a tenant");
}

/* Without a limit, a tenant may have a share of max_sessions. */
static bool may_have_session(const struct sw_service *service, unsigned row, unsigned n_sessions) {
    const uint64_t most = limit_of(service, row, SW_LIMIT_SESSIONS);
    return most ? n_sessions < most
                : sw_share_allows(n_sessions, service->n_sessions, service->config->max_sessions, 1);
}

int sw_tenant_join(struct sw_service *service, const struct sw_peer *peer, int socket, struct sw_tenant **ret,
                   struct sw_err *err) {
    const uid_t uid = peer->uid;
    struct sw_tenant *tenant = find(service, uid);
    unsigned row = sw_tenant_row(service, uid, peer, socket);
    row = tenant && tenant->row < row ? tenant->row : row;
    if (tenant && !may_have_session(service, row, tenant->n_sessions))
        return sw_err_set(
            err, -SW_ETENANTSESSIONS, SW_SCOPE_SESSION,
            "uid %u has %u sessions, the most that tenant_sessions or quotas allow (0: a share of max_sessions)",
            (unsigned)uid, tenant->n_sessions);
    const int rc = find_or_new(service, uid, &tenant, err);
    if (rc)
        return rc;
    tenant->row = row;
    set_limits(service, tenant);
    tenant->n_sessions++;
    *ret = tenant;
    return 0;
}

static void forget(struct sw_tenant *tenant) {
    SW_ASSERT(tenant->n_operations == 0 && tenant->fds.used == 0 && tenant->quota.n_regions == 0 &&
              atomic_load(&tenant->quota.bytes) == 0 && atomic_load(&tenant->quota.kept.used_bytes) == 0);
    sw_list_remove(&tenant->node);
    sw_free(tenant);
}

static struct sw_tenant *tenant_of(void *quota) {
    return SW_CONTAINER_OF((struct sw_quota *)quota, struct sw_tenant, quota);
}

static void forget_if_idle(struct sw_tenant *tenant);

/* Uncounts an owner that had no session. */
static void on_owner_closed(void *quota) {
    if (!quota)
        return; /* the start failed before it counted */
    tenant_of(quota)->n_owners--;
    forget_if_idle(tenant_of(quota));
}

static void close_tenant_owner(struct sw_tenant *tenant, bool leave) {
    struct sw_owner *owner = tenant->owner;
    tenant->owner = NULL;
    if (owner)
        (leave ? sw_owner_leave : sw_owner_close)(owner, on_owner_closed, &tenant->quota);
}

static bool is_idle(const struct sw_tenant *tenant) {
    return tenant->n_sessions == 0 && tenant->n_owners == (tenant->owner ? 1u : 0u) &&
           !(tenant->owner && sw_owner_n_names(tenant->owner) > 0);
}

/* Frees an idle tenant. The tenant owner is closed first, on the loop. A session that comes meanwhile makes a new one.
 */
static void forget_if_idle(struct sw_tenant *tenant) {
    if (!is_idle(tenant))
        return;
    if (tenant->owner)
        close_tenant_owner(tenant, false);
    else
        forget(tenant);
}

void sw_tenant_stats(const struct sw_tenant *tenant, uint64_t ret[SW_TENANT_STATS_NR]) {
    ret[SW_TENANT_BYTES] = atomic_load(&tenant->quota.bytes);
    ret[SW_TENANT_REGIONS] = tenant->quota.n_regions;
    ret[SW_TENANT_DURABLE] = tenant->owner ? sw_owner_n_names(tenant->owner) : 0;
    ret[SW_TENANT_SESSIONS] = tenant->n_sessions;
    ret[SW_TENANT_OPERATIONS] = tenant->n_operations;
    ret[SW_TENANT_BOOKKEEPING] = atomic_load(&tenant->quota.kept.used_bytes);
}

void sw_tenant_leave(struct sw_tenant *tenant) {
    if (!tenant)
        return;
    tenant->n_sessions--;
    forget_if_idle(tenant);
}

/* ---- owners without a session ------------------------------------------------------------------------------------ */

static void take_tenant_owner(struct sw_tenant *tenant, struct sw_owner *owner) {
    sw_owner_set_quota(owner, &tenant->quota);
    tenant->owner = owner;
    tenant->n_owners++;
}

static int need_tenant_owner(struct sw_service *service, struct sw_tenant *tenant, struct sw_err *err) {
    struct sw_owner *owner = NULL;
    const int rc = tenant->owner ? 0 : sw_owner_open(service->engine, &owner, err);
    if (owner) {
        sw_owner_become_tenant_owner(owner, (uint32_t)tenant->uid);
        take_tenant_owner(tenant, owner);
    }
    return rc;
}

int sw_tenant_enable_durable(struct sw_service *service, struct sw_tenant *tenant, struct sw_owner *owner,
                             struct sw_err *err) {
    const int rc = need_tenant_owner(service, tenant, err);
    if (!rc)
        sw_owner_set_tenant_owner(owner, tenant->owner);
    return rc;
}

static int on_found(struct sw_owner *owner, uint32_t uid, bool is_tenant_owner, void *arg, struct sw_err *err) {
    struct sw_service *service = arg;
    struct sw_tenant *tenant = NULL;
    const int rc = find_or_new(service, (uid_t)uid, &tenant, err);
    if (rc)
        return rc;
    if (is_tenant_owner) {
        take_tenant_owner(tenant, owner);
        return 0;
    }
    sw_owner_set_quota(owner, &tenant->quota);
    tenant->n_owners++;
    return sw_tenant_enable_durable(service, tenant, owner, err);
}

int sw_tenants_recover(struct sw_service *service, struct sw_err *err) {
    return sw_owners_visit_found(service->engine, on_found, service, err);
}

void sw_tenant_resume(struct sw_tenant *tenant) {
    tenant->n_owners--; /* now the session counts */
}

unsigned sw_tenants_expire(struct sw_service *service, bool leave) {
    return sw_owners_close_unclaimed(service->engine, NULL, leave, on_owner_closed);
}

unsigned sw_tenants_expire_ended(struct sw_service *service, unsigned *ret_running) {
    return sw_owners_close_ended(service->engine, on_owner_closed, ret_running);
}

int sw_tenant_adopt(struct sw_service *service, struct sw_tenant *tenant, struct sw_owner *owner, const char *name,
                    struct sw_region_id *ret, struct sw_err *err) {
    int rc = sw_tenant_enable_durable(service, tenant, owner, err);
    if (rc == 0)
        rc = sw_engine_adopt(owner, name, ret, err);
    if (rc == -SW_EBUSY && sw_owners_close_ended_holder(owner, name, on_owner_closed)) {
        sw_log(SW_LOG_INFO, "sessions.expired", "sessions=1 why=\"its process has ended, and its region is adopted\"");
        rc = sw_engine_adopt(owner, name, ret, err);
    }
    return rc;
}

void sw_tenants_reclaim(struct sw_service *service, const struct sw_tenant *tenant, unsigned request, int code) {
    const bool is_for_all = code == -SW_ENOSPACE;
    const bool is_for_own =
        code == -SW_ETENANTBYTES || code == -SW_ETENANTREGIONS || (code == -SW_EBUSY && request == SW_MSG_ADOPT);
    if (!service->n_overdue || service->is_stopping || !(is_for_all || is_for_own))
        return;
    const unsigned n =
        sw_owners_close_unclaimed(service->engine, is_for_all ? NULL : &tenant->quota, false, on_owner_closed);
    service->n_overdue -= n < service->n_overdue ? n : service->n_overdue;
    if (n)
        sw_log(SW_LOG_INFO, "sessions.expired", "sessions=%u why=\"others need the resources that they hold\"", n);
}

void sw_tenants_forget_idle(struct sw_service *service) {
    for (struct sw_list *at = service->tenants.next, *next; at != &service->tenants; at = next) {
        next = at->next;
        forget_if_idle(SW_CONTAINER_OF(at, struct sw_tenant, node));
    }
}

void sw_tenants_close(struct sw_service *service) {
    for (struct sw_list *at = service->tenants.next; at != &service->tenants; at = at->next)
        close_tenant_owner(SW_CONTAINER_OF(at, struct sw_tenant, node), true);
}

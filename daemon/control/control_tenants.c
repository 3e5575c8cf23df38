/* control_tenants.c - tenants and their limits, as operators see them. */
#include "daemon/control/control_handlers.h"
#include "daemon/session/tenant.h"
#include <jansson.h>

/* The tenant's row of the option quotas: "uid 1000", "gid 100". null: none. */
static json_t *row_to_json(const struct sw_service *service, const struct sw_tenant *tenant) {
    const struct sw_quota_table *table = &service->config->quotas;
    if (tenant->row >= table->n)
        return json_null();
    const struct sw_quota_row *row = &table->rows[tenant->row];
    return json_sprintf("%s %u", row->is_group ? "gid" : "uid", (unsigned)row->id);
}

static json_t *tenant_to_json(const struct sw_service *service, const struct sw_tenant *tenant) {
    static const struct {
        enum sw_tenant_stat stat;
        enum sw_limit limit;
        const char *name, *limit_name;
        bool zero_is_none; /* the limit 0 allows nothing */
    } columns[] = {
        {SW_TENANT_BYTES, SW_LIMIT_BYTES, "stored_bytes", "limit_bytes", false},
        {SW_TENANT_REGIONS, SW_LIMIT_REGIONS, "regions", "limit_regions", false},
        {SW_TENANT_DURABLE, SW_LIMIT_DURABLE_REGIONS, "durable", "limit_durable", true},
        {SW_TENANT_SESSIONS, SW_LIMIT_SESSIONS, "sessions", "limit_sessions", false},
        {SW_TENANT_OPERATIONS, SW_LIMIT_OPERATIONS, "operations", "limit_operations", false},
        {SW_TENANT_BOOKKEEPING, SW_LIMIT_BOOKKEEPING_BYTES, "bookkeeping_bytes", "limit_bookkeeping_bytes", false},
    };
    static const char *const preferences[SW_PREFER_NR] = {
        [SW_PREFER_NONE] = "none", [SW_PREFER_TIME] = "time", [SW_PREFER_ROOM] = "room"};
    uint64_t stats[SW_TENANT_STATS_NR];
    sw_tenant_stats(tenant, stats);
    json_t *object = json_pack("{s:I, s:o}", "uid", (json_int_t)tenant->uid, "quota", row_to_json(service, tenant));
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        const uint64_t limit = tenant->limits[columns[i].limit];
        (void)json_object_set_new(object, columns[i].name, json_integer((json_int_t)stats[columns[i].stat]));
        (void)json_object_set_new(object, columns[i].limit_name,
                                  limit || columns[i].zero_is_none ? json_integer((json_int_t)limit) : json_null());
    }
    (void)json_object_set_new(object, "prefer", json_string(preferences[tenant->limits[SW_LIMIT_PREFER]]));
    return object;
}

int sw_on_control_tenants(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                          json_t **ret_result, struct sw_err *err) {
    const struct sw_service *service = ((struct sw_control_context *)context)->service;
    json_t *array = json_array();
    (void)caller;
    (void)args;
    (void)err;
    for (const struct sw_list *at = service->tenants.next; at != &service->tenants; at = at->next)
        (void)json_array_append_new(array, tenant_to_json(service, SW_CONTAINER_OF(at, const struct sw_tenant, node)));
    *ret_result = json_pack("{s:o}", "tenants", array);
    return 0;
}

/* quotas.h - the table of limits for single users and groups: the value of the option `quotas`.
 *
 * A row names a user (uid) or a group (gid), and some of the limits that the tenant_* options set for every tenant. The
 * first row that fits a tenant applies; limits that it leaves out are those of the options. A group's row holds for
 * each of its members alone, not for their sum. thread: any, no state. */
#ifndef SW_CONFIG_QUOTAS_H
#define SW_CONFIG_QUOTAS_H

#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct json_t; /* jansson.h */

enum { SW_QUOTA_ROWS = 64 };
#define SW_QUOTA_EXAMPLE "a list of up to 64 rows such as {\"uid\": 1000, \"bytes\": \"4 GiB\"}"

enum sw_limit {
    SW_LIMIT_BYTES,
    SW_LIMIT_REGIONS,
    SW_LIMIT_DURABLE_REGIONS,
    SW_LIMIT_SESSIONS,
    SW_LIMIT_OPERATIONS,
    SW_LIMIT_BOOKKEEPING_BYTES,
    SW_LIMIT_PREFER, /* no limit: what its regions are compressed for, a choice of tenant_prefer by number */
    SW_LIMIT_NR
};
/* Returns the limit's name in a row: "bytes". The option for all tenants has "tenant_" before it. */
const char *sw_limit_name(enum sw_limit limit);

struct sw_quota_row {
    uint32_t id; /* a uid, or a gid */
    bool is_group;
    uint8_t given; /* bit i: the row has limits[i] */
    uint64_t limits[SW_LIMIT_NR];
};
struct sw_quota_table {
    uint32_t n;
    struct sw_quota_row rows[SW_QUOTA_ROWS]; /* entries after the n-th are 0 */
};

/* How values of limits are read and shown: as those of the options. */
struct sw_quota_values {
    int (*parse)(enum sw_limit limit, const struct json_t *value, uint64_t *ret, struct sw_err *err);
    struct json_t *(*show)(enum sw_limit limit, uint64_t value);
};
/* Reads the table from a JSON array of objects. errors: -SW_ECONFIG, naming the row, and *ret is unchanged. */
int sw_quotas_parse(const struct json_t *value, const struct sw_quota_values *values, struct sw_quota_table *ret,
                    struct sw_err *err);
/* Returns the table as JSON that is read as the same table. owns: the caller, until json_decref(). */
struct json_t *sw_quotas_to_json(const struct sw_quota_table *table, const struct sw_quota_values *values);

#endif

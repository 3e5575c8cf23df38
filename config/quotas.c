#include "config/quotas.h"

#include <jansson.h>
#include <string.h>

static const char *const names[SW_LIMIT_NR] = {
    [SW_LIMIT_BYTES] = "bytes",
    [SW_LIMIT_REGIONS] = "regions",
    [SW_LIMIT_DURABLE_REGIONS] = "durable_regions",
    [SW_LIMIT_SESSIONS] = "sessions",
    [SW_LIMIT_OPERATIONS] = "operations",
    [SW_LIMIT_BOOKKEEPING_BYTES] = "bookkeeping_bytes",
    [SW_LIMIT_PREFER] = "prefer",
};

const char *sw_limit_name(enum sw_limit limit) {
    return names[limit];
}

static int refuse(struct sw_err *err, const char *name, const char *why) {
    return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON, "%.24s%s%s", name, *name ? ": " : "", why);
}

/* Refuses UINT32_MAX, which stands for "no id" in system calls. */
static int parse_id(const char *name, const json_t *value, struct sw_quota_row *row, struct sw_err *err) {
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) >= UINT32_MAX)
        return refuse(err, name, "is not a number from 0 to 4294967294");
    row->is_group = strcmp(name, "gid") == 0;
    row->id = (uint32_t)json_integer_value(value);
    return 0;
}

static int parse_row(const json_t *object, const struct sw_quota_values *values, struct sw_quota_row *row,
                     struct sw_err *err) {
    const char *name;
    json_t *value;
    if (!json_is_object(object))
        return refuse(err, "", "is not an object such as {\"uid\": 1000, \"bytes\": \"4 GiB\"}");
    if (!json_object_get(object, "uid") == !json_object_get(object, "gid"))
        return refuse(err, "", "must have a uid or a gid, and not both");
    json_object_foreach((json_t *)object, name, value) {
        unsigned i = 0;
        int rc;
        while (i < SW_LIMIT_NR && strcmp(names[i], name) != 0)
            i++;
        if (strcmp(name, "uid") == 0 || strcmp(name, "gid") == 0)
            rc = parse_id(name, value, row, err);
        else if (i == SW_LIMIT_NR)
            rc = refuse(err, name, "there is no such limit");
        else
            rc = values->parse((enum sw_limit)i, value, &row->limits[i], err);
        if (rc < 0)
            return rc;
        if (i < SW_LIMIT_NR)
            row->given |= (uint8_t)(1u << i);
    }
    return row->given ? 0 : refuse(err, "", "has no limit");
}

int sw_quotas_parse(const struct json_t *value, const struct sw_quota_values *values, struct sw_quota_table *ret,
                    struct sw_err *err) {
    struct sw_quota_table table;
    memset(&table, 0, sizeof table); /* also the padding: tables are compared as bytes */
    const size_t n = json_array_size(value);
    if (!json_is_array(value) || n > SW_QUOTA_ROWS)
        return refuse(err, "quotas", "is not " SW_QUOTA_EXAMPLE);
    for (; table.n < n; table.n++) {
        const int rc = parse_row(json_array_get(value, table.n), values, &table.rows[table.n], err);
        if (rc < 0) {
            sw_err_context(err, "quotas[%u]", table.n);
            return rc;
        }
    }
    memcpy(ret, &table, sizeof table);
    return 0;
}

json_t *sw_quotas_to_json(const struct sw_quota_table *table, const struct sw_quota_values *values) {
    json_t *array = json_array();
    for (uint32_t i = 0; i < table->n; i++) {
        const struct sw_quota_row *row = &table->rows[i];
        json_t *object = json_pack("{s:I}", row->is_group ? "gid" : "uid", (json_int_t)row->id);
        for (unsigned k = 0; k < SW_LIMIT_NR; k++)
            if (row->given & 1u << k)
                (void)json_object_set_new(object, names[k], values->show((enum sw_limit)k, row->limits[k]));
        (void)json_array_append_new(array, object);
    }
    return array;
}

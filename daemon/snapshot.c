#include "daemon/snapshot.h"

#include "base/alloc.h"
#include "base/choice.h"
#include "config/json.h"
#include "daemon/tiers/names.h"
#include "daemon/tiers/row.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES (UINT64_C(64) << 40) /* the largest region or tier */

enum type { TYPE_NUMBER, TYPE_FLAG, TYPE_NAME, TYPE_TIER };

struct field {
    const char *name;
    enum type type;
    bool optional;
    size_t offset, size;
    uint64_t max; /* numbers */
};

#define FIELD(record, field) .name = #field, .offset = offsetof(record, field), .size = sizeof((record *)0)->field
#define FIRST_FIELD(field)                                                                                             \
    .name = #field, .offset = offsetof(struct sw_snapshot, first.field),                                               \
    .size = sizeof((struct sw_snapshot *)0)->first.field

/* clang-format off */
static const struct field first_fields[] = {
    {FIRST_FIELD(used_bytes), .type = TYPE_NUMBER, .max = MAX_BYTES},
    {FIRST_FIELD(capacity_bytes), .type = TYPE_NUMBER, .optional = true, .max = MAX_BYTES},
    {FIRST_FIELD(staging_bytes), .type = TYPE_NUMBER, .optional = true, .max = MAX_BYTES},
    {.name = NULL},
};
static const struct field region_fields[] = {
    {FIELD(struct sw_snapshot_region, region), .type = TYPE_NAME},
    {FIELD(struct sw_snapshot_region, stored_bytes), .type = TYPE_NUMBER, .max = MAX_BYTES},
    {FIELD(struct sw_snapshot_region, used_us), .type = TYPE_NUMBER, .max = INT64_MAX},
    {FIELD(struct sw_snapshot_region, tier), .type = TYPE_TIER},
    {FIELD(struct sw_snapshot_region, priority), .type = TYPE_NUMBER, .optional = true, .max = UINT8_MAX},
    {FIELD(struct sw_snapshot_region, pinned), .type = TYPE_FLAG, .optional = true},
    {.name = NULL},
};
/* clang-format on */

static const char *describe(char *ret, size_t ret_bytes, const struct field *field) {
    switch (field->type) {
    case TYPE_NUMBER:
        (void)snprintf(ret, ret_bytes, "a whole number from 0 to %" PRIu64, field->max);
        break;
    case TYPE_FLAG:
        (void)snprintf(ret, ret_bytes, "true or false");
        break;
    case TYPE_NAME:
        (void)snprintf(ret, ret_bytes, "a string of 1 to %zu printable characters", field->size - 1);
        break;
    case TYPE_TIER:
        (void)snprintf(ret, ret_bytes, "one of %s", sw_tier_names);
        break;
    }
    return ret;
}

/* It is printed to a terminal, as a word of a table. */
static bool is_name(const char *text, size_t room) {
    const size_t length = strlen(text);
    for (size_t i = 0; i < length; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    return length > 0 && length < room;
}

static bool store(void *record, const struct field *field, const json_t *value) {
    char *at = (char *)record + field->offset;
    if (field->type == TYPE_NUMBER) {
        const json_int_t number = json_integer_value(value);
        if (!json_is_integer(value) || number < 0 || (uint64_t)number > field->max)
            return false;
        *(uint64_t *)(void *)at = (uint64_t)number;
    } else if (field->type == TYPE_FLAG) {
        if (!json_is_boolean(value))
            return false;
        *(bool *)at = json_is_true(value);
    } else {
        const char *text = json_string_value(value);
        if (!text || !(field->type == TYPE_NAME ? is_name(text, field->size)
                                                : strlen(text) < field->size && sw_choice_has(sw_tier_names, text)))
            return false;
        memcpy(at, text, strlen(text) + 1);
    }
    return true;
}

static int bad(struct sw_err *err, const char *where, const char *name, const char *what) {
    return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_REQUEST, "%s%s%.48s: %s", where, *where && *name ? "." : "", name,
                      what);
}

static const struct field *find(const struct field *fields, const char *name) {
    while (fields->name && strcmp(fields->name, name) != 0)
        fields++;
    return fields->name ? fields : NULL;
}

/* where: the object's place in the file, for errors. */
static int store_object(void *record, const struct field *fields, json_t *object, const char *where,
                        struct sw_err *err) {
    const char *name;
    json_t *value;
    if (!json_is_object(object))
        return bad(err, where, "", "must be an object");
    json_object_foreach(object, name, value) {
        const struct field *field = find(fields, name);
        if (!field)
            return bad(err, where, name, "unknown key");
        if (store(record, field, value))
            continue;
        char expected[64], text[128];
        char *shown = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
        (void)snprintf(text, sizeof text, "%.24s is not %s", shown ? shown : "value",
                       describe(expected, sizeof expected, field));
        free(shown);
        return bad(err, where, name, text);
    }
    for (; fields->name; fields++)
        if (!fields->optional && !json_object_get(object, fields->name))
            return bad(err, where, fields->name, "is missing");
    return 0;
}

static int store_regions(struct sw_snapshot *snapshot, const json_t *array, struct sw_err *err) {
    if (!json_is_array(array))
        return bad(err, "", "regions", array ? "must be an array" : "is missing");
    const size_t n = json_array_size(array);
    snapshot->regions = sw_alloc_array(n ? n : 1, sizeof *snapshot->regions);
    if (!snapshot->regions)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for %zu regions", n);
    for (; snapshot->n_regions < n; snapshot->n_regions++) {
        char where[40];
        (void)snprintf(where, sizeof where, "regions[%zu]", snapshot->n_regions);
        const int rc = store_object(&snapshot->regions[snapshot->n_regions], region_fields,
                                    json_array_get(array, snapshot->n_regions), where, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int store_root(struct sw_snapshot *snapshot, json_t *root, struct sw_err *err) {
    const char *name;
    char first_name[32];
    json_t *value;
    (void)snprintf(first_name, sizeof first_name, "%s_tier", sw_tier_rows[0]->kind->name);
    if (!json_is_object(root))
        return bad(err, "", "", "must be one JSON object");
    json_object_foreach(root, name, value) {
        (void)value;
        if (strcmp(name, first_name) != 0 && strcmp(name, "regions") != 0)
            return bad(err, "", name, "unknown key");
    }
    json_t *first = json_object_get(root, first_name);
    int rc =
        first ? store_object(snapshot, first_fields, first, first_name, err) : bad(err, "", first_name, "is missing");
    if (rc == 0 && snapshot->first.staging_bytes > snapshot->first.capacity_bytes)
        rc = bad(err, first_name, "staging_bytes", "exceeds the capacity");
    return rc < 0 ? rc : store_regions(snapshot, json_object_get(root, "regions"), err);
}

int sw_snapshot_load(struct sw_snapshot *ret, const char *path, uint64_t capacity_bytes, struct sw_err *err) {
    json_t *root = NULL;
    const char *file = strcmp(path, "-") == 0 ? "/dev/stdin" : path;
    *ret = (struct sw_snapshot){.first = {.capacity_bytes = capacity_bytes}};
    int rc = sw_json_load(&root, file, true, err);
    if (rc < 0)
        return rc;
    rc = store_root(ret, root, err);
    json_decref(root);
    if (rc < 0) {
        sw_json_context(err, file);
        sw_snapshot_fini(ret);
    }
    return rc;
}

void sw_snapshot_fini(struct sw_snapshot *snapshot) {
    sw_free(snapshot->regions);
    *snapshot = (struct sw_snapshot){.regions = NULL};
}

/* control_args.c - checks parameters of a control request against their rows. */
#include "daemon/control/control_methods.h"

#include "base/choice.h"
#include "base/shorten.h"
#include "base/similar.h"
#include "base/size.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Accepts digits only, up to `end`; strtoull() would also take signs and spaces. */
static bool parse_u32(const char *text, char end, uint32_t *ret, const char **ret_rest) {
    uint64_t number = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && number <= UINT32_MAX; at++)
        number = number * 10 + (uint64_t)(*at - '0');
    if (at == text || *at != end || number > UINT32_MAX)
        return false;
    *ret = (uint32_t)number;
    *ret_rest = end ? at + 1 : at;
    return true;
}

static bool take_text(const struct sw_param *param, const char *text, struct sw_control_arg *ret) {
    uint32_t slot;
    if (!text)
        return false;
    ret->text = text;
    if (param->type == SW_PARAM_CHOICE)
        return sw_choice_has(param->choices, text);
    if (param->type == SW_PARAM_TEXT)
        return text[0] && strlen(text) <= param->max;
    if (!parse_u32(text, ':', &slot, &text) || !parse_u32(text, 0, &ret->gen, &text))
        return false;
    ret->number = slot;
    return true;
}

static bool take(const struct sw_param *param, const json_t *value, struct sw_control_arg *ret) {
    ret->given = true;
    if (param->type == SW_PARAM_VALUE) {
        ret->value = value;
        return json_is_string(value) || json_is_number(value) || json_is_boolean(value) || json_is_array(value);
    }
    if (param->type != SW_PARAM_NUMBER && param->type != SW_PARAM_BYTES)
        return take_text(param, json_string_value(value), ret);
    if (param->type == SW_PARAM_BYTES && json_is_string(value))
        return sw_size_parse(json_string_value(value), &ret->number) && ret->number >= param->min &&
               ret->number <= param->max;
    const json_int_t number = json_integer_value(value);
    ret->number = (uint64_t)number;
    return json_is_integer(value) && number >= 0 && ret->number >= param->min && ret->number <= param->max;
}

static int refuse(const struct sw_param *param, const json_t *value, struct sw_err *err) {
    char expected[96], shortened[SW_SHORTENED_BYTES];
    char *shown = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    (void)sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%s: %s is not %s", param->name,
                     shown ? sw_shorten(shortened, shown) : "value",
                     sw_param_describe(expected, sizeof expected, param));
    free(shown);
    return -SW_EINVAL;
}

static unsigned count(const struct sw_control_row *row) {
    unsigned n = 0;
    while (row->params[n].name)
        n++;
    return n;
}

static int check_array(const struct sw_control_row *row, const json_t *params, struct sw_control_args *ret,
                       struct sw_err *err) {
    const size_t n = json_array_size(params);
    if (n > count(row))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%s takes at most %u parameters, not %zu", row->name,
                          count(row), n);
    for (size_t i = 0; i < n; i++)
        if (!take(&row->params[i], json_array_get(params, i), &ret->arg[i]))
            return refuse(&row->params[i], json_array_get(params, i), err);
    return 0;
}

static int unknown_param(const struct sw_control_row *row, const char *name, struct sw_err *err) {
    char hint[80];
    struct sw_similar best = {.edits = 0};
    for (const struct sw_param *param = row->params; param->name; param++)
        sw_similar_try(&best, name, param->name);
    return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%s has no parameter %.48s%s", row->name, name,
                      sw_similar_hint(hint, sizeof hint, &best));
}

static int check_object(const struct sw_control_row *row, const json_t *params, struct sw_control_args *ret,
                        struct sw_err *err) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)params, name, value) {
        unsigned i = 0;
        while (row->params[i].name && strcmp(row->params[i].name, name) != 0)
            i++;
        if (!row->params[i].name)
            return unknown_param(row, name, err);
        if (!take(&row->params[i], value, &ret->arg[i]))
            return refuse(&row->params[i], value, err);
    }
    return 0;
}

int sw_control_check(const struct sw_control_row *row, const json_t *params, struct sw_control_args *ret,
                     struct sw_err *err) {
    memset(ret, 0, sizeof *ret);
    int rc = 0;
    if (params && !json_is_object(params) && !json_is_array(params))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "params must be an object or an array");
    if (params)
        rc = json_is_array(params) ? check_array(row, params, ret, err) : check_object(row, params, ret, err);
    for (unsigned i = 0; rc == 0 && row->params[i].name; i++)
        if (row->params[i].required && !ret->arg[i].given)
            rc = sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%s: parameter %s is missing", row->name,
                            row->params[i].name);
    return rc;
}

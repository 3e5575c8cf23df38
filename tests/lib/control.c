#include "tests/lib/control.h"

#include "tests/lib/run.h"

#include <check.h>
#include <string.h>

enum { WAIT_MS = SW_TEST_WAIT_MS };

struct sw_ctl *sw_control_connect(const struct sw_test_daemon *daemon) {
    struct sw_ctl *ctl = NULL;
    struct sw_err err;
    ck_assert_msg(sw_ctl_open(&ctl, daemon->control, &err) == 0, "%s", err.msg);
    return ctl;
}

static json_t *parse(const char *params) {
    json_t *value = params ? json_loads(params, 0, NULL) : NULL;
    ck_assert(!params || value);
    return value;
}

json_t *sw_control_ask(struct sw_ctl *ctl, const char *method, const char *params) {
    json_t *result = NULL;
    struct sw_err err = {0};
    const int rc = sw_ctl_call(ctl, method, parse(params), &result, &err);
    ck_assert_msg(rc == 0 && result, "%s %s: %s", method, params ? params : "", err.msg);
    return result;
}

const char *sw_control_ck_fails(struct sw_ctl *ctl, const char *method, const char *params, int code) {
    static struct sw_err err;
    json_t *result = NULL;
    const int rc = sw_ctl_call(ctl, method, parse(params), &result, &err);
    ck_assert_msg(rc == -code, "%s %s: %s (%s)", method, params ? params : "", sw_err_name(rc), rc ? err.msg : "done");
    return err.msg;
}

long long sw_control_number(struct sw_ctl *ctl, const char *method, const char *params, const char *name) {
    json_t *result = sw_control_ask(ctl, method, params);
    const json_t *value = json_object_get(result, name);
    ck_assert_msg(json_is_integer(value), "%s has no number %s", method, name);
    const long long number = json_integer_value(value);
    json_decref(result);
    return number;
}

json_t *sw_control_event(struct sw_ctl *ctl, const char *event) {
    for (;;) {
        const char *line;
        struct sw_err err;
        const int rc = sw_ctl_receive(ctl, WAIT_MS, &line, &err);
        ck_assert_msg(rc == 0, "waiting for %s: %s", event, err.msg);
        json_t *message = json_loads(line, 0, NULL), *params = json_object_get(message, "params");
        const char *name = json_string_value(json_object_get(params, "event"));
        json_incref(params);
        json_decref(message);
        if (name && strcmp(name, event) == 0)
            return params;
        json_decref(params);
    }
}

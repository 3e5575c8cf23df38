/* control_remote.c - care for the objects of a shared tier. */
#include "daemon/control/control_handlers.h"
#include "daemon/tiers/tiers.h"
#include "spill/operator.h"
#include <jansson.h>
#include <string.h>

/* Returns the first tier with objects; NULL: there is none. */
static struct sw_tier *find_tier(const struct sw_service *service) {
    const struct sw_tiers *tiers = sw_engine_tiers(service->engine);
    for (unsigned i = 0; i < tiers->n; i++)
        if (tiers->at[i]->ops->care)
            return tiers->at[i];
    return NULL;
}

static json_t *state_to_json(const struct sw_tier_care_state *state, enum sw_tier_care what) {
    const bool is_it = state->has_begun && state->what == what;
    const char *text = !is_it ? "never" : state->is_running ? "running" : state->err.code ? "failed" : "done";
    json_t *result = json_pack("{s:s}", "state", text);
    if (!is_it)
        return result;
    (void)json_object_set_new(result, "changes", json_boolean(state->changes));
    (void)json_object_set_new(result, "objects", json_integer((json_int_t)state->objects));
    (void)json_object_set_new(result, "found", json_integer((json_int_t)state->found));
    (void)json_object_set_new(result, "found_bytes", json_integer((json_int_t)state->found_bytes));
    (void)json_object_set_new(result, "changed", json_integer((json_int_t)state->changed));
    if (state->err.code)
        (void)json_object_set_new(result, "error", json_string(state->err.msg));
    return result;
}

static int care(void *context, const struct sw_control_args *args, enum sw_tier_care what, json_t **ret_result,
                struct sw_err *err) {
    const struct sw_service *service = ((struct sw_control_context *)context)->service;
    struct sw_tier *tier = find_tier(service);
    struct sw_tier_care_state state;
    if (!tier)
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST,
                          "there is no remote tier: remote_tier_endpoint is none, "
                          "or its store did not answer at the start");
    if (args->arg[0].given) {
        const bool changes = strcmp(args->arg[0].text, "find") != 0;
        const int rc = tier->ops->care(tier, what, changes, err);
        if (rc)
            return rc;
    }
    tier->ops->care_state(tier, &state);
    *ret_result = state_to_json(&state, what);
    return 0;
}

int sw_on_control_remote_gc(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                            json_t **ret_result, struct sw_err *err) {
    (void)caller;
    return care(context, args, SW_TIER_CARE_GC, ret_result, err);
}

int sw_on_control_remote_rewrap(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                                json_t **ret_result, struct sw_err *err) {
    (void)caller;
    return care(context, args, SW_TIER_CARE_REWRAP, ret_result, err);
}

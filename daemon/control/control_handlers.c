#include "daemon/control/control_handlers.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/control/event_names.h"
#include "daemon/control/metrics.h"
#include "daemon/reload.h"
#include "spill/operator.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *device_names(const struct sw_service *service) {
    json_t *names = json_array();
    for (unsigned i = 0; i < service->n_devices; i++)
        (void)json_array_append_new(names, sw_rpc_text(service->devices[i]->ops->info(service->devices[i])->name));
    return names;
}

static int on_status(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                     json_t **ret_result, struct sw_err *err) {
    const struct sw_service *service = ((struct sw_control_context *)context)->service;
    struct sw_engine_stats stats;
    char control[SW_CONFIG_PATH_BYTES];
    (void)caller;
    (void)args;
    (void)err;
    sw_engine_stats(service->engine, &stats);
    *ret_result = json_pack("{s:s, s:s, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I}", //
                            "version", SW_VERSION,                                                                   //
                            "state", service->draining ? "draining" : "serving",                                     //
                            "pid", (json_int_t)getpid(),                                                             //
                            "uptime_us", (json_int_t)(sw_clock_us() - service->started_us),                          //
                            "devices", device_names(service),                                                        //
                            "gpus", (json_int_t)service->n_gpus,                                                     //
                            "sessions", (json_int_t)service->n_sessions,                                             //
                            "regions", (json_int_t)stats.n_regions,                                                  //
                            "operations", (json_int_t)stats.n_ops,                                                   //
                            "data_socket", sw_rpc_text(service->config->data_socket),                                //
                            "control_socket", sw_rpc_text(sw_config_control_path(control, service->config)),         //
                            "host_used_bytes", (json_int_t)stats.tiers[0].used_bytes,                                //
                            "host_capacity_bytes", (json_int_t)stats.tiers[0].capacity_bytes,                        //
                            "nvme_used_bytes", (json_int_t)sw_engine_stats_behind(&stats).used_bytes,                //
                            "nvme_capacity_bytes", (json_int_t)sw_engine_stats_behind(&stats).capacity_bytes,        //
                            "scratch_bytes", (json_int_t)stats.scratch_bytes,                                        //
                            "mapped_memories", (json_int_t)stats.n_mapped);
    return 0;
}

static int on_config_get(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                         json_t **ret_result, struct sw_err *err) {
    const struct sw_service *service = ((struct sw_control_context *)context)->service;
    json_t *all = sw_config_to_json(service->config, false);
    (void)caller;
    if (!args->arg[0].given) {
        *ret_result = all;
        return 0;
    }
    json_t *value = json_object_get(all, args->arg[0].text);
    if (value)
        *ret_result = json_pack("{s:O}", args->arg[0].text, value);
    json_decref(all);
    return value ? 0 : sw_config_unknown(args->arg[0].text, SW_SCOPE_REQUEST, err);
}

static int on_config_set(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                         json_t **ret_result, struct sw_err *err) {
    struct sw_service *service = ((struct sw_control_context *)context)->service;
    const int rc = sw_reload_option(service, args->arg[0].text, args->arg[1].value, err);
    return rc < 0 ? rc : on_config_get(context, caller, args, ret_result, err);
}

static json_t *names(const char *const *name, unsigned n) {
    json_t *array = json_array();
    for (unsigned i = 0; i < n; i++)
        (void)json_array_append_new(array, json_string(name[i]));
    return array;
}

static int on_config_reload(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                            json_t **ret_result, struct sw_err *err) {
    struct sw_reload_report report;
    const int rc = sw_reload(((struct sw_control_context *)context)->service, &report, err);
    (void)caller;
    (void)args;
    if (rc == 0)
        *ret_result = json_pack("{s:o, s:o}", "changed", names(report.changed, report.n_changed), "needs_restart",
                                names(report.restart, report.n_restart));
    return rc;
}

static int on_drain(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                    json_t **ret_result, struct sw_err *err) {
    struct sw_service *service = ((struct sw_control_context *)context)->service;
    const struct sw_control_arg *mode = &args->arg[0], *to = &args->arg[1];
    struct sw_engine_stats stats;
    struct sw_engine_drain drain;
    (void)caller;
    const bool ends = mode->given && strcmp(mode->text, "off") == 0;
    if (ends && to->given)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "to: not with mode off");
    const int rc = ends || to->given ? sw_engine_drain(service->engine, ends ? NULL : to->text, err) : 0;
    if (rc)
        return rc;
    if (mode->given || to->given) {
        service->draining = !ends;
        sw_log(SW_LOG_INFO, "drain.set", "mode=%s%s%s", ends ? "off" : "on", to->given ? " to=" : "",
               to->given ? to->text : "");
    }
    sw_engine_stats(service->engine, &stats);
    sw_engine_drain_state(service->engine, &drain);
    *ret_result =
        json_pack("{s:b, s:I, s:I, s:I}", "draining", service->draining, "sessions", (json_int_t)service->n_sessions,
                  "regions", (json_int_t)stats.n_regions, "operations", (json_int_t)stats.n_ops);
    if (drain.to)
        (void)json_object_update_new(*ret_result, json_pack("{s:s, s:I}", "to", drain.to->kind->name, "left_bytes",
                                                            (json_int_t)drain.left_bytes));
    if (drain.err.code)
        (void)json_object_set_new(*ret_result, "error", json_string(drain.err.msg));
    return 0;
}

static int on_log_level(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                        json_t **ret_result, struct sw_err *err) {
    struct sw_service *service = ((struct sw_control_context *)context)->service;
    (void)caller;
    if (args->arg[0].given) {
        json_t *level = json_string(args->arg[0].text);
        const int rc = sw_reload_option(service, "log_level", level, err);
        json_decref(level);
        if (rc < 0)
            return rc;
    }
    *ret_result = json_pack("{s:s}", "log_level", service->config->log_level);
    return 0;
}

static int on_events(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                     json_t **ret_result, struct sw_err *err) {
    struct sw_subscriber *subscriber = caller->arg;
    (void)context;
    if (args->arg[0].given && sw_event_names_check(args->arg[0].text, err) < 0)
        return err->code;
    if (args->arg[1].given && strcmp(args->arg[1].text, "off") == 0)
        sw_unsubscribe(subscriber);
    else
        sw_subscribe(subscriber, args->arg[0].given ? args->arg[0].text : NULL);
    *ret_result = json_pack("{s:b}", "subscribed", subscriber->is_on);
    return 0;
}

static int on_metrics(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                      json_t **ret_result, struct sw_err *err) {
    const struct sw_control_context *control = context;
    char *text = sw_metrics_text(control->service, control->events);
    (void)caller;
    (void)args;
    (void)err;
    *ret_result = text ? sw_rpc_text(text) : NULL;
    free(text);
    return 0;
}

sw_control_fn *const sw_control_handlers[SW_CONTROL_METHOD_NR] = {
    [SW_CONTROL_STATUS] = on_status,
    [SW_CONTROL_STATS] = sw_on_control_stats,
    [SW_CONTROL_SESSIONS] = sw_on_control_sessions,
    [SW_CONTROL_TENANTS] = sw_on_control_tenants,
    [SW_CONTROL_REGIONS] = sw_on_control_regions,
    [SW_CONTROL_TIERS] = sw_on_control_tiers,
    [SW_CONTROL_SNAPSHOT] = sw_on_control_snapshot,
    [SW_CONTROL_CONFIG_GET] = on_config_get,
    [SW_CONTROL_CONFIG_SET] = on_config_set,
    [SW_CONTROL_CONFIG_RELOAD] = on_config_reload,
    [SW_CONTROL_DRAIN] = on_drain,
    [SW_CONTROL_SPILL] = sw_on_control_spill,
    [SW_CONTROL_DEMOTE] = sw_on_control_demote,
    [SW_CONTROL_PROMOTE] = sw_on_control_promote,
    [SW_CONTROL_DROP] = sw_on_control_drop,
    [SW_CONTROL_REMOTE_GC] = sw_on_control_remote_gc,
    [SW_CONTROL_REMOTE_REWRAP] = sw_on_control_remote_rewrap,
    [SW_CONTROL_LOG_LEVEL] = on_log_level,
    [SW_CONTROL_EVENTS] = on_events,
    [SW_CONTROL_METRICS] = on_metrics,
};

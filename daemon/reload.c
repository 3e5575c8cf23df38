#include "daemon/reload.h"

#include "base/assert.h"
#include "base/log.h"
#include "base/memory.h"
#include "daemon/descriptors.h"
#include "daemon/memory.h"
#include "daemon/session/quotas.h"
#include "daemon/tiers/tiers.h"
#include "spill/operator.h"
#include <string.h>

/* Applies live options that other parts have copies of; max_sessions is read each time. */
static void apply(struct sw_service *service, const struct sw_config *config) {
    *service->config = *config;
    sw_descriptors_share(service);
    sw_quotas_apply(service);
    SW_ASSERT(sw_log_set_level_name(config->log_level));
    sw_engine_set_limits(service->engine, sw_tiers_marks(config).high_pct, sw_tiers_marks(config).low_pct,
                         (unsigned)config->max_session_regions);
}

/* An error that would prevent a start only fails the request in a running service. */
static int refused(struct sw_err *err) {
    err->scope = SW_SCOPE_REQUEST;
    return err->code;
}

int sw_reload_option(struct sw_service *service, const char *name, const struct json_t *value, struct sw_err *err) {
    struct sw_config config = *service->config;
    struct sw_config_option option;
    int rc = sw_config_store(&config, name, value, err);
    if (rc == 0)
        rc = sw_config_check(&config, err);
    for (unsigned i = 0; rc == 0 && sw_config_describe(i, &option); i++)
        if (!option.live && sw_config_differs(service->config, &config, i))
            rc = sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST, "%s: needs a restart", name);
    if (rc < 0)
        return refused(err);
    apply(service, &config);
    sw_log(SW_LOG_INFO, "config.set", "option=%s", name);
    return 0;
}

/* Takes the live options of `loaded` into *config. All are taken before any is reported, since a default may depend on
 * a later option, or stay unchanged because its limit needs a restart. */
static void take_live(struct sw_config *config, const struct sw_config *loaded, struct sw_reload_report *ret) {
    const struct sw_config before = *config;
    struct sw_config_option option;
    for (unsigned i = 0; sw_config_describe(i, &option); i++)
        if (option.live)
            sw_config_copy(config, loaded, i);
    for (unsigned i = 0; sw_config_describe(i, &option); i++) {
        if (!sw_config_differs(&before, option.live ? config : loaded, i))
            continue;
        SW_ASSERT(ret->n_changed < SW_RELOAD_MAX && ret->n_restart < SW_RELOAD_MAX);
        if (option.live) {
            ret->changed[ret->n_changed++] = option.name;
        } else {
            ret->restart[ret->n_restart++] = option.name;
            sw_log(SW_LOG_WARNING, "config.needs_restart", "option=%s then=\"the old value stays in force\"",
                   option.name);
        }
    }
}

static void needs_restart(struct sw_reload_report *ret, unsigned k) {
    ret->restart[ret->n_restart++] = ret->changed[k];
    for (ret->n_changed--; k < ret->n_changed; k++)
        ret->changed[k] = ret->changed[k + 1];
}

/* A live option may contradict one that keeps its value until a restart (max_session_regions, max_regions). It then
 * waits for the restart as well, and the others change. */
static int fit(struct sw_config *config, const struct sw_config *before, struct sw_reload_report *ret,
               struct sw_err *err) {
    struct sw_config_option option;
    const int rc = sw_config_check(config, err);
    for (unsigned i = 0; rc < 0 && sw_config_describe(i, &option); i++) {
        struct sw_config without = *config;
        char text[300];
        unsigned k = 0;
        sw_config_copy(&without, before, i);
        if (!sw_config_differs(config, before, i) || sw_config_check(&without, NULL) < 0)
            continue;
        while (ret->changed[k] != option.name)
            k++;
        needs_restart(ret, k);
        *config = without;
        sw_log(SW_LOG_WARNING, "config.needs_restart",
               "option=%s why=%s then=\"the old value stays in force, like the other option's\"", option.name,
               sw_log_quote(text, sizeof text, err->msg));
        return 0;
    }
    return rc;
}

int sw_reload(struct sw_service *service, struct sw_reload_report *ret, struct sw_err *err) {
    struct sw_config loaded, config = *service->config;
    int rc = service->load
                 ? service->load(&loaded, service->load_arg, err)
                 : sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST, "there is no configuration file to read again");
    memset(ret, 0, sizeof *ret);
    if (rc == 0) {
        service->memory_bytes = sw_memory_bytes("");
        (void)sw_memory_fit_tier(&loaded, service->memory_bytes); /* as at the start */
        take_live(&config, &loaded, ret);
        rc = fit(&config, service->config, ret, err);
    }
    if (rc < 0) {
        char text[300];
        sw_log(SW_LOG_WARNING, "config.reload_failed", "name=%s text=%s then=\"nothing has changed\"",
               sw_err_name(err->code), sw_log_quote(text, sizeof text, err->msg));
        return refused(err);
    }
    apply(service, &config);
    sw_log(SW_LOG_INFO, "config.reload", "changed=%u needs_restart=%u", ret->n_changed, ret->n_restart);
    return 0;
}

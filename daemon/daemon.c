#include "daemon/daemon.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/closer.h"
#include "base/log.h"
#include "base/memory.h"
#include "daemon/control/control.h"
#include "daemon/damage.h"
#include "daemon/descriptors.h"
#include "daemon/devices.h"
#include "daemon/fdstore.h"
#include "daemon/memory.h"
#include "daemon/notify.h"
#include "daemon/reload.h"
#include "daemon/session/server.h"
#include "daemon/session/session.h"
#include "daemon/tiers/row.h"
#include "daemon/tiers/tiers.h"
#include "daemon/users.h"
#include "daemon/watchdog.h"
#include <inttypes.h>
#include <string.h>

struct sw_daemon {
    struct sw_service service;
    struct sw_config config; /* the service's */
    struct sw_server *server;
    struct sw_watchdog *watchdog; /* NULL: the service manager expects no messages */
    uv_timer_t grace;             /* for a predecessor's sessions to be resumed */
    struct sw_control *control;   /* NULL: there is none */
    bool stopping;
    int exit_code;
    struct sw_daemon_hooks hooks;
};

static void close_parts(struct sw_service *service) {
    sw_tiers_close(service);
    sw_devices_close(service);
    sw_tiers_close_catalogue(service);
    sw_fdstore_close(service->fdstore);
    service->fdstore = NULL;
    sw_closer_stop();
}

static void on_engine_closed(void *arg) {
    struct sw_daemon *daemon = arg;
    close_parts(&daemon->service);
    const struct sw_daemon_hooks hooks = daemon->hooks;
    const int exit_code = daemon->exit_code;
    sw_log(SW_LOG_INFO, "service.stopped", "exit_code=%d", exit_code);
    sw_free(daemon);
    hooks.stopped(exit_code, hooks.arg);
}

/* Closes owners without a session; the next process finds their regions. */
static void close_owners(struct sw_service *service) {
    (void)sw_tenants_expire(service, true);
    sw_tenants_close(service);
}

static void on_server_closed(void *arg) {
    struct sw_daemon *daemon = arg;
    daemon->server = NULL;
    close_owners(&daemon->service);
    sw_engine_close(daemon->service.engine, on_engine_closed, daemon);
}

static void on_control_closed(void *arg) {
    struct sw_daemon *daemon = arg;
    daemon->control = NULL;
    sw_server_close(daemon->server, on_server_closed, daemon);
}

void sw_daemon_stop(struct sw_daemon *daemon) {
    if (daemon->stopping)
        return;
    daemon->stopping = true;
    sw_log(SW_LOG_INFO, "service.stopping", "sessions=%u", daemon->service.n_sessions);
    (void)sw_notify("STOPPING=1");
    daemon->service.is_stopping = true;
    uv_close((uv_handle_t *)&daemon->grace, NULL);
    sw_watchdog_close(daemon->watchdog);
    if (daemon->control)
        sw_control_close(daemon->control, on_control_closed, daemon);
    else
        on_control_closed(daemon);
}

void sw_daemon_abandon(struct sw_daemon *daemon) {
    if (daemon) /* the control socket's file goes when the stop begins */
        sw_server_abandon(daemon->server);
}

void sw_daemon_reload(struct sw_daemon *daemon) {
    struct sw_reload_report report;
    struct sw_err err;
    if (!daemon->stopping)
        (void)sw_reload(&daemon->service, &report, &err);
}

static void on_device_lost(void *arg) {
    struct sw_daemon *daemon = arg;
    if (daemon->stopping)
        return;
    sw_log(SW_LOG_ERROR, "device.lost", "then=\"stopping, so that the service manager starts a new process\"");
    daemon->exit_code = 1;
    sw_daemon_stop(daemon);
}

/* Logs chunks that were shortened. A frame that does not fit into half of the staging room could wait for ever. */
static void log_chunks(const struct sw_service *service) {
    const uint64_t most = sw_engine_chunk_bytes(service->engine);
    for (unsigned i = 0; i < service->n_devices; i++) {
        const struct sw_device_info *info = service->devices[i]->ops->info(service->devices[i]);
        if (most < info->chunk_bytes)
            sw_log(SW_LOG_INFO, "tier.smaller_chunks",
                   "device=%s chunk_bytes=%" PRIu64 " then=\"regions are spilled in chunks of %" PRIu64
                   ", whose frame fits into a quarter of %s_tier_bytes, and into an object of a remote tier\"",
                   info->name, info->chunk_bytes, most, sw_tier_rows[0]->kind->name);
    }
}

static int open_engine(struct sw_service *service, struct sw_err *err) {
    const struct sw_config *config = service->config;
    const struct sw_engine_config engine = {.devices = service->devices,
                                            .n_devices = service->n_devices,
                                            .tiers = service->tiers,
                                            .staging_bytes = sw_tiers_staging_bytes(service),
                                            .high_pct = sw_tiers_marks(config).high_pct,
                                            .low_pct = sw_tiers_marks(config).low_pct,
                                            .max_regions = (unsigned)config->max_regions,
                                            .max_owner_regions = (unsigned)config->max_session_regions,
                                            .max_owner_mems = (unsigned)config->max_session_memories,
                                            .catalogue = service->catalogue,
                                            .observer = sw_damage_observer(service)};
    const int rc = sw_engine_open(&service->engine, service->loop, &engine, err);
    if (!rc)
        log_chunks(service);
    return rc;
}

/* Recovers a predecessor's regions; frames in durable tiers that no region claims are released. */
static int recover(struct sw_service *service, struct sw_err *err) {
    struct sw_recovered found;
    const int rc = sw_engine_recover(service->engine, &found, err);
    if (!rc && (service->catalogue || found.n_released))
        sw_log(found.n_lost || found.n_damaged ? SW_LOG_WARNING : SW_LOG_INFO, "service.recovered",
               "sessions=%u regions=%u bytes=%" PRIu64 " lost=%u damaged_records=%u released_frames=%u",
               found.n_sessions, found.n_regions, found.raw_bytes, found.n_lost, found.n_damaged, found.n_released);
    return rc ? rc : sw_tenants_recover(service, err);
}

/* A client's library resumes its session only while the client calls it, and a client may calculate for minutes. So
 * sessions of running processes get more time, while nothing else needs their resources. The time is limited: the
 * process may have given up on this connection. */
enum { RUNNING_GRACE_S = 3600 };

static void on_grace_over(uv_timer_t *timer) {
    struct sw_daemon *daemon = timer->data;
    struct sw_service *service = &daemon->service;
    const bool is_last = sw_clock_us() - service->started_us > (uint64_t)RUNNING_GRACE_S * 1000000;
    unsigned n_running = 0;
    const unsigned n = is_last ? sw_tenants_expire(service, false) : sw_tenants_expire_ended(service, &n_running);
    service->n_overdue = n_running;
    if (!n_running)
        (void)uv_timer_stop(timer);
    if (n)
        sw_log(SW_LOG_INFO, "sessions.expired", "sessions=%u why=\"they were not resumed within the grace period\"", n);
}

static void log_ready(const struct sw_service *service) {
    char socket[300], devices[400], names[300];
    sw_log(SW_LOG_INFO, "service.ready",
           "version=%s socket=%s devices=%s gpus=%u tier_bytes=%" PRIu64 " staging_bytes=%" PRIu64
           " scratch_bytes=%" PRIu64,
           SW_VERSION, sw_log_quote(socket, sizeof socket, service->config->data_socket),
           sw_log_quote(devices, sizeof devices, sw_devices_names(service, names, sizeof names)), service->n_gpus,
           sw_tier_rows[0]->bytes(service->config), sw_tiers_staging_bytes(service), service->config->scratch_bytes);
    const int failure = sw_notify("READY=1");
    if (failure)
        sw_log(SW_LOG_WARNING, "notify.failed",
               "cause=\"%s\" then=\"the service manager does not learn that the service is ready\"", strerror(failure));
}

/* The engine closes on the loop, so a start that fails later is ended like a stop. */
static void forget_failed_start(void *arg) {
    struct sw_daemon *daemon = arg;
    close_parts(&daemon->service);
    sw_free(daemon);
}

static void close_failed_engine(struct sw_daemon *daemon) {
    close_owners(&daemon->service);
    sw_engine_close(daemon->service.engine, forget_failed_start, daemon);
}

static void on_failed_server(uv_handle_t *handle) {
    close_failed_engine(handle->data);
}

static void close_failed_start(void *arg) {
    struct sw_daemon *daemon = arg;
    close_failed_engine(daemon);
}

enum {
    HELLO_MS = 10000, /* the library says HELLO at once; a process can be kept from its processor for seconds */
    OPEN_MS = 300000  /* a client that hangs for so long does not go on; others may need the places */
};

/* The tier takes memory as it is filled, so a bound that is too high would show when it is too late. */
static void fit_tier(struct sw_service *service) {
    const uint64_t wanted = service->config->host_tier_bytes;
    service->memory_bytes = sw_memory_bytes("");
    if (sw_memory_fit_tier(service->config, service->memory_bytes))
        sw_log(SW_LOG_WARNING, "tier.exceeds_memory",
               "tier=host host_tier_bytes=%" PRIu64 " memory_bytes=%" PRIu64 " bound_bytes=%" PRIu64
               " then=\"the tier has bound_bytes, so that the process is not killed when clients fill it\"",
               wanted, service->memory_bytes, service->config->host_tier_bytes);
}

static struct sw_daemon *daemon_new(uv_loop_t *loop, const struct sw_config *config,
                                    const struct sw_daemon_hooks *hooks) {
    struct sw_daemon *daemon = sw_alloc(sizeof *daemon);
    if (!daemon)
        return NULL;
    struct sw_service *service = &daemon->service;
    service->loop = loop;
    sw_list_init(&service->tenants);
    service->hello_ms = HELLO_MS;
    service->open_ms = OPEN_MS;
    daemon->config = *config;
    service->config = &daemon->config;
    fit_tier(service);
    sw_tenants_set_limits(service);
    service->started_us = sw_clock_us();
    service->load = hooks->load;
    service->load_arg = hooks->arg;
    service->device_lost = on_device_lost;
    service->device_lost_arg = daemon;
    daemon->hooks = *hooks;
    return daemon;
}

/* Call close_parts() after an error. */
static int open_parts(struct sw_service *service, struct sw_err *err) {
    sw_users_read(service);
    sw_descriptors_take(service);
    int rc = sw_closer_start(service->n_descriptors, err);
    if (rc == 0)
        rc = sw_fdstore_open(&service->fdstore, err);
    if (rc == 0)
        rc = sw_tiers_open_catalogue(service, err);
    if (rc == 0)
        rc = sw_devices_open(service, err);
    if (rc == 0)
        rc = sw_tiers_open(service, err);
    if (rc == 0)
        rc = open_engine(service, err);
    return rc;
}

/* After an error the daemon closes itself, on the loop. */
static int begin_to_serve(struct sw_daemon *daemon, struct sw_err *err) {
    struct sw_service *service = &daemon->service;
    int rc = recover(service, err);
    if (rc == 0)
        rc = sw_watchdog_open(&daemon->watchdog, service, err);
    if (rc == 0)
        rc = sw_server_open(&daemon->server, service, err);
    if (rc < 0) {
        sw_watchdog_close(daemon->watchdog);
        uv_close((uv_handle_t *)&daemon->grace, on_failed_server);
        return rc;
    }
    rc = sw_control_open(&daemon->control, service, err);
    if (rc < 0) {
        sw_watchdog_close(daemon->watchdog);
        uv_close((uv_handle_t *)&daemon->grace, NULL);
        sw_server_close(daemon->server, close_failed_start, daemon);
    }
    return rc;
}

int sw_daemon_start(struct sw_daemon **ret, uv_loop_t *loop, const struct sw_config *config,
                    const struct sw_daemon_hooks *hooks, struct sw_err *err) {
    struct sw_daemon *daemon = daemon_new(loop, config, hooks);
    if (!daemon)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the daemon");
    struct sw_service *service = &daemon->service;
    int rc = open_parts(service, err);
    if (rc < 0) {
        forget_failed_start(daemon);
        return rc;
    }
    SW_ASSERT(uv_timer_init(loop, &daemon->grace) == 0);
    daemon->grace.data = daemon;
    rc = begin_to_serve(daemon, err);
    if (rc < 0)
        return rc;
    service->start_us = sw_clock_us() - service->started_us;
    uv_update_time(loop); /* the start may have taken longer than the grace period */
    const uint64_t grace_ms = config->reconnect_grace_s * 1000;
    (void)uv_timer_start(&daemon->grace, on_grace_over, grace_ms, grace_ms);
    sw_tiers_forget_old_catalogues(service);
    sw_fdstore_forget_rest(service->fdstore); /* no part of this version has taken them */
    sw_fdstore_close(service->fdstore);
    service->fdstore = NULL;
    log_ready(service);
    *ret = daemon;
    return 0;
}

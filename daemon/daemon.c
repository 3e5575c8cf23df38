#include "daemon/daemon.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/closer.h"
#include "base/log.h"
#include "daemon/control.h"
#include "daemon/descriptors.h"
#include "daemon/devices.h"
#include "daemon/fdstore.h"
#include "daemon/notify.h"
#include "daemon/reload.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/watchdog.h"
#include "spill/tier/tier_nvme.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Requests of 1 MiB that a disk needs to be busy. */
enum { NVME_QUEUE_DEPTH = 64, STAGED_FRAMES = 16 };

/* Slabs come in multiples of this. Besides them the manager keeps the catalogue, two sockets and the disk's key. */
enum { SLAB_UNIT_BYTES = 2 << 20, OTHERS_KEPT = 8 };

struct sw_daemon {
    struct sw_service service;
    struct sw_config config; /* the service's */
    struct sw_server *server;
    struct sw_watchdog *watchdog; /* NULL: nobody wants to hear */
    uv_timer_t grace;             /* for sessions of a predecessor to come back */
    struct sw_control *control;   /* NULL: there is none */
    bool stopping;
    int exit_code;
    struct sw_daemon_hooks hooks;
};

static void close_parts(struct sw_service *service) {
    if (service->tier)
        service->tier->ops->close(service->tier);
    service->tier = NULL;
    if (service->nvme)
        service->nvme->ops->close(service->nvme);
    service->nvme = NULL;
    sw_nvme_key_fini(&service->nvme_key);
    sw_devices_close(service);
    sw_catalogue_close(service->catalogue);
    service->catalogue = NULL;
    sw_fdstore_close(service->fdstore);
    service->fdstore = NULL;
    sw_closer_stop();
}

static void on_engine_closed(void *arg) {
    struct sw_daemon *daemon = arg;
    close_parts(&daemon->service);
    const struct sw_daemon_hooks hooks = daemon->hooks;
    const int exit_code = daemon->exit_code;
    sw_log(SW_LOG_INFO, "stopped", "exit_code=%d", exit_code);
    sw_free(daemon);
    hooks.stopped(exit_code, hooks.arg);
}

/* That have no session; the next process finds what they have. */
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
    sw_log(SW_LOG_INFO, "stopping", "sessions=%u", daemon->service.n_sessions);
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
    if (!daemon)
        return;
    sw_control_abandon(daemon->control);
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

/* On the tier's thread: only the log. */
static void on_tier_report(const struct sw_err *failure, uint64_t backed_bytes, void *arg) {
    char text[300], detail[300];
    (void)arg;
    if (failure)
        sw_log(SW_LOG_WARNING, "tier.grow_failed",
               "name=%s text=%s detail=%s backed_bytes=%" PRIu64
               " then=\"tried again for each spill that finds too little memory\"",
               sw_err_name(failure->code), sw_log_quote(text, sizeof text, failure->msg),
               sw_log_quote(detail, sizeof detail, failure->detail), backed_bytes);
    else
        sw_log(SW_LOG_INFO, "tier.ready", "tier=host backed_bytes=%" PRIu64, backed_bytes);
}

/* ---- what outlives the process ---- */

#define CATALOGUE_NAME "catalogue"
#define SLAB_PREFIX "arena-"
#define NVME_KEY_NAME "nvme-key"

/* On the tier's thread. A slab that is not kept is used all the same: what lies in it is lost with this process, and
 * its regions say so then. */
static void keep_slab(int fd, uint64_t offset, void *arg) {
    char name[48];
    (void)arg;
    (void)snprintf(name, sizeof name, SLAB_PREFIX "%" PRIx64, offset);
    (void)sw_fdstore_keep(name, fd);
}

/* One that cannot be read is of another version, or damaged: what it names is given up, loudly. */
static int open_catalogue(struct sw_service *service, struct sw_err *err) {
    const unsigned max_regions = (unsigned)service->config->max_regions;
    int rc = sw_fdstore_open(&service->fdstore, err);
    if (rc || !sw_notify_is_heard())
        return rc;
    const int fd = sw_fdstore_take(service->fdstore, CATALOGUE_NAME);
    if (fd >= 0) {
        rc = sw_catalogue_open(&service->catalogue, fd, max_regions, err);
        if (!rc || rc == -SW_ENOMEM)
            return rc;
        sw_log(SW_LOG_ERROR, "catalogue.refused", "name=%s text=\"%s\" then=\"regions of before are lost\"",
               sw_err_name(rc), err->msg);
        sw_fdstore_forget(CATALOGUE_NAME);
        service->catalogue = NULL;
    }
    rc = sw_catalogue_open(&service->catalogue, -1, max_regions, err);
    if (!rc && !sw_fdstore_keep(CATALOGUE_NAME, sw_catalogue_fd(service->catalogue))) {
        sw_catalogue_close(service->catalogue);
        service->catalogue = NULL;
    }
    return rc;
}

/* On the loop, for slabs that a smaller bound has made needless; on the tier's thread for one that came to nothing. */
static void forget_slab(uint64_t offset, void *arg) {
    char name[48];
    (void)arg;
    (void)snprintf(name, sizeof name, SLAB_PREFIX "%" PRIx64, offset);
    sw_fdstore_forget(name);
}

/* Slabs of a predecessor; at most so many are made, one allocation for all. NULL: there are none. */
static struct sw_tier_host_slab *take_slabs(struct sw_service *service, unsigned *ret_n, uint64_t *ret_bytes) {
    struct sw_tier_host_slab *slabs = NULL;
    struct stat memory;
    const char *offset;
    for (int fd; (fd = sw_fdstore_take_any(service->fdstore, SLAB_PREFIX, &offset)) >= 0;) {
        struct sw_tier_host_slab *more = sw_realloc(slabs, (*ret_n + 1) * sizeof *slabs);
        if (!more) { /* its regions will be found lost */
            (void)close(fd);
            break;
        }
        slabs = more;
        slabs[(*ret_n)++] = (struct sw_tier_host_slab){.fd = fd, .offset = strtoull(offset, NULL, 16)};
        *ret_bytes += fstat(fd, &memory) == 0 ? (uint64_t)memory.st_size : 0;
    }
    return slabs;
}

/* A slab that the manager has no room for would be lost with this process, and it would not say so: where the bound is
 * more slabs than it keeps, those to come are larger than configured. */
static uint64_t slab_bytes(const struct sw_config *config, unsigned n_kept, uint64_t kept_bytes) {
    const unsigned limit = sw_fdstore_limit(), n_max = limit > OTHERS_KEPT ? limit - OTHERS_KEPT : 0;
    const uint64_t n = n_kept < n_max ? n_max - n_kept : 1, /* OTHERS_KEPT has a few to spare */
        left = config->host_tier_bytes > kept_bytes ? config->host_tier_bytes - kept_bytes : 0,
                   units = (left + SLAB_UNIT_BYTES - 1) / SLAB_UNIT_BYTES,
                   least = (units + n - 1) / n * SLAB_UNIT_BYTES;
    if (least <= config->host_tier_slab_bytes)
        return config->host_tier_slab_bytes;
    sw_log(SW_LOG_INFO, "tier.larger_slabs",
           "tier=host slab_bytes=%" PRIu64 " why=\"the manager keeps %u descriptors\"", least, limit);
    return least;
}

static int open_tier(struct sw_service *service, struct sw_err *err) {
    unsigned n_kept = 0;
    uint64_t kept_bytes = 0;
    struct sw_tier_host_slab *kept = service->catalogue ? take_slabs(service, &n_kept, &kept_bytes) : NULL;
    const struct sw_tier_host_config config = {
        .capacity_bytes = service->config->host_tier_bytes,
        .initial_bytes = service->config->host_tier_initial_bytes,
        .ahead_bytes = service->config->host_tier_bytes / 100 * service->config->host_tier_ahead_pct,
        .slab_bytes = service->catalogue ? slab_bytes(service->config, n_kept, kept_bytes)
                                         : service->config->host_tier_slab_bytes,
        .devices = service->devices,
        .n_devices = service->n_devices,
        .report = on_tier_report,
        .keep = service->catalogue ? keep_slab : NULL,
        .forget = service->catalogue ? forget_slab : NULL,
        .kept = kept,
        .n_kept = n_kept};
    const int rc = sw_tier_host_open(&service->tier, &config, err);
    sw_free(kept);
    return rc;
}

/* The predecessor's key, if it was kept: without it frames that were kept cannot be read, so they stay encrypted
 * whatever the option says now. */
static int take_key(struct sw_service *service, bool *ret_encrypt, struct sw_err *err) {
    const bool encrypt = strcmp(service->config->nvme_encrypt, "on") == 0;
    const int fd = service->catalogue ? sw_fdstore_take(service->fdstore, NVME_KEY_NAME) : -1;
    if (fd >= 0 && !encrypt)
        sw_log(SW_LOG_WARNING, "nvme.encrypted", "then=\"the NVMe tier stays encrypted until the unit is stopped\"");
    *ret_encrypt = encrypt || fd >= 0;
    if (fd >= 0)
        return sw_nvme_key_adopt(&service->nvme_key, fd, err);
    return encrypt ? sw_nvme_key_make(&service->nvme_key, err) : 0;
}

/* Started without its disk, for which regions wait: the manager goes on keeping what was encrypted with. */
static void leave_key(struct sw_service *service) {
    const int fd = service->catalogue ? sw_fdstore_take(service->fdstore, NVME_KEY_NAME) : -1;
    if (fd >= 0)
        (void)close(fd);
}

static int open_nvme(struct sw_service *service, struct sw_err *err) {
    bool encrypt = false;
    if (strcmp(service->config->nvme_tier_directory, "none") == 0) {
        leave_key(service);
        return 0;
    }
    int rc = take_key(service, &encrypt, err);
    const uint64_t bytes = service->config->nvme_tier_bytes;
    const struct sw_tier_nvme_config config = {.directory = service->config->nvme_tier_directory,
                                               .capacity_bytes = bytes,
                                               .file_bytes = bytes < SW_NVME_FILE_BYTES ? bytes : SW_NVME_FILE_BYTES,
                                               .queue_depth = NVME_QUEUE_DEPTH,
                                               .key = encrypt ? &service->nvme_key : NULL,
                                               .keep_plain = service->catalogue != NULL};
    struct sw_tier_nvme_info info;
    char directory[600];
    if (rc == 0)
        rc = sw_tier_nvme_open(&service->nvme, &config, err);
    if (rc < 0) {
        sw_err_context(err, "nvme_tier_directory %.60s", config.directory);
        return rc;
    }
    if (encrypt && service->nvme_key.is_new && service->catalogue) /* not before the folder is in its encryption */
        (void)sw_fdstore_keep(NVME_KEY_NAME, service->nvme_key.fd);
    sw_tier_nvme_info(service->nvme, &info);
    sw_log(SW_LOG_INFO, "tier.ready", "tier=nvme directory=%s bytes=%" PRIu64 " method=%s direct=%s encrypted=%s",
           sw_log_quote(directory, sizeof directory, config.directory), bytes,
           info.method == SW_TIER_NVME_URING ? "io_uring" : "threads", info.direct ? "yes" : "no",
           encrypt ? "yes" : "no");
    return 0;
}

/* Room for frames on their way to the NVMe tier and back: for each GPU's slots in both directions, and what is read
 * ahead; at most half of the host tier. 0 without an NVMe tier. */
static uint64_t staging_bytes(const struct sw_service *service) {
    if (!service->nvme)
        return 0;
    const struct sw_device_info *info = service->devices[0]->ops->info(service->devices[0]);
    const uint64_t n_frames = (uint64_t)STAGED_FRAMES * (service->n_gpus ? service->n_gpus : 1);
    const uint64_t wanted = n_frames * sw_frame_bound_bytes(info->chunk_bytes),
                   half = service->config->host_tier_bytes / 2;
    return wanted < half ? wanted : half;
}

/* A frame that fits into no half of it could wait for ever for its room. */
static void log_chunks(const struct sw_service *service) {
    const uint64_t most = sw_engine_chunk_bytes(service->engine);
    for (unsigned i = 0; i < service->n_devices; i++) {
        const struct sw_device_info *info = service->devices[i]->ops->info(service->devices[i]);
        if (most < info->chunk_bytes)
            sw_log(SW_LOG_INFO, "tier.smaller_chunks",
                   "device=%s chunk_bytes=%" PRIu64 " then=\"spilled in chunks of %" PRIu64
                   ", of which a quarter of host_tier_bytes holds a frame\"",
                   info->name, info->chunk_bytes, most);
    }
}

static int open_engine(struct sw_service *service, struct sw_err *err) {
    const struct sw_config *config = service->config;
    const struct sw_engine_config engine = {.devices = service->devices,
                                            .n_devices = service->n_devices,
                                            .tier = service->tier,
                                            .nvme = service->nvme,
                                            .staging_bytes = staging_bytes(service),
                                            .high_pct = (unsigned)config->host_tier_high_pct,
                                            .low_pct = (unsigned)config->host_tier_low_pct,
                                            .max_regions = (unsigned)config->max_regions,
                                            .max_owner_regions = (unsigned)config->max_session_regions,
                                            .max_owner_ops =
                                                (unsigned)config->max_session_operations + SW_SESSION_MAX_PIECES,
                                            .max_owner_mems = (unsigned)config->max_session_memories,
                                            .max_durable = (unsigned)config->tenant_durable_regions,
                                            .catalogue = service->catalogue};
    const int rc = sw_engine_open(&service->engine, service->loop, &engine, err);
    if (!rc)
        log_chunks(service);
    return rc;
}

/* Regions of a predecessor; frames in the NVMe tier that no region claims are released. */
static int recover(struct sw_service *service, struct sw_err *err) {
    struct sw_recovered found;
    const int rc = sw_engine_recover(service->engine, &found, err);
    if (!rc && (service->catalogue || found.n_released))
        sw_log(found.n_lost || found.n_damaged ? SW_LOG_WARNING : SW_LOG_INFO, "recovered",
               "sessions=%u regions=%u bytes=%" PRIu64 " lost=%u damaged_records=%u released_frames=%u",
               found.n_sessions, found.n_regions, found.raw_bytes, found.n_lost, found.n_damaged, found.n_released);
    return rc ? rc : sw_tenants_recover(service, err);
}

static void on_grace_over(uv_timer_t *timer) {
    struct sw_daemon *daemon = timer->data;
    const unsigned n = sw_tenants_expire(&daemon->service, false);
    if (n)
        sw_log(SW_LOG_INFO, "sessions.expired", "sessions=%u why=\"nobody came back for them\"", n);
}

static void log_ready(const struct sw_service *service) {
    char socket[300], devices[400], names[300];
    sw_log(SW_LOG_INFO, "ready",
           "version=%s socket=%s devices=%s gpus=%u tier_bytes=%" PRIu64 " staging_bytes=%" PRIu64
           " scratch_bytes=%" PRIu64,
           SW_VERSION, sw_log_quote(socket, sizeof socket, service->config->data_socket),
           sw_log_quote(devices, sizeof devices, sw_devices_names(service, names, sizeof names)), service->n_gpus,
           service->config->host_tier_bytes, staging_bytes(service), service->config->scratch_bytes);
    const int failure = sw_notify("READY=1");
    if (failure)
        sw_log(SW_LOG_WARNING, "notify.failed", "cause=\"%s\" then=\"the service manager is not told\"",
               strerror(failure));
}

/* The engine closes on the loop, so a start that fails after it goes the way of a stop. */
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

int sw_daemon_start(struct sw_daemon **ret, uv_loop_t *loop, const struct sw_config *config,
                    const struct sw_daemon_hooks *hooks, struct sw_err *err) {
    struct sw_daemon *daemon = sw_alloc(sizeof *daemon);
    if (!daemon)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "no memory for the daemon");
    struct sw_service *service = &daemon->service;
    service->loop = loop;
    sw_list_init(&service->tenants);
    daemon->config = *config;
    service->config = &daemon->config;
    service->started_us = sw_clock_us();
    service->load = hooks->load;
    service->load_arg = hooks->arg;
    service->device_lost = on_device_lost;
    service->device_lost_arg = daemon;
    daemon->hooks = *hooks;
    sw_descriptors_take(service);
    int rc = sw_closer_start(service->n_descriptors, err);
    if (rc == 0)
        rc = open_catalogue(service, err);
    if (rc == 0)
        rc = sw_devices_open(service, err);
    if (rc == 0)
        rc = open_tier(service, err);
    if (rc == 0)
        rc = open_nvme(service, err);
    if (rc == 0)
        rc = open_engine(service, err);
    if (rc < 0) {
        forget_failed_start(daemon);
        return rc;
    }
    SW_ASSERT(uv_timer_init(loop, &daemon->grace) == 0);
    daemon->grace.data = daemon;
    rc = recover(service, err);
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
        return rc;
    }
    service->start_us = sw_clock_us() - service->started_us;
    uv_update_time(loop); /* the start may have taken longer than the grace is */
    (void)uv_timer_start(&daemon->grace, on_grace_over, config->reconnect_grace_s * 1000, 0);
    sw_fdstore_forget_rest(service->fdstore); /* what nobody has taken is not ours */
    sw_fdstore_close(service->fdstore);
    service->fdstore = NULL;
    log_ready(service);
    *ret = daemon;
    return 0;
}

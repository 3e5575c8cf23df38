#include "daemon/daemon.h"

#include "base/alloc.h"
#include "base/log.h"
#include "daemon/devices.h"
#include "daemon/notify.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "spill/tier/tier_nvme.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>

/* Descriptors that are not a session's memories: the daemon's own (standard streams, loop, driver) and those of a
 * packet that is being looked at. */
enum { RESERVED_FDS = 256 + SW_PROTO_MAX_FDS, LEAST_FDS = 128 };

/* Large enough that a disk of terabytes is few files; requests of 1 MiB that a disk needs to be busy. */
#define NVME_FILE_BYTES ((uint64_t)4 << 30)
enum { NVME_QUEUE_DEPTH = 64, STAGED_FRAMES = 16 };

struct sw_daemon {
    struct sw_service service;
    struct sw_server *server;
    bool stopping;
    int exit_code;
    void (*stopped)(int exit_code, void *arg);
    void *stopped_arg;
};

/* Every memory and every client costs descriptors: takes as many as may be had and shares them out. */
static void take_descriptors(struct sw_service *service) {
    struct rlimit limit = {.rlim_cur = 1024, .rlim_max = 1024};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        const rlim_t soft = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
            limit.rlim_cur = soft;
    }
    const uint64_t had = limit.rlim_cur < UINT32_MAX ? limit.rlim_cur : UINT32_MAX;
    const uint64_t others = RESERVED_FDS + service->config->max_sessions;
    service->fds.limit = (unsigned)(had > others + LEAST_FDS ? had - others : LEAST_FDS);
    if (had <= others + LEAST_FDS)
        sw_log(SW_LOG_WARNING, "descriptors.short",
               "limit=%" PRIu64 " wanted=%" PRIu64 " then=\"clients may be refused before max_sessions is reached\"",
               had, others + LEAST_FDS);
}

static void close_parts(struct sw_service *service) {
    if (service->tier)
        service->tier->ops->close(service->tier);
    service->tier = NULL;
    if (service->nvme)
        service->nvme->ops->close(service->nvme);
    service->nvme = NULL;
    sw_nvme_key_fini(&service->nvme_key);
    sw_devices_close(service);
}

static void on_engine_closed(void *arg) {
    struct sw_daemon *daemon = arg;
    close_parts(&daemon->service);
    void (*stopped)(int, void *) = daemon->stopped;
    void *stopped_arg = daemon->stopped_arg;
    const int exit_code = daemon->exit_code;
    sw_log(SW_LOG_INFO, "stopped", "exit_code=%d", exit_code);
    sw_free(daemon);
    stopped(exit_code, stopped_arg);
}

static void on_server_closed(void *arg) {
    struct sw_daemon *daemon = arg;
    daemon->server = NULL;
    sw_engine_close(daemon->service.engine, on_engine_closed, daemon);
}

void sw_daemon_stop(struct sw_daemon *daemon) {
    if (daemon->stopping)
        return;
    daemon->stopping = true;
    sw_log(SW_LOG_INFO, "stopping", "sessions=%u", daemon->service.n_sessions);
    (void)sw_notify("STOPPING=1");
    sw_server_close(daemon->server, on_server_closed, daemon);
}

void sw_daemon_abandon(struct sw_daemon *daemon) {
    if (daemon)
        sw_server_abandon(daemon->server);
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

static int open_tier(struct sw_service *service, struct sw_err *err) {
    const struct sw_tier_host_config config = {.capacity_bytes = service->config->host_tier_bytes,
                                               .initial_bytes = service->config->host_tier_initial_bytes,
                                               .ahead_bytes = service->config->host_tier_bytes / 100 *
                                                              service->config->host_tier_ahead_pct,
                                               .slab_bytes = service->config->host_tier_slab_bytes,
                                               .devices = service->devices,
                                               .n_devices = service->n_devices,
                                               .report = on_tier_report};
    return sw_tier_host_open(&service->tier, &config, err);
}

static bool take_nothing(void *arg, const uint8_t key[SW_TIER_KEY_BYTES], const struct sw_stored *stored) {
    (void)key;
    (void)stored;
    ++*(unsigned *)arg;
    return false;
}

/* Regions end with their session, and sessions with the daemon: frames that an earlier one left are released. */
static int open_nvme(struct sw_service *service, struct sw_err *err) {
    const bool encrypt = strcmp(service->config->nvme_encrypt, "on") == 0;
    const uint64_t bytes = service->config->nvme_tier_bytes;
    const struct sw_tier_nvme_config config = {.directory = service->config->nvme_tier_directory,
                                               .capacity_bytes = bytes,
                                               .file_bytes = bytes < NVME_FILE_BYTES ? bytes : NVME_FILE_BYTES,
                                               .queue_depth = NVME_QUEUE_DEPTH,
                                               .key = encrypt ? &service->nvme_key : NULL};
    struct sw_tier_nvme_info info;
    unsigned n_left = 0;
    char directory[600];
    int rc = encrypt ? sw_nvme_key_make(&service->nvme_key, err) : 0;
    if (rc == 0)
        rc = sw_tier_nvme_open(&service->nvme, &config, err);
    if (rc < 0) {
        sw_err_context(err, "nvme_tier_directory");
        return rc;
    }
    sw_tier_nvme_recover(service->nvme, take_nothing, &n_left);
    sw_tier_nvme_info(service->nvme, &info);
    sw_log(SW_LOG_INFO, "tier.ready",
           "tier=nvme directory=%s bytes=%" PRIu64 " method=%s direct=%s encrypted=%s released_frames=%u",
           sw_log_quote(directory, sizeof directory, config.directory), bytes,
           info.method == SW_TIER_NVME_URING ? "io_uring" : "threads", info.direct ? "yes" : "no",
           encrypt ? "yes" : "no", n_left);
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
                                            .max_owner_mems = (unsigned)config->max_session_memories};
    return sw_engine_open(&service->engine, service->loop, &engine, err);
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

int sw_daemon_start(struct sw_daemon **ret, uv_loop_t *loop, const struct sw_config *config,
                    void (*stopped)(int exit_code, void *arg), void *arg, struct sw_err *err) {
    struct sw_daemon *daemon = sw_alloc(sizeof *daemon);
    if (!daemon)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "no memory for the daemon");
    struct sw_service *service = &daemon->service;
    service->loop = loop;
    sw_list_init(&service->tenants);
    service->config = config;
    service->device_lost = on_device_lost;
    service->device_lost_arg = daemon;
    daemon->stopped = stopped;
    daemon->stopped_arg = arg;
    take_descriptors(service);
    int rc = sw_devices_open(service, err);
    if (rc == 0)
        rc = open_tier(service, err);
    if (rc == 0 && strcmp(config->nvme_tier_directory, "none") != 0)
        rc = open_nvme(service, err);
    if (rc == 0)
        rc = open_engine(service, err);
    if (rc < 0) {
        forget_failed_start(daemon);
        return rc;
    }
    rc = sw_server_open(&daemon->server, service, err);
    if (rc < 0) {
        sw_engine_close(service->engine, forget_failed_start, daemon);
        return rc;
    }
    log_ready(service);
    *ret = daemon;
    return 0;
}

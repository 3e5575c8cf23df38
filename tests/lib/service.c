#include "tests/lib/service.h"
#include "spill/tier/host/tier_host.h"

#include "base/assert.h"
#include "daemon/session/commands.h"
#include "daemon/tiers/row.h"
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LARGE = 320 };

static void on_device_lost(void *arg) {
    (void)arg;
    SW_ASSERT(false && "the host device cannot be lost");
}

/* Its thread allocates while it grows: tests that count allocations, or make them fail, must not meet it. */
static void await_memory(struct sw_tier *tier, uint64_t bytes) {
    struct sw_tier_stats stats;
    for (tier->ops->stats(tier, &stats); stats.backed_bytes < bytes || stats.growing; tier->ops->stats(tier, &stats))
        (void)usleep(100);
}

static void start(struct sw_test_service *ret, unsigned times) {
    const struct sw_device_config device = {.scratch_bytes = 64 << 20, .n_slots = 1, .chunk_bytes = 1 << 20};
    struct sw_service *service = &ret->service;
    struct sw_err err;
    memset(ret, 0, sizeof *ret);
    sw_config_init(&ret->config);
    ret->config.max_session_memories = 8;
    ret->config.tenant_durable_regions = 4 * times;
    SW_ASSERT(uv_loop_init(&ret->loop) == 0);
    *service = (struct sw_service){.loop = &ret->loop,
                                   .config = &ret->config,
                                   .commands = sw_commands,
                                   .n_commands = sw_commands_count,
                                   .fds = {.limit = 256, .max_closing = 64},
                                   .device_lost = on_device_lost};
    sw_list_init(&service->tenants);
    service->userns = (struct sw_userns){.maps_all_uids = true, .maps_all_gids = true};
    SW_ASSERT(sw_device_host_open(&service->devices[0], &device, &err) == 0);
    service->n_devices = 1;
    const struct sw_tier_host_config tier = {.capacity_bytes = 4 << 20,
                                             .initial_bytes = 4 << 20,
                                             .slab_bytes = 4 << 20,
                                             .devices = service->devices,
                                             .n_devices = 1};
    SW_ASSERT(sw_tier_host_open(&service->tiers.at[0], &tier, &err) == 0);
    service->tiers.n = 1;
    await_memory(service->tiers.at[0], tier.initial_bytes);
    for (unsigned i = 1; i < sw_tier_n_rows; i++) {
        struct sw_tier *behind = NULL;
        SW_ASSERT(sw_tier_rows[i]->open(service, &behind, &service->tier_own[i], &err) == 0);
        if (behind)
            service->tiers.at[service->tiers.n++] = behind;
    }
    const struct sw_engine_config engine = {.devices = service->devices,
                                            .n_devices = 1,
                                            .tiers = service->tiers,
                                            .staging_bytes = 1 << 20,
                                            .high_pct = 90,
                                            .low_pct = 80,
                                            .max_regions = 64 * times,
                                            .max_owner_regions = 16 * times,
                                            .max_owner_mems = 8 * times};
    SW_ASSERT(sw_engine_open(&service->engine, &ret->loop, &engine, &err) == 0);
}

void sw_test_service_start(struct sw_test_service *ret) {
    start(ret, 1);
}

void sw_test_service_start_large(struct sw_test_service *ret) {
    start(ret, LARGE);
    ret->config.max_session_memories *= LARGE;
}

static void on_closed(struct sw_session *session, void *arg) {
    bool *closed = arg;
    (void)session;
    *closed = true;
}

struct sw_session *sw_test_service_session(struct sw_test_service *service, int *ret_peer, bool *ret_closed) {
    struct sw_session *session = NULL;
    struct sw_err err;
    int pair[2];
    *ret_closed = false;
    SW_ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    SW_ASSERT(sw_session_open(&session, &service->service, pair[0], 1, on_closed, ret_closed, &err) == 0);
    session->greeted = true;
    *ret_peer = pair[1];
    return session;
}

void sw_test_service_end(struct sw_test_service *service, struct sw_session *session, const bool *closed) {
    struct sw_engine_stats stats;
    if (!*closed)
        sw_session_close(session, "end of test");
    while (!*closed)
        (void)uv_run(&service->loop, UV_RUN_ONCE);
    sw_engine_check(service->service.engine);
    sw_tenants_close(&service->service);
    while (!sw_list_empty(&service->service.tenants))
        (void)uv_run(&service->loop, UV_RUN_ONCE);
    sw_engine_stats(service->service.engine, &stats);
    SW_ASSERT(stats.n_owners == 0 && stats.n_regions == 0 && stats.n_mems == 0 && stats.n_ops == 0);
    SW_ASSERT(stats.n_mapped == 0 && stats.tiers[0].used_bytes == 0 && service->service.fds.used == 0);
}

static bool count_event(struct sw_subscriber *subscriber, const char *line) {
    struct sw_test_control *control = SW_CONTAINER_OF(subscriber, struct sw_test_control, subscriber);
    SW_ASSERT(line[0] == '{' && line[strlen(line) - 1] == '\n');
    control->n_told++;
    return control->n_told % 3 != 0; /* a peer that sometimes has no room */
}

void sw_test_control_start(struct sw_test_control *ret, struct sw_test_service *service) {
    struct sw_err err;
    memset(ret, 0, sizeof *ret);
    ret->context.service = &service->service;
    SW_ASSERT(sw_events_open(&ret->context.events, &service->loop, &err) == 0);
    sw_subscriber_init(&ret->subscriber, ret->context.events, count_event);
    ret->caller = (struct sw_rpc_caller){.right = SW_CONTROL_ALL, .arg = &ret->subscriber};
}

char *sw_test_control_line(struct sw_test_control *control, const char *line, size_t bytes) {
    struct sw_rpc_work work;
    sw_rpc_begin(&work, line, bytes);
    while (sw_rpc_step(&work, sw_control_handlers, &control->context, &control->caller))
        ;
    return sw_rpc_end(&work);
}

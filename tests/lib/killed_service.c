#include "tests/lib/killed_service.h"

#include "base/assert.h"
#include "daemon/session/commands.h"
#include "daemon/session/session.h"
#include "spill/engine_state.h"
#include "tests/lib/lives.h"
#include "tests/lib/store_trap.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#if SW_STORE_TRAP
struct sw_kill_plan *sw_kill_plan;
static bool is_service;

static void point(void) {
    if (is_service && ++sw_kill_plan->n_points == sw_kill_plan->kill_at)
        (void)kill(getpid(), SIGKILL);
}

static bool fails(void) {
    const unsigned n = is_service ? ++sw_kill_plan->n_records : 0;
    return n && sw_kill_plan->fail_at &&
           (n == sw_kill_plan->fail_at || (sw_kill_plan->goes_on && n > sw_kill_plan->fail_at));
}

int __real_sw_catalogue_put_region(struct sw_catalogue *catalogue, const struct sw_catalogue_region *region,
                                   uint32_t replaced, uint32_t *ret, struct sw_err *err);
int __wrap_sw_catalogue_put_region(struct sw_catalogue *catalogue, const struct sw_catalogue_region *region,
                                   uint32_t replaced, uint32_t *ret, struct sw_err *err);
int __wrap_sw_catalogue_put_region(struct sw_catalogue *catalogue, const struct sw_catalogue_region *region,
                                   uint32_t replaced, uint32_t *ret, struct sw_err *err) {
    if (fails())
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST, "catalogue is full: so the test wants it");
    return __real_sw_catalogue_put_region(catalogue, region, replaced, ret, err);
}

int __real_sw_catalogue_put_session(struct sw_catalogue *catalogue, const struct sw_catalogue_session *session,
                                    uint32_t *ret, struct sw_err *err);
int __wrap_sw_catalogue_put_session(struct sw_catalogue *catalogue, const struct sw_catalogue_session *session,
                                    uint32_t *ret, struct sw_err *err);
int __wrap_sw_catalogue_put_session(struct sw_catalogue *catalogue, const struct sw_catalogue_session *session,
                                    uint32_t *ret, struct sw_err *err) {
    if (fails())
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_SESSION, "catalogue is full: so the test wants it");
    return __real_sw_catalogue_put_session(catalogue, session, ret, err);
}

static ssize_t killing_pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    if (fails()) {
        errno = bytes % 3 ? ENOSPC : EIO;
        return -1;
    }
    point();
    if (pwrite(fd, data, bytes / 2, offset) != (ssize_t)(bytes / 2))
        return -1;
    point();
    if (pwrite(fd, (const char *)data + bytes / 2, bytes - bytes / 2, offset + (off_t)(bytes / 2)) < 0)
        return -1;
    point();
    return (ssize_t)bytes;
}

static const struct sw_nvme_file_ops killing_files = {.pwrite = killing_pwrite, .pread = pread};

int __real_sw_packet_send(int socket, const uint8_t *packet, size_t bytes, const int *fds, unsigned n_fds);
int __wrap_sw_packet_send(int socket, const uint8_t *packet, size_t bytes, const int *fds, unsigned n_fds);
int __wrap_sw_packet_send(int socket, const uint8_t *packet, size_t bytes, const int *fds, unsigned n_fds) {
    point();
    const int rc = __real_sw_packet_send(socket, packet, bytes, fds, n_fds);
    point();
    return rc;
}

static void on_closed(struct sw_session *session, void *arg) {
    (void)session;
    *(bool *)arg = true;
}

static void on_device_lost(void *arg) {
    (void)arg;
}

void sw_killed_service_serve(int socket, uint64_t disk_bytes) {
    static struct sw_life life;
    static struct sw_config config;
    static struct sw_service service;
    struct sw_session *session = NULL;
    struct sw_err err;
    bool closed = false;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    sw_world.files = &killing_files;
    sw_life_open(&life, disk_bytes);
    SW_ASSERT(sw_engine_recover(life.engine, &life.found, &err) == 0);
    sw_config_init(&config);
    service = (struct sw_service){.loop = &life.loop,
                                  .config = &config,
                                  .commands = sw_commands,
                                  .n_commands = sw_commands_count,
                                  .fds = {.limit = 256, .max_closing = 64},
                                  .engine = life.engine,
                                  .tiers = {.at = {life.host, life.nvme}, .n = life.nvme ? 2 : 1},
                                  .devices = {life.device},
                                  .n_devices = 1,
                                  .catalogue = life.catalogue,
                                  .device_lost = on_device_lost,
                                  .userns = {.maps_all_uids = true, .maps_all_gids = true}};
    sw_list_init(&service.tenants);
    is_service = true;
    if (!sw_kill_plan->fail_at)
        sw_store_trap_set(point);
    SW_ASSERT(sw_session_open(&session, &service, socket, 1, on_closed, &closed, &err) == 0);
    while (!closed)
        (void)uv_run(&life.loop, UV_RUN_ONCE);
    point();
    (void)kill(getpid(), SIGKILL);
    abort();
}
#endif

/* service.h - what all sessions of one daemon share. Owned by the daemon, outlives every session. thread: loop. */
#ifndef SW_DAEMON_SERVICE_H
#define SW_DAEMON_SERVICE_H

#include "config/config.h"
#include "daemon/memtable.h"
#include "spill/engine.h"
#include "spill/tier/nvme_key.h"
#include <uv.h>

enum { SW_MAX_DEVICES = 65 }; /* 64 GPUs and the host */

struct sw_service {
    uv_loop_t *loop;
    const struct sw_config *config;
    struct sw_engine *engine;
    struct sw_tier *tier, *nvme;               /* nvme: NULL if there is none */
    struct sw_nvme_key nvme_key;               /* empty where nothing is encrypted */
    struct sw_device *devices[SW_MAX_DEVICES]; /* GPUs first, the host last */
    unsigned n_devices, n_gpus;
    struct sw_fd_budget fds;
    unsigned n_sessions;
    struct sw_list tenants; /* that have a session */
    /* Called when a device's context has died; may be called again. */
    void (*device_lost)(void *arg);
    void *device_lost_arg;
};

#endif

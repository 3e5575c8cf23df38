/* service.h - the state that all sessions share. The daemon owns it, and it outlives every session. thread: loop. */
#ifndef SW_DAEMON_SERVICE_H
#define SW_DAEMON_SERVICE_H

#include "base/list.h"
#include "base/userns.h"
#include "config/config.h"
#include "daemon/descriptors.h"
#include "spill/engine.h"
#include <uv.h>

struct sw_command;

enum { SW_MAX_DEVICES = 65 }; /* 64 GPUs and the host */

/* Bytes of frame buffers that clients may have, by device (session/coder.h). */
struct sw_frame_grants {
    uint64_t bytes[SW_MAX_DEVICES];
};

struct sw_service {
    uv_loop_t *loop;
    struct sw_config *config; /* in force; only reload.c changes it */
    struct sw_engine *engine;
    struct sw_tiers tiers;                     /* the open ones */
    void *tier_own[SW_TIERS_MAX];              /* own data of each kind of tier, in the table's order; NULL: none */
    struct sw_device *devices[SW_MAX_DEVICES]; /* GPUs first, the host last */
    unsigned n_devices, n_gpus;
    struct sw_userns userns; /* which users can be told apart */
    unsigned n_descriptors;  /* the most that the process may have */
    struct sw_fd_budget fds;
    uint64_t memory_bytes;         /* that the process can have (memory.h); 0: unknown */
    struct sw_budget_pool kept;    /* budget for all tenants' records: bookkeeping_bytes */
    struct sw_frame_grants grants; /* of all sessions */
    unsigned n_sessions;
    unsigned hello_ms;  /* limit from connection to HELLO; 0: none */
    unsigned open_ms;   /* an open build or read that is idle so long expires; 0: never */
    unsigned n_overdue; /* recovered sessions that were not resumed within the grace period, but whose processes run */
    bool is_stopping;   /* regions and sessions are left to the next process */
    struct sw_fdstore *fdstore;        /* until the start is complete */
    struct sw_catalogue *catalogue;    /* NULL: nothing survives this process */
    uint32_t old_catalogues;           /* bit n: the manager also keeps a catalogue of the earlier version n */
    const struct sw_command *commands; /* session/commands.h */
    size_t n_commands;
    const struct sw_list *sessions;  /* struct sw_session, the server's list; NULL: no server */
    uint64_t started_us, start_us;   /* when the start began; how long it took (0: it is not complete) */
    uint64_t n_errors[SW_ERR_COUNT]; /* failed requests and sessions, by sw_err_index() */
    bool draining;                   /* no new spills are accepted */
    unsigned n_lost_lines;           /* lost regions that the start has logged */
    struct sw_list tenants;          /* struct sw_tenant */
    /* Called when a device's context has died; may be called again. */
    void (*device_lost)(void *arg);
    void *device_lost_arg;
    /* Reads the configuration from its sources. NULL: it cannot be read again. */
    int (*load)(struct sw_config *ret, void *arg, struct sw_err *err);
    void *load_arg;
};

static inline void sw_service_count_error(struct sw_service *service, int code) {
    const int i = sw_err_index(code);
    if (i >= 0)
        service->n_errors[i]++;
}

/* Reports a device whose context has died. Call it when an operation has failed, and from time to time. */
static inline void sw_service_check_devices(const struct sw_service *service) {
    if (sw_engine_device_lost(service->engine))
        service->device_lost(service->device_lost_arg);
}

#endif

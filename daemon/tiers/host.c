/* host.c - the arena in host memory, with its slabs that the service manager has kept. */
#include "daemon/tiers/row.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/memory.h"
#include "daemon/fdstore.h"
#include "daemon/memory.h"
#include "daemon/tiers/io_pipe.h"
#include "spill/tier/host/tier_host.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Slabs are multiples of this. Besides them the manager keeps the catalogue, two sockets, the disk's key, and an
 * in-flight I/O pipe for each process whose disk requests have not ended. */
enum { SLAB_UNIT_BYTES = 2 << 20, OTHERS_KEPT = 8 };

#define SLAB_PREFIX "arena-"

/* Called on the tier's thread: only logs. */
static void on_tier_report(const struct sw_err *failure, uint64_t backed_bytes, void *arg) {
    char text[300], detail[300];
    (void)arg;
    if (failure)
        sw_log(SW_LOG_WARNING, "tier.grow_failed",
               "name=%s text=%s detail=%s backed_bytes=%" PRIu64
               " then=\"each spill that finds too little memory tries again\"",
               sw_err_name(failure->code), sw_log_quote(text, sizeof text, failure->msg),
               sw_log_quote(detail, sizeof detail, failure->detail), backed_bytes);
    else
        sw_log(SW_LOG_INFO, "tier.ready", "tier=host backed_bytes=%" PRIu64, backed_bytes);
}

/* Called on the tier's thread. A slab that is not kept is still used: its content is lost with this process, and its
 * regions are reported lost then. */
static void keep_slab(int fd, uint64_t offset, void *arg) {
    char name[48];
    (void)arg;
    (void)snprintf(name, sizeof name, SLAB_PREFIX "%" PRIx64, offset);
    (void)sw_fdstore_keep(name, fd);
}

/* Called on the loop for slabs that a smaller bound has made unnecessary; on the tier's thread for a slab that could
 * not be used. */
static void forget_slab(uint64_t offset, void *arg) {
    char name[48];
    (void)arg;
    (void)snprintf(name, sizeof name, SLAB_PREFIX "%" PRIx64, offset);
    sw_fdstore_forget(name);
}

/* Takes a predecessor's slabs, in one allocation. NULL: there are none. */
static struct sw_tier_host_slab *take_slabs(struct sw_service *service, unsigned *ret_n, uint64_t *ret_bytes) {
    struct sw_tier_host_slab *slabs = NULL;
    struct stat memory;
    const char *offset;
    for (int fd; (fd = sw_fdstore_take_any(service->fdstore, SLAB_PREFIX, &offset)) >= 0;) {
        struct sw_tier_host_slab *more = sw_realloc(slabs, (*ret_n + 1) * sizeof *slabs);
        if (!more) { /* its regions will be reported lost */
            (void)close(fd);
            break;
        }
        slabs = more;
        slabs[(*ret_n)++] = (struct sw_tier_host_slab){.fd = fd, .offset = strtoull(offset, NULL, 16)};
        *ret_bytes += fstat(fd, &memory) == 0 ? (uint64_t)memory.st_size : 0;
    }
    return slabs;
}

/* A slab that the manager has no room for would be lost with this process without a warning. So if the bound needs more
 * slabs than the manager keeps, new slabs are larger than configured. */
static uint64_t slab_bytes(const struct sw_config *config, unsigned n_kept, uint64_t kept_bytes) {
    const unsigned limit = sw_fdstore_limit(), n_max = limit > OTHERS_KEPT ? limit - OTHERS_KEPT : 0;
    const uint64_t n = n_kept < n_max ? n_max - n_kept : 1, /* OTHERS_KEPT has a few to spare */
        left = config->host_tier_bytes > kept_bytes ? config->host_tier_bytes - kept_bytes : 0,
                   units = (left + SLAB_UNIT_BYTES - 1) / SLAB_UNIT_BYTES,
                   least = (units + n - 1) / n * SLAB_UNIT_BYTES;
    if (least <= config->host_tier_slab_bytes)
        return config->host_tier_slab_bytes;
    sw_log(SW_LOG_INFO, "tier.larger_slabs",
           "tier=host slab_bytes=%" PRIu64 " why=\"the service manager keeps at most %u descriptors\"", least, limit);
    return least;
}

/* Called on the tier's thread: what fits now, if a control group's limit has been lowered since the start. own: the
 * configuration of the start. */
static uint64_t most_bytes(void *own) {
    struct sw_config config = *(const struct sw_config *)own;
    (void)sw_memory_fit_tier(&config, sw_memory_bytes(""));
    return config.host_tier_bytes;
}

static int open_host(struct sw_service *service, struct sw_tier **ret, void **ret_own, struct sw_err *err) {
    unsigned n_kept = 0;
    uint64_t kept_bytes = 0;
    unsigned n_io_pipes = 0;
    int *io_pipes = NULL;
    struct sw_config *own = sw_alloc(sizeof *own);
    if (!own)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the host tier");
    *own = *service->config;
    *ret_own = own;
    int rc = service->catalogue ? sw_io_pipe_take(service, &io_pipes, &n_io_pipes, err) : 0;
    if (rc)
        return rc;
    struct sw_tier_host_slab *kept = service->catalogue ? take_slabs(service, &n_kept, &kept_bytes) : NULL;
    const struct sw_tier_host_config config = {
        .capacity_bytes = service->config->host_tier_bytes,
        .most_bytes = most_bytes,
        .most_arg = own,
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
        .n_kept = n_kept,
        .io_pipes = io_pipes,
        .n_io_pipes = n_io_pipes};
    rc = sw_tier_host_open(ret, &config, err);
    sw_free(kept);
    sw_free(io_pipes);
    return rc;
}

static uint64_t bytes_of(const struct sw_config *config) {
    return config->host_tier_bytes;
}

const struct sw_tier_row sw_tier_row_host = {
    .kind = &sw_tier_host_kind, .title = "host", .bytes = bytes_of, .open = open_host, .closed = sw_free};

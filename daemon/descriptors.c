#include "daemon/descriptors.h"

#include "base/log.h"
#include "daemon/service.h"
#include "daemon/tiers/tiers.h"
#include "ipc/proto.h"
#include <inttypes.h>
#include <sys/resource.h>

/* The daemon's own (standard streams, loop, driver, the lists of a disk) and those of the packet being processed. */
enum { RESERVED_FDS = 256 + SW_PROTO_MAX_FDS, LEAST_FDS = 128, MOST_FDS = 1 << 20 };

/* This part is for sessions even if all descriptors are reserved: few reserved ones are in use at the same time. */
enum { SESSIONS_DIVISOR = 8 };

void sw_descriptors_share(struct sw_service *service) {
    const uint64_t had = service->n_descriptors, own = RESERVED_FDS + sw_tiers_descriptors(service->config),
                   others = own + service->config->max_sessions, least = had / SESSIONS_DIVISOR;
    const unsigned clients = (unsigned)(had > others + LEAST_FDS ? had - others : LEAST_FDS);
    service->fds.max_closing = clients / 4;
    service->fds.limit = clients - clients / 4;
    const uint64_t room = had > own + LEAST_FDS ? had - own - LEAST_FDS : 0;
    service->fds.max_sessions = (unsigned)(room > least ? room : least);
    if (had <= others + LEAST_FDS)
        sw_log(SW_LOG_WARNING, "descriptors.short",
               "limit=%" PRIu64 " wanted=%" PRIu64
               " sessions=%u then=\"further clients are refused: raise RLIMIT_NOFILE (LimitNOFILE=, ulimit -n)\"",
               had, others + LEAST_FDS, service->fds.max_sessions);
}

void sw_descriptors_take(struct sw_service *service) {
    struct rlimit limit = {.rlim_cur = 1024, .rlim_max = 1024};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max && limit.rlim_cur < MOST_FDS) {
        const rlim_t soft = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max < MOST_FDS ? limit.rlim_max : MOST_FDS;
        if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
            limit.rlim_cur = soft;
    }
    service->n_descriptors = limit.rlim_cur < MOST_FDS ? (unsigned)limit.rlim_cur : MOST_FDS;
    sw_descriptors_share(service);
}

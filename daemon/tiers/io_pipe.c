#include "daemon/tiers/io_pipe.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/fdstore.h"
#include "spill/tier/host/tier_host.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "transfers-"

/* For all of them together: longer than a working disk takes for its pending requests. */
enum { WAIT_US = 10000000, POLL_US = 1000 };

int sw_io_pipe_make(const struct sw_service *service, char ret_name[SW_IO_PIPE_NAME_BYTES]) {
    int ends[2];
    if (!service->catalogue || pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    (void)snprintf(ret_name, SW_IO_PIPE_NAME_BYTES, PREFIX "%" PRIx64, sw_clock_us()); /* used once */
    const bool is_kept = sw_fdstore_keep(ret_name, ends[0]);
    (void)close(ends[0]);
    if (is_kept)
        return ends[1];
    (void)close(ends[1]);
    ret_name[0] = 0;
    return -1;
}

void sw_io_pipe_forget(const char *name) {
    if (name[0])
        sw_fdstore_forget(name);
}

static bool ends_before(int fd, uint64_t deadline_us) {
    while (!sw_tier_io_has_ended(fd)) {
        if (sw_clock_us() >= deadline_us)
            return false;
        (void)usleep(POLL_US);
    }
    return true;
}

int sw_io_pipe_take(struct sw_service *service, int **ret, unsigned *ret_n, struct sw_err *err) {
    const uint64_t deadline_us = sw_clock_us() + WAIT_US;
    char name[SW_IO_PIPE_NAME_BYTES];
    const char *rest;
    *ret = NULL;
    *ret_n = 0;
    for (int fd; (fd = sw_fdstore_take_any(service->fdstore, PREFIX, &rest)) >= 0;) {
        if (ends_before(fd, deadline_us)) {
            (void)close(fd);
            (void)snprintf(name, sizeof name, PREFIX "%s", rest);
            sw_fdstore_forget(name);
            continue;
        }
        int *more = sw_realloc(*ret, (*ret_n + 1) * sizeof **ret);
        if (!more) {
            (void)close(fd);
            while (*ret_n)
                (void)close((*ret)[--*ret_n]);
            sw_free(*ret);
            *ret = NULL;
            return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON,
                              "out of memory for a predecessor's in-flight I/O pipes");
        }
        *ret = more;
        more[(*ret_n)++] = fd;
    }
    if (*ret_n)
        sw_log(SW_LOG_WARNING, "tier.held",
               "tier=host why=\"the disk still works for a process that was killed\" then=\"free space in the memory "
               "that it left is not used until the disk has finished\"");
    return 0;
}

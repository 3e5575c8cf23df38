#include "daemon/control/event_names.h"

#include "base/similar.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
const char *const sw_event_names[] = {
    "accept.failed",
    "catalogue.newer",
    "catalogue.refused",
    "chunks.kept",
    "chunks.too_long",
    "config.needs_restart",
    "config.reload",
    "config.reload_failed",
    "config.set",
    "control.close",
    "control.done",
    "control.failed",
    "control.refused",
    "descriptors.short",
    "device.lost",
    "device.silent",
    "device.skipped",
    "drain.failed",
    "drain.set",
    "fdstore.failed",
    "fdstore.unknown",
    "frame.bad",
    "input.ended",
    "log.left_out",
    "memory.unguarded",
    "metrics.exposed",
    "notify.failed",
    "nvme.encrypted",
    "nvme.key_rewrapped",
    "region.adopted",
    "region.lost",
    "region.not_forgotten",
    "request.failed",
    "restore.done",
    "restore_batch.done",
    "service.ready",
    "service.recovered",
    "service.stopped",
    "service.stopping",
    "session.close",
    "session.open",
    "session.refused",
    "sessions.expired",
    "signal.received",
    "spill.done",
    "spill_batch.done",
    "start.failed",
    "tier.damaged",
    "tier.emptied",
    "tier.exceeds_memory",
    "tier.grow_failed",
    "tier.held",
    "tier.larger_slabs",
    "tier.not_reserved",
    "tier.ready",
    "tier.slab_refused",
    "tier.smaller_chunks",
    "tier.unreadable",
    "users.unmapped",
    NULL,
};
/* clang-format on */

static bool is_known(const char *name, size_t bytes) {
    for (const char *const *known = sw_event_names; *known; known++)
        if (strncmp(*known, name, bytes) == 0 && ((*known)[bytes] == 0 || (*known)[bytes] == '.'))
            return true;
    return false;
}

static int refuse(const char *name, struct sw_err *err) {
    char hint[80];
    struct sw_similar best = {.edits = 0};
    for (const char *const *known = sw_event_names; *known; known++)
        sw_similar_try(&best, name, *known);
    return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "only: there is no event '%s'%s", name,
                      sw_similar_hint(hint, sizeof hint, &best));
}

int sw_event_names_check(const char *only, struct sw_err *err) {
    while (*only) {
        char name[40];
        const size_t bytes = strcspn(only, ",");
        (void)snprintf(name, sizeof name, "%.*s", (int)(bytes < sizeof name ? bytes : sizeof name), only);
        if (bytes && !is_known(only, bytes))
            return refuse(name, err);
        only += bytes + (only[bytes] == ',');
    }
    return 0;
}

#include "daemon/control/control_methods.h"

#include "base/size.h"
#include "daemon/tiers/names.h"
#include "spill/store/ids.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_BYTES (UINT64_C(64) << 40) /* the largest size of a tier */

/* clang-format off */
#define NAME                                                                                                           \
    {"name", SW_PARAM_TEXT, .by_name = true, .max = SW_REGION_NAME_BYTES - 1, .help = "The name of a durable region."},                 \
    {"uid", SW_PARAM_NUMBER, .by_name = true, .max = UINT32_MAX - 1,                                                                    \
     .help = "With name: the region's user. May be omitted if only one user has a region of this name."}
#define REGION                                                                                                         \
    {"region", SW_PARAM_REGION, .help = "The region, as shown by regions: slot:generation. Or give name instead."}, NAME

const struct sw_control_row sw_control_rows[SW_CONTROL_METHOD_NR] = {
    [SW_CONTROL_STATUS] = {"status", SW_CONTROL_READ,
        .help = "Shows what the service is and does: version, state, devices, sessions, regions, use of the tiers. "
                "`scratch_bytes` (scratch in the table) is the device memory that the service holds for its work now, "
                "on all GPUs together; 0 without a GPU. The option of this name, like the line event=service.ready in "
                "the log, is the limit for each GPU."},
    [SW_CONTROL_STATS] = {"stats", SW_CONTROL_READ,
        .help = "Shows totals since the start: operations and bytes by tier and codec, why regions were compressed or "
                "not, errors by name, latencies by stage. A percentile is the upper bound of its histogram bucket. "
                "`client_frame_bytes` is what clients have of gpu_frame_bytes now, on all devices."},
    [SW_CONTROL_SESSIONS] = {"sessions", SW_CONTROL_READ,
        .help = "Shows the connected clients, and for each its stored regions and its operations under way."},
    [SW_CONTROL_TENANTS] = {"tenants", SW_CONTROL_READ,
        .help = "Shows the users (uid) that have sessions or durable regions: what each of them has, in all its "
                "sessions, and its limits. `quota` is the row of the option quotas that applies. A limit of `-` is a "
                "share of what all have, or none: see the tenant_* options."},
    [SW_CONTROL_REGIONS] = {"regions", SW_CONTROL_READ,
        .help = "Lists stored regions, one page at a time. If there may be more, `next` is the cursor of the next "
                "page. A page may be short, or empty, and still have a next one.",
        {{"session", SW_PARAM_NUMBER, .min = 1, .max = UINT32_MAX, .help = "Only regions of this session."},
         {"uid", SW_PARAM_NUMBER, .max = UINT32_MAX, .help = "Only regions of this user (uid)."},
         {"tier", SW_PARAM_CHOICE, .choices = sw_tier_names, .help = "Only regions in this tier."},
         {"state", SW_PARAM_CHOICE, .choices = "staging, encoding, storing, out, restoring, lost",
          .help = "Only regions in this state."},
         {"limit", SW_PARAM_NUMBER, .min = 1, .max = 1000, .help = "Most regions on a page; 100 if omitted."},
         {"cursor", SW_PARAM_NUMBER, .max = UINT32_MAX - 1, .help = "`next` of the previous page."}}},
    [SW_CONTROL_TIERS] = {"tiers", SW_CONTROL_READ,
        .help = "Shows where frames are stored: capacity, use, watermarks, the longest free run. `stores` has what the "
                "object store of a remote tier was asked for: requests, which it may charge for, bytes, errors. `writers`: "
                "single: the bucket lets several requests create one object, so no tenant may be shared between hosts "
                "(remote_tier_tenants)."},
    [SW_CONTROL_SNAPSHOT] = {"snapshot", SW_CONTROL_READ,
        .help = "Prints how full the first tier (host) is, and all stored regions, as a file for spillwayd --dry-run. "
                "spillwayctl collects all pages; on the socket, `next` is the cursor of the next one.",
        {{"cursor", SW_PARAM_NUMBER, .max = UINT32_MAX - 1, .help = "`next` of the previous page."}}},
    [SW_CONTROL_CONFIG_GET] = {"config.get", SW_CONTROL_READ,
        .help = "Shows the configuration that is in force.",
        {{"name", SW_PARAM_TEXT, .max = 48, .help = "Only this option."}}},
    [SW_CONTROL_CONFIG_SET] = {"config.set", SW_CONTROL_ALL,
        .help = "Sets an option that may be changed at run time, until the service ends or reloads its configuration. "
                "An option that needs a restart is refused.",
        {{"name", SW_PARAM_TEXT, .required = true, .max = 48, .help = "The option."},
         {"value", SW_PARAM_VALUE, .required = true, .help = "Its value, as in the configuration file."}}},
    [SW_CONTROL_CONFIG_RELOAD] = {"config.reload", SW_CONTROL_ALL,
        .help = "Reads the configuration files and the command line's options again, as SIGHUP does. Reports "
                "`changed`, the options whose new values are now in force, and `needs_restart`, the options that "
                "differ but keep their old value until a restart. If anything is wrong, nothing changes."},
    [SW_CONTROL_DRAIN] = {"drain", SW_CONTROL_ALL,
        .help = "on: the service accepts no new spills (EDRAINING); restores and drops go on. off: it accepts spills "
                "again. With `to`: it also moves all regions from the tiers before this one to it; if a move fails, "
                "`error` says why, and the rest stays. off ends that as well. Without a parameter: shows whether the "
                "service is draining, and what is still stored.",
        {{"mode", SW_PARAM_CHOICE, .choices = "on, off", .help = "What to do; on if `to` is given."},
         {"to", SW_PARAM_CHOICE, .by_name = true, .choices = sw_tier_names,
          .help = "Where regions are to go: nvme, remote. spillwayctl waits until they are there, and shows a bar on a "
                  "terminal."}}},
    [SW_CONTROL_SPILL] = {"spill", SW_CONTROL_ALL,
        .help = "Makes room in the first tier (host): begins to move regions to a tier behind it (nvme), in the order "
                "in which they would leave by themselves, until about this many stored bytes have left. With a name "
                "instead of bytes: the durable region of this name, like demote. (It does not free GPU memory, which "
                "only a client can spill.)",
        {{"bytes", SW_PARAM_BYTES, .min = 1, .max = MAX_BYTES, .help = "How much room to make."}, NAME}},
    [SW_CONTROL_DEMOTE] = {"demote", SW_CONTROL_ALL,
        .help = "Begins to move a region from the first tier (host) to one behind it (nvme); regions shows when it has "
                "arrived.",
        {REGION}},
    [SW_CONTROL_PROMOTE] = {"promote", SW_CONTROL_ALL,
        .help = "Begins to move a region back to the first tier (host); regions shows when it has arrived.",
        {REGION}},
    [SW_CONTROL_DROP] = {"drop", SW_CONTROL_ALL,
        .help = "Removes a region and frees its space. Its bytes are lost, and its client gets ESTALE when it asks for "
                "them.",
        {REGION}},
    [SW_CONTROL_REMOTE_GC] = {"remote.gc", SW_CONTROL_ALL,
        .help = "Looks for orphans in the object store of the remote tier: objects that no region has, left by a "
                "service that was killed, or by deletions that failed. find: begins to count them, and changes "
                "nothing. remove: begins to delete them. Without a mode: shows how far it is, or its last result.",
        {{"mode", SW_PARAM_CHOICE, .choices = "find, remove", .help = "What to do. Try find first."}}},
    [SW_CONTROL_REMOTE_REWRAP] = {"remote.rewrap", SW_CONTROL_ALL,
        .help = "After a new master key was put first (remote_tier_keys): has the keys of all objects wrapped by it. No "
                "object's body is sent again. Afterwards the old master key is no longer needed. find: begins to count "
                "objects of older master keys. replace: begins to wrap their keys. Without a mode: shows how far it "
                "is, or its last result.",
        {{"mode", SW_PARAM_CHOICE, .choices = "find, replace", .help = "What to do."}}},
    [SW_CONTROL_LOG_LEVEL] = {"log.level", SW_CONTROL_ALL,
        .help = "Sets which log lines are printed, like the option log_level; without a level, shows the present one.",
        {{"level", SW_PARAM_CHOICE, .choices = "error, warning, info, debug",
          .help = "The least important level to print."}}},
    [SW_CONTROL_EVENTS] = {"events", SW_CONTROL_READ,
        .help = "Sends events to this connection as they happen, as notifications `event`: the log lines of level info "
                "and above, and the lines of each spill and restore, whatever log_level prints. Slow readers get a "
                "count of the events they missed, as `dropped`.",
        {{"only", SW_PARAM_TEXT, .max = 256,
          .help = "Only events of these names, separated by commas. The part of a name before a dot stands for all "
                "events that begin so: session,spill.done"},
         {"mode", SW_PARAM_CHOICE, .choices = "on, off", .help = "on if omitted; off: send no more events."}},
        .sets_up = true},
    [SW_CONTROL_METRICS] = {"metrics", SW_CONTROL_READ,
        .help = "Prints all statistics in Prometheus' text format, as one string."},
};
/* clang-format on */

const struct sw_control_row *sw_control_find(const char *name) {
    for (size_t i = 0; i < SW_CONTROL_METHOD_NR; i++)
        if (strcmp(sw_control_rows[i].name, name) == 0)
            return &sw_control_rows[i];
    return NULL;
}

const char *sw_param_describe(char *ret, size_t ret_bytes, const struct sw_param *param) {
    char min[24], max[24];
    switch (param->type) {
    case SW_PARAM_BYTES:
        (void)snprintf(ret, ret_bytes, "a size from %s to %s", sw_size_format(min, sizeof min, param->min),
                       sw_size_format(max, sizeof max, param->max));
        break;
    case SW_PARAM_NUMBER:
        (void)snprintf(ret, ret_bytes, "a whole number from %" PRIu64 " to %" PRIu64, param->min, param->max);
        break;
    case SW_PARAM_TEXT:
        (void)snprintf(ret, ret_bytes, "a string of 1 to %" PRIu64 " bytes", param->max);
        break;
    case SW_PARAM_CHOICE:
        (void)snprintf(ret, ret_bytes, "one of %s", param->choices);
        break;
    case SW_PARAM_REGION:
        (void)snprintf(ret, ret_bytes, "a region such as \"7:3\"");
        break;
    case SW_PARAM_VALUE:
        (void)snprintf(ret, ret_bytes, "a string, a number, a boolean or a list");
        break;
    }
    return ret;
}

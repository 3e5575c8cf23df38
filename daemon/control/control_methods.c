#include "daemon/control/control_methods.h"

#include "base/size.h"
#include "daemon/tiers/names.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_BYTES (UINT64_C(64) << 40) /* of a tier */

/* clang-format off */
#define REGION {"region", SW_PARAM_REGION, .required = true, .help = "The region, as regions shows it: slot:generation."}

const struct sw_control_row sw_control_rows[SW_CONTROL_METHOD_NR] = {
    [SW_CONTROL_STATUS] = {"status", SW_CONTROL_READ,
        .help = "What the service is and does: version, state, devices, sessions, regions, use of the tiers. "
                "`scratch_bytes` (scratch in the table) is the device memory that it holds for its work now, on all GPUs together, 0 "
                "without a GPU; the option of this name, like the log line event=ready, tells the bound for each GPU."},
    [SW_CONTROL_STATS] = {"stats", SW_CONTROL_READ,
        .help = "Totals since the start: operations and bytes by tier and codec, why regions were compressed or not, "
                "errors by name, latencies by stage. Of percentiles, the upper bound of the histogram's bucket is "
                "told."},
    [SW_CONTROL_SESSIONS] = {"sessions", SW_CONTROL_READ,
        .help = "The clients that are connected, and what each of them has stored and under way."},
    [SW_CONTROL_REGIONS] = {"regions", SW_CONTROL_READ,
        .help = "Stored regions, a page at a time: if there may be more, `next` is the cursor of the next page. A "
                "page may be short, or empty, and still have a next one.",
        {{"session", SW_PARAM_NUMBER, .min = 1, .max = UINT32_MAX, .help = "Only those of this session."},
         {"uid", SW_PARAM_NUMBER, .max = UINT32_MAX, .help = "Only those of this user."},
         {"tier", SW_PARAM_CHOICE, .choices = sw_tier_names, .help = "Only those in this tier."},
         {"state", SW_PARAM_CHOICE, .choices = "staging, encoding, storing, out, restoring, lost",
          .help = "Only those in this state."},
         {"limit", SW_PARAM_NUMBER, .min = 1, .max = 1000, .help = "Most regions of a page; 100 if it is left out."},
         {"cursor", SW_PARAM_NUMBER, .max = UINT32_MAX - 1, .help = "`next` of the page before."}}},
    [SW_CONTROL_TIERS] = {"tiers", SW_CONTROL_READ,
        .help = "Where frames are parked: capacity, use, watermarks, the longest free run."},
    [SW_CONTROL_CONFIG_GET] = {"config.get", SW_CONTROL_READ,
        .help = "The configuration that is in force.",
        {{"name", SW_PARAM_TEXT, .max = 48, .help = "One option only."}}},
    [SW_CONTROL_CONFIG_SET] = {"config.set", SW_CONTROL_ALL,
        .help = "Sets one option of those that may be changed at run time, until the service ends or reloads. An "
                "option that needs a restart is refused.",
        {{"name", SW_PARAM_TEXT, .required = true, .max = 48, .help = "The option."},
         {"value", SW_PARAM_VALUE, .required = true, .help = "Its value, as in the configuration file."}}},
    [SW_CONTROL_CONFIG_RELOAD] = {"config.reload", SW_CONTROL_ALL,
        .help = "Reads the configuration files and the command line's options again, as SIGHUP does. Reports "
                "`changed`, the options whose new values are now in force, and `needs_restart`, the options that "
                "differ but keep their old value until a restart. If anything is wrong, nothing changes."},
    [SW_CONTROL_DRAIN] = {"drain", SW_CONTROL_ALL,
        .help = "on: no new spills are accepted (EDRAINING), restores and drops go on; off: spills are accepted "
                "again. With no mode: shows whether the service is draining, and what is still stored.",
        {{"mode", SW_PARAM_CHOICE, .choices = "on, off", .help = "What to do."}}},
    [SW_CONTROL_SPILL] = {"spill", SW_CONTROL_ALL,
        .help = "Makes room in the first tier: begins to move regions to one behind, those first that would leave by "
                "themselves, until about so many stored bytes have left. (GPU memory is its client's to spill.)",
        {{"bytes", SW_PARAM_BYTES, .required = true, .min = 1, .max = MAX_BYTES, .help = "How much."}}},
    [SW_CONTROL_DEMOTE] = {"demote", SW_CONTROL_ALL,
        .help = "Begins to move a region from the first tier (host) to one behind (nvme); regions shows when it is there.",
        {REGION}},
    [SW_CONTROL_PROMOTE] = {"promote", SW_CONTROL_ALL,
        .help = "Begins to move a region back to the first tier (host); regions shows when it is there.",
        {REGION}},
    [SW_CONTROL_DROP] = {"drop", SW_CONTROL_ALL,
        .help = "Forgets a region and frees its space. Its bytes are gone, and its client is told ESTALE when it asks "
                "for them.",
        {REGION}},
    [SW_CONTROL_LOG_LEVEL] = {"log.level", SW_CONTROL_ALL,
        .help = "Sets which log lines are printed, like the option log_level; without a level, tells it.",
        {{"level", SW_PARAM_CHOICE, .choices = "error, warning, info, debug", .help = "The least important ones."}}},
    [SW_CONTROL_EVENTS] = {"events", SW_CONTROL_READ,
        .help = "Tells this connection of events as they happen, by notifications `event`: the log lines of level "
                "info and above, and those of each spill and restore, whatever log_level prints. Slow readers get a "
                "count of the events they missed, by `dropped`.",
        {{"only", SW_PARAM_TEXT, .max = 256,
          .help = "Only events of these names, separated by commas; a name's beginning up to a dot will do: "
                "session,spill.done"},
         {"mode", SW_PARAM_CHOICE, .choices = "on, off", .help = "on, if it is left out; off: no more."}},
        .sets_up = true},
    [SW_CONTROL_METRICS] = {"metrics", SW_CONTROL_READ,
        .help = "All figures in Prometheus' text format, as one string."},
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
        (void)snprintf(ret, ret_bytes, "a string, a number or a boolean");
        break;
    }
    return ret;
}

#include "spill/job.h"

const char *sw_job_kind_name(enum sw_job_kind kind) {
    static const char *const names[] = {"spill", "restore",  "pack",      "unpack", "map",
                                        "unmap", "demotion", "promotion", "canary"};
    return names[kind];
}

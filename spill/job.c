#include "spill/job.h"

const char *sw_job_kind_name(enum sw_job_kind kind) {
    static const char *const names[SW_JOB_KIND_NR] = {
        [SW_JOB_SPILL] = "spill",     [SW_JOB_RESTORE] = "restore",   [SW_JOB_PACK] = "pack",
        [SW_JOB_UNPACK] = "unpack",   [SW_JOB_MAP] = "map",           [SW_JOB_UNMAP] = "unmap",
        [SW_JOB_DEMOTE] = "demotion", [SW_JOB_PROMOTE] = "promotion", [SW_JOB_CANARY] = "canary"};
    return names[kind];
}

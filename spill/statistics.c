#include "spill/statistics.h"

static const char *const kinds[SW_OP_KIND_NR] = {"spill", "restore"};
static const char *const stages[SW_OP_STAGE_NR] = {"wait", "plan", "move", "whole"};
static const uint64_t bounds_us[SW_HISTOGRAM_BUCKETS] = {
    50,    100,    250,    500,    1000,    2500,    5000,    10000,    25000,
    50000, 100000, 250000, 500000, 1000000, 2500000, 5000000, 10000000, UINT64_MAX,
};

const char *sw_op_kind_name(enum sw_op_kind kind) {
    return kinds[kind];
}

const char *sw_op_stage_name(enum sw_op_stage stage) {
    return stages[stage];
}

uint64_t sw_histogram_bound_us(unsigned i) {
    return bounds_us[i];
}

static void note_latency(struct sw_histogram *histogram, uint64_t us) {
    unsigned i = histogram->last;
    while (i > 0 && us <= bounds_us[i - 1])
        i--;
    while (us > bounds_us[i])
        i++;
    histogram->last = i;
    histogram->buckets[i]++;
    histogram->count++;
    histogram->sum_us += us;
}

uint64_t sw_histogram_percentile_us(const struct sw_histogram *histogram, unsigned pct) {
    uint64_t seen = 0;
    for (unsigned i = 0; i < SW_HISTOGRAM_BUCKETS && histogram->count; i++) {
        seen += histogram->buckets[i];
        if (seen * 100 >= histogram->count * pct)
            return bounds_us[i];
    }
    return 0;
}

void sw_op_statistics_note(struct sw_op_statistics *statistics, const struct sw_ended_op *op) {
    struct sw_flow *flow = &statistics->flows[op->kind][op->tier][op->codec];
    flow->operations++;
    flow->raw_bytes += op->raw_bytes;
    flow->stored_bytes += op->stored_bytes;
    for (unsigned stage = 0; stage < SW_OP_STAGE_NR; stage++)
        note_latency(&statistics->latency[op->kind][stage], op->us[stage]);
}

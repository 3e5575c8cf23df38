#include "spill/planner/rules.h"

#define CHUNK_ALIGN_BYTES (32u << 10)
#define MIN_CHUNK_BYTES (4u << 20) /* below, launch and table (2.3 KB) start to show */
#define OBJECT_CHUNK_BYTES ((uint64_t)32 << 20)
#define CHUNKS_PER_SLOT 2 /* one is encoded while another is copied */
#define DRIFT 0.85        /* of the expected ratio; sampling noise stays well above */
#define DRIFT_BESIDE 0.93 /* plans with a dictionary expect 1 to 5 % less than they reach (codec/onpair/TUNING.md) */
#define MIN_SEGMENT_LOG2 8
#define MIN_JUDGED_BYTES 4096 /* of fewer bytes, padding and chance decide the ratio */
#define MOST_JUDGED_RATIO 64  /* above, header and records decide: numbers that are all equal take no data */
#define MIN_REST_CHUNKS 2
#define MAX_RETRAINED 16 /* training takes milliseconds: data that defy sampling must not be sampled for ever */

uint64_t sw_rules_chunk_bytes(uint64_t raw_bytes, uint64_t device_chunk_bytes, unsigned n_slots) {
    const uint64_t n_chunks = (uint64_t)n_slots * CHUNKS_PER_SLOT;
    uint64_t bytes = (raw_bytes + n_chunks - 1) / n_chunks;
    bytes = (bytes + CHUNK_ALIGN_BYTES - 1) / CHUNK_ALIGN_BYTES * CHUNK_ALIGN_BYTES;
    if (bytes < MIN_CHUNK_BYTES)
        bytes = MIN_CHUNK_BYTES;
    return bytes < device_chunk_bytes ? bytes : device_chunk_bytes;
}

uint64_t sw_rules_object_chunk_bytes(uint64_t chunk_bytes, uint64_t device_chunk_bytes) {
    const uint64_t bytes = chunk_bytes > OBJECT_CHUNK_BYTES ? chunk_bytes : OBJECT_CHUNK_BYTES;
    return bytes < device_chunk_bytes ? bytes : device_chunk_bytes;
}

unsigned sw_rules_segment_log2(uint64_t chunk_bytes, uint32_t full_segments, unsigned max_log2) {
    unsigned log2 = max_log2;
    while (log2 > MIN_SEGMENT_LOG2 && chunk_bytes >> log2 < full_segments)
        log2--;
    return log2;
}

static double at_most(double a, double b) {
    return a < b ? a : b;
}

/* Returns true if a ratio is below, or, if has_others, above the expected one by more than `drift` allows. */
static bool drifts(double expected_ratio, uint64_t raw_bytes, uint64_t data_bytes, bool has_others, double drift) {
    if (raw_bytes < MIN_JUDGED_BYTES)
        return false;
    const double ratio = at_most((double)raw_bytes / (double)data_bytes, MOST_JUDGED_RATIO);
    expected_ratio = at_most(expected_ratio, MOST_JUDGED_RATIO);
    return ratio < drift * expected_ratio || (has_others && ratio * drift > expected_ratio);
}

bool sw_rules_plan_is_stale(double expected_ratio, uint64_t raw_bytes, uint64_t data_bytes, bool has_others) {
    return drifts(expected_ratio, raw_bytes, data_bytes, has_others, DRIFT);
}

bool sw_rules_retrain(const struct sw_rules_drift *drift) {
    if (drift->rest_bytes < MIN_REST_CHUNKS * drift->chunk_bytes || drift->n_retrained >= MAX_RETRAINED)
        return false;
    return drifts(drift->expected_ratio, drift->raw_bytes, drift->data_bytes, false,
                  drift->is_beside ? DRIFT_BESIDE : DRIFT);
}

bool sw_rules_is_early(const struct sw_rules_stages *stages) {
    return stages->first_s < stages->second_s;
}

bool sw_rules_goes_before(const struct sw_rules_stages *a, const struct sw_rules_stages *b) {
    const bool a_early = sw_rules_is_early(a), b_early = sw_rules_is_early(b);
    if (a_early != b_early)
        return a_early;
    return a_early ? a->first_s < b->first_s : a->second_s > b->second_s;
}

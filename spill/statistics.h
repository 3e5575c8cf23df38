/* statistics.h - counts what operations have moved and how long they took, by tier, codec and stage.
 *
 * The totals only grow. They count operations that ended well; each region of a batch is one. thread: loop. */
#ifndef SW_SPILL_STATISTICS_H
#define SW_SPILL_STATISTICS_H

#include "codec/codec.h"
#include "spill/tier/tiers.h"
#include <stdint.h>

enum sw_op_kind { SW_OP_KIND_SPILL, SW_OP_KIND_RESTORE, SW_OP_KIND_NR };
enum { SW_STATISTICS_PACKED = SW_TIERS_MAX, SW_STATISTICS_TIER_NR }; /* tiers go by rank; packed regions are in none */
/* WAIT: until the memory was mapped. PLAN: sampling and planning of a spill. MOVE: the rest. WHOLE: all of them. */
enum sw_op_stage { SW_OP_STAGE_WAIT, SW_OP_STAGE_PLAN, SW_OP_STAGE_MOVE, SW_OP_STAGE_WHOLE, SW_OP_STAGE_NR };
/* The bounds go from 50 us to 10 s in steps of 1, 2.5, 5, 10. The last bucket counts operations that took longer. */
enum { SW_HISTOGRAM_BUCKETS = 18 };

struct sw_histogram {
    uint64_t buckets[SW_HISTOGRAM_BUCKETS]; /* not cumulative */
    uint64_t count, sum_us;
    unsigned last; /* bucket that was counted last: the next one is mostly near it */
};
struct sw_flow {
    uint64_t operations, raw_bytes, stored_bytes;
};
struct sw_op_statistics {
    struct sw_flow flows[SW_OP_KIND_NR][SW_STATISTICS_TIER_NR][SW_CODEC_NR];
    struct sw_histogram latency[SW_OP_KIND_NR][SW_OP_STAGE_NR];
};

struct sw_ended_op {
    enum sw_op_kind kind;
    unsigned tier; /* rank, or SW_STATISTICS_PACKED */
    enum sw_codec_id codec;
    uint64_t raw_bytes, stored_bytes;
    uint64_t us[SW_OP_STAGE_NR];
};
/* Counts an operation that has ended well. */
void sw_op_statistics_note(struct sw_op_statistics *statistics, const struct sw_ended_op *op);

const char *sw_op_kind_name(enum sw_op_kind kind);
const char *sw_op_stage_name(enum sw_op_stage stage);
/* Returns the longest duration that bucket i counts; UINT64_MAX for the last one. */
uint64_t sw_histogram_bound_us(unsigned i);
/* Returns the bound of the bucket that has the pct-th percentile, so the percentile is at most that. Returns 0 if the
 * histogram is empty. */
uint64_t sw_histogram_percentile_us(const struct sw_histogram *histogram, unsigned pct);

#endif

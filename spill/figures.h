/* figures.h - what operations have moved and how long they took, for whoever watches the service: by tier, codec and
 * stage, since the start.
 *
 * Totals that only grow. Of operations that ended well; a piece of a batch is one. thread: loop. */
#ifndef SW_SPILL_FIGURES_H
#define SW_SPILL_FIGURES_H

#include "codec/codec.h"
#include "spill/tier/tiers.h"
#include <stdint.h>

enum sw_figures_kind { SW_FIGURES_SPILL, SW_FIGURES_RESTORE, SW_FIGURES_KIND_NR };
enum { SW_FIGURES_PACKED = SW_TIERS_MAX, SW_FIGURES_TIER_NR }; /* tiers go by rank; packed regions are in none */
/* WAIT: until the memory was mapped. PLAN: sample and plan of a spill. MOVE: the rest. WHOLE: all of them. */
enum sw_figures_stage { SW_FIGURES_WAIT, SW_FIGURES_PLAN, SW_FIGURES_MOVE, SW_FIGURES_WHOLE, SW_FIGURES_STAGE_NR };
/* From 50 us to 10 s in steps of 1, 2.5, 5, 10; the last one has what took longer. */
enum { SW_FIGURES_BUCKETS = 18 };

struct sw_histogram {
    uint64_t buckets[SW_FIGURES_BUCKETS]; /* those of that duration, not of shorter ones */
    uint64_t count, sum_us;
};
struct sw_flow {
    uint64_t operations, raw_bytes, stored_bytes;
};
struct sw_figures {
    struct sw_flow flows[SW_FIGURES_KIND_NR][SW_FIGURES_TIER_NR][SW_CODEC_NR];
    struct sw_histogram latency[SW_FIGURES_KIND_NR][SW_FIGURES_STAGE_NR];
};

struct sw_figures_op {
    enum sw_figures_kind kind;
    unsigned tier; /* rank, or SW_FIGURES_PACKED */
    enum sw_codec_id codec;
    uint64_t raw_bytes, stored_bytes;
    uint64_t us[SW_FIGURES_STAGE_NR];
};
void sw_figures_note(struct sw_figures *figures, const struct sw_figures_op *op);

const char *sw_figures_kind_name(enum sw_figures_kind kind);
const char *sw_figures_stage_name(enum sw_figures_stage stage);
/* Longest duration that bucket i holds; UINT64_MAX for the last one. */
uint64_t sw_histogram_bound_us(unsigned i);
/* The bound of the bucket that has the pct-th percentile, so the real one is at most that; 0: nothing was noted. */
uint64_t sw_histogram_percentile_us(const struct sw_histogram *histogram, unsigned pct);

#endif

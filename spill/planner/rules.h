/* rules.h - lengths of chunks and segments, the order of buffers, and what a frame says of its plan. Pure: no clock, no
 * lock, no allocation, no device. Same input, same answer. */
#ifndef SW_SPILL_RULES_H
#define SW_SPILL_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Chunk length for a region: short enough that every slot gets work, long enough that a chunk is worth a launch; a
 * multiple of 32 KiB, at most device_chunk_bytes. */
uint64_t sw_rules_chunk_bytes(uint64_t raw_bytes, uint64_t device_chunk_bytes, unsigned n_slots);

/* Segment length (log2) for chunks of chunk_bytes on a device that is busy with full_segments of them at once: short
 * segments where there are too few, although they cost ratio (512 bytes instead of 1024: 1.4 %, codec/v5t/TUNING.md).
 * max_log2 is what a long region gets. */
unsigned sw_rules_segment_log2(uint64_t chunk_bytes, uint32_t full_segments, unsigned max_log2);

/* True if a plan that promised expected_ratio of data sections made one of raw_bytes so long that the plan is not for
 * these bytes, or, if there are other codecs for them (numbers), so short that another one may make it shorter still.
 * Of a few bytes that cannot be told. */
bool sw_rules_plan_is_stale(double expected_ratio, uint64_t raw_bytes, uint64_t data_bytes, bool has_others);

/* What something takes in two stages that it has to go through, one after the other. */
struct sw_rules_stages {
    double first_s, second_s;
};
/* Of several of which each stage takes one at a time: true if a should go before b, so that the last one is through
 * soonest. Johnson's rule for a flow shop of two machines (S. M. Johnson, Optimal two- and three-stage production
 * schedules with setup times included, 1954): what is shorter in the first stage goes first, the shortest there before
 * the others; then the rest, the longest in the second stage before the others. A strict order; equal: false. */
bool sw_rules_goes_before(const struct sw_rules_stages *a, const struct sw_rules_stages *b);
/* By the same rule: true of what goes before the rest since it is shorter in the first stage. */
bool sw_rules_is_early(const struct sw_rules_stages *stages);

/* What became of the chunk that was just encoded. */
struct sw_rules_drift {
    double expected_ratio;            /* of data sections by the plan it was encoded with; 1 for raw */
    uint64_t raw_bytes, data_bytes;   /* of the chunk */
    uint64_t rest_bytes, chunk_bytes; /* not yet dealt; chunk length of the region */
    unsigned n_retrained;             /* times this region has been sampled anew */
};
/* True if the data have drifted so far from the sample that a new table for the rest should pay. */
bool sw_rules_retrain(const struct sw_rules_drift *drift);

#endif

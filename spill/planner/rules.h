/* rules.h - lengths of chunks and segments, the order of buffers, and whether a frame matches its plan. Pure: no clock,
 * no lock, no allocation, no device. Same input, same answer. */
#ifndef SW_SPILL_RULES_H
#define SW_SPILL_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the chunk length for a region: short enough that every slot gets work, long enough to be worth a launch; a
 * multiple of 32 KiB, at most device_chunk_bytes. */
uint64_t sw_rules_chunk_bytes(uint64_t raw_bytes, uint64_t device_chunk_bytes, unsigned n_slots);

/* Returns the chunk length for a region whose frames become objects of a store: at least 32 MiB, which text shrinks to
 * about 8, if the region and device_chunk_bytes are so long; a multiple of 32 KiB. chunk_bytes: from the rule above. */
uint64_t sw_rules_object_chunk_bytes(uint64_t chunk_bytes, uint64_t device_chunk_bytes);

/* Returns the segment length (log2) for chunks of chunk_bytes on a device that full_segments keep busy. Where there are
 * too few segments they are made shorter, although this costs ratio (512 bytes instead of 1024: 1.4 %,
 * codec/v5t/TUNING.md). max_log2 is the length for a long region. */
unsigned sw_rules_segment_log2(uint64_t chunk_bytes, uint32_t full_segments, unsigned max_log2);

/* Returns true if a plan does not match the bytes of the frame it made: the frame's data section is clearly longer than
 * expected_ratio says, or, if other codecs exist for the bytes (has_others: numbers), so much shorter that another
 * codec may make it shorter still. Too few bytes cannot be judged: false. */
bool sw_rules_plan_is_stale(double expected_ratio, uint64_t raw_bytes, uint64_t data_bytes, bool has_others);

/* The times that one buffer takes in two stages, which it goes through one after the other. */
struct sw_rules_stages {
    double first_s, second_s;
};
/* Returns true if a should go before b, so that all buffers are through both stages soonest; each stage takes one
 * buffer at a time. Johnson's rule for a flow shop of two machines (S. M. Johnson, Optimal two- and three-stage
 * production schedules with setup times included, 1954): buffers that are shorter in the first stage go first, in
 * rising order of the first stage; the others follow, in falling order of the second stage. A strict order; equal:
 * false. */
bool sw_rules_goes_before(const struct sw_rules_stages *a, const struct sw_rules_stages *b);
/* Returns true if, by the same rule, it belongs to the first group because it is shorter in the first stage. */
bool sw_rules_is_early(const struct sw_rules_stages *stages);

/* The chunk that was just encoded. */
struct sw_rules_drift {
    double expected_ratio;            /* expected for data sections by the plan that encoded it; 1 for raw */
    uint64_t raw_bytes, data_bytes;   /* of the chunk */
    uint64_t rest_bytes, chunk_bytes; /* not dealt yet; the region's chunk length */
    unsigned n_retrained;             /* how often this region was sampled again */
    bool is_beside;                   /* no chunk would wait for the new table: a smaller drift counts */
};
/* Returns true if the data have drifted so far from the sample that a new table should pay for the rest. */
bool sw_rules_retrain(const struct sw_rules_drift *drift);

#endif

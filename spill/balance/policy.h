/* policy.h - who has to leave the host tier. Pure: no clock, no lock, no allocation, no device. Same input, same
 * answer. */
#ifndef SW_SPILL_POLICY_H
#define SW_SPILL_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A region, as far as it matters for who has to leave the host tier. */
struct sw_policy_candidate {
    size_t index; /* the caller's */
    uint64_t stored_bytes, used_us;
    unsigned priority;
    bool pinned;
    bool rests; /* in the host tier, and nothing is done with it */
};
/* The host tier, as far as it is for frames at rest. */
struct sw_policy_level {
    uint64_t used_bytes, limit_bytes;
    unsigned high_pct, low_pct;
    bool moving; /* it has been above high and not yet down at low */
};
/* A watermark: so much of a limit, to 100 bytes, so that nothing overflows. */
uint64_t sw_policy_mark_bytes(uint64_t limit_bytes, unsigned pct);
/* Bytes that have to leave it now; 0: none. */
uint64_t sw_policy_excess_bytes(const struct sw_policy_level *level);
/* Positions of those to be moved, of the lowest priority first and among them the least recently used, until they hold
 * the excess or there are max of them. Returns how many. */
size_t sw_policy_victims(const struct sw_policy_level *level, const struct sw_policy_candidate *all, size_t n,
                         size_t *ret, size_t max);

#endif

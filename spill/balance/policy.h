/* policy.h - which regions leave the host tier. Pure: no clock, no lock, no allocation, no device. Same input, same
 * answer. */
#ifndef SW_SPILL_POLICY_H
#define SW_SPILL_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The facts about a region that decide whether it leaves the host tier. */
struct sw_policy_candidate {
    size_t index; /* the caller's */
    uint64_t stored_bytes, used_us;
    unsigned priority;
    bool pinned;
    bool rests; /* it is in the host tier, and no operation uses it */
};
/* The state of the host tier's room for frames at rest. */
struct sw_policy_level {
    uint64_t used_bytes, limit_bytes;
    unsigned high_pct, low_pct;
    bool moving; /* it has exceeded the high watermark and not reached the low one yet */
};
/* Returns a watermark, a percentage of a limit, exact to 100 bytes, so that nothing overflows. */
uint64_t sw_policy_mark_bytes(uint64_t limit_bytes, unsigned pct);
/* Returns the bytes that have to leave the tier now; 0: none. */
uint64_t sw_policy_excess_bytes(const struct sw_policy_level *level);
/* Gets the indices of the regions to move: lowest priority first, among them the least recently used, until they hold
 * the excess or there are `max` of them, at least 1. Returns how many; ret is overwritten. */
size_t sw_policy_victims(const struct sw_policy_level *level, const struct sw_policy_candidate *all, size_t n,
                         size_t *ret, size_t max);

#endif

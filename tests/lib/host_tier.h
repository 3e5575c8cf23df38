/* host_tier.h - opens a host tier, and waits for what its thread does.
 *
 * What does not fit fails the test. thread: any. */
#ifndef SW_TEST_HOST_TIER_H
#define SW_TEST_HOST_TIER_H

#include "spill/tier/host/tier_host.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define MIB ((uint64_t)1 << 20)

static inline struct sw_tier_stats stats_of(struct sw_tier *tier) {
    struct sw_tier_stats stats;
    tier->ops->stats(tier, &stats);
    return stats;
}

/* Runs until the condition, on the tier's figures as `s`, holds; the test's time limit ends it otherwise. */
#define UNTIL(tier, condition)                                                                                         \
    for (struct sw_tier_stats s; s = stats_of(tier), (void)s, !(condition);)                                           \
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL)

/* Mappings of arena slabs in this process. */
static inline unsigned count_slabs(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned n = 0;
    ck_assert_ptr_nonnull(maps);
    while (fgets(line, sizeof line, maps))
        n += strstr(line, "spillway-arena") != NULL;
    (void)fclose(maps);
    return n;
}

#endif

/* sound.h - whether a daemon is as sound as before: it still serves a round trip, and its counts are back.
 *
 * thread: any. */
#ifndef SW_TEST_SOUND_H
#define SW_TEST_SOUND_H

#include "tests/lib/spillwayd.h"
#include <stddef.h>
#include <stdint.h>

struct sw_sound {
    unsigned fds, sessions, regions;
    uint64_t tier_used_bytes, mapped_memories;
};

/* Spills, wipes, restores and compares `bytes` of seeded text over a connection of its own. Returns NULL, or the
 * failure. */
const char *sw_sound_round_trip(const struct sw_test_daemon *daemon, size_t bytes, uint64_t seed);
/* Counts now, seen over a connection of its own (which counts itself). */
void sw_sound_take(const struct sw_test_daemon *daemon, struct sw_sound *ret);
/* A round trip, then the counts, which get some seconds to settle. Returns NULL, or the failure. */
const char *sw_sound_check(const struct sw_test_daemon *daemon, const struct sw_sound *before);

#endif

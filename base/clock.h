/* clock.h - monotonic time in microseconds. thread: any. */
#ifndef SW_BASE_CLOCK_H
#define SW_BASE_CLOCK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the monotonic time. */
uint64_t sw_clock_us(void);

/* Replaces the clock, for tests with virtual time; NULL: the system's clock again. All threads use `now_us`, which
 * must not go back. */
void sw_clock_set(uint64_t (*now_us)(void));

#ifdef __cplusplus
}
#endif
#endif

/* clock.h - monotonic time in microseconds. thread: any. */
#ifndef SW_BASE_CLOCK_H
#define SW_BASE_CLOCK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

uint64_t sw_clock_us(void);

/* For tests whose time is virtual: all threads take it from `now_us`, which must not go back, until NULL is set. */
void sw_clock_set(uint64_t (*now_us)(void));

#ifdef __cplusplus
}
#endif
#endif

/* log_limit.h - how many lines of a kind are written, where whoever causes them can do so as often as it likes.
 *
 * So many lines in ten seconds are written; of those that are left out the next one that is written says how many. All
 * zero: none was written. thread: whoever owns it. */
#ifndef SW_BASE_LOG_LIMIT_H
#define SW_BASE_LOG_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

enum { SW_LOG_LIMIT_US = 10000000 };

struct sw_log_limit {
    uint64_t begin_us;
    unsigned n, n_left_out;
};

/* Whether a line may be written, of `most` in SW_LOG_LIMIT_US; *ret_left_out: how many were not since the last one that
 * was, 0 if this one is not. */
bool sw_log_limit_allows(struct sw_log_limit *limit, unsigned most, unsigned *ret_left_out);

#endif

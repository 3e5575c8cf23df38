/* log_limit.h - limits the rate of log lines that a client can cause as often as it likes.
 *
 * Only so many lines of a kind are written in ten seconds. The next line that is written reports how many were left
 * out. All zero: no line was written yet. thread: one at a time. */
#ifndef SW_BASE_LOG_LIMIT_H
#define SW_BASE_LOG_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

enum { SW_LOG_LIMIT_US = 10000000 };

struct sw_log_limit {
    uint64_t begin_us;
    unsigned n, n_left_out;
};

/* Returns whether a line may be written now, if at most `most` lines are written in SW_LOG_LIMIT_US. *ret_left_out: how
 * many lines were left out since the last line that was written; 0 if this line is left out, too. */
bool sw_log_limit_allows(struct sw_log_limit *limit, unsigned most, unsigned *ret_left_out);

#endif

#include "base/log_limit.h"

#include "base/clock.h"

bool sw_log_limit_allows(struct sw_log_limit *limit, unsigned most, unsigned *ret_left_out) {
    const uint64_t now = sw_clock_us();
    *ret_left_out = 0;
    if (!limit->begin_us || now - limit->begin_us >= SW_LOG_LIMIT_US) {
        limit->begin_us = now;
        limit->n = 0;
    }
    if (limit->n >= most) {
        limit->n_left_out++;
        return false;
    }
    limit->n++;
    *ret_left_out = limit->n_left_out;
    limit->n_left_out = 0;
    return true;
}

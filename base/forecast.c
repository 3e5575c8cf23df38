#include "base/forecast.h"

#define STEADY_PARTS 16 /* a sixteenth more or less is as long */

static uint64_t scaled_us(const struct sw_forecast *f, uint64_t bytes) {
    if (f->us == 0 || bytes < f->bytes / 2 || bytes / 2 > f->bytes)
        return 0;
    return (uint64_t)((double)f->us * (double)bytes / (double)f->bytes);
}

void sw_forecast_note(struct sw_forecast *f, uint64_t bytes, uint64_t us) {
    const uint64_t expected_us = scaled_us(f, bytes), most_off_us = expected_us / STEADY_PARTS + SW_FORECAST_LATE_US;
    f->is_steady = expected_us > 0 && us + most_off_us >= expected_us && us <= expected_us + most_off_us;
    f->bytes = bytes;
    f->us = bytes > 0 ? us : 0;
}

uint64_t sw_forecast_us(const struct sw_forecast *f, uint64_t bytes) {
    return f->is_steady ? scaled_us(f, bytes) : 0;
}

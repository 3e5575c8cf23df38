#include "base/forecast.h"

#include <stdbool.h>

#define STEADY_PARTS 16 /* durations that differ by less than a sixteenth count as equal */
#define MOST_TRUST 2

static uint64_t scaled_us(const struct sw_forecast *f, uint64_t bytes) {
    if (f->us == 0 || bytes < f->bytes / 2 || bytes / 2 > f->bytes)
        return 0;
    return (uint64_t)((double)f->us * (double)bytes / (double)f->bytes);
}

static bool is_as_expected(const struct sw_forecast *f, uint64_t bytes, uint64_t us) {
    const uint64_t expected_us = scaled_us(f, bytes), most_off_us = expected_us / STEADY_PARTS + SW_FORECAST_LATE_US;
    return expected_us > 0 && us + most_off_us >= expected_us && us <= expected_us + most_off_us;
}

void sw_forecast_note(struct sw_forecast *f, uint64_t bytes, uint64_t us) {
    const bool as_expected = is_as_expected(f, bytes, us);
    if (!as_expected && f->trust == MOST_TRUST) {
        f->trust--; /* ignore one outlier; a second one in a row replaces the forecast */
        return;
    }
    f->trust = !as_expected ? 0 : f->trust < MOST_TRUST ? f->trust + 1 : MOST_TRUST;
    f->bytes = bytes;
    f->us = bytes > 0 ? us : 0;
}

uint64_t sw_forecast_us(const struct sw_forecast *f, uint64_t bytes) {
    return f->trust > 0 ? scaled_us(f, bytes) : 0;
}

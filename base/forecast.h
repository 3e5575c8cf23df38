/* forecast.h - predicts how long an operation will take from the duration of the last operations of its kind.
 *
 * A thread that sleeps until a message comes wakes up late, by 50 to 250 us in a virtual machine. With a forecast it
 * sleeps until shortly before the expected end, and then polls.
 *
 * There is a forecast only after two operations in a row were about equally fast. So under a load whose times vary, no
 * thread polls without result. After three operations in a row that were equally fast, a single outlier, as a busy GPU
 * causes them, changes nothing. All zero: nothing is known. thread: one at a time. */
#ifndef SW_BASE_FORECAST_H
#define SW_BASE_FORECAST_H

#include <stdint.h>

/* Poll from this long before the predicted end until this long after it. */
#define SW_FORECAST_EARLY_US 300u
#define SW_FORECAST_LATE_US 200u

struct sw_forecast {
    uint64_t bytes, us; /* of the last operation that was no outlier */
    unsigned trust;     /* how many operations in a row took about as long as expected, counted up to 2 */
};

/* Records that an operation of `bytes` took `us`. */
void sw_forecast_note(struct sw_forecast *forecast, uint64_t bytes, uint64_t us);
/* Predicts how long an operation of `bytes` will take; 0: not known. It is known only for sizes from half to twice the
 * size of the last operation. */
uint64_t sw_forecast_us(const struct sw_forecast *forecast, uint64_t bytes);

#endif

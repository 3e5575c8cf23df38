/* forecast.h - how long an operation will take, by how long the last ones of its kind took for their bytes.
 *
 * For who waits: a thread that sleeps until a message comes wakes up late, by 50 to 250 us in a virtual machine. With a
 * forecast it sleeps until shortly before and polls then. There is none unless two operations in a row were about as
 * fast as each other, so that under a load whose times vary nobody polls in vain. After three of them a single one that
 * is not, as there are beside a busy GPU, changes nothing. All zero: nothing is known. thread: one at a time. */
#ifndef SW_BASE_FORECAST_H
#define SW_BASE_FORECAST_H

#include <stdint.h>

/* For so long before and after the time forecast one polls. */
#define SW_FORECAST_EARLY_US 300u
#define SW_FORECAST_LATE_US 200u

struct sw_forecast {
    uint64_t bytes, us; /* of the last one that counts */
    unsigned trust;     /* so many in a row took about as long as had to be expected, 2 at most */
};

/* An operation of that many bytes took us. */
void sw_forecast_note(struct sw_forecast *forecast, uint64_t bytes, uint64_t us);
/* How long one of that many bytes will take, or 0: not known. Of bytes between a half and twice those of the last. */
uint64_t sw_forecast_us(const struct sw_forecast *forecast, uint64_t bytes);

#endif

/* meter.h - how many bytes a second a stage gets through, from what lately began and ended in it.
 *
 * Time counts while anything is under way in the stage, once however much is: with several chunks side by side it is
 * the stage's throughput, with one at a time the inverse of how long a byte takes, launch and report included. Up to
 * four that ended while others were under way are remembered together. What is remembered fades with every chunk, so
 * that about the last four decide. Pure: the caller has the clock and the lock.
 */
#ifndef SW_BASE_METER_H
#define SW_BASE_METER_H

#include <stdbool.h>
#include <stdint.h>

/* All zero: nothing is known. */
struct sw_meter {
    unsigned n_running;
    uint64_t since_us; /* up to then the time has been counted */
    double bytes, us;  /* faded sums */
    unsigned n_ended;  /* since what is remembered */
    uint64_t ended_bytes, ended_us;
    bool is_warm; /* the first ones, which pay for what is done once, have been let pass */
    bool is_old;  /* the next ones replace what is remembered */
};

void sw_meter_begin(struct sw_meter *meter, uint64_t now_us);
/* What was begun has got `bytes` through; 0: it failed, or nobody saw when it ended. A single one counts for no slower
 * than a quarter of the rate so far: a hiccup is not a trend. */
void sw_meter_end(struct sw_meter *meter, uint64_t now_us, uint64_t bytes);
/* Bytes per second, 0: not known. */
double sw_meter_rate(const struct sw_meter *meter);
/* What is remembered is from long ago: it is to stand only until something else is seen. */
void sw_meter_age(struct sw_meter *meter);

#endif

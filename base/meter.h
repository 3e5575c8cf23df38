/* meter.h - measures a stage's throughput, in bytes per second, from the chunks that it processed last.
 *
 * Time counts only while the stage is busy, and only once if it processes several chunks at a time. So several chunks
 * at a time give the stage's throughput. One chunk at a time gives the inverse of the time per byte, launch and report
 * included. Up to four chunks that end while others are under way are recorded as one sample. Samples fade with every
 * chunk: about the last four chunks decide. Pure: the caller provides the clock and the lock. */
#ifndef SW_BASE_METER_H
#define SW_BASE_METER_H

#include <stdbool.h>
#include <stdint.h>

/* All zero: nothing is known. */
struct sw_meter {
    unsigned n_running;
    uint64_t since_us; /* the time up to which time has been counted */
    double bytes, us;  /* faded sums */
    unsigned n_ended;  /* chunks since the last sample */
    uint64_t ended_bytes, ended_us;
    bool is_warm; /* the first sample, which includes one-time costs, has been discarded */
    bool is_old;  /* the next sample replaces the sums */
};

/* Records that a chunk has begun. */
void sw_meter_begin(struct sw_meter *meter, uint64_t now_us);
/* Records that a chunk of `bytes` has ended; 0: it failed, or the time of its end is not known. A sample counts as no
 * slower than a quarter of the rate so far, because a hiccup is not a trend. */
void sw_meter_end(struct sw_meter *meter, uint64_t now_us, uint64_t bytes);
/* Returns the throughput in bytes per second; 0: not known. */
double sw_meter_rate(const struct sw_meter *meter);
/* Marks the rate as outdated: the next sample replaces it. */
void sw_meter_age(struct sw_meter *meter);

#endif

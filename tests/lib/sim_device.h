/* sim_device.h - a device and a tier that move no bytes: their steps take virtual time, by rates that the test sets.
 *
 * What is simulated: slots work side by side; the steps of one slot follow each other; kernels share the computing
 * units, copies share the link, each direction for itself, and the first that is ready is served first. Launching a
 * kernel or a copy takes a fixed time, in which others run. Frames are as long as the test's data would make them. The
 * clock (base/clock.h) advances only while something waits for the device, so the same test always gets the same times.
 * One device at a time, one thread. Without packing. */
#ifndef SW_TEST_SIM_DEVICE_H
#define SW_TEST_SIM_DEVICE_H

#include "spill/device/device.h"
#include "spill/tier/tier.h"

/* Rates: bytes a second, of codecs uncompressed ones. Others: microseconds. */
struct sw_sim_speed {
    double encode[SW_CODEC_NR], decode[SW_CODEC_NR];
    double hash; /* of kernels that do nothing else */
    double link_out, link_back;
    double seal; /* of the CPU, for a slot's raw frames that it hashes; 0: takes no time */
    double launch_us, plan_us;
    double slowdown; /* kernels take this many times as long, because others keep the GPU busy; 1: it is idle */
    double wake_us;  /* slot_wait returns so much later than the slot has ended */
};

/* An H200 with nothing else to do, tests/bench/RESULTS.md. */
extern const struct sw_sim_speed sw_sim_idle_gpu;

/* Stripes of two kinds of bytes, by turns. */
struct sw_sim_data {
    double ratios[2]; /* raw bytes per byte of codes */
    uint64_t stripe_bytes;
    unsigned column;   /* by a plan for another one's text the bytes shrink to by_others only */
    double by_others;  /* 0: all columns are alike */
    double dense_gain; /* by a plan with a dictionary they shrink so many times more; 0: the device takes none */
    bool learns;       /* it learns dictionaries itself */
    bool plans_raw;    /* plans are raw, whatever the data, and take no time: the baseline of comparisons */
    double of_numbers[SW_CODEC_NR]; /* ratios of each codec of numbers, of typed regions; 0: it would not do */
};

struct sw_sim_counts {
    unsigned plans, encodes[SW_CODEC_NR], decodes[SW_CODEC_NR], spills_raw, restores_raw; /* steps queued */
};

/* Takes over the clock until the device is closed. */
struct sw_device *sw_sim_device_new(unsigned n_slots, uint64_t chunk_bytes, unsigned poll_us);
/* For steps queued from now on. */
void sw_sim_set_speed(struct sw_device *device, const struct sw_sim_speed *speed);
void sw_sim_set_data(struct sw_device *device, const struct sw_sim_data *data);
struct sw_sim_counts sw_sim_counts(const struct sw_device *device);
uint64_t sw_sim_now_ns(void);
/* Moves the clock on to where the next slot ends, or by at most_ns if none does before. */
void sw_sim_advance(const struct sw_device *device, uint64_t most_ns);

/* Room without end, each frame in one extent. The beginning of a frame reads as zeros. */
struct sw_tier *sw_sim_tier_new(void);
/* The same on a disk, which reads and writes so many bytes a second, each for itself, first asked for first served. Its
 * time is the device's, which has one at most, and outlives it. */
struct sw_tier *sw_sim_disk_new(struct sw_device *device, double bytes_per_s);
/* Bytes of frames that it has written and read. */
uint64_t sw_sim_disk_done_bytes(struct sw_tier *disk);

#endif

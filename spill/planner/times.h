/* times.h - how long each path of a region takes, by the rates that its stages had recently.
 *
 * On the spill path a region is encoded, crosses the link, and is written to the disk if it goes there. On the restore
 * path it is read, then loaded and decoded. One slot loads and decodes in one go, and both are measured together. Raw
 * frames take the same path: encoding them is a copy with checksums, and all of their bytes cross. Or raw frames go
 * directly: the link's copy engines move the bytes, and beside this few long kernels, or the CPU, make the hashes.
 * Stages overlap except for the first chunk. So a long region takes as long as its slowest stage, and a region of one
 * chunk as long as all stages together. Pure. */
#ifndef SW_SPILL_TIMES_H
#define SW_SPILL_TIMES_H

#include "codec/codec.h"
#include <stdbool.h>
#include <stdint.h>

/* A smaller difference between times is noise. */
#define SW_COST_TOLERANCE 1.03
/* Beside a busy GPU a kernel takes 2.1 ms from its launch to its end, however little it hashes (H200). In this time the
 * link moves 115 MB, and copies whose bytes the CPU hashes move 84 MB. */
#define SW_COST_KERNEL_LINK_BYTES ((uint64_t)115000000)
#define SW_COST_KERNEL_CPU_BYTES ((uint64_t)84000000)
/* Most chunks of a direct step. A step keeps its slot and the link busy, and others wait: 16 chunks of 26 MiB take 8
 * ms. */
#define SW_COST_STEP_MOST_CHUNKS 16

/* Bytes per second; 0: not known. Codecs: uncompressed bytes; link and disk: bytes that cross. */
struct sw_cost_rates {
    double encode[SW_CODEC_NR], link_out;
    double restore[SW_CODEC_NR];    /* load and decode in one go, at the ratio of recent restores */
    double direct_out, direct_back; /* copy and checksums; not known: link_out's */
    double disk_write, disk_read;
};

struct sw_cost_question {
    enum sw_codec_id codec; /* the codec that would compress the bytes */
    double expected_ratio;
    uint64_t raw_bytes, n_chunks;
    unsigned n_slots;
    bool to_disk;        /* the frames go on to an asynchronous tier */
    bool room_is_short;  /* raw frames may find no room where compressed ones would */
    bool is_beside_data; /* the encoder works where the data are: see planner.h */
    double plan_s;       /* time to make a plan that does not exist yet */
    struct sw_cost_rates rates;
};

struct sw_cost_time {
    double out_s, back_s; /* 0: not known */
};

static inline double sw_cost_round_trip_s(const struct sw_cost_time *time) {
    return time->out_s + time->back_s;
}

bool sw_cost_knows_out(const struct sw_cost_question *q);
bool sw_cost_knows_back(const struct sw_cost_question *q);
/* Return the rate of direct steps. Until some have been measured, it is the link's rate. */
double sw_cost_direct_out_rate(const struct sw_cost_rates *r);
double sw_cost_direct_back_rate(const struct sw_cost_rates *r);
/* Returns how long a stage takes. If its rate is not known, it takes no time. */
double sw_cost_stage_s(double bytes, double rate);
/* Returns the time by kernels for each chunk. */
struct sw_cost_time sw_cost_time_of(const struct sw_cost_question *q, enum sw_codec_id codec);
/* Returns the time of raw frames by the faster path. A restore chooses its path anew. */
struct sw_cost_time sw_cost_raw_time_of(const struct sw_cost_question *q, bool *ret_direct);
/* Returns true if a raw region is so long that it goes directly whatever the rates: a kernel hashes its bytes while
 * they cross, which takes no extra time even beside a busy GPU. */
bool sw_cost_is_long(uint64_t region_bytes);

#endif

/* times.h - what the ways take that a region can go, by the rates that their stages have lately had.
 *
 * A region on its way out is encoded, crosses the link, and is written to the disk if it goes there; on its way back it
 * is read, and loaded and decoded, which a slot does in one go and which is measured as one. Raw frames take the same
 * way: they are encoded, too (a copy with checksums), and all of their bytes cross. Or they go directly: the link's
 * copy engines bring the bytes, and hashes are made beside that, by few and long kernels or by the CPU. Stages overlap
 * but for the first chunk, so that a long region takes as long as its slowest stage, and a region of one chunk as long
 * as all together. Pure. */
#ifndef SW_SPILL_TIMES_H
#define SW_SPILL_TIMES_H

#include "codec/codec.h"
#include <stdbool.h>
#include <stdint.h>

/* Times that differ by less cannot be told from noise. */
#define SW_COST_TOLERANCE 1.03
/* Beside a busy GPU a kernel takes 2.1 ms from its launch to its end, however little it hashes (H200). In that time the
 * link brings 115 MB, and copies whose bytes the CPU hashes 84. */
#define SW_COST_KERNEL_LINK_BYTES ((uint64_t)115000000)
#define SW_COST_KERNEL_CPU_BYTES ((uint64_t)84000000)
/* Of chunks that go directly. A step keeps its slot, and the link, for longer than others would like to wait: 16 chunks
 * of 26 MiB are 8 ms. */
#define SW_COST_STEP_MOST_CHUNKS 16

/* Bytes per second, 0: not known. Of codecs: uncompressed bytes; of link and disk: those that cross. */
struct sw_cost_rates {
    double encode[SW_CODEC_NR], link_out;
    double restore[SW_CODEC_NR];    /* load and decode in one go, at the ratio of what was restored lately */
    double direct_out, direct_back; /* copy and checksums; not known: that of link_out */
    double disk_write, disk_read;
};

struct sw_cost_question {
    enum sw_codec_id codec; /* that would compress it */
    double expected_ratio;
    uint64_t raw_bytes, n_chunks;
    unsigned n_slots;
    bool to_disk;       /* it goes on to an asynchronous tier */
    bool room_is_short; /* raw, it may find no room where it would find some compressed */
    double plan_s;      /* what making a plan takes, if that is still to be done */
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
/* Until the direct way has been measured, as fast as the link. */
double sw_cost_direct_out_rate(const struct sw_cost_rates *r);
double sw_cost_direct_back_rate(const struct sw_cost_rates *r);
/* A stage that is not known takes no time. */
double sw_cost_stage_s(double bytes, double rate);
/* By kernels for each chunk. */
struct sw_cost_time sw_cost_time_of(const struct sw_cost_question *q, enum sw_codec_id codec);
/* Raw, by the better way. What comes back chooses anew. */
struct sw_cost_time sw_cost_raw_time_of(const struct sw_cost_question *q, bool *ret_direct);
/* True of a raw region that goes directly whatever is known of rates: a kernel hashes its bytes while they cross, which
 * takes no time of its own even beside a busy GPU. */
bool sw_cost_is_long(uint64_t region_bytes);

#endif

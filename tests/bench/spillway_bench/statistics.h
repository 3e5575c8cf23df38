/* statistics.h - what a run adds up to: operations with all their times, errors by name, frames by codec and tier. */
#ifndef SW_BENCH_STATISTICS_H
#define SW_BENCH_STATISTICS_H

#include "ipc/spillway.h"
#include "tests/bench/spillway_bench/options.h"
#include <pthread.h>

enum sw_bench_op { SW_BENCH_SPILL, SW_BENCH_RESTORE, SW_BENCH_OP_NR };

/* All values that were added. */
struct sw_bench_samples {
    uint64_t *values;
    size_t n, room;
};

struct sw_bench_op_statistics {
    uint64_t n, n_regions, bytes;
    uint64_t n_by_client;               /* regions that libspillway has encoded or decoded in this process */
    struct sw_bench_samples latency_us; /* from the call to the moment the client knows */
    struct sw_bench_samples service_us; /* as the daemon tells it */
};

enum { SW_BENCH_MAX_NAMES = 16 };

/* Spilled regions of one codec, tier and reason for the codec; or, with none of the others, errors of one name. */
struct sw_bench_count {
    char codec[16], tier[16], reason[32];
    uint64_t n, raw_bytes, stored_bytes;
};

/* The statistics of one session, or their sum. thread: its session's. */
struct sw_bench_statistics {
    struct sw_bench_op_statistics ops[SW_BENCH_OP_NR];
    struct sw_bench_count columns[SW_BENCH_MAX_COLUMNS]; /* no names */
    struct sw_bench_count stored[SW_BENCH_MAX_NAMES];
    struct sw_bench_count errors[SW_BENCH_MAX_NAMES];
    uint64_t n_compared, n_different, n_dropped;
    bool out_of_memory; /* a sample is missing */
};

void sw_bench_statistics_fini(struct sw_bench_statistics *f);
void sw_bench_statistics_add(struct sw_bench_statistics *sum, const struct sw_bench_statistics *part);
/* An operation that succeeded, with the result of each region. column: index, for a spill. */
void sw_bench_note(struct sw_bench_statistics *f, enum sw_bench_op op, const struct spillway_result *results,
                   unsigned n_regions, uint64_t latency_us, unsigned column);
void sw_bench_note_error(struct sw_bench_statistics *f, const char *name);
/* Value below which `part` of the samples lie; sorts them. 0 if there are none. */
uint64_t sw_bench_percentile(struct sw_bench_samples *samples, double part);

/* Time during which anything of a kind was under way, in all sessions. thread: any. */
struct sw_bench_busy {
    pthread_mutex_t lock;
    struct {
        unsigned n;
        uint64_t since_us, total_us;
    } kinds[SW_BENCH_OP_NR + 1]; /* the last: of either kind */
};

void sw_bench_busy_begin(struct sw_bench_busy *busy, enum sw_bench_op op, uint64_t now_us);
void sw_bench_busy_end(struct sw_bench_busy *busy, enum sw_bench_op op, uint64_t now_us);

#endif

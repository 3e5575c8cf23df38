/* run.h - what all that spills in a run shares: what was asked, until when spills begin, and which errors a client
 * lives with. */
#ifndef SW_BENCH_RUN_H
#define SW_BENCH_RUN_H

#include "tests/bench/spillway_bench/device.h"
#include "tests/bench/spillway_bench/figures.h"
#include <stdatomic.h>

struct sw_bench_run {
    struct sw_bench_options options;
    const struct sw_bench_device *device;
    struct sw_buffer *columns[SW_BENCH_MAX_COLUMNS];
    struct sw_bench_busy busy;
    uint64_t deadline_us; /* no spill begins after it; options.count: none */
    atomic_bool stop;     /* nor after this was set */
};

enum { SW_BENCH_BACKOFF_US = 10000 }; /* after an error, before the next try */

/* The time of --duration begins now. */
void sw_bench_run_begin(struct sw_bench_run *run);
/* Whether one that has begun so many spills begins no more. thread: any. */
bool sw_bench_is_over(const struct sw_bench_run *run, uint64_t n_spills);

/* A full service says so, and a client comes back later. */
bool sw_bench_is_full(const struct spillway_error *error);
/* The same, or a restart has cut the operation short: it may be repeated. Whatever else fails must not. */
bool sw_bench_may_repeat(const struct spillway_error *error);

#endif

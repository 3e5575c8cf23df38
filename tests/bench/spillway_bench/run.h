/* run.h - the state that all sessions of a run share: the options, until when spills begin, and which errors a client
 * tolerates. */
#ifndef SW_BENCH_RUN_H
#define SW_BENCH_RUN_H

#include "tests/bench/spillway_bench/device.h"
#include "tests/bench/spillway_bench/statistics.h"
#include <stdatomic.h>

struct sw_bench_run {
    struct sw_bench_options options;
    const struct sw_bench_device *device;
    struct sw_buffer *columns[SW_BENCH_MAX_COLUMNS];
    struct sw_bench_busy busy;
    uint64_t deadline_us; /* no spill begins after it; options.count: none */
    atomic_bool stop;     /* nor after this was set */
    /* Counts of all sessions: */
    atomic_uint_fast64_t n_done; /* operations that went well */
    atomic_uint n_held;          /* spills that are to be restored: their room comes back */
};

/* How many operations were done when a session was first refused, and when that was. All zero at first. */
struct sw_bench_refused {
    uint64_t n_done, since_us;
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

/* A full service has refused a spill. Whether a run with --count gives up, since for long nothing has gone well in any
 * session, and no room of theirs comes back: without that it would go on for ever. */
bool sw_bench_is_hopeless(const struct sw_bench_run *run, struct sw_bench_refused *refused);
enum { SW_BENCH_TEXT_BYTES = 400 };
/* Says so in `ret`, which it returns. n_spills: that have succeeded. */
const char *sw_bench_give_up_text(char ret[SW_BENCH_TEXT_BYTES], const struct sw_bench_run *run,
                                  const struct spillway_error *error, uint64_t n_spills);

#endif

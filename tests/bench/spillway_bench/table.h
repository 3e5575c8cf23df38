/* table.h - a whole table as one region: spilled and restored again and again, by one session, one at a time.
 *
 * Each buffer lies in memory of its own, as an engine would hold it. Only the time from a call to the moment its end is
 * known counts. thread: the main one. */
#ifndef SW_BENCH_TABLE_H
#define SW_BENCH_TABLE_H

#include "tests/bench/spillway_bench/run.h"
#include <jansson.h>
#include <stdio.h>

struct sw_bench_table;

/* Makes the table of --table and --scale, in memory of the run's kind. run: borrowed until sw_bench_table_free().
 * errors: -SW_ENOMEM, sw_buffer_new()'s, and the daemon's. */
int sw_bench_table_new(struct sw_bench_table **ret, const struct sw_bench_run *run, struct sw_err *err);
/* NULL is a no-op. */
void sw_bench_table_free(struct sw_bench_table *t);
/* Rounds until the run is over, and at least one unless it was stopped; a round that has spilled restores, too. What
 * went wrong has been said on standard error: -1. */
int sw_bench_table_run(struct sw_bench_table *t);
const struct sw_bench_statistics *sw_bench_table_statistics(const struct sw_bench_table *t);

/* Sorts the samples. */
void sw_bench_table_print(FILE *to, struct sw_bench_table *t, const struct sw_bench_raw *raw,
                          const struct spillway_status *status);
/* NULL without memory; the caller's to json_decref(). Sorts the samples. */
json_t *sw_bench_table_json(struct sw_bench_table *t, const struct sw_bench_raw *raw,
                            const struct spillway_status *status);

#endif

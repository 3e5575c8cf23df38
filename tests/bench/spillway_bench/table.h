/* table.h - a whole table as one region: spilled and restored again and again, by one session, one at a time.
 *
 * Each buffer lies in memory of its own, as an engine would hold it. Only the time from a call to the moment its end is
 * known counts. thread: the main one. */
#ifndef SW_BENCH_TABLE_H
#define SW_BENCH_TABLE_H

#include "tests/bench/spillway_bench/device.h"
#include "tests/bench/spillway_bench/figures.h"
#include <jansson.h>
#include <stdio.h>

struct sw_bench_table;

/* Makes the table of options->table and options->scale, in memory of options->kind. options, device: borrowed. errors:
 * -SW_ENOMEM, sw_buffer_new()'s, and the daemon's. */
int sw_bench_table_new(struct sw_bench_table **ret, const struct sw_bench_options *options,
                       const struct sw_bench_device *device, struct sw_err *err);
/* NULL is a no-op. */
void sw_bench_table_free(struct sw_bench_table *t);
/* Rounds until options->count, or options->duration_s and at least one. What went wrong has been said on standard
 * error: -1. */
int sw_bench_table_run(struct sw_bench_table *t);

/* Sorts the samples. */
void sw_bench_table_print(FILE *to, struct sw_bench_table *t, const struct sw_bench_raw *raw,
                          const struct spillway_status *status);
/* NULL without memory; the caller's to json_decref(). Sorts the samples. */
json_t *sw_bench_table_json(struct sw_bench_table *t, const struct sw_bench_raw *raw,
                            const struct spillway_status *status);

#endif

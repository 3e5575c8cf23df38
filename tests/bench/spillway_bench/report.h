/* report.h - the statistics of a run as a table and as JSON. */
#ifndef SW_BENCH_REPORT_H
#define SW_BENCH_REPORT_H

#include "tests/bench/spillway_bench/device.h"
#include "tests/bench/spillway_bench/statistics.h"
#include <jansson.h>
#include <stdio.h>

struct sw_bench_report {
    const struct sw_bench_options *options;
    struct spillway_status status; /* at the start */
    struct sw_bench_raw raw;
    double wall_s;
    double busy_s[SW_BENCH_OP_NR + 1];
    struct sw_bench_statistics sum;
    const uint64_t *session_bytes; /* [options->sessions], spilled and restored */
    const double *session_s;       /* [options->sessions], in which that was */
    unsigned failed_sessions;
};

/* A line for each name of an error. */
void sw_bench_print_errors(FILE *to, const struct sw_bench_statistics *f);
/* Whether the restored bytes, of n regions or buffers, equal the spilled ones. verify: the user asked for this
 * check. */
void sw_bench_print_check(FILE *to, const struct sw_bench_statistics *f, bool verify, uint64_t n, const char *what);
/* How often, by name; the caller's. */
json_t *sw_bench_json_errors(const struct sw_bench_statistics *f);

/* Sorts the samples. */
void sw_bench_print(FILE *to, struct sw_bench_report *r);
/* NULL without memory; the caller's to json_decref(). Sorts the samples. */
json_t *sw_bench_json(struct sw_bench_report *r);

#endif

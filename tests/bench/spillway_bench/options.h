/* options.h - what spillway-bench was asked to do. */
#ifndef SW_BENCH_OPTIONS_H
#define SW_BENCH_OPTIONS_H

#include "tests/lib/buffer.h"
#include <stdbool.h>
#include <stdint.h>

enum {
    SW_BENCH_MAX_COLUMNS = 16,
    SW_BENCH_MAX_SESSIONS = 1024,
    SW_BENCH_MAX_IN_FLIGHT = 256,
    SW_BENCH_MAX_BATCH = 4096
};

struct sw_bench_options {
    const char *socket;                        /* NULL: the library's default */
    const char *columns[SW_BENCH_MAX_COLUMNS]; /* as --column takes them */
    unsigned n_columns;
    uint64_t min_bytes, max_bytes; /* of a region */
    unsigned batch;                /* regions of an operation; 0: one, without a batch */
    unsigned mix_spills, mix_restores;
    unsigned sessions, in_flight, parked; /* the latter two per session */
    double duration_s;
    uint64_t count; /* spills per session; 0: until duration_s is over */
    uint64_t think_us, stagger_us;
    enum sw_buffer_kind kind;
    bool kind_given; /* else the best that daemon and machine have */
    bool registered, verify;
    const char *table; /* "lineitem": a whole table at a time; NULL: regions */
    double scale;
    const char *json; /* file, "-", or NULL */
    uint64_t seed;
};

/* Returns -1 to go on, else the exit code: --help has been printed, or what is wrong has been said. */
int sw_bench_parse(struct sw_bench_options *ret, int argc, char **argv);
/* The name of a kind as --kind takes it. */
const char *sw_bench_kind_name(enum sw_buffer_kind kind);

#endif

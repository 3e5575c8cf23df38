#include "tests/bench/spillway_bench/options.h"

#include "base/size.h"
#include "tests/lib/lineitem.h"
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_USAGE = 2 };

static const char help[] =
    "Usage: spillway-bench [OPTION]...\n"
    "Loads a running spillwayd as query engines would: spills columns, restores them, compares every byte. Says how\n"
    "fast that was, next to a plain copy of the same memory, measured in the same run.\n\n"
    "  --socket PATH      spillwayd's data socket (default: $SPILLWAY_SOCKET, /run/spillway/data.sock)\n"
    "  --column NAME      l_comment (TPC-H text; default), random, zero, mixed, another column of TPC-H's lineitem or\n"
    "                     orders, as l_quantity, or a file, repeated to the size; several times: each region is of "
    "one\n"
    "                     of them. Keys, decimals and dates are spilled as numbers\n"
    "  --size SIZE        bytes of a region, or a range, log-uniform: 64K..4M (default: 64M). A size is bytes,\n"
    "                     or a number with K, M, G or T (KiB, MiB, GiB, TiB), as 1.5GiB\n"
    "  --batch N          an operation is a batch of N regions, all of one column, in registered memory: spills,\n"
    "                     restores, latencies and what is parked are then batches\n"
    "  --sessions N       connections, each with a thread of its own (default: 1)\n"
    "  --in-flight N      operations of a session at a time (default: 1)\n"
    "  --mix S:R          spills to restores (default: 1:1); with fewer restores the other regions are dropped, with\n"
    "                     more a region is restored several times\n"
    "  --parked N         regions that a session leaves parked before it restores the oldest (default: 0)\n"
    "  --duration S       seconds in which spills begin, more than 0 (default: 10); what is parked is then restored\n"
    "  --count N          spills per session that succeed, in place of --duration. A session that is refused by a "
    "full\n"
    "                     service for 10 s, with nothing parked by any, gives up\n"
    "  --think-ms MS      pause after each operation (default: 0)\n"
    "  --stagger-ms MS    each session begins so much later than the one before (default: 0)\n"
    "  --kind KIND        memory: memfd, cudamalloc, vmm, pool (default: cudamalloc if there is a GPU, else memfd);\n"
    "                     without --registered also managed, async (cudaMallocAsync's default pool) and segments\n"
    "                     (VMM memory that cannot be shared)\n"
    "  --registered       register the memory, so that the daemon keeps it open\n"
    "  --no-verify        neither compare restored bytes nor fill and wipe memory in between, which takes the GPU "
    "from\n"
    "                     the service; what was restored is spilled again\n"
    "  --table lineitem   a whole table of TPC-H as one region of many buffers: spilled and restored by one session, "
    "one\n"
    "                     operation at a time, for --duration, or --count times. Without --column, --size, --batch,\n"
    "                     --sessions, --in-flight, --mix, --parked, --think-ms, --stagger-ms and --seed\n"
    "  --scale SF         of the table: 0.001 to 12 (default: 1); 1 has 6 million rows, 0.8 GB\n"
    "  --seed N           of sizes, columns and offsets (default: 1)\n"
    "  --json FILE        the statistics as JSON; '-': to standard output, and the table to standard error\n"
    "  -h, --help         print this and exit\n"
    "  -V, --version      print the version and exit\n\n"
    "Ctrl-C ends the spills: what is parked is then restored, and the statistics are printed. A second one ends it at "
    "once.\n"
    "Memory taken: for a table twice its bytes, else for each column SIZE, and SIZE for each region of each operation "
    "in flight.\n"
    "Exit codes: 0 all is well (answers of a service that is full or was restarted, as ENOSPACE, are counted),\n"
    "1 an error, a difference, or not one spill that succeeded, 2 wrong use.\n";

static const struct {
    const char *name;
    enum sw_buffer_kind kind;
} kinds[] = {
    {"memfd", SW_BUFFER_MEMFD},
    {"cudamalloc", SW_BUFFER_CUDA_MALLOC},
    {"vmm", SW_BUFFER_CUDA_VMM},
    {"pool", SW_BUFFER_CUDA_POOL},
    {"managed", SW_BUFFER_CUDA_MANAGED},
    {"async", SW_BUFFER_CUDA_ASYNC},
    {"segments", SW_BUFFER_CUDA_SEGMENTS},
};

const char *sw_bench_kind_name(enum sw_buffer_kind kind) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].kind == kind)
            return kinds[i].name;
    return "unknown";
}

static bool parse_kind(const char *text, struct sw_bench_options *o) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, text) == 0) {
            o->kind = kinds[i].kind;
            o->kind_given = true;
            return true;
        }
    return false;
}

/* A whole number at *text, which is moved behind it. */
static bool take_number(const char **text, uint64_t *ret) {
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    errno = 0;
    *ret = strtoull(*text, &end, 10);
    *text = end;
    return errno == 0;
}

static bool parse_sizes(const char *text, struct sw_bench_options *o) {
    if (!sw_size_take(&text, &o->min_bytes))
        return false;
    o->max_bytes = o->min_bytes;
    if (strncmp(text, "..", 2) == 0) {
        text += 2;
        if (!sw_size_take(&text, &o->max_bytes))
            return false;
    }
    return !*text && o->min_bytes >= 1 && o->min_bytes <= o->max_bytes && o->max_bytes <= (uint64_t)1 << 40;
}

static bool parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret) {
    return take_number(&text, ret) && !*text && *ret >= min && *ret <= max;
}

static bool parse_unsigned(const char *text, unsigned min, unsigned max, unsigned *ret) {
    uint64_t value;
    if (!parse_number(text, min, max, &value))
        return false;
    *ret = (unsigned)value;
    return true;
}

static bool parse_mix(const char *text, struct sw_bench_options *o) {
    uint64_t spills, restores;
    if (!take_number(&text, &spills) || *text++ != ':' || !parse_number(text, 0, 1000, &restores) || spills < 1 ||
        spills > 1000)
        return false;
    o->mix_spills = (unsigned)spills;
    o->mix_restores = (unsigned)restores;
    return true;
}

static bool parse_real(const char *text, double max, double *ret) {
    char *end;
    *ret = strtod(text, &end);
    return end != text && !*end && isfinite(*ret) && *ret >= 0 && *ret <= max;
}

static bool add_column(const char *text, struct sw_bench_options *o) {
    if (!*text)
        return false;
    o->columns[o->n_columns++] = text;
    return true;
}

enum option_id {
    SOCKET = 256,
    COLUMN,
    SIZE,
    BATCH,
    SESSIONS,
    IN_FLIGHT,
    MIX,
    PARKED,
    DURATION,
    COUNT,
    THINK_MS,
    STAGGER_MS,
    KIND,
    REGISTERED,
    NO_VERIFY,
    TABLE,
    SCALE,
    SEED,
    JSON
};

static bool parse_timing(enum option_id id, const char *text, struct sw_bench_options *o) {
    double ms;
    if (id == DURATION)
        return parse_real(text, 1e6, &o->duration_s) && o->duration_s > 0; /* none: nothing would be shown */
    if (id == COUNT)
        return parse_number(text, 1, (uint64_t)1 << 40, &o->count);
    if (!parse_real(text, 1e6, &ms))
        return false;
    *(id == THINK_MS ? &o->think_us : &o->stagger_us) = (uint64_t)(ms * 1e3);
    return true;
}

static bool parse_one(enum option_id id, const char *text, struct sw_bench_options *o) {
    switch (id) {
    case SOCKET:
        o->socket = text;
        return true;
    case COLUMN:
        return add_column(text, o);
    case SIZE:
        return parse_sizes(text, o);
    case BATCH:
        o->registered = true; /* no other memory has batches */
        return parse_unsigned(text, 1, SW_BENCH_MAX_BATCH, &o->batch);
    case SESSIONS:
        return parse_unsigned(text, 1, SW_BENCH_MAX_SESSIONS, &o->sessions);
    case IN_FLIGHT:
        return parse_unsigned(text, 1, SW_BENCH_MAX_IN_FLIGHT, &o->in_flight);
    case MIX:
        return parse_mix(text, o);
    case PARKED:
        return parse_unsigned(text, 0, 1 << 20, &o->parked);
    case DURATION:
    case COUNT:
    case THINK_MS:
    case STAGGER_MS:
        return parse_timing(id, text, o);
    case KIND:
        return parse_kind(text, o);
    case REGISTERED:
        o->registered = true;
        return true;
    case NO_VERIFY:
        o->verify = false;
        return true;
    case TABLE:
        o->table = text;
        return strcmp(text, "lineitem") == 0;
    case SCALE:
        return parse_real(text, SW_LINEITEM_MAX_SCALE, &o->scale) && o->scale >= 0.001;
    case SEED:
        return parse_number(text, 0, UINT64_MAX, &o->seed);
    case JSON:
        o->json = text;
        return true;
    }
    return false;
}

/* Options that would be ignored would let the statistics be taken for something else. given: one bit for each option.
 */
static bool fit_together(const struct sw_bench_options *o, uint32_t given, const struct option *longs) {
    static const enum option_id of_regions[] = {COLUMN, SIZE,     BATCH,      SESSIONS, IN_FLIGHT,
                                                MIX,    THINK_MS, STAGGER_MS, PARKED,   SEED};
    uint32_t ignored = 0;
    for (size_t i = 0; o->table && i < sizeof of_regions / sizeof of_regions[0]; i++)
        ignored |= 1u << (of_regions[i] - SOCKET);
    if (!o->table)
        ignored = 1u << (SCALE - SOCKET);
    for (; longs->name; longs++)
        if (longs->val >= SOCKET && given & ignored & 1u << (longs->val - SOCKET)) {
            (void)fprintf(stderr, "spillway-bench: --%s means nothing %s --table; see --help\n", longs->name,
                          o->table ? "with" : "without");
            return false;
        }
    return true;
}

int sw_bench_parse(struct sw_bench_options *ret, int argc, char **argv) {
    static const struct option longs[] = {
        {"socket", required_argument, NULL, SOCKET},
        {"column", required_argument, NULL, COLUMN},
        {"size", required_argument, NULL, SIZE},
        {"batch", required_argument, NULL, BATCH},
        {"sessions", required_argument, NULL, SESSIONS},
        {"mix", required_argument, NULL, MIX},
        {"in-flight", required_argument, NULL, IN_FLIGHT},
        {"parked", required_argument, NULL, PARKED},
        {"duration", required_argument, NULL, DURATION},
        {"count", required_argument, NULL, COUNT},
        {"think-ms", required_argument, NULL, THINK_MS},
        {"stagger-ms", required_argument, NULL, STAGGER_MS},
        {"kind", required_argument, NULL, KIND},
        {"registered", no_argument, NULL, REGISTERED},
        {"no-verify", no_argument, NULL, NO_VERIFY},
        {"table", required_argument, NULL, TABLE},
        {"scale", required_argument, NULL, SCALE},
        {"seed", required_argument, NULL, SEED},
        {"json", required_argument, NULL, JSON},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {NULL, 0, NULL, 0},
    };
    *ret = (struct sw_bench_options){.min_bytes = 64 << 20,
                                     .max_bytes = 64 << 20,
                                     .mix_spills = 1,
                                     .mix_restores = 1,
                                     .sessions = 1,
                                     .in_flight = 1,
                                     .duration_s = 10,
                                     .verify = true,
                                     .scale = 1,
                                     .seed = 1};
    uint32_t given = 0;
    for (int id, index = 0; (id = getopt_long(argc, argv, "hV", longs, &index)) != -1;) {
        if (id == 'h')
            return fputs(help, stdout) < 0 || fflush(stdout) != 0;
        if (id == 'V')
            return printf("spillway-bench %s\n", SW_VERSION) < 0 || fflush(stdout) != 0;
        if (id == '?')
            return EXIT_USAGE;
        given |= 1u << (id - SOCKET);
        if (id == COLUMN && ret->n_columns == SW_BENCH_MAX_COLUMNS) {
            (void)fprintf(stderr, "spillway-bench: --column %s: at most %d columns\n", optarg, SW_BENCH_MAX_COLUMNS);
            return EXIT_USAGE;
        }
        if (!parse_one((enum option_id)id, optarg, ret)) {
            (void)fprintf(stderr, "spillway-bench: --%s cannot be '%s'; see --help\n", longs[index].name, optarg);
            return EXIT_USAGE;
        }
    }
    if (optind < argc) {
        (void)fprintf(stderr, "spillway-bench: unexpected argument '%s'\n", argv[optind]);
        return EXIT_USAGE;
    }
    if (!fit_together(ret, given, longs))
        return EXIT_USAGE;
    if (!ret->n_columns)
        ret->columns[ret->n_columns++] = "l_comment";
    return -1;
}

#include "tests/bench/spillway_bench/report.h"

#include <inttypes.h>
#include <string.h>

static double rate(uint64_t bytes, double s) {
    return s > 0 ? (double)bytes / s / 1e9 : 0;
}

static double quotient(double a, double b) {
    return b > 0 ? a / b : 0;
}

static double ratio_of(const struct sw_bench_count *c) {
    return c->stored_bytes ? (double)c->raw_bytes / (double)c->stored_bytes : 0;
}

static double op_gbps(const struct sw_bench_report *r, enum sw_bench_op op) {
    return rate(r->sum.ops[op].bytes, r->busy_s[op]);
}

/* Times the plain copy in the same direction. */
static double op_x_raw(const struct sw_bench_report *r, enum sw_bench_op op) {
    return quotient(op_gbps(r, op), op == SW_BENCH_SPILL ? r->raw.out_gbps : r->raw.back_gbps);
}

static uint64_t total_bytes(const struct sw_bench_report *r) {
    return r->sum.ops[SW_BENCH_SPILL].bytes + r->sum.ops[SW_BENCH_RESTORE].bytes;
}

static double total_gbps(const struct sw_bench_report *r) {
    return rate(total_bytes(r), r->busy_s[SW_BENCH_OP_NR]);
}

/* Returns a session's rate by its own time: with --count all sessions move the same bytes, but the slowest takes
 * longer. */
static double session_gbps(const struct sw_bench_report *r, unsigned i) {
    return rate(r->session_bytes[i], r->session_s[i]);
}

static double mean_session_gbps(const struct sw_bench_report *r) {
    double sum = 0;
    for (unsigned i = 0; i < r->options->sessions; i++)
        sum += session_gbps(r, i);
    return sum / r->options->sessions;
}

/* The slowest session's share, 1 being the mean of all. */
static double fairness(const struct sw_bench_report *r) {
    double slowest = session_gbps(r, 0);
    for (unsigned i = 1; i < r->options->sessions; i++)
        slowest = session_gbps(r, i) < slowest ? session_gbps(r, i) : slowest;
    return quotient(slowest, mean_session_gbps(r));
}

/* ---- table ------------------------------------------------------------------------------------------------------- */

static void print_setting(FILE *to, const struct sw_bench_report *r) {
    const struct sw_bench_options *o = r->options;
    (void)fprintf(to, "spillwayd %s on %s; memory: %s%s; regions of %" PRIu64 " to %" PRIu64 " bytes",
                  r->status.version, r->status.device, sw_bench_kind_name(o->kind), o->registered ? ", registered" : "",
                  o->min_bytes, o->max_bytes);
    if (o->batch)
        (void)fprintf(to, ", in batches of %u", o->batch);
    (void)fputs("\n", to);
    (void)fprintf(
        to, "sessions: %u; each: %u in flight, %u parked; spills to restores: %u:%u; %.1f s; seed %" PRIu64 "\n\n",
        o->sessions, o->in_flight, o->parked, o->mix_spills, o->mix_restores, r->wall_s, o->seed);
}

static double ms(struct sw_bench_samples *samples, double part) {
    return (double)sw_bench_percentile(samples, part) / 1e3;
}

static void print_op(FILE *to, struct sw_bench_report *r, enum sw_bench_op op, const char *name) {
    struct sw_bench_op_statistics *f = &r->sum.ops[op];
    (void)fprintf(to, "%-8s %10" PRIu64 " %15" PRIu64 " %8.2f %6.2f %9.2f %9.2f %9.2f %9.2f %9.2f\n", name, f->n,
                  f->bytes, op_gbps(r, op), op_x_raw(r, op), ms(&f->latency_us, 0.5), ms(&f->latency_us, 0.99),
                  ms(&f->latency_us, 1), ms(&f->service_us, 0.5), ms(&f->service_us, 0.99));
}

static void print_ops(FILE *to, struct sw_bench_report *r) {
    (void)fprintf(to, "%-8s %10s %15s %8s %6s   %-29s   %s\n", "", "", "", "", "", "client's latency, ms",
                  "in the daemon, ms");
    (void)fprintf(to, "%-8s %10s %15s %8s %6s %9s %9s %9s %9s %9s\n", "", r->options->batch ? "batches" : "operations",
                  "bytes", "GB/s", "x raw", "p50", "p99", "max", "p50", "p99");
    print_op(to, r, SW_BENCH_SPILL, "spill");
    print_op(to, r, SW_BENCH_RESTORE, "restore");
    (void)fprintf(to, "%-8s %10" PRIu64 " %15" PRIu64 " %8.2f %6.2f\n\n", "both",
                  r->sum.ops[SW_BENCH_SPILL].n + r->sum.ops[SW_BENCH_RESTORE].n, total_bytes(r), total_gbps(r),
                  quotient(total_gbps(r), r->raw.both_gbps));
}

static void print_raw(FILE *to, const struct sw_bench_report *r) {
    (void)fprintf(to, "raw copy  %.2f GB/s out, %.2f back, %.2f both; pieces of %" PRIu64 " bytes, ", r->raw.out_gbps,
                  r->raw.back_gbps, r->raw.both_gbps, r->raw.piece_bytes);
    if (r->raw.threads)
        (void)fprintf(to, "memcpy, threads: %u, both: in turn\n", r->raw.threads);
    else
        (void)fprintf(to, "page-locked, %u queued at a time, both: at once\n", r->raw.per_sync);
}

static void print_stored(FILE *to, const struct sw_bench_report *r) {
    for (unsigned i = 0; i < r->options->n_columns; i++)
        (void)fprintf(to, "column    %s: %" PRIu64 " regions, ratio %.3f\n", r->options->columns[i],
                      r->sum.columns[i].n, ratio_of(&r->sum.columns[i]));
    for (int i = 0; i < SW_BENCH_MAX_NAMES && r->sum.stored[i].n; i++)
        (void)fprintf(to, "stored    %s in %s (%s): %" PRIu64 " regions, %" PRIu64 " bytes in %" PRIu64 "\n",
                      r->sum.stored[i].codec, r->sum.stored[i].tier, r->sum.stored[i].reason, r->sum.stored[i].n,
                      r->sum.stored[i].raw_bytes, r->sum.stored[i].stored_bytes);
}

void sw_bench_print_errors(FILE *to, const struct sw_bench_statistics *f) {
    for (int i = 0; i < SW_BENCH_MAX_NAMES && f->errors[i].n; i++)
        (void)fprintf(to, "errors    %s: %" PRIu64 "\n", f->errors[i].codec, f->errors[i].n);
}

void sw_bench_print_check(FILE *to, const struct sw_bench_statistics *f, bool verify, uint64_t n, const char *what) {
    if (f->n_different)
        (void)fprintf(to, "DIFFERENT %" PRIu64 " of %" PRIu64 " restored %s\n", f->n_different, f->n_compared, what);
    else if (verify)
        (void)fprintf(to, "verified  every byte of %" PRIu64 " restored %s of %" PRIu64 "\n", f->n_compared, what, n);
    else
        (void)fprintf(to, "verified  nothing: none of %" PRIu64 " restored %s\n", n, what);
}

static void print_coder(FILE *to, const struct sw_bench_report *r) {
    const struct sw_bench_op_statistics *spills = &r->sum.ops[SW_BENCH_SPILL],
                                        *restores = &r->sum.ops[SW_BENCH_RESTORE];
    (void)fprintf(to,
                  "coder     in this process: %" PRIu64 " of %" PRIu64 " spilled regions, %" PRIu64 " of %" PRIu64
                  " restored\n",
                  spills->n_by_client, spills->n_regions, restores->n_by_client, restores->n_regions);
}

static void print_outcome(FILE *to, const struct sw_bench_report *r) {
    if (r->options->sessions > 1)
        (void)fprintf(to, "sessions  the slowest got %.2f of the mean, which is %.2f GB/s\n", fairness(r),
                      mean_session_gbps(r));
    sw_bench_print_errors(to, &r->sum);
    if (r->failed_sessions)
        (void)fprintf(to, "FAILED    %u sessions\n", r->failed_sessions);
    sw_bench_print_check(to, &r->sum, r->options->verify, r->sum.ops[SW_BENCH_RESTORE].n_regions, "regions");
}

void sw_bench_print(FILE *to, struct sw_bench_report *r) {
    print_setting(to, r);
    print_ops(to, r);
    print_raw(to, r);
    print_stored(to, r);
    print_coder(to, r);
    print_outcome(to, r);
    (void)fflush(to);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *integer(uint64_t value) {
    return json_integer((json_int_t)value);
}

static json_t *json_samples(struct sw_bench_samples *s) {
    return json_pack("{s:o,s:o,s:o}", "p50", integer(sw_bench_percentile(s, 0.5)), "p99",
                     integer(sw_bench_percentile(s, 0.99)), "max", integer(sw_bench_percentile(s, 1)));
}

static json_t *json_op(struct sw_bench_report *r, enum sw_bench_op op) {
    struct sw_bench_op_statistics *f = &r->sum.ops[op];
    return json_pack("{s:o,s:o,s:o,s:o,s:f,s:f,s:f,s:o,s:o}", "count", integer(f->n), "regions", integer(f->n_regions),
                     "by_client", integer(f->n_by_client), "bytes", integer(f->bytes), "busy_s", r->busy_s[op], "gbps",
                     op_gbps(r, op), "x_raw", op_x_raw(r, op), "latency_us", json_samples(&f->latency_us), "service_us",
                     json_samples(&f->service_us));
}

static json_t *json_count(const struct sw_bench_count *c) {
    return json_pack("{s:o,s:o,s:o,s:f}", "count", integer(c->n), "raw_bytes", integer(c->raw_bytes), "stored_bytes",
                     integer(c->stored_bytes), "ratio", ratio_of(c));
}

static json_t *json_setting(const struct sw_bench_report *r) {
    const struct sw_bench_options *o = r->options;
    char mix[32];
    (void)snprintf(mix, sizeof mix, "%u:%u", o->mix_spills, o->mix_restores);
    return json_pack("{s:s,s:s,s:s,s:b,s:o,s:o,s:i,s:i,s:i,s:i,s:s,s:o,s:o,s:o,s:b}", "version", r->status.version,
                     "device", r->status.device, "kind", sw_bench_kind_name(o->kind), "registered", o->registered,
                     "min_bytes", integer(o->min_bytes), "max_bytes", integer(o->max_bytes), "batch", (int)o->batch,
                     "sessions", (int)o->sessions, "in_flight", (int)o->in_flight, "parked", (int)o->parked, "mix", mix,
                     "think_us", integer(o->think_us), "stagger_us", integer(o->stagger_us), "seed", integer(o->seed),
                     "verify", o->verify);
}

static json_t *json_columns(const struct sw_bench_report *r) {
    json_t *list = json_array();
    for (unsigned i = 0; i < r->options->n_columns; i++) {
        json_t *column = json_count(&r->sum.columns[i]);
        (void)json_object_set_new(column, "name", json_string(r->options->columns[i]));
        (void)json_array_append_new(list, column);
    }
    return list;
}

static json_t *json_stored(const struct sw_bench_report *r) {
    json_t *list = json_array();
    for (int i = 0; i < SW_BENCH_MAX_NAMES && r->sum.stored[i].n; i++) {
        json_t *stored = json_count(&r->sum.stored[i]);
        (void)json_object_set_new(stored, "codec", json_string(r->sum.stored[i].codec));
        (void)json_object_set_new(stored, "tier", json_string(r->sum.stored[i].tier));
        (void)json_object_set_new(stored, "reason", json_string(r->sum.stored[i].reason));
        (void)json_array_append_new(list, stored);
    }
    return list;
}

json_t *sw_bench_json_errors(const struct sw_bench_statistics *f) {
    json_t *errors = json_object();
    for (int i = 0; i < SW_BENCH_MAX_NAMES && f->errors[i].n; i++)
        (void)json_object_set_new(errors, f->errors[i].codec, integer(f->errors[i].n));
    return errors;
}

static json_t *json_sessions(const struct sw_bench_report *r) {
    json_t *list = json_array();
    for (unsigned i = 0; i < r->options->sessions; i++)
        (void)json_array_append_new(list, json_pack("{s:o,s:f,s:f}", "bytes", integer(r->session_bytes[i]), "s",
                                                    r->session_s[i], "gbps", session_gbps(r, i)));
    return list;
}

json_t *sw_bench_json(struct sw_bench_report *r) {
    const uint64_t n = r->sum.ops[SW_BENCH_SPILL].n + r->sum.ops[SW_BENCH_RESTORE].n;
    json_t *raw = json_pack("{s:o,s:i,s:i,s:f,s:f,s:f}", "piece_bytes", integer(r->raw.piece_bytes), "threads",
                            (int)r->raw.threads, "copies_per_sync", (int)r->raw.per_sync, "out_gbps", r->raw.out_gbps,
                            "back_gbps", r->raw.back_gbps, "both_gbps", r->raw.both_gbps);
    json_t *total =
        json_pack("{s:o,s:o,s:f,s:f,s:f}", "count", integer(n), "bytes", integer(total_bytes(r)), "busy_s",
                  r->busy_s[SW_BENCH_OP_NR], "gbps", total_gbps(r), "x_raw", quotient(total_gbps(r), r->raw.both_gbps));
    return json_pack("{s:o,s:f,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:f,s:o,s:o,s:o,s:o,s:i}", "setting", json_setting(r),
                     "wall_s", r->wall_s, "raw_copy", raw, "spill", json_op(r, SW_BENCH_SPILL), "restore",
                     json_op(r, SW_BENCH_RESTORE), "total", total, "columns", json_columns(r), "stored", json_stored(r),
                     "sessions", json_sessions(r), "fairness", fairness(r), "compared", integer(r->sum.n_compared),
                     "different", integer(r->sum.n_different), "dropped", integer(r->sum.n_dropped), "errors",
                     sw_bench_json_errors(&r->sum), "failed_sessions", (int)r->failed_sessions);
}

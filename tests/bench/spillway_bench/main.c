/* main.c - spillway-bench: loads a running spillwayd, see --help. */
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/thread.h"
#include "tests/bench/spillway_bench/columns.h"
#include "tests/bench/spillway_bench/report.h"
#include "tests/bench/spillway_bench/session.h"
#include "tests/bench/spillway_bench/table.h"
#include "tests/lib/requests.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const uint64_t max_raw_piece_bytes = 256u << 20;
/* At least so many copies, since an engine need not wait for each. At most so many bytes: beside them one wait takes no
 * time. */
enum { LEAST_COPIES_PER_SYNC = 8 };
static const uint64_t max_bytes_per_sync = 1u << 30;

static struct sw_bench_run run;
static struct sw_bench_session *sessions[SW_BENCH_MAX_SESSIONS];
static uint64_t session_bytes[SW_BENCH_MAX_SESSIONS];
static double session_s[SW_BENCH_MAX_SESSIONS];

static void on_interrupt(int signal) {
    (void)signal;
    atomic_store(&run.stop, true);
}

static int failed(const char *what, const char *name, const char *text) {
    (void)fprintf(stderr, "spillway-bench: %s: %s: %s\n", what, name, text);
    return -1;
}

static int failed_here(const char *what, const struct sw_err *err) {
    return failed(what, sw_err_name(err->code), err->msg);
}

/* Asks the daemon about itself, and decides which memory is spilled. */
static int choose_memory(struct spillway_status *ret) {
    struct sw_bench_options *o = &run.options;
    struct spillway *connection;
    struct spillway_error error;
    const char *reason = NULL;
    if (spillway_open(&connection, SW_OPTIONS(.socket_path = o->socket), &error) < 0)
        return failed("connect", error.name, error.text);
    ret->size = sizeof *ret;
    const int rc = spillway_status(connection, ret, &error);
    spillway_close(connection);
    if (rc < 0)
        return failed("status", error.name, error.text);
    const bool gpu = sw_buffer_usable_kinds(&reason) > SW_BUFFER_CUDA_MALLOC;
    if (!o->kind_given)
        o->kind = gpu && ret->n_gpus ? SW_BUFFER_CUDA_MALLOC : SW_BUFFER_MEMFD;
    if (o->kind != SW_BUFFER_MEMFD && !gpu)
        return failed("--kind", sw_bench_kind_name(o->kind), reason);
    run.device = o->kind == SW_BUFFER_MEMFD ? &sw_bench_host : sw_bench_gpu();
    return 0;
}

static int make_columns(void) {
    const struct sw_bench_options *o = &run.options;
    struct sw_err err;
    for (unsigned i = 0; i < o->n_columns; i++) {
        const unsigned value_bytes = sw_bench_column_value_bytes(o->columns[i]);
        int rc = 0;
        if (o->min_bytes < value_bytes)
            rc = sw_err_set(&err, -SW_EINVAL, SW_SCOPE_REQUEST, "%.48s: --size is less than a value of %u bytes",
                            o->columns[i], value_bytes);
        if (rc == 0)
            rc = sw_bench_column_new(&run.columns[i], o->columns[i], o->max_bytes, o->kind, &err);
        if (rc < 0)
            return failed_here("column", &err);
    }
    return 0;
}

static int make_sessions(void) {
    struct sw_err err;
    for (unsigned i = 0; i < run.options.sessions; i++)
        if (sw_bench_session_new(&sessions[i], &run, i, &err) < 0)
            return failed_here("session", &err);
    return 0;
}

/* Runs all sessions to their end. */
static int run_sessions(struct sw_bench_report *r) {
    const uint64_t start_us = sw_clock_us();
    unsigned n = 0;
    sw_bench_run_begin(&run);
    while (n < run.options.sessions && sw_bench_session_start(sessions[n]) == 0)
        n++;
    if (n < run.options.sessions)
        atomic_store(&run.stop, true);
    for (unsigned i = 0; i < n; i++)
        r->failed_sessions += sw_bench_session_join(sessions[i]) < 0;
    r->wall_s = (double)(sw_clock_us() - start_us) / 1e6;
    for (int i = 0; i <= SW_BENCH_OP_NR; i++)
        r->busy_s[i] = (double)run.busy.kinds[i].total_us / 1e6;
    return n == run.options.sessions ? 0 : failed("session", "ENOMEM", "no thread");
}

/* A run in which each spill was refused has shown nothing. */
static int check_spilled(const struct sw_bench_statistics *f) {
    if (f->ops[SW_BENCH_SPILL].n || !f->errors[0].n || atomic_load(&run.stop))
        return 0;
    return failed("spill", f->errors[0].codec, "none succeeded");
}

/* Takes the statistics. */
static int write_json(json_t *json) {
    const char *path = run.options.json;
    const size_t flags = JSON_INDENT(1) | JSON_REAL_PRECISION(6);
    int rc = -1;
    if (json && strcmp(path, "-") == 0)
        rc = json_dumpf(json, stdout, flags) < 0 || puts("") < 0 || fflush(stdout) != 0 ? -1 : 0;
    else if (json)
        rc = json_dump_file(json, path, flags);
    json_decref(json);
    return rc < 0 ? failed("--json", path, "cannot be written") : 0;
}

static FILE *report_file(void) {
    const char *json = run.options.json;
    return json && strcmp(json, "-") == 0 ? stderr : stdout;
}

static int report(struct sw_bench_report *r) {
    const char *json = run.options.json;
    for (unsigned i = 0; i < run.options.sessions; i++) {
        const struct sw_bench_statistics *f = sw_bench_session_statistics(sessions[i]);
        sw_bench_statistics_add(&r->sum, f);
        session_s[i] = sw_bench_session_s(sessions[i]);
        session_bytes[i] = f->ops[SW_BENCH_SPILL].bytes + f->ops[SW_BENCH_RESTORE].bytes;
    }
    r->session_bytes = session_bytes;
    r->session_s = session_s;
    sw_bench_print(report_file(), r);
    int rc = json ? write_json(sw_bench_json(r)) : 0;
    if (r->sum.out_of_memory)
        rc = failed("report", "ENOMEM", "some times are missing");
    return r->failed_sessions || check_spilled(&r->sum) < 0 ? -1 : rc;
}

/* An engine queues all copies of what a session has under way, then waits once. */
static unsigned copies_per_sync(const struct sw_bench_options *o, uint64_t piece_bytes) {
    const uint64_t most = max_bytes_per_sync / piece_bytes,
                   under_way = (uint64_t)(o->batch ? o->batch : 1) * o->in_flight;
    const uint64_t n = under_way < most ? under_way : most;
    return n > LEAST_COPIES_PER_SYNC ? (unsigned)n : LEAST_COPIES_PER_SYNC;
}

static int run_table(const struct spillway_status *status) {
    struct sw_bench_table *table = NULL;
    struct sw_bench_raw raw;
    struct sw_err err;
    const char *raw_failed = run.device->raw(&raw, max_raw_piece_bytes, LEAST_COPIES_PER_SYNC, 1);
    if (raw_failed)
        return failed("raw copy", sw_bench_kind_name(run.options.kind), raw_failed);
    if (sw_bench_table_new(&table, &run, &err) < 0)
        return failed_here("table", &err);
    sw_bench_run_begin(&run);
    int rc = sw_bench_table_run(table);
    sw_bench_table_print(report_file(), table, &raw, status);
    if (run.options.json && write_json(sw_bench_table_json(table, &raw, status)) < 0)
        rc = -1;
    if (rc == 0)
        rc = check_spilled(sw_bench_table_statistics(table));
    sw_bench_table_free(table);
    return rc;
}

static int run_all(struct sw_bench_report *r) {
    const uint64_t piece_bytes =
        run.options.max_bytes < max_raw_piece_bytes ? run.options.max_bytes : max_raw_piece_bytes;
    if (choose_memory(&r->status) < 0)
        return -1;
    if (run.options.table)
        return run_table(&r->status);
    if (make_columns() < 0)
        return -1;
    const char *raw_failed =
        run.device->raw(&r->raw, piece_bytes, copies_per_sync(&run.options, piece_bytes), run.options.sessions);
    if (raw_failed)
        return failed("raw copy", sw_bench_kind_name(run.options.kind), raw_failed);
    if (make_sessions() < 0 || run_sessions(r) < 0)
        return -1;
    return report(r);
}

static int bench(int argc, char **argv) {
    struct sw_bench_report r = {.options = &run.options};
    struct sigaction interrupt = {.sa_handler = on_interrupt};
    const int exit_code = sw_bench_parse(&run.options, argc, argv);
    if (exit_code >= 0)
        return exit_code;
    (void)pthread_mutex_init(&run.busy.lock, NULL);
    interrupt.sa_flags |= (int)SA_RESETHAND; /* a second one ends it */
    (void)sigaction(SIGINT, &interrupt, NULL);
    int rc = run_all(&r);
    if (rc == 0 && (fflush(stdout) != 0 || ferror(stdout)))
        rc = failed("report", "EIO", strerror(errno));
    for (unsigned i = 0; i < run.options.sessions; i++)
        sw_bench_session_free(sessions[i]);
    for (unsigned i = 0; i < run.options.n_columns; i++)
        sw_buffer_free(run.columns[i]);
    sw_bench_statistics_fini(&r.sum);
    return rc < 0;
}

int main(int argc, char **argv) {
    sw_descriptors_begin();
    return sw_thread_run(bench, argc, argv);
}

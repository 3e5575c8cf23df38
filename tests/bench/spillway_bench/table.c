#include "tests/bench/spillway_bench/table.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "tests/bench/spillway_bench/report.h"
#include "tests/lib/lineitem.h"
#include "tests/lib/requests.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SEED = 1, OTHER_BYTE = 0xdb, N = SW_LINEITEM_BUFFERS };

_Static_assert((int)SPILLWAY_F64 == (int)SW_VALUE_F64, "one list of value types");

struct sw_bench_table {
    const struct sw_bench_run *run;
    const struct sw_bench_options *options; /* the run's, as is the device */
    const struct sw_bench_device *device;
    struct sw_lineitem *content;                /* after the start without its bytes */
    struct sw_buffer *originals[N], *memory[N]; /* what is spilled is a copy */
    struct spillway_buffer buffers[N];          /* in `memory` */
    struct spillway_buffer_info stored[SPILLWAY_MAX_BUFFERS];
    struct spillway *connection;
    struct sw_bench_statistics statistics;
};

static int say(const char *what, const char *name, const char *text) {
    (void)fprintf(stderr, "spillway-bench: %s: %s: %s\n", what, name, text);
    return -1;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int take_error(struct sw_err *err, const struct spillway_error *error) {
    return sw_err_set(err, error->code, (enum sw_scope)error->scope, "%s", error->text);
}

/* Room of a multiple of 16 bytes, as comparing needs it. */
static int make_buffer(struct sw_bench_table *t, int i, struct sw_err *err) {
    struct sw_lineitem_buffer *content = &t->content->buffers[i];
    const enum sw_buffer_kind kind = t->options->kind;
    struct spillway_error error;
    int rc =
        sw_buffer_new(&t->originals[i], kind == SW_BUFFER_MEMFD ? kind : SW_BUFFER_CUDA_MALLOC, content->bytes, err);
    if (!rc)
        rc = sw_buffer_upload(t->originals[i], 0, content->data, content->bytes, err);
    if (!rc)
        rc = sw_buffer_new(&t->memory[i], kind, content->bytes, err);
    if (rc)
        return rc;
    free(content->data);
    content->data = NULL;
    t->buffers[i] =
        (struct spillway_buffer){.data = t->memory[i]->data, .bytes = content->bytes, .type = (uint16_t)content->type};
    if (t->options->registered && spillway_register(t->connection, t->buffers[i].data, content->bytes, &error) < 0)
        return take_error(err, &error);
    return 0;
}

int sw_bench_table_new(struct sw_bench_table **ret, const struct sw_bench_run *run, struct sw_err *err) {
    const struct sw_bench_options *options = &run->options;
    struct spillway_error error;
    struct sw_bench_table *t = sw_alloc(sizeof *t);
    if (t)
        t->content = sw_lineitem_new(options->scale, SEED);
    if (!t || !t->content) {
        sw_free(t);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a table of scale %g", options->scale);
    }
    t->run = run;
    t->options = options;
    t->device = run->device;
    int rc = spillway_open(&t->connection, SW_OPTIONS(.socket_path = options->socket), &error) < 0
                 ? take_error(err, &error)
                 : 0;
    for (int i = 0; !rc && i < N; i++)
        rc = make_buffer(t, i, err);
    if (rc)
        sw_bench_table_free(t);
    else
        *ret = t;
    return rc;
}

void sw_bench_table_free(struct sw_bench_table *t) {
    if (!t)
        return;
    spillway_close(t->connection);
    for (int i = 0; i < N; i++) {
        sw_buffer_free(t->originals[i]);
        sw_buffer_free(t->memory[i]);
    }
    sw_lineitem_free(t->content);
    sw_bench_statistics_fini(&t->statistics);
    sw_free(t);
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

static int fill(struct sw_bench_table *t) {
    const char *failed = NULL;
    for (int i = 0; !failed && i < N; i++)
        failed = t->device->copy(t->buffers[i].data, t->originals[i]->data, t->buffers[i].bytes);
    return failed ? say("memory", "EGPU", failed) : 0;
}

static int wipe(struct sw_bench_table *t) {
    const char *failed = NULL;
    for (int i = 0; !failed && i < N; i++)
        failed = t->device->set(t->buffers[i].data, OTHER_BYTE, t->buffers[i].bytes);
    return failed ? say("memory", "EGPU", failed) : 0;
}

static int compare(struct sw_bench_table *t) {
    for (int i = 0; i < N; i++) {
        bool same = false;
        const char *failed = t->device->equal(t->buffers[i].data, t->originals[i]->data, t->buffers[i].bytes, &same);
        if (failed)
            return say("memory", "EGPU", failed);
        t->statistics.n_compared++;
        t->statistics.n_different += !same;
        if (!same)
            return say(t->content->buffers[i].column, "MISMATCH", "the restored bytes are not the original ones");
    }
    return 0;
}

/* Spills the buffers, or restores *region, and notes how long that took. */
static int try_move(struct sw_bench_table *t, enum sw_bench_op op, struct spillway_region *region,
                    struct spillway_error *error) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    const struct spillway_request request = {.size = sizeof request,
                                             SW_SEVERAL(t->buffers, N),
                                             .stream = t->device->stream(),
                                             .region = op == SW_BENCH_SPILL ? (struct spillway_region){0} : *region};
    const uint64_t begun_us = sw_clock_us();
    int rc = (op == SW_BENCH_SPILL ? spillway_spill : spillway_restore)(t->connection, &request, 1, &ticket, error);
    if (!rc)
        rc = spillway_wait(ticket, -1, &result, 1, error);
    const uint64_t us = sw_clock_us() - begun_us;
    spillway_ticket_free(ticket);
    if (rc) {
        sw_bench_note_error(&t->statistics, error->name);
        return rc;
    }
    *region = result.region;
    sw_bench_note(&t->statistics, op, &result, 1, us, 0);
    return 0;
}

/* Again and again, as a session does it, but for a spill when the run is over: IS_OVER. Else 0, or -1. */
enum { IS_OVER = 1 };
static int move(struct sw_bench_table *t, enum sw_bench_op op, struct spillway_region *region) {
    struct sw_bench_refused refused = {0};
    struct spillway_error error;
    char text[SW_BENCH_TEXT_BYTES];
    const uint64_t n = t->statistics.ops[op].n;
    while (try_move(t, op, region, &error)) {
        if (!sw_bench_may_repeat(&error))
            return say(op == SW_BENCH_SPILL ? "spill" : "restore", error.name, error.text);
        if (op == SW_BENCH_SPILL && sw_bench_is_over(t->run, n))
            return IS_OVER;
        if (op == SW_BENCH_SPILL && sw_bench_is_full(&error) && sw_bench_is_hopeless(t->run, &refused))
            return say("spill", error.name, sw_bench_give_up_text(text, t->run, &error, n));
        (void)usleep(SW_BENCH_BACKOFF_US);
    }
    return 0;
}

static int go_round(struct sw_bench_table *t, bool is_first) {
    struct spillway_region region;
    struct spillway_error error;
    uint32_t n;
    const bool verify = t->options->verify;
    if ((verify || is_first) && fill(t))
        return -1;
    const int rc = move(t, SW_BENCH_SPILL, &region);
    if (rc)
        return rc;
    if (spillway_query_buffers(t->connection, region, t->stored, &n, &error) < 0)
        return say("query", error.name, error.text);
    if ((verify && wipe(t)) || move(t, SW_BENCH_RESTORE, &region))
        return -1;
    return verify ? compare(t) : 0;
}

int sw_bench_table_run(struct sw_bench_table *t) {
    int rc = 0;
    for (uint64_t i = 0; !rc && (i ? !sw_bench_is_over(t->run, i) : !atomic_load(&t->run->stop)); i++)
        rc = go_round(t, i == 0);
    return rc < 0 ? rc : 0;
}

const struct sw_bench_statistics *sw_bench_table_statistics(const struct sw_bench_table *t) {
    return &t->statistics;
}

/* ---- report ------------------------------------------------------------------------------------------------------ */

static double gbps(struct sw_bench_table *t, enum sw_bench_op op, double part) {
    const uint64_t us = sw_bench_percentile(&t->statistics.ops[op].latency_us, part);
    return us ? (double)t->content->bytes / (double)us / 1e3 : 0;
}

static double raw_gbps(const struct sw_bench_raw *raw, enum sw_bench_op op) {
    return op == SW_BENCH_SPILL ? raw->out_gbps : raw->back_gbps;
}

static double x_raw(struct sw_bench_table *t, const struct sw_bench_raw *raw, enum sw_bench_op op) {
    return raw_gbps(raw, op) > 0 ? gbps(t, op, 0.5) / raw_gbps(raw, op) : 0;
}

static double ratio(uint64_t raw_bytes, uint64_t stored_bytes) {
    return stored_bytes ? (double)raw_bytes / (double)stored_bytes : 0;
}

static void print_op(FILE *to, struct sw_bench_table *t, const struct sw_bench_raw *raw, enum sw_bench_op op,
                     const char *name) {
    struct sw_bench_op_statistics *f = &t->statistics.ops[op];
    (void)fprintf(to, "%-8s %8" PRIu64 " %10.2f %8.2f %10.2f %10.2f %10.2f\n", name, f->n, gbps(t, op, 0.5),
                  x_raw(t, raw, op), (double)sw_bench_percentile(&f->latency_us, 0.5) / 1e3,
                  (double)sw_bench_percentile(&f->latency_us, 0) / 1e3,
                  (double)sw_bench_percentile(&f->latency_us, 1) / 1e3);
}

static void print_buffers(FILE *to, const struct sw_bench_table *t) {
    uint64_t stored_bytes = 0;
    (void)fprintf(to, "\n%-16s %-10s %-5s %-6s %12s %12s %8s  %s\n", "column", "buffer", "type", "codec", "bytes",
                  "stored", "ratio", "why");
    for (int i = 0; i < N; i++) {
        const struct sw_lineitem_buffer *b = &t->content->buffers[i];
        const struct spillway_buffer_info *s = &t->stored[i];
        stored_bytes += s->stored_bytes;
        (void)fprintf(to, "%-16s %-10s %-5s %-6s %12" PRIu64 " %12" PRIu64 " %8.3f  %s\n", b->column, b->role,
                      b->type == SW_VALUE_NONE ? "bytes" : sw_value_type_name(b->type), s->codec, s->raw_bytes,
                      s->stored_bytes, ratio(s->raw_bytes, s->stored_bytes), s->reason);
    }
    (void)fprintf(to, "%-40s %12" PRIu64 " %12" PRIu64 " %8.3f\n", "all", t->content->bytes, stored_bytes,
                  ratio(t->content->bytes, stored_bytes));
}

void sw_bench_table_print(FILE *to, struct sw_bench_table *t, const struct sw_bench_raw *raw,
                          const struct spillway_status *status) {
    (void)fprintf(to, "spillwayd %s on %s; memory: %s%s; %s at scale %g: %" PRIu64 " rows, %d buffers, one region\n\n",
                  status->version, status->device, sw_bench_kind_name(t->options->kind),
                  t->options->registered ? ", registered" : "", t->options->table, t->options->scale, t->content->rows,
                  N);
    (void)fprintf(to, "%-8s %8s %10s %8s %10s %10s %10s\n", "", "rounds", "GB/s", "x raw", "median ms", "best",
                  "worst");
    print_op(to, t, raw, SW_BENCH_SPILL, "spill");
    print_op(to, t, raw, SW_BENCH_RESTORE, "restore");
    (void)fprintf(to, "\nraw copy  %.2f GB/s out, %.2f back; pieces of %" PRIu64 " bytes\n", raw->out_gbps,
                  raw->back_gbps, raw->piece_bytes);
    print_buffers(to, t);
    (void)fputs("\n", to);
    sw_bench_print_errors(to, &t->statistics);
    sw_bench_print_check(to, &t->statistics, t->options->verify, t->statistics.ops[SW_BENCH_RESTORE].n * N, "buffers");
    (void)fflush(to);
}

static json_t *json_op(struct sw_bench_table *t, const struct sw_bench_raw *raw, enum sw_bench_op op) {
    struct sw_bench_samples *us = &t->statistics.ops[op].latency_us;
    return json_pack("{s:I,s:f,s:f,s:{s:I,s:I,s:I}}", "count", (json_int_t)t->statistics.ops[op].n, "gbps",
                     gbps(t, op, 0.5), "x_raw", x_raw(t, raw, op), "latency_us", "p50",
                     (json_int_t)sw_bench_percentile(us, 0.5), "min", (json_int_t)sw_bench_percentile(us, 0), "max",
                     (json_int_t)sw_bench_percentile(us, 1));
}

static json_t *json_buffers(const struct sw_bench_table *t) {
    json_t *list = json_array();
    for (int i = 0; i < N; i++) {
        const struct sw_lineitem_buffer *b = &t->content->buffers[i];
        const struct spillway_buffer_info *s = &t->stored[i];
        (void)json_array_append_new(list, json_pack("{s:s,s:s,s:s,s:s,s:s,s:I,s:I,s:f}", "column", b->column, "buffer",
                                                    b->role, "type", sw_value_type_name(b->type), "codec", s->codec,
                                                    "reason", s->reason, "raw_bytes", (json_int_t)s->raw_bytes,
                                                    "stored_bytes", (json_int_t)s->stored_bytes, "ratio",
                                                    ratio(s->raw_bytes, s->stored_bytes)));
    }
    return list;
}

json_t *sw_bench_table_json(struct sw_bench_table *t, const struct sw_bench_raw *raw,
                            const struct spillway_status *status) {
    return json_pack(
        "{s:s,s:s,s:s,s:b,s:s,s:f,s:I,s:I,s:{s:I,s:f,s:f},s:o,s:o,s:o,s:I,s:I,s:o}", "version", status->version,
        "device", status->device, "kind", sw_bench_kind_name(t->options->kind), "registered", t->options->registered,
        "table", t->options->table, "scale", t->options->scale, "rows", (json_int_t)t->content->rows, "bytes",
        (json_int_t)t->content->bytes, "raw_copy", "piece_bytes", (json_int_t)raw->piece_bytes, "out_gbps",
        raw->out_gbps, "back_gbps", raw->back_gbps, "spill", json_op(t, raw, SW_BENCH_SPILL), "restore",
        json_op(t, raw, SW_BENCH_RESTORE), "buffers", json_buffers(t), "compared", (json_int_t)t->statistics.n_compared,
        "different", (json_int_t)t->statistics.n_different, "errors", sw_bench_json_errors(&t->statistics));
}

/* packed_query.c - a query on l_shipdate and l_quantity (tests/example/packed_filter.cu) on packed columns, against
 * what an engine does without reading them where they lie: unpack them, or restore them from the host, and then query.
 *
 * Talks to a running spillwayd ($SPILLWAY_SOCKET). Every sum is compared with the host's. */
#include "ipc/spillway.h"
#include "tests/example/packed_filter.h"
#include "tests/lib/requests.h"
#include "tests/lib/tpch_tables.h"

#include <cuda_runtime.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPEATS = 21, SLOW_REPEATS = 5, COLUMNS = 2 };

static const char usage[] =
    "usage: bench_packed_query [SCALE]\n"
    "Sums l_quantity where l_shipdate is before a day, lineitem of SCALE (default 1); milliseconds, "
    "medians.\n";

struct column {
    enum sw_tpch_column name;
    unsigned value_bytes;
    uint8_t *content, *d_data;
    uint64_t bytes, packed_bytes;
    struct spillway_region region;
};

struct bench {
    struct spillway *connection;
    struct column columns[COLUMNS]; /* l_shipdate, l_quantity */
    uint64_t rows;
    int32_t before;
    struct packed_filter_result want, *d_result;
    cudaStream_t stream;
    cudaEvent_t begin, end;
};

static void fail(const char *what, const char *text) {
    (void)fprintf(stderr, "bench_packed_query: %s: %s\n", what, text);
    exit(1);
}

static void cuda_ok(cudaError_t e, const char *call) {
    if (e != cudaSuccess)
        fail(call, cudaGetErrorString(e));
}
#define CUDA(call) cuda_ok((call), #call)

static double now_ms(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[n / 2];
}

/* ---- columns ---- */

static void make_column(struct column *c, const struct sw_tpch *t) {
    const uint64_t orders = sw_tpch_orders(t);
    c->content = malloc(sw_tpch_bound_bytes(c->name, sw_tpch_rows(t, c->name, 0, orders)));
    if (!c->content)
        fail("malloc", "no memory");
    c->bytes = sw_tpch_fill(t, c->name, 0, orders, c->content, NULL);
    c->value_bytes = sw_value_type_bytes(sw_tpch_column_type(c->name));
    CUDA(cudaMalloc((void **)&c->d_data, c->bytes));
}

static void upload(const struct bench *b) {
    for (int i = 0; i < COLUMNS; i++)
        CUDA(cudaMemcpy(b->columns[i].d_data, b->columns[i].content, b->columns[i].bytes, cudaMemcpyHostToDevice));
}

enum step { PACK, UNPACK, SPILL, RESTORE };

static int start(struct bench *b, struct column *c, enum step step, struct spillway_ticket **ret,
                 struct spillway_error *error) {
    const enum spillway_value_type type = (enum spillway_value_type)sw_tpch_column_type(c->name);
    const bool is_spill = step == PACK || step == SPILL;
    const struct spillway_request request = {.size = sizeof request,
                                             SW_ONE_TYPED(c->d_data, c->bytes, type),
                                             .region = is_spill ? (struct spillway_region){0} : c->region,
                                             .stream = b->stream,
                                             .flags = step == PACK || step == UNPACK ? SPILLWAY_IN_PLACE
                                                      : is_spill                     ? 0
                                                                                     : SPILLWAY_KEEP};
    return (is_spill ? spillway_spill : spillway_restore)(b->connection, &request, 1, ret, error);
}

/* Both columns at once. */
static void move(struct bench *b, enum step step) {
    struct spillway_ticket *tickets[COLUMNS];
    struct spillway_result result = {.size = sizeof result};
    struct spillway_error error;
    for (int i = 0; i < COLUMNS; i++)
        if (start(b, &b->columns[i], step, &tickets[i], &error) < 0)
            fail(error.name, error.text);
    for (int i = 0; i < COLUMNS; i++) {
        if (spillway_wait(tickets[i], -1, &result, 1, &error) < 0)
            fail(error.name, error.text);
        spillway_ticket_free(tickets[i]);
        if (step == PACK || step == SPILL)
            b->columns[i].region = result.region;
        if (step == PACK)
            b->columns[i].packed_bytes = result.stored_bytes;
    }
}

static void drop(struct bench *b) {
    struct spillway_error error;
    for (int i = 0; i < COLUMNS; i++)
        if (spillway_drop(b->connection, &b->columns[i].region, 1, &error) < 0)
            fail(error.name, error.text);
}

/* ---- the query ---- */

static void expect(struct bench *b) {
    const int32_t *day = (const int32_t *)(const void *)b->columns[0].content;
    const int64_t *quantity = (const int64_t *)(const void *)b->columns[1].content;
    b->want = (struct packed_filter_result){.rows = b->rows};
    for (uint64_t i = 0; i < b->rows; i++)
        if (day[i] < b->before) {
            b->want.selected++;
            b->want.sum += (unsigned long long)quantity[i];
        }
}

static void check(const struct bench *b) {
    struct packed_filter_result got;
    CUDA(cudaMemcpy(&got, b->d_result, sizeof got, cudaMemcpyDeviceToHost));
    if (got.sum != b->want.sum || got.selected != b->want.selected || got.rows != b->want.rows)
        fail("the query", "wrong sum");
}

/* Queues it; columns: packed ones, or NULL. */
static void query(const struct bench *b, struct packed_column *const *columns) {
    const struct column *c = b->columns;
    const int rc =
        columns ? packed_filter(columns[0], columns[1], b->before, b->d_result, b->stream)
                : plain_filter((const int32_t *)(const void *)c[0].d_data, (const int64_t *)(const void *)c[1].d_data,
                               b->rows, b->before, b->d_result, b->stream);
    CUDA((cudaError_t)rc);
}

static double time_query(const struct bench *b, struct packed_column *const *columns) {
    double ms[REPEATS];
    query(b, columns); /* warm */
    for (int i = 0; i < REPEATS; i++) {
        float elapsed = 0;
        CUDA(cudaEventRecord(b->begin, b->stream));
        query(b, columns);
        CUDA(cudaEventRecord(b->end, b->stream));
        CUDA(cudaEventSynchronize(b->end));
        CUDA(cudaEventElapsedTime(&elapsed, b->begin, b->end));
        ms[i] = (double)elapsed;
        check(b);
    }
    return median(ms, REPEATS);
}

static double time_packed(struct bench *b) {
    struct packed_column *columns[COLUMNS];
    struct spillway_error error;
    for (int i = 0; i < COLUMNS; i++) {
        const struct column *c = &b->columns[i];
        columns[i] =
            packed_column_new(b->connection, c->region, c->d_data, i ? PACKED_QUANTITY : PACKED_SHIPDATE, &error);
        if (!columns[i])
            fail(error.name, error.text);
    }
    const double ms = time_query(b, columns);
    for (int i = 0; i < COLUMNS; i++)
        packed_column_free(columns[i]);
    return ms;
}

/* Measures the time from the call that brings the columns back until the sum is there, by the host's clock. */
static double time_with(struct bench *b, enum step step) {
    double ms[SLOW_REPEATS];
    for (int i = 0; i < SLOW_REPEATS; i++) {
        if (step == UNPACK)
            move(b, PACK);
        else
            for (int k = 0; k < COLUMNS; k++)
                CUDA(cudaMemset(b->columns[k].d_data, 0, b->columns[k].bytes));
        CUDA(cudaDeviceSynchronize());
        const double begin = now_ms();
        move(b, step);
        query(b, NULL);
        CUDA(cudaStreamSynchronize(b->stream));
        ms[i] = now_ms() - begin;
        check(b);
    }
    return median(ms, SLOW_REPEATS);
}

static void run(struct bench *b) {
    static const int32_t days[] = {8125, 9298, 10592}; /* 1992-03-31, 1995-06-17, after all of them */
    (void)printf("%10s %12s %12s %12s %14s %14s\n", "selected", "plain", "packed", "GB/s packed", "unpack, query",
                 "restore, query");
    for (size_t i = 0; i < sizeof days / sizeof days[0]; i++) {
        b->before = days[i];
        expect(b);
        upload(b);
        const double plain = time_query(b, NULL);
        move(b, SPILL);
        const double restored = time_with(b, RESTORE);
        drop(b);
        move(b, PACK);
        const double packed = time_packed(b);
        move(b, UNPACK);
        const double unpacked = time_with(b, UNPACK);
        (void)printf("%9.1f%% %12.3f %12.3f %12.1f %14.3f %14.3f\n", 100 * (double)b->want.selected / (double)b->rows,
                     plain, packed, (double)(b->columns[0].bytes + b->columns[1].bytes) / packed / 1e6, unpacked,
                     restored);
    }
}

int main(int argc, char **argv) {
    struct bench b = {.columns = {{.name = SW_L_SHIPDATE}, {.name = SW_L_QUANTITY}}};
    struct spillway_error error;
    const double scale = argc > 1 ? atof(argv[1]) : 1;
    if (argc > 2 || !(scale > 0)) {
        (void)fputs(usage, stderr);
        return 2;
    }
    struct sw_tpch *t = sw_tpch_new(scale, 1);
    if (!t)
        fail("lineitem", "no memory");
    if (spillway_open(&b.connection, NULL, &error) < 0)
        fail(error.name, error.text);
    CUDA(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreate(&b.begin));
    CUDA(cudaEventCreate(&b.end));
    CUDA(cudaMalloc((void **)&b.d_result, sizeof *b.d_result));
    for (int i = 0; i < COLUMNS; i++)
        make_column(&b.columns[i], t);
    b.rows = b.columns[0].bytes / b.columns[0].value_bytes;
    run(&b);
    (void)printf("lineitem of scale %g: %llu rows, %llu bytes, packed %llu\n", scale, (unsigned long long)b.rows,
                 (unsigned long long)(b.columns[0].bytes + b.columns[1].bytes),
                 (unsigned long long)(b.columns[0].packed_bytes + b.columns[1].packed_bytes));
    for (int i = 0; i < COLUMNS; i++) {
        CUDA(cudaFree(b.columns[i].d_data));
        free(b.columns[i].content);
    }
    CUDA(cudaFree(b.d_result));
    sw_tpch_free(t);
    spillway_close(b.connection);
    return 0;
}

/* codec.c - speed of the codec on the GPU, device to device, every output verified.
 *
 * A column is a file (tiled to --size), "tpch" (generated l_comment), another string column of TPC-H's ("l_shipmode")
 * or "random". Rows per column: encode warm (symbol table at hand), encode cold (by the host's clock, with sample, copy
 * to the host, training and upload), decode, encode and decode by phrases if the service would choose them, and the raw
 * codec both ways. Everything that makes the frame complete is inside the timed span. Inputs smaller than four times
 * the L2 cache are rotated over several copies. With --imported columns and frames lie in memory that another process
 * took by cudaMalloc, opened by its IPC handle, as the service opens a client's memory. The driver maps it by small
 * pages, so the order counts in which addresses are touched.
 *
 * Columns of numbers ("u32:sorted:4", tests/lib/numbers.h) are encoded and decoded by every codec that takes their
 * type, or by the codec of --codec, and raw. Any column with "lz:4:32:" in front of it is encoded and decoded by lz
 * alone, with symbols of 4 bytes and a window of 32.
 *
 * With --batch N a column is N inputs of --size each, encoded and decoded by the calls for batches; their frames are
 * also copied to pinned memory and back, rows "store" and "load", whose rate is that of the frames' bytes. What the
 * host takes to queue a batch is not in the rates but has a figure of its own. With --streams each input is encoded by
 * a call of its own, all of them at once on as many streams. See --help. */
#include "codec/gpu.h"
#include "codec/lz/lz.h"
#include "codec/plan/planning.h"
#include "tests/lib/numbers.h"
#include "tests/lib/parallel_fill.h"

#include <cuda_runtime.h>
#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_REPEATS 101
#define MAX_COPIES 16
#define MAX_STREAMS 16

static void cuda_ok(cudaError_t e, const char *call) {
    if (e == cudaSuccess)
        return;
    (void)fprintf(stderr, "bench_codec: %s: %s\n", call, cudaGetErrorString(e));
    exit(1);
}
#define CUDA(call) cuda_ok((call), #call)

static void sw_ok(int rc, const struct sw_err *err) {
    if (rc >= 0)
        return;
    (void)fprintf(stderr, "bench_codec: %s: %s\n", sw_err_name(rc), err->msg);
    exit(1);
}

static void *must_alloc(size_t bytes) {
    void *p = malloc(bytes ? bytes : 1);
    if (p)
        return p;
    (void)fprintf(stderr, "bench_codec: out of memory\n");
    exit(1);
}

struct options {
    uint64_t size;
    int repeats, warmups;
    unsigned segment_log2;
    uint32_t batch; /* 0: one input */
    bool is_imported, on_streams;
    uint64_t pool_bytes; /* UINT64_MAX: as many as help */
    const char *codec;   /* NULL: all that take the column's type */
    const char *json_path;
};

/* The state that all measurements share, with buffers for one column. */
struct bench {
    struct options options;
    int to_exporter, from_exporter;
    json_t *rows;
    double copy_gbps; /* device-to-device copy of the same card, read + write counted once */
    cudaStream_t stream;
    cudaEvent_t from, to;
    uint64_t n, frame_cap, frame_bytes;
    unsigned copies;
    uint8_t *h_in, *h_out, *d_in[MAX_COPIES], *d_out, *d_frame, *d_scratch, *d_sample;
    struct sw_gpu_progress *d_progress; /* [streams] */
    size_t scratch_bytes;
    struct sw_gpu_pool pool;
    struct sw_params *d_params;
    struct sw_gpu_result *d_result;
    struct sw_gpu_training *d_training;
    /* Batches; pinned but for d_runs. Frames lie frame_stride apart, on the host as on the device. */
    uint64_t frame_stride;
    struct sw_gpu_item *items;
    struct sw_gpu_result *results;
    struct sw_gpu_run *runs, *d_runs;
    uint8_t *h_frames;
    cudaStream_t streams[MAX_STREAMS];
    cudaEvent_t begun, ended;
};

/* ---- memory of columns and frames ---- */

/* The exporter: answers each length with a handle, and 0 by giving the last allocation back. */
static void export_memory(int from, int to) {
    void *memory[2 * MAX_COPIES] = {NULL};
    unsigned n = 0;
    uint64_t bytes = 0;
    while (read(from, &bytes, sizeof bytes) == (ssize_t)sizeof bytes) {
        cudaIpcMemHandle_t handle;
        if (!bytes) {
            CUDA(cudaFree(memory[--n]));
            continue;
        }
        CUDA(cudaMalloc(&memory[n], bytes));
        CUDA(cudaIpcGetMemHandle(&handle, memory[n++]));
        if (write(to, &handle, sizeof handle) != (ssize_t)sizeof handle)
            exit(1);
    }
    exit(0);
}

/* Before CUDA is up in this process. */
static void start_exporter(struct bench *b) {
    int to[2], from[2];
    if (pipe(to) < 0 || pipe(from) < 0)
        exit(1);
    if (fork() == 0) {
        (void)close(to[1]);
        export_memory(to[0], from[1]);
    }
    (void)close(to[0]);
    (void)close(from[1]);
    b->to_exporter = to[1];
    b->from_exporter = from[0];
}

static uint8_t *column_alloc(struct bench *b, uint64_t bytes) {
    void *memory = NULL;
    cudaIpcMemHandle_t handle;
    if (!b->options.is_imported) {
        CUDA(cudaMalloc(&memory, bytes));
        return memory;
    }
    if (write(b->to_exporter, &bytes, sizeof bytes) != (ssize_t)sizeof bytes ||
        read(b->from_exporter, &handle, sizeof handle) != (ssize_t)sizeof handle)
        exit(1);
    CUDA(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
    return memory;
}

/* The latest that is there. */
static void column_free(struct bench *b, void *memory) {
    const uint64_t give_back = 0;
    CUDA(b->options.is_imported ? cudaIpcCloseMemHandle(memory) : cudaFree(memory));
    if (b->options.is_imported && write(b->to_exporter, &give_back, sizeof give_back) != (ssize_t)sizeof give_back)
        exit(1);
}

static double now_ms(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* bytes: what the rate is of. */
static void report(struct bench *b, const char *column, const char *what, uint64_t bytes, double *ms, int n_ms) {
    qsort(ms, (size_t)n_ms, sizeof *ms, by_value);
    const double median = ms[n_ms / 2], gbps = (double)bytes / median / 1e6;
    const double spread_pct = 100 * (ms[(n_ms * 9) / 10] - ms[n_ms / 10]) / median;
    const double ratio = (double)b->n / (double)b->frame_bytes;
    (void)printf("%-16s %-12s %8.1f GB/s  +-%4.1f %%  ratio %.3f  %5.1f %% of copy  scratch %zu MiB\n", column, what,
                 gbps, spread_pct, ratio, 100 * gbps / b->copy_gbps, (b->scratch_bytes + b->pool.bytes) >> 20);
    json_array_append_new(b->rows, json_pack("{s:s,s:s,s:f,s:f,s:f,s:f,s:I,s:I}", "column", column, "what", what,
                                             "gbps", gbps, "spread_pct", spread_pct, "ratio", ratio, "copy_fraction",
                                             gbps / b->copy_gbps, "bytes", (json_int_t)bytes, "scratch_bytes",
                                             (json_int_t)(b->scratch_bytes + b->pool.bytes)));
}

static void measure_copy(struct bench *b) {
    const size_t bytes = (size_t)2 << 30;
    void *from, *to;
    double ms[11];
    CUDA(cudaMalloc(&from, bytes));
    CUDA(cudaMalloc(&to, bytes));
    CUDA(cudaMemset(from, 1, bytes));
    for (int i = 0; i < 11; i++) {
        float t;
        CUDA(cudaEventRecord(b->from, b->stream));
        CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, b->stream));
        CUDA(cudaEventRecord(b->to, b->stream));
        CUDA(cudaEventSynchronize(b->to));
        CUDA(cudaEventElapsedTime(&t, b->from, b->to));
        ms[i] = (double)t;
    }
    qsort(ms, 11, sizeof *ms, by_value);
    b->copy_gbps = (double)bytes / ms[5] / 1e6;
    (void)printf("device-to-device copy: %.0f GB/s\n", b->copy_gbps);
    CUDA(cudaFree(from));
    CUDA(cudaFree(to));
}

static void queue_encode(struct bench *b, const struct sw_plan *plan, const uint8_t *d_in) {
    struct sw_err err;
    const struct sw_gpu_plan p = sw_gpu_plan_from(plan, b->d_params);
    sw_ok(sw_gpu_encode_async(&p, d_in, b->n, b->d_frame, b->frame_cap, b->d_result, &b->pool, b->d_progress,
                              (struct sw_gpu_pass){0}, b->stream, &err),
          &err);
}

static void queue_decode(struct bench *b, const struct sw_frame_layout *layout) {
    struct sw_err err;
    sw_ok(sw_gpu_decode_async(layout, b->d_frame, 0, layout->n_tiles, b->d_out, b->d_result, (struct sw_gpu_pass){0},
                              b->stream, &err),
          &err);
}

static struct sw_frame_layout read_layout(struct bench *b) {
    uint8_t head[SW_FRAME_HEAD_MAX_BYTES];
    struct sw_gpu_result result = {0};
    struct sw_frame_layout layout;
    struct sw_err err;
    CUDA(cudaMemcpy(&result, b->d_result, sizeof result, cudaMemcpyDeviceToHost));
    b->frame_bytes = result.frame_bytes;
    const size_t n = b->frame_bytes < sizeof head ? b->frame_bytes : sizeof head;
    CUDA(cudaMemcpy(head, b->d_frame, n, cudaMemcpyDeviceToHost));
    sw_ok(sw_frame_parse(&layout, head, n, b->frame_bytes, &err), &err);
    return layout;
}

/* Compares the decoded column with the original on the host. */
static void verify(struct bench *b, const char *column) {
    struct sw_gpu_result result = {0};
    CUDA(cudaMemcpy(&result, b->d_result, sizeof result, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(b->h_out, b->d_out, b->n, cudaMemcpyDeviceToHost));
    if (result.bad_tiles == 0 && memcmp(b->h_in, b->h_out, b->n) == 0)
        return;
    (void)fprintf(stderr, "bench_codec: %s: decoded bytes differ (%u bad tiles)\n", column, result.bad_tiles);
    exit(1);
}

enum step { ENCODE, DECODE };

static void time_step(struct bench *b, const char *column, const char *what, enum step step, const struct sw_plan *plan,
                      const struct sw_frame_layout *layout) {
    double ms[MAX_REPEATS];
    for (int i = -b->options.warmups; i < b->options.repeats; i++) {
        float t;
        if (step == DECODE)
            CUDA(cudaMemsetAsync(b->d_out, 0xEE, b->n, b->stream));
        CUDA(cudaEventRecord(b->from, b->stream));
        if (step == ENCODE)
            queue_encode(b, plan, b->d_in[(unsigned)(i + b->options.warmups) % b->copies]);
        else
            queue_decode(b, layout);
        CUDA(cudaEventRecord(b->to, b->stream));
        CUDA(cudaEventSynchronize(b->to));
        CUDA(cudaEventElapsedTime(&t, b->from, b->to));
        if (i >= 0)
            ms[i] = (double)t;
        if (step == DECODE)
            verify(b, column);
    }
    if (step == ENCODE)
        (void)read_layout(b);
    report(b, column, what, b->n, ms, b->options.repeats);
}

/* Sample, train, choose: what a first spill of a column costs before it can encode. The host waits once, for the
 * choice. */
static void make_plan(struct bench *b, struct sw_plan *plan, const uint8_t *d_in, struct sw_gpu_training *h_training) {
    struct sw_err err;
    const size_t bytes = b->n < SW_SAMPLE_MAX_BYTES ? b->n : SW_SAMPLE_MAX_BYTES;
    sw_ok(sw_gpu_sample_async(d_in, b->n, SW_SAMPLE_SHORT_PIECE_BYTES, b->d_sample, (struct sw_gpu_pass){0}, b->stream,
                              &err),
          &err);
    sw_ok(sw_gpu_train_async(b->d_sample, bytes, b->d_params, b->d_training, b->d_scratch, b->scratch_bytes, b->stream,
                             &err),
          &err);
    CUDA(cudaMemcpyAsync(h_training, b->d_training, sizeof *h_training, cudaMemcpyDeviceToHost, b->stream));
    CUDA(cudaStreamSynchronize(b->stream));
    sw_plan_init_raw(plan);
    if ((double)bytes < 1.05 * (double)h_training->coded_bytes)
        return;
    plan->codec = SW_CODEC_V5T;
    plan->segment_log2 = b->options.segment_log2;
    plan->params.n_symbols = h_training->n_symbols;
}

static void time_cold(struct bench *b, const char *column, struct sw_plan *plan) {
    double ms[MAX_REPEATS];
    struct sw_gpu_training *h_training;
    CUDA(cudaMallocHost((void **)&h_training, sizeof *h_training));
    for (int i = -b->options.warmups; i < b->options.repeats; i++) {
        const uint8_t *d_in = b->d_in[(unsigned)(i + b->options.warmups) % b->copies];
        const double start = now_ms();
        make_plan(b, plan, d_in, h_training);
        queue_encode(b, plan, d_in);
        CUDA(cudaStreamSynchronize(b->stream));
        if (i >= 0)
            ms[i] = now_ms() - start;
    }
    (void)read_layout(b);
    report(b, column, plan->codec == SW_CODEC_RAW ? "cold (raw)" : "encode cold", b->n, ms, b->options.repeats);
    CUDA(cudaFreeHost(h_training));
}

static void time_both(struct bench *b, const char *column, const char *encode, const char *decode,
                      const struct sw_plan *plan) {
    time_step(b, column, encode, ENCODE, plan, NULL);
    const struct sw_frame_layout layout = read_layout(b);
    time_step(b, column, decode, DECODE, NULL, &layout);
}

static void time_numbers(struct bench *b, const char *column, enum sw_value_type type) {
    static uint8_t sample[SW_SAMPLE_MAX_BYTES];
    const size_t sample_bytes = sw_sample_gather(sample, b->h_in, b->n, SW_SAMPLE_LONG_PIECE_BYTES);
    for (int codec = SW_CODEC_FOR; codec < SW_CODEC_NR; codec++) {
        struct sw_plan plan;
        char encode[32], decode[32];
        if (!sw_plan_init_numbers(&plan, (enum sw_codec_id)codec, type) ||
            (b->options.codec && strcmp(b->options.codec, sw_codec_name(plan.codec)) != 0))
            continue;
        sw_plan_learn(&plan, sample, sample_bytes);
        CUDA(cudaMemcpy(b->d_params, &plan.params, sizeof plan.params, cudaMemcpyHostToDevice));
        (void)snprintf(encode, sizeof encode, "%s encode", sw_codec_name(plan.codec));
        (void)snprintf(decode, sizeof decode, "%s decode", sw_codec_name(plan.codec));
        time_both(b, column, encode, decode, &plan);
    }
}

/* Returns the part of a column's name after "lz:SYMBOL_BYTES:WINDOW:", or the whole name without this prefix. */
static const char *parse_lz(const char *column, unsigned *ret_bytes, unsigned *ret_window) {
    int n = 0;
    if (sscanf(column, "lz:%1u:%3u:%n", ret_bytes, ret_window, &n) != 2 || !n)
        return column;
    return column + n;
}

static void time_lz(struct bench *b, const char *column, unsigned symbol_bytes, unsigned window) {
    struct sw_plan plan;
    sw_plan_init_lz(&plan, symbol_bytes == 1 ? SW_VALUE_U8 : symbol_bytes == 2 ? SW_VALUE_U16 : SW_VALUE_U32, window);
    time_both(b, column, "lz encode", "lz decode", &plan);
}

/* The plan of phrases that the service would make after one of v5t; false: it would keep that. Its table lies on the
 * device then. */
static bool make_phrase_plan(struct bench *b, struct sw_plan *ret) {
    static uint8_t sample[SW_SAMPLE_MAX_BYTES];
    sw_plan_make(ret, SW_VALUE_NONE, b->h_in, b->n, sample);
    ret->segment_log2 = b->options.segment_log2;
    if (ret->codec == SW_CODEC_PHRASE)
        CUDA(cudaMemcpy(b->d_params, &ret->params, sizeof ret->params, cudaMemcpyHostToDevice));
    return ret->codec == SW_CODEC_PHRASE;
}

static void measure_column(struct bench *b, const char *column) {
    struct sw_plan plan = {0}, phrase, raw;
    enum sw_value_type type;
    enum sw_numbers kind;
    unsigned bits, symbol_bytes, window;
    if (parse_lz(column, &symbol_bytes, &window) != column)
        time_lz(b, column, symbol_bytes, window);
    else if (sw_numbers_parse(column, &type, &kind, &bits))
        time_numbers(b, column, type);
    else
        time_cold(b, column, &plan);
    if (plan.codec == SW_CODEC_V5T)
        time_both(b, column, "encode warm", "decode", &plan);
    if (plan.codec == SW_CODEC_V5T && make_phrase_plan(b, &phrase))
        time_both(b, column, "phrase encode", "phrase decode", &phrase);
    sw_plan_init_raw(&raw);
    time_both(b, column, "raw encode", "raw decode", &raw);
}

/* ---- batches ---- */

/* Each input on a stream of its own, all between two points of the bench's stream. */
static void queue_on_streams(struct bench *b, const struct sw_gpu_plan *plan, uint8_t *d_in) {
    struct sw_err err;
    CUDA(cudaEventRecord(b->begun, b->stream));
    for (uint32_t i = 0; i < b->options.batch; i++) {
        CUDA(cudaStreamWaitEvent(b->streams[i], b->begun, 0));
        sw_ok(sw_gpu_encode_async(plan, d_in + i * b->options.size, b->options.size, b->d_frame + i * b->frame_stride,
                                  b->frame_stride, &b->results[i], &b->pool, &b->d_progress[i], (struct sw_gpu_pass){0},
                                  b->streams[i], &err),
              &err);
        CUDA(cudaEventRecord(b->ended, b->streams[i]));
        CUDA(cudaStreamWaitEvent(b->stream, b->ended, 0));
    }
}

static void queue_batch_encode(struct bench *b, const struct sw_plan *plan, uint8_t *d_in) {
    struct sw_err err;
    const struct sw_gpu_plan p = sw_gpu_plan_from(plan, b->d_params);
    if (b->options.on_streams) {
        queue_on_streams(b, &p, d_in);
        return;
    }
    for (uint32_t i = 0; i < b->options.batch; i++)
        b->items[i] = (struct sw_gpu_item){.layout.raw_bytes = b->options.size,
                                           .d_raw = d_in + i * b->options.size,
                                           .d_frame = b->d_frame + i * b->frame_stride};
    sw_ok(sw_gpu_encode_batch_async(&p, b->items, b->options.batch, b->results, &b->pool, b->d_scratch,
                                    b->scratch_bytes, (struct sw_gpu_pass){0}, b->stream, &err),
          &err);
}

/* Decodes what the last encode left, by the headers of the frames as they were stored. */
static void queue_batch_decode(struct bench *b) {
    struct sw_err err;
    for (uint32_t i = 0; i < b->options.batch; i++) {
        const uint64_t at = i * b->frame_stride, bytes = b->results[i].frame_bytes;
        b->items[i] = (struct sw_gpu_item){.d_raw = b->d_out + i * b->options.size, .d_frame = b->d_frame + at};
        sw_ok(sw_frame_parse(&b->items[i].layout, b->h_frames + at, bytes, bytes, &err), &err);
        b->results[i].bad_tiles = 0;
    }
    sw_ok(sw_gpu_decode_batch_async(b->items, b->options.batch, b->results, b->d_scratch, b->scratch_bytes,
                                    (struct sw_gpu_pass){0}, b->stream, &err),
          &err);
}

static void queue_batch_copy(struct bench *b, bool is_store) {
    struct sw_err err;
    for (uint32_t i = 0; i < b->options.batch; i++) {
        uint8_t *d = b->d_frame + i * b->frame_stride, *h = b->h_frames + i * b->frame_stride;
        b->runs[i] =
            (struct sw_gpu_run){.from = is_store ? d : h, .to = is_store ? h : d, .bytes = b->results[i].frame_bytes};
    }
    sw_ok(
        sw_gpu_copy_async(b->runs, b->options.batch, b->d_runs, b->options.batch * sizeof *b->d_runs, b->stream, &err),
        &err);
}

static void verify_batch(struct bench *b, const char *column) {
    uint32_t bad_tiles = 0;
    for (uint32_t i = 0; i < b->options.batch; i++)
        bad_tiles += b->results[i].bad_tiles;
    CUDA(cudaMemcpy(b->h_out, b->d_out, b->n, cudaMemcpyDeviceToHost));
    if (bad_tiles == 0 && memcmp(b->h_in, b->h_out, b->n) == 0)
        return;
    (void)fprintf(stderr, "bench_codec: %s: decoded bytes of a batch differ (%u bad tiles)\n", column, bad_tiles);
    exit(1);
}

/* Work in front of a step, so that the whole step is queued when it begins: only the host's work is timed. */
static void queue_delay(struct bench *b) {
    for (int i = 0; i < 4; i++)
        CUDA(cudaMemcpyAsync(b->d_out, b->h_frames, b->n, cudaMemcpyHostToDevice, b->stream));
    CUDA(cudaMemsetAsync(b->d_out, 0xEE, b->n, b->stream));
}

enum batch_step { BATCH_ENCODE, BATCH_STORE, BATCH_LOAD, BATCH_DECODE };

static void time_batch_step(struct bench *b, const char *column, const char *what, enum batch_step step,
                            const struct sw_plan *plan) {
    double ms[MAX_REPEATS], host_ms[MAX_REPEATS];
    for (int i = -b->options.warmups; i < b->options.repeats; i++) {
        float t;
        if (step == BATCH_LOAD)
            CUDA(cudaMemsetAsync(b->d_frame, 0xEE, b->frame_cap, b->stream));
        queue_delay(b);
        CUDA(cudaEventRecord(b->from, b->stream));
        const double start = now_ms();
        if (step == BATCH_ENCODE)
            queue_batch_encode(b, plan, b->d_in[(unsigned)(i + b->options.warmups) % b->copies]);
        else if (step == BATCH_DECODE)
            queue_batch_decode(b);
        else
            queue_batch_copy(b, step == BATCH_STORE);
        const double queued = now_ms() - start;
        CUDA(cudaEventRecord(b->to, b->stream));
        CUDA(cudaEventSynchronize(b->to));
        CUDA(cudaEventElapsedTime(&t, b->from, b->to));
        if (i >= 0) {
            ms[i] = (double)t;
            host_ms[i] = queued;
        }
        if (step == BATCH_DECODE)
            verify_batch(b, column);
    }
    b->frame_bytes = 0;
    for (uint32_t i = 0; i < b->options.batch; i++)
        b->frame_bytes += b->results[i].frame_bytes;
    const bool is_copy = step == BATCH_STORE || step == BATCH_LOAD;
    report(b, column, what, is_copy ? b->frame_bytes : b->n, ms, b->options.repeats);
    qsort(host_ms, (size_t)b->options.repeats, sizeof *host_ms, by_value);
    (void)printf("%-12s %-12s %8.1f us for %u inputs, queued in %.1f us\n", "", "", 1e3 * ms[b->options.repeats / 2],
                 b->options.batch, 1e3 * host_ms[b->options.repeats / 2]);
}

static void time_batch(struct bench *b, const char *column, const struct sw_plan *plan) {
    static const char *const steps[] = {"encode", "store", "load", "decode"};
    for (int step = BATCH_ENCODE; step <= BATCH_DECODE; step++) {
        char what[32];
        (void)snprintf(what, sizeof what, "%s %s", sw_codec_name(plan->codec), steps[step]);
        time_batch_step(b, column, what, (enum batch_step)step, plan);
    }
}

static void measure_batch(struct bench *b, const char *column) {
    const uint32_t n = b->options.batch;
    struct sw_plan plan = {0}, phrase, raw;
    struct sw_gpu_training *h_training;
    CUDA(cudaMallocHost((void **)&h_training, sizeof *h_training));
    CUDA(cudaMallocHost((void **)&b->items, n * sizeof *b->items));
    CUDA(cudaMallocHost((void **)&b->results, n * sizeof *b->results));
    CUDA(cudaMallocHost((void **)&b->runs, n * sizeof *b->runs));
    CUDA(cudaMallocHost((void **)&b->h_frames, b->frame_cap));
    CUDA(cudaMalloc((void **)&b->d_runs, n * sizeof *b->d_runs));
    make_plan(b, &plan, b->d_in[0], h_training);
    if (plan.codec == SW_CODEC_V5T)
        time_batch(b, column, &plan);
    if (plan.codec == SW_CODEC_V5T && make_phrase_plan(b, &phrase))
        time_batch(b, column, &phrase);
    sw_plan_init_raw(&raw);
    time_batch(b, column, &raw);
    void *const pinned[] = {h_training, b->items, b->results, b->runs, b->h_frames};
    for (size_t i = 0; i < sizeof pinned / sizeof pinned[0]; i++)
        CUDA(cudaFreeHost(pinned[i]));
    CUDA(cudaFree(b->d_runs));
}

static void fill_column(struct bench *b, const char *column) {
    unsigned symbol_bytes, window;
    const int rc = sw_parallel_fill(b->h_in, b->n, parse_lz(column, &symbol_bytes, &window));
    if (rc == 0)
        return;
    (void)fprintf(stderr, "bench_codec: %s: %s\n", column, sw_err_text(rc));
    exit(1);
}

static void run_column(struct bench *b, const char *column) {
    struct sw_err err;
    int l2_bytes = 0;
    CUDA(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, 0));
    const uint32_t batch = b->options.batch;
    b->frame_stride = (sw_frame_bound_bytes(b->options.size) + 4095) / 4096 * 4096; /* as the arena's blocks */
    b->n = b->options.size * (batch ? batch : 1);
    b->frame_cap = b->frame_stride * (batch ? batch : 1);
    b->scratch_bytes = sw_gpu_batch_scratch_bytes(batch);
    if (b->scratch_bytes < sw_gpu_train_scratch_bytes())
        b->scratch_bytes = sw_gpu_train_scratch_bytes();
    const uint64_t copies = 4 * (uint64_t)l2_bytes / b->n + 1;
    b->copies = copies < MAX_COPIES ? (unsigned)copies : MAX_COPIES;
    b->h_in = must_alloc(b->n);
    b->h_out = must_alloc(b->n);
    fill_column(b, column);
    for (unsigned i = 0; i < b->copies; i++) {
        b->d_in[i] = column_alloc(b, b->n);
        CUDA(cudaMemcpy(b->d_in[i], b->h_in, b->n, cudaMemcpyHostToDevice));
    }
    b->d_out = column_alloc(b, b->n);
    b->d_frame = column_alloc(b, b->frame_cap);
    CUDA(cudaMalloc((void **)&b->d_scratch, b->scratch_bytes));
    CUDA(cudaMalloc((void **)&b->d_progress, (batch ? batch : 1) * sizeof *b->d_progress));
    CUDA(cudaMemset(b->d_progress, 0, (batch ? batch : 1) * sizeof *b->d_progress));
    b->pool.bytes = b->options.pool_bytes == UINT64_MAX ? sw_gpu_pool_bytes(b->n) : b->options.pool_bytes;
    CUDA(cudaMalloc(&b->pool.d_memory, b->pool.bytes));
    sw_ok(sw_gpu_pool_init_async(&b->pool, b->stream, &err), &err);
    CUDA(cudaMalloc((void **)&b->d_sample, SW_SAMPLE_MAX_BYTES));
    CUDA(cudaMalloc((void **)&b->d_params, sizeof *b->d_params));
    CUDA(cudaMalloc((void **)&b->d_result, sizeof *b->d_result));
    CUDA(cudaMalloc((void **)&b->d_training, sizeof *b->d_training));
    unsigned symbol_bytes, window;
    const char *name = parse_lz(column, &symbol_bytes, &window) == column ? strrchr(column, '/') : NULL;
    (batch ? measure_batch : measure_column)(b, name ? name + 1 : column);
    column_free(b, b->d_frame);
    column_free(b, b->d_out);
    for (unsigned i = b->copies; i > 0; i--)
        column_free(b, b->d_in[i - 1]);
    void *const device[] = {b->d_scratch, b->d_progress, b->pool.d_memory, b->d_sample,
                            b->d_params,  b->d_result,   b->d_training};
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++)
        CUDA(cudaFree(device[i]));
    free(b->h_in);
    free(b->h_out);
}

static void usage(FILE *out) {
    (void)fprintf(
        out,
        "usage: bench_codec [OPTION]... COLUMN...\n"
        "COLUMN: a file, tiled to the size; tpch: generated l_comment; characters of a string column of lineitem or "
        "orders by\n"
        "  its name; random; numbers, as TYPE:KIND:BITS:\n"
        "  u8 to i64, f32, f64, bf16, f16, f8 or dec128; uniform, equal, extremes, outlier, sorted, nearly, falling, "
        "runs,\n"
        "  mixed, rare, often, reals, few, steps, orders, sentinel, multiples or weights; 0 to 64;\n"
        "  lz:SYMBOL_BYTES:WINDOW: and any of these: by lz alone\n"
        "  -s, --size BYTES        bytes of each column (default 1000000000)\n"
        "  -b, --batch N           N inputs of --size bytes each in one batch\n"
        "  -n, --streams N         the same, but each is encoded on a stream of its own; 1 to 16\n"
        "  -r, --repeat N          measured runs, 1 to 101 (default 11)\n"
        "  -w, --warmup N          runs before them (default 2)\n"
        "  -g, --segment-log2 N    8, 9 or 10 (default 10)\n"
        "  -p, --pool BYTES        of the pool of encode scratch (default: a slot for each warp)\n"
        "  -c, --codec NAME        columns of numbers by this codec alone\n"
        "  -i, --imported          columns and frames in memory of another process's cudaMalloc\n"
        "  -j, --json FILE         write the rows as JSON too\n"
        "  -h, --help\n");
}

static bool is_codec_of_numbers(const char *name) {
    struct sw_plan plan;
    for (int codec = 0; codec < SW_CODEC_NR; codec++)
        if (strcmp(name, sw_codec_name((enum sw_codec_id)codec)) == 0)
            return sw_plan_init_numbers(&plan, (enum sw_codec_id)codec, SW_VALUE_U32) ||
                   sw_plan_init_numbers(&plan, (enum sw_codec_id)codec, SW_VALUE_F64); /* or other floats */
    return false;
}

static void parse(struct options *o, int argc, char **argv) {
    static const struct option longs[] = {
        {"size", 1, NULL, 's'},  {"repeat", 1, NULL, 'r'},  {"warmup", 1, NULL, 'w'},   {"segment-log2", 1, NULL, 'g'},
        {"json", 1, NULL, 'j'},  {"batch", 1, NULL, 'b'},   {"imported", 0, NULL, 'i'}, {"help", 0, NULL, 'h'},
        {"codec", 1, NULL, 'c'}, {"streams", 1, NULL, 'n'}, {"pool", 1, NULL, 'p'},     {NULL, 0, NULL, 0}};
    *o =
        (struct options){.size = 1000000000, .repeats = 11, .warmups = 2, .segment_log2 = 10, .pool_bytes = UINT64_MAX};
    for (int c; (c = getopt_long(argc, argv, "s:r:w:g:j:b:n:p:c:ih", longs, NULL)) != -1;) {
        switch (c) {
        case 's':
            o->size = strtoull(optarg, NULL, 10);
            break;
        case 'r':
            o->repeats = (int)strtol(optarg, NULL, 10);
            break;
        case 'w':
            o->warmups = (int)strtol(optarg, NULL, 10);
            break;
        case 'g':
            o->segment_log2 = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'b':
            o->batch = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'n':
            o->batch = (uint32_t)strtoul(optarg, NULL, 10);
            o->on_streams = true;
            break;
        case 'p':
            o->pool_bytes = strtoull(optarg, NULL, 10);
            break;
        case 'c':
            o->codec = optarg;
            break;
        case 'i':
            o->is_imported = true;
            break;
        case 'j':
            o->json_path = optarg;
            break;
        case 'h':
            usage(stdout);
            exit(0);
        default:
            usage(stderr);
            exit(2);
        }
    }
    if (o->size == 0 || o->repeats < 1 || o->repeats > MAX_REPEATS || o->warmups < 0 || o->segment_log2 < 8 ||
        o->segment_log2 > 10 || (o->on_streams && (!o->batch || o->batch > MAX_STREAMS)) ||
        (o->codec && !is_codec_of_numbers(o->codec)) || optind == argc) {
        usage(stderr);
        exit(2);
    }
}

int main(int argc, char **argv) {
    struct bench b = {0};
    struct sw_err err;
    int devices = 0;
    parse(&b.options, argc, argv);
    if (b.options.is_imported)
        start_exporter(&b);
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        (void)puts("skipped: no GPU");
        return 77;
    }
    sw_ok(sw_gpu_codec_init(&err), &err);
    b.rows = json_array();
    CUDA(cudaStreamCreate(&b.stream));
    CUDA(cudaEventCreate(&b.from));
    CUDA(cudaEventCreate(&b.to));
    CUDA(cudaEventCreateWithFlags(&b.begun, cudaEventDisableTiming));
    CUDA(cudaEventCreateWithFlags(&b.ended, cudaEventDisableTiming));
    for (uint32_t i = 0; b.options.on_streams && i < b.options.batch; i++)
        CUDA(cudaStreamCreateWithFlags(&b.streams[i], cudaStreamNonBlocking));
    measure_copy(&b);
    for (int i = optind; i < argc; i++)
        run_column(&b, argv[i]);
    if (b.options.json_path && json_dump_file(b.rows, b.options.json_path, JSON_INDENT(1)) < 0) {
        (void)fprintf(stderr, "bench_codec: %s: cannot write\n", b.options.json_path);
        return 1;
    }
    json_decref(b.rows);
    if (b.options.is_imported)
        (void)close(b.to_exporter);
    return 0;
}

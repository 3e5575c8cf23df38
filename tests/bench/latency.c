/* latency.c - how long one small region in registered memory takes, or a batch of them, out and back, as a client sees
 * it that does next to nothing else on the GPU: the three cases differ in what it has just done there. Every byte is
 * compared.
 *
 * Talks to a running spillwayd ($SPILLWAY_SOCKET). The clock runs from the call to the ticket's completion. */
#include "ipc/spillway.h"
#include "tests/lib/requests.h"
#include "tests/lib/tpch_text.h"

#include <cuda_runtime.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { REPEATS = 300, SMALL_BYTES = 4096 };
enum before { NOTHING, WAITED_FOR, STILL_QUEUED, BEFORE_NR };
static const char *const befores[BEFORE_NR] = {"nothing", "small work, waited for", "small work, still queued"};

static const char usage[] = "usage: bench_latency [-b N] BYTES...\n"
                            "Spills and restores regions of BYTES, one at a time, or N of them by one call;\n"
                            "microseconds, p50 and p99 of 300.\n";

struct client {
    struct spillway *connection;
    cudaStream_t stream; /* non-blocking */
    uint8_t *d_data, *d_other, *content, *got;
    uint64_t bytes; /* of all regions together */
    /* [n_regions] each. A region has one buffer. */
    struct spillway_buffer *buffers;
    struct spillway_request *requests;
    struct spillway_result *results;
    uint32_t n_regions;
};

static void fail(const char *what, const char *text) {
    (void)fprintf(stderr, "bench_latency: %s: %s\n", what, text);
    exit(1);
}

static void cuda_ok(cudaError_t e, const char *call) {
    if (e != cudaSuccess)
        fail(call, cudaGetErrorString(e));
}
#define CUDA(call) cuda_ok((call), #call)

static double now_us(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void work(const struct client *c, enum before before) {
    if (before == NOTHING)
        return;
    CUDA(cudaMemsetAsync(c->d_other, 0, SMALL_BYTES, c->stream));
    if (before == WAITED_FOR)
        CUDA(cudaStreamSynchronize(c->stream));
}

/* Spills the regions, or restores them, with one call. Returns how long that took. */
static double move(const struct client *c, bool is_spill) {
    struct spillway_ticket *ticket;
    struct spillway_error error;
    const double start_us = now_us();
    if ((is_spill ? spillway_spill : spillway_restore)(c->connection, c->requests, c->n_regions, &ticket, &error) < 0 ||
        spillway_wait(ticket, -1, c->results, c->n_regions, &error) < 0)
        fail(error.name, error.text);
    const double us = now_us() - start_us;
    spillway_ticket_free(ticket);
    for (uint32_t i = 0; i < c->n_regions; i++)
        c->requests[i].region = is_spill ? c->results[i].region : (struct spillway_region){0};
    return us;
}

static void round_trip(const struct client *c, enum before before, double *ret_out_us, double *ret_back_us) {
    work(c, before);
    *ret_out_us = move(c, true);
    work(c, before);
    *ret_back_us = move(c, false);
}

/* Restored bytes go back to their old place. Wiping the place now and then finds a restore that did nothing. */
static void verify(const struct client *c) {
    (void)move(c, true);
    CUDA(cudaMemsetAsync(c->d_data, 0xdb, c->bytes, c->stream));
    (void)move(c, false);
    CUDA(cudaMemcpyAsync(c->got, c->d_data, c->bytes, cudaMemcpyDeviceToHost, c->stream));
    CUDA(cudaStreamSynchronize(c->stream));
    if (memcmp(c->got, c->content, c->bytes) != 0)
        fail("restore", "the restored bytes are not the original ones");
}

static void measure(const struct client *c, enum before before) {
    static double out_us[REPEATS], back_us[REPEATS];
    for (int i = 0; i < REPEATS; i++)
        round_trip(c, before, &out_us[i], &back_us[i]);
    verify(c);
    qsort(out_us, REPEATS, sizeof out_us[0], by_value);
    qsort(back_us, REPEATS, sizeof back_us[0], by_value);
    const double out = out_us[REPEATS / 2], back = back_us[REPEATS / 2], kb = (double)c->bytes / 1e3;
    (void)printf("%10llu  %-26s  %6.0f %6.0f  %6.0f %6.0f  %6.1f %6.1f\n", (unsigned long long)c->bytes,
                 befores[before], out, out_us[REPEATS * 99 / 100], back, back_us[REPEATS * 99 / 100], kb / out,
                 kb / back);
}

static void measure_length(struct client *c, uint64_t region_bytes) {
    struct spillway_error error;
    c->bytes = region_bytes * c->n_regions;
    c->content = malloc(c->bytes);
    c->got = malloc(c->bytes);
    if (!c->content || !c->got)
        fail("content", "out of memory");
    sw_tpch_text_fill(c->content, 0, c->bytes, 1);
    CUDA(cudaMalloc((void **)&c->d_data, c->bytes));
    CUDA(cudaMalloc((void **)&c->d_other, SMALL_BYTES));
    CUDA(cudaMemcpy(c->d_data, c->content, c->bytes, cudaMemcpyHostToDevice));
    if (spillway_register(c->connection, c->d_data, c->bytes, &error) < 0)
        fail(error.name, error.text);
    for (uint32_t i = 0; i < c->n_regions; i++) {
        c->buffers[i] = (struct spillway_buffer){.data = c->d_data + i * region_bytes, .bytes = region_bytes};
        c->requests[i] = *SW_REQUEST(SW_SEVERAL(&c->buffers[i], 1), .stream = c->stream);
    }
    for (int before = 0; before < BEFORE_NR; before++)
        measure(c, (enum before)before);
    if (spillway_unregister(c->connection, c->d_data, &error) < 0)
        fail(error.name, error.text);
    CUDA(cudaFree(c->d_data));
    CUDA(cudaFree(c->d_other));
    free(c->content);
    free(c->got);
}

int main(int argc, char **argv) {
    struct client c = {.n_regions = 1};
    struct spillway_error error;
    bool is_wrong = false;
    for (int o; (o = getopt(argc, argv, "b:")) != -1;) {
        c.n_regions = o == 'b' ? (uint32_t)strtoul(optarg, NULL, 10) : 0;
        is_wrong |= c.n_regions == 0;
    }
    for (int i = optind; i < argc; i++)
        is_wrong |= strtoull(argv[i], NULL, 10) == 0;
    if (is_wrong || optind == argc) {
        (void)fputs(usage, stderr);
        return 2;
    }
    c.buffers = calloc(c.n_regions, sizeof *c.buffers);
    c.requests = calloc(c.n_regions, sizeof *c.requests);
    c.results = calloc(c.n_regions, sizeof *c.results);
    if (!c.buffers || !c.requests || !c.results)
        fail("regions", "out of memory");
    c.results->size = sizeof *c.results;
    if (spillway_open(&c.connection, NULL, &error) < 0)
        fail(error.name, error.text);
    CUDA(cudaStreamCreateWithFlags(&c.stream, cudaStreamNonBlocking));
    (void)printf("%10s  %-26s  %13s  %13s  %13s\n", "bytes", "before each operation", "spill, us", "restore, us",
                 "GB/s, p50");
    for (int i = optind; i < argc; i++)
        measure_length(&c, strtoull(argv[i], NULL, 10));
    free(c.buffers);
    free(c.requests);
    free(c.results);
    spillway_close(c.connection);
    CUDA(cudaStreamDestroy(c.stream));
    return 0;
}

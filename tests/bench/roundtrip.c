/* roundtrip.c - end-to-end speed of spill and restore, and of pack and unpack, through a real spillwayd, for each kind
 * of memory, every byte compared, with a plain pinned copy measured in the same run.
 *
 * Starts the daemon itself (before CUDA is touched). Each row: median of the repeats, from the client's call to its
 * completion, on an idle stream. (The default stream cannot be asked whether it is idle, and waiting for it costs two
 * switches of the GPU between processes.) "growth" is the device memory that all other processes took beyond what they
 * held before the first spill. It is the worst of many samples during the warm-up, and would show scratch that the
 * service did not take at its start. Content beyond 2 GB is the first 2 GB again, so that a region may be as long as
 * the GPU allows. See --help. */
#include "base/mem_kind.h"
#include "ipc/spillway.h"
#include "tests/lib/buffer.h"
#include "tests/lib/parallel_fill.h"
#include "tests/lib/requests.h"
#include "tests/lib/spillwayd.h"

#include <cuda_runtime.h>
#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_REPEATS 51
#define MAX_CONTENT_BYTES 2000000000u
#define PIECE_BYTES ((uint64_t)64 << 20) /* copied and compared at a time */

/* How the memory is handed over, and what is done with it. */
enum mode { ONCE, REGISTERED, IN_PLACE, MODE_NR };
static const char *const mode_names[MODE_NR] = {"once", "registered", "in-place"};

struct options {
    uint64_t bytes, tier_bytes;
    int repeats;
    const char *column, *json_path, *program;
    const char *kind; /* NULL: all */
    const char *mode; /* NULL: all */
    bool keeps_buffer;
    bool log;
};

struct bench {
    struct options options;
    struct sw_test_daemon daemon;
    struct spillway *connection;
    cudaStream_t stream;    /* non-blocking, nothing is queued on it */
    uint8_t *content, *got; /* content_bytes; PIECE_BYTES */
    uint64_t content_bytes;
    json_t *rows;
    double link_down_gbps, link_up_gbps;
    size_t free_at_start, worst_growth, own_bytes;
};

static void fail(const char *what, const char *text) {
    (void)fprintf(stderr, "bench_roundtrip: %s: %s\n", what, text);
    exit(1);
}

static void cuda_ok(cudaError_t e, const char *call) {
    if (e != cudaSuccess)
        fail(call, cudaGetErrorString(e));
}
#define CUDA(call) cuda_ok((call), #call)

static double now_s(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

/* Rate of a plain copy between page-locked and device memory. */
static double measure_link(enum cudaMemcpyKind direction) {
    const size_t bytes = (size_t)1 << 30;
    void *h, *d;
    double s[9];
    CUDA(cudaMallocHost(&h, bytes));
    CUDA(cudaMalloc(&d, bytes));
    for (int i = 0; i < 9; i++) {
        const double start = now_s();
        CUDA(direction == cudaMemcpyDeviceToHost ? cudaMemcpy(h, d, bytes, direction)
                                                 : cudaMemcpy(d, h, bytes, direction));
        s[i] = now_s() - start;
    }
    CUDA(cudaFreeHost(h));
    CUDA(cudaFree(d));
    return (double)bytes / median(s, 9) / 1e9;
}

static void sample_memory(struct bench *b) {
    size_t free_bytes, total;
    CUDA(cudaMemGetInfo(&free_bytes, &total));
    const size_t others = b->free_at_start - b->own_bytes;
    if (free_bytes < others && others - free_bytes > b->worst_growth)
        b->worst_growth = others - free_bytes;
}

/* Waits for a ticket; returns the seconds since `start`. watch: looks at device memory meanwhile, which costs time. */
static double finish(struct bench *b, struct spillway_ticket *ticket, struct spillway_result *ret, double start,
                     bool watch) {
    struct spillway_error error;
    int rc;
    while ((rc = spillway_wait(ticket, watch ? 1 : -1, ret, ret != NULL, &error)) == -SPILLWAY_EAGAIN)
        sample_memory(b);
    const double s = now_s() - start;
    if (rc < 0)
        fail(error.name, error.text);
    spillway_ticket_free(ticket);
    return s;
}

static struct sw_buffer *buffer_new(struct bench *b, enum sw_buffer_kind kind) {
    struct sw_err err;
    struct sw_buffer *buffer;
    size_t before, after, total;
    CUDA(cudaMemGetInfo(&before, &total));
    if (sw_buffer_new(&buffer, kind, b->options.bytes, &err) < 0)
        fail(sw_buffer_kind_name(kind), err.msg);
    CUDA(cudaMemGetInfo(&after, &total));
    b->own_bytes = kind == SW_BUFFER_MEMFD ? 0 : before - after;
    return buffer;
}

/* Copies the content into the buffer, or compares it with the buffer, piece by piece. */
static void for_content(struct bench *b, struct sw_buffer *buffer, bool upload) {
    struct sw_err err;
    for (uint64_t at = 0, n; at < buffer->bytes; at += n) {
        const uint64_t in_tile = at % b->content_bytes;
        n = buffer->bytes - at < PIECE_BYTES ? buffer->bytes - at : PIECE_BYTES;
        n = b->content_bytes - in_tile < n ? b->content_bytes - in_tile : n;
        if ((upload ? sw_buffer_upload(buffer, at, b->content + in_tile, n, &err)
                    : sw_buffer_download(buffer, at, b->got, n, &err)) < 0)
            fail("copy", err.msg);
        if (!upload && memcmp(b->content + in_tile, b->got, n) != 0)
            fail(sw_buffer_kind_name(buffer->kind), "restored bytes differ");
    }
}

static void registered(struct bench *b, const struct sw_buffer *buffer, enum mode mode, bool begin) {
    struct spillway_error error;
    if (mode != ONCE && (begin ? spillway_register(b->connection, buffer->data, buffer->bytes, &error)
                               : spillway_unregister(b->connection, buffer->data, &error)) < 0)
        fail(error.name, error.text);
}

static struct sw_buffer *filled_buffer(struct bench *b, enum sw_buffer_kind kind, enum mode mode) {
    struct sw_buffer *buffer = buffer_new(b, kind);
    for_content(b, buffer, true);
    registered(b, buffer, mode, true);
    return buffer;
}

static void compare_and_free(struct bench *b, struct sw_buffer *buffer, enum mode mode) {
    registered(b, buffer, mode, false);
    for_content(b, buffer, false);
    sw_buffer_free(buffer);
    b->own_bytes = 0;
}

/* Away and back. What the client may reuse in between is overwritten: all of it, or what is behind the packed bytes. */
static void round_trip(struct bench *b, struct sw_buffer **buffer, enum mode mode, bool watch, double *ret_away_s,
                       double *ret_back_s, struct spillway_result *result) {
    struct sw_err err;
    struct spillway_error error;
    struct spillway_ticket *ticket;
    const enum sw_buffer_kind kind = (*buffer)->kind;
    const uint32_t flags = mode == IN_PLACE ? SPILLWAY_IN_PLACE : 0;
    double start = now_s();
    if (spillway_spill(b->connection,
                       SW_REQUEST(SW_ONE((*buffer)->data, (*buffer)->bytes), .stream = b->stream, .flags = flags), 1,
                       &ticket, &error) < 0)
        fail(error.name, error.text);
    *ret_away_s = finish(b, ticket, result, start, watch);
    const uint64_t kept = mode == IN_PLACE ? result->stored_bytes : 0;
    if (mode == ONCE) { /* freed, as a client would */
        sw_buffer_free(*buffer);
        *buffer = buffer_new(b, kind);
    }
    struct sw_buffer rest = {kind, (uint8_t *)(*buffer)->data + kept, (*buffer)->bytes - kept};
    if (sw_buffer_fill(&rest, 0xEE, &err) < 0)
        fail("fill", err.msg);
    start = now_s();
    if (spillway_restore(b->connection,
                         SW_REQUEST(SW_ONE((*buffer)->data, (*buffer)->bytes), .region = result->region,
                                    .stream = b->stream, .flags = flags),
                         1, &ticket, &error) < 0)
        fail(error.name, error.text);
    *ret_back_s = finish(b, ticket, NULL, start, watch);
}

/* A warm-up and the repeats. A byte that one of them spoils stays wrong in all later ones, so that the comparison after
 * the last round is enough for a buffer that is kept. */
static void run_rounds(struct bench *b, enum sw_buffer_kind kind, enum mode mode, double *ret_away_s,
                       double *ret_back_s, struct spillway_result *result) {
    struct sw_buffer *buffer = NULL;
    for (int i = -1; i < b->options.repeats; i++) {
        const int at = i < 0 ? 0 : i; /* the first repeat overwrites the warm-up's times */
        if (!buffer)
            buffer = filled_buffer(b, kind, mode);
        round_trip(b, &buffer, mode, i < 0, &ret_away_s[at], &ret_back_s[at], result);
        if (!b->options.keeps_buffer || i == b->options.repeats - 1) {
            compare_and_free(b, buffer, mode);
            buffer = NULL;
        }
    }
}

static void run_kind(struct bench *b, enum sw_buffer_kind kind, enum mode mode) {
    if (kind == SW_BUFFER_CUDA_POOL && b->options.bytes > SW_MEM_POOL_MAX_BYTES) {
        (void)printf("%-18s cannot be shared at this size (base/mem_kind.h)\n", sw_buffer_kind_name(kind));
        return;
    }
    double away_s[MAX_REPEATS], back_s[MAX_REPEATS];
    struct spillway_result result = {.size = sizeof result};
    struct spillway_status status = {.size = sizeof status};
    b->worst_growth = 0;
    run_rounds(b, kind, mode, away_s, back_s, &result);
    if (spillway_status(b->connection, &status, NULL) < 0)
        fail("status", "failed");
    const double n = (double)b->options.bytes / 1e9, ratio = (double)result.raw_bytes / (double)result.stored_bytes;
    const double away = n / median(away_s, b->options.repeats), back = n / median(back_s, b->options.repeats);
    (void)printf("%-18s %-11s %14llu %7.3f %8.1f %8.1f %6.2f %6.2f %8llu %8zu  %s\n", sw_buffer_kind_name(kind),
                 mode_names[mode], (unsigned long long)b->options.bytes, ratio, away, back,
                 away / (ratio * b->link_down_gbps), back / (ratio * b->link_up_gbps),
                 (unsigned long long)(status.scratch_bytes >> 20), b->worst_growth >> 20, result.codec);
    (void)fflush(stdout);
    json_array_append_new(b->rows, json_pack("{s:s,s:s,s:I,s:f,s:f,s:f,s:I,s:I,s:s}", "kind", sw_buffer_kind_name(kind),
                                             "mode", mode_names[mode], "bytes", (json_int_t)b->options.bytes, "ratio",
                                             ratio, "away_gbps", away, "back_gbps", back, "scratch_bytes",
                                             (json_int_t)status.scratch_bytes, "growth_bytes",
                                             (json_int_t)b->worst_growth, "codec", result.codec));
}

static void fill_content(struct bench *b) {
    b->content_bytes = b->options.bytes < MAX_CONTENT_BYTES ? b->options.bytes : MAX_CONTENT_BYTES;
    b->content = malloc(b->content_bytes);
    b->got = malloc(PIECE_BYTES);
    if (!b->content || !b->got)
        fail("malloc", "out of memory");
    const int rc = sw_parallel_fill(b->content, b->content_bytes, b->options.column);
    if (rc < 0)
        fail(b->options.column, sw_err_text(rc));
}

static void usage(FILE *out) {
    (void)fprintf(out,
                  "usage: bench_roundtrip [OPTION]...\n"
                  "  -s, --size BYTES      bytes of the region (default 2000000000)\n"
                  "  -c, --column NAME     tpch (default), random, or a file, tiled\n"
                  "  -r, --repeat N        measured runs, 1 to 51 (default 5)\n"
                  "  -k, --kind NAME       one kind of memory only: \"cudaMalloc\", \"VMM\" ... (default: all)\n"
                  "  -m, --mode NAME       one way only: once, registered (opened beforehand) or in-place (pack,\n"
                  "                        unpack; registered); default: once for every kind, the others for\n"
                  "                        cudaMalloc\n"
                  "  -t, --tier BYTES      host tier, page-locked at start (default: the size and a half)\n"
                  "  -b, --keep-buffer     registered, in-place: one buffer for all rounds, filled before the first\n"
                  "                        and compared after the last, so that many rounds of many bytes fit\n"
                  "  -l, --log             print the daemon's log of stages at the end\n"
                  "  -d, --daemon PATH     spillwayd (default: that of the build)\n"
                  "  -j, --json FILE       write the rows as JSON too\n"
                  "  -h, --help\n");
}

static void parse(struct options *o, int argc, char **argv) {
    static const struct option longs[] = {
        {"size", 1, NULL, 's'}, {"column", 1, NULL, 'c'}, {"repeat", 1, NULL, 'r'},      {"kind", 1, NULL, 'k'},
        {"tier", 1, NULL, 't'}, {"daemon", 1, NULL, 'd'}, {"json", 1, NULL, 'j'},        {"log", 0, NULL, 'l'},
        {"help", 0, NULL, 'h'}, {"mode", 1, NULL, 'm'},   {"keep-buffer", 0, NULL, 'b'}, {NULL, 0, NULL, 0}};
    *o = (struct options){2000000000, 0, 5, "tpch", NULL, SW_SPILLWAYD_PATH, NULL, NULL, false, false};
    for (int c; (c = getopt_long(argc, argv, "s:c:r:k:m:t:d:j:blh", longs, NULL)) != -1;) {
        switch (c) {
        case 's':
            o->bytes = strtoull(optarg, NULL, 10);
            break;
        case 'c':
            o->column = optarg;
            break;
        case 'r':
            o->repeats = (int)strtol(optarg, NULL, 10);
            break;
        case 'b':
            o->keeps_buffer = true;
            break;
        case 'l':
            o->log = true;
            break;
        case 'k':
            o->kind = optarg;
            break;
        case 'm':
            o->mode = optarg;
            break;
        case 't':
            o->tier_bytes = strtoull(optarg, NULL, 10);
            break;
        case 'd':
            o->program = optarg;
            break;
        case 'j':
            o->json_path = optarg;
            break;
        default:
            usage(c == 'h' ? stdout : stderr);
            exit(c == 'h' ? 0 : 2);
        }
    }
    const bool is_freed = !o->mode || strcmp(o->mode, mode_names[ONCE]) == 0;
    if (o->bytes == 0 || o->repeats < 1 || o->repeats > MAX_REPEATS || optind < argc || (o->keeps_buffer && is_freed)) {
        usage(stderr);
        exit(2);
    }
    if (!o->tier_bytes)
        o->tier_bytes = o->bytes / 2 * 3;
}

static void start_daemon(struct bench *b) {
    char capacity[64], initial[64];
    const uint64_t slab = (uint64_t)256 << 20, tier = (b->options.tier_bytes + slab - 1) / slab * slab;
    (void)snprintf(capacity, sizeof capacity, "host_tier_bytes=%llu", (unsigned long long)tier);
    (void)snprintf(initial, sizeof initial, "host_tier_initial_bytes=%llu", (unsigned long long)tier);
    const char *const options[] = {"device=auto",
                                   "slots=0",
                                   "scratch_bytes=256 MiB",
                                   "host_tier_slab_bytes=256 MiB",
                                   capacity,
                                   initial,
                                   b->options.log ? "log_level=debug" : "log_level=info",
                                   NULL};
    sw_test_daemon_start(&b->daemon, b->options.program, options);
}

static void print_stages(const char *path) {
    char line[1100];
    FILE *log = fopen(path, "re");
    while (log && fgets(line, sizeof line, log))
        if (strstr(line, "event=job.stages"))
            (void)fputs(line, stdout);
    if (log)
        (void)fclose(log);
}

static bool is_wanted(const struct options *o, enum sw_buffer_kind kind, enum mode mode) {
    if (o->kind && strcmp(o->kind, sw_buffer_kind_name(kind)) != 0)
        return false;
    return o->mode ? strcmp(o->mode, mode_names[mode]) == 0 : mode == ONCE || kind == SW_BUFFER_CUDA_MALLOC || o->kind;
}

int main(int argc, char **argv) {
    struct bench b = {0};
    struct spillway_error error;
    const char *reason = NULL;
    size_t total;
    parse(&b.options, argc, argv);
    start_daemon(&b);
    if (sw_buffer_usable_kinds(&reason) < SW_BUFFER_KIND_NR) {
        (void)printf("skipped: %s\n", reason);
        (void)sw_test_daemon_stop(&b.daemon, SIGTERM);
        sw_test_daemon_clean(&b.daemon);
        return 77;
    }
    if (spillway_open(&b.connection, SW_OPTIONS(.socket_path = b.daemon.socket), &error) < 0)
        fail(error.name, error.text);
    CUDA(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking));
    b.rows = json_array();
    b.link_down_gbps = measure_link(cudaMemcpyDeviceToHost);
    b.link_up_gbps = measure_link(cudaMemcpyHostToDevice);
    fill_content(&b);
    CUDA(cudaMemGetInfo(&b.free_at_start, &total));
    (void)printf("column %s; pinned copy: %.1f GB/s to the host, %.1f GB/s to the GPU; other processes hold %zu MiB\n",
                 b.options.column, b.link_down_gbps, b.link_up_gbps, (total - b.free_at_start) >> 20);
    (void)printf("%-18s %-11s %14s %7s %8s %8s %6s %6s %8s %8s\n", "memory", "mode", "bytes", "ratio", "away", "back",
                 "/link", "/link", "scratch", "growth");
    (void)printf("%-18s %-11s %14s %7s %8s %8s %6s %6s %8s %8s\n", "", "", "", "", "GB/s", "GB/s", "", "", "MiB",
                 "MiB");
    for (int kind = SW_BUFFER_CUDA_MALLOC; kind < SW_BUFFER_KIND_NR; kind++)
        for (int mode = ONCE; mode < MODE_NR; mode++)
            if (is_wanted(&b.options, (enum sw_buffer_kind)kind, (enum mode)mode))
                run_kind(&b, (enum sw_buffer_kind)kind, (enum mode)mode);
    spillway_close(b.connection);
    if (b.options.json_path && json_dump_file(b.rows, b.options.json_path, JSON_INDENT(1)) < 0)
        fail(b.options.json_path, "cannot write");
    json_decref(b.rows);
    free(b.content);
    free(b.got);
    const int exit_code = sw_test_daemon_stop(&b.daemon, SIGTERM);
    if (b.options.log)
        print_stages(b.daemon.log);
    sw_test_daemon_clean(&b.daemon);
    return exit_code != 0;
}

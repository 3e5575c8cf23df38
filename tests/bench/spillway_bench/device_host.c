/* device_host.c - memory of the host: memfds, mapped. */
#include "tests/bench/spillway_bench/device.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "tests/lib/buffer.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { RAW_US = 50000, MAX_THREADS = 16 };
static const uint64_t least_memory_bytes = 32 << 20; /* of each thread: more than a cache holds */
enum direction { OUT, BACK, IN_TURN };

static const char *copy(void *to, const void *from, uint64_t bytes) {
    memcpy(to, from, bytes);
    return NULL;
}

static const char *set(void *to, uint8_t value, uint64_t bytes) {
    memset(to, value, bytes);
    return NULL;
}

static const char *equal(const void *a, const void *b, uint64_t bytes, bool *ret) {
    *ret = memcmp(a, b, bytes) == 0;
    return NULL;
}

struct copier {
    pthread_t thread;
    struct sw_buffer *memory; /* as a client's */
    uint8_t *other;
    uint64_t piece_bytes, n_pieces, copied_bytes, us;
    unsigned per_sync;
    enum direction direction;
};

static void copy_piece(const struct copier *c, uint64_t i) {
    const uint64_t at = i % c->n_pieces * c->piece_bytes;
    uint8_t *memory = (uint8_t *)c->memory->data + at;
    if (c->direction == OUT || (c->direction == IN_TURN && i % 2))
        memcpy(c->other + at, memory, c->piece_bytes);
    else
        memcpy(memory, c->other + at, c->piece_bytes);
}

/* For a small piece, reading the clock takes longer than the copy. */
static void *run_copier(void *arg) {
    struct copier *c = arg;
    uint64_t n = 0;
    const uint64_t start_us = sw_clock_us();
    while ((c->us = sw_clock_us() - start_us) < RAW_US)
        for (unsigned i = 0; i < c->per_sync; i++)
            copy_piece(c, n++);
    c->copied_bytes = n * c->piece_bytes;
    return NULL;
}

static const char *measure(struct copier *copiers, unsigned n, enum direction direction, double *ret_gbps) {
    unsigned started = 0;
    *ret_gbps = 0;
    for (; started < n; started++) {
        copiers[started].direction = direction;
        if (pthread_create(&copiers[started].thread, NULL, run_copier, &copiers[started]) != 0)
            break;
    }
    for (unsigned i = 0; i < started; i++) {
        (void)pthread_join(copiers[i].thread, NULL);
        *ret_gbps += (double)copiers[i].copied_bytes / (double)copiers[i].us / 1e3;
    }
    return started == n ? NULL : "no thread for the plain copy";
}

static const char *prepare(struct copier *copiers, unsigned n, uint64_t piece_bytes, unsigned per_sync) {
    struct sw_err err;
    for (unsigned i = 0; i < n; i++) {
        struct copier *c = &copiers[i];
        c->piece_bytes = piece_bytes;
        c->per_sync = per_sync;
        c->n_pieces = (least_memory_bytes + piece_bytes - 1) / piece_bytes;
        const uint64_t bytes = c->n_pieces * piece_bytes;
        c->other = sw_alloc(bytes);
        if (!c->other || sw_buffer_new(&c->memory, SW_BUFFER_MEMFD, bytes, &err) < 0)
            return "no memory for the plain copy";
        memset(c->other, 1, bytes); /* every page is there */
        memset(c->memory->data, 2, bytes);
    }
    return NULL;
}

static const char *raw(struct sw_bench_raw *ret, uint64_t piece_bytes, unsigned per_sync, unsigned threads) {
    struct copier copiers[MAX_THREADS];
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const unsigned most = online > 0 && online < MAX_THREADS ? (unsigned)online : MAX_THREADS;
    const unsigned n = threads < most ? threads : most;
    memset(copiers, 0, sizeof copiers);
    const uint64_t most_per_sync = (least_memory_bytes + piece_bytes - 1) / piece_bytes; /* all its memory */
    per_sync = most_per_sync < per_sync ? (unsigned)most_per_sync : per_sync;
    *ret = (struct sw_bench_raw){.piece_bytes = piece_bytes, .threads = n, .per_sync = per_sync};
    const char *failed = prepare(copiers, n, piece_bytes, per_sync);
    if (!failed)
        failed = measure(copiers, n, OUT, &ret->out_gbps);
    if (!failed)
        failed = measure(copiers, n, BACK, &ret->back_gbps);
    if (!failed)
        failed = measure(copiers, n, IN_TURN, &ret->both_gbps);
    for (unsigned i = 0; i < n; i++) {
        sw_buffer_free(copiers[i].memory);
        sw_free(copiers[i].other);
    }
    return failed;
}

static struct CUstream_st *stream(void) {
    return NULL;
}

const struct sw_bench_device sw_bench_host = {stream, copy, set, equal, raw};

/* nvme.c - how fast the NVMe tier writes and reads frames, against plain O_DIRECT requests on the same disk.
 *
 * bench_nvme [-f FRAME_BYTES] [-n TOTAL_BYTES] [-j FRAMES_AT_ONCE] [-d DEPTH] [-r REPEATS] [-t] [-e] DIRECTORY
 * DIRECTORY is made, or is one that the tier may have. Each repeat writes and reads TOTAL_BYTES plainly (DEPTH threads,
 * 1 MiB each, one file) and through the tier, one after the other; then every byte that the tier holds is verified. All
 * space has been written before the first repeat. -t: threads instead of io_uring. -e: encrypted. */
#include "base/clock.h"
#include "spill/tier/nvme/tier_nvme.h"
#include "tests/lib/content.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCK ((uint64_t)SW_TIER_IO_ALIGN)
#define PLAIN_BYTES ((uint64_t)1 << 20)

enum { MAX_REPEATS = 101, MAX_AT_ONCE = 256, MAX_DEPTH = 256 };

struct options {
    uint64_t frame_bytes, total_bytes;
    unsigned at_once, depth, repeats;
    bool threads, encrypted;
    const char *directory;
};

__attribute__((noreturn)) static void fail(const char *what, const char *why) {
    (void)fprintf(stderr, "bench_nvme: %s: %s\n", what, why);
    exit(1);
}

static uint8_t *new_memory(uint64_t bytes, uint64_t seed) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED)
        fail("memory", strerror(errno));
    sw_content_fill(memory, bytes, SW_CONTENT_RANDOM, seed);
    return memory;
}

/* --- plain requests --- */

struct plain {
    int fd;
    bool write;
    uint64_t bytes;
    atomic_ullong next;
    uint8_t *memory[MAX_DEPTH];
    atomic_uint n_threads;
};

static void *plain_main(void *arg) {
    struct plain *p = arg;
    uint8_t *memory = p->memory[atomic_fetch_add(&p->n_threads, 1)];
    for (uint64_t at; (at = atomic_fetch_add(&p->next, PLAIN_BYTES)) < p->bytes;) {
        ssize_t n =
            p->write ? pwrite(p->fd, memory, PLAIN_BYTES, (off_t)at) : pread(p->fd, memory, PLAIN_BYTES, (off_t)at);
        if (n != (ssize_t)PLAIN_BYTES)
            fail("plain request", n < 0 ? strerror(errno) : "stopped short");
    }
    return NULL;
}

static double plain_rate(struct plain *p, unsigned depth, bool write) {
    pthread_t threads[MAX_DEPTH];
    p->write = write;
    atomic_store(&p->next, 0);
    atomic_store(&p->n_threads, 0);
    uint64_t start = sw_clock_us();
    for (unsigned i = 0; i < depth; i++)
        if (pthread_create(&threads[i], NULL, plain_main, p) != 0)
            fail("plain request", "no thread");
    for (unsigned i = 0; i < depth; i++)
        (void)pthread_join(threads[i], NULL);
    return (double)p->bytes / 1e3 / (double)(sw_clock_us() - start);
}

static void plain_open(struct plain *ret, const struct options *o, char path[4096]) {
    (void)snprintf(path, 4096, "%s.plain", o->directory);
    ret->bytes = o->total_bytes / PLAIN_BYTES * PLAIN_BYTES;
    ret->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0600);
    if (ret->fd < 0)
        fail(path, strerror(errno));
    if (fallocate(ret->fd, 0, 0, (off_t)ret->bytes) != 0)
        fail("fallocate", strerror(errno));
    for (unsigned i = 0; i < o->depth; i++)
        ret->memory[i] = new_memory(PLAIN_BYTES, i);
}

/* --- the tier --- */

struct bench;

/* A transfer that takes the next frame as soon as one has ended. */
struct lane {
    struct bench *bench;
    unsigned frame;
    struct sw_tier_io io;
    struct sw_extent memory;
};

struct bench {
    struct sw_tier *tier;
    enum sw_tier_io_kind kind;
    bool verify;
    unsigned n_frames, at_once;
    atomic_uint next;
    sem_t idle; /* a lane has no more to do */
    struct sw_stored *frames;
    uint8_t *content; /* of every frame, but for the stamps */
    struct lane lanes[MAX_AT_ONCE];
};

/* Each block begins with its own name, so that none passes for another. */
static void stamp(uint8_t *data, uint64_t bytes, unsigned frame) {
    for (uint64_t at = 0; at + BLOCK <= bytes; at += BLOCK) {
        const uint64_t name = (uint64_t)frame << 32 | at / BLOCK;
        memcpy(data + at, &name, sizeof name);
    }
}

static void next_frame(struct lane *lane);

static void on_done(struct sw_tier_io *io, void *arg) {
    struct lane *lane = arg;
    struct bench *b = lane->bench;
    const uint64_t bytes = b->frames[lane->frame].bytes;
    if (io->err.code)
        fail(io->err.msg, io->err.detail);
    if (b->verify) { /* the content gets the stamps that the frame should have: this pass is not timed */
        stamp(b->content, bytes, lane->frame);
        if (memcmp(lane->memory.memory, b->content, bytes) != 0)
            fail("verification", "bytes differ");
    }
    next_frame(lane);
}

static void next_frame(struct lane *lane) {
    struct bench *b = lane->bench;
    lane->frame = atomic_fetch_add(&b->next, 1);
    if (lane->frame >= b->n_frames) {
        (void)sem_post(&b->idle);
        return;
    }
    struct sw_stored *stored = &b->frames[lane->frame];
    if (b->kind == SW_TIER_WRITE)
        stamp(lane->memory.memory, stored->bytes, lane->frame);
    lane->io = (struct sw_tier_io){
        .kind = b->kind, .stored = stored, .memory = &lane->memory, .n_memory = 1, .done = on_done, .arg = lane};
    b->tier->ops->submit(b->tier, &lane->io);
}

/* GB/s of one pass over all frames. */
static double tier_rate(struct bench *b, enum sw_tier_io_kind kind, bool verify) {
    uint64_t bytes = 0;
    struct sw_err err;
    for (unsigned i = 0; i < b->n_frames; i++) {
        uint64_t frame_bytes = b->frames[i].bytes;
        bytes += frame_bytes;
        if (kind == SW_TIER_READ)
            continue;
        b->tier->ops->release(b->tier, &b->frames[i]);
        if (b->tier->ops->reserve(b->tier, frame_bytes, &b->frames[i], &err))
            fail("reserve", err.msg);
    }
    b->kind = kind;
    b->verify = verify;
    atomic_store(&b->next, 0);
    for (unsigned i = 0; i < b->at_once && kind == SW_TIER_WRITE; i++)
        memcpy(b->lanes[i].memory.memory, b->content, b->lanes[i].memory.bytes);
    uint64_t start = sw_clock_us();
    for (unsigned i = 0; i < b->at_once; i++)
        next_frame(&b->lanes[i]);
    for (unsigned i = 0; i < b->at_once; i++)
        while (sem_wait(&b->idle) != 0)
            ;
    return (double)bytes / 1e3 / (double)(sw_clock_us() - start);
}

static void tier_open(struct bench *b, const struct options *o) {
    const uint64_t whole = (o->frame_bytes + BLOCK - 1) / BLOCK * BLOCK;
    b->n_frames = (unsigned)(o->total_bytes / whole);
    b->at_once = o->at_once;
    struct sw_tier_nvme_config config = {.directory = o->directory,
                                         .capacity_bytes = b->n_frames * whole,
                                         .file_bytes = (uint64_t)1 << 30,
                                         .queue_depth = o->depth,
                                         .method = o->threads ? SW_TIER_NVME_THREADS : SW_TIER_NVME_AUTO};
    struct sw_nvme_key key = {.fd = -1};
    struct sw_err err;
    if (b->n_frames == 0)
        fail("options", "no whole frame fits in the total");
    if (o->encrypted && sw_nvme_key_make(&key, &err))
        fail("key", err.msg);
    config.key = o->encrypted ? &key : NULL;
    if (sw_tier_nvme_open(&b->tier, &config, &err))
        fail(o->directory, err.msg);
    sw_nvme_key_fini(&key);
    b->frames = calloc(b->n_frames, sizeof b->frames[0]);
    b->content = new_memory(whole, 1);
    for (unsigned i = 0; i < b->at_once; i++)
        b->lanes[i] = (struct lane){.bench = b, .memory = {new_memory(whole, i), 0, whole}};
    for (unsigned i = 0; b->frames && i < b->n_frames; i++)
        if (b->tier->ops->reserve(b->tier, o->frame_bytes, &b->frames[i], &err))
            fail("reserve", err.msg);
    if (!b->frames || sem_init(&b->idle, 0, 0) != 0)
        fail("memory", strerror(errno));
}

/* --- all of it --- */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_rate(const char *what, double *rates, unsigned n) {
    qsort(rates, n, sizeof rates[0], ascending);
    printf("%-12s %7.2f GB/s (%.2f-%.2f)\n", what, rates[n / 2], rates[0], rates[n - 1]);
}

static struct options parse(int argc, char **argv) {
    struct options o = {
        .frame_bytes = 9 << 20, .total_bytes = (uint64_t)2 << 30, .at_once = 8, .depth = 32, .repeats = 5};
    for (int option; (option = getopt(argc, argv, "f:n:j:d:r:te")) != -1;) {
        const uint64_t value = optarg ? strtoull(optarg, NULL, 10) : 0;
        if (option == 'f')
            o.frame_bytes = value;
        else if (option == 'n')
            o.total_bytes = value;
        else if (option == 'j')
            o.at_once = (unsigned)value;
        else if (option == 'd')
            o.depth = (unsigned)value;
        else if (option == 'r')
            o.repeats = (unsigned)value;
        o.threads |= option == 't';
        o.encrypted |= option == 'e';
        if (option == '?')
            o.repeats = 0;
    }
    if (optind + 1 != argc || o.frame_bytes == 0 || o.at_once - 1 >= MAX_AT_ONCE || o.depth - 1 >= MAX_DEPTH ||
        o.repeats - 1 >= MAX_REPEATS) {
        (void)fprintf(stderr, "usage: bench_nvme [-f FRAME_BYTES] [-n TOTAL_BYTES] [-j FRAMES_AT_ONCE] [-d DEPTH] "
                              "[-r REPEATS] [-t] [-e] DIRECTORY\n");
        exit(2);
    }
    o.directory = argv[optind];
    return o;
}

int main(int argc, char **argv) {
    static struct bench b;
    static struct plain plain;
    static double rates[4][MAX_REPEATS];
    struct options o = parse(argc, argv);
    struct sw_tier_nvme_info info;
    char path[4096];
    plain_open(&plain, &o, path);
    tier_open(&b, &o);
    sw_tier_nvme_info(b.tier, &info);
    printf("%u frames of %" PRIu64 " bytes, %u at once; %u requests at once; %s, %s%s\n", b.n_frames, o.frame_bytes,
           o.at_once, o.depth, info.method == SW_TIER_NVME_URING ? "io_uring" : "threads",
           info.direct ? "O_DIRECT" : "page cache", o.encrypted ? ", encrypted" : "");
    (void)plain_rate(&plain, o.depth, true);
    (void)tier_rate(&b, SW_TIER_WRITE, false);
    for (unsigned i = 0; i < o.repeats; i++) {
        rates[0][i] = plain_rate(&plain, o.depth, true);
        rates[1][i] = tier_rate(&b, SW_TIER_WRITE, false);
        rates[2][i] = plain_rate(&plain, o.depth, false);
        rates[3][i] = tier_rate(&b, SW_TIER_READ, false);
        (void)tier_rate(&b, SW_TIER_READ, true);
    }
    print_rate("plain write", rates[0], o.repeats);
    print_rate("tier write", rates[1], o.repeats);
    print_rate("plain read", rates[2], o.repeats);
    print_rate("tier read", rates[3], o.repeats);
    printf("every byte verified after each repeat\n");
    for (unsigned i = 0; i < b.n_frames; i++)
        b.tier->ops->release(b.tier, &b.frames[i]);
    b.tier->ops->close(b.tier);
    (void)unlink(path);
    return 0;
}

/* How fast frames get to and from an object store: bench_remote ENDPOINT [FRAMES [KIB [POOL_MIB]]]
 *
 * Credentials come from the environment, the bucket is "bucket". All frames are submitted at once; each must come back
 * unchanged. Shows what was requested of the store, too. tests/e2e/remote_servers.sh shows curl's rates beside it,
 * which neither encrypts nor hashes. */
#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "spill/tier/remote/tier_remote.h"
#include "tests/lib/content.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KEY_FILE "bench_remote.key"

struct frame {
    struct sw_stored stored;
    struct sw_tier_io io;
    struct sw_extent memory;
};

struct bench {
    struct sw_tier *tier;
    struct frame *frames;
    uint8_t *expected;
    unsigned n, n_ended;
    uint64_t bytes; /* of a frame */
    pthread_mutex_t lock;
    pthread_cond_t all;
};

static void ended(struct sw_tier_io *io, void *arg) {
    struct bench *b = arg;
    if (io->err.code)
        (void)fprintf(stderr, "%s\n", io->err.msg);
    SW_ASSERT(io->err.code == 0);
    (void)pthread_mutex_lock(&b->lock);
    b->n_ended++;
    (void)pthread_cond_signal(&b->all);
    (void)pthread_mutex_unlock(&b->lock);
}

struct rate {
    double mb_per_s, cpu_s; /* cpu_s: of this process, for a GB: other load on the machine changes it less */
};

static double cpu_s(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct rate transfer(struct bench *b, enum sw_tier_io_kind kind) {
    const uint64_t from_us = sw_clock_us();
    const double from_cpu_s = cpu_s(), bytes = (double)b->n * (double)b->bytes;
    b->n_ended = 0;
    for (unsigned i = 0; i < b->n; i++) {
        struct frame *f = &b->frames[i];
        f->io = (struct sw_tier_io){
            .kind = kind, .stored = &f->stored, .memory = &f->memory, .n_memory = 1, .done = ended, .arg = b};
        f->io.key[0] = (uint8_t)i;
        b->tier->ops->submit(b->tier, &f->io);
    }
    (void)pthread_mutex_lock(&b->lock);
    while (b->n_ended < b->n)
        (void)pthread_cond_wait(&b->all, &b->lock);
    (void)pthread_mutex_unlock(&b->lock);
    return (struct rate){bytes / (double)(sw_clock_us() - from_us), (cpu_s() - from_cpu_s) / bytes * 1e9};
}

static void write_key(void) {
    const int fd = open(KEY_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    SW_ASSERT(fd >= 0 && dprintf(fd, "%064x\n", 1) == 65 && close(fd) == 0);
}

static void open_tier(struct bench *b, const char *endpoint, uint64_t pool_bytes) {
    struct sw_tier_remote_config config = {
        .host = "bench", .key_file = KEY_FILE, .capacity_bytes = UINT64_C(1) << 40, .pool_bytes = pool_bytes};
    struct sw_err err = {0};
    sw_object_config_init(&config.store);
    config.store.endpoint = endpoint;
    config.store.bucket = "bucket";
    write_key();
    if (sw_tier_remote_open(&b->tier, &config, &err)) {
        (void)fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    (void)unlink(KEY_FILE);
}

/* Closing waits for deletions, but not for long; so they are awaited here. */
static void show_requests(struct bench *b) {
    struct sw_tier_store_stats stats;
    const uint64_t from_us = sw_clock_us();
    uint64_t n_before;
    do {
        b->tier->ops->store_stats(b->tier, &stats);
        n_before = stats.deletes;
        (void)usleep(500000);
        b->tier->ops->store_stats(b->tier, &stats);
    } while (stats.deletes > n_before);
    (void)printf("requests: %" PRIu64 " PUTs, %" PRIu64 " GETs, %" PRIu64 " LISTs, %" PRIu64 " DELETEs (%.1f s)\n",
                 stats.puts, stats.gets, stats.lists, stats.deletes, (double)(sw_clock_us() - from_us) / 1e6);
    b->tier->ops->close(b->tier);
}

int main(int argc, char **argv) {
    struct bench b = {.n = argc > 2 ? (unsigned)atoi(argv[2]) : 16,
                      .bytes = (argc > 3 ? (uint64_t)atoi(argv[3]) : 32 << 10) << 10,
                      .lock = PTHREAD_MUTEX_INITIALIZER,
                      .all = PTHREAD_COND_INITIALIZER};
    if (argc < 2 || b.n == 0 || b.bytes == 0) {
        (void)fprintf(stderr, "usage: bench_remote ENDPOINT [FRAMES [KIB [POOL_MIB]]]\n");
        return 1;
    }
    open_tier(&b, argv[1], (argc > 4 ? (uint64_t)atoi(argv[4]) : 512) << 20);
    b.frames = sw_alloc_array(b.n, sizeof *b.frames);
    b.expected = sw_alloc(b.bytes);
    SW_ASSERT(b.frames && b.expected);
    for (unsigned i = 0; i < b.n; i++) {
        SW_ASSERT(b.tier->ops->reserve(b.tier, b.bytes, &b.frames[i].stored, NULL) == 0);
        b.frames[i].memory = (struct sw_extent){.memory = aligned_alloc(SW_TIER_IO_ALIGN, b.bytes), .bytes = b.bytes};
        SW_ASSERT(b.frames[i].memory.memory);
        sw_content_fill(b.frames[i].memory.memory, b.bytes, SW_CONTENT_RANDOM, i);
    }
    const struct rate out = transfer(&b, SW_TIER_WRITE);
    for (unsigned i = 0; i < b.n; i++)
        memset(b.frames[i].memory.memory, 0, b.bytes);
    const struct rate back = transfer(&b, SW_TIER_READ);
    for (unsigned i = 0; i < b.n; i++) {
        sw_content_fill(b.expected, b.bytes, SW_CONTENT_RANDOM, i);
        SW_ASSERT(memcmp(b.expected, b.frames[i].memory.memory, b.bytes) == 0);
        free(b.frames[i].memory.memory);
        b.tier->ops->release(b.tier, &b.frames[i].stored);
    }
    (void)printf("spillway: %u frames of %.0f KiB: out %.0f MB/s, back %.0f MB/s (CPU s for a GB: %.2f, %.2f)\n", b.n,
                 (double)b.bytes / 1024, out.mb_per_s, back.mb_per_s, out.cpu_s, back.cpu_s);
    show_requests(&b);
    sw_free(b.frames);
    sw_free(b.expected);
    return 0;
}

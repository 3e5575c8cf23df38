/* How long the arena's allocator takes, and into how many pieces it cuts frames, when the arena has been fragmented:
 * bench_extents [GIB]
 *
 * Fills an arena with small frames (4 to 64 KiB), gives a random half of them back, and takes frames of 27 MiB, a
 * string column's chunk on an H200, until no more fit. Beside it the best case, an empty arena, and one of single
 * blocks. */
#include "spill/tier/extents.h"
#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "tests/lib/content.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BLOCKS_PER_GIB = 1 << 18, SLAB_BLOCKS = 1 << 16, FRAME_BLOCKS = 6912 };

struct frame {
    struct sw_run *runs;
    uint64_t ns; /* that taking it took */
};

struct frames {
    struct frame *all;
    size_t n;
};

static void fill(struct sw_extents *x, struct frames *frames, uint64_t most_blocks) {
    uint64_t seed = 1;
    unsigned n_runs;
    while (x->free_blocks >= most_blocks)
        SW_ASSERT(sw_extents_take(x, 1 + sw_random(&seed) % most_blocks, &frames->all[frames->n++].runs, &n_runs) == 0);
}

/* Gives half of them back: a shuffle decides which, and in which order. */
static void give_half(struct sw_extents *x, struct frames *frames) {
    const size_t n_kept = frames->n / 2;
    uint64_t seed = 2;
    for (; frames->n > n_kept; frames->n--) {
        const size_t i = (size_t)(sw_random(&seed) % frames->n);
        sw_extents_give(x, frames->all[i].runs);
        frames->all[i] = frames->all[frames->n - 1];
    }
}

static int by_time(const void *a, const void *b) {
    const struct frame *x = a, *y = b;
    return x->ns < y->ns ? -1 : x->ns > y->ns;
}

static void measure(struct sw_extents *x, const char *name) {
    const uint64_t n_free_runs = x->n_free_runs;
    struct frames frames = {.n = (size_t)(x->free_blocks / FRAME_BLOCKS)};
    uint64_t pieces = 0, take_ns = 0;
    unsigned most_pieces = 0;
    frames.all = sw_alloc_array(frames.n, sizeof frames.all[0]);
    SW_ASSERT(frames.all && frames.n > 0);
    for (size_t i = 0; i < frames.n; i++) {
        struct timespec from, to;
        unsigned n;
        (void)clock_gettime(CLOCK_MONOTONIC, &from);
        SW_ASSERT(sw_extents_take(x, FRAME_BLOCKS, &frames.all[i].runs, &n) == 0);
        (void)clock_gettime(CLOCK_MONOTONIC, &to);
        frames.all[i].ns = (uint64_t)((to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec);
        take_ns += frames.all[i].ns;
        pieces += n;
        most_pieces = n > most_pieces ? n : most_pieces;
    }
    uint64_t give_us = sw_clock_us();
    for (size_t i = 0; i < frames.n; i++)
        sw_extents_give(x, frames.all[i].runs);
    give_us = sw_clock_us() - give_us;
    qsort(frames.all, frames.n, sizeof frames.all[0], by_time);
    const struct frame *median = &frames.all[frames.n / 2], *slowest = &frames.all[frames.n - 1];
    (void)printf("%-12s %10" PRIu64 " %7zu %9.1f %7u %10.1f %9.1f %10.1f %10.1f\n", name, n_free_runs, frames.n,
                 (double)pieces / (double)frames.n, most_pieces, (double)median->ns / 1e3, (double)slowest->ns / 1e3,
                 (double)take_ns / 1e6, (double)give_us / 1e3);
    sw_free(frames.all);
}

static void run(uint64_t n_slabs, const char *name, uint64_t most_blocks) {
    struct sw_extents x;
    struct frames frames = {.all = sw_alloc_array((size_t)n_slabs * SLAB_BLOCKS, sizeof frames.all[0])};
    SW_ASSERT(frames.all);
    sw_extents_init(&x);
    for (uint64_t i = 0; i < n_slabs; i++)
        SW_ASSERT(sw_extents_add(&x, i * SLAB_BLOCKS, SLAB_BLOCKS, NULL, NULL) == 0);
    if (most_blocks) {
        fill(&x, &frames, most_blocks);
        give_half(&x, &frames);
    }
    measure(&x, name);
    while (frames.n > 0)
        sw_extents_give(&x, frames.all[--frames.n].runs);
    sw_extents_fini(&x);
    sw_free(frames.all);
}

int main(int argc, char **argv) {
    const uint64_t gib = argc > 1 ? strtoull(argv[1], NULL, 10) : 16;
    if (gib < 1 || gib > 4096) {
        (void)fprintf(stderr, "usage: bench_extents [GIB]\n");
        return 2;
    }
    const uint64_t n_slabs = gib * BLOCKS_PER_GIB / SLAB_BLOCKS;
    (void)printf("arena of %" PRIu64 " GiB; frames of %d blocks\n"
                 "fragments     free runs  frames    pieces    most  median, us   max, us  takes, ms  gives, ms\n",
                 gib, FRAME_BLOCKS);
    run(n_slabs, "none", 0);
    run(n_slabs, "1-16 blocks", 16);
    run(n_slabs, "1 block", 1);
    return 0;
}

/* How long the arena's allocator takes, and into how many pieces it cuts frames, when the arena has been fragmented:
 * bench_extents [GIB]
 *
 * Fills an arena with small frames (4 to 64 KiB), gives every second one back in random order, and takes frames of 27
 * MiB, a string column's chunk on an H200, until nothing is left. Best case (an empty arena) and worst case (single
 * free blocks) beside it. */
#include "spill/tier/extents.h"
#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "tests/lib/content.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS_PER_GIB = 1 << 18, SLAB_BLOCKS = 1 << 16, FRAME_BLOCKS = 6912 };

struct chains {
    struct sw_run **runs;
    size_t n;
};

static void fill(struct sw_extents *x, struct chains *chains, uint64_t most_blocks) {
    uint64_t seed = 1;
    unsigned n_runs;
    chains->n = 0;
    while (x->free_blocks >= most_blocks) {
        const uint64_t count = 1 + sw_random(&seed) % most_blocks;
        SW_ASSERT(sw_extents_take(x, count, &chains->runs[chains->n], &n_runs) == 0);
        chains->n++;
    }
}

/* Every second one goes, in random order; the others come to the front. */
static void give_half(struct sw_extents *x, struct chains *chains) {
    struct sw_run **gone = chains->runs + chains->n / 2;
    const size_t n_gone = chains->n - chains->n / 2;
    uint64_t seed = 2;
    for (size_t i = 0; i < chains->n / 2; i++) { /* even ones to the front, odd ones to the end */
        struct sw_run *run = chains->runs[i];
        const size_t other = (size_t)(sw_random(&seed) % n_gone);
        if (i % 2) {
            chains->runs[i] = gone[other];
            gone[other] = run;
        }
    }
    for (size_t i = 0; i < n_gone; i++)
        sw_extents_give(x, gone[i]);
    chains->n /= 2;
}

static int by_size(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void measure(struct sw_extents *x, const char *name) {
    const uint64_t most = x->free_blocks / FRAME_BLOCKS, n_free_runs = x->n_free_runs;
    struct sw_run **runs = sw_alloc_array(most, sizeof *runs);
    uint64_t *ns = sw_alloc_array(most, sizeof *ns), pieces = 0, total_us = sw_clock_us();
    unsigned most_pieces = 0;
    SW_ASSERT(runs && ns && most > 0);
    for (uint64_t i = 0; i < most; i++) {
        struct timespec from, to;
        unsigned n;
        (void)clock_gettime(CLOCK_MONOTONIC, &from);
        SW_ASSERT(sw_extents_take(x, FRAME_BLOCKS, &runs[i], &n) == 0);
        (void)clock_gettime(CLOCK_MONOTONIC, &to);
        ns[i] = (uint64_t)((to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec);
        pieces += n;
        most_pieces = n > most_pieces ? n : most_pieces;
    }
    total_us = sw_clock_us() - total_us;
    uint64_t give_us = sw_clock_us();
    for (uint64_t i = 0; i < most; i++)
        sw_extents_give(x, runs[i]);
    give_us = sw_clock_us() - give_us;
    qsort(ns, most, sizeof *ns, by_size);
    (void)printf("%-12s %10" PRIu64 " %7" PRIu64 " %9.1f %7u %10.1f %10.1f %10.1f %10.1f\n", name, n_free_runs, most,
                 (double)pieces / (double)most, most_pieces, (double)ns[most / 2] / 1e3, (double)ns[most - 1] / 1e3,
                 (double)total_us / 1e3, (double)give_us / 1e3);
    sw_free(runs);
    sw_free(ns);
}

static void run(uint64_t n_slabs, const char *name, uint64_t most_blocks) {
    struct sw_extents x;
    struct chains chains = {.runs = sw_alloc_array(n_slabs * SLAB_BLOCKS, sizeof *chains.runs)};
    SW_ASSERT(chains.runs);
    sw_extents_init(&x);
    for (uint64_t i = 0; i < n_slabs; i++)
        SW_ASSERT(sw_extents_add(&x, i * SLAB_BLOCKS, SLAB_BLOCKS, NULL) == 0);
    if (most_blocks) {
        fill(&x, &chains, most_blocks);
        give_half(&x, &chains);
    }
    measure(&x, name);
    while (chains.n > 0)
        sw_extents_give(&x, chains.runs[--chains.n]);
    sw_extents_fini(&x);
    sw_free(chains.runs);
}

int main(int argc, char **argv) {
    const uint64_t gib = argc > 1 ? strtoull(argv[1], NULL, 10) : 32;
    if (gib < 1 || gib > 4096) {
        (void)fprintf(stderr, "usage: bench_extents [GIB]\n");
        return 2;
    }
    const uint64_t n_slabs = gib * BLOCKS_PER_GIB / SLAB_BLOCKS;
    (void)printf("arena of %" PRIu64 " GiB; frames of %d blocks\n"
                 "fragments     free runs  frames    pieces    most  take us: median   max    all, ms   give, ms\n",
                 gib, FRAME_BLOCKS);
    run(n_slabs, "none", 0);
    run(n_slabs, "1-16 blocks", 16);
    run(n_slabs, "1 block", 1);
    return 0;
}

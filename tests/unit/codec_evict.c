/* Evicting a range from the caches evicts all lines of the range, and no others. */
#ifdef __x86_64__
#include <immintrin.h>

static void note_line(void *line);
#define _mm_clflushopt note_line
#endif
#include "codec/raw_runs.c" /* NOLINT(bugprone-suspicious-include): the processor does not report evicted lines */

#include "tests/lib/content.h"
#include "tests/lib/run.h"
#include <check.h>
#include <stdlib.h>

enum { LINE = 64, MEMORY_BYTES = 1 << 20, LINES = MEMORY_BYTES / LINE, MAX_RUNS = 16, SKIPPED = 77 };

static struct {
    uint8_t *memory; /* on a line's first byte */
    bool noted[LINES], wanted[LINES];
} f;

#ifdef __x86_64__
static void note_line(void *line) {
    const size_t at = (size_t)((uint8_t *)line - f.memory);
    ck_assert_uint_lt(at, MEMORY_BYTES);
    ck_assert_uint_eq(at % LINE, 0);
    f.noted[at / LINE] = true;
}
#endif

static void setup(void) {
    f.memory = aligned_alloc(LINE, MEMORY_BYTES);
    ck_assert_ptr_nonnull(f.memory);
}

static void teardown(void) {
    free(f.memory);
}

/* Cuts a frame into runs with gaps between them, at odd places. */
static unsigned scatter(struct sw_run runs[MAX_RUNS], uint64_t frame_bytes, uint64_t *random) {
    uint8_t *p = f.memory;
    unsigned n = 0;
    while (frame_bytes > 0) {
        uint64_t bytes = sw_random(random) % (frame_bytes + 1);
        if (n == MAX_RUNS - 1)
            bytes = frame_bytes;
        p += sw_random(random) % 3000;
        runs[n++] = (struct sw_run){.memory = p, .bytes = bytes};
        p += bytes;
        frame_bytes -= bytes;
    }
    ck_assert(p <= f.memory + MEMORY_BYTES);
    return n;
}

/* Byte for byte. */
static void want(const struct sw_run *runs, uint64_t begin, uint64_t end) {
    uint64_t at = 0;
    memset(f.wanted, 0, sizeof f.wanted);
    for (; at < end; runs++)
        for (uint64_t i = 0; i < runs->bytes && at < end; i++, at++)
            if (at >= begin)
                f.wanted[(size_t)(runs->memory + i - f.memory) / LINE] = true;
}

START_TEST(the_lines_of_a_range) {
    uint64_t random = 5;
    for (int round = 0; round < 300; round++) {
        struct sw_frame_layout layout;
        struct sw_run runs[MAX_RUNS] = {{0}};
        sw_frame_layout_init(&layout, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, 1 + sw_random(&random) % 200000, 0);
        const unsigned n = scatter(runs, layout.frame_bytes, &random);
        struct sw_tile_range tiles = {.first = (uint32_t)(sw_random(&random) % layout.n_tiles)};
        tiles.end = tiles.first + (uint32_t)(sw_random(&random) % (layout.n_tiles - tiles.first + 1));
        const uint64_t begin = layout.data_offset + tiles.first * TILE_BYTES,
                       end = layout.data_offset + tiles.end * TILE_BYTES, last = layout.data_offset + layout.raw_bytes;
        want(runs, begin, end < last ? end : last);
        if (tiles.first == tiles.end)
            memset(f.wanted, 0, sizeof f.wanted);
        memset(f.noted, 0, sizeof f.noted);
        sw_raw_runs_evict(&layout, runs, n, tiles);
        ck_assert_mem_eq(f.noted, f.wanted, sizeof f.noted);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codec_evict");
    TCase *tcase = tcase_create("codec_evict");
    if (!can_evict())
        return SKIPPED;
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, the_lines_of_a_range);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

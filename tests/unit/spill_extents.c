/* The extent allocator against a bitmap that is too simple to be wrong. SW_TEST_OPS sets the number of operations. */
#include "base/alloc.h"
#include "base/err.h"
#include "spill/tier/extents.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SLABS = 3, SLAB_BLOCKS = 700, N_BLOCKS = N_SLABS * SLAB_BLOCKS, MAX_CHAINS = 400 };

static int slab_tags[N_SLABS];
static bool taken[N_BLOCKS];

static uint32_t seed = 12345;
static uint32_t random_below(uint32_t n) {
    seed = seed * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)seed * n) >> 32);
}

static void add_slabs(struct sw_extents *x) {
    sw_extents_init(x);
    memset(taken, 0, sizeof taken);
    for (unsigned i = 0; i < N_SLABS; i++)
        ck_assert_int_eq(sw_extents_add(x, (uint64_t)i * SLAB_BLOCKS, SLAB_BLOCKS, &slab_tags[i], NULL), 0);
}

/* Returns the length of the shortest free stretch of the bitmap that holds n; 0: none does. Stretches end with their
 * slab. */
static unsigned model_best_fit(unsigned n) {
    unsigned best = 0, length = 0;
    for (unsigned i = 0; i <= N_BLOCKS; i++) {
        if (i == N_BLOCKS || taken[i] || i % SLAB_BLOCKS == 0) {
            if (length >= n && (best == 0 || length < best))
                best = length;
            length = 0;
        }
        if (i < N_BLOCKS && !taken[i])
            length++;
    }
    return best;
}

/* ck_assert costs a system call even when it holds: too much for a million operations. */
#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            ck_abort_msg("%s", #condition);                                                                            \
    } while (0)

static void mark(const struct sw_run *runs, uint64_t want, unsigned n_runs, bool value) {
    uint64_t total = 0;
    unsigned n = 0;
    for (; runs; runs = runs->next, n++) {
        REQUIRE(runs->first / SLAB_BLOCKS == (runs->first + runs->count - 1) / SLAB_BLOCKS);
        REQUIRE(runs->slab == &slab_tags[runs->first / SLAB_BLOCKS]);
        for (uint64_t i = 0; i < runs->count; i++) {
            if (taken[runs->first + i] == value)
                ck_abort_msg("block %llu is already %d", (unsigned long long)(runs->first + i), value);
            taken[runs->first + i] = value;
        }
        total += runs->count;
    }
    REQUIRE(total == want);
    REQUIRE(n == n_runs);
}

START_TEST(test_random_operations_match_a_bitmap) {
    const char *env = getenv("SW_TEST_OPS");
    unsigned long operations = env ? strtoul(env, NULL, 10) : 1000000;
    struct sw_extents x;
    struct {
        struct sw_run *runs;
        uint64_t count;
        unsigned n_runs;
    } chains[MAX_CHAINS];
    unsigned n_chains = 0;
    uint64_t used = 0;
    long live = sw_alloc_live();
    add_slabs(&x);
    for (unsigned long op = 0; op < operations; op++) {
        /* Phases that fill and phases that empty the arena, so that both ends are reached. */
        bool filling = (op / 5000) % 2 == 0;
        if (n_chains < MAX_CHAINS && (n_chains == 0 || random_below(10) < (filling ? 6u : 4u))) {
            unsigned want = 1 + random_below(random_below(8) == 0 ? 200 : 12);
            unsigned fit = op % 64 == 0 ? model_best_fit(want) : 0;
            struct sw_run *runs;
            unsigned n_runs;
            int rc = sw_extents_take(&x, want, &runs, &n_runs);
            if (want > N_BLOCKS - used) {
                REQUIRE(rc == -SW_ENOSPACE);
                continue;
            }
            REQUIRE(rc == 0);
            if (fit) {
                REQUIRE(n_runs == 1);
                REQUIRE(fit == want || (runs->above && runs->above->free && runs->above->count == fit - want));
            }
            mark(runs, want, n_runs, true);
            chains[n_chains].runs = runs;
            chains[n_chains].count = want;
            chains[n_chains++].n_runs = n_runs;
            used += want;
        } else {
            unsigned i = random_below(n_chains);
            mark(chains[i].runs, chains[i].count, chains[i].n_runs, false);
            sw_extents_give(&x, chains[i].runs);
            used -= chains[i].count;
            chains[i] = chains[--n_chains];
        }
        if (x.free_blocks != N_BLOCKS - used)
            ck_abort_msg("free count is wrong after operation %lu", op);
    }
    while (n_chains > 0)
        sw_extents_give(&x, chains[--n_chains].runs);
    ck_assert_uint_eq(x.n_free_runs, N_SLABS);
    ck_assert_uint_eq(x.free_blocks, N_BLOCKS);
    sw_extents_fini(&x);
    ck_assert_int_eq(sw_alloc_live(), live);
}
END_TEST

/* ---- an arena of a GiB, frames of one block to 128 MiB ---- */

enum { BIG_SLABS = 4, BIG_SLAB_BLOCKS = 1 << 16, BIG_BLOCKS = BIG_SLABS * BIG_SLAB_BLOCKS, BIG_CHAINS = 1 << 15 };

/* Which blocks are taken, a byte for each; compared with these in one go, since a million operations touch billions. */
static uint8_t big_taken[BIG_BLOCKS], all_taken[BIG_SLAB_BLOCKS];
static const uint8_t none_taken[BIG_SLAB_BLOCKS];

static void big_mark(const struct sw_run *runs, uint64_t want, unsigned n_runs, bool value) {
    uint64_t total = 0;
    unsigned n = 0;
    for (; runs; runs = runs->next, n++) {
        REQUIRE(runs->first / BIG_SLAB_BLOCKS == (runs->first + runs->count - 1) / BIG_SLAB_BLOCKS);
        REQUIRE(memcmp(big_taken + runs->first, value ? none_taken : all_taken, runs->count) == 0);
        memset(big_taken + runs->first, value, runs->count);
        total += runs->count;
    }
    REQUIRE(total == want && n == n_runs);
}

/* The model's free stretches agree with the allocator's, which shows that neighbours were joined. */
static void big_compare(const struct sw_extents *x) {
    unsigned n = 0, length = 0, longest = 0;
    for (unsigned i = 0; i < BIG_BLOCKS; i++) {
        if (i % BIG_SLAB_BLOCKS == 0)
            length = 0;
        length = big_taken[i] ? 0 : length + 1;
        n += length == 1;
        longest = length > longest ? length : longest;
    }
    REQUIRE(n == x->n_free_runs);
    REQUIRE(longest == sw_extents_longest(x));
}

/* Mostly small, seldom as large as a chunk's frame: every power of two is as likely as the other. */
static unsigned big_want(void) {
    const unsigned power = 1u << random_below(15);
    return power + random_below(power);
}

struct big {
    struct sw_extents x;
    struct {
        struct sw_run *runs;
        unsigned count, n_runs;
    } chains[BIG_CHAINS];
    unsigned n_chains, most_pieces;
    uint64_t used, takes, pieces, refusals;
};

static void big_take(struct big *b) {
    const unsigned want = big_want();
    const uint64_t longest = sw_extents_longest(&b->x);
    const unsigned n_free_runs = b->x.n_free_runs;
    struct sw_run *runs;
    unsigned n_runs;
    int rc = sw_extents_take(&b->x, want, &runs, &n_runs);
    if (want > BIG_BLOCKS - b->used) {
        REQUIRE(rc == -SW_ENOSPACE);
        b->refusals++;
        return;
    }
    REQUIRE(rc == 0);
    REQUIRE((n_runs == 1) == (longest >= want)); /* in one extent whenever one is long enough */
    REQUIRE(n_runs <= n_free_runs);
    for (const struct sw_run *run = runs; run->next && run->next->next; run = run->next)
        REQUIRE(run->count >= run->next->count); /* longest first: no fewer pieces would do */
    big_mark(runs, want, n_runs, true);
    b->chains[b->n_chains].runs = runs;
    b->chains[b->n_chains].count = want;
    b->chains[b->n_chains++].n_runs = n_runs;
    b->used += want;
    b->takes++;
    b->pieces += n_runs;
    b->most_pieces = n_runs > b->most_pieces ? n_runs : b->most_pieces;
}

static void big_give(struct big *b, unsigned i) {
    big_mark(b->chains[i].runs, b->chains[i].count, b->chains[i].n_runs, false);
    sw_extents_give(&b->x, b->chains[i].runs);
    b->used -= b->chains[i].count;
    b->chains[i] = b->chains[--b->n_chains];
}

START_TEST(test_a_million_frames_of_all_sizes) {
    static struct big b;
    const char *env = getenv("SW_TEST_OPS");
    const unsigned long operations = env ? strtoul(env, NULL, 10) : 1000000;
    const long live = sw_alloc_live();
    memset(all_taken, 1, sizeof all_taken);
    sw_extents_init(&b.x);
    for (unsigned i = 0; i < BIG_SLABS; i++)
        ck_assert_int_eq(sw_extents_add(&b.x, (uint64_t)i * BIG_SLAB_BLOCKS, BIG_SLAB_BLOCKS, NULL, NULL), 0);
    for (unsigned long op = 0; op < operations; op++) {
        const bool filling = (op / 20000) % 2 == 0;
        if (b.n_chains == 0 || (b.n_chains < BIG_CHAINS && random_below(10) < (filling ? 7u : 4u)))
            big_take(&b);
        else
            big_give(&b, random_below(b.n_chains));
        REQUIRE(b.x.free_blocks == BIG_BLOCKS - b.used);
        if (op % 4096 == 0)
            big_compare(&b.x);
    }
    (void)printf("%llu frames in %.2f pieces, %u at most; %llu refused for want of space\n",
                 (unsigned long long)b.takes, (double)b.pieces / (double)b.takes, b.most_pieces,
                 (unsigned long long)b.refusals);
    ck_assert_uint_gt(b.refusals, b.takes / 1000); /* it was full */
    ck_assert_uint_gt(b.most_pieces, 10);          /* and fragmented */
    while (b.n_chains > 0)
        big_give(&b, b.n_chains - 1);
    ck_assert_uint_eq(b.x.n_free_runs, BIG_SLABS);
    sw_extents_fini(&b.x);
    ck_assert_int_eq(sw_alloc_live(), live);
}
END_TEST

START_TEST(test_fills_to_the_last_block_although_fragmented) {
    struct sw_extents x;
    struct sw_run *single[N_BLOCKS], *rest;
    unsigned n_runs;
    add_slabs(&x);
    for (unsigned i = 0; i < N_BLOCKS; i++)
        ck_assert_int_eq(sw_extents_take(&x, 1, &single[i], &n_runs), 0);
    ck_assert_int_eq(sw_extents_take(&x, 1, &rest, &n_runs), -SW_ENOSPACE);
    for (unsigned i = 0; i < N_BLOCKS; i += 2)
        sw_extents_give(&x, single[i]);
    /* Every second block is free, nothing is contiguous, and all of it must still be had. */
    ck_assert_int_eq(sw_extents_take(&x, N_BLOCKS / 2 + 1, &rest, &n_runs), -SW_ENOSPACE);
    ck_assert_int_eq(sw_extents_take(&x, N_BLOCKS / 2, &rest, &n_runs), 0);
    ck_assert_uint_eq(x.free_blocks, 0);
    ck_assert_uint_gt(n_runs, N_BLOCKS / 4);
    sw_extents_give(&x, rest);
    for (unsigned i = 1; i < N_BLOCKS; i += 2)
        sw_extents_give(&x, single[i]);
    ck_assert_uint_eq(x.n_free_runs, N_SLABS);
    sw_extents_fini(&x);
}
END_TEST

START_TEST(test_failed_allocation_changes_nothing) {
    struct sw_extents x;
    struct sw_run *runs;
    unsigned n_runs;
    add_slabs(&x);
    sw_alloc_fail_nth(1);
    ck_assert_int_eq(sw_extents_take(&x, 10, &runs, &n_runs), -SW_ENOMEM);
    ck_assert_uint_eq(x.free_blocks, N_BLOCKS);
    sw_alloc_fail_nth(1);
    ck_assert_int_eq(sw_extents_add(&x, N_BLOCKS, 5, NULL, NULL), -SW_ENOMEM);
    ck_assert_uint_eq(x.total_blocks, N_BLOCKS);
    ck_assert_uint_eq(x.n_free_runs, N_SLABS);
    sw_extents_fini(&x);
}
END_TEST

/* Places taken in order of address, the last block included; the rest is what a bitmap says, and all joins again. */
START_TEST(test_given_places_are_taken) {
    static const struct { uint64_t first, count; } places[] = {{0, 3}, {3, 1}, {10, 5}, {16, 1}, {600, 90}, {699, 1}};
    enum { N_PLACES = sizeof places / sizeof places[0] };
    struct sw_extents x;
    struct sw_run *runs[N_PLACES], *rest;
    unsigned n_runs, used = 0;
    long live = sw_alloc_live();
    sw_extents_init(&x);
    memset(taken, 0, sizeof taken);
    ck_assert_int_eq(sw_extents_add(&x, 0, SLAB_BLOCKS, &slab_tags[0], NULL), 0);
    struct sw_run *free_run = x.root;
    for (unsigned nth = 1; nth <= 2; nth++) {
        sw_alloc_fail_nth(nth);
        ck_assert_int_eq(sw_extents_take_at(&x, free_run, 10, 5, &runs[0]), -SW_ENOMEM);
        ck_assert_ptr_eq(x.root, free_run);
        ck_assert_uint_eq(x.free_blocks, SLAB_BLOCKS);
    }
    sw_alloc_fail_nth(0);
    for (unsigned i = 0; i < N_PLACES; i++) {
        ck_assert_int_eq(sw_extents_take_at(&x, free_run, places[i].first, places[i].count, &runs[i]), 0);
        ck_assert_uint_eq(runs[i]->first, places[i].first);
        ck_assert_ptr_null(runs[i]->next);
        mark(runs[i], places[i].count, 1, true);
        used += (unsigned)places[i].count;
        ck_assert_uint_eq(x.free_blocks, SLAB_BLOCKS - used);
        free_run = runs[i]->above;
    }
    ck_assert_ptr_null(free_run);
    ck_assert_int_eq(sw_extents_take(&x, SLAB_BLOCKS - used, &rest, &n_runs), 0);
    ck_assert_uint_eq(n_runs, 4);
    mark(rest, SLAB_BLOCKS - used, 4, true); /* none of them is another's */
    sw_extents_give(&x, rest);
    for (unsigned i = 0; i < N_PLACES; i++)
        sw_extents_give(&x, runs[i]);
    ck_assert_uint_eq(x.n_free_runs, 1);
    sw_extents_fini(&x);
    ck_assert_int_eq(sw_alloc_live(), live);
}
END_TEST

/* Places as a damaged record may name them, against free space: up to the last block they are taken, one block more is
 * refused, and so is a length that wraps. Places beside it are still there. */
START_TEST(test_places_that_do_not_fit_are_left_alone) {
    const struct sw_place cases[] = {
        {.first = 10, .count = SLAB_BLOCKS - 10},
        {.first = 10, .count = SLAB_BLOCKS - 9},
        {.first = 10, .count = SLAB_BLOCKS},
        {.first = 10, .count = SLAB_BLOCKS + 1},
        {.first = 10, .count = UINT64_MAX},
        {.first = 10, .count = UINT64_MAX - 9},
        {.first = SLAB_BLOCKS - 1, .count = 1},
        {.first = SLAB_BLOCKS - 1, .count = 2},
        {.first = 10, .count = 0},
        {.first = 3, .count = 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const bool fits = i == 0 || i == 6;
        struct sw_place places[] = {{.first = 0, .count = 8}, cases[i]};
        struct sw_extents x;
        struct sw_run *slab_run;
        size_t n = 0;
        sw_extents_init(&x);
        ck_assert_int_eq(sw_extents_add(&x, 0, SLAB_BLOCKS, &slab_tags[0], &slab_run), 0);
        sw_places_sort(places, 2, false);
        ck_assert_int_eq(sw_extents_take_places(&x, slab_run, places, 2, &n), 0);
        ck_assert_uint_eq(n, 2);
        ck_assert_ptr_nonnull(places[0].run);
        ck_assert_msg((places[1].run != NULL) == fits, "case %zu", i);
        ck_assert_uint_eq(x.free_blocks, SLAB_BLOCKS - 8 - (fits ? cases[i].count : 0));
        sw_extents_give(&x, places[0].run);
        sw_extents_give(&x, places[1].run);
        sw_extents_fini(&x);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("extents");
    TCase *tcase = tcase_create("extents");
    tcase_add_test(tcase, test_random_operations_match_a_bitmap);
    tcase_add_test(tcase, test_a_million_frames_of_all_sizes);
    tcase_add_test(tcase, test_fills_to_the_last_block_although_fragmented);
    tcase_add_test(tcase, test_failed_allocation_changes_nothing);
    tcase_add_test(tcase, test_given_places_are_taken);
    tcase_add_test(tcase, test_places_that_do_not_fit_are_left_alone);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

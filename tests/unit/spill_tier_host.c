/* The host arena: its limit, frames in many extents, remains of other clients' bytes, and several threads. */
#include "base/alloc.h"
#include "spill/tier/host/tier_host.h"
#include "tests/lib/content.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/host_tier.h"
#include "tests/lib/run.h"

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static struct sw_tier *open_tier(uint64_t capacity, uint64_t initial) {
    struct sw_tier_host_config config = {.capacity_bytes = capacity, .initial_bytes = initial, .slab_bytes = 2 * MIB};
    struct sw_tier *tier = NULL;
    struct sw_err err = {0};
    ck_assert_msg(sw_tier_host_open(&tier, &config, &err) == 0, "%s", err.msg);
    return tier;
}

START_TEST(test_grows_slab_by_slab_up_to_its_limit) {
    unsigned fds = sw_count_fds();
    long live = sw_alloc_live();
    struct sw_tier *tier = open_tier(5 * MIB + 8192 + 100, 2 * MIB);
    struct sw_stored stored[5];
    struct sw_err err = {0};
    UNTIL(tier, s.backed_bytes == 2 * MIB && !s.growing);
    ck_assert_uint_eq(stats_of(tier).largest_free_bytes, 2 * MIB);
    ck_assert_uint_eq(stats_of(tier).capacity_bytes, 5 * MIB + 8192);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(tier->ops->reserve(tier, MIB, &stored[i], &err), 0);
        ck_assert_uint_eq(stored[i].n_extents, 1);
        ck_assert_uint_eq(stats_of(tier).backed_bytes, i < 2 ? 2 * MIB : i < 4 ? 4 * MIB : 5 * MIB + 8192);
    }
    struct sw_stored last, none;
    ck_assert_int_eq(tier->ops->reserve(tier, 8193, &none, &err), -SW_ENOSPACE);
    ck_assert_uint_gt(strlen(err.msg), 0);
    ck_assert_int_eq(tier->ops->reserve(tier, 8192, &last, &err), 0);
    ck_assert_int_eq(tier->ops->reserve(tier, 1, &none, &err), -SW_ENOSPACE);
    ck_assert_uint_eq(stats_of(tier).used_bytes, stats_of(tier).capacity_bytes);
    ck_assert_uint_eq(count_slabs(), 3);
    ck_assert_uint_eq(stats_of(tier).n_slabs, 3);
    ck_assert_uint_eq(stats_of(tier).largest_free_bytes, 0);
    tier->ops->release(tier, &last);
    tier->ops->release(tier, &last); /* empty: nothing happens */
    for (int i = 0; i < 5; i++)
        tier->ops->release(tier, &stored[i]);
    ck_assert_uint_eq(stats_of(tier).used_bytes, 0);
    tier->ops->close(tier);
    ck_assert_uint_eq(count_slabs(), 0);
    ck_assert_uint_eq(sw_count_fds(), fds);
    ck_assert_int_eq(sw_alloc_live(), live);
}
END_TEST

/* As a report of damage names it: the slab, and the place in it. */
START_TEST(test_frames_are_located_in_their_slabs) {
    struct sw_tier *tier = open_tier(6 * MIB, 0);
    struct sw_stored stored[5];
    for (unsigned i = 0; i < 5; i++) {
        char file[SW_TIER_FILE_BYTES], expected[SW_TIER_FILE_BYTES];
        uint64_t offset = 1;
        ck_assert_int_eq(tier->ops->reserve(tier, MIB, &stored[i], NULL), 0);
        tier->ops->locate(tier, &stored[i], file, &offset);
        (void)snprintf(expected, sizeof expected, "arena-%x", i / 2 * 2 * (unsigned)MIB);
        ck_assert_str_eq(file, expected);
        ck_assert_uint_eq(offset, i % 2 * MIB);
    }
    for (unsigned i = 0; i < 5; i++)
        tier->ops->release(tier, &stored[i]);
    tier->ops->close(tier);
}
END_TEST

START_TEST(test_a_frame_may_lie_in_many_extents) {
    enum { N = 512 };
    struct sw_tier *tier = open_tier(2 * MIB, 0);
    struct sw_stored small[N], big;
    struct sw_err err = {0};
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(tier->ops->reserve(tier, 4000, &small[i], &err), 0);
    for (int i = 0; i < N; i++) {
        ck_assert_uint_eq(small[i].extents[0].bytes, 4000);
        if (i % 2 == 0)
            tier->ops->release(tier, &small[i]);
        else
            memset(small[i].extents[0].memory, i, 4000);
    }
    const uint64_t bytes = N / 2 * 4096 - 50;
    ck_assert_int_eq(tier->ops->reserve(tier, bytes, &big, &err), 0);
    ck_assert_uint_eq(big.n_extents, N / 2);
    uint64_t total = 0;
    for (unsigned e = 0; e < big.n_extents; e++) {
        ck_assert(e == big.n_extents - 1 || big.extents[e].bytes % 4096 == 0);
        memset(big.extents[e].memory, 0xAA, big.extents[e].bytes);
        total += big.extents[e].bytes;
    }
    ck_assert_uint_eq(total, bytes);
    ck_assert_uint_ge(big.extents[0].bytes, 4096);
    for (int i = 1; i < N; i += 2)
        for (int k = 0; k < 4000; k += 999)
            ck_assert_uint_eq(((uint8_t *)small[i].extents[0].memory)[k], (uint8_t)i);
    ck_assert_int_eq(tier->ops->commit(tier, &big, &err), 0);
    ck_assert_uint_eq(stats_of(tier).committed_frames, 1);
    tier->ops->release(tier, &big);
    ck_assert_uint_eq(stats_of(tier).committed_frames, 0);
    for (int i = 1; i < N; i += 2)
        tier->ops->release(tier, &small[i]);
    tier->ops->close(tier);
}
END_TEST

START_TEST(test_impossible_configurations_are_refused) {
    static const struct sw_tier_host_config bad[] = {
        {.capacity_bytes = 4 << 20, .slab_bytes = 0},
        {.capacity_bytes = 4 << 20, .slab_bytes = (2 << 20) + 4096},
        {.capacity_bytes = 4 << 20, .initial_bytes = 5 << 20, .slab_bytes = 2 << 20},
        {.capacity_bytes = 4 << 20, .ahead_bytes = 5 << 20, .slab_bytes = 2 << 20},
        {.capacity_bytes = 100, .slab_bytes = 2 << 20},
        {.capacity_bytes = UINT64_MAX, .slab_bytes = 2 << 20},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct sw_tier *tier = NULL;
        struct sw_err err = {0};
        ck_assert_int_eq(sw_tier_host_open(&tier, &bad[i], &err), -SW_EINVAL);
        ck_assert_ptr_null(tier);
    }
}
END_TEST

START_TEST(test_refused_memory_is_an_error_of_its_own) {
    struct sw_tier *tier = open_tier(4 * MIB, 0);
    struct sw_stored stored;
    struct sw_err err = {0};
    unsigned fds = sw_count_fds();
    struct rlimit before, none = {0};
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    none.rlim_max = before.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    ck_assert_int_eq(tier->ops->reserve(tier, 1, &stored, &err), -SW_ENOMEM);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit size;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &size), 0);
    size.rlim_cur = 1 * MIB; /* less than a slab */
    (void)signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &size), 0);
    ck_assert_int_eq(tier->ops->reserve(tier, 1, &stored, &err), -SW_ENOMEM);
    size.rlim_cur = size.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &size), 0);
    ck_assert_uint_eq(sw_count_fds(), fds);
    ck_assert_int_eq(tier->ops->reserve(tier, 1, &stored, &err), 0);
    tier->ops->release(tier, &stored);
    tier->ops->close(tier);
}
END_TEST

START_TEST(test_the_rest_of_a_frames_last_block_is_zero) {
    static const uint64_t lengths[] = {1, 4095, 4096, 4097, 100001};
    struct sw_tier *tier = open_tier(2 * MIB, 0);
    struct sw_stored stored;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        ck_assert_int_eq(tier->ops->reserve(tier, 2 * MIB, &stored, NULL), 0);
        memset(stored.extents[0].memory, 0x5E, 2 * MIB); /* a tenant's secret */
        ck_assert_int_eq(tier->ops->commit(tier, &stored, NULL), 0);
        tier->ops->release(tier, &stored);
        ck_assert_int_eq(tier->ops->reserve(tier, lengths[i], &stored, NULL), 0);
        const uint8_t *memory = stored.extents[0].memory;
        ck_assert_uint_eq(stored.n_extents, 1);
        memset(stored.extents[0].memory, 0xAA, lengths[i]);
        ck_assert_int_eq(tier->ops->commit(tier, &stored, NULL), 0);
        for (uint64_t at = 0; at < lengths[i]; at++)
            ck_assert_msg(memory[at] == 0xAA, "byte %u of %u changed", (unsigned)at, (unsigned)lengths[i]);
        for (uint64_t at = lengths[i]; at % 4096; at++)
            ck_assert_msg(memory[at] == 0, "byte %u behind %u is not zero", (unsigned)at, (unsigned)lengths[i]);
        tier->ops->release(tier, &stored);
    }
    tier->ops->close(tier);
}
END_TEST

/* Whether a slab's mapping is left out of core dumps ("dd" in its flags). */
static bool slab_is_not_dumped(void) {
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512];
    bool in_slab = false, left_out = false;
    ck_assert_ptr_nonnull(maps);
    while (fgets(line, sizeof line, maps)) {
        if (strstr(line, " rw-s ") || strstr(line, "-p "))
            in_slab = strstr(line, "spillway-arena") != NULL;
        left_out |= in_slab && strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " dd");
    }
    (void)fclose(maps);
    return left_out;
}

START_TEST(test_slabs_are_not_dumped_and_huge_if_possible) {
    unsigned long n_huge = 0;
    FILE *pool = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "r");
    struct sw_tier *tier = open_tier(6 * MIB, 6 * MIB);
    if (pool) {
        ck_assert_int_eq(fscanf(pool, "%lu", &n_huge), 1);
        (void)fclose(pool);
    }
    UNTIL(tier, s.backed_bytes == 6 * MIB);
    ck_assert(slab_is_not_dumped());
    ck_assert_uint_eq(stats_of(tier).huge_bytes % (2 * MIB), 0);
    ck_assert_uint_le(stats_of(tier).huge_bytes, n_huge ? 6 * MIB : 0);
    tier->ops->close(tier);
}
END_TEST

struct crowd {
    struct sw_tier *tier;
    pthread_barrier_t *start;
    uint64_t seed;
    unsigned refused;
};

/* Reserves, marks, checks and releases frames of its own; any overlap with another thread's shows in the marks. */
static void *crowd_main(void *arg) {
    struct crowd *c = arg;
    struct sw_stored held[8] = {0};
    (void)pthread_barrier_wait(c->start);
    for (int i = 0; i < 2000; i++) {
        struct sw_stored *stored = &held[sw_random(&c->seed) % 8];
        uint8_t mark = (uint8_t)(uintptr_t)stored;
        for (unsigned e = 0; e < stored->n_extents; e++)
            if (*(uint8_t *)stored->extents[e].memory != mark)
                return "overwritten";
        c->tier->ops->release(c->tier, stored);
        struct sw_err err;
        if (c->tier->ops->reserve(c->tier, 1 + sw_random(&c->seed) % 500000, stored, &err)) {
            c->refused++;
            continue;
        }
        for (unsigned e = 0; e < stored->n_extents; e++)
            *(uint8_t *)stored->extents[e].memory = mark;
        if (i % 2 && c->tier->ops->commit(c->tier, stored, &err))
            return "not committed";
    }
    for (int i = 0; i < 8; i++)
        c->tier->ops->release(c->tier, &held[i]);
    return NULL;
}

START_TEST(test_threads_share_it_while_it_grows) {
    enum { N = 4 };
    struct crowd crowd[N];
    pthread_t threads[N];
    pthread_barrier_t start;
    struct sw_tier *tier = open_tier(7 * MIB, 0);
    ck_assert_int_eq(pthread_barrier_init(&start, NULL, N), 0);
    for (int i = 0; i < N; i++) {
        crowd[i] = (struct crowd){.tier = tier, .start = &start, .seed = (uint64_t)i + 1};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, crowd_main, &crowd[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        void *complaint;
        ck_assert_int_eq(pthread_join(threads[i], &complaint), 0);
        ck_assert_msg(complaint == NULL, "%s", (const char *)complaint);
    }
    struct sw_tier_stats stats = stats_of(tier);
    ck_assert_uint_eq(stats.used_bytes, 0);
    ck_assert_uint_eq(stats.committed_frames, 0);
    /* How far it grew depends on how many frames the threads held at once. */
    ck_assert_uint_ge(stats.backed_bytes, 1 * MIB);
    ck_assert_uint_le(stats.backed_bytes, 7 * MIB);
    (void)pthread_barrier_destroy(&start);
    tier->ops->close(tier);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("host tier");
    TCase *tcase = tcase_create("host tier");
    tcase_add_test(tcase, test_grows_slab_by_slab_up_to_its_limit);
    tcase_add_test(tcase, test_frames_are_located_in_their_slabs);
    tcase_add_test(tcase, test_a_frame_may_lie_in_many_extents);
    tcase_add_test(tcase, test_impossible_configurations_are_refused);
    tcase_add_test(tcase, test_refused_memory_is_an_error_of_its_own);
    tcase_add_test(tcase, test_the_rest_of_a_frames_last_block_is_zero);
    tcase_add_test(tcase, test_slabs_are_not_dumped_and_huge_if_possible);
    tcase_add_test(tcase, test_threads_share_it_while_it_grows);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

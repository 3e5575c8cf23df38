/* The host arena: limits, growth in the background, fragments, several threads, devices that refuse to pin or hang, and
 * remains of other clients' bytes. */
#include "base/alloc.h"
#include "spill/device/device.h"
#include "spill/tier/host/tier_host.h"
#include "tests/lib/content.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

static struct sw_tier *open_tier(uint64_t capacity, uint64_t initial) {
    struct sw_tier_host_config config = {.capacity_bytes = capacity, .initial_bytes = initial, .slab_bytes = 2 * MIB};
    struct sw_tier *tier = NULL;
    struct sw_err err = {0};
    ck_assert_msg(sw_tier_host_open(&tier, &config, &err) == 0, "%s", err.msg);
    return tier;
}

static struct sw_tier_stats stats_of(struct sw_tier *tier) {
    struct sw_tier_stats stats;
    tier->ops->stats(tier, &stats);
    return stats;
}

/* Runs until the condition, on the tier's figures as `s`, holds; the test's time limit ends it otherwise. */
#define UNTIL(tier, condition)                                                                                         \
    for (struct sw_tier_stats s; s = stats_of(tier), (void)s, !(condition);)                                           \
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL)

/* Mappings of arena slabs in this process. */
static unsigned count_slabs(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned n = 0;
    ck_assert_ptr_nonnull(maps);
    while (fgets(line, sizeof line, maps))
        n += strstr(line, "spillway-arena") != NULL;
    (void)fclose(maps);
    return n;
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

/* A tier of 2 MiB slabs on two devices that can be made to fail, and its reports. */
struct pinned {
    struct sw_device *devices[2];
    struct sw_tier *tier;
    atomic_uint n_failures, n_ready;
    atomic_int code;
    long live_before;
    unsigned fds_before;
};

static void on_report(const struct sw_err *failure, uint64_t backed_bytes, void *arg) {
    struct pinned *p = arg;
    (void)backed_bytes;
    atomic_store(&p->code, failure ? failure->code : 0);
    atomic_fetch_add(failure ? &p->n_failures : &p->n_ready, 1);
}

static void pinned_devices(struct pinned *p) {
    const struct sw_device_config config = {.scratch_bytes = 1 << 20, .n_slots = 1, .chunk_bytes = 32 << 10};
    memset(p, 0, sizeof *p);
    p->live_before = sw_alloc_live();
    p->fds_before = sw_count_fds();
    for (int i = 0; i < 2; i++) {
        struct sw_device *inner;
        ck_assert_int_eq(sw_device_host_open(&inner, &config, NULL), 0);
        ck_assert_int_eq(sw_device_faulty_open(&p->devices[i], inner, NULL), 0);
    }
}

static void pinned_open(struct pinned *p, uint64_t capacity, uint64_t initial, uint64_t ahead) {
    const struct sw_tier_host_config config = {.capacity_bytes = capacity,
                                               .initial_bytes = initial,
                                               .ahead_bytes = ahead,
                                               .slab_bytes = 2 * MIB,
                                               .devices = p->devices,
                                               .n_devices = 2,
                                               .report = on_report,
                                               .report_arg = p};
    ck_assert_int_eq(sw_tier_host_open(&p->tier, &config, NULL), 0);
}

static void pinned_close(struct pinned *p) {
    if (p->tier)
        p->tier->ops->close(p->tier);
    ck_assert_uint_eq(count_slabs(), 0);
    for (int i = 0; i < 2; i++)
        p->devices[i]->ops->close(p->devices[i]);
    ck_assert_int_eq(sw_alloc_live(), p->live_before);
    ck_assert_uint_eq(sw_count_fds(), p->fds_before);
}

/* A thread that reserves. */
struct reserver {
    pthread_t thread;
    struct sw_tier *tier;
    uint64_t bytes;
    struct sw_stored stored;
    struct sw_err err;
    int rc;
};

static void *reserver_main(void *arg) {
    struct reserver *r = arg;
    r->rc = r->tier->ops->reserve(r->tier, r->bytes, &r->stored, &r->err);
    return NULL;
}

static void reserver_start(struct reserver *r, struct sw_tier *tier, uint64_t bytes) {
    *r = (struct reserver){.tier = tier, .bytes = bytes};
    ck_assert_int_eq(pthread_create(&r->thread, NULL, reserver_main, r), 0);
}

static int reserver_end(struct reserver *r) {
    ck_assert_int_eq(pthread_join(r->thread, NULL), 0);
    r->tier->ops->release(r->tier, &r->stored); /* empty after a failure */
    return r->rc;
}

START_TEST(test_open_waits_for_nothing_and_reservations_for_the_first_slab) {
    enum { N = 3 };
    struct pinned p;
    struct reserver reservers[N];
    pinned_devices(&p);
    sw_device_faulty_arm(p.devices[1], "pin", 1, -SW_EAGAIN, SW_FAULT_AT_ONCE);
    pinned_open(&p, 8 * MIB, 4 * MIB, 0);
    UNTIL(p.tier, s.growing);
    ck_assert_uint_eq(stats_of(p.tier).backed_bytes, 0);
    for (int i = 0; i < N; i++)
        reserver_start(&reservers[i], p.tier, MIB);
    UNTIL(p.tier, s.n_waiting == N);
    ck_assert_uint_eq(stats_of(p.tier).backed_bytes, 0);
    ck_assert_uint_eq(atomic_load(&p.n_ready), 0);
    sw_device_faulty_release(p.devices[1]);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(reserver_end(&reservers[i]), 0);
    UNTIL(p.tier, s.backed_bytes == 4 * MIB && !s.growing && atomic_load(&p.n_ready) == 1);
    ck_assert_uint_eq(stats_of(p.tier).n_waiting, 0);
    pinned_close(&p);
}
END_TEST

START_TEST(test_grows_ahead_of_demand) {
    struct pinned p;
    struct sw_stored stored[3];
    pinned_devices(&p);
    pinned_open(&p, 7 * MIB, 0, 3 * MIB);
    UNTIL(p.tier, s.backed_bytes == 4 * MIB && !s.growing);
    ck_assert_int_eq(p.tier->ops->reserve(p.tier, MIB, &stored[0], NULL), 0); /* leaves just enough */
    ck_assert_int_eq(p.tier->ops->reserve(p.tier, MIB, &stored[1], NULL), 0);
    UNTIL(p.tier, s.backed_bytes == 6 * MIB && !s.growing);
    ck_assert_int_eq(p.tier->ops->reserve(p.tier, 2 * MIB, &stored[2], NULL), 0);
    UNTIL(p.tier, s.backed_bytes == 7 * MIB && !s.growing); /* no further than to the bound */
    for (int i = 0; i < 3; i++)
        p.tier->ops->release(p.tier, &stored[i]);
    ck_assert_uint_eq(stats_of(p.tier).backed_bytes, 7 * MIB);
    pinned_close(&p);
}
END_TEST

START_TEST(test_a_waiting_reservation_takes_released_space) {
    struct pinned p;
    struct sw_stored all;
    struct reserver reserver;
    pinned_devices(&p);
    pinned_open(&p, 4 * MIB, 2 * MIB, 0);
    ck_assert_int_eq(p.tier->ops->reserve(p.tier, 2 * MIB, &all, NULL), 0);
    sw_device_faulty_arm(p.devices[0], "pin", 1, -SW_EAGAIN, SW_FAULT_AT_ONCE);
    reserver_start(&reserver, p.tier, MIB);
    UNTIL(p.tier, s.n_waiting == 1 && s.growing);
    p.tier->ops->release(p.tier, &all);
    ck_assert_int_eq(reserver_end(&reserver), 0); /* while the slab still hangs */
    ck_assert(stats_of(p.tier).growing);
    sw_device_faulty_release(p.devices[0]);
    pinned_close(&p);
}
END_TEST

START_TEST(test_a_failed_growth_fails_waiters_and_is_retried_on_demand) {
    enum { N = 3 };
    struct pinned p;
    struct reserver reservers[N];
    struct sw_stored stored;
    struct sw_err err = {0};
    pinned_devices(&p);
    sw_device_faulty_arm(p.devices[0], "pin", 1, -SW_EAGAIN, SW_FAULT_AT_ONCE);
    sw_device_faulty_arm(p.devices[1], "pin", 1, -SW_EGPU, SW_FAULT_AT_ONCE);
    pinned_open(&p, 8 * MIB, 0, 0);
    for (int i = 0; i < N; i++)
        reserver_start(&reservers[i], p.tier, MIB);
    UNTIL(p.tier, s.n_waiting == N && s.growing);
    sw_device_faulty_release(p.devices[0]);
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(reserver_end(&reservers[i]), -SW_EGPU);
        ck_assert_int_eq(reservers[i].err.code, -SW_EGPU);
        ck_assert_uint_gt(strlen(reservers[i].err.msg), 0);
    }
    UNTIL(p.tier, atomic_load(&p.n_failures) == 1);
    ck_assert_uint_eq(count_slabs(), 0);
    /* The next demand tries again; a second failure in a row is not reported again. */
    sw_device_faulty_arm(p.devices[1], "pin", 1, -SW_ENOMEM, SW_FAULT_AT_ONCE);
    ck_assert_int_eq(p.tier->ops->reserve(p.tier, MIB, &stored, &err), -SW_ENOMEM);
    ck_assert_int_eq(p.tier->ops->reserve(p.tier, MIB, &stored, &err), 0);
    UNTIL(p.tier, atomic_load(&p.code) == 0);
    ck_assert_uint_eq(atomic_load(&p.n_failures), 1);
    p.tier->ops->release(p.tier, &stored);
    /* But after a success it is news. */
    sw_device_faulty_arm(p.devices[1], "pin", 1, -SW_EGPU, SW_FAULT_AT_ONCE);
    ck_assert_int_eq(p.tier->ops->reserve(p.tier, 3 * MIB, &stored, &err), -SW_EGPU);
    UNTIL(p.tier, atomic_load(&p.n_failures) == 2);
    pinned_close(&p);
}
END_TEST

START_TEST(test_a_failed_growth_without_waiters_is_not_retried) {
    struct pinned p;
    struct sw_stored stored;
    struct sw_err err = {0};
    pinned_devices(&p);
    sw_device_faulty_arm(p.devices[1], "pin", 2, -SW_EGPU, SW_FAULT_AT_ONCE);
    pinned_open(&p, 8 * MIB, 6 * MIB, 0);
    UNTIL(p.tier, atomic_load(&p.n_failures) == 1 && !s.growing);
    ck_assert_uint_eq(atomic_load(&p.n_ready), 0);
    ck_assert_uint_eq(stats_of(p.tier).backed_bytes, 2 * MIB);
    /* What is there serves, and asks for no more. */
    sw_device_faulty_arm(p.devices[1], "pin", 1, -SW_EGPU, SW_FAULT_AT_ONCE);
    ck_assert_int_eq(p.tier->ops->reserve(p.tier, MIB, &stored, &err), 0);
    p.tier->ops->release(p.tier, &stored);
    ck_assert_uint_eq(stats_of(p.tier).backed_bytes, 2 * MIB);
    ck_assert_int_eq(p.tier->ops->reserve(p.tier, 3 * MIB, &stored, &err), -SW_EGPU); /* meets the second one */
    ck_assert_int_eq(p.tier->ops->reserve(p.tier, 3 * MIB, &stored, &err), 0);
    UNTIL(p.tier, s.backed_bytes == 6 * MIB && atomic_load(&p.n_ready) == 1);
    p.tier->ops->release(p.tier, &stored);
    pinned_close(&p);
}
END_TEST

static void *close_main(void *arg) {
    struct sw_tier *tier = arg;
    tier->ops->close(tier);
    return NULL;
}

START_TEST(test_close_ends_a_growth_that_is_under_way) {
    struct pinned p;
    pthread_t closer;
    pinned_devices(&p);
    sw_device_faulty_arm(p.devices[_i], "pin", 2, -SW_EAGAIN, SW_FAULT_AT_ONCE);
    pinned_open(&p, 64 * MIB, 64 * MIB, 0);
    UNTIL(p.tier, s.n_slabs == 1 && s.growing);
    ck_assert_int_eq(pthread_create(&closer, NULL, close_main, p.tier), 0);
    (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL); /* right in any order, better in this one */
    sw_device_faulty_release(p.devices[_i]);
    ck_assert_int_eq(pthread_join(closer, NULL), 0);
    p.tier = NULL;
    ck_assert_uint_eq(atomic_load(&p.n_failures), 0);
    pinned_close(&p);
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

/* ---- a successor with a smaller bound ---- */

enum { MAX_KEPT = 8 };
static struct sw_tier_host_slab kept[MAX_KEPT];
static unsigned n_kept, n_forgotten;
static uint64_t forgotten[MAX_KEPT];
static struct sw_tier *trimmed; /* NULL: not yet */

static void keep_slab(int fd, uint64_t offset, void *arg) {
    (void)arg;
    ck_assert_uint_lt(n_kept, MAX_KEPT);
    kept[n_kept++] = (struct sw_tier_host_slab){fcntl(fd, F_DUPFD_CLOEXEC, 0), offset};
}

static void forget_slab(uint64_t offset, void *arg) {
    (void)arg;
    ck_assert_uint_lt(n_forgotten, MAX_KEPT);
    forgotten[n_forgotten++] = offset;
    if (trimmed) /* or its thread would grow it again */
        ck_assert_uint_eq(stats_of(trimmed).capacity_bytes, stats_of(trimmed).backed_bytes);
}

static struct sw_tier *open_kept(uint64_t capacity) {
    const struct sw_tier_host_config config = {.capacity_bytes = capacity,
                                               .initial_bytes = capacity,
                                               .slab_bytes = 2 * MIB,
                                               .keep = keep_slab,
                                               .forget = forget_slab,
                                               .kept = kept,
                                               .n_kept = n_kept};
    struct sw_tier *tier = NULL;
    ck_assert_int_eq(sw_tier_host_open(&tier, &config, NULL), 0);
    return tier;
}

static int recover(struct sw_tier *tier, struct sw_stored *const *frames, size_t n) {
    return tier->ops->recover(tier, &(struct sw_tier_recovery){.frames = frames, .n = n}, NULL);
}

/* A frame of a predecessor, in the arena's block there. */
static void claim_block(struct sw_tier *tier, uint64_t offset, struct sw_stored *ret) {
    struct sw_extent *extent = sw_alloc(sizeof *extent);
    *extent = (struct sw_extent){.offset = offset, .bytes = 4096};
    *ret = (struct sw_stored){.extents = extent, .n_extents = 1, .bytes = 4096};
    ck_assert_int_eq(recover(tier, &ret, 1), 0);
    ck_assert_ptr_eq(ret->tier, tier);
}

/* Slabs beyond the limit stay while they hold frames, and only then. */
START_TEST(test_empty_slabs_beyond_a_lower_limit_are_released) {
    struct sw_stored frame, more = {0};
    struct sw_tier *tier = open_kept(8 * MIB);
    UNTIL(tier, s.backed_bytes == 8 * MIB);
    ck_assert_uint_eq(tier->ops->trim(tier), 0);
    tier->ops->close(tier);
    ck_assert_uint_eq(n_kept, 4);
    const unsigned others = count_slabs();
    tier = open_kept(4 * MIB);
    ck_assert_uint_eq(stats_of(tier).capacity_bytes, 8 * MIB);
    claim_block(tier, 6 * MIB + 4096, &frame);
    trimmed = tier;
    ck_assert_uint_eq(tier->ops->trim(tier), 4 * MIB);
    ck_assert_uint_eq(n_forgotten, 2);
    ck_assert(forgotten[0] == 4 * MIB && forgotten[1] == 2 * MIB);
    ck_assert_uint_eq(count_slabs(), others + 2);
    ck_assert(stats_of(tier).capacity_bytes == 4 * MIB && stats_of(tier).backed_bytes == 4 * MIB);
    ck_assert_int_eq(tier->ops->reserve(tier, 4 * MIB - 4096, &more, NULL), 0); /* all that is left */
    ck_assert_int_eq(tier->ops->reserve(tier, 4096, &(struct sw_stored){0}, NULL), -SW_ENOSPACE);
    tier->ops->release(tier, &more);
    tier->ops->release(tier, &frame);
    ck_assert_uint_eq(tier->ops->trim(tier), 0);
    tier->ops->close(tier);
}
END_TEST

/* There is no memory for the records of a kept slab: it must not stay with the manager uncounted. */
START_TEST(test_an_unusable_kept_slab_is_released) {
    const struct sw_tier_host_config config = {
        .capacity_bytes = 4 * MIB, .slab_bytes = 2 * MIB, .keep = keep_slab, .forget = forget_slab};
    struct sw_stored frame;
    struct sw_tier *tier = NULL;
    ck_assert_int_eq(sw_tier_host_open(&tier, &config, NULL), 0);
    sw_alloc_fail_nth(2); /* after the slab's own */
    ck_assert_int_eq(tier->ops->reserve(tier, 4096, &frame, NULL), -SW_ENOMEM);
    ck_assert_uint_eq(n_kept, 1);
    ck_assert_uint_eq(n_forgotten, 1);
    ck_assert_uint_eq(forgotten[0], kept[0].offset);
    ck_assert_int_eq(tier->ops->reserve(tier, 4096, &frame, NULL), 0);
    ck_assert_uint_ne(kept[1].offset, kept[0].offset);
    tier->ops->release(tier, &frame);
    tier->ops->close(tier);
    ck_assert_uint_eq(n_forgotten, 1);
}
END_TEST

/* Every descriptor that was handed over is closed once it has served, whether it was of use or not. */
START_TEST(test_two_kept_slabs_for_one_place) {
    struct sw_stored frame;
    struct sw_tier *tier = open_kept(4 * MIB);
    UNTIL(tier, s.backed_bytes == 4 * MIB);
    tier->ops->close(tier);
    ck_assert_uint_eq(n_kept, 2);
    keep_slab(sw_memory_new(2 * MIB).fd, kept[0].offset, NULL);
    const unsigned fds = sw_count_fds();
    tier = open_kept(4 * MIB);
    ck_assert_uint_eq(sw_count_fds(), fds - 3);
    ck_assert_uint_eq(stats_of(tier).backed_bytes, 4 * MIB);
    claim_block(tier, 2 * MIB, &frame);
    tier->ops->release(tier, &frame);
    tier->ops->close(tier);
}
END_TEST

static struct sw_tier *open_with_pipes(uint64_t capacity, const int *io_pipes, unsigned n) {
    const struct sw_tier_host_config config = {.capacity_bytes = capacity,
                                               .slab_bytes = 2 * MIB,
                                               .keep = keep_slab,
                                               .forget = forget_slab,
                                               .kept = kept,
                                               .n_kept = n_kept,
                                               .io_pipes = io_pipes,
                                               .n_io_pipes = n};
    struct sw_tier *tier = NULL;
    ck_assert_int_eq(sw_tier_host_open(&tier, &config, NULL), 0);
    return tier;
}

/* The kernel may still write to free parts of a predecessor's memory; it does not write to new memory or to frames that
 * were found. */
START_TEST(test_slabs_that_the_kernel_may_write_are_not_used) {
    enum { N = 2 };
    struct sw_stored frame, stored[3] = {0}, rest = {0};
    struct sw_err err = {0};
    int reads[N], writes[N];
    struct sw_tier *tier = open_kept(4 * MIB);
    UNTIL(tier, s.backed_bytes == 4 * MIB);
    tier->ops->close(tier);
    for (int i = 0; i < N; i++) {
        int ends[2];
        ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
        reads[i] = ends[0];
        writes[i] = ends[1];
    }
    tier = open_with_pipes(6 * MIB, reads, N);
    claim_block(tier, 2 * MIB + 4096, &frame);
    ck_assert_uint_eq(stats_of(tier).held_bytes, 4 * MIB - 4096);
    ck_assert_uint_eq(stats_of(tier).used_bytes, 4 * MIB);
    ck_assert_uint_eq(tier->ops->trim(tier), 0);
    ck_assert_int_eq(tier->ops->reserve(tier, MIB, &stored[0], &err), 0); /* waits for a slab */
    ck_assert_uint_ge(stored[0].extents[0].offset, 4 * MIB);
    tier->ops->release(tier, &frame);
    ck_assert_int_eq(tier->ops->reserve(tier, MIB, &stored[1], &err), 0);
    ck_assert_int_eq(tier->ops->reserve(tier, 4096, &stored[2], &err), 0);
    ck_assert_uint_eq(stored[2].extents[0].offset, 2 * MIB + 4096); /* where a frame lay nothing else is on its way */
    ck_assert_int_eq(tier->ops->reserve(tier, 4096, &rest, &err), -SW_ENOSPACE);
    (void)close(writes[1]);
    ck_assert_int_eq(tier->ops->reserve(tier, 4096, &rest, &err), -SW_ENOSPACE);
    ck_assert_uint_eq(stats_of(tier).held_bytes, 4 * MIB - 4096);
    (void)close(writes[0]);
    ck_assert_int_eq(tier->ops->reserve(tier, 4 * MIB - 4096, &rest, &err), 0);
    ck_assert_uint_eq(stats_of(tier).held_bytes, 0);
    for (int i = 0; i < 3; i++)
        tier->ops->release(tier, &stored[i]);
    tier->ops->release(tier, &rest);
    tier->ops->close(tier);
}
END_TEST

/* Nothing was found, or the tier is closed with its frames; its pipes are closed in any case. */
START_TEST(test_pipes_are_closed) {
    struct sw_stored stored;
    int ends[2];
    struct sw_tier *tier = open_kept(2 * MIB);
    UNTIL(tier, s.backed_bytes == 2 * MIB);
    tier->ops->close(tier);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
        if (i == 1)
            (void)close(ends[1]);
        tier = open_with_pipes(2 * MIB, &ends[0], 1);
        if (i < 2)
            ck_assert_int_eq(recover(tier, NULL, 0), 0);
        if (i == 0)
            ck_assert_int_eq(tier->ops->reserve(tier, 4096, &stored, NULL), -SW_ENOSPACE);
        if (i == 1) {
            ck_assert_int_eq(tier->ops->reserve(tier, 2 * MIB, &stored, NULL), 0);
            tier->ops->release(tier, &stored);
        }
        tier->ops->close(tier);
        ck_assert_int_eq(fcntl(ends[0], F_GETFD), -1);
        if (i != 1)
            (void)close(ends[1]);
        keep_slab(sw_memory_new(2 * MIB).fd, 0, NULL); /* the one before was moved */
        kept[0] = kept[--n_kept];
    }
    (void)close(kept[0].fd);
}
END_TEST

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
    Suite *suite = suite_create("tier_host");
    TCase *tcase = tcase_create("tier_host");
    tcase_add_test(tcase, test_grows_slab_by_slab_up_to_its_limit);
    tcase_add_test(tcase, test_a_frame_may_lie_in_many_extents);
    tcase_add_test(tcase, test_impossible_configurations_are_refused);
    tcase_add_test(tcase, test_refused_memory_is_an_error_of_its_own);
    tcase_add_test(tcase, test_open_waits_for_nothing_and_reservations_for_the_first_slab);
    tcase_add_test(tcase, test_grows_ahead_of_demand);
    tcase_add_test(tcase, test_a_waiting_reservation_takes_released_space);
    tcase_add_test(tcase, test_a_failed_growth_fails_waiters_and_is_retried_on_demand);
    tcase_add_test(tcase, test_a_failed_growth_without_waiters_is_not_retried);
    tcase_add_loop_test(tcase, test_close_ends_a_growth_that_is_under_way, 0, 2);
    tcase_add_test(tcase, test_the_rest_of_a_frames_last_block_is_zero);
    tcase_add_test(tcase, test_slabs_are_not_dumped_and_huge_if_possible);
    tcase_add_test(tcase, test_empty_slabs_beyond_a_lower_limit_are_released);
    tcase_add_test(tcase, test_an_unusable_kept_slab_is_released);
    tcase_add_test(tcase, test_two_kept_slabs_for_one_place);
    tcase_add_test(tcase, test_slabs_that_the_kernel_may_write_are_not_used);
    tcase_add_test(tcase, test_pipes_are_closed);
    tcase_add_test(tcase, test_threads_share_it_while_it_grows);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

/* Growth of the host arena in the background: reservations that wait for it, and devices that refuse to pin or hang. */
#include "base/alloc.h"
#include "spill/device/device.h"
#include "spill/tier/host/tier_host.h"
#include "spill/tier/tiers.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/host_tier.h"
#include "tests/lib/run.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

static atomic_ullong most_bytes;

static uint64_t read_most_bytes(void *arg) {
    ck_assert_ptr_eq(arg, &most_bytes);
    return atomic_load(&most_bytes);
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
    /* The existing slabs serve, and the arena does not grow. */
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

/* It grows up to what the memory allows at that time, to the byte, and further when that is more. */
START_TEST(test_growth_ends_where_the_memory_does) {
    const struct sw_tier_host_config config = {
        .capacity_bytes = 8 * MIB, .slab_bytes = 2 * MIB, .most_bytes = read_most_bytes, .most_arg = &most_bytes};
    struct sw_tier *tier = NULL;
    struct sw_stored stored[3] = {0};
    struct sw_err err = {0};
    ck_assert_int_eq(sw_tier_host_open(&tier, &config, NULL), 0);
    for (unsigned i = 0; i < 3; i++) {
        atomic_store(&most_bytes, 2 * (i + 1) * MIB - 1);
        ck_assert_int_eq(tier->ops->reserve(tier, 2 * MIB, &stored[i], &err), -SW_ENOSPACE);
        ck_assert_int_eq(err.code, -SW_ENOSPACE);
        ck_assert_uint_eq(sw_tier_stats_of(tier).backed_bytes, 2 * i * MIB);
        atomic_store(&most_bytes, 2 * (i + 1) * MIB);
        ck_assert_int_eq(tier->ops->reserve(tier, 2 * MIB, &stored[i], &err), 0);
        ck_assert_uint_eq(sw_tier_stats_of(tier).backed_bytes, 2 * (i + 1) * MIB);
    }
    for (unsigned i = 0; i < 3; i++)
        tier->ops->release(tier, &stored[i]);
    tier->ops->close(tier);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("growth of the host tier");
    TCase *tcase = tcase_create("growth of the host tier");
    tcase_add_test(tcase, test_open_waits_for_nothing_and_reservations_for_the_first_slab);
    tcase_add_test(tcase, test_grows_ahead_of_demand);
    tcase_add_test(tcase, test_a_waiting_reservation_takes_released_space);
    tcase_add_test(tcase, test_a_failed_growth_fails_waiters_and_is_retried_on_demand);
    tcase_add_test(tcase, test_a_failed_growth_without_waiters_is_not_retried);
    tcase_add_loop_test(tcase, test_close_ends_a_growth_that_is_under_way, 0, 2);
    tcase_add_test(tcase, test_growth_ends_where_the_memory_does);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}

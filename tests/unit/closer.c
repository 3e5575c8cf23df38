/* The threads that close clients' descriptors: which closes wait for each other, the counts, and how long a stop waits.
 */
#include "base/closer.h"
#include "base/alloc.h"
#include "tests/lib/run.h"
#include <check.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

enum { MAX_FDS = 64, STUCK_UID = 7, UID = 8 };

static sem_t go_on, arrived;
static atomic_int n_closed;

static void setup(void) {
    struct sw_err err;
    (void)sem_init(&go_on, 0, 0);
    (void)sem_init(&arrived, 0, 0);
    ck_assert_int_eq(sw_closer_start(MAX_FDS, &err), 0);
}

static int some_fd(void) {
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    return fd;
}

static void end_stuck(int fd) {
    (void)sem_post(&arrived);
    (void)sem_wait(&go_on);
    (void)close(fd);
}

static void end_counted(int fd) {
    (void)close(fd);
    atomic_fetch_add(&n_closed, 1);
}

static void await_empty(uint32_t uid) {
    while (sw_closer_waiting(uid))
        (void)usleep(100);
}

static void get_stuck(uint32_t uid) {
    sw_closer_end(some_fd(), uid, end_stuck);
    (void)sem_wait(&arrived);
}

START_TEST(one_uid_does_not_delay_another) {
    get_stuck(STUCK_UID);
    const int behind = some_fd();
    sw_closer_close(behind, STUCK_UID);
    for (int i = 0; i < 1000; i++)
        sw_closer_end(some_fd(), UID, end_counted);
    await_empty(UID);
    ck_assert_int_eq(atomic_load(&n_closed), 1000);
    ck_assert_uint_eq(sw_closer_waiting(STUCK_UID), 2);
    ck_assert_uint_eq(sw_closer_waiting_all(), 2);
    ck_assert_int_ge(fcntl(behind, F_GETFD), 0);
    (void)sem_post(&go_on);
    await_empty(STUCK_UID);
    ck_assert_int_lt(fcntl(behind, F_GETFD), 0);
    sw_closer_stop();
    ck_assert_int_eq(sw_alloc_live(), 0);
}
END_TEST

/* All lanes are stuck: the next descriptor waits in one of them, and is closed in the end. */
START_TEST(more_uids_than_lanes) {
    for (uint32_t uid = 0; uid < SW_CLOSER_LANES; uid++)
        get_stuck(uid);
    sw_closer_end(some_fd(), 1000, end_counted);
    ck_assert_uint_eq(sw_closer_waiting_all(), SW_CLOSER_LANES + 1);
    for (int i = 0; i < SW_CLOSER_LANES; i++)
        (void)sem_post(&go_on);
    sw_closer_stop();
    ck_assert_int_eq(atomic_load(&n_closed), 1);
    ck_assert_uint_eq(sw_closer_waiting_all(), 0);
}
END_TEST

START_TEST(a_stop_does_not_wait_for_ever) {
    struct sw_err err;
    get_stuck(STUCK_UID);
    sw_closer_stop();
    ck_assert_uint_eq(sw_closer_waiting_all(), 1);
    sw_closer_end(some_fd(), UID, end_counted); /* by the caller: it is done when this returns */
    ck_assert_int_eq(atomic_load(&n_closed), 1);
    /* Another start has all but that lane. */
    ck_assert_int_eq(sw_closer_start(MAX_FDS, &err), 0);
    sw_closer_end(some_fd(), UID, end_counted);
    (void)sem_post(&go_on);
    while (sw_closer_waiting_all())
        (void)usleep(100);
    ck_assert_int_eq(atomic_load(&n_closed), 2);
    sw_closer_stop();
}
END_TEST

START_TEST(start_fails_without_memory) {
    struct sw_err err;
    sw_closer_stop();
    sw_alloc_fail_nth(1);
    ck_assert_int_eq(sw_closer_start(MAX_FDS, &err), -SW_ENOMEM);
    sw_closer_end(some_fd(), UID, end_counted);
    ck_assert_int_eq(atomic_load(&n_closed), 1);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("closer");
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_test(tests, one_uid_does_not_delay_another);
    tcase_add_test(tests, more_uids_than_lanes);
    tcase_add_test(tests, a_stop_does_not_wait_for_ever);
    tcase_add_test(tests, start_fails_without_memory);
    Suite *suite = suite_create("closer");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
